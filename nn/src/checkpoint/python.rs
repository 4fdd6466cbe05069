//! The part of Python's syntax in which NumPy writes headers.

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(String),
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Integer(u64),
    /// A tuple or a list.
    List(Vec<Value>),
}

/// The deepest nesting of lists that is read.
const DEEPEST: usize = 16;

/// The entries of a dictionary whose keys are strings; `None` if the text is anything else.
pub fn dictionary(text: &str) -> Option<Vec<(String, Value)>> {
    let mut rest = Rest(text);
    rest.token('{')?;
    let mut entries = Vec::new();
    while rest.token('}').is_none() {
        let Value::Text(key) = rest.value(0)? else { return None };
        rest.token(':')?;
        entries.push((key, rest.value(0)?));
        if rest.token(',').is_none() {
            rest.token('}')?;
            break;
        }
    }
    rest.0.trim_start().is_empty().then_some(entries)
}

/// Text that has not been read.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    /// Takes a character, after any space.
    fn token(&mut self, c: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(c)?;
        Some(())
    }

    /// Takes a word, after any space.
    fn word(&mut self, word: &str) -> bool {
        let rest = self.0.trim_start().strip_prefix(word);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        for (open, close) in [('(', ')'), ('[', ']')] {
            if self.token(open).is_some() {
                return self.list(close, depth + 1).map(Value::List);
            }
        }
        for (word, value) in [("True", true), ("False", false)] {
            if self.word(word) {
                return Some(Value::Bool(value));
            }
        }
        for quote in ['\'', '"'] {
            if self.token(quote).is_some() {
                return self.text(quote).map(Value::Text);
            }
        }
        self.integer().map(Value::Integer)
    }

    /// The rest of a list.
    fn list(&mut self, close: char, depth: usize) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        while depth <= DEEPEST && self.token(close).is_none() {
            items.push(self.value(depth)?);
            if self.token(',').is_none() {
                self.token(close)?;
                return Some(items);
            }
        }
        (depth <= DEEPEST).then_some(items)
    }

    /// The rest of a string, without the meaning of escapes.
    fn text(&mut self, quote: char) -> Option<String> {
        let mut escaped = false;
        let end = self.0.find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[quote.len_utf8()..];
        Some(text.to_string())
    }

    /// Digits. Python 2 writes an `L` after a long integer.
    fn integer(&mut self) -> Option<u64> {
        let text = self.0.trim_start();
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let value = text[..end].parse().ok()?;
        self.0 = text[end..].strip_prefix('L').unwrap_or(&text[end..]);
        Some(value)
    }
}
