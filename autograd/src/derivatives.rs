//! Derivatives of functions by name: products of the Jacobian or the Hessian with a vector, and the matrices.
//!
//! Names and the order of arguments are those of `torch.func` and JAX. A function is a closure from [`Vars`] to
//! [`Vars`]; it may use other variables. What it computes besides, it can write to a variable of the caller
//! (`has_aux` in JAX). Results can be differentiated again, also with respect to variables that the closure uses;
//! inside [`no_grad`](crate::no_grad) they are constants, which takes less time and memory.
//!
//! A Jacobian `J` of `m` results by `n` inputs is rarely needed as a matrix. `J v` ([`jvp`]) and `Jᵀ u` ([`vjp`]) cost
//! a few evaluations of the function each, whatever `m` and `n` are.

use crate::backprop::{grad, or_panic};
use crate::engine::identity;
use crate::forward::push;
use crate::gradients::Gradients;
use crate::graph::{Input, Var};
use crate::spectrum::Hessian;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::settings::{grad_enabled, with_grad_enabled};
use retrograd_tensor::{Real, Shape, Tensor};

/// One or several variables: the inputs or the results of a function that is differentiated. A variable, an array or
/// a `Vec` of variables, or a pair of such.
pub trait Vars<T: Real>: Sized {
    /// The same structure with an `A` for each variable.
    type Each<A>;

    /// `f` of each variable, in order.
    fn each<A>(&self, f: &mut dyn FnMut(&Var<T>) -> A) -> Self::Each<A>;

    /// The same structure with other variables.
    fn map(&self, f: &mut dyn FnMut(&Var<T>) -> Var<T>) -> Self;

    /// The variables, in order.
    fn list(&self) -> Vec<Var<T>> {
        let mut all = Vec::new();
        self.each(&mut |x| all.push(x.clone()));
        all
    }
}

impl<T: Real> Vars<T> for Var<T> {
    type Each<A> = A;

    fn each<A>(&self, f: &mut dyn FnMut(&Var<T>) -> A) -> A {
        f(self)
    }
    fn map(&self, f: &mut dyn FnMut(&Var<T>) -> Var<T>) -> Self {
        f(self)
    }
}

impl<T: Real, const N: usize> Vars<T> for [Var<T>; N] {
    type Each<A> = [A; N];

    fn each<A>(&self, f: &mut dyn FnMut(&Var<T>) -> A) -> [A; N] {
        self.each_ref().map(f)
    }
    fn map(&self, f: &mut dyn FnMut(&Var<T>) -> Var<T>) -> Self {
        self.each(f)
    }
}

impl<T: Real> Vars<T> for Vec<Var<T>> {
    type Each<A> = Vec<A>;

    fn each<A>(&self, f: &mut dyn FnMut(&Var<T>) -> A) -> Vec<A> {
        self.iter().map(f).collect()
    }
    fn map(&self, f: &mut dyn FnMut(&Var<T>) -> Var<T>) -> Self {
        self.each(f)
    }
}

impl<T: Real, X: Vars<T>, Y: Vars<T>> Vars<T> for (X, Y) {
    type Each<A> = (X::Each<A>, Y::Each<A>);

    fn each<A>(&self, f: &mut dyn FnMut(&Var<T>) -> A) -> Self::Each<A> {
        (self.0.each(f), self.1.each(f))
    }
    fn map(&self, f: &mut dyn FnMut(&Var<T>) -> Var<T>) -> Self {
        (self.0.map(f), self.1.map(f))
    }
}

/// The inputs as variables of their own, so that derivatives by them do not include other uses of the same
/// variables in the function. They stay connected to the variables that they are of.
fn inputs<T: Real, X: Vars<T>>(x: &X) -> X {
    x.map(&mut |x| {
        let x = x.unchanged();
        Var { edge: identity(&Input { edge: x.edge, shape: *x.value.shape() }), value: x.value }
    })
}

/// `f` at `x`, recorded; the inputs in the graph, and the results.
fn record<T: Real, X: Vars<T>, Y: Vars<T>>(f: impl FnOnce(&X) -> Y, x: &X) -> (X, Y) {
    let x = inputs(x);
    let y = with_grad_enabled(true, || f(&x));
    (x, y)
}

/// The results as the caller gets them.
fn results<T: Real, Y: Vars<T>>(y: &Y) -> Y {
    y.map(&mut |y| y.unchanged())
}

/// As many vectors as variables, each of the shape of its variable.
#[track_caller]
fn check_vectors<T: Real>(name: &'static str, what: &str, v: &[Var<T>], x: &[Var<T>]) {
    let (got, want) = (v.len(), x.len());
    assert(got == want, name, ErrorKind::Mismatch, || {
        format!("there are {want} variables and {got} vectors")
    });
    for (v, x) in v.iter().zip(x) {
        assert(v.shape() == x.shape(), name, ErrorKind::Mismatch, || {
            format!("{what} is {:?}, its vector {:?}", x.shape(), v.shape())
        });
    }
}

/// `Σ yᵤ` pulled back to `x`: `Jᵀ u` for the vectors `u`, zeros where nothing depends on an input.
#[track_caller]
fn pull<T: Real, X: Vars<T>>(y: &[Var<T>], u: &[Var<T>], x: &X) -> X {
    let inputs = x.list();
    let tracked: Vec<_> = y.iter().zip(u).filter(|(y, _)| y.is_tracked()).collect();
    let roots: Vec<_> = tracked.iter().map(|(y, u)| (*y, Some(*u))).collect();
    or_zeros(grad(&roots, &inputs.iter().collect::<Vec<_>>()), x)
}

/// Derivatives in the structure of `like`, zeros where there is none.
fn or_zeros<T: Real, X: Vars<T>>(found: Vec<Option<Var<T>>>, like: &X) -> X {
    let mut found = found.into_iter();
    like.map(&mut |x| {
        found.next().flatten().unwrap_or_else(|| Var::constant(Tensor::zeros(x.shape())))
    })
}

/// The results of `f` at `x`, and a function from vectors `u` of their shapes to `Jᵀ u`: the vector-Jacobian product,
/// which is reverse mode. The function may be called any number of times.
///
/// ```
/// use retrograd::autograd::vjp;
/// use retrograd::prelude::*;
/// let x = Var::constant(Tensor::from([1.0, 2.0]));
/// let (y, pull) = vjp(|x: &Var| x.square(), &x);
/// assert_eq!(y.value().to_vec(), [1.0, 4.0]);
/// let u = Var::constant(Tensor::from([1.0, 10.0]));
/// assert_eq!(pull(&u).value().to_vec(), [2.0, 40.0]);
/// ```
///
/// # Panics
/// If a vector has another shape than its result.
#[track_caller]
pub fn vjp<T: Real, X: Vars<T>, Y: Vars<T>>(
    f: impl FnOnce(&X) -> Y,
    x: &X,
) -> (Y, impl Fn(&Y) -> X) {
    let (x, y) = record(f, x);
    let (result, y) = (results(&y), y.list());
    (result, move |u| {
        let u = u.list();
        check_vectors("vjp", "a result", &u, &y);
        pull(&y, &u, &x)
    })
}

/// The gradient of a function whose result is a scalar, and the result: `grad_and_value` of `torch.func`, whose
/// order it has.
///
/// ```
/// use retrograd::autograd::grad_and_value;
/// use retrograd::prelude::*;
/// let w = Var::leaf(Tensor::scalar(3.0));
/// let (g, y) = grad_and_value(|[a, b]: &[Var; 2]| a * b * &w, &[Var::scalar(2.0), Var::scalar(5.0)]);
/// assert_eq!((y.item(), g[0].item(), g[1].item()), (30.0, 15.0, 6.0));
/// assert_eq!(g[0].backward().get(&w).unwrap().item(), 5.0);
/// ```
///
/// # Panics
/// If the result has not one element.
#[track_caller]
pub fn grad_and_value<T: Real, X: Vars<T>>(f: impl FnOnce(&X) -> Var<T>, x: &X) -> (X, Var<T>) {
    let (x, y) = record_scalar(f, x);
    (gradient(&y, &x), results(&y))
}

/// [`record`] of a function whose result is a scalar.
#[track_caller]
fn record_scalar<T: Real, X: Vars<T>>(f: impl FnOnce(&X) -> Var<T>, x: &X) -> (X, Var<T>) {
    let (x, y) = record(f, x);
    assert(y.value().numel() == 1, "grad", ErrorKind::Mismatch, || {
        format!("the function gives {:?}, not one element", y.shape())
    });
    (x, y)
}

/// The gradient of a scalar that was recorded.
#[track_caller]
fn gradient<T: Real, X: Vars<T>>(y: &Var<T>, x: &X) -> X {
    pull(std::slice::from_ref(y), &[Var::constant(Tensor::ones(y.shape()))], x)
}

/// The results of `f` at `x`, and their derivatives in the direction `v`: `J v`, the Jacobian-vector product.
///
/// It is computed in forward mode: each operation maps tangents of its inputs to tangents of its results. That takes
/// two evaluations of the function besides the first for products of matrices of which both factors have tangents, and
/// one for other operations. [`jvp_by_double_reverse`] computes it by two backward passes.
///
/// ```
/// use retrograd::autograd::jvp;
/// use retrograd::prelude::*;
/// let (x, v) = (Var::constant(Tensor::from([1.0, 2.0])), Var::constant(Tensor::from([1.0, 10.0])));
/// let mut sum = None; // another result
/// let (y, t) = jvp(
///     |x: &Var| {
///         sum = Some(x.sum(..).item());
///         x.square()
///     },
///     &x,
///     &v,
/// );
/// assert_eq!((y.value().to_vec(), t.value().to_vec()), (vec![1.0, 4.0], vec![2.0, 40.0]));
/// assert_eq!(sum, Some(3.0));
/// ```
///
/// # Panics
/// If a vector has another shape than its input.
#[track_caller]
pub fn jvp<T: Real, X: Vars<T>, Y: Vars<T>>(f: impl FnOnce(&X) -> Y, x: &X, v: &X) -> (Y, Y) {
    check_vectors("jvp", "an input", &v.list(), &x.list());
    let (x, y) = record(f, x);
    let tangents = forward(&y, &x.list(), &v.list());
    (results(&y), tangents)
}

/// The tangents of results, given those of inputs.
#[track_caller]
fn forward<T: Real, Y: Vars<T>>(y: &Y, x: &[Var<T>], v: &[Var<T>]) -> Y {
    let known = x.iter().zip(v).filter_map(|(x, v)| Some((x.id()?, v.clone())));
    or_zeros(or_panic(push(&y.list(), known.collect(), grad_enabled())), y)
}

/// [`jvp`] in reverse mode: `Jᵀ u` is linear in `u`, and the derivative of `vᵀ Jᵀ u` by `u` is `J v`.
///
/// # Panics
/// As [`jvp`].
#[track_caller]
pub fn jvp_by_double_reverse<T: Real, X: Vars<T>, Y: Vars<T>>(
    f: impl FnOnce(&X) -> Y,
    x: &X,
    v: &X,
) -> (Y, Y) {
    check_vectors("jvp", "an input", &v.list(), &x.list());
    let (x, y) = record(f, x);
    let u = y.map(&mut |y| Var::leaf(Tensor::zeros(y.shape())));
    let transposed = with_grad_enabled(true, || pull(&y.list(), &u.list(), &x));
    (results(&y), pull(&transposed.list(), &v.list(), &u))
}

/// The Jacobian of a function with one result, for each input: `J[.., i, ..]` of the shape of the result followed by
/// that of the input. By columns if the inputs have fewer elements than the result ([`jacfwd`]), else by rows ([`jacrev`]).
///
/// ```
/// use retrograd::autograd::jacobian;
/// use retrograd::prelude::*;
/// let a = Var::constant(Tensor::from([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]));
/// let x = Var::constant(Tensor::from([1.0, 1.0]));
/// let j = jacobian(|x: &Var| a.matmul(x), &x);
/// assert_eq!(j.value(), a.value());
/// ```
#[track_caller]
pub fn jacobian<T: Real, X: Vars<T>>(f: impl FnOnce(&X) -> Var<T>, x: &X) -> X {
    let (x, y) = record(f, x);
    let n: usize = x.list().iter().map(|x| x.value().numel()).sum();
    if n < y.value().numel() { columns(&y, &x) } else { rows(&y, &x) }
}

/// [`jacobian`] by rows: a backward pass for each element of the result.
#[track_caller]
pub fn jacrev<T: Real, X: Vars<T>>(f: impl FnOnce(&X) -> Var<T>, x: &X) -> X {
    let (x, y) = record(f, x);
    rows(&y, &x)
}

/// [`jacobian`] by columns: a product with a tangent for each element of the inputs.
#[track_caller]
pub fn jacfwd<T: Real, X: Vars<T>>(f: impl FnOnce(&X) -> Var<T>, x: &X) -> X {
    let (x, y) = record(f, x);
    columns(&y, &x)
}

/// The shape of `y` followed by that of `x`.
fn joined(y: &Shape, x: &Shape) -> Shape {
    Shape::from(&[&y[..], &x[..]].concat()[..])
}

/// The elements of the standard basis.
fn basis<T: Real>(shape: &Shape) -> impl Iterator<Item = Var<T>> {
    let (n, shape) = (shape.numel(), *shape);
    (0..n).map(move |i| {
        let mut x = vec![T::ZERO; n];
        x[i] = T::ONE;
        Var::constant(Tensor::from_vec(x, shape))
    })
}

#[track_caller]
fn stack<T: Real>(parts: &[Var<T>], axis: isize, shape: Shape) -> Var<T> {
    match parts.is_empty() {
        true => Var::constant(Tensor::zeros(shape)),
        false => Var::stack(&parts.iter().collect::<Vec<_>>(), axis).reshape(shape),
    }
}

#[track_caller]
fn rows<T: Real, X: Vars<T>>(y: &Var<T>, x: &X) -> X {
    let rows: Vec<Vec<Var<T>>> =
        basis(y.shape()).map(|u| pull(std::slice::from_ref(y), &[u], x).list()).collect();
    let mut at = 0..;
    x.map(&mut |x| {
        let i = at.next().expect("endless");
        let parts: Vec<Var<T>> = rows.iter().map(|row| row[i].clone()).collect();
        stack(&parts, 0, joined(y.shape(), x.shape()))
    })
}

#[track_caller]
fn columns<T: Real, X: Vars<T>>(y: &Var<T>, x: &X) -> X {
    x.map(&mut |x| {
        let of = |v| forward(y, std::slice::from_ref(x), &[v]);
        let parts: Vec<Var<T>> = basis(x.shape()).map(of).collect();
        stack(&parts, -1, joined(y.shape(), x.shape()))
    })
}

/// The Hessian of a function whose result is a scalar: for each pair of inputs `i` and `j`, second derivatives of the
/// shape of `i` followed by that of `j`. For one input it is one variable.
///
/// ```
/// use retrograd::autograd::hessian;
/// use retrograd::prelude::*;
/// let x = Var::constant(Tensor::from([1.0, 2.0]));
/// let h = hessian(|x: &Var| x.powf(3.0).sum(..), &x);
/// assert_eq!(h.value(), &Tensor::from([[6.0, 0.0], [0.0, 12.0]]));
///
/// let [[_, ab], _] = hessian(|[a, b]: &[Var; 2]| a.square() * b, &[Var::scalar(3.0), Var::scalar(5.0)]);
/// assert_eq!(ab.item(), 6.0);
/// ```
///
/// # Panics
/// If the result has not one element.
#[track_caller]
pub fn hessian<T: Real, X: Vars<T>>(f: impl FnOnce(&X) -> Var<T>, x: &X) -> X::Each<X> {
    let (x, y) = record_scalar(f, x);
    let mut g = with_grad_enabled(true, || gradient(&y, &x)).list().into_iter();
    x.each(&mut |_| rows(&g.next().expect("one for each input"), &x))
}

/// The gradient of a function whose result is a scalar, and the product of its Hessian and `v`: `H v`, by a backward
/// pass over a recorded backward pass. Pearlmutter 1994, Fast Exact Multiplication by the Hessian.
///
/// By all parameters of a model: [`Var::hvp`].
///
/// ```
/// use retrograd::autograd::hvp;
/// use retrograd::prelude::*;
/// let (x, v) = (Var::constant(Tensor::from([1.0, 2.0])), Var::constant(Tensor::from([1.0, -1.0])));
/// let (g, hv) = hvp(|x: &Var| x.powf(3.0).sum(..), &x, &v);
/// assert_eq!((g.value().to_vec(), hv.value().to_vec()), (vec![3.0, 12.0], vec![6.0, -12.0]));
/// ```
///
/// # Panics
/// If the result has not one element, or a vector has another shape than its input.
#[track_caller]
pub fn hvp<T: Real, X: Vars<T>>(f: impl FnOnce(&X) -> Var<T>, x: &X, v: &X) -> (X, X) {
    check_vectors("hvp", "an input", &v.list(), &x.list());
    let (x, y) = record_scalar(f, x);
    let g = with_grad_enabled(true, || gradient(&y, &x));
    (results(&g), pull(&g.list(), &v.list(), &x))
}

/// The product of the Gauss-Newton matrix `Jᵀ H J` and `v`, for the loss `loss(f(x))`: `J` is the Jacobian of `f`, and
/// `H` the Hessian of the loss by the result of `f`. It leaves out second derivatives of `f`, and is positive
/// semidefinite if the loss is convex. Schraudolph 2002, Fast Curvature Matrix-Vector Products.
///
/// ```
/// use retrograd::autograd::gauss_newton_product;
/// use retrograd::prelude::*;
/// let (x, v) = (Var::constant(Tensor::from([1.0, 2.0])), Var::constant(Tensor::from([1.0, 1.0])));
/// let gv = gauss_newton_product(|x: &Var| x.square(), |y| y.square().sum(..) * 0.5, &x, &v);
/// assert_eq!(gv.value().to_vec(), [4.0, 16.0]); // (2x)² v
/// ```
///
/// # Panics
/// As [`hvp`].
#[track_caller]
pub fn gauss_newton_product<T: Real, X: Vars<T>, Y: Vars<T>>(
    f: impl FnOnce(&X) -> Y,
    loss: impl FnOnce(&Y) -> Var<T>,
    x: &X,
    v: &X,
) -> X {
    check_vectors("gauss_newton_product", "an input", &v.list(), &x.list());
    let (x, y) = record(f, x);
    let jv = forward(&y, &x.list(), &v.list());
    let (_, hjv) = hvp(loss, &y, &jv);
    pull(&y.list(), &hjv.list(), &x)
}

impl<T: Real> Var<T> {
    /// The product of the Hessian of this scalar and `v`, a vector over leaves, such as all parameters of a model: by a
    /// backward pass over a recorded one. The graph is kept, so that other products can follow.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let w = Var::leaf(Tensor::from([1.0, 2.0]));
    /// let loss = w.powf(3.0).sum(..);
    /// let v: Gradients = [(w.id().unwrap(), Tensor::from([1.0, 1.0]))].into_iter().collect();
    /// assert_eq!(loss.hvp(&v).get(&w).unwrap().to_vec(), [6.0, 12.0]);
    /// ```
    ///
    /// # Panics
    /// If this is not a scalar, or a vector has another shape than its leaf.
    #[track_caller]
    pub fn hvp(&self, v: &Gradients<T>) -> Gradients<T> {
        Hessian::of(self, v.iter().map(|(id, _)| id)).times(v)
    }
}
