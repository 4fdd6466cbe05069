//! Traces: which kernels run, how long they take, and what the machine could do.

use crate::observe::{self, KernelCall, RunningCall};

/// Begins the call of a kernel's driver, if this thread has an observer; otherwise it costs one read of a
/// static variable. [`end`] ends and reports it.
///
/// ```
/// use retrograd_tensor::{observe, trace};
/// assert!(trace::begin().is_none() || observe::is_observed());
/// ```
#[inline]
pub fn begin() -> Option<RunningCall> {
    if observe::may_be_observed() { begin_observed() } else { None }
}

#[cold]
fn begin_observed() -> Option<RunningCall> {
    RunningCall::begin()
}

/// Ends a call that [`begin`] began, and reports it as `describe` describes it.
///
/// ```
/// use retrograd_tensor::observe::{KernelCall, Observer};
/// use retrograd_tensor::{DType, Shape, settings, trace};
/// use std::sync::{Arc, Mutex};
///
/// #[derive(Default)]
/// struct Names(Mutex<Vec<&'static str>>);
///
/// impl Observer for Names {
///     fn kernel(&self, call: &KernelCall) {
///         self.0.lock().unwrap().push(call.operation);
///     }
/// }
///
/// fn reversed(x: &[f32]) -> Vec<f32> {
///     let call = trace::begin();
///     let y = x.iter().rev().copied().collect();
///     trace::end(call, || KernelCall::new("reversed", "copy", DType::F32, Shape::from([x.len()])));
///     y
/// }
///
/// let names = Arc::new(Names::default());
/// settings::with_observer(names.clone(), || reversed(&[1.0, 2.0]));
/// assert_eq!(*names.0.lock().unwrap(), ["reversed"]);
/// ```
#[inline]
pub fn end(call: Option<RunningCall>, describe: impl FnOnce() -> KernelCall) {
    if let Some(call) = call {
        end_observed(call, describe);
    }
}

#[cold]
#[inline(never)]
fn end_observed(call: RunningCall, describe: impl FnOnce() -> KernelCall) {
    call.end(describe);
}
