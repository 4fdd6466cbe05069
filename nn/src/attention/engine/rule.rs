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
/// evaluates it on variables, for gradients of every order.
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
/// let spec = Spec::new().causal().rule(Rule::new(Logarithmic, [ScoreOperand::Head(slopes.clone())]));
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

/// An operand of a rule.
#[derive(Clone)]
pub enum ScoreOperand<T: Real = f32> {
    /// A value for each head, `[H]`.
    Head(Var<T>),
    /// A value for each query; a shape that broadcasts to `[B, H, Lq]`.
    Query(Var<T>),
    /// A value for each key; a shape that broadcasts to `[B, H, Lk]`.
    Key(Var<T>),
    /// Values `[H, n]` or `[n]`, with a function from `key - query` to an index of them.
    Distance(Var<T>, Index),
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
        i as isize + self.offset + self.shifts[batch.min(self.shifts.len() - 1)]
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
}

impl<T: Real> Rule<T> {
    /// A formula and its operands.
    pub fn new<R: ScoreRule<T, N>, const N: usize>(
        rule: R,
        operands: [ScoreOperand<T>; N],
    ) -> Rule<T> {
        Rule { operands: operands.into(), kind: Kind::Formula(Arc::new(ByFormula::<R, N>(rule))) }
    }

    /// Adds `a_i · r_c` to the products of queries and keys, before the scale, with vectors `a` that broadcast to
    /// `[B, H, Lq, D]`, and of the vectors `r` `[H, n, D]` or `[n, D]` that at the index `c` of `key - query`.
    pub fn relative_products(
        a: Var<T>,
        r: Var<T>,
        index: impl Fn(isize) -> usize + Send + Sync + 'static,
    ) -> Rule<T> {
        let operands = vec![ScoreOperand::Query(a), ScoreOperand::Distance(r, Arc::new(index))];
        Rule { operands, kind: Kind::Products }
    }

    /// Adds to the values of keys, of the vectors `r` `[H, n, Dv]` or `[n, Dv]`, that at the index of `key - query`.
    pub fn relative_values(
        r: Var<T>,
        index: impl Fn(isize) -> usize + Send + Sync + 'static,
    ) -> Rule<T> {
        Rule { operands: vec![ScoreOperand::Distance(r, Arc::new(index))], kind: Kind::Values }
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
        Rule { operands: vec![ScoreOperand::Query(by_position)], kind: Kind::Contextual }
    }

    /// Whether operands have vectors.
    fn has_vectors(&self) -> bool {
        !matches!(self.kind, Kind::Formula(_))
    }

    /// The variables of the operands.
    pub(crate) fn vars(&self) -> impl Iterator<Item = &Var<T>> {
        self.operands.iter().map(ScoreOperand::var)
    }

    /// The rule with other variables.
    pub(crate) fn map(&self, mut f: impl FnMut(&Var<T>) -> Var<T>) -> Rule<T> {
        let operands = self.operands.iter().map(|operand| operand.with(f(operand.var())));
        Rule { operands: operands.collect(), kind: self.kind.clone() }
    }

    /// The rule for some of the queries of the first sequence.
    pub(crate) fn rows(&self, first: usize, n: usize) -> Rule<T> {
        let axis = if self.has_vectors() { -2 } else { -1 };
        let operands = self.operands.iter().map(|operand| {
            let mut x = operand.var().clone();
            let by_sequence = matches!(operand, ScoreOperand::Query(_) | ScoreOperand::Key(_));
            if by_sequence && x.rank() as isize + axis == 2 && x.size(0) > 1 {
                x = x.narrow(0, 0, 1);
            }
            if matches!(operand, ScoreOperand::Query(_)) && x.size(axis) > 1 {
                x = x.narrow(axis, first, n);
            }
            operand.with(x)
        });
        Rule { operands: operands.collect(), kind: self.kind.clone() }
    }

    /// The rule with operands of the shapes that the kernels take, up to broadcasting.
    pub(crate) fn resolved(&self, sizes: Sizes, offset: isize) -> Rule<T> {
        let axis = if self.has_vectors() { -2 } else { -1 };
        let operands = self.operands.iter().map(|operand| operand.resolved(axis, sizes, offset));
        Rule { operands: operands.collect(), kind: self.kind.clone() }
    }

    /// The operands of a resolved rule, broadcast to all sequences and heads.
    pub(crate) fn tensors<'a>(
        &'a self,
        values: &'a [Tensor<T>],
        Sizes { batch, heads, lq, lk }: Sizes,
    ) -> Vec<(Per, Tensor<T>)> {
        let width = usize::from(self.has_vectors());
        let tensors = self.operands.iter().zip(values).map(|(operand, x)| {
            let per = operand.per();
            let mut shape = vec![batch, heads, per.len(lq, lk)];
            shape.extend_from_slice(&x.shape()[x.rank() - width..]);
            let x = x.broadcast_to(&shape[..]);
            let in_rows = x.layout().strides().last() == Some(&1);
            (per, if in_rows { x } else { x.contiguous() })
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
        if let Kind::Contextual = self.kind {
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
        let values = self.operands[0].var();
        let last = values.size(-1) - 1;
        let gates = s.sigmoid().masked_fill(&!keep, T::ZERO);
        let position = gates.flip(-1).cumsum(-1).flip(-1);
        let position = position.minimum(&Var::constant(Tensor::scalar(T::from_f64(last as f64))));
        let shape = [&s.shape()[..3], &[last + 1]].concat();
        let values = with_axes(values, 4).broadcast_to(shape);
        let at = |x: &Tensor<T>| {
            let index = Tensor::from_fn(*x.shape(), |i| x.at(i).to_f64() as i64);
            values.gather(-1, &index)
        };
        let (below, above) = (position.value().floor(), position.value().ceil());
        let share = position - Var::constant(below.clone());
        let low = at(&below);
        &low + share * (at(&above) - &low)
    }

    /// What the rule adds to the products of queries and keys, in ordinary operations.
    pub(crate) fn products(&self, places: &Places) -> Option<Var<T>> {
        let (Kind::Products, [ScoreOperand::Query(a), ScoreOperand::Distance(r, index)]) =
            (&self.kind, &self.operands[..])
        else {
            return None;
        };
        let Sizes { batch, heads, lq, lk } = places.sizes;
        let a = with_axes(a, 4).broadcast_to([batch, heads, lq, a.size(-1)]);
        let by_distance = a.matmul(&with_axes(r, 4).t());
        let index = places.indices(index).unsqueeze(1).broadcast_to([batch, heads, lq, lk]);
        Some(by_distance.gather(-1, &index))
    }

    /// What the rule adds to the outputs of weights `[B, H, Lq, Lk]`, in ordinary operations.
    pub(crate) fn values(&self, weights: &Var<T>, places: &Places) -> Option<Var<T>> {
        let (Kind::Values, [ScoreOperand::Distance(r, index)]) = (&self.kind, &self.operands[..])
        else {
            return None;
        };
        let Sizes { batch, heads, lq, lk } = places.sizes;
        let index = places.indices(index).unsqueeze(1).broadcast_to([batch, heads, lq, lk]);
        let none = Var::constant(Tensor::zeros([batch, heads, lq, r.size(-2)]));
        Some(none.scatter_add(-1, &index, weights).matmul(&with_axes(r, 4)))
    }

    /// An error if an operand does not fit a call.
    pub(crate) fn check(&self, sizes: Sizes) -> Result<()> {
        let width = usize::from(self.has_vectors());
        let Sizes { batch, heads, lq, lk } = sizes;
        for operand in &self.operands {
            let x = operand.var();
            let all = [batch, heads, operand.per().len(lq, lk)];
            let mut axes = x.shape().iter().rev().skip(width).zip(all.iter().rev());
            let fits = match operand {
                ScoreOperand::Head(_) => *x.shape() == [heads] || *x.shape() == [1, heads, 1],
                ScoreOperand::Distance(..) => {
                    let of_heads =
                        x.rank() < 2 + width || [1, heads].contains(&x.size(-2 - width as isize));
                    (1 + width..=3 + width).contains(&x.rank()) && of_heads
                }
                _ => {
                    let sizes_fit = axes.all(|(&have, &want)| have == want || have == 1);
                    (1 + width..=3 + width).contains(&x.rank()) && sizes_fit
                }
            };
            require(fits, "rule", ErrorKind::Mismatch, || {
                format!(
                    "{self:?}: values {:?} by {:?} for {batch} sequences, {heads} heads, {lq} queries \
                     and {lk} keys",
                    x.shape(),
                    operand.per()
                )
            })?;
        }
        Ok(())
    }
}

impl<T: Real> ScoreOperand<T> {
    fn var(&self) -> &Var<T> {
        match self {
            ScoreOperand::Head(x)
            | ScoreOperand::Query(x)
            | ScoreOperand::Key(x)
            | ScoreOperand::Distance(x, _) => x,
        }
    }

    fn with(&self, x: Var<T>) -> ScoreOperand<T> {
        match self {
            ScoreOperand::Head(_) => ScoreOperand::Head(x),
            ScoreOperand::Query(_) => ScoreOperand::Query(x),
            ScoreOperand::Key(_) => ScoreOperand::Key(x),
            ScoreOperand::Distance(_, index) => ScoreOperand::Distance(x, index.clone()),
        }
    }

    fn per(&self) -> Per {
        match self {
            ScoreOperand::Head(_) => Per::Head,
            ScoreOperand::Query(_) => Per::Query,
            ScoreOperand::Key(_) => Per::Key,
            ScoreOperand::Distance(..) => Per::Distance,
        }
    }

    /// See [`Rule::resolved`]; `axis` is that of queries, keys or distances.
    fn resolved(&self, axis: isize, sizes: Sizes, offset: isize) -> ScoreOperand<T> {
        let rank = (2 - axis) as usize;
        let ScoreOperand::Distance(x, index) = self else {
            let x = self.var();
            let by_head = matches!(self, ScoreOperand::Head(_));
            return self.with(if by_head {
                x.reshape([1, sizes.heads, 1])
            } else {
                with_axes(x, rank)
            });
        };
        let n = Per::Distance.len(sizes.lq, sizes.lk);
        let first = 1 - sizes.lq as isize - offset;
        let indices = Tensor::from_fn([n], |i| index(first + i[0] as isize) as i64);
        let x = with_axes(&x.index_select(axis, &indices), rank);
        ScoreOperand::Distance(x, Arc::new(move |distance| (distance - first) as usize))
    }

    /// The values by pair, which broadcast to `[B, H, Lq, Lk]`.
    fn by_pair(&self, places: &Places) -> Var<T> {
        match self {
            ScoreOperand::Head(x) => x.reshape([1, places.sizes.heads, 1, 1]),
            ScoreOperand::Query(x) => x.unsqueeze(-1),
            ScoreOperand::Key(x) => x.unsqueeze(-2),
            ScoreOperand::Distance(x, index) => {
                let indices = places.indices(index);
                let x = x.reshape([x.value().numel() / x.size(-1).max(1), x.size(-1)]);
                let shape = [&[x.size(0)], &indices.shape()[..]].concat();
                x.index_select(1, &indices.flatten()).reshape(shape).transpose(0, 1)
            }
        }
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
        let operands = std::array::from_fn(|n| name(["a", "b", "c", "d"][n.min(3)]));
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
