//! Joining and padding.

use crate::node::{Backward, Cx, Grads};
use crate::var::Var;
use retrograd_tensor::{Real, Tensor};

#[derive(Debug)]
struct Cat {
    axis: isize,
}

impl<T: Real> Backward<T> for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        let axis = self.axis as usize;
        let mut start = 0;
        let piece = |i| {
            let len = cx.input_shape(i)[axis];
            start += len;
            cx.needs(i).then(|| g.narrow(self.axis, start - len, len))
        };
        (0..cx.inputs()).map(piece).collect()
    }
}

#[derive(Debug)]
struct Pad {
    axis: isize,
    before: usize,
}

impl<T: Real> Backward<T> for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }
    fn backward(&self, cx: &Cx<'_, T>, g: &Var<T>) -> Grads<T> {
        vec![Some(g.narrow(self.axis, self.before, cx.input_shape(0)[self.axis as usize]))]
    }
}

impl<T: Real> Var<T> {
    /// Parts one after the other along an axis.
    ///
    /// # Panics
    /// If there are none, or their other axes differ.
    #[track_caller]
    pub fn cat(parts: &[&Var<T>], axis: isize) -> Var<T> {
        let values: Vec<&Tensor<T>> = parts.iter().map(|x| x.value()).collect();
        let value = Tensor::cat(&values, axis);
        let axis = if axis < 0 { axis + value.rank() as isize } else { axis };
        Var::from_op(value, parts, |_| Cat { axis })
    }

    /// Parts of equal shape along a new axis.
    ///
    /// # Panics
    /// If there are none, or their shapes differ.
    #[track_caller]
    pub fn stack(parts: &[&Var<T>], axis: isize) -> Var<T> {
        let parts: Vec<Var<T>> = parts.iter().map(|x| x.unsqueeze(axis)).collect();
        Var::cat(&parts.iter().collect::<Vec<_>>(), axis)
    }

    /// Lengthened along an axis by copies of `value`.
    #[track_caller]
    pub fn pad(&self, axis: isize, before: usize, after: usize, value: T) -> Var<T> {
        let padded = self.value().pad(axis, before, after, value);
        let axis = if axis < 0 { axis + self.rank() as isize } else { axis };
        Var::from_op(padded, &[self], |_| Pad { axis, before })
    }
}
