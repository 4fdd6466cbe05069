//! Settings, threads and observers: their scopes, and how distributed work inherits them.

use retrograd_support::panics::catch;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::observe::{Event, Observer, is_observed};
use retrograd_tensor::par::{each, fill, fill2, map, on_every_thread, shards, threads};
use retrograd_tensor::settings::{
    grad_enabled, level, with_grad_enabled, with_level, with_observer,
};
use retrograd_tensor::simd::Level;
use retrograd_tensor::{MatmulPrecision, Tensor, matmul_precision};
use retrograd_tensor::{with_matmul_precision, with_threads};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

const MUCH: Cost = Cost(1_000_000_000);

/// The settings of a thread except its threads and observers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    level: Level,
    precision: MatmulPrecision,
    grad: bool,
}

/// None is the default.
const UNUSUAL: Settings =
    Settings { level: Level::Scalar, precision: MatmulPrecision::Bf16, grad: false };

impl Settings {
    fn current() -> Settings {
        Settings { level: level(), precision: matmul_precision(), grad: grad_enabled() }
    }

    /// The settings in which a thread begins.
    fn initial() -> Settings {
        std::thread::spawn(Settings::current).join().expect("no panic")
    }

    fn run<R>(self, f: impl FnOnce() -> R) -> R {
        with_level(self.level, || {
            with_matmul_precision(self.precision, || with_grad_enabled(self.grad, f))
        })
    }
}

#[test]
fn other_threads_inherit_the_settings() {
    for here in [Settings::initial(), UNUSUAL] {
        let right = || assert_eq!(Settings::current(), here);
        here.run(|| {
            with_threads(3, || {
                right();
                fill(&mut [0; 64], 1, MUCH, |_, _| right());
                fill2((&mut [0; 64], 1), (&mut [0; 64], 1), MUCH, |_, _, _| right());
                map(64, 1, MUCH, |_| right());
                each(vec![(); 64], 1, MUCH, |()| right());
                shards(2, |_| right());
                on_every_thread(right);
                shards(3, |_| {
                    right();
                    assert_eq!(threads(), 1);
                    with_threads(2, || assert_eq!((Settings::current(), threads()), (here, 2)));
                });
                right();
            });
        });
    }
}

#[test]
fn shards_have_their_share_of_the_threads() {
    let inside = |n| with_threads(7, || shards(n, |_| threads()))[0];
    assert_eq!([1, 2, 3, 4, 6, 7, 9].map(inside), [7, 4, 3, 2, 2, 1, 1]);
    let nested = || shards(3, |_| shards(2, |_| threads())[0])[0];
    assert_eq!([5, 6, 12, 13].map(|n| with_threads(n, nested)), [1, 1, 2, 3]);
    let pool = || shards(2, |_| with_threads(5, threads))[0];
    assert_eq!(with_threads(6, pool), 5);
}

fn wait_for(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// The settings in which a thread executes an unrelated task while it is blocked in `share`,
/// which is called in unusual settings and given two tasks to distribute.
fn while_blocked_in(share: impl Fn(&(dyn Fn() + Sync)) + Sync) -> Settings {
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
                    // The other thread is busy, so this one executes it.
                    scope.spawn(move |_| {
                        let here = (rayon::current_thread_index(), Settings::current());
                        seen.set(here).expect("once");
                    });
                });
                assert_eq!(Settings::current(), UNUSUAL);
            });
            assert_eq!(seen.get().map(|(thread, _)| *thread), Some(waiter));
        });
    });
    seen.get().expect("has run").1
}

#[test]
fn a_blocked_thread_executes_other_tasks_in_the_default_settings() {
    let seen = [
        while_blocked_in(|f| fill(&mut [0; 2], 1, MUCH, |_, _| f())),
        while_blocked_in(|f| fill2((&mut [0; 2], 1), (&mut [0; 2], 1), MUCH, |_, _, _| f())),
        while_blocked_in(|f| drop(map(2, 1, MUCH, |_| f()))),
        while_blocked_in(|f| each(vec![(); 2], 1, MUCH, |()| f())),
        while_blocked_in(|f| drop(shards(2, |_| f()))),
        while_blocked_in(|f| on_every_thread(f)),
    ];
    assert_eq!(seen, [Settings::initial(); 6]);
}

#[test]
fn a_thread_blocked_on_another_pool_does_too() {
    let seen = OnceLock::new();
    with_threads(1, || {
        rayon::scope(|scope| {
            scope.spawn(|_| seen.set(Settings::current()).expect("once"));
            UNUSUAL.run(|| with_threads(1, || wait_for(|| seen.get().is_some())));
        });
    });
    assert_eq!(seen.get(), Some(&Settings::initial()));
}

#[test]
fn a_panic_in_distributed_work_restores_the_settings() {
    with_threads(3, || {
        UNUSUAL.run(|| {
            let work = || map(64, 1, MUCH, |i| assert!(i != 40, "piece 40"));
            let panicked = catch(work);
            assert!(panicked.is_err());
            assert_eq!(Settings::current(), UNUSUAL);
        });
        assert_eq!(Settings::current(), Settings::initial());
        on_every_thread(|| assert_eq!(Settings::current(), Settings::initial()));
    });
}

#[test]
fn with_level_nests_and_is_restored_after_a_panic() {
    let before = level();
    for l in Level::available() {
        with_level(l, || {
            assert_eq!(level(), l);
            with_level(Level::Scalar, || assert_eq!(level(), Level::Scalar));
            assert_eq!(level(), l);
        });
    }
    let panicked = catch(|| with_level(Level::Scalar, || panic!("inside")));
    assert!(panicked.is_err());
    assert_eq!(level(), before);
}

#[test]
fn with_level_rejects_unsupported_levels() {
    let unsupported = if cfg!(target_arch = "x86_64") { Level::Neon } else { Level::Avx2 };
    let rejected = catch(|| with_level(unsupported, || ()));
    let text = *rejected.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("is not supported by this CPU (has: scalar"), "{text}");
}

#[derive(Default)]
struct Bytes {
    allocated: AtomicUsize,
    freed: AtomicUsize,
}

impl Observer for Bytes {
    fn event(&self, event: &Event<'_>) {
        match *event {
            Event::Allocated { bytes, .. } => {
                self.allocated.fetch_add(bytes, Relaxed);
                // Not reported, neither from here nor from other threads.
                shards(2, |_| Tensor::<f32>::zeros([100]));
            }
            Event::Freed { bytes, .. } => drop(self.freed.fetch_add(bytes, Relaxed)),
            _ => {}
        }
    }
}

#[test]
fn memory_is_reported_from_all_threads_of_the_scope() {
    let bytes = Arc::new(Bytes::default());
    let observer = bytes.clone();
    with_threads(3, || {
        with_observer(observer, || {
            shards(3, |_| drop(Tensor::<f32>::zeros([1024])));
            drop(Tensor::<f32>::zeros([16]));
        })
    });
    assert_eq!(bytes.allocated.load(Relaxed), 3 * 4096 + 64);
    assert_eq!(bytes.freed.load(Relaxed), 3 * 4096 + 64);
    assert!(!is_observed());
}

#[test]
fn scopes_nest_and_end_after_a_panic() {
    let all = [(); 2].map(|()| Arc::new(Bytes::default()));
    with_observer(all[0].clone(), || {
        let panicked = catch(|| {
            with_observer(all[1].clone(), || {
                drop(Tensor::<f32>::zeros([16]));
                panic!("inside")
            })
        });
        assert!(panicked.is_err());
        assert!(is_observed());
        drop(Tensor::<f32>::zeros([32]));
    });
    // The outer one is told of both.
    assert_eq!(all.each_ref().map(|o| o.freed.load(Relaxed)), [192, 64]);
    assert!(!is_observed());
    assert_eq!(Arc::strong_count(&all[0]), 1);
}
