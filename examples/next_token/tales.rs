//! Short tales, written by a grammar: the text a small character model learns from when it is
//! given no other.
//!
//! The grammar is the file `tales.txt`, and a tale is an expansion of its rule `tale`. A rule is a
//! list of alternatives; one of them is chosen, and what is in it is replaced from left to right:
//!
//! | written           | becomes                                                              |
//! |-------------------|----------------------------------------------------------------------|
//! | `{rule}`          | an alternative of the rule, expanded                                 |
//! | `{Rule}`          | the same, beginning with a capital letter                            |
//! | `{x=rule}`        | nothing, but from here to the end of the tale `{x}` is one fixed     |
//! |                   | alternative of the rule                                              |
//! | `{x:text}`        | nothing, but from here on `{x}` is this text, expanded               |
//! | `[a\|b\|c]`       | `a`, `b` or `c`, expanded                                            |
//! | `/`               | a new paragraph                                                      |
//!
//! What is remembered is what makes a tale hold together. The cast is chosen once, hero and friend
//! of different gender, so that every `{he}` is the hero and every `{fhe}` the friend; the thing
//! that is found in the second paragraph is a `{thing}` with a `{mark}`, and so is the thing that
//! is given back in the fifth; and `{{season}_sky}` is weather of the season in which the tale
//! began, since the name of a rule may itself be an expansion. A grammar that only chose, and did
//! not remember, could write sentences but no story.
//!
//! A rule does not choose among all its alternatives: the third of them that were used last are
//! left out, so names and scenes come back only after others have had their turn. Afterwards
//! [`paragraph`] makes `a` into `an` where it must be, sets a capital letter at the start
//! of each sentence, and breaks the lines.
//!
//! All of it is integer arithmetic on one seed, so a seed is the same text on every machine.

use std::collections::HashMap;

/// The widest line, in characters.
const WIDTH: usize = 72;

/// At least `min_bytes` bytes of tales: whole tales, as many as it takes.
///
/// A tale is a title in capitals and some paragraphs, with an empty line after each.
pub fn tales(seed: u64, min_bytes: usize) -> String {
    let mut writer = Writer::new(include_str!("tales.txt"), seed);
    let mut text = String::with_capacity(min_bytes + 4096);
    while text.len() < min_bytes {
        text += &writer.tale();
    }
    text
}

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        ((u128::from(z) * n as u128) >> 64) as usize
    }
}

/// The rules, and what the tale that is being written remembers.
struct Writer {
    random: Random,
    /// The alternatives of each rule, the one used last at the end.
    rules: HashMap<String, Vec<String>>,
    memory: HashMap<String, String>,
}

impl Writer {
    fn new(grammar: &str, seed: u64) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for line in grammar.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match lines.last_mut() {
                Some(last) if line.starts_with(' ') => *last = format!("{last} {}", line.trim()),
                _ => lines.push(line.to_string()),
            }
        }
        let mut rules: HashMap<String, Vec<String>> = HashMap::new();
        let mut rule = String::new();
        for line in lines {
            if let Some(header) = line.strip_prefix('@') {
                let (name, list) = header.split_once(": ").unwrap_or((header, ""));
                let words = list.split(", ").filter(|word| !word.is_empty());
                let before = rules.insert(name.to_string(), words.map(str::to_string).collect());
                assert!(before.is_none(), "two rules are called {name}");
                rule = name.to_string();
            } else {
                rules.get_mut(&rule).expect("an alternative before any rule").push(line);
            }
        }
        Writer { random: Random(seed), rules, memory: HashMap::new() }
    }

    /// One tale: the title, the paragraphs, and an empty line after each.
    fn tale(&mut self) -> String {
        self.memory.clear();
        let text = self.expand("{tale}");
        let mut paragraphs = text.split(" / ").map(paragraph);
        let title = paragraphs.next().unwrap_or_default().to_uppercase();
        paragraphs.fold(title + "\n\n", |tale, paragraph| tale + &paragraph + "\n\n")
    }

    /// The text with everything in braces and brackets replaced.
    fn expand(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '[']) {
            out += &rest[..open];
            let (parts, after) = bracket(&rest[open..]);
            out += &if rest[open..].starts_with('{') {
                self.braces(parts[0])
            } else {
                let one = self.random.below(parts.len());
                self.expand(parts[one])
            };
            rest = after;
        }
        out + rest
    }

    /// What stands for `{inside}`.
    fn braces(&mut self, inside: &str) -> String {
        let word = inside.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if let Some(end) = word.filter(|&end| matches!(inside.as_bytes()[end], b'=' | b':')) {
            let (name, value) = (&inside[..end], self.expand(&inside[end + 1..]));
            let value = if inside.as_bytes()[end] == b'=' { self.choose(&value) } else { value };
            self.memory.insert(name.to_string(), value);
            return String::new();
        }
        let name = self.expand(inside);
        let small = name.to_ascii_lowercase();
        let value = match self.memory.get(&small) {
            Some(value) => value.clone(),
            None => self.choose(&small),
        };
        if small == name { value } else { capital(&value) }
    }

    /// An alternative of a rule, expanded; none of the third of them that were used last.
    fn choose(&mut self, rule: &str) -> String {
        let rules = self.rules.get_mut(rule).unwrap_or_else(|| panic!("there is no rule {rule}"));
        let chosen = rules.remove(self.random.below(rules.len() - rules.len() / 3));
        rules.push(chosen.clone());
        self.expand(&chosen)
    }
}

/// What is between the bracket `text` begins with and the one that closes it, cut at each `|` that
/// is in no inner bracket; and what comes after it.
fn bracket(text: &str) -> (Vec<&str>, &str) {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 1);
    for (i, c) in text.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && c == '|') {
            parts.push(&text[start..i]);
            start = i + 1;
        }
        if depth == 0 {
            return (parts, &text[start..]);
        }
    }
    panic!("a bracket is not closed: {text}");
}

/// A paragraph set right: one space between words and none before a comma or stop, `an` before a
/// vowel, a capital letter at the start of each sentence, lines of at most [`WIDTH`] characters.
fn paragraph(text: &str) -> String {
    let text = text.replace(" ,", ",").replace(" .", ".");
    let words: Vec<&str> = text.split_whitespace().collect();
    let (mut out, mut column, mut begins) = (String::new(), 0, true);
    for (i, word) in words.iter().enumerate() {
        let mut word = word.to_string();
        let article = word.trim_start_matches('"').eq_ignore_ascii_case("a");
        if article && words.get(i + 1).is_some_and(|next| sounds_like_vowel(next)) {
            word.push('n');
        }
        if begins {
            word = capital(&word);
        }
        // After `?"` and `!"` the sentence may go on: there the grammar says what is capital.
        begins = word.ends_with(['.', '?', '!']) || word.ends_with(".\"");
        if i > 0 && column + 1 + word.len() > WIDTH {
            out.push('\n');
            column = 0;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        column += word.len();
        out += &word;
    }
    out
}

fn sounds_like_vowel(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let exception = ["one", "use", "usual"].iter().any(|start| word.starts_with(start));
    let silent = ["hour", "honest"].iter().any(|start| word.starts_with(start));
    silent || (word.starts_with(['a', 'e', 'i', 'o', 'u']) && !exception)
}

/// The text with its first letter made a capital.
fn capital(text: &str) -> String {
    let (mark, rest) = text.split_at(usize::from(text.starts_with('"')));
    let (first, rest) = rest.split_at(rest.len().min(1));
    mark.to_string() + &first.to_ascii_uppercase() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_text() {
        let text = tales(1, 1000);
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = text.bytes().take(1000).fold(0xcbf2_9ce4_8422_2325, fnv);
        assert_eq!(hash, 0x4348_399f_3961_a563, "the text has changed: {hash:#x}");
        assert!(tales(1, 50_000).starts_with(&text));
        assert_ne!(tales(2, 1000), text);
    }

    #[test]
    fn the_text_has_the_requested_length_and_typography() {
        let text = tales(3, 1_000_000);
        assert!((1_000_000..1_010_000).contains(&text.len()));
        assert!(text.ends_with(".\n\n"));
        let known = |c: char| c.is_ascii_alphabetic() || " \n.,;:!?'\"-".contains(c);
        assert_eq!(text.chars().find(|&c| !known(c)), None, "a part of the grammar is left");
        for wrong in ["  ", " \n", "\n ", "\n\n\n", " ,", " .", ",,", "..", "?.", "!.", "?,", "!,"]
        {
            assert!(!text.contains(wrong), "the text contains {wrong:?}");
        }
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        for paragraph in text.trim_end().split("\n\n") {
            assert!(paragraph.matches('"').count() % 2 == 0, "an open quotation: {paragraph}");
            assert!(
                paragraph.ends_with(['.', '?', '!', '"']) || paragraph.to_uppercase() == paragraph
            );
            assert!(
                paragraph.trim_start_matches('"').starts_with(|c: char| c.is_ascii_uppercase())
            );
        }
    }

    #[test]
    fn bound_names_stay_fixed_and_choices_vary() {
        let grammar = "@tale\n{who=name}Title / {Who} and [{who}|{who}].\n@name: ann, bea, cy";
        let mut writer = Writer::new(grammar, 5);
        let tales: Vec<String> = (0..50).map(|_| writer.tale()).collect();
        for name in ["Ann and ann.", "Bea and bea.", "Cy and cy."] {
            assert!(tales.contains(&format!("TITLE\n\n{name}\n\n")));
        }
        assert!(tales.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn articles_and_capitals() {
        let text = "a old \"a hour , a one. is a use?\" said a {x}. \"go.\" a";
        let right = "An old \"an hour, a one. Is a use?\" said a {x}. \"Go.\" A";
        assert_eq!(paragraph(text), right);
    }
}
