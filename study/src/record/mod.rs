//! Records of forward and backward passes.
//!
//! [`record`] runs a closure and returns what happened in it: the operations with their inputs, places in
//! the source code, saved tensors, times and kernels, and, in order, the calls of rules, the gradients that
//! they delivered, and the memory that was freed. [`Recorder::watching`] adds the values.
//!
//! ```
//! use retrograd::prelude::*;
//! use retrograd::study::record::{What, record};
//!
//! // y = a² · a: two gradients are delivered to a leaf by the product and by the square.
//! let a = Var::leaf(Tensor::scalar(3.0f32));
//! let (_, recording) = record(|| a.square().mul(&a).backward());
//! let delivered = recording.events.iter().filter_map(|event| match event.what {
//!     What::Delivered { from, is_added, .. } => Some((recording.operations[from].name(), is_added)),
//!     _ => None,
//! });
//! assert_eq!(delivered.collect::<Vec<_>>(), [("mul", false), ("mul", false), ("square", true)]);
//! ```
//!
//! Operations have the [module](Operation::module) whose forward pass computed them. A record may be inside another
//! one, which contains the same operations. Recording changes no bit of a result. It works with operations of any kind, in
//! [`sharded`](retrograd_autograd::sharded) computations, whose shards are lanes, and in recorded backward passes
//! ([`grad`](retrograd_autograd::grad)), whose operations name the operation that they differentiate. If nothing is
//! recorded, an operation takes longer by one read of a static variable.

mod definition;
mod modules;
mod nonfinite;
mod recorder;
mod recording;
mod recursion;
mod state;
mod threads;

pub(crate) use modules::{ModuleNames, Modules, innermost, is_inside};
pub(crate) use nonfinite::search_process;
pub use nonfinite::{Extent, NonFinite, find_nonfinite};
pub use recorder::{Recorder, Seen};
pub use recording::{
    Constant, Event, ModuleCall, ModulePath, OperandRecord, Operation, Recording, SavedTensor,
    Source, Target, What, Which,
};
pub use recursion::naive_backward;
pub(crate) use threads::Threads;

/// Runs `f` and records it: [`Recorder::record`] without values.
pub fn record<R>(f: impl FnOnce() -> R) -> (R, Recording) {
    Recorder::new().record(f)
}
