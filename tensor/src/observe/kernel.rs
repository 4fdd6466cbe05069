//! The event of a kernel, [`KernelCall`], and the clock that measures it.

use super::{Event, is_observed, tell};
use crate::element::DType;
use crate::shape::Shape;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Display, Formatter};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// One call of the driver of a kernel: what it computed, which code ran, and how long it took.
///
/// A driver distributes the work of an operation to threads. Its call is reported once, by the thread that
/// called it, after it has ended; its tasks are not reported.
///
/// A driver may call another one: a softmax that copies a strided operand first, for example. Both
/// calls are reported, the inner one first. [`seconds`](KernelCall::seconds), `flops`, `read` and
/// `written` of the outer call do not include those of the inner one, so sums over calls are correct.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelCall {
    /// The operation: `matmul`, `softmax`, `gelu`.
    pub operation: &'static str,
    /// Which code ran: `skinny`, or `6x64, A in place, B packed`. It has no sizes, so calls can be grouped by
    /// it.
    pub kernel: Cow<'static, str>,
    /// How the work was divided, and other numbers of this call: `8 blocks of 512x576`; may be empty.
    pub detail: String,
    /// The SIMD level that the code was selected for; `None` if it does not depend on it (copies, indices,
    /// integers, and products by the crate matrixmultiply, which selects an instruction set itself).
    pub level: Option<&'static str>,
    /// The sizes.
    pub size: Size,
    /// The element type of the result.
    pub dtype: DType,
    /// Arithmetic operations. A multiply-add counts as two; comparisons, selections and signs as none. Those
    /// of `f32` formulas are counted by evaluating them: an exponential consists of a dozen or two.
    /// Reductions, losses and formulas on `f64` count one for each element, attention the operations of its
    /// products, and copies none.
    pub flops: u64,
    /// Bytes that must be read: all distinct elements of the operands, once.
    pub read: u64,
    /// Bytes that must be written: all elements of the results, once.
    pub written: u64,
    /// When the call began.
    pub start: Instant,
    /// The time in seconds, without inner calls.
    pub seconds: f64,
    /// The time in seconds from the beginning to the end, with inner calls and the time to report them.
    pub elapsed: f64,
    /// The threads that the work was distributed to, at most: 1 if it was not distributed.
    pub threads: usize,
    /// The number of calls on this thread around this one. (A thread that waits for others may run
    /// another task meanwhile. The calls of that task are inside as well.)
    pub depth: usize,
}

/// The sizes of a [`KernelCall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Size {
    /// The shape of the result; in a reduction, of the operand.
    Shape(Shape),
    /// `batch` products of `m` × `k` and `k` × `n` matrices.
    Product {
        /// The number of products.
        batch: usize,
        /// Rows of the products.
        m: usize,
        /// Terms of each sum.
        k: usize,
        /// Columns of the products.
        n: usize,
    },
    /// Attention.
    Attention {
        /// The number of sequences.
        batch: usize,
        /// The number of query heads.
        heads: usize,
        /// The number of queries.
        queries: usize,
        /// The number of keys.
        keys: usize,
        /// The width of a head.
        width: usize,
    },
}

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = match self {
            Size::Shape(shape) => {
                let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
                format!("[{}]", sizes.join(","))
            }
            Size::Product { batch: 1, m, k, n } => format!("{m}x{k}x{n}"),
            Size::Product { batch, m, k, n } => format!("{batch}*{m}x{k}x{n}"),
            Size::Attention { batch, heads, queries, keys, width } => {
                format!("{batch}*{heads}*{queries}x{keys}x{width}")
            }
        };
        f.pad(&text)
    }
}

impl From<Shape> for Size {
    fn from(shape: Shape) -> Size {
        Size::Shape(shape)
    }
}

impl KernelCall {
    /// A call that has not been measured: [`end`] sets `start`, `seconds`, `elapsed`,
    /// `threads` and `depth`.
    pub fn new(
        operation: &'static str,
        kernel: impl Into<Cow<'static, str>>,
        dtype: DType,
        size: impl Into<Size>,
    ) -> KernelCall {
        KernelCall {
            operation,
            kernel: kernel.into(),
            detail: String::new(),
            level: None,
            size: size.into(),
            dtype,
            flops: 0,
            read: 0,
            written: 0,
            start: Instant::now(),
            seconds: 0.0,
            elapsed: 0.0,
            threads: 1,
            depth: 0,
        }
    }

    /// The bytes that must be read or written.
    pub fn bytes(&self) -> u64 {
        self.read + self.written
    }
}

/// What is known of the innermost call that is running on a thread.
#[derive(Clone, Copy)]
struct Frame {
    /// The number of calls that are running.
    depth: usize,
    /// The time of inner calls, and of reporting them.
    inner: Duration,
    threads: usize,
}

thread_local! {
    static FRAME: Cell<Frame> =
        const { Cell::new(Frame { depth: 0, inner: Duration::ZERO, threads: 1 }) };
}

/// A call that is running and will be reported.
///
/// It is a pointer, so that drivers that are not observed have little to store.
#[derive(Debug)]
#[must_use = "a call is reported by `observe::end`"]
pub struct RunningCall(Box<Running>);

#[derive(Debug)]
struct Running {
    outer: Frame,
    start: Instant,
    /// The frame is that of one thread.
    here: PhantomData<*const ()>,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "depth {}", self.depth)
    }
}

/// Begins the call of a kernel's driver, if this thread has an observer; otherwise it costs one read of a
/// static variable. [`end`] ends and reports it.
#[inline]
pub fn begin() -> Option<RunningCall> {
    if is_observed() { Some(RunningCall::begin()) } else { None }
}

/// Ends a call that [`begin`] began, and reports it as `describe` describes it.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::tensor::{DType, observe::{self, KernelCall}};
///
/// fn reversed(x: &[f32]) -> Vec<f32> {
///     let call = observe::begin();
///     let y = x.iter().rev().copied().collect();
///     observe::end(call, || {
///         KernelCall::new("reversed", "copy", DType::F32, Shape::from([x.len()]))
///     });
///     y
/// }
/// assert_eq!(reversed(&[1.0, 2.0]), [2.0, 1.0]);
/// ```
#[inline]
pub fn end(call: Option<RunningCall>, describe: impl FnOnce() -> KernelCall) {
    if let Some(call) = call {
        call.end(describe);
    }
}

impl RunningCall {
    #[cold]
    fn begin() -> RunningCall {
        let outer = FRAME.get();
        FRAME.set(Frame { depth: outer.depth + 1, inner: Duration::ZERO, threads: 1 });
        RunningCall(Box::new(Running { outer, start: Instant::now(), here: PhantomData }))
    }

    #[cold]
    #[inline(never)]
    fn end(self, describe: impl FnOnce() -> KernelCall) {
        let elapsed = self.0.start.elapsed();
        self.report(elapsed, describe());
    }

    /// Not a part of [`RunningCall::end`], so that it is compiled once for all drivers.
    #[inline(never)]
    fn report(self, elapsed: Duration, call: KernelCall) {
        let Running { start, ref outer, .. } = *self.0;
        let Frame { inner, threads, .. } = FRAME.get();
        let call = KernelCall {
            start,
            seconds: elapsed.saturating_sub(inner).as_secs_f64(),
            elapsed: elapsed.as_secs_f64(),
            threads,
            depth: outer.depth,
            ..call
        };
        tell(&Event::Kernel(&call));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The time to describe and report the call is not one of the outer call either.
        let inner = self.outer.inner + self.start.elapsed();
        FRAME.set(Frame { inner, ..self.outer });
    }
}

/// Notes that the innermost call has distributed work to so many threads.
#[cold]
pub(super) fn distributed(threads: usize) {
    let frame = FRAME.get();
    FRAME.set(Frame { threads: frame.threads.max(threads), ..frame });
}
