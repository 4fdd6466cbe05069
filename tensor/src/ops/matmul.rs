//! Matrix multiplication with broadcast batches.

use crate::error::{ErrorKind, OrPanic, Result, ShapeError, assert};
use crate::kernels::Real;
use crate::kernels::elementwise::map_with;
use crate::kernels::gemm::{Products, gemm, gemm_symmetric};
use crate::loop_nest::LoopNest;
use crate::matrix::{MatMut, MatRef};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The shape of `a · b`, by NumPy's rules for matmul.
///
/// ```
/// use retrograd::tensor::ops::matmul::matmul_shape;
/// let shape = matmul_shape(&[5, 2, 3].into(), &[3, 4].into()).unwrap();
/// assert_eq!(shape, [5, 2, 4]);
/// ```
pub fn matmul_shape(a: &Shape, b: &Shape) -> Result<Shape> {
    let fail = |kind, text: String, hint| Err(ShapeError::new("matmul", kind, text).hint(hint));
    if a.rank() == 0 || b.rank() == 0 {
        let text = format!("{a:?} · {b:?}: operands need at least one axis");
        return fail(ErrorKind::Rank, text, "multiply by a number with `*`");
    }
    let (k_a, k_b) = (a[a.rank() - 1], b[b.rank().max(2) - 2]);
    if k_a != k_b {
        let text = format!(
            "{a:?} · {b:?}: the last axis of the left is {k_a}, axis {} of the right is {k_b}",
            if b.rank() == 1 { -1 } else { -2 }
        );
        return fail(ErrorKind::Mismatch, text, "transpose one of them with t()?");
    }
    let batch = |s: &Shape| Shape::from(&s[..s.rank().saturating_sub(2)]);
    let mut dims = Shape::broadcast("matmul", &batch(a), &batch(b))?.to_vec();
    dims.extend((a.rank() > 1).then(|| a[a.rank() - 2]));
    dims.extend((b.rank() > 1).then(|| b[b.rank() - 1]));
    Shape::checked("matmul", &dims)
}

/// # Matrix multiplication
impl<T: Real> Tensor<T> {
    /// Matrix multiplication over the last two axes, with leading axes broadcast:
    /// `[.., m, k] · [.., k, n]` is `[.., m, n]`. An operand of rank 1 is a row on the left and a
    /// column on the right, and its axis is dropped from the result. Any strides are read in place.
    ///
    /// With `k = 0` the result is 0.
    ///
    /// # Panics
    /// If the inner sizes differ, batches do not broadcast, or an operand has rank 0.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let a = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
    /// assert_eq!(a.matmul(&a.t()).to_vec(), [5.0, 11.0, 11.0, 25.0]);
    /// assert_eq!(a.matmul(&Tensor::from([1.0, 1.0])).to_vec(), [3.0, 7.0]);
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Tensor<T>) -> Tensor<T> {
        let shape = matmul_shape(self.shape(), other.shape()).or_panic();
        let a = if self.rank() == 1 { self.unsqueeze(0) } else { self.clone() };
        let b = if other.rank() == 1 { other.unsqueeze(1) } else { other.clone() };
        if a.rank() > 2 && b.rank() == 2 && a.numel() > 0 {
            // One product instead of a batch: the leading axes are merged with the rows, if their
            // strides allow it.
            let tall = Shape::from([a.numel() / a.size(-1), a.size(-1)]);
            if a.layout().reshape(tall).is_some() {
                return a.reshape(tall).matmul(&b).reshape(shape);
            }
        }
        Tensor::build("matmul", shape, |out| match (a.rank(), b.rank()) {
            (2, 2) => {
                let at = |t| matrix(t, t.layout().offset());
                gemm(&Products::one(at(&a), at(&b)), false, out);
            }
            _ => products(&a, &b, |products| gemm(&products, false, out)),
        })
    }

    /// The product of two matrices of which the caller knows that it is symmetric, as `x · xᵀ`; one half is
    /// computed. The bits are those of [`Tensor::matmul`].
    #[doc(hidden)]
    #[track_caller]
    pub fn symmetric_matmul(&self, other: &Tensor<T>) -> Tensor<T> {
        let shape = matmul_shape(self.shape(), other.shape()).or_panic();
        let at = |t| matrix(t, t.layout().offset());
        Tensor::build("matmul", shape, |out| gemm_symmetric(at(self), at(other), out))
    }

    /// [`Tensor::matmul`] of operands with at least two axes, where `0 · x` is 0 for every `x` on
    /// the right, including NaN and infinities: for weights that are 0 where they are masked.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (w, x) = (Tensor::from([[1.0f32, 0.0]]), Tensor::from([[2.0], [f32::NAN]]));
    /// assert_eq!(w.matmul_skipping_zeros(&x).item(), 2.0);
    /// assert!(w.matmul(&x).item().is_nan());
    /// ```
    #[track_caller]
    pub fn matmul_skipping_zeros(&self, other: &Tensor<T>) -> Tensor<T> {
        let Some(finite) = other.without_non_finite() else {
            return self.matmul(other);
        };
        let mut product = self.matmul(&finite);
        let size = self.size(-2) * other.size(-1);
        let out = product.make_mut().chunks_exact_mut(size.max(1));
        products(self, other, |products| {
            for ((_, a, b), out) in products.iter().zip(out) {
                a.add_product_with_non_finite(b, MatMut::new(out, a.rows, b.cols));
            }
        });
        product
    }

    /// The tensor with NaN and infinities replaced by 0; `None` if there are none.
    pub(crate) fn without_non_finite(&self) -> Option<Tensor<T>> {
        if self.numel() == 0 || self.abs().max(..).item().to_f64().is_finite() {
            return None;
        }
        let only_finite = |x: T| if x.to_f64().is_finite() { x } else { T::ZERO };
        Some(map_with("without_non_finite", self, only_finite))
    }

    /// Inner product of two vectors, a scalar.
    #[track_caller]
    pub fn dot(&self, other: &Tensor<T>) -> Tensor<T> {
        let fits = self.rank() == 1 && self.shape() == other.shape();
        assert(fits, "dot", ErrorKind::Mismatch, || {
            format!(
                "needs two vectors of equal length, got {:?} and {:?}",
                self.shape(),
                other.shape()
            )
        });
        self.sum_of_products(other)
    }

    /// Outer product of two vectors: `[n]` and `[m]` give `[n, m]`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Tensor::from([1.0f32, 2.0]), Tensor::from([3.0, 4.0]));
    /// assert_eq!(a.outer(&b).to_vec(), [3.0, 4.0, 6.0, 8.0]);
    /// ```
    #[doc(alias = "ger")]
    #[track_caller]
    pub fn outer(&self, other: &Tensor<T>) -> Tensor<T> {
        assert(self.rank() == 1 && other.rank() == 1, "outer", ErrorKind::Rank, || {
            format!("needs two vectors, got {:?} and {:?}", self.shape(), other.shape())
        });
        self.unsqueeze(1).mul(&other.unsqueeze(0))
    }
}

/// Calls `f` with the products of the matrices of two operands of rank at least 2, batches broadcast.
fn products<'a, T: Real>(a: &'a Tensor<T>, b: &'a Tensor<T>, f: impl FnOnce(Products<'_, T>)) {
    let leading = |t: &Tensor<T>| Shape::from(&t.shape()[..t.rank() - 2]);
    let batch = Shape::broadcast("matmul", &leading(a), &leading(b)).or_panic();
    // The layouts of the first elements of all matrices. (A matrix without elements has none; then
    // there is nothing to multiply, or only zeros to write.)
    let heads = |t: &Tensor<T>| {
        let corner = t.layout().slice("matmul", -1, 0, 1.min(t.size(-1)), 1).or_panic();
        let corner = corner.slice("matmul", -2, 0, 1.min(t.size(-2)), 1).or_panic();
        if t.size(-1) == 0 || t.size(-2) == 0 {
            return crate::layout::Layout::contiguous(Shape::SCALAR);
        }
        corner.squeeze("matmul", -1).and_then(|l| l.squeeze("matmul", -1)).or_panic()
    };
    let (heads_a, heads_b) = (heads(a), heads(b));
    let wide = |l: &crate::layout::Layout| l.broadcast_to("matmul", &batch).or_panic();
    let starts = LoopNest::new(&batch, [&wide(&heads_a), &wide(&heads_b)]);
    f(Products::batch(matrix(a, 0), matrix(b, 0), &starts, batch.numel()));
}

/// The matrix of the last two axes whose first element is at `offset`.
pub(super) fn matrix<T: Real>(t: &Tensor<T>, offset: usize) -> MatRef<'_, T> {
    let strides = t.layout().strides();
    MatRef {
        data: t.data(),
        offset,
        rows: t.size(-2),
        cols: t.size(-1),
        row_stride: strides[t.rank() - 2],
        col_stride: strides[t.rank() - 1],
    }
}
