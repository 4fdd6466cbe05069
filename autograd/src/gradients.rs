//! The result of a backward pass.

use crate::graph::{Id, Var};
use retrograd_tensor::cost::Cost;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::square_sums;
use retrograd_tensor::kernels::update::{Item, Update, update_all};
use retrograd_tensor::par::span;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{DType, Real, Tensor};
use std::collections::BTreeMap;

/// Gradients by variable. There is no state to reset: every pass returns its own, and
/// [`Gradients::accumulate`] adds them up.
#[derive(Clone, Default)]
pub struct Gradients<T: Real = f32> {
    by_id: BTreeMap<Id, Tensor<T>>,
    /// Whether they are known to be finite, so that an optimiser need not test them.
    known_finite: bool,
}

/// A key of [`Gradients`]: a variable, or an object that represents a leaf, such as a parameter of a
/// module.
///
/// ```
/// use retrograd::autograd::{GradientKey, Id};
/// use retrograd::prelude::*;
///
/// struct Weight(Var);
///
/// impl GradientKey<f32> for Weight {
///     fn gradient_id(&self) -> Option<Id> {
///         self.0.id()
///     }
/// }
///
/// let w = Weight(Var::leaf(Tensor::scalar(3.0)));
/// assert_eq!(w.0.square().backward().get(&w).unwrap().item(), 6.0);
/// ```
#[diagnostic::on_unimplemented(
    message = "there is no gradient by `{Self}`",
    label = "neither a `Var<{T}>` nor a `Param<{T}>`",
    note = "gradients are by the variable that is differentiated, `Var::leaf(tensor)`, or by a parameter"
)]
pub trait GradientKey<T: Real> {
    /// The identity under which its gradient is kept; `None` of a constant.
    fn gradient_id(&self) -> Option<Id>;
}

impl<T: Real> GradientKey<T> for Var<T> {
    fn gradient_id(&self) -> Option<Id> {
        self.id()
    }
}

impl<T: Real, K: GradientKey<T> + ?Sized> GradientKey<T> for &K {
    fn gradient_id(&self) -> Option<Id> {
        (**self).gradient_id()
    }
}

impl<T: Real> Gradients<T> {
    pub(crate) fn new(by_id: BTreeMap<Id, Tensor<T>>) -> Self {
        Gradients { by_id, known_finite: false }
    }

    /// No gradients.
    pub fn empty() -> Self {
        Gradients::new(BTreeMap::new())
    }

    /// The gradient of a leaf or a parameter (or of a variable that the pass kept);
    /// `None` if the pass did not reach it.
    pub fn get(&self, x: &(impl GradientKey<T> + ?Sized)) -> Option<&Tensor<T>> {
        self.by_id.get(&x.gradient_id()?)
    }

    /// [`Gradients::get`], by identity.
    pub fn by_id(&self, id: Id) -> Option<&Tensor<T>> {
        self.by_id.get(&id)
    }

    /// Removes the gradient of a variable or a parameter, and returns it.
    pub fn remove(&mut self, x: &(impl GradientKey<T> + ?Sized)) -> Option<Tensor<T>> {
        self.by_id.remove(&x.gradient_id()?)
    }

    /// Number of variables with a gradient.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are no gradients.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// All gradients, in the order of creation of the variables.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Tensor<T>)> {
        self.by_id.iter().map(|(&id, g)| (id, g))
    }

    /// Adds the gradients of another pass: gradient accumulation.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::scalar(3.0f32));
    /// let mut grads = x.square().backward();
    /// grads.accumulate(x.neg().backward());
    /// assert_eq!(grads.get(&x).unwrap().item(), 5.0);
    /// ```
    #[inline(never)]
    pub fn accumulate(&mut self, other: Gradients<T>) {
        self.known_finite = false;
        for (id, g) in other.by_id {
            match self.by_id.get_mut(&id) {
                Some(sum) => sum.add_assign(&g),
                None => drop(self.by_id.insert(id, g)),
            }
        }
    }

    /// The sum of several passes: the bits of [`Gradients::accumulate`] in the order of
    /// [`pairwise_sum`](crate::pairwise_sum). All tensors of a round of additions are distributed to
    /// threads at once.
    pub(crate) fn pairwise_sum(passes: Vec<Option<Gradients<T>>>) -> Self {
        let mut count = passes.len();
        let mut terms: BTreeMap<Id, Vec<Option<Tensor<T>>>> = BTreeMap::new();
        for (i, pass) in passes.into_iter().enumerate() {
            for (id, g) in pass.into_iter().flat_map(|pass| pass.by_id) {
                terms.entry(id).or_insert_with(|| vec![None; count])[i] = Some(g);
            }
        }
        while count > 1 {
            let pairs = terms.values_mut().flat_map(|terms| terms.chunks_mut(2));
            let items = pairs.filter_map(|pair| match pair {
                [Some(a), Some(b)] => Some(Item { op: Add, w: [a], r: [b] }),
                _ => None,
            });
            update_all("accumulate", items.collect());
            for terms in terms.values_mut() {
                let sums = terms.chunks_mut(2).map(|pair| pair.iter_mut().find_map(Option::take));
                *terms = sums.collect();
            }
            count = count.div_ceil(2);
        }
        let sums = terms.into_iter().map(|(id, sum)| (id, sum.into_iter().flatten().next()));
        Gradients::new(sums.filter_map(|(id, sum)| Some((id, sum?))).collect())
    }

    /// The inner product with another vector, `Σ x · z`, where a missing part counts as zeros; summed as
    /// [`Gradients::norm`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([3.0f32, 4.0]));
    /// let g = (&x * &x).sum(..).backward(); // [6, 8]
    /// let h = x.sum(..).backward(); // [1, 1]
    /// assert_eq!((g.dot(&h), g.cosine(&g)), (14.0, 1.0));
    /// let mut sum = g.clone();
    /// sum.axpy(-2.0, &h);
    /// assert_eq!(sum.get(&x).unwrap().to_vec(), [4.0, 6.0]);
    /// ```
    pub fn dot(&self, other: &Gradients<T>) -> f64 {
        let part =
            |(id, x): (&Id, &Tensor<T>)| Some(x.mul(other.by_id.get(id)?).sum(..).item().to_f64());
        self.by_id.iter().filter_map(part).sum()
    }

    /// The cosine of the angle to another vector.
    pub fn cosine(&self, other: &Gradients<T>) -> f64 {
        self.dot(other) / (self.norm() * other.norm())
    }

    /// Adds `a` times another vector.
    pub fn axpy(&mut self, a: f64, x: &Gradients<T>) {
        let mut x = x.clone();
        x.scale(T::from_f64(a));
        self.accumulate(x);
    }

    /// A vector of the same variables and shapes, with random elements of the standard normal distribution.
    pub fn randn_like(&self, rng: &mut Rng) -> Gradients<T> {
        self.by_id.iter().map(|(&id, g)| (id, Tensor::randn(g.shape(), rng))).collect()
    }

    /// A vector of the same variables and shapes, of random signs: -1 or 1 (Rademacher).
    pub fn signs_like(&self, rng: &mut Rng) -> Gradients<T> {
        let sign = |x: Tensor<T>| {
            let negative = x.lt(T::ZERO);
            Tensor::ones(x.shape()).masked_fill(&negative, -T::ONE)
        };
        self.randn_like(rng).by_id.into_iter().map(|(id, g)| (id, sign(g))).collect()
    }

    /// Multiplies all by a number.
    #[inline(never)]
    pub fn scale(&mut self, factor: T) {
        self.known_finite = false;
        let tensors = self.by_id.values_mut();
        let op = Scale(factor.to_f64());
        let items = tensors.map(|g| Item { op, w: [g], r: [] }).collect();
        update_all("scale", items);
    }

    /// The Euclidean norm of all gradients as one vector, `√Σg²`, NaN if one is not finite.
    /// Squares are added up in `T` within blocks and in f64 across them; the result
    /// neither overflows nor vanishes where the norm itself does not.
    #[inline(never)]
    pub fn norm(&self) -> f64 {
        norm_of_parts(&self.norms().into_values().collect::<Vec<_>>())
    }

    /// The Euclidean norm of each gradient, NaN if it is not finite; computed as [`Gradients::norm`].
    #[inline(never)]
    pub fn norms(&self) -> BTreeMap<Id, f64> {
        let sums = square_sums(&self.by_id.values().collect::<Vec<_>>());
        self.by_id.iter().zip(sums).map(|((&id, g), sum)| (id, norm(g, sum))).collect()
    }

    /// Scales all so that their common norm is at most `max`, and returns the norm they had:
    /// the factor is `max / (norm + 1e-6)` if that is below 1, as in PyTorch's
    /// `clip_grad_norm_`. Gradients that are not finite are left as they are.
    ///
    /// Pascanu, Mikolov, Bengio 2012 (arXiv 1211.5063).
    ///
    /// # Panics
    /// If `max` is negative or NaN.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::from([3.0f32, 4.0]));
    /// let mut grads = (&x * &x).sum(..).backward(); // [6, 8]
    /// assert_eq!(grads.clip_norm(1.0), 10.0);
    /// assert!((grads.norm() - 1.0).abs() < 1e-6);
    /// ```
    #[track_caller]
    #[inline(never)]
    pub fn clip_norm(&mut self, max: f64) -> f64 {
        let _span = span("clip_norm");
        let norm = self.norm();
        self.clip_to(max, norm);
        norm
    }

    /// Scales all as [`Gradients::clip_norm`], where `norm` is the norm of all gradients, of which these may be
    /// a part.
    ///
    /// # Panics
    /// If `max` is negative or NaN.
    #[track_caller]
    pub fn clip_to(&mut self, max: f64, norm: f64) {
        assert(max >= 0.0, "clip_norm", ErrorKind::Value, || {
            format!("the largest norm must be at least 0, got {max}")
        });
        let factor = max / (norm + 1e-6);
        if norm.is_finite() && factor < 1.0 {
            self.scale(T::from_f64(factor));
        }
        // A factor below 1 does not make a finite gradient infinite.
        self.known_finite = norm.is_finite();
    }

    /// Whether no gradient contains NaN or an infinity.
    pub fn is_finite(&self) -> bool {
        self.not_finite().is_empty()
    }

    /// The variables whose gradient contains NaN or an infinity. Costs nothing after
    /// [`Gradients::clip_norm`], which tests all of them.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (x, y) = (Var::leaf(Tensor::scalar(0.0f32)), Var::leaf(Tensor::scalar(1.0)));
    /// let grads = (x.sqrt() + &y).backward();
    /// assert_eq!(grads.not_finite(), [x.id().unwrap()]);
    /// ```
    pub fn not_finite(&self) -> Vec<Id> {
        if self.known_finite {
            return Vec::new();
        }
        let sums = square_sums(&self.by_id.values().collect::<Vec<_>>());
        // A sum may overflow where no element is infinite.
        let is_non_finite = |g: &Tensor<T>, sum: f64| {
            !sum.is_finite() && !g.abs().max(..).item().to_f64().is_finite()
        };
        let non_finite = self.by_id.iter().zip(sums);
        let non_finite = non_finite.filter(|((_, g), sum)| is_non_finite(g, *sum));
        non_finite.map(|((&id, _), _)| id).collect()
    }
}

impl<T: Real> FromIterator<(Id, Tensor<T>)> for Gradients<T> {
    fn from_iter<I: IntoIterator<Item = (Id, Tensor<T>)>>(gradients: I) -> Self {
        Gradients::new(gradients.into_iter().collect())
    }
}

/// The Euclidean norm of a vector, given the norms of its parts: `√Σn²`, the first one that is not finite if
/// there is one. It neither overflows nor vanishes where the result does not.
///
/// ```
/// assert_eq!(retrograd::autograd::norm_of_parts(&[3.0, 4.0]), 5.0);
/// ```
pub fn norm_of_parts(norms: &[f64]) -> f64 {
    if let Some(&norm) = norms.iter().find(|n| !n.is_finite()) {
        return norm;
    }
    let top = norms.iter().copied().fold(0.0, f64::max);
    if top == 0.0 {
        return 0.0;
    }
    norms.iter().map(|n| (n / top).powi(2)).sum::<f64>().sqrt() * top
}

/// `x · c`, in place.
#[derive(Clone, Copy)]
struct Scale(f64);

impl<T: Real> Update<T, 1, 0> for Scale {
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [x]: [Expr<T, A>; 1], []: [Expr<T, A>; 0]) -> [Expr<T, A>; 1] {
        [x * self.0]
    }
}

/// `x + y`, in place.
#[derive(Clone, Copy)]
struct Add;

impl<T: Real> Update<T, 1, 1> for Add {
    const COST: Cost = Cost::MOVE;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [x]: [Expr<T, A>; 1], [y]: [Expr<T, A>; 1]) -> [Expr<T, A>; 1] {
        [x + y]
    }
}

/// `√Σg²` of one tensor, given the sum; NaN if it is not finite. Where squares overflow or
/// vanish, they are taken again relative to the largest element.
fn norm<T: Real>(g: &Tensor<T>, sum: f64) -> f64 {
    // Above this, squares that underflowed are negligible.
    let enough = if T::DTYPE == DType::F32 { 1e-24 } else { 1e-280 };
    if g.numel() == 0 || (sum.is_finite() && sum > enough) {
        return sum.sqrt();
    }
    let top = g.abs().max(..).item();
    if top == T::ZERO {
        return 0.0;
    }
    if !top.to_f64().is_finite() {
        return f64::NAN;
    }
    (g / top).square().sum(..).item().to_f64().sqrt() * top.to_f64()
}
