//! Parsers of values of flags.

use crate::checkpoints::Which;
use clap::builder::RangedI64ValueParser;
use retrograd::nn::{AttentionKind, ConfigError};
use serde::Serialize;
use std::str::FromStr;

/// A count, from 1 to `most`.
pub fn count(most: i64) -> RangedI64ValueParser<u64> {
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

/// An attention variant; `None` is the request to list them.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Attention(pub Option<AttentionKind>);

impl FromStr for Attention {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        if name == "list" {
            Ok(Attention(None))
        } else {
            name.parse().map(|kind| Attention(Some(kind)))
        }
    }
}

impl FromStr for Which {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "last" => Ok(Which::Last),
            "best" => Ok(Which::Best),
            step => step.parse().map(Which::Step).map_err(|_| "one of last, best and a step"),
        }
    }
}
