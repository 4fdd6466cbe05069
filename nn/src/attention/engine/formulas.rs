//! Formulas of scores that variants share.

use super::bias::Buckets;
use super::rule::{Rule, ScoreOperand};
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, assert};
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::attention::{PairPositions, ScoreRule};

/// Defines rules: for each a struct and its formula of the score, of `i` and `j`, the positions of query and key,
/// and of its operands.
macro_rules! formulas {
    ($($(#[$doc:meta])* $Rule:ident, $name:literal: |$s:ident, [$($x:ident),+], $i:ident, $j:ident| $y:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        struct $Rule;

        impl<T: Real> ScoreRule<T, { [$(stringify!($x)),+].len() }> for $Rule {
            const NAME: &'static str = $name;
            #[inline(always)]
            #[allow(unused_variables)] // A formula may not need the positions.
            fn score<A: Algebra<T>>(
                self,
                $s: Expr<T, A>,
                [$($x),+]: [Expr<T, A>; { [$(stringify!($x)),+].len() }],
                PairPositions { query: $i, key: $j }: PairPositions<Expr<T, A>>,
            ) -> Expr<T, A> {
                $y
            }
        }
    )+};
}

formulas! {
    Added, "bias": |s, [a], i, j| s + a;
    Slope, "slope of distance": |s, [a], i, j| s - a * (i - j).abs();
    Scaled, "temperature": |s, [a], i, j| s * a;
    Forgotten, "forget gates": |s, [a, b], i, j| s + (a - b);
    Window, "Gaussian window": |s, [a, b], i, j| {
        let z = (j - a) / b;
        s - 0.5 * z * z
    };
}

/// # Rules of the variants
impl<T: Real> Rule<T> {
    /// Adds a value for each head and bucket of distances, from a table `[H, buckets]`. Raffel et al. 2019 (arXiv
    /// 1910.10683).
    ///
    /// # Panics
    /// If the buckets are too few, or the table has another number of them.
    ///
    /// ```
    /// use retrograd::nn::attention::{Buckets, Rule, Spec, attend};
    /// use retrograd::prelude::*;
    /// let x = Var::constant(Tensor::<f64>::zeros([1, 3, 2]));
    /// let v = Var::constant(Tensor::from([[[1.0], [2.0], [4.0]]]));
    /// let buckets = Buckets { count: 2, max_distance: 4, bidirectional: false };
    /// // A far key has twice the weight of one at distance 0.
    /// let table = Var::constant(Tensor::from([[0.0, 2.0f64.ln()]]));
    /// let spec = Spec::new().causal().rule(Rule::buckets(table, buckets));
    /// let y = attend(&x, &x, &v, &spec);
    /// assert!((y.value().at(&[0, 1, 0]) - 4.0 / 3.0).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn buckets(table: Var<T>, buckets: Buckets) -> Rule<T> {
        buckets.check("rule").or_panic();
        assert(table.size(-1) == buckets.count, "rule", ErrorKind::Mismatch, || {
            format!(
                "a table of {} buckets must be [H, {0}], got {:?}",
                buckets.count,
                table.shape()
            )
        });
        Rule::new(Added, [ScoreOperand::distance(table, move |away| buckets.of(away))])
    }

    /// Subtracts `slope_h · |i - j|`, with learned slopes `[H]`: ALiBi (arXiv 2108.12409) with slopes as parameters.
    ///
    /// ```
    /// use retrograd::nn::attention::{Bias, Rule, Spec, alibi_slopes, attend};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let x = Var::constant(Tensor::<f64>::randn([2, 4, 3], &mut rng));
    /// let slopes = Var::leaf(Tensor::from_vec(alibi_slopes(2), [2]));
    /// let learned = attend(&x, &x, &x, &Spec::new().rule(Rule::slopes(slopes)));
    /// let fixed = attend(&x, &x, &x, &Spec::new().bias(Bias::alibi(2)));
    /// assert!((learned - fixed).value().abs().max(..).item() < 1e-12);
    /// ```
    pub fn slopes(slopes: Var<T>) -> Rule<T> {
        Rule::new(Slope, [ScoreOperand::head(slopes)])
    }

    /// Multiplies by a factor of each head, `[H]`.
    ///
    /// ```
    /// use retrograd::nn::attention::{Rule, Spec, attend};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 3], &mut rng));
    /// let twice = Rule::temperature(Var::leaf(Tensor::from([2.0])));
    /// let y = attend(&x, &x, &x, &Spec::new().scale(1.0).rule(twice));
    /// let expected = attend(&x, &x, &x, &Spec::new().scale(2.0));
    /// assert!((y - expected).value().abs().max(..).item() < 1e-12);
    /// ```
    pub fn temperature(factors: Var<T>) -> Rule<T> {
        Rule::new(Scaled, [ScoreOperand::head(factors)])
    }

    /// Adds `Σ ln f_t` over the tokens `t` after the key up to the query, for forget gates `f` whose logarithms are
    /// `[B, H, L]`, one for each of as many queries as keys. Under a causal mask: keys after the query would gain what
    /// earlier ones lose. Lin et al. 2025 (arXiv 2503.02130).
    ///
    /// ```
    /// use retrograd::nn::attention::{Rule, Spec, attend};
    /// use retrograd::prelude::*;
    /// let x = Var::constant(Tensor::<f64>::zeros([1, 1, 2, 2]));
    /// let v = Var::constant(Tensor::from([[[[1.0], [3.0]]]]));
    /// let gates = Var::leaf(Tensor::from([[[1.0, 0.5f64]]]).ln());
    /// let spec = Spec::new().causal().rule(Rule::forget(&gates));
    /// let y = attend(&x, &x, &v, &spec);
    /// // The first token has half the weight of the second.
    /// assert!((y.value().at(&[0, 0, 1, 0]) - 7.0 / 3.0).abs() < 1e-12);
    /// ```
    pub fn forget(log_gates: &Var<T>) -> Rule<T> {
        let sums = log_gates.cumsum(-1);
        Rule::forget_between(sums.clone(), sums)
    }

    /// [`Rule::forget`] for queries `[B, H, Lq]` and keys `[B, H, Lk]` whose sums of logarithms, from the first token
    /// on, are given: of the last tokens and of all, where there is a cache.
    pub fn forget_between(queries: Var<T>, keys: Var<T>) -> Rule<T> {
        Rule::new(Forgotten, [ScoreOperand::query(queries), ScoreOperand::key(keys)])
    }

    /// Subtracts `(j - c)² / 2σ²`, with a centre `c` and a deviation `σ` for each query, in tokens; shapes broadcast
    /// to `[B, H, Lq]`. Yang et al. 2018 (arXiv 1810.10182).
    ///
    /// ```
    /// use retrograd::nn::attention::{Rule, Spec, attend_all};
    /// use retrograd::prelude::*;
    /// let x = Var::constant(Tensor::<f64>::zeros([1, 5, 2]));
    /// let of_queries = |c: f64| Var::leaf(Tensor::from([c; 5]));
    /// let window = Rule::gaussian(of_queries(2.0), of_queries(0.5));
    /// let weights = attend_all(&x, &x, &x, &Spec::new().rule(window)).weights;
    /// let (near, far) = (weights.value().at(&[0, 0, 2]), weights.value().at(&[0, 0, 3]));
    /// assert!((far / near - (-2.0f64).exp()).abs() < 1e-12);
    /// ```
    pub fn gaussian(centre: Var<T>, deviation: Var<T>) -> Rule<T> {
        Rule::new(Window, [ScoreOperand::query(centre), ScoreOperand::query(deviation)])
    }
}
