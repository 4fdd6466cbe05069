//! The adjoint of strided views.

use crate::error::{ErrorKind, OrPanic, require};
use crate::kernels::Real;
use crate::layout::Layout;
use crate::loop_nest::LoopNest;
use crate::observe;
use crate::shape::IntoShape;
use crate::tensor::Tensor;

/// # Adjoints of views
impl<T: Real> Tensor<T> {
    /// The adjoint of [`Tensor::as_strided`]: a tensor of `shape` that is 0 but where
    /// `layout` points; there the elements of `self` are added, in row-major order.
    ///
    /// # Panics
    /// If `layout` has another shape than `self` or exceeds `shape`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::layout::Layout;
    /// let every_other = Layout::contiguous([4].into()).slice("", 0, 0, 4, 2).unwrap();
    /// let x = Tensor::from([1.0f32, 2.0]);
    /// assert_eq!(x.as_strided_adjoint([4], &every_other).to_vec(), [1.0, 0.0, 2.0, 0.0]);
    /// ```
    #[track_caller]
    pub fn as_strided_adjoint(&self, shape: impl IntoShape, layout: &Layout) -> Tensor<T> {
        let shape = shape.into();
        let fits = layout.shape() == self.shape() && layout.fits(shape.numel());
        require(fits, "as_strided_adjoint", ErrorKind::Mismatch, || {
            format!("{:?} through {layout:?} does not fit {shape:?}", self.shape())
        })
        .or_panic();
        let nest = LoopNest::new(self.shape(), [layout, self.layout()]);
        let (to_step, from_step) = (nest.stride(0), nest.stride(1));
        let data = self.data();
        let call = observe::begin();
        let out = Tensor::build("as_strided_adjoint", shape, |out| {
            out.fill(T::ZERO);
            let mut cursor = nest.cursor(0);
            let mut left = self.numel();
            while left > 0 {
                let (n, [to, from]) = cursor.next(left);
                if to_step == 1 && from_step == 1 {
                    for (y, &x) in out[to..to + n].iter_mut().zip(&data[from..from + n]) {
                        *y += x;
                    }
                } else {
                    for i in 0..n as isize {
                        out[(to as isize + i * to_step) as usize] +=
                            data[(from as isize + i * from_step) as usize];
                    }
                }
                left -= n;
            }
        });
        observe::end(call, || {
            out.moved("as_strided_adjoint", "element by element", self.distinct_bytes())
        });
        out
    }
}
