//! Linear layers, fused with the bias, residual or activation that follows.
//!
//! A separate pass over the product would read it from memory again. Here the fused operation is an
//! [`Epilogue`] of the matrix multiplication: it works on each block while it is in the cache.

use crate::error::{ErrorKind, OrPanic, Result, ShapeError, assert};
use crate::kernels::Real;
use crate::kernels::gemm::{Epilogue, gemm_with_epilogue};
use crate::kernels::rows::{splat, write_rows};
use crate::matrix::{MatMut, MatRef};
use crate::ops::matmul::{matmul_shape, matrix};
use crate::ops::pointwise::Pointwise;
use crate::settings;
use crate::shape::Shape;
use crate::simd::{Kernel, Lanes, Level, inlined};
use crate::tensor::Tensor;

/// # Linear layers
impl<T: Real> Tensor<T> {
    /// `x · Wᵀ + b`: `[.., inputs]` with a weight `[outputs, inputs]` and a bias `[outputs]` is
    /// `[.., outputs]`.
    ///
    /// # Panics
    /// If shapes do not agree.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let w = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// let y = Tensor::from([1.0, -1.0]).linear(&w, Some(&Tensor::from([10.0, 20.0])));
    /// assert_eq!(y.to_vec(), [9.0, 19.0]);
    /// ```
    #[track_caller]
    pub fn linear(&self, weight: &Tensor<T>, bias: Option<&Tensor<T>>) -> Tensor<T> {
        let shape = linear_shape(self, weight, bias).or_panic();
        if bias.is_none() {
            return self.matmul(&weight.t());
        }
        self.linear_with(weight, bias, None, shape)
    }

    /// `r + (x · Wᵀ + b)` with a residual `r` `[.., outputs]`: the same numbers as from
    /// [`Tensor::linear`] and a sum, in one pass.
    ///
    /// # Panics
    /// If shapes do not agree; the residual is not broadcast.
    #[track_caller]
    pub fn linear_add(
        &self,
        weight: &Tensor<T>,
        bias: Option<&Tensor<T>>,
        residual: &Tensor<T>,
    ) -> Tensor<T> {
        let shape = linear_shape(self, weight, bias).or_panic();
        assert(*residual.shape() == shape, "linear_add", ErrorKind::Mismatch, || {
            format!("a residual {:?} to a result {shape:?}", residual.shape())
        });
        self.linear_with(weight, bias, Some(residual), shape)
    }

    #[track_caller]
    fn linear_with(
        &self,
        weight: &Tensor<T>,
        bias: Option<&Tensor<T>>,
        residual: Option<&Tensor<T>>,
        shape: Shape,
    ) -> Tensor<T> {
        let [bias, residual] = [bias, residual].map(|x| x.map(Tensor::contiguous));
        let add = AddBiasAndResidual {
            bias: bias.as_ref().map(Tensor::as_slice),
            residual: residual.as_ref().map(Tensor::as_slice),
            cols: weight.size(0),
            level: settings::level(),
        };
        Tensor::build("linear", shape, |out| {
            let x = self.as_rows();
            gemm_with_epilogue(matrix_of(&x), matrix_of(weight).t(), &add, out, None);
        })
    }

    /// `y = f(x · Wᵀ + b)` and its derivative `f'(x · Wᵀ + b)`: the same numbers as from
    /// [`Tensor::linear`] and [`Tensor::map`] one after the other, in one pass.
    ///
    /// # Panics
    /// If shapes do not agree.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::ops::activation::Relu;
    /// let w = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// let (y, derivative) = Tensor::from([2.0, -1.5]).linear_activation(&w, None, Relu);
    /// assert_eq!((y.to_vec(), derivative.to_vec()), (vec![0.0, 0.0], vec![0.0, 0.0]));
    /// ```
    #[track_caller]
    pub fn linear_activation<P: Pointwise<T>>(
        &self,
        weight: &Tensor<T>,
        bias: Option<&Tensor<T>>,
        op: P,
    ) -> (Tensor<T>, Tensor<T>) {
        let level = settings::level();
        let apply = |block: MatMut<'_, T>, derivatives: MatMut<'_, T>| {
            T::dispatch(level, Apply { op, block, derivatives });
        };
        self.linear_with_map(P::NAME, weight, bias, &apply, &|| T::operations(OnOne { op }))
    }

    /// [`Tensor::linear_activation`] without the formula, so that it is compiled once for all formulas.
    #[inline(never)]
    #[track_caller]
    fn linear_with_map(
        &self,
        name: &'static str,
        weight: &Tensor<T>,
        bias: Option<&Tensor<T>>,
        apply: &(dyn Fn(MatMut<'_, T>, MatMut<'_, T>) + Send + Sync),
        operations: &(dyn Fn() -> Option<u64> + Send + Sync),
    ) -> (Tensor<T>, Tensor<T>) {
        let shape = linear_shape(self, weight, bias).or_panic();
        let bias = bias.map(Tensor::contiguous);
        let bias = bias.as_ref().map(Tensor::as_slice);
        let add = AddBiasAndResidual {
            bias,
            residual: None,
            cols: weight.size(0),
            level: settings::level(),
        };
        let map = MapWithDerivative { name, add, apply, operations };
        Tensor::build2(name, shape, shape, |y, derivatives| {
            let x = self.as_rows();
            gemm_with_epilogue(matrix_of(&x), matrix_of(weight).t(), &map, y, Some(derivatives));
        })
    }

    /// `(a · b) ∘ c`: the product of a `[.., m, k]` with a matrix `[k, n]`, each element times
    /// the element of `c` `[.., m, n]`.
    ///
    /// # Panics
    /// If shapes do not agree.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let a = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(a.matmul_times(&a, &a).to_vec(), [7.0, 20.0, 45.0, 88.0]);
    /// ```
    #[track_caller]
    pub fn matmul_times(&self, other: &Tensor<T>, factor: &Tensor<T>) -> Tensor<T> {
        let shape = matmul_shape(self.shape(), other.shape()).or_panic();
        let fits = other.rank() == 2 && *factor.shape() == shape;
        assert(fits, "matmul_times", ErrorKind::Mismatch, || {
            format!("{:?} · {:?} times {:?}", self.shape(), other.shape(), factor.shape())
        });
        let factor = factor.contiguous();
        let times = MultiplyBy {
            factor: factor.as_slice(),
            cols: other.size(-1),
            level: settings::level(),
        };
        Tensor::build("matmul", shape, |out| {
            let a = self.as_rows();
            gemm_with_epilogue(matrix_of(&a), matrix_of(other), &times, out, None);
        })
    }

    /// The leading axes as one.
    #[track_caller]
    fn as_rows(&self) -> Tensor<T> {
        let [leading @ .., width] = &self.shape()[..] else { unreachable!("an axis at least") };
        self.reshape([leading.iter().product(), *width])
    }
}

fn matrix_of<T: Real>(x: &Tensor<T>) -> MatRef<'_, T> {
    matrix(x, x.layout().offset())
}

/// The shape of a linear layer's result.
fn linear_shape<T: Real>(
    x: &Tensor<T>,
    weight: &Tensor<T>,
    bias: Option<&Tensor<T>>,
) -> Result<Shape> {
    let fits = x.rank() > 0 && weight.rank() == 2 && x.size(-1) == weight.size(1);
    let outputs = fits.then(|| weight.size(0));
    if outputs.is_none() || bias.is_some_and(|b| b.shape()[..] != [weight.size(0)]) {
        let bias = bias.map(|b| format!(", bias {:?}", b.shape())).unwrap_or_default();
        let text = format!("{:?}, weight {:?}{bias}", x.shape(), weight.shape());
        let hint = "[.., inputs], [outputs, inputs] and [outputs] go together";
        return Err(ShapeError::new("linear", ErrorKind::Mismatch, text).hint(hint));
    }
    let mut dims = x.shape().to_vec();
    dims[x.rank() - 1] = weight.size(0);
    Shape::checked("linear", &dims)
}

/// Adds a bias to every row, and a row-major residual of `cols` columns, as far as there are any.
struct AddBiasAndResidual<'a, T> {
    bias: Option<&'a [T]>,
    residual: Option<&'a [T]>,
    cols: usize,
    level: Level,
}

impl<T: Real> Epilogue<T> for AddBiasAndResidual<'_, T> {
    fn apply(
        &self,
        (row, col): (usize, usize),
        mut block: MatMut<'_, T>,
        _: Option<MatMut<'_, T>>,
    ) {
        if let Some(bias) = self.bias {
            let (matrix, block) = (&bias[col..], block.whole());
            T::dispatch(self.level, Added { matrix, row_stride: 0, block });
        }
        if let Some(residual) = self.residual {
            let matrix = &residual[row * self.cols + col..];
            let row_stride = self.cols;
            T::dispatch(self.level, Added { matrix, row_stride, block });
        }
    }

    fn name(&self) -> &'static str {
        if self.residual.is_some() { "linear_add" } else { "linear" }
    }

    fn traffic(&self) -> (usize, usize) {
        let operands = [self.bias, self.residual].into_iter().flatten();
        operands.fold((0, 0), |(read, each), x| (read + x.len(), each + 1))
    }
}

/// Adds a bias and a residual, and applies a function; the auxiliary output is its derivative.
struct MapWithDerivative<'a, T> {
    name: &'static str,
    add: AddBiasAndResidual<'a, T>,
    apply: &'a (dyn Fn(MatMut<'_, T>, MatMut<'_, T>) + Send + Sync),
    /// Those of the function and its derivative on an element, if they are known.
    operations: &'a (dyn Fn() -> Option<u64> + Send + Sync),
}

impl<T: Real> Epilogue<T> for MapWithDerivative<'_, T> {
    fn apply(&self, origin: (usize, usize), mut block: MatMut<'_, T>, aux: Option<MatMut<'_, T>>) {
        self.add.apply(origin, block.whole(), None);
        (self.apply)(block, aux.expect("an auxiliary output"));
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn traffic(&self) -> (usize, usize) {
        let (read, each) = self.add.traffic();
        (read, each + (self.operations)().unwrap_or(2) as usize)
    }
}

/// Multiplies by the elements of a row-major matrix of `cols` columns.
struct MultiplyBy<'a, T> {
    factor: &'a [T],
    cols: usize,
    level: Level,
}

impl<T: Real> Epilogue<T> for MultiplyBy<'_, T> {
    fn apply(&self, origin: (usize, usize), block: MatMut<'_, T>, _: Option<MatMut<'_, T>>) {
        let (matrix, row_stride) = (&self.factor[origin.0 * self.cols + origin.1..], self.cols);
        T::dispatch(self.level, Multiplied { matrix, row_stride, block });
    }

    fn name(&self) -> &'static str {
        "matmul_times"
    }

    fn traffic(&self) -> (usize, usize) {
        (self.factor.len(), 1)
    }
}

type Added<'a, T> = Combine<'a, T, false>;
type Multiplied<'a, T> = Combine<'a, T, true>;

/// Multiplies by a row-major matrix if `TIMES`, else adds it. Its rows are `row_stride` apart: with 0, one row
/// serves all.
struct Combine<'a, T, const TIMES: bool> {
    matrix: &'a [T],
    row_stride: usize,
    block: MatMut<'a, T>,
}

impl<T: Real, const TIMES: bool> Kernel<T> for Combine<'_, T, TIMES> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<T>>(mut self, s: S) {
        for i in 0..self.block.rows() {
            write_rows(
                s,
                [&self.matrix[i * self.row_stride..][..self.block.cols()]],
                [self.block.row(i)],
                inlined!(|[r], [x]| [if TIMES { x * r } else { x + r }]),
            );
        }
    }
}

/// The function and its derivative on a vector of ones, to count their operations.
struct OnOne<P> {
    op: P,
}

impl<T: Real, P: Pointwise<T>> Kernel<T> for OnOne<P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        self.op.value_and_derivative(splat(s, T::ONE));
    }
}

struct Apply<'a, T, P> {
    op: P,
    block: MatMut<'a, T>,
    derivatives: MatMut<'a, T>,
}

impl<T: Real, P: Pointwise<T>> Kernel<T> for Apply<'_, T, P> {
    type Out = ();
    #[inline(always)]
    fn run<S: Lanes<T>>(mut self, s: S) {
        for i in 0..self.block.rows() {
            write_rows(
                s,
                [],
                [self.block.row(i), self.derivatives.row(i)],
                inlined!(|[], [x, _]| {
                    let (y, derivative) = self.op.value_and_derivative(x);
                    [y, derivative]
                }),
            );
        }
    }
}
