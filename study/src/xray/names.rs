//! Names of leaves and modules, and the module that each operation belongs to.

use super::data::ModuleRow;
use super::values::Values;
use crate::record::{Operation, Recording, innermost, is_inside};
use retrograd_autograd::Id;
use retrograd_tensor::layout::Layout;
use std::collections::BTreeMap;

/// What is known of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) leaves: BTreeMap<Id, Leaf>,
    /// Modules in the order of a walk, the model itself first.
    pub(super) modules: Vec<ModuleRow>,
}

/// A leaf with a name.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// More than one if a parameter is used by several modules.
    pub(super) names: Vec<String>,
    pub(super) is_trainable: bool,
    /// Where its elements are in memory.
    pub(super) address: usize,
    pub(super) layout: Layout,
    pub(super) shape: Vec<usize>,
    pub(super) values: Values,
}

impl Names {
    pub(super) fn add_module(&mut self, path: &str, type_name: &str) {
        // `module_of` answers with the first one if none is around the path.
        let parent = self.module_of(path);
        let is_around = self.modules.get(parent).is_some_and(|m| is_inside(path, &m.path));
        let parent = if is_around { parent as isize } else { -1 };
        let (path, type_name) = (path.to_string(), type_name.to_string());
        self.modules.push(ModuleRow { path, type_name, parent });
    }

    /// The modules whose forward passes were recorded, if none are known.
    pub(super) fn add_recorded(&mut self, recording: &Recording) {
        let found = recording.operations.iter().filter_map(|op| op.module.as_ref());
        if !self.modules.is_empty() || found.clone().next().is_none() {
            return;
        }
        let order = |path: &str| -> Vec<(usize, String)> {
            let number = |part: &str| part.parse().unwrap_or(usize::MAX);
            path.split('.').map(|part| (number(part), part.to_string())).collect()
        };
        let mut all: BTreeMap<_, (&str, &str)> = BTreeMap::new();
        for module in found {
            let key = (!module.path.is_empty()).then(|| order(&module.path));
            all.entry(key).or_insert((&module.path, &module.type_name));
        }
        all.entry(None).or_insert(("", "program"));
        all.into_values().for_each(|(path, type_name)| self.add_module(path, type_name));
    }

    /// The innermost module around a path.
    pub(super) fn module_of(&self, path: &str) -> usize {
        innermost(self.paths(), &[path])
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        self.modules.iter().map(|module| &module.path[..])
    }

    /// The module of each operation. An operation that uses a parameter belongs to the module of that;
    /// one between two such operations to the innermost module around both, or to the one whose forward pass
    /// computed it, whichever is inside the other.
    pub(super) fn attribute(&self, operations: &[&Operation]) -> Vec<usize> {
        let mut uses = BTreeMap::<Id, usize>::new();
        let mut own = |op: &Operation| {
            let mut module = None;
            for input in &op.inputs {
                let Some(id) = input.source.leaf() else { continue };
                let Some(leaf) = self.leaves.get(&id) else { continue };
                // A parameter of several modules is used by one after the other.
                let turn = uses.entry(id).or_default();
                let name = &leaf.names[*turn % leaf.names.len()];
                *turn += 1;
                module = module.or(Some(self.module_of(name)));
            }
            module
        };
        let observed = |op: &Operation| {
            let called = op.module.as_ref()?;
            let is_it =
                |m: &ModuleRow| (&m.path, &m.type_name) == (&called.path, &called.type_name);
            self.modules.iter().position(is_it)
        };
        // If no modules are known, all operations belong to the number 0.
        let path = |m: usize| self.modules.get(m).map_or("", |module| &module.path);
        let owners: Vec<Option<usize>> = operations.iter().map(|op| own(op)).collect();
        let before = |i: usize| owners[..i].iter().rev().flatten().next().copied();
        let after = |i: usize| owners[i..].iter().flatten().next().copied();
        (0..owners.len())
            .map(|i| match (owners[i], before(i), after(i)) {
                (Some(own), ..) => own,
                (None, before, after) => {
                    let called = observed(operations[i]);
                    let between = before
                        .zip(after)
                        .map(|(a, b)| innermost(self.paths(), &[path(a), path(b)]));
                    match (called, between) {
                        (Some(m), Some(between)) if is_inside(path(between), path(m)) => between,
                        (called, between) => called.or(between).unwrap_or(0),
                    }
                }
            })
            .collect()
    }
}
