//! Modules: the [`Module`] and [`Layer`] traits, the [`Visitor`] of parameters, [`Sequential`].

use crate::param::Param;
use crate::pass::Pass;
use crate::state::{LoadError, StateDict, load};
use retrograd_autograd::{Gradients, Id, Var};
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::observe::{ModulePart, ModuleStart, OpenModule};
use retrograd_tensor::{Real, Tensor};
use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ptr::from_ref;

/// A struct that owns parameters and other modules.
///
/// [`Module::visit`] has one line per field. Everything else is derived from it: names, state
/// dicts, loading, counting, freezing, parameter groups of an optimiser.
///
/// Modules are [`Send`] and [`Sync`], so that threads can share one:
/// [`sharded`](retrograd_autograd::sharded) runs the forward passes of parts of a batch at the same
/// time.
///
/// ```
/// use retrograd::prelude::*;
///
/// struct Scaled {
///     scale: Param,
///     inner: Linear,
/// }
///
/// impl Module for Scaled {
///     fn visit(&self, v: &mut Visitor<'_, f32>) {
///         v.param("scale", &self.scale);
///         v.module("inner", &self.inner);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no module of `{T}`",
    label = "does not implement `Module<{T}>`",
    note = "`impl Module<..> for ..` lists parameters and modules in `visit`: `v.param(\"scale\", &self.scale)`, \
            `v.module(\"inner\", &self.inner)`"
)]
pub trait Module<T: Real = f32>: Send + Sync {
    /// Passes every parameter and every submodule to the visitor, each with its name.
    fn visit(&self, v: &mut Visitor<'_, T>);

    /// All parameters with their dotted names, in visiting order; a tied one once, under its first
    /// name.
    fn named_parameters(&self) -> Vec<(String, Param<T>)> {
        named_parameters(&|v| self.visit(v))
    }

    /// Calls `f` with the name of every parameter and the parameter, with a tied one under each of
    /// its names.
    fn for_each_parameter(&self, f: &mut dyn FnMut(&str, &Param<T>)) {
        for_each_parameter(&|v| self.visit(v), f);
    }

    /// Number of parameters: the number of elements of all parameter tensors.
    fn num_parameters(&self) -> usize {
        num_parameters(&|v| self.visit(v))
    }

    /// All parameter values by name, a tied one under each of its names, as in PyTorch.
    ///
    /// Each parameter is read once, so a tied one has the same value under all of its names, even
    /// if another thread changes it at the same time. The values of different parameters may then
    /// be from different times.
    ///
    /// # Panics
    /// If two parameters have the same name.
    #[track_caller]
    fn state_dict(&self) -> StateDict<T> {
        state_dict(&|v| self.visit(v))
    }

    /// Sets all parameters from a state dict. A tied parameter may be given under any of its
    /// names. Every entry must match a parameter: a [`StateMap`](crate::StateMap) leaves out other
    /// entries of a PyTorch state dict. [`pretrained::gpt2`](crate::pretrained::gpt2) transposes the
    /// weights of a GPT-2 checkpoint: a transposed square matrix loads without an error.
    ///
    /// # Errors
    /// If a name is missing or unexpected, or a shape differs, the error lists every such
    /// name, and no parameter has been changed.
    fn load_state_dict(&self, dict: &StateDict<T>) -> Result<(), LoadError> {
        load_state_dict(&|v| self.visit(v), dict)
    }

    /// The names of the parameters whose gradient contains NaN or an infinity, in visiting order,
    /// a tied parameter under its first name.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// let model = Linear::<f32>::new(2, 1, &mut Rng::new(1));
    /// let x = Var::constant(Tensor::from([[1.0, f32::INFINITY]]));
    /// let grads = model.forward(&x, &mut Pass::eval()).sum(..).backward();
    /// assert_eq!(model.non_finite_gradients(&grads), ["weight"]);
    /// ```
    fn non_finite_gradients(&self, grads: &Gradients<T>) -> Vec<String> {
        non_finite_gradients(&|v| self.visit(v), grads)
    }

    /// Freezes all parameters (`false`) or unfreezes them (`true`).
    fn set_trainable(&self, trainable: bool) {
        set_trainable(&|v| self.visit(v), trainable);
    }

    /// The dotted paths of the modules and their types, in visiting order: first this one, whose path is
    /// empty. A level of names that is no module ([`Visitor::scope`]) is not listed.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// let rng = &mut Rng::new(1);
    /// let model = Sequential::<f32>::new().then(Linear::new(4, 1, rng)).then(Activation::Relu);
    /// let modules = model.named_modules();
    /// let modules: Vec<_> = modules.iter().map(|(path, kind)| (&path[..], &kind[..])).collect();
    /// assert_eq!(modules, [("", "Sequential"), ("0", "Linear"), ("1", "Activation")]);
    /// ```
    fn named_modules(&self) -> Vec<(String, String)>
    where
        Self: Sized,
    {
        let mut modules = Vec::new();
        for_each_module(self, &mut |path, m| {
            modules.push((path.into(), short_type(m.type_name())))
        });
        modules
    }

    /// The result of `forward`, whose beginning and end are reported to
    /// [observers](retrograd_tensor::observe): the body of a forward pass, in a module that other modules of
    /// your own call. Records and summaries of the study crate know its operations and its output then.
    ///
    /// ```
    /// use retrograd::prelude::*;
    ///
    /// struct Residual(Linear);
    ///
    /// impl Module for Residual {
    ///     fn visit(&self, v: &mut Visitor<'_, f32>) {
    ///         v.module("inner", &self.0);
    ///     }
    /// }
    ///
    /// impl Layer for Residual {
    ///     fn forward(&self, x: &Var, pass: &mut Pass) -> Var {
    ///         self.observe(|| x + self.0.forward(x, pass))
    ///     }
    /// }
    ///
    /// let model = Residual(Linear::new(3, 3, &mut Rng::new(1)));
    /// let y = model.forward(&Var::constant(Tensor::ones([5, 3])), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [5, 3]);
    /// ```
    fn observe(&self, forward: impl FnOnce() -> Var<T>) -> Var<T>
    where
        Self: Sized,
    {
        Call::start(self).end(forward())
    }

    /// The name of the type, with its path. A box or a choice has the name of the module inside.
    #[doc(hidden)]
    fn type_name(&self) -> &'static str {
        type_name::<Self>()
    }

    /// Where the module is in memory, which tells it from others of its type.
    #[doc(hidden)]
    fn address(&self) -> usize {
        from_ref(self).addr()
    }

    /// Whether its forward pass is one operation, that which uses its parameters. Such a module is
    /// observed even where the operation is fused with others.
    #[doc(hidden)]
    fn is_one_operation(&self) -> bool {
        false
    }
}

impl<T: Real, M: Module<T> + ?Sized> Module<T> for Box<M> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        (**self).visit(v);
    }
    fn type_name(&self) -> &'static str {
        (**self).type_name()
    }
    fn address(&self) -> usize {
        (**self).address()
    }
    fn is_one_operation(&self) -> bool {
        (**self).is_one_operation()
    }
}

/// Implements [`Module`] for a struct whose fields are visited in this order, each by the method of
/// [`Visitor`] and under its own name, or the name after `as`. `all` visits the parts of a field without a name.
macro_rules! visits {
    ($type:ident: $($kind:ident $field:ident $(as $name:literal)?),+) => {
        impl<T: retrograd_tensor::Real> $crate::module::Module<T> for $type<T> {
            fn visit(&self, v: &mut $crate::module::Visitor<'_, T>) {
                $(visits!(@ $kind(self.$field, v) $field $($name)?);)+
            }
        }
    };
    (@ all($value:expr, $v:ident) $field:ident) => { $value.visit($v) };
    (@ $kind:ident($value:expr, $v:ident) $field:ident) => { $v.$kind(stringify!($field), &$value) };
    (@ $kind:ident($value:expr, $v:ident) $field:ident $name:literal) => { $v.$kind($name, &$value) };
}
pub(crate) use visits;

/// [`Module::visit`] of a module. The functions below are compiled once for all types of modules.
type Visit<'a, T> = &'a dyn Fn(&mut Visitor<'_, T>);

fn for_each_parameter<T: Real>(visit: Visit<'_, T>, f: &mut dyn FnMut(&str, &Param<T>)) {
    visit(&mut Visitor { path: String::new(), param: f, module: None });
}

/// Calls `f` with the dotted path of every module and the module: first this one, whose path is empty.
#[doc(hidden)]
pub fn for_each_module<T: Real>(module: &dyn Module<T>, f: &mut dyn FnMut(&str, &dyn Module<T>)) {
    f("", module);
    let path = String::new();
    module.visit(&mut Visitor { path, param: &mut |_, _| (), module: Some(f) });
}

/// A type without the modules that it is in, and without its element type.
#[doc(hidden)]
pub fn short_type(full: &str) -> String {
    let mut short = String::new();
    for part in full.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
        // What ends with a colon is a module, or the other colon after it.
        if !part.ends_with(':') {
            short.push_str(part);
        }
    }
    for element in ["<f32>", "<f64>", "f32, ", "f64, ", ", f32", ", f64"] {
        short = short.replace(element, "");
    }
    short
}

/// The forward pass of a module until the result is dropped: it is reported to observers.
#[inline]
pub(crate) fn scope<T: Real, M: Module<T> + ?Sized>(module: &M) -> OpenModule {
    OpenModule::begin(|report| {
        let parts = |f: &mut dyn FnMut(ModulePart<'_>)| parts(&|v| module.visit(v), f);
        let (address, type_name) = (module.address(), module.type_name());
        report(&ModuleStart { address, type_name, parts: &parts });
    })
}

/// The modules and parameters of a module.
#[cold]
fn parts<T: Real>(visit: Visit<'_, T>, f: &mut dyn FnMut(ModulePart<'_>)) {
    let f = std::cell::RefCell::new(f);
    visit(&mut Visitor {
        path: String::new(),
        param: &mut |path, param| {
            f.borrow_mut()(ModulePart::Parameter { path, number: param.id().number() });
        },
        module: Some(&mut |path, module| {
            let (address, type_name) = (module.address(), module.type_name());
            f.borrow_mut()(ModulePart::Module { path, address, type_name });
        }),
    });
}

/// A call of a module's forward pass, from [`Call::start`] to [`Call::end`], which is reported to observers.
///
/// It is no closure, in which a panic would not report the line of the caller.
pub(crate) struct Call<T: Real> {
    open: OpenModule,
    of: PhantomData<T>,
}

impl<T: Real> Call<T> {
    pub fn start<M: Module<T> + ?Sized>(module: &M) -> Self {
        Call { open: scope(module), of: PhantomData }
    }

    /// Ends the call with this output, and returns it.
    pub fn end(self, output: Var<T>) -> Var<T> {
        self.open.end(output.shape());
        output
    }
}

#[inline(never)]
fn named_parameters<T: Real>(visit: Visit<'_, T>) -> Vec<(String, Param<T>)> {
    let mut found: Vec<(String, Param<T>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for_each_parameter(visit, &mut |name, param| {
        if seen.insert(param.id()) {
            found.push((name.to_string(), param.clone()));
        }
    });
    found
}

#[inline(never)]
fn num_parameters<T: Real>(visit: Visit<'_, T>) -> usize {
    named_parameters(visit).iter().map(|(_, param)| param.shape().numel()).sum()
}

#[inline(never)]
fn set_trainable<T: Real>(visit: Visit<'_, T>, trainable: bool) {
    for_each_parameter(visit, &mut |_, param| param.set_trainable(trainable));
}

#[inline(never)]
#[track_caller]
fn state_dict<T: Real>(visit: Visit<'_, T>) -> StateDict<T> {
    let mut dict = StateDict::new();
    let mut read: BTreeMap<Id, Tensor<T>> = BTreeMap::new();
    let mut twice = None;
    for_each_parameter(visit, &mut |name, param| {
        let value = read.entry(param.id()).or_insert_with(|| param.value()).clone();
        if dict.insert(name.to_string(), value).is_some() {
            twice.get_or_insert(name.to_string());
        }
    });
    assert(twice.is_none(), "state_dict", ErrorKind::Value, || {
        format!("two parameters are named {}", twice.unwrap_or_default())
    });
    dict
}

#[inline(never)]
fn load_state_dict<T: Real>(visit: Visit<'_, T>, dict: &StateDict<T>) -> Result<(), LoadError> {
    let mut names = Vec::new();
    for_each_parameter(visit, &mut |name, param| names.push((name.to_string(), param.clone())));
    load(&names, dict)
}

#[inline(never)]
fn non_finite_gradients<T: Real>(visit: Visit<'_, T>, grads: &Gradients<T>) -> Vec<String> {
    let ids = grads.not_finite();
    let named = named_parameters(visit).into_iter();
    named.filter(|(_, param)| ids.contains(&param.id())).map(|(name, _)| name).collect()
}

/// A module that maps one variable to one variable.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no layer of `{T}`",
    label = "does not implement `Layer<{T}>`",
    note = "a layer is a `Module` with `fn forward(&self, x: &Var<..>, pass: &mut Pass) -> Var<..>`",
    note = "modules whose `forward` has other arguments, such as attention with a mask, are called by the \
            `forward` of a struct of your own"
)]
pub trait Layer<T: Real = f32>: Module<T> {
    /// The output for an input.
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T>;
}

/// The argument of [`Module::visit`]: calls a function with the dotted name of every parameter, and
/// perhaps another one with the dotted name of every submodule.
pub struct Visitor<'a, T: Real = f32> {
    /// The dotted name of the module that is being visited.
    pub(crate) path: String,
    pub(crate) param: &'a mut dyn FnMut(&str, &Param<T>),
    pub(crate) module: Option<OnModule<'a, T>>,
}

/// A function of the dotted name of a module and the module.
pub(crate) type OnModule<'a, T> = &'a mut dyn FnMut(&str, &dyn Module<T>);

impl<T: Real> Visitor<'_, T> {
    /// Visits a parameter.
    pub fn param(&mut self, name: &str, param: &Param<T>) {
        self.scope(name, |v| (v.param)(&v.path, param));
    }

    /// Visits a parameter that may be absent.
    pub fn optional(&mut self, name: &str, param: &Option<Param<T>>) {
        if let Some(param) = param {
            self.param(name, param);
        }
    }

    /// Visits a submodule.
    pub fn module(&mut self, name: &str, module: &dyn Module<T>) {
        self.scope(name, |v| {
            if let Some(f) = &mut v.module {
                f(&v.path, module);
            }
            module.visit(v);
        });
    }

    /// Visits a list of submodules, named by their index.
    pub fn list<'m, M: Module<T> + 'm>(
        &mut self,
        name: &str,
        modules: impl IntoIterator<Item = &'m M>,
    ) {
        self.scope(name, |v| {
            for (i, module) in modules.into_iter().enumerate() {
                v.module(&i.to_string(), module);
            }
        });
    }

    /// Calls `f` with `name` appended to the path: a level of names that is not a module.
    pub fn scope(&mut self, name: &str, f: impl FnOnce(&mut Self)) {
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
    /// No layers: the identity.
    #[inline(never)] // for the reason given at `Pass`
    pub fn new() -> Self {
        Sequential(Vec::new())
    }

    /// Appends a layer.
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
    fn visit(&self, v: &mut Visitor<'_, T>) {
        for (i, layer) in self.0.iter().enumerate() {
            v.module(&i.to_string(), layer);
        }
    }
}

impl<T: Real> Layer<T> for Sequential<T> {
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let _scope = scope(self);
        self.0.iter().fold(x.clone(), |x, layer| Call::start(layer).end(layer.forward(&x, pass)))
    }
}
