//! Rules of scores: formulas with operands, and vectors of relative positions.

use super::mask::{CachedPositions, Sizes};
use retrograd_autograd::{Var, score_on_variables};
use retrograd_tensor::error::{ErrorKind, Result, require};
use retrograd_tensor::formula::{Expr, Terms};
use retrograd_tensor::kernels::attention::{
    At, PairPositions, Per, ScoreRule, TileRule, by_formula, contextual_positions,
    relative_products, relative_values,
};
use retrograd_tensor::{Real, Tensor};
use std::fmt;
use std::sync::Arc;

/// A rule of scores: a formula of the score, the positions and operands, which may be learned, or vectors of
/// relative positions. The tiled path computes it and its gradients in memory that is linear in the length.
///
/// A formula is a [`ScoreRule`], written once: its derivatives are those of dual numbers, and the composed path
/// evaluates it on variables, for gradients of every order. The tiled path takes up to four operands of all rules of a
/// call together, and one rule of contextual positions.
///
/// ```
/// use retrograd::nn::attention::{ScoreOperand, PairPositions, Rule, ScoreRule, Spec, attend};
/// use retrograd::prelude::*;
/// use retrograd::tensor::Real;
/// use retrograd::tensor::formula::{Algebra, Expr};
///
/// /// `s - slope · ln(1 + |query - key|)`
/// #[derive(Clone, Copy, Debug)]
/// struct Logarithmic;
///
/// impl<T: Real> ScoreRule<T, 1> for Logarithmic {
///     const NAME: &'static str = "logarithmic distance";
///     fn score<A: Algebra<T>>(
///         self,
///         s: Expr<T, A>,
///         [slope]: [Expr<T, A>; 1],
///         at: PairPositions<Expr<T, A>>,
///     ) -> Expr<T, A> {
///         s - slope * (at.query - at.key).abs().log1p()
///     }
/// }
///
/// let mut rng = Rng::new(1);
/// let mut x = || Var::constant(Tensor::<f64>::randn([2, 5, 4], &mut rng));
/// let (q, k, v) = (x(), x(), x());
/// let slopes = Var::leaf(Tensor::from([0.5, 1.0])); // one for each head
/// let spec = Spec::new().causal().rule(Rule::new(Logarithmic, [ScoreOperand::head(slopes.clone())]));
/// let loss = attend(&q, &k, &v, &spec).square().sum(..);
/// assert_eq!(*loss.backward().get(&slopes).unwrap().shape(), [2]);
/// ```
#[derive(Clone)]
pub struct Rule<T: Real = f32> {
    operands: Vec<ScoreOperand<T>>,
    kind: Kind<T>,
}

#[derive(Clone)]
enum Kind<T: Real> {
    Formula(Arc<dyn Formula<T>>),
    /// Products of query vectors and vectors of distances are added to those of queries and keys.
    Products,
    /// Vectors of distances are added to values.
    Values,
    /// Scores by contextual position are added.
    Contextual,
}

/// The map from `key - query` to an index.
type Index = Arc<dyn Fn(isize) -> usize + Send + Sync>;

/// An operand of a rule: a value for each head, query, key or distance. Values must be finite.
#[derive(Clone)]
pub struct ScoreOperand<T: Real = f32> {
    per: Per,
    x: Var<T>,
    /// Of distances.
    index: Option<Index>,
}

impl<T: Real> ScoreOperand<T> {
    /// A value for each head, `[H]`.
    pub fn head(x: Var<T>) -> Self {
        ScoreOperand { per: Per::Head, x, index: None }
    }

    /// A value for each query; a shape that broadcasts to `[B, H, Lq]`.
    pub fn query(x: Var<T>) -> Self {
        ScoreOperand { per: Per::Query, x, index: None }
    }

    /// A value for each key; a shape that broadcasts to `[B, H, Lk]`.
    pub fn key(x: Var<T>) -> Self {
        ScoreOperand { per: Per::Key, x, index: None }
    }

    /// Values `[H, n]` or `[n]`, of which a pair has that at the index of `key - query`. The function is called for
    /// the distances of all pairs, also of masked ones.
    pub fn distance(x: Var<T>, index: impl Fn(isize) -> usize + Send + Sync + 'static) -> Self {
        ScoreOperand { per: Per::Distance, x, index: Some(Arc::new(index)) }
    }

    fn with(&self, x: Var<T>) -> Self {
        ScoreOperand { x, ..self.clone() }
    }

    /// See [`Rule::resolved`]; `axis` is that of queries, keys or distances.
    fn resolved(&self, axis: isize, sizes: Sizes, offset: isize) -> Self {
        let rank = (2 - axis) as usize;
        let Some(index) = &self.index else {
            return self.with(match self.per {
                Per::Head => self.x.reshape([1, sizes.heads, 1]),
                _ => with_axes(&self.x, rank),
            });
        };
        let n = Per::Distance.len(sizes.lq, sizes.lk);
        let first = 1 - sizes.lq as isize - offset;
        let indices = Tensor::from_fn([n], |i| index(first + i[0] as isize) as i64);
        let x = with_axes(&self.x.index_select(axis, &indices), rank);
        ScoreOperand::distance(x, move |distance| (distance - first) as usize)
    }

    /// The values by pair, which broadcast to `[B, H, Lq, Lk]`.
    fn by_pair(&self, places: &Places) -> Var<T> {
        let x = &self.x;
        match (self.per, &self.index) {
            (Per::Head, _) => x.reshape([1, places.sizes.heads, 1, 1]),
            (Per::Query, _) => x.unsqueeze(-1),
            (Per::Key, _) => x.unsqueeze(-2),
            (Per::Distance, index) => {
                let count = x.size(-1);
                let indices = places.indices(index.as_ref().expect("of distances"));
                let x = x.reshape([x.value().numel() / count.max(1), count]);
                let shape = [&[x.size(0)], &indices.shape()[..]].concat();
                x.index_select(1, &indices.flatten()).reshape(shape).transpose(0, 1)
            }
        }
    }
}

/// The positions of a call.
pub(crate) struct Places {
    pub sizes: Sizes,
    pub offset: isize,
    /// What is added to the positions of the queries, for each sequence or for all.
    pub shifts: Vec<isize>,
    pub cached: Option<CachedPositions>,
}

impl Places {
    fn query(&self, batch: usize, i: usize) -> isize {
        i as isize + self.offset + self.shifts[batch]
    }

    fn key(&self, j: usize) -> isize {
        let at = At { batch: 0, head: 0, query: 0, key: j };
        self.cached.map_or(at, |cached| cached.to_position(at)).key as isize
    }

    /// The indices of the distances, `[B or 1, Lq, Lk]`.
    fn indices(&self, index: &Index) -> Tensor<i64> {
        let Sizes { lq, lk, .. } = self.sizes;
        Tensor::from_fn([self.shifts.len(), lq, lk], |i| {
            index(self.key(i[2]) - self.query(i[0], i[1])) as i64
        })
    }

    /// The same for the scores of all heads, `[B, H, Lq, Lk]`.
    fn indices_of_heads(&self, index: &Index) -> Tensor<i64> {
        let Sizes { batch, heads, lq, lk } = self.sizes;
        self.indices(index).unsqueeze(1).broadcast_to([batch, heads, lq, lk])
    }

    /// All distances from a query to a key, and those in between.
    fn distances(&self) -> std::ops::Range<isize> {
        let Sizes { lq, lk, .. } = self.sizes;
        let first = (0..self.shifts.len()).map(|b| self.query(b, 0));
        match (lq, lk, first.clone().min(), first.max()) {
            (1.., 1.., Some(first), Some(last)) => {
                self.key(0) - last - lq as isize + 1..self.key(lk - 1) - first + 1
            }
            _ => 0..0,
        }
    }
}

impl<T: Real> Rule<T> {
    /// A formula and its operands.
    pub fn new<R: ScoreRule<T, N>, const N: usize>(
        rule: R,
        operands: [ScoreOperand<T>; N],
    ) -> Rule<T> {
        Rule { operands: operands.into(), kind: Kind::Formula(Arc::new(ByFormula::<R, N>(rule))) }
    }

    /// Adds `a_i · r[index(j - i)]` to the products of queries `i` and keys `j`, before the scale and the softcap, with
    /// vectors `a` that broadcast to `[B, H, Lq, D]`, and vectors `r` `[H, n, D]` or `[n, D]`. Shaw et al. 2018 (arXiv
    /// 1803.02155); Huang et al. 2018 (arXiv 1809.04281).
    ///
    /// ```
    /// use retrograd::nn::attention::{Rule, Spec, attend_all};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 3, 2], &mut rng));
    /// let r = Var::leaf(Tensor::from([[1.0, 0.0], [0.0, 0.0]])); // of the key before, and of others
    /// let rule = Rule::relative_products(x.clone(), r, |away| usize::from(away != -1));
    /// let by = |spec: Spec<f64>| attend_all(&x, &x, &x, &spec.scale(1.0)).scores;
    /// let added = by(Spec::new().rule(rule)) - by(Spec::new());
    /// let first = |i: usize| x.value().at(&[0, i, 0]);
    /// assert!((added.value().at(&[0, 2, 1]) - first(2)).abs() < 1e-12);
    /// assert_eq!(added.value().at(&[0, 2, 0]), 0.0);
    /// ```
    pub fn relative_products(
        a: Var<T>,
        r: Var<T>,
        index: impl Fn(isize) -> usize + Send + Sync + 'static,
    ) -> Rule<T> {
        let operands = vec![ScoreOperand::query(a), ScoreOperand::distance(r, index)];
        Rule { operands, kind: Kind::Products }
    }

    /// Adds `r[index(j - i)]` to the values of the keys `j` that query `i` reads: `o_i = Σ_j w_ij (v_j + r[index(j - i)])`,
    /// with vectors `r` `[H, n, Dv]` or `[n, Dv]`. Shaw et al. 2018 (arXiv 1803.02155).
    ///
    /// ```
    /// use retrograd::nn::attention::{Rule, Spec, attend};
    /// use retrograd::prelude::*;
    /// let q = Var::constant(Tensor::<f64>::zeros([1, 2, 3])); // equal weights
    /// let v = Var::constant(Tensor::zeros([1, 2, 1]));
    /// let r = Var::leaf(Tensor::from([[8.0], [2.0]])); // of the own token, and of others
    /// let rule = Rule::relative_values(r, |away| usize::from(away != 0));
    /// let y = attend(&q, &q, &v, &Spec::new().causal().rule(rule));
    /// assert_eq!(y.value().to_vec(), [8.0, 5.0]);
    /// ```
    pub fn relative_values(
        r: Var<T>,
        index: impl Fn(isize) -> usize + Send + Sync + 'static,
    ) -> Rule<T> {
        Rule { operands: vec![ScoreOperand::distance(r, index)], kind: Kind::Values }
    }

    /// Adds to the score of a key the value at its contextual position, of the values `[B, H, Lq, n]` of each query
    /// for the positions 0 to `n - 1`. The position is the sum of `σ(s)` over the visible keys from this one on, at
    /// most `n - 1`; between whole numbers values are interpolated. Golovneva et al. 2024 (arXiv 2405.18719).
    ///
    /// ```
    /// use retrograd::nn::attention::{Rule, Spec, attend_all};
    /// use retrograd::prelude::*;
    /// let x = Var::constant(Tensor::<f64>::zeros([1, 1, 3, 2]));
    /// // Gates of equal scores are 1/2, so the positions of three keys are 1.5, 1 and 0.5.
    /// let z = Var::leaf(Tensor::from([0.0, 1.0, 4.0]).broadcast_to([1, 1, 3, 3]));
    /// let scores = attend_all(&x, &x, &x, &Spec::new().rule(Rule::contextual(z))).scores;
    /// assert_eq!(scores.value().select(2, 0).to_vec(), [2.5, 1.0, 0.5]);
    /// ```
    pub fn contextual(by_position: Var<T>) -> Rule<T> {
        Rule { operands: vec![ScoreOperand::query(by_position)], kind: Kind::Contextual }
    }

    /// Whether operands have vectors.
    fn has_vectors(&self) -> bool {
        !matches!(self.kind, Kind::Formula(_))
    }

    /// Whether it is a rule of contextual positions, of which a call can have one.
    pub(crate) fn is_contextual(&self) -> bool {
        matches!(self.kind, Kind::Contextual)
    }

    /// The variables of the operands.
    pub(crate) fn vars(&self) -> impl Iterator<Item = &Var<T>> {
        self.operands.iter().map(|operand| &operand.x)
    }

    fn map_operands(&self, f: impl FnMut(&ScoreOperand<T>) -> ScoreOperand<T>) -> Rule<T> {
        Rule { operands: self.operands.iter().map(f).collect(), kind: self.kind.clone() }
    }

    /// The rule with other variables.
    pub(crate) fn map(&self, mut f: impl FnMut(&Var<T>) -> Var<T>) -> Rule<T> {
        self.map_operands(|operand| operand.with(f(&operand.x)))
    }

    /// The axis of queries, keys or distances in operands.
    fn axis(&self) -> isize {
        if self.has_vectors() { -2 } else { -1 }
    }

    /// The rule for some of the queries of the first sequence.
    pub(crate) fn rows(&self, first: usize, n: usize) -> Rule<T> {
        let axis = self.axis();
        self.map_operands(|operand| {
            let mut x = operand.x.clone();
            let by_sequence = matches!(operand.per, Per::Query | Per::Key);
            if by_sequence && x.rank() as isize + axis == 2 && x.size(0) > 1 {
                x = x.narrow(0, 0, 1);
            }
            if operand.per == Per::Query && x.size(axis) > 1 {
                x = x.narrow(axis, first, n);
            }
            operand.with(x)
        })
    }

    /// The rule with operands of the shapes that the kernels take, up to broadcasting.
    pub(crate) fn resolved(&self, sizes: Sizes, offset: isize) -> Rule<T> {
        self.map_operands(|operand| operand.resolved(self.axis(), sizes, offset))
    }

    /// The shapes of the operands of a resolved rule for all sequences and heads.
    pub(crate) fn shapes(
        &self,
        Sizes { batch, heads, lq, lk }: Sizes,
    ) -> impl Iterator<Item = Vec<usize>> + '_ {
        let width = usize::from(self.has_vectors());
        self.operands.iter().map(move |ScoreOperand { per, x, .. }| {
            [&[batch, heads, per.len(lq, lk)], &x.shape()[x.rank() - width..]].concat()
        })
    }

    /// The operands of a resolved rule, broadcast to all sequences and heads.
    pub(crate) fn tensors(&self, values: &[Tensor<T>], sizes: Sizes) -> Vec<(Per, Tensor<T>)> {
        let all = self.operands.iter().zip(values).zip(self.shapes(sizes));
        let tensors = all.map(|((operand, x), shape)| {
            let x = x.broadcast_to(shape);
            let in_rows = x.layout().strides().last() == Some(&1);
            (operand.per, if in_rows { x } else { x.contiguous() })
        });
        tensors.collect()
    }

    /// The kernel of the rule.
    pub(crate) fn tile<'a>(
        &self,
        operands: &'a [(Per, Tensor<T>)],
        (lq, offset): (usize, isize),
    ) -> Box<dyn TileRule<T> + 'a> {
        match &self.kind {
            Kind::Formula(formula) => formula.tile(operands, (lq, offset)),
            Kind::Products => relative_products(&operands[0].1, &operands[1].1),
            Kind::Values => relative_values(&operands[0].1, lq),
            Kind::Contextual => contextual_positions(&operands[0].1),
        }
    }

    /// The scores `[B, H, Lq, Lk]` by the rule, in ordinary operations, for the pairs to `keep`.
    pub(crate) fn scores(&self, s: &Var<T>, keep: &Tensor<bool>, places: &Places) -> Var<T> {
        if self.is_contextual() {
            return s + self.by_position(s, keep);
        }
        let Kind::Formula(formula) = &self.kind else { return s.clone() };
        let operands: Vec<_> = self.operands.iter().map(|x| x.by_pair(places)).collect();
        let Sizes { lq, lk, .. } = places.sizes;
        let number = |x: isize| T::from_f64(x as f64);
        let queries =
            Tensor::from_fn([places.shifts.len(), 1, lq, 1], |i| number(places.query(i[0], i[2])));
        let keys = Tensor::from_fn([1, 1, 1, lk], |i| number(places.key(i[3])));
        let at = PairPositions { query: &Var::constant(queries), key: &Var::constant(keys) };
        formula.on_variables(s, &operands, at)
    }

    /// The values at the contextual positions of scores `[B, H, Lq, Lk]`.
    fn by_position(&self, s: &Var<T>, keep: &Tensor<bool>) -> Var<T> {
        let values = &self.operands[0].x;
        let last = T::from_f64((values.size(-1) - 1) as f64);
        let gates = s.sigmoid().masked_fill(&!keep, T::ZERO);
        let position = gates.flip(-1).cumsum(-1).flip(-1);
        let position = position.minimum(&Var::constant(Tensor::scalar(last)));
        let shape = [&s.shape()[..3], &[values.size(-1)]].concat();
        let values = with_axes(values, 4).broadcast_to(shape);
        let at = |x: &Tensor<T>| {
            let index = Tensor::from_fn(*x.shape(), |i| x.at(i).to_f64() as i64);
            values.gather(-1, &index)
        };
        let below = position.value().floor();
        let above = (&below + T::ONE).minimum(&Tensor::scalar(last));
        let low = at(&below);
        &low + (position - Var::constant(below)) * (at(&above) - &low)
    }

    /// What the rule adds to the products of queries and keys, in ordinary operations.
    pub(crate) fn products(&self, places: &Places) -> Option<Var<T>> {
        let (Kind::Products, [a, r]) = (&self.kind, &self.operands[..]) else { return None };
        let Sizes { batch, heads, lq, .. } = places.sizes;
        let a = with_axes(&a.x, 4).broadcast_to([batch, heads, lq, a.x.size(-1)]);
        let index = places.indices_of_heads(r.index.as_ref()?);
        Some(a.matmul(&with_axes(&r.x, 4).t()).gather(-1, &index))
    }

    /// What the rule adds to the outputs of weights `[B, H, Lq, Lk]`, in ordinary operations.
    pub(crate) fn values(&self, weights: &Var<T>, places: &Places) -> Option<Var<T>> {
        let (Kind::Values, [r]) = (&self.kind, &self.operands[..]) else { return None };
        let Sizes { batch, heads, lq, .. } = places.sizes;
        let index = places.indices_of_heads(r.index.as_ref()?);
        let none = Var::constant(Tensor::zeros([batch, heads, lq, r.x.size(-2)]));
        Some(none.scatter_add(-1, &index, weights).matmul(&with_axes(&r.x, 4)))
    }

    /// An error if a distance of a call has no value.
    pub(crate) fn check_distances(&self, places: &Places) -> Result<()> {
        for operand in &self.operands {
            let Some(index) = &operand.index else { continue };
            let n = operand.x.size(self.axis());
            for distance in places.distances() {
                require(index(distance) < n, "rule", ErrorKind::Value, || {
                    let at = index(distance);
                    format!(
                        "{self:?}: index {at} for the distance {distance} from query to key, of {n} values"
                    )
                })?;
            }
        }
        Ok(())
    }

    /// An error if an operand does not fit a call whose values have this width.
    pub(crate) fn check(&self, sizes: Sizes, value_width: usize) -> Result<()> {
        let width = usize::from(self.has_vectors());
        let Sizes { batch, heads, lq, lk } = sizes;
        for (n, ScoreOperand { per, x, .. }) in self.operands.iter().enumerate() {
            let all = [batch, heads, per.len(lq, lk)];
            let mut axes = x.shape().iter().rev().skip(width).zip(all.iter().rev());
            let has_rank = (1 + width..=3 + width).contains(&x.rank());
            let fits = match per {
                Per::Head => *x.shape() == [heads] || *x.shape() == [1, heads, 1],
                Per::Distance => {
                    // Three axes after it was resolved.
                    let mut outer = x.shape().iter().rev().skip(width + 1);
                    let of_heads = outer.next().is_none_or(|&n| n == 1 || n == heads);
                    has_rank && of_heads && outer.all(|&n| n == 1)
                }
                _ => has_rank && axes.all(|(&have, &want)| have == want || have == 1),
            };
            let widths = match &self.kind {
                Kind::Formula(_) => true,
                Kind::Products => x.size(-1) == self.operands[0].x.size(-1),
                Kind::Values => x.size(-1) == value_width,
                Kind::Contextual => x.size(-1) > 0,
            };
            require(fits && widths, "rule", ErrorKind::Mismatch, || {
                format!(
                    "{self:?}: operand {} by {} {:?} for {batch} sequences, {heads} heads, {lq} queries \
                     and {lk} keys with values of width {value_width}",
                    n + 1,
                    format!("{per:?}").to_lowercase(),
                    x.shape(),
                )
            })?;
        }
        Ok(())
    }
}

/// `x` with axes of size 1 in front, up to `rank` axes.
fn with_axes<T: Real>(x: &Var<T>, rank: usize) -> Var<T> {
    let mut shape = vec![1; rank.saturating_sub(x.rank())];
    shape.extend_from_slice(x.shape());
    x.reshape(shape)
}

/// A formula whose number of operands its type does not name.
trait Formula<T: Real>: Send + Sync {
    /// The name, and the formula as text.
    fn describe(&self) -> (&'static str, String);
    fn tile<'a>(
        &self,
        operands: &'a [(Per, Tensor<T>)],
        at: (usize, isize),
    ) -> Box<dyn TileRule<T> + 'a>;
    fn on_variables(&self, s: &Var<T>, operands: &[Var<T>], at: PairPositions<&Var<T>>) -> Var<T>;
}

struct ByFormula<R, const N: usize>(R);

impl<T: Real, R: ScoreRule<T, N>, const N: usize> Formula<T> for ByFormula<R, N> {
    fn describe(&self) -> (&'static str, String) {
        let terms = Terms::default();
        let name = |name| -> Expr<T, _> { terms.name(name) };
        let at = PairPositions { query: name("i"), key: name("j") };
        let operands = std::array::from_fn(|n| name(["a", "b", "c", "d", "e", "f"][n.min(5)]));
        (R::NAME, terms.print(self.0.score(name("s"), operands, at)))
    }

    fn tile<'a>(
        &self,
        operands: &'a [(Per, Tensor<T>)],
        at: (usize, isize),
    ) -> Box<dyn TileRule<T> + 'a> {
        by_formula(self.0, std::array::from_fn(|n| (operands[n].0, &operands[n].1)), at)
    }

    fn on_variables(&self, s: &Var<T>, operands: &[Var<T>], at: PairPositions<&Var<T>>) -> Var<T> {
        score_on_variables(self.0, s, std::array::from_fn(|n| &operands[n]), at)
    }
}

impl<T: Real> fmt::Debug for Rule<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Formula(formula) => {
                let (name, text) = formula.describe();
                write!(f, "{name}: {text}")
            }
            Kind::Products => write!(f, "relative products: q·k + a·r"),
            Kind::Values => write!(f, "relative values: v + r"),
            Kind::Contextual => write!(f, "contextual positions: s + z at Σ σ(s)"),
        }
    }
}
