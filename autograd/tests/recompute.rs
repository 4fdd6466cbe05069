//! Recomputation: the bits of every kind of pass, memory, and errors.

use retrograd_autograd::{Backprop, Var, grad, no_grad, recompute, sharded, with_threads};
use retrograd_support::panics::panic_text;
use retrograd_tensor::observe::{Event, Observer};
use retrograd_tensor::ops::activation::Gelu;
use retrograd_tensor::random::{Key, Rng};
use retrograd_tensor::settings::{with_level, with_observer};
use retrograd_tensor::simd::Level;
use retrograd_tensor::{MatmulPrecision, Real, Tensor, with_matmul_precision};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

const WIDTH: usize = 48;

/// What is computed: with or without recomputation.
#[derive(Clone)]
struct Model<T: Real> {
    /// Each is used in several blocks, the first one also outside of blocks.
    w: [Var<T>; 2],
    again: bool,
    dropout: f64,
    calls: Arc<AtomicUsize>,
}

impl<T: Real> Model<T> {
    fn new(again: bool, dropout: f64) -> Model<T> {
        let w = |seed| Tensor::<T>::randn([WIDTH, WIDTH], &mut Rng::new(seed));
        let w = [1, 2].map(|seed| Var::leaf(w(seed) * T::from_f64(0.2)));
        Model { w, again, dropout, calls: Arc::default() }
    }

    fn part(
        &self,
        x: &[&Var<T>],
        f: impl Fn(&[Var<T>]) -> Vec<Var<T>> + Send + Sync + 'static,
    ) -> Vec<Var<T>> {
        match self.again {
            true => recompute(x, f),
            false => f(&x.iter().map(|&x| x.clone()).collect::<Vec<_>>()),
        }
    }

    /// Two results of two inputs: one input is used once more inside, and is a result as it is.
    fn block(&self, x: &Var<T>, h: &Var<T>, key: u64) -> Vec<Var<T>> {
        let m = self.clone();
        self.part(&[x, h], move |xh| {
            m.calls.fetch_add(1, Relaxed);
            let inner = m.clone();
            let h = m.part(&[&xh[0], &xh[1]], move |xh| {
                let h =
                    xh[0].layer_norm(None, None, 1e-5).linear_activation(&inner.w[0], None, Gelu);
                vec![h.dropout(inner.dropout, Key::new(7, key)).matmul(&inner.w[1]) + &xh[1]]
            });
            let rows = Var::cat(&[&h[0].narrow(0, 1, 3), &h[0].narrow(0, 0, 2)], 0);
            vec![rows.tanh() * &h[0].narrow(0, 0, 5), xh[0].clone(), h[0].clone(), h[0].clone()]
        })
    }

    fn loss(&self, x: &Tensor<T>) -> (Var<T>, Var<T>) {
        let x = Var::constant(x.clone()).matmul(&self.w[0]);
        let first = self.block(&x, &x.square(), 1);
        let h = &first[2] * &first[3] + &first[1];
        let second = self.block(&h, &first[2], 2);
        let y = second[0].matmul(&self.w[0]).add(&first[0]) + second[1].narrow(0, 2, 5);
        (y.square().mean(..), h)
    }
}

fn input<T: Real>(seed: u64) -> Tensor<T> {
    Tensor::randn([8, WIDTH], &mut Rng::new(seed))
}

fn bits<T: Real>(x: &Tensor<T>) -> Vec<u64> {
    x.to_vec().iter().map(|x| x.to_f64().to_bits()).collect()
}

/// The bits of the gradients of every kind of pass. Those of kept variables are among them.
fn passes<T: Real>(model: &Model<T>) -> Vec<Vec<u64>> {
    let (w, x) = (&model.w, input(3));
    let mut all = Vec::new();
    let (loss, h) = model.loss(&x);
    for _ in 0..2 {
        let grads = Backprop::from(&loss).keep(&h).retain_graph().run();
        all.extend([&w[0], &w[1], &h].map(|x| bits(grads.get(x).unwrap())));
    }
    Backprop::from(&loss).run_each(|id, g| {
        let at = w.iter().position(|w| w.id() == Some(id)).unwrap();
        all.push([vec![at as u64], bits(&g)].concat());
    });

    let (loss, h) = model.loss(&x);
    let first = grad(&[(&loss, None)], &[&w[1], &h, &w[0]]);
    let first: Vec<Var<T>> = first.into_iter().flatten().collect();
    let norm = first.iter().map(|g| g.square().sum(..)).reduce(|a, b| a + b).unwrap();
    let second = grad(&[(&norm, None)], &[&w[0], &h]);
    let second: Vec<Var<T>> = second.into_iter().flatten().collect();
    let third = second[0].square().sum(..).add(&loss).backward();
    all.extend(first.iter().chain(&second).map(|g| bits(g.value())));
    all.extend(w.iter().map(|w| bits(third.get(w).unwrap())));

    let (loss, grads) = sharded(&[3, 1, 2, 5], |i| model.loss(&input(i as u64)).0);
    all.push(vec![loss.to_f64().to_bits()]);
    all.extend(w.iter().map(|w| bits(grads.get(w).unwrap())));
    all
}

fn passes_are_equal<T: Real>() {
    for dropout in [0.0, 0.3] {
        let usual = Model::<T>::new(false, dropout);
        let expected = passes(&usual);
        for threads in [1, 2, 5] {
            let model = Model::new(true, dropout);
            let (found, w) = with_threads(threads, || (passes(&model), &model.w));
            assert_eq!(w[0].value(), usual.w[0].value());
            assert!(found == expected, "dropout {dropout}, {threads} threads, {}", T::DTYPE);
            // Each block, in the first run and again: in each of three passes, in a recorded one once, in each shard.
            assert_eq!(model.calls.load(Relaxed), 2 * (4 + 2 + 4 * 2));
        }
    }
}

#[test]
fn all_passes_have_the_bits_of_those_without_recomputation() {
    passes_are_equal::<f32>();
    passes_are_equal::<f64>();
}

/// Bytes of a scope, and their peak.
#[derive(Default)]
struct Live(AtomicIsize, AtomicIsize);

impl Observer for Live {
    fn event(&self, event: &Event<'_>) {
        let more = match *event {
            Event::Allocated { bytes, .. } => bytes as isize,
            Event::Freed { bytes, .. } => -(bytes as isize),
            _ => return,
        };
        self.1.fetch_max(self.0.fetch_add(more, Relaxed) + more, Relaxed);
    }
}

#[test]
fn saved_tensors_are_freed_until_they_are_needed() {
    let x = Var::leaf(Tensor::<f32>::ones([1024]));
    // Ten saved tensors for each part.
    let part = |x: &Var| (0..10).fold(x.clone(), |y, _| y.mul_scalar(0.9).exp());
    let peak = |again: bool| {
        let live = Arc::new(Live::default());
        with_observer(live.clone(), || {
            let step = |y: Var, _| if again { y.recompute(part) } else { part(&y) };
            let y = (0..10).fold(x.clone(), step).sum(..);
            let grads = y.backward();
            assert!(grads.get(&x).is_some());
        });
        live.1.load(Relaxed) / 4096
    };
    let (usual, again) = (peak(false), peak(true));
    assert!((100..105).contains(&usual) && (20..25).contains(&again), "{usual}, {again}");
}

#[test]
fn constants_and_no_grad_call_the_closure_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let x = Var::leaf(Tensor::scalar(2.0f32));
    let y = |x: &Var| {
        let calls = calls.clone();
        x.recompute(move |x| {
            calls.fetch_add(1, Relaxed);
            x.exp()
        })
    };
    assert!(!no_grad(|| y(&x)).is_tracked() && !y(&x.detach()).is_tracked());
    assert_eq!(calls.load(Relaxed), 2);
    // A result that the closure only passes on.
    assert_eq!(x.recompute(Var::clone).id(), x.id());
}

#[test]
fn the_settings_of_the_forward_pass_hold_again() {
    let w = Var::leaf(input::<f32>(1));
    let product = |w: &Var| w.t().matmul(w).square();
    type Forward<'a> = &'a dyn Fn() -> Var;
    let check = |forward: &dyn Fn(Forward) -> Var| {
        let usual = forward(&|| product(&w)).sum(..).backward();
        let again = forward(&|| w.recompute(product)).sum(..).backward();
        assert_eq!(again.get(&w), usual.get(&w));
    };
    check(&|f| with_matmul_precision(MatmulPrecision::Bf16, f));
    check(&|f| with_level(Level::Scalar, f));
}

#[test]
fn long_chains_of_parts_need_no_recursion() {
    let work = || {
        let x = Var::leaf(Tensor::scalar(1.0f64));
        let chain = |n| (0..n).fold(x.clone(), |y: Var<f64>, _| y.recompute(|y| y.neg().neg()));
        assert_eq!(chain(20_000).backward().get(&x).unwrap().item(), 1.0);
        drop(chain(20_000));
        let long = x.recompute(|x| (0..100_000).fold(x.clone(), |y, _| y.neg()));
        assert_eq!(long.backward().get(&x).unwrap().item(), 1.0);
    };
    retrograd_support::with_stack(128 << 10, work);
}

#[test]
fn another_computation_is_an_error() {
    let (x, other) = (Var::leaf(Tensor::<f32>::ones([2])), Var::leaf(Tensor::ones([2])));
    let error = |second: fn(&Var, &Var) -> Var| {
        let (calls, other) = (AtomicUsize::new(0), other.clone());
        let y = x.recompute(move |x| match calls.fetch_add(1, Relaxed) {
            0 => x.mul(&other).exp(),
            _ => second(x, &other),
        });
        panic_text(|| drop(y.sum(..).backward()))
    };
    let hint = "the closure must compute the same again";
    for (second, text) in [
        ((|x, _| x.exp()) as fn(&Var, &Var) -> Var, "1 operations instead of 2"),
        (|x, y| x.mul(y).sin(), "`sin [2]` instead of `exp [2]`"),
        (|x, y| x.mul(&y.unsqueeze(1).detach()).exp(), "`exp [2, 2]` instead of `exp [2]`"),
        (|x, _| x.mul(x).exp(), "`mul [2]` instead of `mul [2]`"),
        (|x, y| x.mul(&y.with_value(Tensor::full([2], 3.0))).exp(), "other results than before"),
    ] {
        let found = error(second);
        assert!(found.contains(text) && found.contains(hint), "{found}");
    }
}

#[test]
fn map_gradient_changes_gradients_and_is_differentiated() {
    let x = Var::leaf(Tensor::from([2.0f64, -0.5]));
    let y = x.map_gradient(|g| g.square()).powf(3.0).sum(..);
    let dx = grad(&[(&y, None)], &[&x])[0].clone().unwrap(); // (3x²)²
    assert_eq!(dx.value().to_vec(), [144.0, 0.5625]);
    let ddx = dx.sum(..).backward(); // 36x³, which passes through f itself
    assert_eq!(ddx.get(&x).unwrap().to_vec(), [82944.0, 20.25]);
    let wrong = x.map_gradient(|g| g.narrow(0, 0, 1)).sum(..);
    assert!(panic_text(|| drop(wrong.backward())).contains("of shape [1] to input 0"));
}
