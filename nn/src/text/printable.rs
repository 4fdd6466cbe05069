//! Text from outside, for a terminal.

use std::fmt::{self, Display, Write};

/// Displays text with control characters escaped, but for newline and tab: names and texts of files may have
/// sequences that a terminal obeys.
///
/// ```
/// use retrograd::nn::text::Printable;
/// assert_eq!(Printable("red\x1b[31m\r\n\tand é").to_string(), "red\\u{1b}[31m\\r\n\tand é");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Printable<T>(pub T);

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Printable(f), "{}", self.0)
    }
}

/// Escapes what is written.
impl<W: Write> Write for Printable<&mut W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.split_inclusive(char::is_control).try_for_each(|part| {
            let is_escaped = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
            match part.chars().next_back().filter(is_escaped) {
                Some(c) => {
                    write!(self.0, "{}{}", &part[..part.len() - c.len_utf8()], c.escape_default())
                }
                None => self.0.write_str(part),
            }
        })
    }
}
