//! Training and evaluation in tasks of one thread pool. With more threads than cores, a waiting
//! thread often runs a task of another one.

use rayon::prelude::*;
use retrograd_autograd::{Gradients, InputGrads, Op, Var};
use retrograd_autograd::{grad_enabled, no_grad, sharded, with_grad_enabled};
use retrograd_support::panics::{catch, message};
use retrograd_tensor::observe::{Event, Observer};
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::{level, with_level, with_observer};
use retrograd_tensor::simd::Level;
use retrograd_tensor::{MatmulPrecision, Tensor, matmul_precision, with_matmul_precision};
use retrograd_tensor::{par, with_threads};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

const WIDTH: usize = 192;
/// A number of rows for which products are partitioned into many tasks.
const MANY: usize = 256;
/// A number of rows for which they are partitioned into few.
const FEW: usize = 64;

/// Two layers, and their inputs.
struct Model {
    w: [Var; 2],
    x: Vec<Tensor>,
}

impl Model {
    fn new(rows: usize, inputs: u64) -> Model {
        let normal = |rows, seed| Tensor::<f32>::randn([rows, WIDTH], &mut Rng::new(seed));
        Model {
            w: [1, 2].map(|seed| Var::leaf(normal(WIDTH, seed) * 0.1)),
            x: (0..inputs).map(|i| normal(rows, 100 + i)).collect(),
        }
    }

    fn loss(&self, input: usize) -> Var {
        let x = Var::constant(self.x[input].clone());
        x.matmul(&self.w[0]).tanh().matmul(&self.w[1]).square().mean(..)
    }

    fn bits(&self, gradients: &Gradients) -> Vec<u32> {
        let all = self.w.iter().flat_map(|w| gradients.get(w).expect("was reached").to_vec());
        all.map(f32::to_bits).collect()
    }

    /// The loss and the gradients of an input.
    fn step(&self, input: usize) -> Vec<u32> {
        let loss = self.loss(input);
        let mut bits = vec![loss.item().to_bits()];
        bits.extend(self.bits(&loss.backward()));
        bits
    }
}

/// The number of `n` concurrent tasks whose result is incorrect, or that panic.
fn wrong(threads: usize, n: usize, right: impl Fn(usize) -> bool + Sync) -> usize {
    let (wrong, right) = (&AtomicUsize::new(0), &right);
    let task = move |i| {
        let is_right = catch_unwind(AssertUnwindSafe(|| right(i)));
        wrong.fetch_add(usize::from(!is_right.unwrap_or(false)), Relaxed);
    };
    with_threads(threads, || {
        rayon::scope(|scope| (0..n).for_each(|i| scope.spawn(move |_| task(i))));
    });
    wrong.load(Relaxed)
}

#[test]
fn settings_of_one_task_do_not_apply_to_others() {
    const TASKS: usize = 60;
    let state = || (grad_enabled(), matmul_precision(), level());
    let (model, usual) = (Model::new(MANY, 2), state());
    let want = [0, 1].map(|i| model.step(i));
    for threads in [3, 8, 16] {
        let wrong = wrong(threads, TASKS, |i| {
            let began = state();
            let right = if i.is_multiple_of(2) {
                let plain = || with_level(Level::Scalar, || no_grad(|| model.loss(0).item()));
                let loss = with_matmul_precision(MatmulPrecision::Bf16, plain);
                let exact = f32::from_bits(want[0][0]);
                (loss - exact).abs() < 1e-2 * exact
            } else {
                model.step(i / 2 % 2) == want[i / 2 % 2]
            };
            right && (began, state()) == (usual, usual)
        });
        assert_eq!(wrong, 0, "of {TASKS} tasks on {threads} threads");
    }
}

#[test]
fn concurrent_steps_give_the_gradients_of_sequential_ones() {
    const TASKS: usize = 60;
    let model = Model::new(MANY, 4);
    let want: Vec<_> = (0..4).map(|i| model.step(i)).collect();
    for threads in [3, 8, 16] {
        let right = |i: usize| model.step(i % 4) == want[i % 4];
        assert_eq!(wrong(threads, TASKS, right), 0, "of {TASKS} tasks on {threads} threads");
        let steps: Vec<Vec<u32>> = with_threads(threads, || {
            (0..TASKS).into_par_iter().with_max_len(1).map(|i| model.step(i % 4)).collect()
        });
        assert!(steps.iter().enumerate().all(|(i, step)| *step == want[i % 4]), "{threads}");
    }
}

#[test]
fn gradients_of_shards_do_not_depend_on_threads() {
    let model = Model::new(FEW, 8);
    let run = || {
        let (loss, gradients) = sharded(&[FEW; 8], |i| model.loss(i));
        (loss.to_bits(), model.bits(&gradients))
    };
    let want = with_threads(1, run);
    for (threads, times) in [(3, 10), (16, 60)] {
        with_threads(threads, || (0..times).for_each(|_| assert!(run() == want, "{threads}")));
    }
}

/// Shards have the gradient mode of the caller, on every thread, enabled or not.
#[test]
fn shards_inherit_the_gradient_mode() {
    for threads in [1, 3, 8] {
        with_threads(threads, || {
            for enabled in [true, false] {
                let modes = with_grad_enabled(!enabled, || {
                    with_grad_enabled(enabled, || par::shards(20, |_| grad_enabled()))
                });
                assert_eq!(modes, [enabled; 20]);
                assert!(!no_grad(|| with_threads(2, grad_enabled)));
            }
            let x = Var::leaf(Tensor::scalar(3.0f64));
            let (loss, gradients) =
                no_grad(|| with_grad_enabled(true, || sharded(&[1, 1, 1], |_| x.square())));
            assert!((loss - 9.0).abs() < 1e-14);
            assert!((gradients.get(&x).unwrap().item() - 6.0).abs() < 1e-14);
        });
    }
}

#[test]
fn shards_are_weighted_by_their_number_of_targets() {
    let x = Tensor::<f64>::randn([10, 3], &mut Rng::new(1));
    let w = Var::leaf(Tensor::from([1.0, -2.0, 0.5]));
    let mean = |first, n| Var::constant(x.narrow(0, first, n)).matmul(&w).exp().mean(..);
    let check = |counts: &[usize]| {
        let first = |i: usize| counts[..i].iter().sum::<usize>();
        let (loss, gradients) = sharded(counts, |i| mean(first(i), counts[i]));
        let whole = mean(0, 10);
        assert!((loss - whole.item()).abs() < 1e-14, "{counts:?}");
        let difference = gradients.get(&w).unwrap() - whole.backward().get(&w).unwrap();
        assert!(difference.abs().max(..).item() < 1e-14, "{counts:?}");
    };
    check(&[10]);
    check(&[5, 5]);
    check(&[1, 7, 2]);
    // The mean over no targets is NaN, and has weight 0.
    check(&[0, 4, 0, 6, 0]);
}

#[test]
fn shards_without_targets_return_their_own_loss() {
    let w = Var::leaf(Tensor::scalar(2.0f64));
    let (loss, gradients) = sharded(&[0, 0, 0], |_| w.mul_scalar(0.0));
    assert_eq!((loss, gradients.get(&w).unwrap().item()), (0.0, 0.0));
    let (loss, _) = sharded(&[0, 0], |_| w.mul_scalar(f64::NAN));
    assert!(loss.is_nan());
}

/// Panics at an event and all later ones.
struct Panics(AtomicUsize);

impl Observer for Panics {
    fn event(&self, _: &Event<'_>) {
        let left = self.0.fetch_update(Relaxed, Relaxed, |n| Some(n.saturating_sub(1)));
        assert!(left != Ok(0), "observer");
    }
}

/// A panic of a loss, the rule of an operation, or an observer reaches the caller, and later steps have the same bits.
#[test]
fn steps_after_a_panic_have_the_same_bits() {
    let model = Model::new(FEW, 4);
    let step = |loss: &(dyn Fn(usize) -> Var + Sync)| {
        let (loss, gradients) = sharded(&[FEW; 4], loss);
        (loss.to_bits(), model.bits(&gradients))
    };
    let whole = || step(&|i| model.loss(i));
    let want = whole();
    let in_loss = |i| {
        assert!(i != 2, "loss");
        model.loss(i)
    };
    let in_rule = |i: usize| {
        let x = model.loss(i);
        Var::from_op(const { &Op::new("fails", &["x"]) }, x.value().clone(), [&x], |[x]| {
            let x = x.slot();
            move |_, g| {
                assert!(i != 2, "rule");
                InputGrads::of(&x, || g.clone())
            }
        })
    };
    for threads in [1, 3, 8] {
        with_threads(threads, || {
            let text = |f: &dyn Fn()| message(catch(f).expect_err("a panic"));
            for _ in 0..10 {
                assert_eq!(text(&|| drop(step(&in_loss))), "loss");
                assert_eq!(text(&|| drop(step(&in_rule))), "rule");
                assert!(whole() == want, "{threads} threads");
            }
            let observed = |n: usize| {
                let observer = Arc::new(Panics(n.into()));
                catch(|| with_observer(observer, whole)).map_err(message)
            };
            for n in (0..).step_by(7) {
                match observed(n) {
                    Ok(seen) => {
                        assert!(seen == want && n > 100, "{threads} threads, {n} events");
                        break;
                    }
                    Err(text) => assert_eq!(text, "observer", "event {n}"),
                }
                assert!(whole() == want, "{threads} threads, event {n}");
            }
        });
    }
}

/// As in an executor of asynchronous tasks: parts of a step run on threads that come and go.
#[test]
#[cfg_attr(target_family = "wasm", ignore = "there are no threads")]
fn a_step_may_move_between_threads() {
    let model = Model::new(MANY, 4);
    let want: Vec<_> = (0..4).map(|i| model.step(i)).collect();
    let pause = || {
        let mut polled = false;
        std::future::poll_fn(move |_| match std::mem::replace(&mut polled, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
    };
    let task = |i: usize| {
        let model = &model;
        Box::pin(async move {
            let loss = model.loss(i);
            pause().await;
            let mut bits = vec![loss.item().to_bits()];
            let gradients = loss.backward();
            pause().await;
            bits.extend(model.bits(&gradients));
            bits
        })
    };
    let mut tasks: Vec<_> = (0..4).map(task).collect();
    for _ in 0..2 {
        std::thread::scope(|s| {
            for task in &mut tasks {
                let mut poll = || task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                s.spawn(move || assert!(poll().is_pending()));
            }
        });
    }
    for (task, want) in tasks.iter_mut().zip(want) {
        let ended = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(ended == Poll::Ready(want));
    }
}
