//! Names as tokens.

use crate::names::NAMES;
use crate::sizes::CONTEXT;
use retrograd::nn::checkpoint;
use retrograd::tensor::random::Key;
use std::io::{Error, ErrorKind::InvalidData};
use std::path::Path;

/// Names, and the characters in them. Token `i` is character `i`; the last token begins and ends a name.
pub(crate) struct Names {
    names: Vec<String>,
    characters: Vec<char>,
}

impl Default for Names {
    fn default() -> Names {
        Names::new(NAMES.split_whitespace())
    }
}

impl Names {
    fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Names {
        let names: Vec<String> = names.into_iter().map(str::to_string).collect();
        let mut characters: Vec<char> = names.iter().flat_map(|name| name.chars()).collect();
        characters.sort_unstable();
        characters.dedup();
        Names { names, characters }
    }

    /// Reads a text with one name per line.
    ///
    /// # Errors
    /// If it cannot be read, or has no name.
    pub(crate) fn read(path: &Path) -> Result<Names, String> {
        let text = checkpoint::read(path, 1 << 30)
            .and_then(|text| String::from_utf8(text).map_err(|e| Error::new(InvalidData, e)))
            .map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let names = Names::new(text.lines().map(str::trim).filter(|line| !line.is_empty()));
        if names.len() == 0 {
            return Err(format!("{} has no names", path.display()));
        }
        Ok(names)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The number of tokens: the characters, and the end.
    pub(crate) fn vocab(&self) -> usize {
        self.characters.len() + 1
    }

    /// The token before the first and after the last character.
    pub(crate) fn end(&self) -> usize {
        self.characters.len()
    }

    pub(crate) fn character(&self, token: usize) -> char {
        self.characters[token]
    }

    /// The tokens of the name of a step: an end, the characters, an end; at most `CONTEXT` + 1.
    ///
    /// Each pass over the names has an order of its own: they are sorted by random numbers, which are
    /// a function of the seed, the pass and the name.
    pub(crate) fn tokens(&self, seed: u64, step: u64) -> Vec<usize> {
        let (pass, place) = (step / self.len() as u64, (step % self.len() as u64) as usize);
        let key = Key::new(seed, 1000 + pass);
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by_key(|&i| key.bits(i as u64));
        let name = &self.names[order[place]];
        let token = |c: char| self.characters.binary_search(&c).expect("a character of a name");
        let mut tokens = vec![self.end()];
        tokens.extend(name.chars().map(token));
        tokens.push(self.end());
        tokens.truncate(CONTEXT + 1);
        tokens
    }
}
