//! Every method of `Lanes`, on every level that this CPU supports, against scalar code.

use retrograd_support::panics::catch;
use retrograd_tensor::Real;
use retrograd_tensor::simd::{F32_LANES, Kernel, Lanes, Level};

/// Zeros, ones, halves, subnormals, large numbers, infinities, NaN, of both signs.
fn specials<T: Real>() -> Vec<T> {
    let subnormal = if T::EPSILON.to_f64() > 1e-10 { 1e-41 } else { 1e-310 };
    let some = [0.0, subnormal, 1e-30, 0.3, 0.5, 1.0, 1.5, 2.5, 3.7, 8388607.5, 16777215.0, 3e37];
    let mut out: Vec<T> =
        some.into_iter().flat_map(|x| [T::from_f64(x), T::from_f64(-x)]).collect();
    out.extend([T::MAX, -T::MAX, T::INFINITY, T::NEG_INFINITY, T::NAN, -T::NAN]);
    out
}

/// Asserts equal bits, or NaN in both.
#[track_caller]
fn same<T: Real>(what: &str, args: &[T], got: T, want: T) {
    let (g, w) = (got.to_f64(), want.to_f64());
    assert!(
        g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(),
        "{what}{args:?} = {got:?}, not {want:?}"
    );
}

fn lanes<T: Real, S: Lanes<T>>(s: S, v: S::V) -> Vec<T> {
    let mut out = vec![T::ZERO; S::N];
    s.store(v, &mut out);
    out
}

fn truths<T: Real, S: Lanes<T>>(s: S, m: S::M) -> Vec<bool> {
    let v = s.select(m, s.splat(T::ONE), s.splat(T::ZERO));
    lanes(s, v).into_iter().map(|x| x == T::ONE).collect()
}

/// The expected result of `fma`, which is fused on some levels.
struct Check<T>(fn(T, T, T) -> T);

impl<T: Real> Kernel<T> for Check<T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        unary::<T, S>(s);
        binary::<T, S>(s);
        ternary::<T, S>(s, self.0);
        exponents::<T, S>(s);
        masks::<T, S>(s);
        reductions::<T, S>(s);
        memory::<T, S>(s);
    }
}

/// All windows of `n` elements of `all`, so that each element occurs in each lane.
fn windows<T: Real>(all: &[T], n: usize) -> impl Iterator<Item = Vec<T>> + '_ {
    (0..all.len()).map(move |i| (0..n).map(|j| all[(i + j) % all.len()]).collect())
}

fn unary<T: Real, S: Lanes<T>>(s: S) {
    let by_f64 = |x: T, f: fn(f64) -> f64| T::from_f64(f(x.to_f64()));
    for x in windows(&specials::<T>(), S::N) {
        let v = s.load(&x);
        let check = |what: &str, got: S::V, want: &dyn Fn(T) -> T| {
            for (&x, got) in x.iter().zip(lanes(s, got)) {
                same(what, &[x], got, want(x));
            }
        };
        check("load", v, &|x| x);
        check("neg", s.neg(v), &|x| by_f64(x, |x| -x));
        check("abs", s.abs(v), &|x| by_f64(x, f64::abs));
        check("sqrt", s.sqrt(v), &|x| by_f64(x, f64::sqrt));
        check("round", s.round(v), &|x| by_f64(x, f64::round_ties_even));
        check("map", s.map(v, |x| x + T::ONE), &|x| x + T::ONE);
        check("splat", s.splat(x[0]), &|_| x[0]);
        for (&x, got) in x.iter().zip(truths(s, s.is_nan(v))) {
            assert_eq!(got, x.is_nan(), "is_nan({x:?})");
        }
        for (&x, (neg, abs)) in x.iter().zip(lanes(s, s.neg(v)).iter().zip(lanes(s, s.abs(v)))) {
            let negative = |x: T| x.to_f64().is_sign_negative();
            assert!(negative(*neg) != negative(x) && !negative(abs), "sign bit of {x:?}");
        }
    }
}

fn smaller<T: Real>(a: T, b: T) -> T {
    if a < b || a.is_nan() { a } else { b }
}

fn larger<T: Real>(a: T, b: T) -> T {
    if a > b || a.is_nan() { a } else { b }
}

fn binary<T: Real, S: Lanes<T>>(s: S) {
    let all = specials::<T>();
    for &b in &all {
        for a in windows(&all, S::N).step_by(S::N) {
            let (va, vb) = (s.load(&a), s.splat(b));
            let check = |what: &str, got: S::V, want: &dyn Fn(T, T) -> T| {
                for (&a, got) in a.iter().zip(lanes(s, got)) {
                    same(what, &[a, b], got, want(a, b));
                }
            };
            check("add", s.add(va, vb), &|a, b| a + b);
            check("sub", s.sub(va, vb), &|a, b| a - b);
            check("mul", s.mul(va, vb), &|a, b| a * b);
            check("div", s.div(va, vb), &|a, b| a / b);
            check("min", s.min(va, vb), &smaller);
            check("max", s.max(va, vb), &larger);
            check("min, swapped", s.min(vb, va), &|a, b| smaller(b, a));
            check("max, swapped", s.max(vb, va), &|a, b| larger(b, a));
            check("map2", s.map2(va, vb, |a, b| a - b), &|a, b| a - b);
            let sign = |a: T, b: T| T::from_f64(a.to_f64().copysign(b.to_f64()));
            check("copysign", s.copysign(va, vb), &sign);
            let compare = |what: &str, got: S::M, want: fn(&T, &T) -> bool| {
                for (a, got) in a.iter().zip(truths(s, got)) {
                    assert_eq!(got, want(a, &b), "{what}({a:?}, {b:?})");
                }
            };
            compare("lt", s.lt(va, vb), |a, b| a < b);
            compare("le", s.le(va, vb), |a, b| a <= b);
            compare("eq", s.eq(va, vb), |a, b| a == b);
        }
    }
}

fn ternary<T: Real, S: Lanes<T>>(s: S, fma: fn(T, T, T) -> T) {
    let all = specials::<T>();
    for &c in &all {
        for &b in &all {
            for a in windows(&all, S::N).step_by(S::N) {
                let got = s.fma(s.load(&a), s.splat(b), s.splat(c));
                for (&a, got) in a.iter().zip(lanes(s, got)) {
                    same("fma", &[a, b, c], got, fma(a, b, c));
                }
            }
        }
    }
    // (1 + e)^2 - 1 - 2e is e^2 if fused, 0 otherwise.
    let (one, e) = (T::ONE, T::EPSILON);
    let c = -(one + e + e);
    let got = lanes(s, s.fma(s.splat(one + e), s.splat(one + e), s.splat(c)))[0];
    same("fma", &[one + e, one + e, c], got, fma(one + e, one + e, c));
    // The residual of a product is exact on every level.
    for (a, rounded, lost) in [(one + e, one + e + e, e * e), (one - e, one, -(e * e))] {
        let (a, b) = (s.splat(a), s.splat(one + e));
        same("mul", &[], lanes(s, s.mul(a, b))[0], rounded);
        same("lost", &[], lanes(s, s.product_residual(a, b, s.splat(rounded)))[0], lost);
    }

    for x in windows(&all, S::N) {
        for (lo, hi) in [(-1.0, 1.0), (0.0, 1e9), (-20.0, -0.0)] {
            let (lo, hi) = (T::from_f64(lo), T::from_f64(hi));
            let got = s.clamp(s.load(&x), s.splat(lo), s.splat(hi));
            for (&x, got) in x.iter().zip(lanes(s, got)) {
                let want = if hi < x { hi } else { x };
                same("clamp", &[x, lo, hi], got, if want < lo { lo } else { want });
            }
        }
    }
}

fn exponents<T: Real, S: Lanes<T>>(s: S) {
    let f32_like = T::EPSILON.to_f64() > 1e-10;
    let range = if f32_like { -126..=127 } else { -1022..=1023 };
    for n in range.clone() {
        let (n, want) = (T::from_f64(n.into()), T::from_f64(2f64.powi(n)));
        same("exp2i", &[n], lanes(s, s.exp2i(s.splat(n)))[0], want);
        for m in [0.5, 0.75, 0.999] {
            let a = want * T::from_f64(m);
            if a.to_f64() < 2f64.powi(*range.start()) {
                continue;
            }
            let (m, e) = s.frexp(s.splat(a));
            let (m, e) = (lanes(s, m)[0].to_f64(), lanes(s, e)[0].to_f64());
            assert!((0.5..1.0).contains(&m), "frexp({a:?}).0 = {m}");
            assert_eq!(m * 2.0 * 2f64.powi(e as i32 - 1), a.to_f64(), "frexp({a:?})");
        }
    }
    for n in -249..=249 {
        for a in [1.0, -0.707_123_4, 1.414_567_8, 1.999_999_9] {
            let (a, n) = (T::from_f64(a), T::from_f64(n.into()));
            // Exact in f64, then rounded once.
            let want = T::from_f64(a.to_f64() * 2f64.powf(n.to_f64()));
            same("ldexp", &[a, n], lanes(s, s.ldexp(s.splat(a), s.splat(n)))[0], want);
        }
    }
    let nan = lanes(s, s.ldexp(s.splat(T::NAN), s.splat(T::NAN)))[0];
    assert!(nan.is_nan(), "ldexp of NaN");
}

fn masks<T: Real, S: Lanes<T>>(s: S) {
    let pattern = |seed: u32, len: usize| -> Vec<bool> {
        (0..len).map(|i| seed.wrapping_mul(2_654_435_761) >> (i % 29) & 1 == 1).collect()
    };
    for seed in 0..40 {
        let (a, b) = (pattern(seed, S::N), pattern(seed + 100, S::N));
        let (ma, mb) = (s.load_mask(&a), s.load_mask(&b));
        assert_eq!(truths(s, ma), a, "load_mask");
        let zip = |f: fn(bool, bool) -> bool| -> Vec<bool> {
            a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect()
        };
        assert_eq!(truths(s, s.and(ma, mb)), zip(|a, b| a && b), "and");
        assert_eq!(truths(s, s.or(ma, mb)), zip(|a, b| a || b), "or");
        assert_eq!(truths(s, s.not(ma)), zip(|a, _| !a), "not");
        assert_eq!(s.any(ma), a.contains(&true), "any");
        for len in 0..=S::N {
            let mut want = a[..len].to_vec();
            want.resize(S::N, false);
            assert_eq!(truths(s, s.load_mask(&a[..len])), want, "load_mask of {len}");
        }
    }
    assert!(!s.any(s.load_mask(&[])));
    for i in 0..S::N {
        let mut single = vec![false; S::N];
        single[i] = true;
        assert!(s.any(s.load_mask(&single)), "any, lane {i}");
        assert!(!s.any(s.not(s.or(s.load_mask(&single), s.not(s.load_mask(&single))))));
    }
}

fn tree<T: Real>(x: &[T], f: fn(T, T) -> T) -> T {
    if x.len() == 1 {
        return x[0];
    }
    let (lo, hi) = x.split_at(x.len() / 2);
    let folded: Vec<T> = lo.iter().zip(hi).map(|(&a, &b)| f(a, b)).collect();
    tree(&folded, f)
}

fn reductions<T: Real, S: Lanes<T>>(s: S) {
    let uneven: Vec<T> =
        (0..40).map(|i| T::from_f64(1.0 + (i as f64 * 0.77).sin() / 3.0)).collect();
    for x in windows(&uneven, S::N).chain(windows(&specials::<T>(), S::N)) {
        let v = s.load(&x);
        same("sum", &x, s.sum(v), tree(&x, |a, b| a + b));
        same("product", &x, s.product(v), tree(&x, |a, b| a * b));
        same("min_lane", &x, s.min_lane(v), tree(&x, smaller));
        same("max_lane", &x, s.max_lane(v), tree(&x, larger));
    }
}

fn memory<T: Real, S: Lanes<T>>(s: S) {
    let (n, fill, canary) = (S::N, T::from_f64(-7.0), T::from_f64(99.0));
    let x: Vec<T> = (0..n + 5).map(|i| T::from_f64(i as f64)).collect();
    for offset in 0..3 {
        for len in 0..=n {
            let part = &x[offset..offset + len];
            let mut want = part.to_vec();
            want.resize(n, fill);
            assert_eq!(lanes(s, s.load_or(part, fill)), want, "load_or of {len}");

            let mut out = vec![canary; n + 5];
            s.store_part(s.load(&x), &mut out[offset..offset + len]);
            let mut want = vec![canary; n + 5];
            want[offset..offset + len].copy_from_slice(&x[..len]);
            assert_eq!(out, want, "store_part of {len}");
        }
    }
    let mut out = vec![canary; n + 2];
    s.store(s.load(&x), &mut out);
    assert_eq!(&out[..n], &x[..n]);
    assert_eq!(&out[n..], [canary; 2], "store writes N elements");

    let panics = |f: &mut dyn FnMut()| catch(f).is_err();
    let (mut short, mut long) = (vec![fill; n - 1], vec![fill; n + 1]);
    assert!(panics(&mut || drop(lanes(s, s.load(&short)))), "load of a short slice");
    assert!(panics(&mut || s.store(s.splat(fill), &mut short)), "store to a short slice");
    assert!(panics(&mut || drop(lanes(s, s.load_or(&long, fill)))), "load_or of a long slice");
    assert!(panics(&mut || s.store_part(s.splat(fill), &mut long)), "store_part to a long slice");
    assert!(panics(&mut || drop(truths(s, s.load_mask(&vec![true; n + 1])))), "a long mask");
}

#[test]
fn lanes_equal_scalar_code_on_every_level() {
    for level in Level::available() {
        let fused = f64::dispatch(level, Width) > 1;
        f64::dispatch(level, Check(if fused { f64::mul_add } else { |a, b, c| a * b + c }));
        let fused = level.is_fused();
        f32::dispatch(level, Check(if fused { f32::mul_add } else { |a, b, c| a * b + c }));
    }
}

/// The number of lanes of a level.
struct Width;
impl<T: Real> Kernel<T> for Width {
    type Out = usize;
    #[inline(always)]
    fn run<S: Lanes<T>>(self, _: S) -> usize {
        S::N
    }
}

#[test]
fn f32_has_sixteen_lanes_everywhere_and_f64_eight_with_avx() {
    for level in Level::available() {
        assert_eq!(f32::dispatch(level, Width), F32_LANES);
        let avx = [Level::Avx2, Level::Avx512].contains(&level);
        assert_eq!(f64::dispatch(level, Width), if avx { 8 } else { 1 });
    }
}

#[test]
#[should_panic(expected = "is not supported by this CPU")]
fn unsupported_levels_are_rejected() {
    let absent = if cfg!(target_arch = "x86_64") { Level::Neon } else { Level::Avx2 };
    f32::dispatch(absent, Width);
}

/// Partial loads and stores at the ends of mapped memory.
#[cfg(unix)]
mod guard {
    use super::*;
    use crate::common::guard::Guarded;

    /// Copies `from` to `to`, and the mask, at most `N` elements each.
    struct Copy<'a>(&'a [f32], &'a mut [f32], &'a [bool]);
    impl Kernel<f32> for Copy<'_> {
        type Out = usize;
        #[inline(always)]
        fn run<S: Lanes<f32>>(self, s: S) -> usize {
            s.store_part(s.load_or(self.0, 0.0), self.1);
            truths::<f32, S>(s, s.load_mask(self.2)).into_iter().filter(|&m| m).count()
        }
    }

    #[test]
    fn tails_stay_inside_their_slice() {
        for level in Level::available() {
            for len in 0..=F32_LANES {
                for at_end in [true, false] {
                    let (mut a, mut b, mut c) = (Guarded::new(1), Guarded::new(1), Guarded::new(1));
                    let from = a.slice::<f32>(len, at_end);
                    from.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
                    let (to, mask) = (b.slice::<f32>(len, at_end), c.slice::<bool>(len, at_end));
                    mask.fill(true);
                    assert_eq!(f32::dispatch(level, Copy(from, to, mask)), len);
                    assert_eq!(from, to, "{level}, {len} elements");
                }
            }
        }
    }
}
