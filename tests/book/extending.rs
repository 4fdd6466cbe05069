//! Solutions of the exercises of `book::extending`.

use retrograd::autograd::check::{Check, gradcheck, gradgradcheck};
use retrograd::autograd::{InputGrads, Op};
use retrograd::nn::attention::{At, Mask, Spec, attend};
use retrograd::prelude::*;
use retrograd::tensor::cost::Cost;
use retrograd::tensor::formula::{Algebra, Expr};
use retrograd::tensor::ops::pointwise::{Pointwise, Saves};
use retrograd::tensor::settings::level;
use retrograd::tensor::simd::{Kernel, Lanes};
use retrograd::tensor::{Real, par};

#[derive(Clone, Copy, Debug, Default)]
struct Gaussian;

/// The derivative is -2x · y, and y = exp(-x²) does not say the sign of x: so it saves the input.
impl<T: Real> Pointwise<T> for Gaussian {
    const NAME: &'static str = "gaussian";
    const SAVES: Saves = Saves::Input;
    const COST: Cost = Cost::CHEAP;

    #[inline(always)]
    fn f<A: Algebra<T>>(self, x: Expr<T, A>) -> Expr<T, A> {
        (-(x * x)).exp()
    }

    #[inline(always)]
    fn vjp<A: Algebra<T>>(self, x: Expr<T, A>, g: Expr<T, A>) -> Expr<T, A> {
        let y = (-(x * x)).exp();
        g * y * (-2.0 * x)
    }
}

#[test]
fn gaussian() {
    let x = [Var::leaf(Tensor::from([-1.0f64, 0.0, 1.0]))];
    let y = x[0].map(Gaussian);
    assert_eq!(y.value().to_vec()[0], y.value().to_vec()[2]); // the same output ..
    let grads = y.sum(..).backward().get(&x[0]).unwrap().to_vec();
    assert_eq!(grads[0], -grads[2]); // .. and other derivatives
    assert!(gradcheck(|v| v[0].map(Gaussian), &x, &Check::precise()).is_ok());
    assert!(gradgradcheck(|v| v[0].map(Gaussian), &x, &Check::default()).is_ok());
}

#[test]
fn gradient_reversal() {
    static REVERSE: Op = Op::new("reverse", &["x"]).formula("y = x", "dx = −g");
    let reverse = |x: &Var<f64>| {
        Var::from_op(&REVERSE, x.value().clone(), [x], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of(&x, || -g)
        })
    };
    let x = Var::leaf(Tensor::from([1.0f64, 2.0]));
    let y = reverse(&x).square();
    assert_eq!(y.value().to_vec(), [1.0, 4.0]);
    assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [-2.0, -4.0]);
}

#[test]
fn straight_through() {
    static ROUND: Op = Op::new("straight_through", &["x"]);
    let round = |x: &Var<f64>| {
        Var::from_op(&ROUND, x.value().round(), [x], |[x]| {
            let x = x.slot();
            move |_, g| InputGrads::of(&x, || g.clone())
        })
    };
    let x = Var::leaf(Tensor::from([0.3f64, 1.8]));
    let y = round(&x);
    assert_eq!(y.value().to_vec(), [0.0, 2.0]);
    assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [1.0, 1.0]);
    // The derivative of a step function is 0; the rule says 1 on purpose.
    assert!(gradcheck(|v| round(&v[0]), &[x], &Check::precise()).is_err());
}

#[test]
fn lines_mask() {
    let text = "ab\ncde\nf";
    let line: Vec<usize> = (0..text.len()).map(|i| text[..i].matches('\n').count()).collect();
    let lines = line.clone();
    let mask =
        Mask::from_fn("lines", move |At { query, key, .. }| lines[query as usize] == lines[key]);
    let mut rng = Rng::new(1);
    let mut x = || Var::leaf(Tensor::<f64>::randn([8, 4], &mut rng));
    let (q, k, v) = (x(), x(), x());
    let y = attend(&q, &k, &v, &Spec::new().mask(mask & Mask::causal()));
    for i in 0..8 {
        let y = attend(&q, &k, &v, &Spec::new().mask(Mask::full())).i(i);
        assert!(y.value().to_vec().iter().all(|y| y.is_finite()));
    }
    let g = y.i(5).sum(..).backward();
    let seen: Vec<bool> =
        g.get(&v).unwrap().sum(1).to_vec().into_iter().map(|g: f64| g != 0.0).collect();
    let wanted: Vec<bool> = (0..8).map(|j| j <= 5 && line[j] == line[5]).collect();
    assert_eq!(seen, wanted);
}

struct Distance<'a>(&'a [f32], &'a [f32]);

impl Kernel<f32> for Distance<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) -> f32 {
        let mut sum = s.splat(0.0);
        for (x, y) in self.0.chunks(S::N).zip(self.1.chunks(S::N)) {
            sum = s.add(sum, s.abs(s.sub(s.load_or(x, 0.0), s.load_or(y, 0.0))));
        }
        s.sum(sum)
    }
}

#[test]
fn distance_in_parallel() {
    let mut rng = Rng::new(2);
    let n = 1_000_003;
    let (x, y) = (Tensor::<f32>::randn([n], &mut rng), Tensor::<f32>::randn([n], &mut rng));
    let (x, y) = (x.as_slice(), y.as_slice());
    // Chunks of a fixed size, never of the number of threads; their sums are added in order.
    const CHUNK: usize = 1 << 16;
    let distance = || {
        let chunks = n.div_ceil(CHUNK);
        let parts = par::map(chunks, CHUNK, Cost::CHEAP, |i| {
            let range = i * CHUNK..((i + 1) * CHUNK).min(n);
            f32::dispatch(level(), Distance(&x[range.clone()], &y[range]))
        });
        parts.into_iter().map(f64::from).sum::<f64>()
    };
    let results = [1, 2, 3].map(|threads| with_threads(threads, distance));
    assert!(results.iter().all(|x| *x == results[0]));
    let wanted: f64 = x.iter().zip(y).map(|(x, y)| f64::from((x - y).abs())).sum();
    assert!((results[0] - wanted).abs() < 1e-5 * wanted);
}
