//! Unary and binary functions: accuracy, special values, broadcasting, and independence of bits
//! from layout, length, position, threads and instruction set.

#![allow(clippy::type_complexity)] // tables of functions

use crate::bounds::{Bounded, exact};
use crate::common::{Rng, SPECIAL, everywhere, fused, layouts, near, same, shapes, ulp};
use proptest::prelude::*;
use retrograd_support::random_tests;
use retrograd_tensor::ops::activation;
use retrograd_tensor::ops::pointwise::{ForEachOp, Pointwise, Saves};
use retrograd_tensor::ops::unary::{self, *};
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{Real, Shape, Tensor};

/// A pointwise operation, and what its kernels may be off by.
pub trait Unary<T: Real>: Sync {
    fn name(&self) -> &'static str;
    fn apply(&self, x: &Tensor<T>) -> Tensor<T>;
    /// VJP from the input and the cotangent.
    fn apply_vjp(&self, x: &Tensor<T>, g: &Tensor<T>) -> Tensor<T>;
    fn value(&self, x: T) -> Bounded;
    /// The VJP of a number and its cotangent.
    fn derivative(&self, x: T, g: T) -> Bounded;
}

impl<T: Real, P: Pointwise<T>> Unary<T> for P {
    fn name(&self) -> &'static str {
        P::NAME
    }
    fn apply(&self, x: &Tensor<T>) -> Tensor<T> {
        x.map(*self)
    }
    fn apply_vjp(&self, x: &Tensor<T>, g: &Tensor<T>) -> Tensor<T> {
        match P::SAVES {
            Saves::Output => x.map(*self).map_vjp(*self, g),
            Saves::Input | Saves::Nothing => x.map_vjp(*self, g),
        }
    }
    fn value(&self, x: T) -> Bounded {
        self.f(exact(x)).value()
    }
    fn derivative(&self, x: T, g: T) -> Bounded {
        let saved = if P::SAVES == Saves::Output { self.f(exact(x)) } else { exact(x) };
        self.vjp(saved, exact(g)).value()
    }
}

struct Unaries<T: Real>(Vec<Box<dyn Unary<T>>>);

impl<T: Real> ForEachOp<T> for Unaries<T> {
    fn op<P: Pointwise<T>>(&mut self) {
        self.0.push(Box::new(P::default()));
    }
}

/// All pointwise operations, and `x³`.
pub fn unaries<T: Real>() -> Vec<Box<dyn Unary<T>>> {
    let mut all = Unaries(Vec::new());
    unary::for_each(&mut all);
    activation::for_each(&mut all);
    all.0.push(Box::new(Powf { p: T::from_f64(3.0) }));
    all.0
}

/// Checks results `y` of the arguments `x`.
#[track_caller]
fn check<T: Real>(what: &str, f: &dyn Unary<T>, x: &[T], y: &[T]) {
    for (&x, &y) in x.iter().zip(y) {
        let Bounded { value, error } = f.value(x);
        // Where a formula subtracts, the error is relative to the argument.
        let (got, x) = (y.to_f64(), x.to_f64());
        let least = 5.0 * ulp::<T>(value) + 2.0 * T::EPSILON.to_f64() * x.abs().min(1e300);
        // f64 uses the standard library, with a few more operations.
        let more = if T::EPSILON.to_f64() < 1e-10 { 4.0 * ulp::<T>(value) } else { 0.0 };
        let bound = error.min(least) + more;
        assert!(
            near(y, value, bound),
            "{what}: {}({x:e}) = {got:e}, not {value:e} to {bound:e}",
            f.name(),
        );
    }
}

fn on_levels(f: impl Fn(Level)) {
    Level::available().into_iter().for_each(|level| with_level(level, || f(level)));
}

#[test]
fn values_are_within_their_bounds() {
    let mut rng = Rng(1);
    let mut x: Vec<f32> = SPECIAL.to_vec();
    for special in SPECIAL {
        x.extend([special.next_up(), special.next_down()]);
    }
    x.extend((0..20_000).map(|_| rng.adversarial() as f32));
    x.extend((-4000..4000).map(|i| i as f32 / 300.0));
    let x = Tensor::from_vec(x.clone(), [x.len()]);
    let wide: Tensor<f64> = x.cast();
    for f in unaries() {
        let (fused, scalar) = everywhere(f.name(), || f.apply(&x));
        check("fused", &*f, x.as_slice(), fused.as_slice());
        check("scalar", &*f, x.as_slice(), scalar.as_slice());
    }
    for f in unaries() {
        check("f64", &*f, wide.as_slice(), f.apply(&wide).as_slice());
    }
}

#[test]
fn derivatives_agree_with_the_exact_ones() {
    let x = Tensor::<f32>::from_fn([4001], |i| (i[0] as f32 - 2000.0) / 200.0 + 0.0017);
    let mut rng = Rng(2);
    let g: Tensor<f32> = rng.normals(&[4001]);
    for f in unaries() {
        let (fused, scalar) = everywhere(f.name(), || f.apply_vjp(&x, &g));
        for (what, got) in [("fused", fused), ("scalar", scalar)] {
            for ((&x, &g), &got) in x.as_slice().iter().zip(g.as_slice()).zip(got.as_slice()) {
                let Bounded { value, error } = f.derivative(x, g);
                // Rounded terms may cancel, so the error is relative to terms of size 1 (and x).
                let size = f64::from(g).abs() * f64::from(x).abs().max(1.0);
                let bound = error.min(2e-6 * (value.abs() + 0.2 * size));
                assert!(
                    near(got, value, bound),
                    "{what}: derivative of {} at {x} is {got:e}, not {value:e} to {bound:e}",
                    f.name()
                );
            }
        }
    }
}

/// Values at signed zeros, subnormal numbers and NaN.
#[test]
fn documented_conventions_hold() {
    let of = |f: &dyn Fn(&Tensor<f32>) -> Tensor<f32>, x: f32| {
        let y: Vec<f32> = Level::available()
            .into_iter()
            .map(|l| with_level(l, || f(&Tensor::from([1.0, x, x])).at(&[1])))
            .collect();
        let bits = |y: &f32| if y.is_nan() { u32::MAX } else { y.to_bits() };
        assert!(y.iter().all(|v| bits(v) == bits(&y[0])), "{x:e}: {y:?}");
        y[0]
    };
    // Signed zeros, subnormals and tiny numbers are preserved.
    let normal = f32::MIN_POSITIVE;
    for x in [0.0f32, 1e-45, 3e-42, 1e-40, normal.next_down(), normal, 1e-20] {
        for x in [x, -x] {
            let odd: [(&str, fn(&Tensor<f32>) -> Tensor<f32>); 8] = [
                ("expm1", |x| x.expm1()),
                ("log1p", |x| x.log1p()),
                ("sin", |x| x.sin()),
                ("tanh", |x| x.tanh()),
                ("double negation", |x| x.neg().neg()),
                ("clamp", |x| x.clamp(-1.0, 1.0)),
                ("leaky_relu", |x| x.leaky_relu(1.0)),
                ("times one", |x| x.mul_scalar(1.0)),
            ];
            for (name, f) in odd {
                assert_eq!(of(&f, x).to_bits(), x.to_bits(), "{name}({x:e})");
            }
            assert_eq!(of(&|x| x.abs(), x).to_bits(), x.abs().to_bits());
            assert_eq!(of(&|x| x.neg(), x).to_bits(), (-x).to_bits());
            assert_eq!(of(&|x| x.relu(), x), x.max(0.0));
            assert_eq!(of(&|x| x.mul_scalar(2.0), x), x * 2.0);
            assert_eq!(of(&|x| x.add_scalar(0.0), x), x);
        }
    }
    assert_eq!(of(&|x| x.sqrt(), -0.0).to_bits(), (-0.0f32).to_bits());
    assert_eq!(of(&|x| x.recip(), -0.0), f32::NEG_INFINITY);
    assert_eq!(of(&|x| x.softplus(), 1e30), 1e30);
    for f in unaries::<f32>() {
        for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)] {
            let keeps_nan = f.name() != "nan_to_num";
            assert_eq!(of(&|x| f.apply(x), nan).is_nan(), keeps_nan, "{} of NaN", f.name());
        }
    }
    assert_eq!(Tensor::from([0.0f32]).powf(0.0).item(), 1.0);
}

/// The results of a short tensor, at any start, have the bits of the same elements in a long
/// tensor.
#[test]
fn bits_do_not_depend_on_length_and_start() {
    let mut rng = Rng(3);
    let x: Tensor<f32> = rng.adversarial_values(&[160]);
    let y: Tensor<f32> = rng.adversarial_values(&[160]);
    for f in unaries() {
        on_levels(|level| {
            let whole = f.apply(&x);
            for len in 0..=130 {
                let start = (len * 7) % 30;
                let part = f.apply(&x.narrow(0, start, len));
                let what = format!("{} of {len} from {start}, {level}", f.name());
                same(&what, &part, &whole.narrow(0, start, len));
            }
        });
    }
    for b in BINARY {
        on_levels(|level| {
            let whole = (b.f32)(&x, &y);
            for len in 0..=130 {
                let start = (len * 11) % 30;
                let cut = |t: &Tensor<f32>| t.narrow(0, start, len);
                let what = format!("{} of {len} from {start}, {level}", b.name);
                same(&what, &(b.f32)(&cut(&x), &cut(&y)), &cut(&whole));
            }
        });
    }
}

struct Binary {
    name: &'static str,
    f32: fn(&Tensor<f32>, &Tensor<f32>) -> Tensor<f32>,
    f64: fn(&Tensor<f64>, &Tensor<f64>) -> Tensor<f64>,
    exact: fn(f64, f64) -> f64,
}

macro_rules! binary {
    ($name:ident, $exact:expr) => {
        Binary {
            name: stringify!($name),
            f32: |a, b| a.$name(b),
            f64: |a, b| a.$name(b),
            exact: $exact,
        }
    };
}

/// The maximum or minimum; NaN if either is NaN.
fn max_or_min(a: f64, b: f64, larger: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { (a * larger).max(b * larger) * larger }
}

const BINARY: [Binary; 9] = [
    binary!(add, |a, b| a + b),
    binary!(sub, |a, b| a - b),
    binary!(mul, |a, b| a * b),
    binary!(div, |a, b| a / b),
    binary!(pow, f64::powf),
    binary!(fmod, |a, b| a % b),
    binary!(remainder, |a, b| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
    }),
    binary!(maximum, |a, b| max_or_min(a, b, 1.0)),
    binary!(minimum, |a, b| max_or_min(a, b, -1.0)),
];

#[test]
fn all_pairs_of_special_values_are_rounded_once() {
    let n = SPECIAL.len();
    let column = Tensor::from_vec(SPECIAL.to_vec(), [n, 1]);
    let row = Tensor::from_vec(SPECIAL.to_vec(), [n]);
    for b in BINARY {
        on_levels(|level| {
            let y = (b.f32)(&column, &row);
            let y64 = (b.f64)(&column.cast(), &row.cast());
            for i in 0..n {
                for j in 0..n {
                    let (p, q) = (f64::from(SPECIAL[i]), f64::from(SPECIAL[j]));
                    let (want, got) = ((b.exact)(p, q), y.at(&[i, j]));
                    let rounded = want as f32;
                    let zeros = got == 0.0 && b.name.ends_with("imum");
                    let same = zeros && rounded == 0.0
                        || got.to_bits() == rounded.to_bits()
                        || got.is_nan() && rounded.is_nan();
                    assert!(same, "{level}: {}({p:e}, {q:e}) = {got:e}, not {rounded:e}", b.name);
                    assert!(near(y64.at(&[i, j]), want, 0.0), "f64 {}({p:e}, {q:e})", b.name);
                }
            }
        });
    }
}

#[test]
fn operators_take_numbers_on_either_side() {
    /// Equal bits of an operator with a number and with a tensor that repeats it.
    macro_rules! check {
        ($t:ty: $($op:tt)+) => {
            for c in SPECIAL.map(|c| c as $t) {
                let x = Tensor::from(SPECIAL.map(|x| x as $t));
                let all = x.full_like(c);
                on_levels(|_| {
                    $(
                        same(concat!("number ", stringify!($op)), &(c $op &x), &(&all $op &x));
                        same(concat!(stringify!($op), " number"), &(&x $op c), &(&x $op &all));
                        same("by value", &(c $op x.clone()), &(x.full_like(c) $op x.clone()));
                    )+
                });
            }
        };
    }
    check!(f32: + - * /);
    check!(f64: + - * /);
    let x = Tensor::from([[1.0f32, 2.0], [4.0, 8.0]]);
    assert_eq!((1.0 - 2.0 / x.t() * 3.0).to_vec(), [-5.0, -0.5, -2.0, 0.25]);
}

#[test]
fn comparisons_of_special_values() {
    type Compare = fn(&Tensor<f32>, &Tensor<f32>) -> Tensor<bool>;
    let all: [(Compare, fn(&f32, &f32) -> bool); 6] = [
        (|a, b| a.eq(b), f32::eq),
        (|a, b| a.ne(b), f32::ne),
        (|a, b| a.lt(b), f32::lt),
        (|a, b| a.le(b), f32::le),
        (|a, b| a.gt(b), f32::gt),
        (|a, b| a.ge(b), f32::ge),
    ];
    let n = SPECIAL.len();
    let column = Tensor::from_vec(SPECIAL.to_vec(), [n, 1]);
    let row = Tensor::from_vec(SPECIAL.to_vec(), [n]);
    for (f, want) in all {
        let y = f(&column, &row);
        for i in 0..n {
            for j in 0..n {
                assert_eq!(y.at(&[i, j]), want(&SPECIAL[i], &SPECIAL[j]));
            }
        }
    }
    for c in SPECIAL {
        assert_eq!(row.lt(c), row.lt(c));
        assert_eq!(row.ne(c), row.ne(Tensor::scalar(c)));
    }
    let kinds = |x: f32| (x.is_nan(), x.is_infinite(), x.is_finite());
    let (nan, inf, finite) = (row.isnan(), row.isinf(), row.isfinite());
    for (i, &x) in SPECIAL.iter().enumerate() {
        assert_eq!((nan.at(&[i]), inf.at(&[i]), finite.at(&[i])), kinds(x), "{x}");
    }
    assert_eq!(Tensor::from([f32::NAN, 300.9, -1e30]).cast::<i64>().to_vec(), [0, 300, i64::MIN]);
    let near = |x: f64| [x.next_down(), x, x.next_up(), -x.next_down(), -x, -x.next_up()];
    let numbers = [0.0, 0.5, 1.0, 1.5, 2.5, 7.0, 1e9, 4294967296.0, 2f64.powi(51), 2f64.powi(63)];
    for size in 1..=numbers.len() {
        let x: Vec<f64> = numbers[..size].iter().flat_map(|&x| near(x)).collect();
        let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
        let wide = Tensor::from_vec(x.clone(), [x.len()]);
        let single = Tensor::from_vec(narrow.clone(), [x.len()]);
        for level in Level::available() {
            let casts = with_level(level, || [wide.cast::<i64>(), single.cast()]);
            assert!(casts[0].to_vec().into_iter().eq(x.iter().map(|&x| x as i64)));
            assert!(casts[1].to_vec().into_iter().eq(narrow.iter().map(|&x| x as i64)));
        }
    }
    assert_eq!(Tensor::from([f32::NAN, -0.0, 1e-45]).cast::<bool>().to_vec(), [true, false, true]);
    assert_eq!(Tensor::from([i64::MAX, -1]).cast::<u32>().to_vec(), [u32::MAX, u32::MAX]);
}

/// Two shapes that broadcast, and what they broadcast to.
fn pairs() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, Vec<usize>)> {
    (shapes(5), any::<u64>()).prop_map(|(dims, seed)| {
        let mut rng = Rng(seed);
        let mut operand = || {
            let missing = if rng.below(3) == 0 { rng.below(dims.len() + 1) } else { 0 };
            let own = dims[missing..].to_vec();
            own.into_iter().map(|d| if rng.below(4) == 0 { 1 } else { d }).collect::<Vec<_>>()
        };
        let (a, b) = (operand(), operand());
        let shape = Shape::broadcast("t", &a.as_slice().into(), &b.as_slice().into()).unwrap();
        (a, b, shape.to_vec())
    })
}

/// The element of an operand at an index of the result.
fn pick<T: Real>(x: &Tensor<T>, index: &[usize]) -> f64 {
    let own = &index[index.len() - x.rank()..];
    let own: Vec<usize> =
        own.iter().zip(x.shape().iter()).map(|(&i, &d)| if d == 1 { 0 } else { i }).collect();
    x.at(&own).to_f64()
}

random_tests! {
    ProptestConfig::with_cases(128);

    #[test]
    fn broadcasting_pairs_the_right_elements((a, b, dims) in pairs(), seed in any::<u64>()) {
        let mut rng = Rng(seed);
        let (x, y): (Tensor<f32>, Tensor<f32>) = (rng.adversarial_values(&a), rng.adversarial_values(&b));
        for op in BINARY {
            let want = (op.f32)(&x, &y);
            prop_assert_eq!(&want.shape()[..], &dims[..]);
            for (index, &got) in crate::common::indices(&dims).iter().zip(want.as_slice()) {
                let exact = (op.exact)(pick(&x, index), pick(&y, index));
                prop_assert!(near(got, exact, 0.5 * ulp::<f32>(exact)), "{} {index:?}", op.name);
            }
            let (xs, ys) = (layouts(&x), layouts(&y));
            for i in 0..xs.len().max(ys.len()) {
                let ((p, x), (q, y)) = (&xs[i % xs.len()], &ys[(i + 1) % ys.len()]);
                same(&format!("{} of {p} and {q}", op.name), &(op.f32)(x, y), &want);
            }
            // Explicitly broadcast operands, and an operand with itself.
            let wide = |t: &Tensor<f32>| t.broadcast_to(dims.as_slice());
            same(op.name, &(op.f32)(&wide(&x), &wide(&y)), &want);
            same(op.name, &(op.f32)(&x, &x), &(op.f32)(&x, &Tensor::from_vec(x.to_vec(), a.as_slice())));
        }
    }

    #[test]
    fn selection_pairs_the_right_elements((a, b, dims) in pairs(), seed in any::<u64>()) {
        let mut rng = Rng(seed);
        let (x, y): (Tensor<f64>, Tensor<f64>) = (rng.adversarial_values(&a), rng.adversarial_values(&b));
        let keep = Tensor::from_fn(dims.as_slice(), |_| rng.below(2) == 0);
        for keep in [keep.clone(), keep.broadcast_to(dims.as_slice()), keep.not().not()] {
            let z = keep.where_(&x, &y);
            for index in crate::common::indices(&dims) {
                let want = if keep.at(&index) { pick(&x, &index) } else { pick(&y, &index) };
                prop_assert!(near(z.at(&index), want, 0.0));
            }
        }
    }
}

#[test]
fn every_layout_has_the_bits_of_the_contiguous_one() {
    let mut rng = Rng(5);
    for dims in [&[300][..], &[9, 65], &[3, 1, 4, 17]] {
        let x: Tensor<f32> = rng.adversarial_values(dims);
        let g: Tensor<f32> = rng.adversarial_values(dims);
        for ((p, a), (q, b)) in layouts(&x).iter().zip(layouts(&g).iter().rev()) {
            for f in unaries() {
                same(&format!("{} of {p}", f.name()), &f.apply(a), &f.apply(&x));
                let what = format!("derivative of {} of {p} and {q}", f.name());
                same(&what, &f.apply_vjp(a, b), &f.apply_vjp(&x, &g));
            }
            for op in BINARY {
                let what = format!("{} of {p} and {q}", op.name);
                same(&what, &(op.f32)(a, b), &(op.f32)(&x, &g));
            }
        }
    }
}

#[test]
fn threads_and_levels_have_equal_bits() {
    let mut rng = Rng(4);
    // A size without small factors, above the parallel threshold of the cheapest operations.
    let x: Tensor<f32> = rng.adversarial_values(&[293, 509]);
    let (row, column): (Tensor<f32>, Tensor<f32>) = (rng.normals(&[509]), rng.normals(&[293, 1]));
    let (g, turned) = (rng.normals::<f32>(&[293, 509]), x.t().contiguous().t());
    for f in unaries() {
        everywhere(f.name(), || f.apply(&turned));
        everywhere(f.name(), || f.apply_vjp(&x, &g));
    }
    for b in BINARY {
        everywhere(b.name, || (b.f32)(&x, &g));
        everywhere(b.name, || (b.f32)(&turned, &row));
        everywhere(b.name, || (b.f32)(&column, &row));
    }
    let (sum, _) = everywhere("add_assign", || {
        let mut y = x.clone();
        y.add_assign(&row);
        y
    });
    same("add_assign", &sum, &x.add(&row));
}

#[test]
fn fused_levels_are_tested() {
    #[cfg(target_arch = "x86_64")]
    let has_vectors = std::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    let has_vectors = cfg!(target_arch = "aarch64");
    assert_eq!(has_vectors, !fused().is_empty());
}

/// Runs that are merged, start within a vector, are copied in blocks, or exceed a block.
#[test]
fn runs_of_all_lengths() {
    runs_of_all_lengths_of::<f32>(); // all numbers here are exact in f32
    runs_of_all_lengths_of::<f64>();
}

fn runs_of_all_lengths_of<T: Real>() {
    for n in [1, 2, 7, 31, 32, 33, 100, 255, 256, 257, 1023, 1024, 1025, 3000] {
        let rows = 1 + 9000 / n;
        let tensor = |shape: [usize; 2], f: &dyn Fn(usize, usize) -> usize| {
            Tensor::<T>::from_fn(shape, |i| T::from_f64(f(i[0], i[1]) as f64))
        };
        let x = tensor([rows, n], &|i, j| i * n + j);
        let row = tensor([1, n], &|_, j| 3 * j);
        let column = tensor([rows, 1], &|i, _| 5 * i);
        let turned = tensor([n, rows], &|j, i| 7 + j * rows + i).t();
        let (last_row, last) = (rows - 1, n - 1);
        let cases: [(&str, Tensor<T>, &dyn Fn(usize, usize) -> usize); 7] = [
            ("row", x.add(&row), &|i, j| i * n + j + 3 * j),
            ("column", x.add(&column), &|i, j| i * n + j + 5 * i),
            ("both", column.add(&row), &|i, j| 5 * i + 3 * j),
            ("upside down", x.flip(0).add(&row), &|i, j| (last_row - i) * n + j + 3 * j),
            ("backwards", x.flip(1).add(&column), &|i, j| i * n + last - j + 5 * i),
            ("turned", x.add(&turned), &|i, j| i * n + j + 7 + j * rows + i),
            ("one operand", x.flip(1).abs(), &|i, j| i * n + last - j),
        ];
        for (name, got, want) in cases {
            assert!(got == tensor([rows, n], want), "{name}, rows of {n}");
        }
    }
}
