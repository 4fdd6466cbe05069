//! State dicts: parameter values by name, and loading them all or not at all.

use crate::param::Param;
use retrograd_tensor::{Real, Shape, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Parameter values by dotted name.
pub type StateDict<T = f32> = BTreeMap<String, Tensor<T>>;

/// Everything that keeps a state dict from fitting a module or an optimiser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadError {
    /// Parameters without a value.
    pub missing: Vec<String>,
    /// Values without a parameter.
    pub unexpected: Vec<String>,
    /// Parameter, its shape, and that of the value.
    pub misshapen: Vec<(String, Shape, Shape)>,
    /// Names of one tied parameter that are given different values.
    pub torn: Vec<(String, String)>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the state dict does not fit; nothing was loaded")?;
        for name in &self.missing {
            write!(f, "\n  missing: {name}")?;
        }
        for name in &self.unexpected {
            write!(f, "\n  unexpected: {name}")?;
        }
        for (name, want, got) in &self.misshapen {
            write!(f, "\n  shape of {name}: wanted is {want:?}, the state dict has {got:?}")?;
        }
        for (a, b) in &self.torn {
            write!(f, "\n  {a} and {b} are one tied parameter, but differ")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

/// Sets parameters (named in walking order, tied ones under every name) from `dict`.
#[inline(never)]
pub(crate) fn load<T: Real>(
    names: &[(String, Param<T>)],
    dict: &StateDict<T>,
) -> Result<(), LoadError> {
    let mut error = LoadError::default();
    let mut chosen: Vec<(&String, &Param<T>, &Tensor<T>)> = Vec::new();
    for (name, param) in names {
        let Some(value) = dict.get(name) else { continue };
        if *value.shape() != param.shape() {
            error.misshapen.push((name.clone(), param.shape(), *value.shape()));
        }
        match chosen.iter().find(|(_, p, _)| p.id() == param.id()) {
            Some((first, _, other)) if !same_bits(other, value) => {
                error.torn.push(((*first).clone(), name.clone()));
            }
            Some(_) => {}
            None => chosen.push((name, param, value)),
        }
    }
    let mut seen = BTreeSet::new();
    for (name, param) in names {
        let has_value = chosen.iter().any(|(_, p, _)| p.id() == param.id());
        if !has_value && seen.insert(param.id()) {
            error.missing.push(name.clone());
        }
    }
    let known: BTreeSet<&String> = names.iter().map(|(name, _)| name).collect();
    error.unexpected = dict.keys().filter(|name| !known.contains(name)).cloned().collect();
    if error != LoadError::default() {
        return Err(error);
    }
    for (_, param, value) in chosen {
        param.set(value.contiguous());
    }
    Ok(())
}

fn same_bits<T: Real>(a: &Tensor<T>, b: &Tensor<T>) -> bool {
    a.shape() == b.shape()
        && a.to_vec()
            .iter()
            .zip(b.to_vec())
            .all(|(x, y)| x.to_f64().to_bits() == y.to_f64().to_bits())
}
