//! The modules whose forward passes run on a thread.

use super::recording::{Constant, Source};
use crate::graph::Id;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Debug, Display, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

/// A module that an operation belongs to: the innermost one whose forward pass runs, or the one inside of that
/// which owns the parameter of the operation.
///
/// Modules of the nn crate report their forward passes; a module of your own does so by `Module::observe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulePath {
    /// The dotted path in the model, whose own path is empty. The model is the outermost module that has
    /// reported its forward pass.
    pub path: String,
    /// The type, such as `Linear`.
    pub type_name: String,
}

impl Display for ModulePath {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.type_name),
            path => write!(f, "{path} ({})", self.type_name),
        }
    }
}

/// The address of a module, and its type: a struct and its first field have the same address.
type Key = (usize, &'static str);

/// The modules and parameters of a model.
#[doc(hidden)]
#[derive(Default)]
pub struct ModuleNames {
    modules: Vec<ModulePath>,
    by_key: HashMap<Key, Vec<usize>>,
    parameters: HashMap<Id, String>,
    /// How often modules that share an address were called: they are called in turn.
    turns: Mutex<HashMap<Key, usize>>,
}

impl ModuleNames {
    /// Adds a module. The first one is the model.
    pub fn add(&mut self, key: (usize, &'static str), path: &str, type_name: &str) {
        self.by_key.entry(key).or_default().push(self.modules.len());
        self.modules.push(ModulePath { path: path.into(), type_name: type_name.into() });
    }

    /// Adds a parameter; of a tied one, the first name counts.
    pub fn add_parameter(&mut self, id: Id, name: &str) {
        self.parameters.entry(id).or_insert_with(|| name.into());
    }

    fn called(&self, key: Key) -> Option<usize> {
        let all = self.by_key.get(&key)?;
        if all.len() == 1 {
            return Some(all[0]);
        }
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = turns.entry(key).or_default();
        *turn += 1;
        Some(all[(*turn - 1) % all.len()])
    }
}

impl Debug for ModuleNames {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} modules", self.modules.len())
    }
}

/// A forward pass that runs.
#[derive(Clone)]
struct Running {
    names: Arc<ModuleNames>,
    module: usize,
    key: Key,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// The forward pass of a module runs on this thread until this value is dropped.
#[doc(hidden)]
pub struct ModuleScope(Option<Running>);

impl Debug for ModuleScope {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("ModuleScope")
    }
}

impl ModuleScope {
    /// The forward pass of a module begins. `names` are those of a model, if it is not inside of another one.
    #[cold]
    pub fn enter(key: (usize, &'static str), names: impl FnOnce() -> ModuleNames) -> ModuleScope {
        let around = RUNNING.with_borrow(Clone::clone);
        let running = match &around {
            None => Running { names: Arc::new(names()), module: 0, key },
            // The caller and the module may both report it.
            Some(around) if around.key == key => around.clone(),
            Some(around) => match around.names.called(key) {
                Some(module) => Running { names: around.names.clone(), module, key },
                // It is no part of the model: a helper that is made on the way.
                None => around.clone(),
            },
        };
        RUNNING.set(Some(running));
        ModuleScope(around)
    }
}

impl Drop for ModuleScope {
    fn drop(&mut self) {
        RUNNING.set(self.0.take());
    }
}

/// Runs `f` outside of all modules: a task that a thread runs while it waits belongs to none of them.
pub(super) fn outside<R>(f: impl FnOnce() -> R) -> R {
    let _scope = ModuleScope(RUNNING.take());
    f()
}

/// The module of an operation that is computed on this thread now.
pub(super) fn module_of(inputs: impl Iterator<Item = Source>) -> Option<ModulePath> {
    RUNNING.with_borrow(|running| {
        let Running { names, module, .. } = running.as_ref()?;
        let innermost = &names.modules[*module];
        let owner = |source| {
            let (owner, _) = name_in(names, source)?.rsplit_once('.').unwrap_or_default();
            let is_inside = |path: &str| match owner.strip_prefix(path) {
                Some(rest) => path.is_empty() || rest.is_empty() || rest.starts_with('.'),
                None => false,
            };
            let found = names.modules.iter().find(|module| module.path == owner)?;
            is_inside(&innermost.path).then_some(found)
        };
        let found = { inputs }.find_map(owner);
        Some(found.unwrap_or(innermost).clone())
    })
}

fn name_in(names: &ModuleNames, source: Source) -> Option<&str> {
    match source {
        Source::Leaf(id) | Source::Constant(Constant::DetachedLeaf(id)) => {
            names.parameters.get(&id).map(String::as_str)
        }
        _ => None,
    }
}

/// The name of a parameter of the model that runs on this thread.
pub(super) fn parameter(source: Source) -> Option<String> {
    RUNNING.with_borrow(|running| Some(name_in(&running.as_ref()?.names, source)?.to_string()))
}
