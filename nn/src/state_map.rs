//! Maps between the state dicts of different programs: other names, other layouts.

use crate::attention::{Pairing, Rope};
use crate::checkpoint::{Checkpoint, CheckpointError, Storable};
use crate::state::{StateDict, list_first};
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};
use std::collections::BTreeMap;

/// A map from the state dict of another program, *theirs*, to the state dict of a model here, *ours*, and back:
/// a list of [rules](StateRule).
///
/// [`StateMap::import`] applies the rules in order to every tensor of a file, and
/// [`StateMap::export`] undoes them in the opposite order. What no rule matches stays as it is, so
/// [`Module::load_state_dict`](crate::Module::load_state_dict) reports it if it does not fit.
///
/// A *pattern* is a name in which a part between dots may be `*`, for any one part, or `**`, for one
/// or more. The two patterns of a renaming have the same wildcards in the same order, and each stands
/// for the same parts in both.
///
/// ```
/// use retrograd::nn::StateMap;
/// use retrograd::prelude::*;
///
/// let map = StateMap::new()
///     .strip_prefix("_orig_mod")
///     .ignore("layers.*.mask")
///     .rename("layers.*.w", "blocks.*.weight")
///     .transpose("blocks.*.weight");
///
/// let mut file = Checkpoint::new();
/// file.tensors.insert("_orig_mod.layers.7.w".into(), Tensor::from([[1.0f32, 2.0]]).into());
/// file.tensors.insert("_orig_mod.layers.7.mask".into(), Tensor::from([true]).into());
/// let ours: StateDict<f32> = map.import(&file).unwrap();
/// assert_eq!(ours.len(), 1);
/// assert_eq!(ours["blocks.7.weight"], Tensor::from([[1.0], [2.0]]));
///
/// let theirs = map.export(&ours).unwrap();
/// assert_eq!(theirs["layers.7.w"], Tensor::from([[1.0, 2.0]]));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateMap {
    rules: Vec<StateRule>,
}

/// A rule of a [`StateMap`]. Names are those after the rules before it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StateRule {
    /// Their names become ours, and back.
    Rename {
        /// The pattern of their names.
        theirs: String,
        /// The pattern of our names.
        ours: String,
    },
    /// Their names become ours; nothing on the way back. For other spellings in old files.
    Alias {
        /// The pattern of their names.
        theirs: String,
        /// The pattern of our names.
        ours: String,
    },
    /// The tensor is left out; nothing on the way back. For masks and other constants.
    Ignore {
        /// The pattern of the names.
        name: String,
    },
    /// The matrix is transposed.
    Transpose {
        /// The pattern of the names.
        name: String,
    },
    /// The rows of a projection `[heads · D, ..]` (weight or bias) to queries or keys are permuted
    /// from one pairing of rotary positions to the other, see [`Rope::converted`].
    Rope {
        /// The pattern of the names.
        name: String,
        /// Number of heads: of query heads or of key heads.
        heads: usize,
        /// The number of elements of a head that are rotated.
        width: usize,
        /// Their pairing.
        theirs: Pairing,
        /// Our pairing.
        ours: Pairing,
    },
    /// A tensor that is missing is a copy of another; nothing on the way back, so both are exported.
    Tie {
        /// Its name.
        name: String,
        /// The name of the other.
        of: String,
    },
}

impl StateMap {
    /// The map that changes nothing.
    pub fn new() -> StateMap {
        StateMap::default()
    }

    /// The rules, in the order in which they are applied by [`StateMap::import`].
    pub fn rules(&self) -> &[StateRule] {
        &self.rules
    }

    fn with(mut self, rule: StateRule) -> StateMap {
        self.rules.push(rule);
        self
    }

    /// Adds a rule: their names become ours.
    ///
    /// # Panics
    /// If the patterns differ in their wildcards.
    #[track_caller]
    pub fn rename(self, theirs: &str, ours: &str) -> StateMap {
        check_wildcards(theirs, ours);
        self.with(StateRule::Rename { theirs: theirs.into(), ours: ours.into() })
    }

    /// Adds a rule: their names become ours on import; exported names stay as they are.
    ///
    /// # Panics
    /// If the patterns differ in their wildcards.
    ///
    /// ```
    /// use retrograd::nn::StateMap;
    /// use retrograd::prelude::*;
    /// let map = StateMap::new().alias("norm.gamma", "norm.weight");
    /// let ours = StateDict::from([("norm.weight".to_string(), Tensor::from([1.0f32]))]);
    /// assert!(map.export(&ours).unwrap().contains_key("norm.weight"));
    /// ```
    #[track_caller]
    pub fn alias(self, theirs: &str, ours: &str) -> StateMap {
        check_wildcards(theirs, ours);
        self.with(StateRule::Alias { theirs: theirs.into(), ours: ours.into() })
    }

    /// Adds a rule: `prefix.name` becomes `name` on import.
    #[track_caller]
    pub fn strip_prefix(self, prefix: &str) -> StateMap {
        self.alias(&format!("{prefix}.**"), "**")
    }

    /// Adds a rule: the tensors are left out on import, of whatever type they are.
    pub fn ignore(self, name: &str) -> StateMap {
        self.with(StateRule::Ignore { name: name.into() })
    }

    /// Adds a rule: the matrices are transposed.
    pub fn transpose(self, name: &str) -> StateMap {
        self.with(StateRule::Transpose { name: name.into() })
    }

    /// Adds a rule: the rows of a projection to queries or keys of this many heads, of which the first
    /// `width` elements are rotated, are permuted from the pairing `theirs` to `ours`.
    ///
    /// # Panics
    /// If there is no head, or the width is odd.
    ///
    /// ```
    /// use retrograd::nn::{StateMap, attention::Pairing};
    /// use retrograd::prelude::*;
    /// let map = StateMap::new().rope("q.bias", 2, 4, Pairing::Interleaved, Pairing::Half);
    /// let ours = Tensor::from([0.0f32, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    /// let theirs = map.export(&StateDict::from([("q.bias".to_string(), ours)])).unwrap();
    /// assert_eq!(theirs["q.bias"].to_vec(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    /// ```
    #[track_caller]
    pub fn rope(
        self,
        name: &str,
        heads: usize,
        width: usize,
        theirs: Pairing,
        ours: Pairing,
    ) -> StateMap {
        assert(heads > 0 && width.is_multiple_of(2), "state map", ErrorKind::Value, || {
            format!("rotary positions need a head and an even width, got {heads} and {width}")
        });
        self.with(StateRule::Rope { name: name.into(), heads, width, theirs, ours })
    }

    /// Adds a rule: if there is no tensor `name`, it is a copy of the tensor `of`. Both are our names.
    /// A model whose parameters are tied needs no such rule: any of their names suffices to load it.
    ///
    /// ```
    /// use retrograd::nn::StateMap;
    /// use retrograd::prelude::*;
    /// let map = StateMap::new().tie("lm_head.weight", "wte.weight");
    /// let mut file = Checkpoint::new();
    /// file.tensors.insert("wte.weight".into(), Tensor::from([[1.0f32]]).into());
    /// assert!(map.import::<f32>(&file).unwrap().contains_key("lm_head.weight"));
    /// ```
    pub fn tie(self, name: &str, of: &str) -> StateMap {
        self.with(StateRule::Tie { name: name.into(), of: of.into() })
    }

    /// Our state dict of the tensors of a file. Floats are converted to the element type as by
    /// [`Checkpoint::get`].
    ///
    /// # Errors
    /// All tensors that cannot be mapped: because they are no floats, or no matrix and to be
    /// transposed, or not of that many heads, or because several get the same name.
    pub fn import<T: Storable>(&self, file: &Checkpoint) -> Result<StateDict<T>, CheckpointError> {
        let mut out = Mapped::default();
        for name in file.tensors.keys().chain(file.unsupported.keys()) {
            let Some((to, rules)) = self.imported(name) else { continue };
            let tensor = match file.tensors.get(name) {
                Some(tensor) => tensor.as_float().map_err(|why| why.to_string()),
                None => Err(format!("it is {}", file.unsupported[name])),
            };
            let change = |tensor, rule: &&StateRule| rule.change(tensor, true);
            out.insert(name, to, tensor.and_then(|tensor| rules.iter().try_fold(tensor, change)));
        }
        for rule in &self.rules {
            let StateRule::Tie { name, of } = rule else { continue };
            if let (None, Some(tensor)) = (out.dict.get(name), out.dict.get(of)) {
                let tensor = tensor.clone();
                out.dict.insert(name.clone(), tensor);
            }
        }
        out.finish()
    }

    /// Their state dict of ours: the inverse of [`StateMap::import`].
    ///
    /// # Errors
    /// As [`StateMap::import`].
    pub fn export<T: Real>(&self, dict: &StateDict<T>) -> Result<StateDict<T>, CheckpointError> {
        let mut out = Mapped::default();
        for (name, tensor) in dict {
            let mut to = name.clone();
            let mut tensor = Ok(tensor.clone());
            for rule in self.rules.iter().rev() {
                match rule {
                    StateRule::Rename { theirs, ours } => {
                        to = renamed(&to, ours, theirs).unwrap_or(to);
                    }
                    rule if rule.changes(&to) => {
                        tensor = tensor.and_then(|tensor| rule.change(tensor, false));
                    }
                    _ => {}
                }
            }
            out.insert(name, to, tensor);
        }
        out.finish()
    }

    /// Our name of one of theirs, and the rules that change the tensor; `None` if it is left out.
    fn imported(&self, name: &str) -> Option<(String, Vec<&StateRule>)> {
        let (mut to, mut changes) = (name.to_string(), Vec::new());
        for rule in &self.rules {
            match rule {
                StateRule::Rename { theirs, ours } | StateRule::Alias { theirs, ours } => {
                    to = renamed(&to, theirs, ours).unwrap_or(to);
                }
                StateRule::Ignore { name } if captures(name, &to).is_some() => return None,
                rule if rule.changes(&to) => changes.push(rule),
                _ => {}
            }
        }
        Some((to, changes))
    }
}

impl StateRule {
    /// Whether the rule changes the tensor of this name.
    fn changes(&self, to: &str) -> bool {
        match self {
            StateRule::Transpose { name } | StateRule::Rope { name, .. } => {
                captures(name, to).is_some()
            }
            _ => false,
        }
    }

    /// The changed tensor, or the reason why it cannot be changed.
    fn change<T: Real>(&self, tensor: Tensor<T>, import: bool) -> Result<Tensor<T>, String> {
        match *self {
            StateRule::Transpose { .. } if tensor.rank() == 2 => Ok(tensor.t()),
            StateRule::Transpose { .. } => {
                Err(format!("{:?} is no matrix, to be transposed", tensor.shape()))
            }
            StateRule::Rope { heads, width, theirs, ours, .. } => {
                let rows = tensor.shape().first().copied().unwrap_or(1);
                if !rows.is_multiple_of(heads) || rows / heads < width {
                    return Err(format!(
                        "{:?} are no rows of {heads} heads of at least {width} elements",
                        tensor.shape()
                    ));
                }
                let (from, to) = if import { (theirs, ours) } else { (ours, theirs) };
                Ok(Rope::new(width).pairing(from).converted(&tensor, heads, to))
            }
            _ => Ok(tensor),
        }
    }
}

/// A state dict under construction.
struct Mapped<T: Real> {
    dict: StateDict<T>,
    /// The name before, by the name after.
    sources: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl<T: Real> Default for Mapped<T> {
    fn default() -> Self {
        let (dict, sources) = (StateDict::new(), BTreeMap::new());
        Mapped { dict, sources, problems: Vec::new() }
    }
}

impl<T: Real> Mapped<T> {
    fn insert(&mut self, from: &str, to: String, tensor: Result<Tensor<T>, String>) {
        if let Some(other) = self.sources.insert(to.clone(), from.to_string()) {
            self.problems.push(format!("{other} and {from} both become {to}"));
        }
        match tensor {
            Ok(tensor) => drop(self.dict.insert(to, tensor)),
            Err(why) => self.problems.push(format!("{from}: {why}")),
        }
    }

    fn finish(self) -> Result<StateDict<T>, CheckpointError> {
        match self.problems.is_empty() {
            true => Ok(self.dict),
            false => Err(CheckpointError::Unmapped(list_first(&self.problems, "; "))),
        }
    }
}

#[track_caller]
fn check_wildcards(theirs: &str, ours: &str) {
    let wildcards = |pattern: &str| -> Vec<String> {
        pattern.split('.').filter(|part| is_wildcard(part)).map(String::from).collect()
    };
    assert(wildcards(theirs) == wildcards(ours), "state map", ErrorKind::Mismatch, || {
        format!("`{theirs}` and `{ours}` differ in their wildcards")
    });
}

fn is_wildcard(part: &str) -> bool {
    part == "*" || part == "**"
}

/// What the wildcards of a pattern stand for in a name; `None` if it does not match.
pub fn captures<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let (first, rest) = match pattern.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (pattern, None),
    };
    // The ends of parts, of which the first wildcard may take one or more.
    let mut ends = name.match_indices('.').map(|(i, _)| i).chain([name.len()]);
    let part_or_more = match first {
        "**" => usize::MAX,
        _ => 1,
    };
    ends.by_ref().take(part_or_more).find_map(|end| {
        let (taken, left) = (&name[..end], name.get(end + 1..));
        if !is_wildcard(first) && first != taken {
            return None;
        }
        let mut found = match (rest, left) {
            (None, None) => Vec::new(),
            (Some(rest), Some(left)) => captures(rest, left)?,
            _ => return None,
        };
        if is_wildcard(first) {
            found.insert(0, taken);
        }
        Some(found)
    })
}

/// The name with a pattern replaced by another; `None` if the pattern does not match.
pub fn renamed(name: &str, from: &str, to: &str) -> Option<String> {
    let mut captured = captures(from, name)?.into_iter();
    let parts = to.split('.').map(|part| match is_wildcard(part) {
        true => captured.next().expect("the same wildcards"),
        false => part,
    });
    Some(parts.collect::<Vec<_>>().join("."))
}
