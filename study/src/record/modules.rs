//! The modules whose forward passes run on a thread.

use super::recording::{ModulePath, Source};
use crate::locked::locked;
use retrograd_nn::{Module, for_each_module, short_type};
use retrograd_tensor::Real;
use retrograd_tensor::observe::{ModulePart, ModuleStart};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The address of a module, and its type: a struct and its first field have the same address.
type Key = (usize, &'static str);

/// The modules and parameters of a model.
#[derive(Default)]
pub(crate) struct ModuleNames {
    modules: Vec<ModulePath>,
    by_key: HashMap<Key, Vec<usize>>,
    parameters: HashMap<u64, String>,
    /// How often modules that share an address were called: they are called in turn.
    turns: Mutex<HashMap<Key, usize>>,
}

impl ModuleNames {
    /// The names of the parts of a model.
    pub(crate) fn of<T: Real>(model: &dyn Module<T>) -> ModuleNames {
        let mut names = ModuleNames::default();
        for_each_module(model, &mut |path, module| {
            names.add((module.address(), module.type_name()), path);
        });
        model.for_each_parameter(&mut |name, param| {
            names.add_parameter(param.id().number(), name);
        });
        names
    }

    /// The names of the parts of a module whose forward pass begins.
    #[cold]
    fn reported(start: &ModuleStart<'_>) -> ModuleNames {
        let mut names = ModuleNames::default();
        names.add((start.address, start.type_name), "");
        (start.parts)(&mut |part| match part {
            ModulePart::Module { path, address, type_name } => {
                names.add((address, type_name), path)
            }
            ModulePart::Parameter { path, number } => names.add_parameter(number, path),
        });
        names
    }

    fn add(&mut self, key: Key, path: &str) {
        self.by_key.entry(key).or_default().push(self.modules.len());
        self.modules.push(ModulePath { path: path.into(), type_name: short_type(key.1) });
    }

    /// Adds a parameter; of a tied one, the first name counts.
    fn add_parameter(&mut self, number: u64, name: &str) {
        self.parameters.entry(number).or_insert_with(|| name.into());
    }

    fn called(&self, key: Key) -> Option<usize> {
        let all = self.by_key.get(&key)?;
        if all.len() == 1 {
            return Some(all[0]);
        }
        let mut turns = locked(&self.turns);
        let turn = turns.entry(key).or_default();
        *turn += 1;
        Some(all[(*turn - 1) % all.len()])
    }

    fn name(&self, source: Source) -> Option<&str> {
        self.parameters.get(&source.leaf()?.number()).map(String::as_str)
    }
}

/// A forward pass that runs.
struct Running {
    names: Arc<ModuleNames>,
    /// The module; that around it, if it is no part of the model.
    module: usize,
    key: Key,
    /// Where its call began, if it is one: the caller and the module may both report it.
    began: Option<usize>,
}

/// The modules whose forward passes run on a thread, from the outside in.
#[derive(Default)]
pub(crate) struct Modules(Vec<Running>);

impl Modules {
    /// A forward pass begins `at` a place. The model is `names`, or else the outermost module.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        start: &ModuleStart<'_>,
        names: Option<&Arc<ModuleNames>>,
        at: usize,
    ) {
        let key = (start.address, start.type_name);
        let model = || names.cloned().unwrap_or_else(|| Arc::new(ModuleNames::reported(start)));
        let (names, around) = match self.0.last() {
            Some(around) => (around.names.clone(), Some(around)),
            None => (model(), None),
        };
        let (module, began) = match around {
            Some(around) if around.key == key => (around.module, None),
            _ => match names.called(key) {
                Some(module) => (module, Some(at)),
                // It is no part of the model: a helper that is made on the way.
                None => (around.map_or(0, |around| around.module), None),
            },
        };
        self.0.push(Running { names, module, key, began });
    }

    /// The innermost forward pass ends: the call of a module that it is, and where this began.
    pub(crate) fn end(&mut self) -> Option<(ModulePath, usize)> {
        let Running { names, module, began, .. } = self.0.pop()?;
        Some((names.modules[module].clone(), began?))
    }

    /// The module of an operation that is computed now.
    pub(crate) fn module_of(&self, mut inputs: impl Iterator<Item = Source>) -> Option<ModulePath> {
        let Running { names, module, .. } = self.0.last()?;
        let innermost = &names.modules[*module];
        let owner = |source| {
            let (owner, _) = names.name(source)?.rsplit_once('.').unwrap_or_default();
            let found = names.modules.iter().find(|module| module.path == owner)?;
            is_inside(owner, &innermost.path).then_some(found)
        };
        Some(inputs.find_map(owner).unwrap_or(innermost).clone())
    }

    /// The name of a parameter of the model that runs.
    pub(crate) fn parameter(&self, source: Source) -> Option<String> {
        Some(self.0.last()?.names.name(source)?.to_string())
    }
}

/// Whether a path names a module, or something inside it.
pub(crate) fn is_inside(path: &str, module: &str) -> bool {
    let rest = path.strip_prefix(module);
    rest.is_some_and(|rest| module.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

/// The innermost of some modules around all of these paths; the first one, which is the model, if none is.
pub(crate) fn innermost<'a>(modules: impl Iterator<Item = &'a str>, paths: &[&str]) -> usize {
    let around = modules.enumerate().filter(|(_, m)| paths.iter().all(|path| is_inside(path, m)));
    around.max_by_key(|(_, module)| module.len()).map_or(0, |(i, _)| i)
}
