//! Parsers of values of flags.

use clap::builder::RangedI64ValueParser;
use retrograd::nn::AttentionKind;
use std::fmt::{self, Display};
use std::str::FromStr;

/// A count, from 1 to `most`.
pub fn count(most: i64) -> RangedI64ValueParser<u64> {
    RangedI64ValueParser::new().range(1..=most)
}

/// A number of elements, from 1 to `most`.
pub fn size(most: i64) -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new().range(1..=most)
}

fn number(text: &str, is_valid: impl Fn(f64) -> bool, wrong: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Err(_) => Err("not a number".into()),
        Ok(x) if !x.is_finite() => Err("must be finite".into()),
        Ok(x) if !is_valid(x) => Err(wrong.into()),
        Ok(x) => Ok(x),
    }
}

/// A number of bytes with its unit, such as `500MB` or `1.5GiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)];
    let binary = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let units = units.into_iter().chain(binary.map(|(unit, log)| (unit, f64::from(log).exp2())));
    let found = units.into_iter().find_map(|(unit, n)| Some((text.strip_suffix(unit)?, n)));
    let (number, unit) = found.ok_or("needs a unit: 500MB, 2GB, 1.5GiB")?;
    Ok((above_0(number.trim_end())? * unit) as u64)
}

pub fn above_0(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0, "must be above 0")
}

pub fn above_0_up_to_1(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0 && x <= 1.0, "must be above 0 and at most 1")
}

pub fn at_least_0(text: &str) -> Result<f64, String> {
    number(text, |x| x >= 0.0, "must be at least 0")
}

pub fn probability(text: &str) -> Result<f64, String> {
    number(text, |x| (0.0..1.0).contains(&x), "must be at least 0 and below 1")
}

/// Attention variants by layer, as names between spaces; none if every layer has the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pattern(pub Vec<AttentionKind>);

impl FromStr for Pattern {
    type Err = String;

    fn from_str(names: &str) -> Result<Self, String> {
        names.split_whitespace().map(attention).collect::<Result<_, _>>().map(Pattern)
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|kind| kind.name()).collect();
        f.pad(&names.join(" "))
    }
}

/// An attention variant by its name.
pub fn attention(name: &str) -> Result<AttentionKind, String> {
    name.parse().map_err(|_| {
        let mut names: Vec<&str> = AttentionKind::ALL.iter().map(|kind| kind.name()).collect();
        let distance = |other: &&str| 1.0 - strsim::jaro_winkler(name, other);
        names.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        let nearest = names[..3].join(", ");
        format!("there is no attention {name:?}; near it are {nearest}; --attention list has all")
    })
}
