//! What a module is.

use crate::param::Param;
use crate::pass::Pass;
use crate::state::{LoadError, StateDict, load};
use retrograd_autograd::{Id, Var};
use retrograd_tensor::{Real, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Something that owns parameters and says which.
///
/// [`Module::walk`] has one line per field. Everything else follows from it: names, state
/// dicts, loading, counting, freezing, groups for an optimiser.
///
/// ```
/// use retrograd_nn::{Linear, Module, Param, Walk};
///
/// struct Scaled {
///     scale: Param,
///     inner: Linear,
/// }
///
/// impl Module for Scaled {
///     fn walk(&self, w: &mut Walk<'_, f32>) {
///         w.param("scale", &self.scale);
///         w.module("inner", &self.inner);
///     }
/// }
/// ```
pub trait Module<T: Real = f32> {
    /// Shows every parameter and every module inside to the walker.
    fn walk(&self, w: &mut Walk<'_, T>);

    /// All parameters with their dotted names, in the order of the walk; a tied one once,
    /// under its first name.
    fn named_parameters(&self) -> Vec<(String, Param<T>)> {
        named_parameters(&|w| self.walk(w))
    }

    /// Calls `f` for every parameter of the walk, a tied one under each of its names.
    fn visit(&self, f: &mut dyn FnMut(&str, &Param<T>)) {
        visit(&|w| self.walk(w), f);
    }

    /// Number of numbers in all parameters.
    fn num_parameters(&self) -> usize {
        self.named_parameters().iter().map(|(_, p)| p.shape().numel()).sum()
    }

    /// All parameter values by name, a tied one under each of its names, as in PyTorch.
    ///
    /// Each parameter is read once, so a tied one has the same value under all of its names, even
    /// if another thread changes it meanwhile. Different parameters may then be of different
    /// moments.
    ///
    /// # Panics
    /// If the walk gives one name twice.
    #[track_caller]
    fn state_dict(&self) -> StateDict<T> {
        state_dict(&|w| self.walk(w))
    }

    /// Sets all parameters from a state dict. A tied parameter may be given under any of its
    /// names. Nothing is left out unasked: what a dict of PyTorch holds besides parameters, take
    /// out of it first, as at [`Checkpoint::get`](crate::checkpoint::Checkpoint::get), which also
    /// says what to transpose in a checkpoint of GPT-2: a square matrix that is transposed loads
    /// without an error.
    ///
    /// # Errors
    /// If a name is missing or unexpected, or a shape differs, the error lists every such
    /// name, and no parameter has been changed.
    fn load_state_dict(&self, dict: &StateDict<T>) -> Result<(), LoadError> {
        load_state_dict(&|w| self.walk(w), dict)
    }

    /// Freezes all parameters (`false`) or has them trained again (`true`).
    fn set_trainable(&self, trainable: bool) {
        self.visit(&mut |_, param| param.set_trainable(trainable));
    }
}

impl<T: Real, M: Module<T> + ?Sized> Module<T> for Box<M> {
    fn walk(&self, w: &mut Walk<'_, T>) {
        (**self).walk(w);
    }
}

/// [`Module::walk`] of some module. What follows is compiled once for all types of modules.
type WalkOf<'a, T> = &'a dyn Fn(&mut Walk<'_, T>);

fn visit<T: Real>(walk: WalkOf<'_, T>, f: &mut dyn FnMut(&str, &Param<T>)) {
    walk(&mut Walk { path: String::new(), visit: f });
}

#[inline(never)]
fn named_parameters<T: Real>(walk: WalkOf<'_, T>) -> Vec<(String, Param<T>)> {
    let mut found: Vec<(String, Param<T>)> = Vec::new();
    let mut seen = BTreeSet::new();
    visit(walk, &mut |name, param| {
        if seen.insert(param.id()) {
            found.push((name.to_string(), param.clone()));
        }
    });
    found
}

#[inline(never)]
#[track_caller]
fn state_dict<T: Real>(walk: WalkOf<'_, T>) -> StateDict<T> {
    let mut dict = StateDict::new();
    let mut read: BTreeMap<Id, Tensor<T>> = BTreeMap::new();
    let mut twice = None;
    visit(walk, &mut |name, param| {
        let value = read.entry(param.id()).or_insert_with(|| param.value()).clone();
        if dict.insert(name.to_string(), value).is_some() {
            twice.get_or_insert(name.to_string());
        }
    });
    if let Some(name) = twice {
        panic!("state_dict: two parameters are named {name}");
    }
    dict
}

#[inline(never)]
fn load_state_dict<T: Real>(walk: WalkOf<'_, T>, dict: &StateDict<T>) -> Result<(), LoadError> {
    let mut names = Vec::new();
    visit(walk, &mut |name, param| names.push((name.to_string(), param.clone())));
    load(&names, dict)
}

/// A module that maps one variable to one variable.
pub trait Layer<T: Real = f32>: Module<T> {
    /// The output for an input.
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T>;
}

/// The visitor of [`Module::walk`], which knows the path so far.
pub struct Walk<'a, T: Real = f32> {
    path: String,
    visit: &'a mut dyn FnMut(&str, &Param<T>),
}

impl<T: Real> Walk<'_, T> {
    /// Shows a parameter.
    pub fn param(&mut self, name: &str, param: &Param<T>) {
        self.at(name, |w| (w.visit)(&w.path, param));
    }

    /// Shows a parameter that may be absent.
    pub fn optional(&mut self, name: &str, param: &Option<Param<T>>) {
        if let Some(param) = param {
            self.param(name, param);
        }
    }

    /// Shows a module inside.
    pub fn module(&mut self, name: &str, module: &dyn Module<T>) {
        self.at(name, |w| module.walk(w));
    }

    /// Shows a list of modules, named by their index.
    pub fn list<'m, M: Module<T> + 'm>(
        &mut self,
        name: &str,
        modules: impl IntoIterator<Item = &'m M>,
    ) {
        self.at(name, |w| {
            for (i, module) in modules.into_iter().enumerate() {
                w.module(&i.to_string(), module);
            }
        });
    }

    /// Goes on below a name that is no module of its own.
    pub fn at(&mut self, name: &str, f: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        if len > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        f(self);
        self.path.truncate(len);
    }
}

/// Layers one after the other, named by their index.
pub struct Sequential<T: Real = f32>(Vec<Box<dyn Layer<T>>>);

impl<T: Real> Sequential<T> {
    /// No layer yet: the identity.
    #[inline(never)] // for the reason given at `Pass`
    pub fn new() -> Self {
        Sequential(Vec::new())
    }

    /// With one more at the end.
    pub fn then(mut self, layer: impl Layer<T> + 'static) -> Self {
        self.0.push(Box::new(layer));
        self
    }
}

impl<T: Real> Default for Sequential<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Real> Module<T> for Sequential<T> {
    fn walk(&self, w: &mut Walk<'_, T>) {
        for (i, layer) in self.0.iter().enumerate() {
            w.at(&i.to_string(), |w| layer.walk(w));
        }
    }
}

impl<T: Real> Layer<T> for Sequential<T> {
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.0.iter().fold(x.clone(), |x, layer| layer.forward(&x, pass))
    }
}
