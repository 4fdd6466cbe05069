//! Dates in several formats and in the format of ISO 8601, and both as tokens.

use retrograd::prelude::*;
use std::fmt;

/// A day of the Gregorian calendar, from 1950 to 2049, so that two digits name a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    year: usize,
    month: usize,
    day: usize,
}

const FIRST_YEAR: usize = 1950;
const YEARS: usize = 100;
const MONTHS: [(&str, usize); 12] = [
    ("January", 31),
    ("February", 28),
    ("March", 31),
    ("April", 30),
    ("May", 31),
    ("June", 30),
    ("July", 31),
    ("August", 31),
    ("September", 30),
    ("October", 31),
    ("November", 30),
    ("December", 31),
];
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The number of formats; see [`Date::written`].
pub const FORMATS: usize = 10;

impl Date {
    /// All dates.
    pub fn all() -> impl Iterator<Item = Date> {
        (FIRST_YEAR..FIRST_YEAR + YEARS).flat_map(|year| {
            (1..=12).flat_map(move |month| {
                (1..=days(year, month)).map(move |day| Date { year, month, day })
            })
        })
    }

    /// The date in one of the formats.
    pub fn written(self, format: usize) -> String {
        let Date { year, month, day } = self;
        let (name, y) = (MONTHS[month - 1].0, year % 100);
        let short = &name[..3];
        let weekday = WEEKDAYS[self.weekday()];
        match format {
            0 => format!("{day} {name} {year}"),
            1 => format!("{name} {day}, {year}"),
            2 => format!("{weekday}, {name} {day}, {year}"),
            3 => format!("{day}{} of {name} {year}", ordinal(day)),
            4 => format!("{} {day} {short} {year}", &weekday[..3]),
            5 => format!("{short} {day} '{y:02}"),
            6 => format!("{day:02}.{month:02}.{year}"),
            7 => format!("{day}.{month}.{y:02}"),
            8 => format!("{month}/{day}/{year}"),
            9 => format!("{year}, the {day}{} of {name}", ordinal(day)),
            _ => unreachable!("there are {FORMATS} formats"),
        }
    }

    /// Days since Monday.
    fn weekday(self) -> usize {
        let years: usize =
            (FIRST_YEAR..self.year).map(|y| if is_leap(y) { 366 } else { 365 }).sum();
        let months: usize = (1..self.month).map(|m| days(self.year, m)).sum();
        // The first day of 1950 was a Sunday.
        (6 + years + months + self.day - 1) % 7
    }
}

/// `1987-05-03`
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

fn is_leap(year: usize) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn days(year: usize, month: usize) -> usize {
    MONTHS[month - 1].1 + usize::from(month == 2 && is_leap(year))
}

fn ordinal(day: usize) -> &'static str {
    match (day / 10, day % 10) {
        (1, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// A date as text, and the date.
#[derive(Clone)]
pub struct Pair {
    pub written: String,
    pub date: Date,
}

impl Pair {
    /// The date in a random format.
    pub fn of(date: Date, rng: &mut Rng) -> Pair {
        Pair { written: date.written(rng.below(FORMATS)), date }
    }
}

/// The characters of all formats.
pub const CHARACTERS: &str = " ',./0123456789ADFJMNOSTWabcdefghilmnoprstuvy";
/// The symbols of ISO dates, and the start symbol.
pub const SYMBOLS: &str = "0123456789-^";
/// The number of symbols of an ISO date.
pub const ISO: usize = 10;
/// The largest number of characters of a date.
pub const LONGEST: usize = 32;

fn place(of: &str, c: char) -> Option<i64> {
    of.chars().position(|x| x == c).map(|i| i as i64)
}

/// Texts as tokens `[B, longest]`, padded at the end, and their lengths.
///
/// # Errors
/// If a text has a character that no date has, is empty or is too long.
pub fn encode(written: &[&str]) -> Result<(Tensor<i64>, Vec<usize>), String> {
    let mut rows = Vec::new();
    for text in written {
        let token = |c| place(CHARACTERS, c).ok_or(format!("no date has the character {c:?}"));
        let row = text.chars().map(token).collect::<Result<Vec<i64>, String>>()?;
        if row.is_empty() || row.len() > LONGEST {
            return Err(format!("a date has 1 to {LONGEST} characters, not {}", row.len()));
        }
        rows.push(row);
    }
    let lengths: Vec<usize> = rows.iter().map(|row| row.len()).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let token = |i: &[usize]| rows[i[0]].get(i[1]).copied().unwrap_or(0);
    Ok((Tensor::from_fn([rows.len(), longest], token), lengths))
}

/// Tokens `[B, 10]` of ISO dates.
pub fn encode_iso(dates: &[Date]) -> Tensor<i64> {
    let token = |c| place(SYMBOLS, c).expect("a symbol of a date");
    let all: Vec<i64> =
        dates.iter().flat_map(|d| d.to_string().chars().map(token).collect::<Vec<_>>()).collect();
    Tensor::from_vec(all, [dates.len(), ISO])
}

/// The token before the first symbol.
pub fn start() -> i64 {
    place(SYMBOLS, '^').expect("the start")
}

/// The text of tokens.
pub fn decode(tokens: &[i64]) -> String {
    tokens.iter().map(|&t| SYMBOLS.as_bytes()[t as usize] as char).collect()
}
