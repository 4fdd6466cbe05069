//! Matrix multiplication.

use crate::graph::{InputGrads, Var};
use crate::op::{Kind, Op};
use retrograd_tensor::Real;
#[cfg(doc)]
use retrograd_tensor::Tensor;
use retrograd_tensor::error::{ErrorKind, OrPanic, assert};
use retrograd_tensor::ops::matmul::matmul_shape;

static MATMUL: Op = Op::new("matmul", &["x", "z"])
    .kind(Kind::Product("…ik,…kj->…ij"))
    .formula("y = x z", "dx = g zᵀ\ndz = xᵀ g");

static DOT: Op = Op::new("dot", &["x", "z"])
    .kind(Kind::Product("i,i->"))
    .formula("y = Σ x · z", "dx = g · z\ndz = g · x");

/// The gradient `gᵀ x` of `wᵀ` in `x w`, for a matrix `w` whose transpose is contiguous: with all leading
/// axes as rows.
#[track_caller]
pub(super) fn gradient_of_transpose<T: Real>(x: &Var<T>, g: &Var<T>) -> Var<T> {
    rows(g).t().matmul(&rows(x))
}

/// `x` as a matrix: all axes but the last become rows.
#[track_caller]
fn rows<T: Real>(x: &Var<T>) -> Var<T> {
    let [leading @ .., last] = &x.shape()[..] else { unreachable!("an axis at least") };
    if leading.len() == 1 { x.clone() } else { x.reshape([leading.iter().product(), *last]) }
}

/// # Matrix multiplication
impl<T: Real> Var<T> {
    /// As [`Tensor::matmul`]; the gradients are `g zᵀ` and `xᵀ g`, summed over the axes that were
    /// broadcast.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let a = Var::leaf(Tensor::<f32>::ones([5, 2, 3]));
    /// let b = Var::leaf(Tensor::<f32>::ones([3, 4])); // the same matrix for each of 5
    /// let y = a.matmul(&b);
    /// assert_eq!(*y.shape(), [5, 2, 4]);
    /// assert_eq!(y.sum(..).backward().get(&b).unwrap().to_vec(), [10.0; 12]);
    /// ```
    #[track_caller]
    pub fn matmul(&self, other: &Var<T>) -> Var<T> {
        let shape = matmul_shape(self.shape(), other.shape()).or_panic();
        if self.rank() == 1 {
            return self.unsqueeze(0).matmul(other).reshape(shape);
        }
        if other.rank() == 1 {
            return self.matmul(&other.unsqueeze(1)).reshape(shape);
        }
        let value = self.value().matmul(other.value());
        // The transpose of a weight: its gradient is computed with the same strides, so that the
        // gradient of the weight is contiguous, too.
        let z_is_transposed = other.value().t().is_contiguous();
        Var::from_op(&MATMUL, value, [self, other], |[x, z]| {
            let (x, z) = (x.save_if(z.needs_grad()), z.save_if(x.needs_grad()));
            move |cx, g| {
                if let Some(t) = cx.tangents() {
                    let by_x = t.of(&x).map(|t| t.matmul(&cx.input(&z)));
                    return InputGrads::tangent([by_x, t.of(&z).map(|t| cx.input(&x).matmul(t))]);
                }
                InputGrads::of(&x, || g.matmul(&cx.input(&z).t())).and(&z, || {
                    // The engine sums over broadcast batches; for a single matrix that sum is part
                    // of one product.
                    let x = cx.input(&x);
                    match cx.shape(&z).rank() {
                        2 if z_is_transposed => gradient_of_transpose(&x, g).t(),
                        2 => rows(&x).t().matmul(&rows(g)),
                        _ => x.t().matmul(g),
                    }
                })
            }
        })
    }

    /// As [`Tensor::dot`]; the gradients are `g · z` and `g · x`.
    #[track_caller]
    pub fn dot(&self, other: &Var<T>) -> Var<T> {
        let (x, z) = (self.shape(), other.shape());
        assert(self.rank() == 1 && x == z, "dot", ErrorKind::Mismatch, || {
            format!("needs two vectors of equal length, got {x:?} and {z:?}")
        });
        Var::from_op(&DOT, self.value().dot(other.value()), [self, other], |[x, z]| {
            let (x, z) = (x.save_if(z.needs_grad()), z.save_if(x.needs_grad()));
            move |cx, g| {
                InputGrads::of(&x, || g.mul(&cx.input(&z))).and(&z, || g.mul(&cx.input(&x)))
            }
        })
    }

    /// As [`Tensor::outer`]; the gradients are `g · z` and `gᵀ · x`.
    #[doc(alias = "ger")]
    #[track_caller]
    pub fn outer(&self, other: &Var<T>) -> Var<T> {
        let (x, z) = (self.shape(), other.shape());
        assert(self.rank() == 1 && other.rank() == 1, "outer", ErrorKind::Rank, || {
            format!("needs two vectors, got {x:?} and {z:?}")
        });
        self.unsqueeze(1).mul(&other.unsqueeze(0))
    }
}
