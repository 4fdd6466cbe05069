//! Threads: the only file that knows rayon, and the only table of costs.
//!
//! Work is cut into chunks whose size depends on the shape of the work alone, and every chunk
//! is done the same way whoever does it. So results do not depend on the number of threads;
//! whether to use threads at all is a matter of estimated time, and of where it is asked for.
//!
//! A thread that waits in rayon may run any other task of its pool. So every share of work runs in
//! the [`settings`](crate::settings) of the thread that shared it out, and that thread waits in the
//! default ones.

use crate::settings::Settings;
use rayon::prelude::*;

/// Estimated time of work per element, in picoseconds: the one place to tune.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost(pub u32);

impl Cost {
    /// Reading and writing: copies, sums, comparisons.
    pub const MOVE: Cost = Cost(250);
    /// A few arithmetic operations: products, roots, quotients.
    pub const CHEAP: Cost = Cost(300);
    /// A polynomial or two: exponentials, logarithms, GELU.
    pub const COSTLY: Cost = Cost(1_500);
    /// Element by element through scalar code: gathers, powers, sorting.
    pub const SCALAR: Cost = Cost(3_000);

    fn of(self, elements: usize) -> u64 {
        elements as u64 * self.0 as u64
    }
}

/// Below this estimate (picoseconds) waking another thread costs more than it saves.
const WORTH_THREADS: u64 = 25_000_000;
/// The same if a thread of the pool asks: others look at its work without being woken, unless they
/// have slept for long.
const WORTH_THREADS_INSIDE: u64 = 12_000_000;
/// Aim for chunks of about this estimate (picoseconds).
const CHUNK: u64 = 20_000_000;
/// The same of whole products in a batch: shares that differ by one cost more than another chunk.
const CHUNK_OF_PRODUCTS: u64 = 7_000_000;

/// The number of threads that parallel work uses here and now.
pub fn threads() -> usize {
    if Settings::here().alone { 1 } else { rayon::current_num_threads() }
}

/// `f(0), f(1), ..` in order: large pieces of work, each with parallel work in it. If there are
/// enough of them to keep all threads busy, each is done by one thread alone, which takes no
/// other thread's time and stays in its own caches.
///
/// ```
/// use retrograd_tensor::{par, with_threads};
/// assert_eq!(with_threads(2, || par::shards(3, |i| (i, par::threads()))), [(0, 1), (1, 1), (2, 1)]);
/// ```
pub fn shards<R: Send>(n: usize, f: impl Fn(usize) -> R + Send + Sync) -> Vec<R> {
    let threads = threads();
    if n <= 1 || threads == 1 {
        return (0..n).map(f).collect();
    }
    let settings = Settings { alone: n >= threads, ..Settings::here() };
    let one = |i| settings.run(|| f(i));
    waiting(|| (0..n).into_par_iter().with_max_len(1).map(one).collect())
}

/// Runs `f` on this thread alone: parallel work in it is not shared out, so that the thread neither
/// waits for others nor begins their tasks meanwhile.
///
/// ```
/// use retrograd_tensor::par;
/// assert_eq!(par::alone(par::threads), 1);
/// ```
pub fn alone<R>(f: impl FnOnce() -> R) -> R {
    Settings { alone: true, ..Settings::here() }.run(f)
}

/// Runs `f` with exactly `n` threads for all parallel work in it, and in the
/// [`settings`](crate::settings) of this thread.
///
/// Entering a pool once around a whole training loop also makes every parallel operation in
/// it cheaper to start. Without it, rayon's global pool is used: one thread per core, or
/// `RAYON_NUM_THREADS`.
///
/// # Panics
/// If `n` is 0, or the operating system refuses to start threads.
///
/// ```
/// use retrograd_tensor::with_threads;
/// assert_eq!(with_threads(2, retrograd_tensor::threads), 2);
/// ```
#[track_caller]
pub fn with_threads<R: Send>(n: usize, f: impl FnOnce() -> R + Send) -> R {
    assert!(n > 0, "with_threads: needs at least 1 thread, got 0");
    let pool = match rayon::ThreadPoolBuilder::new().num_threads(n).build() {
        Ok(pool) => pool,
        Err(e) => panic!("with_threads: cannot start {n} threads: {e}"),
    };
    let settings = Settings { alone: false, ..Settings::here() };
    // Called from a thread of another pool, this waits there.
    waiting(|| pool.install(|| settings.run(f)))
}

/// Runs `f` once on every thread that parallel work uses, at the same time.
pub fn on_every_thread(f: impl Fn() + Sync) {
    let here = Settings::here();
    waiting(|| rayon::broadcast(|_| here.run(&f)));
}

/// How many of `n` units of `elements` elements each belong to a chunk: at least 1, and a
/// function of sizes only.
pub fn units_per_chunk(cost: Cost, elements: usize) -> usize {
    (CHUNK / cost.of(elements).max(1)).max(1) as usize
}

/// How many products of `elements` elements each belong to a chunk: at least 1.
pub fn products_per_chunk(cost: Cost, elements: usize) -> usize {
    (CHUNK_OF_PRODUCTS / cost.of(elements).max(1)).max(1) as usize
}

/// Elements in a chunk of elementwise work: a multiple of 1024.
pub fn chunk_len(cost: Cost) -> usize {
    (units_per_chunk(cost, 1) / 1024 * 1024).max(1024)
}

/// Whether work of this estimate is shared out here and now.
pub fn worth(cost: Cost, elements: usize) -> bool {
    let time = cost.of(elements);
    time >= WORTH_THREADS_INSIDE
        && (time >= WORTH_THREADS || rayon::current_thread_index().is_some())
        && threads() > 1
}

/// A call of rayon that waits: whatever else the thread does meanwhile begins in the defaults. The
/// work that is shared out brings its own settings, see [`as_here`].
fn waiting<R>(call: impl FnOnce() -> R) -> R {
    Settings::DEFAULT.run(call)
}

/// Does other work of the thread pool while waiting for something; false on a thread outside of it,
/// which may as well be blocked. A thread of the pool may not: what it waits for may wait for the pool.
pub fn give_way() -> bool {
    match waiting(rayon::yield_now) {
        Some(rayon::Yield::Executed) => true,
        Some(rayon::Yield::Idle) => {
            std::thread::yield_now();
            true
        }
        None => false,
    }
}

/// `f` for other threads, with the settings of this one. `f` is behind a pointer, so that what rayon
/// makes of it is compiled for each type of argument, not for each `f`.
fn as_here<A, R>(f: &(dyn Fn(A) -> R + Sync)) -> impl Fn(A) -> R + Send + Sync {
    let here = Settings::here();
    move |argument| here.run(|| f(argument))
}

/// Fills `out` in chunks of `chunk` elements; `f` gets a chunk's first index and the chunk.
pub fn fill<T: Send>(
    out: &mut [T],
    chunk: usize,
    cost: Cost,
    f: impl Fn(usize, &mut [T]) + Send + Sync,
) {
    fill_dyn(out, chunk, cost, &f);
}

/// [`fill`], compiled once for each type of element and not for each `f`.
#[inline(never)]
fn fill_dyn<T: Send>(
    out: &mut [T],
    chunk: usize,
    cost: Cost,
    f: &(dyn Fn(usize, &mut [T]) + Send + Sync),
) {
    if worth(cost, out.len()) && out.len() > chunk {
        let f = |(i, part): (usize, _)| f(i * chunk, part);
        let f = as_here(&f);
        waiting(|| out.par_chunks_mut(chunk).enumerate().for_each(f));
    } else {
        out.chunks_mut(chunk.max(1)).enumerate().for_each(|(i, part)| f(i * chunk, part));
    }
}

/// Fills two outputs in step: chunk `i` of one belongs to chunk `i` of the other.
pub fn fill2<T: Send, U: Send>(
    (a, chunk_a): (&mut [T], usize),
    (b, chunk_b): (&mut [U], usize),
    cost: Cost,
    f: impl Fn(usize, &mut [T], &mut [U]) + Send + Sync,
) {
    if worth(cost, a.len().max(b.len())) && a.len() > chunk_a {
        let b = b.par_chunks_mut(chunk_b);
        let f = |(i, (a, b)): (usize, _)| f(i, a, b);
        let f = as_here(&f);
        waiting(|| a.par_chunks_mut(chunk_a).zip(b).enumerate().for_each(f));
    } else {
        let b = b.chunks_mut(chunk_b);
        a.chunks_mut(chunk_a).zip(b).enumerate().for_each(|(i, (a, b))| f(i, a, b));
    }
}

/// `f(0), f(1), ..` in order, each worth `elements` elements of work.
pub fn map<R: Send>(
    n: usize,
    elements: usize,
    cost: Cost,
    f: impl Fn(usize) -> R + Send + Sync,
) -> Vec<R> {
    if n > 1 && worth(cost, n.saturating_mul(elements)) {
        let f = as_here(&f);
        waiting(|| (0..n).into_par_iter().map(f).collect())
    } else {
        (0..n).map(f).collect()
    }
}

/// Does every item, each worth `elements` elements of work.
pub fn each<I: Send>(items: Vec<I>, elements: usize, cost: Cost, f: impl Fn(I) + Send + Sync) {
    if items.len() > 1 && worth(cost, items.len() * elements) {
        let f = as_here(&f);
        waiting(|| items.into_par_iter().for_each(f));
    } else {
        items.into_iter().for_each(f);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precision::MatmulPrecision;
    use crate::simd::Level;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    const MUCH: Cost = Cost(1_000_000_000);
    /// None is the default, except that work is shared out.
    const UNUSUAL: Settings = Settings {
        level: Some(Level::Scalar),
        precision: MatmulPrecision::Bf16,
        grad: false,
        alone: false,
    };

    #[test]
    fn settings_go_along_to_other_threads() {
        let alone = Settings { alone: true, ..UNUSUAL };
        for here in [Settings::DEFAULT, UNUSUAL] {
            let right = || assert_eq!(Settings::here(), here);
            here.run(|| {
                with_threads(3, || {
                    right();
                    fill(&mut [0; 64], 1, MUCH, |_, _| right());
                    fill2((&mut [0; 64], 1), (&mut [0; 64], 1), MUCH, |_, _, _| right());
                    map(64, 1, MUCH, |_| right());
                    each(vec![(); 64], 1, MUCH, |()| right());
                    shards(2, |_| right());
                    on_every_thread(right);
                    right();
                });
            });
        }
        UNUSUAL.run(|| {
            with_threads(3, || {
                shards(3, |_| {
                    assert_eq!(Settings::here(), alone);
                    with_threads(2, || assert_eq!(Settings::here(), UNUSUAL));
                });
            });
        });
    }

    fn wait_for(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::yield_now();
        }
    }

    /// The settings in which a thread runs the task of somebody else while it waits for `share`,
    /// which is called in unusual settings and given two pieces of work to share out.
    fn while_waiting_for(share: impl Fn(&(dyn Fn() + Sync)) + Sync) -> Settings {
        let (both_began, seen) = (AtomicBool::new(false), OnceLock::new());
        let (both_began, seen) = (&both_began, &seen);
        with_threads(2, || {
            rayon::scope(|scope| {
                let waiter = rayon::current_thread_index();
                UNUSUAL.run(|| {
                    share(&|| {
                        if rayon::current_thread_index() != waiter {
                            both_began.store(true, SeqCst);
                            return wait_for(|| seen.get().is_some());
                        }
                        wait_for(|| both_began.load(SeqCst));
                        // Of the two threads only this one will have time for it.
                        scope.spawn(move |_| {
                            let here = (rayon::current_thread_index(), Settings::here());
                            seen.set(here).expect("once");
                        });
                    });
                    assert_eq!(Settings::here(), UNUSUAL);
                });
                assert_eq!(seen.get().map(|(thread, _)| *thread), Some(waiter));
            });
        });
        seen.get().expect("has run").1
    }

    #[test]
    fn who_waits_runs_the_tasks_of_others_in_the_defaults() {
        let seen = [
            while_waiting_for(|f| fill(&mut [0; 2], 1, MUCH, |_, _| f())),
            while_waiting_for(|f| fill2((&mut [0; 2], 1), (&mut [0; 2], 1), MUCH, |_, _, _| f())),
            while_waiting_for(|f| drop(map(2, 1, MUCH, |_| f()))),
            while_waiting_for(|f| each(vec![(); 2], 1, MUCH, |()| f())),
            while_waiting_for(|f| drop(shards(2, |_| f()))),
            while_waiting_for(|f| on_every_thread(f)),
        ];
        assert_eq!(seen, [Settings::DEFAULT; 6]);
    }

    #[test]
    fn who_waits_for_another_pool_does_too() {
        let seen = OnceLock::new();
        with_threads(1, || {
            rayon::scope(|scope| {
                scope.spawn(|_| seen.set(Settings::here()).expect("once"));
                UNUSUAL.run(|| with_threads(1, || wait_for(|| seen.get().is_some())));
            });
        });
        assert_eq!(seen.get(), Some(&Settings::DEFAULT));
    }

    #[test]
    fn a_panic_in_shared_work_restores_the_settings() {
        with_threads(3, || {
            UNUSUAL.run(|| {
                let work = || map(64, 1, MUCH, |i| assert!(i != 40, "piece 40"));
                let panicked = std::panic::catch_unwind(work);
                assert!(panicked.is_err());
                assert_eq!(Settings::here(), UNUSUAL);
            });
            assert_eq!(Settings::here(), Settings::DEFAULT);
            on_every_thread(|| assert_eq!(Settings::here(), Settings::DEFAULT));
        });
    }
}
