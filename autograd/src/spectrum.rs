//! What is known of a symmetric matrix from its products with vectors: trace, diagonal, eigenvalues.
//!
//! A vector is a [`Gradients`] over leaves, such as the parameters of a model, and a matrix is a function from vectors
//! to vectors: products with a [`Hessian`], or others.

use crate::backprop::{or_panic, seeds};
use crate::engine::Engine;
use crate::gradients::Gradients;
use crate::graph::{Id, Var};
use crate::var::no_grad;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::with_grad_enabled;
use retrograd_tensor::{Real, Tensor};

/// The Hessian of a scalar by leaves, as the recorded gradient, of which each product with a vector is a backward pass.
///
/// ```
/// use retrograd::autograd::Hessian;
/// use retrograd::prelude::*;
/// let w = Var::leaf(Tensor::from([1.0, 2.0]));
/// let h = Hessian::of(&w.powf(3.0).sum(..), [w.id().unwrap()]);
/// let v: Gradients = [(w.id().unwrap(), Tensor::from([1.0, 1.0]))].into_iter().collect();
/// assert_eq!(h.times(&v).get(&w).unwrap().to_vec(), [6.0, 12.0]);
/// ```
#[derive(Debug)]
pub struct Hessian<T: Real> {
    /// The leaves, in ascending order, and the gradient by each.
    gradient: Vec<(Id, Var<T>)>,
}

impl<T: Real> Hessian<T> {
    /// The Hessian by these leaves; those on which the scalar does not depend are left out.
    ///
    /// # Panics
    /// As [`Var::backward`].
    #[track_caller]
    pub fn of(y: &Var<T>, leaves: impl IntoIterator<Item = Id>) -> Hessian<T> {
        let mut wanted: Vec<Id> = leaves.into_iter().collect();
        wanted.sort_unstable();
        let roots = or_panic(seeds(vec![(y, None)]));
        let engine = Engine::new(true, true, wanted.clone(), wanted.first().copied());
        let mut found = or_panic(with_grad_enabled(true, || engine.run(roots)));
        let of = |id: Id| Some((id, found.remove(&id).flatten()?));
        Hessian { gradient: wanted.into_iter().filter_map(of).collect() }
    }

    /// The gradient.
    pub fn gradient(&self) -> Gradients<T> {
        self.gradient.iter().map(|(id, g)| (*id, g.value().clone())).collect()
    }

    /// The product with a vector; a leaf that the vector lacks counts as zeros.
    ///
    /// # Panics
    /// If a part of the vector has another shape than its leaf.
    #[track_caller]
    pub fn times(&self, v: &Gradients<T>) -> Gradients<T> {
        let given = self.gradient.iter().filter(|(_, g)| g.is_tracked());
        let given = given
            .filter_map(|(id, g)| Some((g, v.by_id(*id).cloned())).filter(|(_, v)| v.is_some()));
        let wanted: Vec<Id> = self.gradient.iter().map(|(id, _)| *id).collect();
        let engine = Engine::new(true, false, wanted.clone(), wanted.first().copied());
        let roots = or_panic(seeds(given.collect()));
        let mut found = or_panic(no_grad(|| engine.run(roots)));
        let product = |(id, g): &(Id, Var<T>)| {
            let product = found.remove(id).flatten().map(Var::into_value);
            (*id, product.unwrap_or_else(|| Tensor::zeros(g.shape())))
        };
        self.gradient.iter().map(product).collect()
    }
}

#[track_caller]
fn at_least_1(name: &'static str, what: &str, n: usize) {
    assert(n > 0, name, ErrorKind::Value, || format!("needs at least 1 {what}"));
}

/// An estimate of the trace of a matrix, from its products with `samples` vectors of random signs: the mean of
/// `vᵀ A v`. Hutchinson 1989. The leaves and shapes are those of `like`.
///
/// ```
/// use retrograd::autograd::{Hessian, trace};
/// use retrograd::prelude::*;
/// let w = Var::leaf(Tensor::from([1.0, 2.0]));
/// let h = Hessian::of(&w.powf(3.0).sum(..), [w.id().unwrap()]);
/// let trace = trace(|v| h.times(v), &h.gradient(), 4, &mut Rng::new(1));
/// assert_eq!(trace, 18.0); // 6 + 12, exact for a diagonal matrix
/// ```
///
/// # Panics
/// If there are no samples.
#[track_caller]
pub fn trace<T: Real>(
    mut times: impl FnMut(&Gradients<T>) -> Gradients<T>,
    like: &Gradients<T>,
    samples: usize,
    rng: &mut Rng,
) -> f64 {
    at_least_1("trace", "sample", samples);
    let sample = |_| {
        let v = like.signs_like(rng);
        v.dot(&times(&v))
    };
    (0..samples).map(sample).sum::<f64>() / samples as f64
}

/// An estimate of the diagonal of a matrix: the mean of `v ⊙ A v` over `samples` vectors of random signs. Bekas,
/// Kokiopoulou, Saad 2007.
///
/// # Panics
/// If there are no samples.
#[track_caller]
pub fn diagonal<T: Real>(
    mut times: impl FnMut(&Gradients<T>) -> Gradients<T>,
    like: &Gradients<T>,
    samples: usize,
    rng: &mut Rng,
) -> Gradients<T> {
    at_least_1("diagonal", "sample", samples);
    let mut sum = Gradients::empty();
    for _ in 0..samples {
        let v = like.signs_like(rng);
        let product = times(&v);
        let at = |(id, v): (Id, &Tensor<T>)| Some((id, v.mul(product.by_id(id)?)));
        sum.accumulate(v.iter().filter_map(at).collect());
    }
    sum.scale(T::from_f64(1.0 / samples as f64));
    sum
}

/// The eigenvalue of largest magnitude, and its eigenvector, after `steps` of power iteration from `start`:
/// `v ← A v / |A v|`, and the Rayleigh quotient `vᵀ A v`. [`lanczos`] needs fewer products.
///
/// # Panics
/// If `start` is 0, or there are no steps.
#[track_caller]
pub fn power_iteration<T: Real>(
    mut times: impl FnMut(&Gradients<T>) -> Gradients<T>,
    start: &Gradients<T>,
    steps: usize,
) -> (f64, Gradients<T>) {
    at_least_1("power_iteration", "step", steps);
    let mut v = normalized("power_iteration", start);
    let mut eigenvalue = 0.0;
    for _ in 0..steps {
        let product = times(&v);
        eigenvalue = v.dot(&product);
        if product.norm() == 0.0 {
            break;
        }
        v = normalized("power_iteration", &product);
    }
    (eigenvalue, v)
}

#[track_caller]
fn normalized<T: Real>(name: &'static str, v: &Gradients<T>) -> Gradients<T> {
    let norm = v.norm();
    assert(norm > 0.0, name, ErrorKind::Value, || format!("a vector has the norm {norm}"));
    let mut v = v.clone();
    v.scale(T::from_f64(1.0 / norm));
    v
}

/// A symmetric tridiagonal matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Tridiagonal {
    /// The diagonal.
    pub diagonal: Vec<f64>,
    /// The elements beside it, one fewer.
    pub beside: Vec<f64>,
}

/// The matrix in the basis of the Krylov space of `start`: `steps` products and a tridiagonal matrix, whose extreme
/// eigenvalues converge to those of the matrix. Lanczos 1950. Vectors are orthogonalised against all earlier ones, which
/// are kept. There are fewer steps if the space is invariant.
///
/// ```
/// use retrograd::autograd::{Hessian, lanczos};
/// use retrograd::prelude::*;
/// let w = Var::leaf(Tensor::from([1.0f64, 2.0, 3.0]));
/// let h = Hessian::of(&w.powf(3.0).sum(..), [w.id().unwrap()]); // 6, 12 and 18 on the diagonal
/// let t = lanczos(|v| h.times(v), &h.gradient(), 3);
/// for (found, eigenvalue) in t.eigenvalues().iter().zip([6.0, 12.0, 18.0]) {
///     assert!((found - eigenvalue).abs() < 1e-12);
/// }
/// ```
///
/// # Panics
/// If `start` is 0, or there are no steps.
#[track_caller]
pub fn lanczos<T: Real>(
    mut times: impl FnMut(&Gradients<T>) -> Gradients<T>,
    start: &Gradients<T>,
    steps: usize,
) -> Tridiagonal {
    at_least_1("lanczos", "step", steps);
    let mut basis = vec![normalized("lanczos", start)];
    let mut t = Tridiagonal { diagonal: Vec::new(), beside: Vec::new() };
    loop {
        let v = basis.last().expect("not empty");
        let mut next = times(v);
        let size = next.norm();
        t.diagonal.push(v.dot(&next));
        // Twice: once loses digits to cancellation.
        for v in basis.iter().chain(&basis) {
            next.axpy(-v.dot(&next), v);
        }
        let beside = next.norm();
        let is_invariant = beside <= 10.0 * T::EPSILON.to_f64() * size;
        if t.diagonal.len() >= steps || is_invariant {
            return t;
        }
        t.beside.push(beside);
        next.scale(T::from_f64(1.0 / beside));
        basis.push(next);
    }
}

impl Tridiagonal {
    /// The eigenvalues in ascending order, by bisection: the number of negative pivots of `T − x` is the number of
    /// eigenvalues below `x` (Sylvester's law of inertia).
    pub fn eigenvalues(&self) -> Vec<f64> {
        let n = self.diagonal.len();
        let beside = |i: usize| self.beside.get(i).map_or(0.0, |b| b.abs());
        let radius = |i: usize| if i == 0 { beside(0) } else { beside(i - 1) + beside(i) };
        let ends = |sign: f64| {
            (0..n).map(move |i| sign * self.diagonal[i] + radius(i)).fold(f64::MIN, f64::max)
        };
        let (low, high) = (-ends(-1.0), ends(1.0));
        let below = |x: f64| {
            let mut pivot = 1.0;
            let negative = (0..n).filter(|&i| {
                let square = if i == 0 { 0.0 } else { self.beside[i - 1].powi(2) };
                pivot = self.diagonal[i] - x - square / pivot;
                if pivot == 0.0 {
                    pivot = f64::MIN_POSITIVE;
                }
                pivot < 0.0
            });
            negative.count()
        };
        let kth = |k| {
            let (mut low, mut high) = (low, high);
            // Until neighbouring numbers are left.
            loop {
                let middle = 0.5 * (low + high);
                if middle <= low || middle >= high {
                    return middle;
                }
                if below(middle) > k { high = middle } else { low = middle }
            }
        };
        (0..n).map(kth).collect()
    }
}
