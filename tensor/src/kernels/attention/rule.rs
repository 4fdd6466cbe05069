//! Score rules: scores as functions of products, positions and operands, with their derivatives.
//!
//! A [`ScoreRule`] is a formula for one score. Its operands have one value per head, query, key, or distance
//! between them ([`Per`]). In the forward pass a rule replaces the scores of a tile; in the backward pass it also
//! gives the partial derivatives, by which gradients of scores become gradients of products and of operands. Each
//! task sums the gradients of its own heads, tile by tile, so their bits do not depend on threads. FlexAttention
//! describes the forward pass of such rules: Dong et al. 2024 (arXiv 2412.05496).

use super::TILE;
use super::tile::{Tile, TileBuffer};
use crate::formula::{Algebra, Dual, Expr};
use crate::kernels::Real;
use crate::matrix::{MatMut, MatRef};
use crate::settings;
use crate::simd::{Kernel, Lanes};
use crate::tensor::Tensor;
use std::fmt::Debug;

/// The positions of a query and a key, counted in tokens.
#[derive(Clone, Copy, Debug)]
pub struct PairPositions<X> {
    /// The position of the query, in the positions of the keys.
    pub query: X,
    /// The position of the key.
    pub key: X,
}

/// A score with its derivatives.
#[derive(Clone, Copy, Debug)]
pub struct Derivatives<X, const N: usize> {
    /// The score.
    pub score: X,
    /// With respect to the score before the rule.
    pub by_score: X,
    /// With respect to the operands.
    pub by_operands: [X; N],
}

/// A formula for a score, from the score before it, its `N` operands and the positions.
///
/// ```
/// use retrograd::tensor::Real;
/// use retrograd::tensor::formula::{Algebra, Expr};
/// use retrograd::tensor::kernels::attention::{PairPositions, ScoreRule};
///
/// /// `s - slope · |query - key|`
/// #[derive(Clone, Copy, Debug)]
/// struct Slope;
///
/// impl<T: Real> ScoreRule<T, 1> for Slope {
///     const NAME: &'static str = "slope";
///     fn score<A: Algebra<T>>(
///         self,
///         s: Expr<T, A>,
///         [slope]: [Expr<T, A>; 1],
///         at: PairPositions<Expr<T, A>>,
///     ) -> Expr<T, A> {
///         s - slope * (at.query - at.key).abs()
///     }
/// }
/// assert_eq!(<Slope as ScoreRule<f32, 1>>::NAME, "slope");
/// ```
pub trait ScoreRule<T: Real, const N: usize>: Copy + Debug + Send + Sync + 'static {
    /// The name in descriptions.
    const NAME: &'static str;

    /// The score. Mark it `#[inline(always)]`.
    fn score<A: Algebra<T>>(
        self,
        s: Expr<T, A>,
        operands: [Expr<T, A>; N],
        at: PairPositions<Expr<T, A>>,
    ) -> Expr<T, A>;

    /// The score, and its derivatives with respect to `s` and to the operands: by [`Dual`] numbers, unless a rule
    /// has formulas for them.
    #[inline(always)]
    fn derivatives<A: Algebra<T>>(
        self,
        s: Expr<T, A>,
        operands: [Expr<T, A>; N],
        at: PairPositions<Expr<T, A>>,
    ) -> Derivatives<Expr<T, A>, N> {
        let at = PairPositions { query: at.query.dual(0.0), key: at.key.dual(0.0) };
        let mut fixed = [s.dual(0.0); N];
        for n in 0..N {
            fixed[n] = operands[n].dual(0.0);
        }
        let (score, by_score) = self.score(s.dual(1.0), fixed, at).parts();
        let mut by_operands = [by_score; N];
        for n in 0..N {
            let mut moved = fixed;
            moved[n] = operands[n].dual(1.0);
            by_operands[n] = self.score(s.dual(0.0), moved, at).parts().1;
        }
        Derivatives { score, by_score, by_operands }
    }
}

impl<T: Real, A: Algebra<T>> Expr<T, A> {
    /// The number with this derivative.
    #[inline(always)]
    fn dual(self, derivative: f64) -> Expr<T, Dual<A>> {
        let a = self.algebra();
        Expr::new(Dual(a), (self.value(), a.splat(T::from_f64(derivative))))
    }
}

impl<T: Real, A: Algebra<T>> Expr<T, Dual<A>> {
    /// The value and the derivative.
    #[inline(always)]
    fn parts(self) -> (Expr<T, A>, Expr<T, A>) {
        let (a, (value, derivative)) = (self.algebra().0, self.value());
        (Expr::new(a, value), Expr::new(a, derivative))
    }
}

/// What an operand of a score rule has one value for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Each head: 1 value.
    Head,
    /// Each query: `Lq` values.
    Query,
    /// Each key: `Lk` values.
    Key,
    /// Each distance from a query `i` to a key `j`: `Lq + Lk - 1` values, or none without a pair, that of `j - i` at index
    /// `j - i + Lq - 1`.
    Distance,
}

impl Per {
    /// The number of values for `lq` queries and `lk` keys.
    pub fn len(self, lq: usize, lk: usize) -> usize {
        match self {
            Per::Head => 1,
            Per::Query => lq,
            Per::Key => lk,
            Per::Distance if lq * lk == 0 => 0,
            Per::Distance => lq + lk - 1,
        }
    }

    /// The index of the first of the values for query `i` and the keys from `j` on.
    #[inline(always)]
    fn first(self, i: usize, j: usize, lq: usize) -> usize {
        match self {
            Per::Head => 0,
            Per::Query => i,
            Per::Key => j,
            Per::Distance => j + lq - 1 - i,
        }
    }

    /// Whether there is a value for each key.
    #[inline(always)]
    fn by_key(self) -> bool {
        matches!(self, Per::Key | Per::Distance)
    }
}

/// A part of attention that changes scores, or adds to outputs, and has operands of its own. Its methods are those that the
/// kernels call; it is made by
/// [`by_formula`], [`relative_products`](super::relative_products),
/// [`relative_values`](super::relative_values) and [`contextual_positions`](super::contextual_positions).
pub trait TileRule<T: Real>: Sync {
    /// The numbers of elements of the operands that belong to one sequence and head.
    fn sizes(&self) -> Vec<usize>;
    /// Whether the rule adds to products of queries and keys, before the scale.
    fn is_product(&self) -> bool {
        false
    }
    /// The number of buffers for derivatives.
    fn buffers(&self) -> usize {
        0
    }
    /// The number of sums that are carried from tile to tile for each query, from keys first to last; 0 at first.
    /// If there are any, [`TileRule::scan`] sees all tiles before [`TileRule::scores`] does.
    fn carry(&self) -> usize {
        0
    }
    /// Reads the scores of a tile, and updates what is carried for its queries.
    fn scan(&self, _tile: &Tile, _s: &TileBuffer<T>, _carry: &mut [f64]) {}
    /// Replaces the scores `s` of a tile, and writes their derivatives into the buffers, if there are any.
    fn scores(
        &self,
        _tile: &Tile,
        _s: &mut TileBuffer<T>,
        _derivatives: &mut [TileBuffer<T>],
        _carry: &mut [f64],
    ) {
    }
    /// Adds to the gradients of the operands, from the gradients `g` of the scores, and replaces `g` by the
    /// gradients of the scores before the rule.
    fn gradients(
        &self,
        _tile: &Tile,
        _g: &mut TileBuffer<T>,
        _derivatives: &[TileBuffer<T>],
        _into: &mut [&mut [T]],
        _carry: &mut [f64],
    ) {
    }
    /// Adds to the outputs of the queries of a tile, whose weights are `p`.
    fn outputs(&self, _tile: &Tile, _p: &TileBuffer<T>, _out: MatMut<'_, T>) {}
    /// Adds to the gradients `dp` of the weights, and with weights `p` to those of the operands, from the gradients
    /// `g` of the outputs.
    fn weight_gradients(&self, _tile: &Tile, _g: MatRef<'_, T>, _dp: &mut TileBuffer<T>) {}
    /// Adds to the gradients of the operands of [`TileRule::outputs`], from the gradients `g` of the outputs.
    fn value_gradients(
        &self,
        _tile: &Tile,
        _p: &TileBuffer<T>,
        _g: MatRef<'_, T>,
        _into: &mut [&mut [T]],
    ) {
    }
}

/// The rule of a formula, whose operands are `[B, H, n]` with contiguous last axes, for `lq` queries from position
/// `offset` on.
pub fn by_formula<'a, T: Real, R: ScoreRule<T, N>, const N: usize>(
    rule: R,
    operands: [(Per, &'a Tensor<T>); N],
    (lq, offset): (usize, isize),
) -> Box<dyn TileRule<T> + 'a> {
    let columns = (0..TILE).map(|j| T::from_f64(j as f64)).collect();
    Box::new(ByFormula { rule, operands, lq, offset, columns })
}

struct ByFormula<'a, T: Real, R, const N: usize> {
    rule: R,
    operands: [(Per, &'a Tensor<T>); N],
    lq: usize,
    offset: isize,
    /// The numbers of the columns of a tile.
    columns: Vec<T>,
}

impl<T: Real, R: ScoreRule<T, N>, const N: usize> TileRule<T> for ByFormula<'_, T, R, N> {
    fn sizes(&self) -> Vec<usize> {
        self.operands.iter().map(|(_, x)| x.size(-1)).collect()
    }

    fn buffers(&self) -> usize {
        1 + N
    }

    fn scores(
        &self,
        tile: &Tile,
        s: &mut TileBuffer<T>,
        derivatives: &mut [TileBuffer<T>],
        _: &mut [f64],
    ) {
        let operands = self.operands.map(|(per, x)| (per, of_head(x, tile)));
        let (rule, lq, offset, columns) = (self.rule, self.lq, self.offset, &self.columns[..]);
        let kernel = Scores { rule, operands, lq, offset, columns, tile, s: &mut s.0, derivatives };
        T::dispatch(settings::level(), kernel);
    }

    fn gradients(
        &self,
        tile: &Tile,
        g: &mut TileBuffer<T>,
        derivatives: &[TileBuffer<T>],
        into: &mut [&mut [T]],
        _: &mut [f64],
    ) {
        gradients(&self.operands.map(|(per, _)| per), self.lq, tile, g, derivatives, into);
    }
}

/// [`TileRule::gradients`] of every formula.
#[inline(never)]
pub(crate) fn gradients<T: Real>(
    per: &[Per],
    lq: usize,
    tile: &Tile,
    g: &mut TileBuffer<T>,
    derivatives: &[TileBuffer<T>],
    into: &mut [&mut [T]],
) {
    let kernel = Gradients { per, lq, tile, g: &mut g.0, derivatives, into };
    T::dispatch(settings::level(), kernel);
}

/// The values of an operand for the head of a tile.
fn of_head<'a, T: Real>(x: &'a Tensor<T>, tile: &Tile) -> &'a [T] {
    let strides = x.layout().strides();
    let at = tile.batch as isize * strides[0] + tile.head as isize * strides[1];
    let first = (x.layout().offset() as isize + at) as usize;
    &x.data()[first..first + x.size(-1)]
}

/// The scores of a tile.
struct Scores<'a, T: Real, R, const N: usize> {
    rule: R,
    operands: [(Per, &'a [T]); N],
    lq: usize,
    offset: isize,
    columns: &'a [T],
    tile: &'a Tile,
    s: &'a mut [T],
    derivatives: &'a mut [TileBuffer<T>],
}

impl<T: Real, R: ScoreRule<T, N>, const N: usize> Kernel<T> for Scores<'_, T, R, N> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Scores { rule, operands, lq, offset, columns, tile, s: scores, derivatives } = self;
        let first_key = s.splat(T::from_f64(tile.cols.start as f64));
        for i in 0..tile.rows.len() {
            let query = tile.rows.start + i;
            let position = s.splat(T::from_f64((query as isize + offset) as f64));
            for j in (0..tile.width::<T, S>()).step_by(S::N) {
                let mut values = [position; N];
                for n in 0..N {
                    let (per, of) = operands[n];
                    let of = &of[per.first(query, tile.cols.start + j, lq)..];
                    values[n] = match per.by_key() {
                        false => s.splat(of[0]),
                        true if of.len() >= S::N => s.load(of),
                        true => s.load_or(of, T::ZERO),
                    };
                }
                let mut exprs = [Expr::new(s, position); N];
                for n in 0..N {
                    exprs[n] = Expr::new(s, values[n]);
                }
                let at = PairPositions {
                    query: Expr::new(s, position),
                    key: Expr::new(s, s.add(first_key, s.load(&columns[j..]))),
                };
                let here = i * TILE + j;
                let x = Expr::new(s, s.load(&scores[here..]));
                if derivatives.is_empty() {
                    s.store(rule.score(x, exprs, at).value(), &mut scores[here..]);
                    continue;
                }
                let all = rule.derivatives(x, exprs, at);
                s.store(all.score.value(), &mut scores[here..]);
                s.store(all.by_score.value(), &mut derivatives[0].0[here..]);
                for n in 0..N {
                    s.store(all.by_operands[n].value(), &mut derivatives[1 + n].0[here..]);
                }
            }
        }
    }
}

/// The gradients of a tile: of the operands, and of the scores before the rule. A gradient of 0 stays 0, even if the
/// derivative is not finite.
struct Gradients<'a, 'b, T: Real> {
    per: &'a [Per],
    lq: usize,
    tile: &'a Tile,
    g: &'a mut [T],
    derivatives: &'a [TileBuffer<T>],
    into: &'a mut [&'b mut [T]],
}

impl<T: Real> Kernel<T> for Gradients<'_, '_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Gradients { per, lq, tile, g, derivatives, into } = self;
        let zero = s.splat(T::ZERO);
        for i in 0..tile.rows.len() {
            for n in 0..per.len() {
                let (query, mut sum) = (tile.rows.start + i, zero);
                for j in (0..tile.width::<T, S>()).step_by(S::N) {
                    let here = i * TILE + j;
                    let of_score = s.load(&g[here..]);
                    let product = s.mul(of_score, s.load(&derivatives[1 + n].0[here..]));
                    let product = s.select(s.eq(of_score, zero), zero, product);
                    if !per[n].by_key() {
                        sum = s.add(sum, product);
                        continue;
                    }
                    let first = per[n].first(query, tile.cols.start + j, lq);
                    let into = &mut into[n][first..];
                    if into.len() >= S::N {
                        s.store(s.add(s.load(into), product), into);
                    } else {
                        s.store_part(s.add(s.load_or(into, T::ZERO), product), into);
                    }
                }
                if !per[n].by_key() {
                    into[n][per[n].first(query, 0, lq)] += s.sum(sum);
                }
            }
            for j in (0..tile.width::<T, S>()).step_by(S::N) {
                let here = i * TILE + j;
                let of_score = s.load(&g[here..]);
                let product = s.mul(of_score, s.load(&derivatives[0].0[here..]));
                s.store(s.select(s.eq(of_score, zero), zero, product), &mut g[here..]);
            }
        }
    }
}
