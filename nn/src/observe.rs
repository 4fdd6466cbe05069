//! The calls of modules during a summary, recorded on the thread that makes it.

use super::short_type;
use crate::module::{Module, Visitor};
use retrograd_autograd::Var;
use retrograd_autograd::observe::{ModuleNames, ModuleScope, shard_depth};
use retrograd_tensor::observe::is_observed;
use retrograd_tensor::{Real, Shape, Tensor};
use std::cell::RefCell;
use std::marker::PhantomData;

/// The identity of a module: its address, and its type, since a struct and its first field have the
/// same address.
pub(super) type Key = (usize, &'static str);

/// [`Key`] of a module.
pub(super) fn key<T: Real, M: Module<T> + ?Sized>(module: &M) -> Key {
    (module.address(), module.type_name())
}

/// A call of a module.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub key: Key,
    /// The creation indices before and after the call: those of its operations are between them.
    pub ids: (u64, u64),
    pub output: Shape,
}

thread_local! {
    /// The calls so far, while a summary is being made, and the shards around it: calls in shards are not its own.
    static CALLS: RefCell<Option<(usize, Vec<Recorded>)>> = const { RefCell::new(None) };
}

/// Whether a summary is being made on this thread.
pub(crate) fn is_recording() -> bool {
    CALLS.with_borrow(|calls| calls.as_ref().is_some_and(|(depth, _)| *depth == shard_depth()))
}

/// Runs `f`, and returns the calls of modules during it.
pub(super) fn record<R>(f: impl FnOnce() -> R) -> (R, Vec<Recorded>) {
    /// Restores the outer summary, also after a panic.
    struct Outer(Option<(usize, Vec<Recorded>)>);
    impl Drop for Outer {
        fn drop(&mut self) {
            CALLS.set(self.0.take());
        }
    }
    let _outer = Outer(CALLS.replace(Some((shard_depth(), Vec::new()))));
    let result = f();
    (result, CALLS.take().unwrap_or_default().1)
}

/// The creation index of what is created next.
fn now() -> u64 {
    Var::leaf(Tensor::scalar(0.0f32)).id().map_or(0, |id| id.number())
}

/// The forward pass of a module until the result is dropped, for records of what is computed in it.
#[inline]
pub(crate) fn scope<T: Real, M: Module<T> + ?Sized>(module: &M) -> Option<ModuleScope> {
    is_observed()
        .then(|| ModuleScope::enter(key(module), || names(key(module), &|v| module.visit(v))))
}

/// The names of the parts of a model.
#[cold]
fn names<T: Real>(model: Key, visit: &dyn Fn(&mut Visitor<'_, T>)) -> ModuleNames {
    let mut names = ModuleNames::default();
    names.add(model, "", &short_type(model.1));
    let mut params = Vec::new();
    visit(&mut Visitor {
        path: String::new(),
        param: &mut |name, param| params.push((param.id(), name.to_string())),
        module: Some(&mut |path, module| {
            names.add(
                (module.address(), module.type_name()),
                path,
                &short_type(module.type_name()),
            );
        }),
    });
    params.iter().for_each(|(id, name)| names.add_parameter(*id, name));
    names
}

/// A call of a module's forward pass, from [`Call::start`] to [`Call::end`]. It costs next to nothing
/// unless a summary is being made.
///
/// It is no closure, in which a panic would not report the line of the caller.
pub(crate) struct Call<T: Real> {
    started: Option<(Key, u64)>,
    /// The call, for records of what is computed in it.
    _scope: Option<ModuleScope>,
    of: PhantomData<T>,
}

impl<T: Real> Call<T> {
    pub fn start<M: Module<T> + ?Sized>(module: &M) -> Self {
        let started = is_recording().then(|| (key(module), now()));
        Call { started, _scope: scope(module), of: PhantomData }
    }

    /// Records the output, and returns it.
    pub fn end(self, output: Var<T>) -> Var<T> {
        if let Some((key, start)) = self.started {
            let call = Recorded { key, ids: (start, now()), output: *output.shape() };
            CALLS.with_borrow_mut(|calls| {
                let Some((_, calls)) = calls else { return };
                // The caller and the module may both observe it.
                calls.retain(|inner| inner.key != key || inner.ids.0 < start);
                calls.push(call);
            });
        }
        output
    }
}
