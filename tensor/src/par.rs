//! Parallelism: the only file that uses rayon.
//!
//! Work is divided into chunks whose size depends on the shape of the work alone ([`Cost`]), and
//! every chunk is computed in the same way on every thread. So results do not depend on the number
//! of threads. Whether threads are used at all depends on the estimated time.
//!
//! A thread that is blocked in rayon may execute any other task of its pool. So every distributed
//! task runs in the [`settings`](crate::settings) of the thread that distributed it, and that
//! thread blocks in the default ones.
//!
//! A process that forks without exec has no threads in the child, where parallel work never ends: fork before the
//! first parallel work, or not at all. All threads expect the floating-point mode (MXCSR) that Rust starts with.
//!
//! Regions, their tasks and [spans](span) are reported to [observers](crate::observe).

pub use crate::observe::{Span, span};

use crate::cost::{Cost, PARALLEL_THRESHOLD, PARALLEL_THRESHOLD_IN_POOL};
use crate::error::{ErrorKind, assert};
use crate::observe::{self, Division, ObserverId, region, task};
use crate::settings::Settings;
use rayon::prelude::*;
use std::sync::Mutex;

/// The number of threads that parallel work on this thread uses; in one of fewer [`shards`] than
/// threads, its share of them.
pub fn threads() -> usize {
    let Settings { single_threaded, sharing, .. } = Settings::current();
    if single_threaded { 1 } else { rayon::current_num_threads().div_ceil(sharing) }
}

/// `f(0), f(1), ..` in order, in parallel: large shards of work that contain parallel work
/// themselves. If there are at least as many shards as threads, the work inside a shard stays on
/// one thread and in its caches. Otherwise it is divided as for its share of the threads.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::tensor::par;
/// assert_eq!(with_threads(2, || par::shards(3, |i| (i, par::threads()))), [(0, 1), (1, 1), (2, 1)]);
/// assert_eq!(with_threads(8, || par::shards(3, |_| par::threads())), [3; 3]);
/// ```
#[track_caller]
pub fn shards<R: Send>(n: usize, f: impl Fn(usize) -> R + Send + Sync) -> Vec<R> {
    let region = region(Division::Shards, || 0);
    let f = |i| {
        let _task = task(&region);
        f(i)
    };
    let threads = threads();
    if n <= 1 || threads == 1 {
        return (0..n).map(f).collect();
    }
    let here = Settings::current();
    let settings =
        Settings { single_threaded: n >= threads, sharing: here.sharing.saturating_mul(n), ..here };
    distribute_map(n, 1, settings, f)
}

/// Runs `f` without distributing its parallel work, so that the thread neither blocks on other
/// threads nor executes their tasks.
///
/// ```
/// use retrograd::tensor::par;
/// assert_eq!(par::single_threaded(par::threads), 1);
/// ```
pub fn single_threaded<R>(f: impl FnOnce() -> R) -> R {
    Settings { single_threaded: true, ..Settings::current() }.run(f)
}

/// Runs `f` with exactly `n` threads for all parallel work in it, and in the
/// [`settings`](crate::settings) of this thread.
///
/// Parallel operations also start faster inside the pool, so enter it once around a whole training
/// loop. Outside of it, rayon's global pool is used: one thread per core, or `RAYON_NUM_THREADS`.
///
/// WebAssembly has no threads here: `f` runs on the calling thread.
///
/// # Panics
/// If `n` is 0, or the operating system refuses to start threads.
///
/// ```
/// use retrograd::prelude::*;
/// assert_eq!(with_threads(2, retrograd::tensor::threads), 2);
/// ```
#[track_caller]
pub fn with_threads<R: Send>(n: usize, f: impl FnOnce() -> R + Send) -> R {
    let (mut f, mut result) = (Some(f), None);
    with_threads_dyn(n, &mut || result = f.take().map(|f| f()));
    result.expect("f has run")
}

/// [`with_threads`], so that rayon's code is compiled once instead of once per `f`.
#[inline(never)]
#[track_caller]
fn with_threads_dyn(n: usize, f: &mut (dyn FnMut() + Send)) {
    assert(n > 0, "with_threads", ErrorKind::Value, || "needs at least 1 thread, got 0".into());
    if cfg!(target_family = "wasm") {
        return f();
    }
    let pool = match rayon::ThreadPoolBuilder::new().num_threads(n).build() {
        Ok(pool) => pool,
        Err(e) => panic!("with_threads: cannot start {n} threads: {e}"),
    };
    let settings = Settings { single_threaded: false, sharing: 1, ..Settings::current() };
    let region = region(Division::Pool, || 0);
    // On a thread of another pool, this blocks there.
    in_default_settings(|| {
        pool.install(|| {
            settings.run(|| {
                let _task = task(&region);
                f()
            })
        })
    })
}

/// Runs `f` once on every thread that parallel work uses, at the same time. None of it is reported.
pub fn on_every_thread(f: impl Fn() + Sync) {
    let here = Settings { observer: Some(ObserverId::NONE), ..Settings::current() };
    in_default_settings(|| rayon::broadcast(|_| here.run(&f)));
}

/// The name of this thread for reports: `worker 0` in a thread pool, else the name of the thread.
pub fn lane() -> String {
    match rayon::current_thread_index() {
        Some(index) => format!("worker {index}"),
        None => std::thread::current().name().unwrap_or("thread").to_owned(),
    }
}

/// Whether this thread belongs to a thread pool ([`with_threads`]), where smaller regions are distributed.
pub fn in_pool() -> bool {
    rayon::current_thread_index().is_some()
}

/// Whether work of this estimated time is distributed on this thread.
///
/// ```
/// use retrograd::tensor::{cost::Cost, par};
/// assert!(!par::should_parallelize(Cost::CHEAP, 10));
/// ```
pub fn should_parallelize(cost: Cost, elements: usize) -> bool {
    let time = cost.of(elements);
    time >= PARALLEL_THRESHOLD_IN_POOL && (time >= PARALLEL_THRESHOLD || in_pool()) && threads() > 1
}

/// A blocking rayon call: other tasks that the thread executes meanwhile start in the default
/// settings. The distributed work carries its own settings, see [`distribute`].
fn in_default_settings<R>(call: impl FnOnce() -> R) -> R {
    Settings::DEFAULT.run(call)
}

/// Executes another task of the thread pool, if there is one; false on a thread outside of it. A
/// thread of the pool calls this instead of blocking on a lock: the owner of the lock may itself be
/// blocked on the pool.
pub fn yield_to_pool() -> bool {
    match in_default_settings(rayon::yield_now) {
        Some(rayon::Yield::Executed) => true,
        Some(rayon::Yield::Idle) => {
            std::thread::yield_now();
            true
        }
        None => false,
    }
}

/// Calls `f(0), f(1), ..` on the threads of the pool, at most `most` one after the other, in these settings. `f`
/// is a trait object of numbers, so that rayon's code is compiled once.
#[inline(never)]
fn distribute(n: usize, most: usize, settings: Settings, f: &(dyn Fn(usize) + Sync)) {
    let one = |i| settings.run(|| f(i));
    in_default_settings(|| (0..n).into_par_iter().with_max_len(most).for_each(one));
}

/// The results of [`distribute`].
fn distribute_map<R: Send>(
    n: usize,
    most: usize,
    settings: Settings,
    f: impl Fn(usize) -> R + Sync,
) -> Vec<R> {
    let results: Vec<_> = (0..n).map(|_| Mutex::new(None)).collect();
    distribute(n, most, settings, &|i| {
        let result = f(i);
        *results[i].lock().expect("one task uses it") = Some(result);
    });
    let result = |x: Mutex<Option<R>>| x.into_inner().expect("no task panicked");
    results.into_iter().filter_map(result).collect()
}

/// Fills `out` in chunks of `chunk` elements: `f` is given the first index of a chunk and the
/// chunk.
#[track_caller]
pub fn fill<T: Send>(
    out: &mut [T],
    chunk: usize,
    cost: Cost,
    f: impl Fn(usize, &mut [T]) + Send + Sync,
) {
    fill_dyn(out, chunk, cost, &f);
}

/// [`fill`], compiled once per type of element instead of once per `f`.
#[inline(never)]
#[track_caller]
fn fill_dyn<T: Send>(
    out: &mut [T],
    chunk: usize,
    cost: Cost,
    f: &(dyn Fn(usize, &mut [T]) + Send + Sync),
) {
    let region = region(Division::Chunks, || cost.of(out.len()));
    let f = |first, part: &mut [T]| {
        let _task = task(&region);
        f(first, part);
    };
    if should_parallelize(cost, out.len()) && out.len() > chunk {
        observe::distributed(|| threads().min(out.len().div_ceil(chunk)));
        let here = Settings::current();
        let f = |(i, part): (usize, &mut [T])| here.run(|| f(i * chunk, part));
        in_default_settings(|| out.par_chunks_mut(chunk).enumerate().for_each(f));
    } else {
        out.chunks_mut(chunk.max(1)).enumerate().for_each(|(i, part)| f(i * chunk, part));
    }
}

/// Fills two outputs together, chunk `i` of one with chunk `i` of the other.
#[track_caller]
pub fn fill2<T: Send, U: Send>(
    a: (&mut [T], usize),
    b: (&mut [U], usize),
    cost: Cost,
    f: impl Fn(usize, &mut [T], &mut [U]) + Send + Sync,
) {
    fill2_dyn(a, b, cost, &f);
}

/// The index of two chunks, and the chunks.
type Fill2<'a, T, U> = dyn Fn(usize, &mut [T], &mut [U]) + Sync + 'a;

/// [`fill2`], compiled once per types of elements.
#[inline(never)]
#[track_caller]
fn fill2_dyn<T: Send, U: Send>(
    (a, chunk_a): (&mut [T], usize),
    (b, chunk_b): (&mut [U], usize),
    cost: Cost,
    f: &Fill2<'_, T, U>,
) {
    let region = region(Division::Chunks, || cost.of(a.len().max(b.len())));
    let f = |i, a: &mut [T], b: &mut [U]| {
        let _task = task(&region);
        f(i, a, b);
    };
    if should_parallelize(cost, a.len().max(b.len())) && a.len() > chunk_a {
        observe::distributed(|| threads().min(a.len().div_ceil(chunk_a)));
        let here = Settings::current();
        let f = |(i, (a, b)): (usize, (&mut [T], &mut [U]))| here.run(|| f(i, a, b));
        let parts = a.par_chunks_mut(chunk_a).zip(b.par_chunks_mut(chunk_b));
        in_default_settings(|| parts.enumerate().for_each(f));
    } else {
        let parts = a.chunks_mut(chunk_a).zip(b.chunks_mut(chunk_b));
        parts.enumerate().for_each(|(i, (a, b))| f(i, a, b));
    }
}

/// `f(0), f(1), ..` in order, each of which processes `elements` elements.
///
/// ```
/// use retrograd::tensor::{cost::Cost, par};
/// let squares = par::map(4, 1, Cost::CHEAP, |i| i * i);
/// assert_eq!(squares, [0, 1, 4, 9]);
/// ```
#[track_caller]
pub fn map<R: Send>(
    n: usize,
    elements: usize,
    cost: Cost,
    f: impl Fn(usize) -> R + Send + Sync,
) -> Vec<R> {
    let region = region(Division::Chunks, || cost.of(n.saturating_mul(elements)));
    let f = |i| {
        let _task = task(&region);
        f(i)
    };
    if n > 1 && should_parallelize(cost, n.saturating_mul(elements)) {
        observe::distributed(|| threads().min(n));
        distribute_map(n, usize::MAX, Settings::current(), f)
    } else {
        (0..n).map(f).collect()
    }
}

/// Calls `f` on every item, each of which has `elements` elements.
#[track_caller]
pub fn each<I: Send>(items: Vec<I>, elements: usize, cost: Cost, f: impl Fn(I) + Send + Sync) {
    let region = region(Division::Chunks, || cost.of(items.len() * elements));
    let f = |item| {
        let _task = task(&region);
        f(item);
    };
    if items.len() > 1 && should_parallelize(cost, items.len() * elements) {
        observe::distributed(|| threads().min(items.len()));
        let here = Settings::current();
        in_default_settings(|| items.into_par_iter().for_each(|item| here.run(|| f(item))));
    } else {
        items.into_iter().for_each(f);
    }
}

/// Runs `f`, which one thread computes because it is small or the only thread. It is reported as a
/// region of one task, which more threads would divide as `divide` says.
///
/// ```
/// use retrograd::tensor::{cost::Cost, par};
/// let halves = || |threads: usize| vec![vec![1.0 / threads as f64; threads]];
/// assert_eq!(par::undivided(Cost::CHEAP, 4, halves, || 1 + 2 + 3 + 4), 10);
/// ```
#[track_caller]
#[inline]
pub fn undivided<R, D: Fn(usize) -> Vec<Vec<f64>> + Send + Sync + 'static>(
    cost: Cost,
    elements: usize,
    divide: impl FnOnce() -> D,
    f: impl FnOnce() -> R,
) -> R {
    let division = || Division::ByThreads(std::sync::Arc::new(divide()));
    let region = observe::region_with(division, || cost.of(elements));
    let _task = task(&region);
    f()
}
