//! Parameters: access during an update.

use crate::common::*;
use crate::optim::{both, two};
use retrograd_nn::Param;
use retrograd_tensor::Tensor;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::par::{self, threads};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Runs `f` on another thread, and panics if it takes longer than a minute, so that a deadlock is a
/// failed test.
#[track_caller]
fn ends(f: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("deadlock"),
        _ => thread.join().unwrap(),
    }
}

fn param() -> Param<f32> {
    Param::new(Tensor::from([1.0, 2.0]))
}

#[test]
fn access_within_an_update_panics() {
    type Use = fn(&Param<f32>);
    let uses: [(&str, Use); 5] = [
        ("to_var", |p| drop(p.to_var())),
        ("value", |p| drop(p.value())),
        ("set", |p| p.set(Tensor::zeros([2]))),
        ("update", |p| p.update(|_| ())),
        ("to_var", |p| drop(p.clone().to_var())),
    ];
    for (method, again) in uses {
        ends(move || {
            let p = param();
            let text = panic_text(|| p.update(|_| again(&p)));
            let start = format!("Param::{method}: this thread is in the middle of changing");
            assert!(text.starts_with(&start), "{text}");
            // After the panic it can be used as before.
            p.update(|w| w.add_assign(&Tensor::ones([2])));
            assert_eq!(p.value().to_vec(), [2.0, 3.0]);
        });
    }
    // Through another parameter, too.
    ends(|| {
        let (p, q) = (param(), param());
        let text = panic_text(|| p.update(|_| q.update(|_| p.value())));
        assert!(text.starts_with("Param::value: "), "{text}");
        assert_eq!((p.value(), q.value()), (q.value(), p.value()));
    });
}

#[test]
fn the_panic_names_the_line_of_the_caller() {
    ends(|| {
        let p = param();
        let again = "the closure given to `update` must not use it";
        assert_panics_here(again, || p.update(|_| p.to_var()));
        assert_panics_here(again, || p.update(|_| p.value()));
        assert_panics_here(again, || p.update(|_| p.set(Tensor::zeros([2]))));
        assert_panics_here(again, || p.update(|_| p.update(|_| ())));
    });
}

#[test]
fn shape_identity_and_gradient_are_accessible_within_an_update() {
    ends(|| {
        let p = param();
        let grads = p.to_var().square().sum(..).backward();
        p.update(|w| {
            assert_eq!((p.shape(), format!("{p:?}")), ([2].into(), "Param(f32[2])".into()));
            assert!(p.is_trainable());
            w.add_assign(&(grads.get(&p).unwrap() * -0.5));
        });
        assert_eq!(p.value().to_vec(), [0.0, 0.0]);
    });
}

#[test]
fn other_threads_wait_for_an_update() {
    ends(|| {
        let p = param();
        std::thread::scope(|s| {
            let (started, begin) = mpsc::channel();
            let q = &p;
            let reader = s.spawn(move || {
                begin.recv().unwrap();
                q.value().to_vec()
            });
            p.update(|w| {
                started.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                w.add_assign(&Tensor::ones([2]));
            });
            assert_eq!(reader.join().unwrap(), [2.0, 3.0]);
        });
    });
}

#[test]
fn gradients_are_found_by_parameter() {
    let model = two::<f64>();
    let mut grads = both(&model, 3);
    for p in [&model.matrix, &model.vector] {
        let by_var = grads.get(&p.to_var()).unwrap();
        assert_eq!(bits(grads.get(p).unwrap()), bits(by_var));
        assert_eq!(bits(grads.get(&p.clone()).unwrap()), bits(by_var));
    }
    // When it is frozen its variable is a constant; the gradient of the pass is unchanged.
    model.vector.set_trainable(false);
    assert!(grads.get(&model.vector.to_var()).is_none());
    assert!(grads.get(&model.vector).is_some());
    assert!(grads.get(&Param::new(Tensor::<f64>::zeros([4]))).is_none());
    assert_eq!(*grads.remove(&model.vector).unwrap().shape(), [4]);
    assert!(grads.get(&model.vector).is_none() && grads.len() == 1);
}

#[test]
fn other_tasks_run_while_a_parameter_is_locked() {
    ends(|| {
        let (p, locked, reading) = (param(), AtomicBool::new(false), AtomicUsize::new(0));
        let threads = threads();
        const MUCH: Cost = Cost(1_000_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                p.update(|_| {
                    locked.store(true, SeqCst);
                    // Until every thread of the pool waits for the parameter, or does other tests.
                    let start = Instant::now();
                    while reading.load(SeqCst) < threads && start.elapsed().as_secs() < 5 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    par::each(vec![(); 2 * threads], 1, MUCH, |()| ());
                });
            });
            scope.spawn(|| {
                par::each((0..4 * threads).collect(), 1, MUCH, |i| {
                    while !locked.load(SeqCst) {
                        std::thread::yield_now();
                    }
                    reading.fetch_add(1, SeqCst);
                    if i % 2 == 0 {
                        assert_eq!(p.value().to_vec(), [1.0, 2.0]);
                    } else {
                        p.update(|value| assert_eq!(value.to_vec(), [1.0, 2.0]));
                    }
                });
            });
        });
    });
}
