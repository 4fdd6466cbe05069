//! Text up to a stop string.

/// Text up to the first occurrence of a stop string; see [`until`].
#[derive(Clone, Debug)]
pub struct Until<I> {
    pieces: I,
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
    is_over: bool,
}

/// The pieces of a text up to the first occurrence of one of the `stops`, which is left out. Text that
/// may be the beginning of a stop string is returned later, when it is not. An empty stop string ends
/// the text at once.
///
/// ```
/// use retrograd::nn::until;
/// let pieces = ["Good ", "morning", ".\n", "\nKING", " HENRY:"];
/// let text: String = until(pieces, ["\n\n"]).collect();
/// assert_eq!(text, "Good morning.");
/// ```
pub fn until<I: IntoIterator<Item: AsRef<str>>, S: Into<String>>(
    pieces: I,
    stops: impl IntoIterator<Item = S>,
) -> Until<I::IntoIter> {
    let stops: Vec<String> = stops.into_iter().map(Into::into).collect();
    let is_over = stops.iter().any(String::is_empty);
    Until { pieces: pieces.into_iter(), stops, held: String::new(), is_over }
}

impl<I: Iterator<Item: AsRef<str>>> Iterator for Until<I> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        let Some(piece) = self.pieces.next() else {
            self.is_over = true;
            return Some(std::mem::take(&mut self.held)).filter(|text| !text.is_empty());
        };
        self.held.push_str(piece.as_ref());
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        self.is_over = first.is_some();
        let end = first.unwrap_or_else(|| self.held.len() - self.beginning());
        let rest = self.held.split_off(end);
        Some(std::mem::replace(&mut self.held, rest))
    }
}

impl<I> Until<I> {
    /// The length of the longest end of the text that is the beginning of a stop string.
    fn beginning(&self) -> usize {
        let ends = self.held.char_indices().map(|(at, _)| &self.held[at..]);
        let is_beginning = |end: &&str| self.stops.iter().any(|stop| stop.starts_with(*end));
        ends.filter(is_beginning).map(str::len).max().unwrap_or(0)
    }
}
