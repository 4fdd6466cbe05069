//! The adjoint of strided views.

use crate::cost::Cost;
use crate::element::Element;
use crate::error::{ErrorKind, assert};
use crate::kernels::Real;
use crate::layout::Layout;
use crate::loop_nest::LoopNest;
use crate::observe;
use crate::par;
use crate::shape::IntoShape;
use crate::tensor::Tensor;

/// # Adjoints of views
impl<T: Real> Tensor<T> {
    /// The adjoint of [`Tensor::as_strided`]: a tensor of `shape` that is 0 except where
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
        let mut out = Tensor::zeros(shape);
        out.add_through("as_strided_adjoint", layout, self);
        out
    }

    /// Adds `source` in place to the elements at the positions of `layout`, counted in row-major order: what
    /// [`Tensor::add_assign`] of its [`Tensor::as_strided_adjoint`] does, without that tensor.
    ///
    /// # Panics
    /// If `layout` has another shape than `source` or exceeds `self`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::layout::Layout;
    /// let every_other = Layout::contiguous([4].into()).slice("", 0, 0, 4, 2).unwrap();
    /// let mut x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    /// x.as_strided_add_assign(&every_other, &Tensor::from([10.0, 20.0]));
    /// assert_eq!(x.to_vec(), [11.0, 2.0, 23.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn as_strided_add_assign(&mut self, layout: &Layout, source: &Tensor<T>) {
        self.add_through("as_strided_add_assign", layout, source);
    }

    #[inline(never)]
    #[track_caller]
    fn add_through(&mut self, op: &'static str, layout: &Layout, source: &Tensor<T>) {
        let fits = layout.shape() == source.shape() && layout.fits(self.numel());
        assert(fits, op, ErrorKind::Mismatch, || {
            format!("{:?} through {layout:?} does not fit {:?}", source.shape(), self.shape())
        });
        let nest = LoopNest::new(source.shape(), [layout, source.layout()]);
        let call = observe::begin();
        write_through(&nest, self.make_mut(), source.data(), source.numel(), |y, x| *y += x);
        observe::end(call, || self.moved(op, "element by element", source.distinct_bytes()));
    }
}

/// `f` of each element of an operand, the second one, with the element of `out` where the first layout of the
/// nest points, in row-major order.
pub(super) fn write_through<T: Element>(
    nest: &LoopNest<2>,
    out: &mut [T],
    data: &[T],
    count: usize,
    f: impl Fn(&mut T, T) + Send + Sync,
) {
    if count == 0 {
        return;
    }
    let write = |element: usize, count: usize, offset: usize, out: &mut [T]| {
        let mut cursor = nest.cursor(element);
        let mut left = count;
        let (to_step, from_step) = (nest.stride(0), nest.stride(1));
        while left > 0 {
            let (n, [to, mut from]) = cursor.next(left);
            let mut to = to - offset;
            if to_step == 1 && from_step == 1 {
                let pairs = out[to..to + n].iter_mut().zip(&data[from..from + n]);
                pairs.for_each(|(y, &x)| f(y, x));
            } else {
                for _ in 0..n {
                    f(&mut out[to], data[from]);
                    (to, from) =
                        (to.wrapping_add_signed(to_step), from.wrapping_add_signed(from_step));
                }
            }
            left -= n;
        }
    };
    // The places of each index of the first axis, if they are apart, can be written by different threads.
    let (dims, strides) = (nest.dims(), nest.strides(0));
    let (step, rest) = (strides[0], &strides[1..]);
    let extent: isize = dims[1..].iter().zip(rest).map(|(&n, &s)| (n as isize - 1) * s).sum();
    if rest.iter().any(|&s| s < 0) || extent >= step {
        return write(0, count, 0, out);
    }
    let (step, inner) = (step as usize, count / dims[0]);
    let (_, [first, _]) = nest.cursor(0).next(1);
    let places = &mut out[first..=first + (dims[0] - 1) * step + extent as usize];
    let chunk = Cost::MOVE.units_per_chunk(inner) * step;
    par::fill(places, chunk, Cost::MOVE, |at, out| {
        write(at / step * inner, out.len().div_ceil(step) * inner, first + at, out);
    });
}
