//! Joining and padding.

use crate::graph::{InputGrads, Var};
use crate::op::{Kind, Op};
use retrograd_tensor::{Real, Tensor};

static CAT: Op = Op::new("cat", &["x.."])
    .formula("y = the inputs, one after the other", "dx_i = the part of g that is input i");
static PAD: Op = Op::new("pad", &["x"])
    .kind(Kind::Fill)
    .formula("y = x with a border of c", "dx = g without the border");

/// # Joining and padding
impl<T: Real> Var<T> {
    /// As [`Tensor::cat`]; the gradient of each tensor is its part of `g`.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (a, b) = (Var::leaf(Tensor::from([1.0f32, 2.0])), Var::leaf(Tensor::from([3.0])));
    /// let grads = Var::cat(&[&a, &b], 0).square().sum(..).backward();
    /// assert_eq!(grads.get(&a).unwrap().to_vec(), [2.0, 4.0]);
    /// assert_eq!(grads.get(&b).unwrap().to_vec(), [6.0]);
    /// ```
    #[doc(alias = "concat")]
    #[doc(alias = "concatenate")]
    #[track_caller]
    pub fn cat(parts: &[&Var<T>], axis: isize) -> Var<T> {
        let values: Vec<&Tensor<T>> = parts.iter().map(|x| x.value()).collect();
        let value = Tensor::cat(&values, axis);
        let axis = if axis < 0 { axis + value.rank() as isize } else { axis };
        Var::from_op_list(&CAT, value, parts, |parts| {
            let parts: Vec<_> = parts.into_iter().map(|x| x.slot()).collect();
            move |cx, g| {
                let mut start = 0;
                parts.iter().fold(InputGrads::none(), |grads, x| {
                    let len = cx.shape(x)[axis as usize];
                    start += len;
                    grads.and(x, || g.narrow(axis, start - len, len))
                })
            }
        })
    }

    /// As [`Tensor::stack`]; the gradient of each tensor is its slice of `g`.
    #[track_caller]
    pub fn stack(parts: &[&Var<T>], axis: isize) -> Var<T> {
        let parts: Vec<Var<T>> = parts.iter().map(|x| x.unsqueeze(axis)).collect();
        Var::cat(&parts.iter().collect::<Vec<_>>(), axis)
    }

    /// As [`Tensor::pad`]; the gradient is `g` without the padding.
    #[track_caller]
    pub fn pad(&self, axis: isize, before: usize, after: usize, value: T) -> Var<T> {
        let padded = self.value().pad(axis, before, after, value);
        let axis = if axis < 0 { axis + self.rank() as isize } else { axis };
        Var::from_op(PAD.with("c", value.to_f64()), padded, [self], |[x]| {
            let x = x.slot();
            move |cx, g| InputGrads::of(&x, || g.narrow(axis, before, cx.shape(&x)[axis as usize]))
        })
    }
}
