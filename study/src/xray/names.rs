//! Names of leaves and modules, and the module that each operation belongs to.

use super::values::Values;
use retrograd_autograd::Id;
use retrograd_autograd::observe::{Constant, Operation, Source};
use std::collections::BTreeMap;

/// What is known of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) leaves: BTreeMap<Id, Leaf>,
    /// Modules in the order of a walk, the model itself first.
    pub(super) modules: Vec<Module>,
}

/// A leaf with a name.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// More than one if a parameter is used by several modules.
    pub(super) names: Vec<String>,
    pub(super) is_trainable: bool,
    pub(super) shape: Vec<usize>,
    pub(super) values: Values,
}

#[derive(Clone, Debug)]
pub(super) struct Module {
    pub(super) path: String,
    pub(super) type_name: String,
    /// The module around it; `None` for the model.
    pub(super) parent: Option<usize>,
}

impl Names {
    pub(super) fn add_module(&mut self, path: &str, type_name: &str) {
        let around = |m: &Module| is_inside(path, &m.path);
        let parent = (0..self.modules.len()).filter(|&i| around(&self.modules[i]));
        let parent = parent.max_by_key(|&i| self.modules[i].path.len());
        let (path, type_name) = (path.to_string(), type_name.to_string());
        self.modules.push(Module { path, type_name, parent });
    }

    /// The innermost module around a path.
    pub(super) fn module_of(&self, path: &str) -> usize {
        let around = (0..self.modules.len()).filter(|&i| is_inside(path, &self.modules[i].path));
        around.max_by_key(|&i| self.modules[i].path.len()).unwrap_or(0)
    }

    /// The innermost module around both.
    fn common(&self, a: usize, b: usize) -> usize {
        let is_around =
            |m: usize, i: usize| is_inside(&self.modules[i].path, &self.modules[m].path);
        let around = (0..self.modules.len()).filter(|&m| is_around(m, a) && is_around(m, b));
        around.max_by_key(|&m| self.modules[m].path.len()).unwrap_or(0)
    }

    /// The module of each operation. An operation that uses a parameter belongs to the module of that;
    /// one between two such operations to the innermost module around both.
    pub(super) fn attribute(&self, operations: &[&Operation]) -> Vec<usize> {
        let mut uses = BTreeMap::<Id, usize>::new();
        let mut own = |op: &Operation| {
            let mut module = None;
            for input in &op.inputs {
                let (Source::Leaf(id) | Source::Constant(Constant::DetachedLeaf(id))) =
                    input.source
                else {
                    continue;
                };
                let Some(leaf) = self.leaves.get(&id) else { continue };
                // A parameter of several modules is used by one after the other.
                let turn = uses.entry(id).or_default();
                let name = &leaf.names[*turn % leaf.names.len()];
                *turn += 1;
                module = module.or(Some(self.module_of(name)));
            }
            module
        };
        let owners: Vec<Option<usize>> = operations.iter().map(|op| own(op)).collect();
        let before = |i: usize| owners[..i].iter().rev().flatten().next().copied();
        let after = |i: usize| owners[i..].iter().flatten().next().copied();
        (0..owners.len())
            .map(|i| match (owners[i], before(i), after(i)) {
                (Some(own), ..) => own,
                (None, Some(before), Some(after)) => self.common(before, after),
                _ => 0,
            })
            .collect()
    }
}

/// Whether a path is that of a module or of something in it.
fn is_inside(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix(module);
    rest.is_some_and(|rest| module.is_empty() || rest.is_empty() || rest.starts_with('.'))
}
