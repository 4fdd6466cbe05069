//! The calls of attention in a forward pass, as layers with names.

use super::tap::{Called, Observed};
use crate::record::ModulePath;
use retrograd_tensor::Real;
use std::ops::Range;

/// A layer: the calls of attention in one call of a module.
pub(super) struct Found {
    pub module: ModulePath,
    /// The calls, by their place; none if the module computes attention without the engine.
    pub calls: Vec<usize>,
    /// The place of its recurrence, if it has a state.
    pub state: Option<usize>,
    /// The place of its beginning.
    pub start: usize,
}

/// The layers, in the order of their calls.
///
/// The calls of the heads of a list, `x.heads.0` and so on, belong to the module `x`.
pub(super) fn layers<T: Real>(observed: &Observed<T>) -> Vec<Found> {
    let modules = &observed.modules;
    let mut found: Vec<(Range<usize>, [usize; 2], Found)> = Vec::new();
    for (place, seen) in observed.calls.iter().enumerate() {
        let mut around: Vec<&Called> =
            modules.iter().filter(|m| m.places.contains(&seen.place)).collect();
        around.sort_by_key(|m| m.places.end - m.places.start);
        let innermost = around.first();
        let list = innermost.and_then(|m| parent_of_list(&m.module.path));
        let owner = around.iter().find(|m| Some(m.module.path.as_str()) == list).or(innermost);
        let (module, places) = match owner {
            Some(m) => (m.module.clone(), m.places.clone()),
            None => {
                let (path, type_name) = (format!("call {}", place + 1), "attend".into());
                (ModulePath { path, type_name }, seen.place..seen.place)
            }
        };
        let [_, _, lq, lk] = seen.call.sizes();
        let size = [lq, lk];
        match found.iter_mut().find(|(n, s, _)| *n == places && *s == size && owner.is_some()) {
            Some((.., layer)) => layer.calls.push(place),
            None => {
                let layer = Found { module, calls: vec![place], state: None, start: seen.place };
                found.push((places, size, layer));
            }
        }
    }
    let has_calls = |m: &Called| observed.calls.iter().any(|seen| m.places.contains(&seen.place));
    let state_of =
        |m: &Called| observed.states.iter().position(|(_, place)| m.places.contains(place));
    // The modules around a layer contain others, too.
    let is_silent = |m: &&Called| is_attention(m) && !has_calls(m);
    let silent: Vec<&Called> = modules.iter().filter(is_silent).collect();
    for m in &silent {
        let inside = |other: &&&Called| {
            other.module.path != m.module.path
                && other.places.start <= m.places.start
                && m.places.end <= other.places.end
        };
        if silent.iter().find(inside).is_none() {
            let (module, start) = (m.module.clone(), m.places.start);
            let layer = Found { module, calls: Vec::new(), state: state_of(m), start };
            found.push((m.places.clone(), [0; 2], layer));
        }
    }
    let mut layers: Vec<Found> = found.into_iter().map(|(.., layer)| layer).collect();
    layers.sort_by_key(|layer| layer.start);
    // A module that is called several times has several layers.
    for i in 0..layers.len() {
        let before =
            layers[..i].iter().filter(|l| base(&l.module.path) == layers[i].module.path).count();
        if before > 0 {
            layers[i].module.path += &format!(" ({})", before + 1);
        }
    }
    layers
}

/// A path without the number of a repeated call.
fn base(path: &str) -> &str {
    path.split(" (").next().unwrap_or(path)
}

/// `x` of `x.list.3`.
fn parent_of_list(path: &str) -> Option<&str> {
    let (list, number) = path.rsplit_once('.')?;
    let is_number = number.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| list.rsplit_once('.').map_or("", |(parent, _)| parent))
}

/// Whether a module is attention by its type or its name.
fn is_attention(m: &Called) -> bool {
    let name = m.module.path.rsplit('.').next().unwrap_or("");
    m.module.type_name.contains("Attention")
        || ["attn", "self_attn", "multihead_attn", "attention"].contains(&name)
}
