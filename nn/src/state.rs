//! State dicts: parameter values by name, and loading them.

use crate::param::Param;
use crate::text::Printable;
use retrograd_autograd::Id;
use retrograd_tensor::{Real, Shape, Tensor};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

/// Parameter values by dotted name.
pub type StateDict<T = f32> = BTreeMap<String, Tensor<T>>;

/// All differences between a state dict and a module or an optimiser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadError {
    /// Parameters without a value.
    pub missing: Vec<String>,
    /// Values without a parameter.
    pub unexpected: Vec<String>,
    /// Parameters of another shape: name, shape of the parameter, shape of the value.
    pub mismatched: Vec<(String, Shape, Shape)>,
    /// Pairs of names of one tied parameter with different values.
    pub conflicting: Vec<(String, String)>,
    /// Names of invalid values, and the description of a valid one.
    pub invalid: Vec<(String, String)>,
}

/// The largest number of items of a list in a message.
const SHOWN: usize = 8;

/// The first items of a list, and the number of the others.
pub(crate) fn list_first(items: &[String], separator: &str) -> String {
    let shown = items[..items.len().min(SHOWN)].join(separator);
    match items.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}{separator}and {more} more"),
    }
}

impl fmt::Display for LoadError {
    /// The first items of each kind, the number of the others, and the likely cause if there is
    /// one. The alternate form `{:#}` lists all items, as the fields do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = |(name, want, got): &(String, Shape, Shape)| {
            format!("shape of {name}: expected {want:?}, the state dict has {got:?}")
        };
        let tie =
            |(a, b): &(String, String)| format!("{a} and {b} are one tied parameter, but differ");
        let missing = self.missing.iter().map(|name| format!("missing: {name}"));
        let unexpected = self.unexpected.iter().map(|name| format!("unexpected: {name}"));
        let kinds: [(&str, Vec<String>); 4] = [
            ("missing", missing.collect()),
            ("unexpected", unexpected.collect()),
            ("of another shape", self.mismatched.iter().map(shape).collect()),
            ("tied, but different", self.conflicting.iter().map(tie).collect()),
        ];
        let shown = if f.alternate() { usize::MAX } else { SHOWN };
        let f = &mut Printable(f);
        write!(f, "the state dict does not fit; nothing was loaded")?;
        for (kind, lines) in &kinds {
            for line in lines.iter().take(shown) {
                write!(f, "\n  {line}")?;
            }
            if lines.len() > shown {
                write!(f, "\n  and {} more {kind}", lines.len() - shown)?;
            }
        }
        if let Some(prefix) = common_prefix(&self.unexpected, &self.missing) {
            let key = prefix.trim_end_matches('.');
            let source = match prefix {
                "_orig_mod." => ", which torch.compile adds",
                "module." => ", which DataParallel and DistributedDataParallel add",
                _ => "",
            };
            write!(
                f,
                "\n  (hint: names in the state dict begin with `{prefix}`{source}; \
                 `Checkpoint::get({key:?})` removes it)"
            )?;
        } else if let Some(prefix) = common_prefix(&self.missing, &self.unexpected) {
            write!(f, "\n  (hint: names in the state dict lack `{prefix}` at their beginning)")?;
        }
        let transposed = |(_, want, got): &&(String, Shape, Shape)| {
            want.rank() == 2 && got.rank() == 2 && want[0] == got[1] && want[1] == got[0]
        };
        if self.mismatched.iter().any(|m| transposed(&m)) {
            write!(
                f,
                "\n  (hint: a checkpoint of GPT-2 stores the weights of attn.c_attn, attn.c_proj, \
                 mlp.c_fc and mlp.c_proj transposed, as Conv1D does; \
                 `pretrained::gpt2().import(&file)` transposes all of them, the square ones too: \
                 they have the same shape either way, so they are not listed)"
            )?;
        }
        for (name, want) in &self.invalid {
            write!(f, "\n  value of {name}: expected {want}")?;
        }
        Ok(())
    }
}

/// The prefix of the names in `long` without which most names in `short` are among them.
fn common_prefix<'a>(long: &'a [String], short: &[String]) -> Option<&'a str> {
    let wanted: BTreeSet<&str> = short.iter().map(String::as_str).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in long {
        let ends = name.match_indices('.').map(|(at, _)| name.split_at(at + 1));
        for (prefix, rest) in ends {
            if wanted.contains(rest) {
                *counts.entry(prefix).or_default() += 1;
            }
        }
    }
    let (prefix, count) = counts.into_iter().max_by_key(|&(_, count)| count)?;
    (2 * count > short.len()).then_some(prefix)
}

impl std::error::Error for LoadError {}

/// Sets parameters (named in visiting order, tied ones under every name) from `dict`.
#[inline(never)]
pub(crate) fn load<T: Real>(
    names: &[(String, Param<T>)],
    dict: &StateDict<T>,
) -> Result<(), LoadError> {
    let mut error = LoadError::default();
    // The name whose value a parameter takes, by its identity.
    let mut chosen: BTreeMap<Id, (&String, &Param<T>, &Tensor<T>)> = BTreeMap::new();
    for (name, param) in names {
        let Some(value) = dict.get(name) else { continue };
        if *value.shape() != param.shape() {
            error.mismatched.push((name.clone(), param.shape(), *value.shape()));
        }
        match chosen.entry(param.id()) {
            Entry::Occupied(first) => {
                let (first, _, other) = first.get();
                if !same_bits(other, value) {
                    error.conflicting.push(((*first).clone(), name.clone()));
                }
            }
            Entry::Vacant(place) => drop(place.insert((name, param, value))),
        }
    }
    let mut seen = BTreeSet::new();
    for (name, param) in names {
        if !chosen.contains_key(&param.id()) && seen.insert(param.id()) {
            error.missing.push(name.clone());
        }
    }
    let known: BTreeSet<&String> = names.iter().map(|(name, _)| name).collect();
    error.unexpected = dict.keys().filter(|name| !known.contains(name)).cloned().collect();
    if error != LoadError::default() {
        return Err(error);
    }
    for (_, param, value) in chosen.into_values() {
        param.set(value.contiguous());
    }
    Ok(())
}

fn same_bits<T: Real>(a: &Tensor<T>, b: &Tensor<T>) -> bool {
    let (a, b) = (a.contiguous(), b.contiguous());
    let mut pairs = a.as_slice().iter().zip(b.as_slice());
    a.shape() == b.shape() && pairs.all(|(x, y)| x.to_f64().to_bits() == y.to_f64().to_bits())
}
