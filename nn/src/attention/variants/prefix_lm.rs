//! Prefix-LM: full attention within a prefix, causal attention after it.

use crate::attention::engine::{Mask, Spec};
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::Projections;
use crate::module::{Call, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Prefix-LM self-attention: `p` attends to `j` if `j <= p` or `j < prefix`, with a prefix per
/// sequence.
///
/// `[L, width]` or `[B, L, width]` to the same, in `O(L² width)`. With prefixes of 0 (or 1) it
/// is causal self-attention, with prefixes of `L` full self-attention.
///
/// Parameters: as [`Projections`]. Liu et al. 2018 (arXiv 1801.10198); Raffel et al.
/// 2019 (arXiv 1910.10683).
#[derive(Clone, Debug)]
pub struct PrefixLmAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
}

impl<T: Real> PrefixLmAttention<T> {
    /// A layer with these projections.
    pub fn new(projections: Projections<T>) -> Self {
        PrefixLmAttention { projections }
    }

    /// The output for `x` with prefixes of these lengths, one for each sequence or one for all;
    /// `spec` may restrict the attention further.
    ///
    /// # Panics
    /// If the shapes do not match, or the number of prefixes is neither 1 nor the batch size.
    ///
    /// ```
    /// use retrograd::nn::attention::{HeadSizes, Past, PrefixLmAttention, Projections, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = PrefixLmAttention::new(projections);
    /// let pass = &mut Pass::eval();
    /// let y = attention.forward(&x, &[4], Spec::new(), pass); // all of it is prefix
    /// let full = attention.projections.attend(&x, Spec::new(), &mut Past::none(), pass);
    /// assert!((y - full).value().abs().max(..).item() < 1e-12);
    /// ```
    #[track_caller]
    pub fn forward(
        &self,
        x: &Var<T>,
        prefixes: &[usize],
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let spec = spec.into().mask(Mask::prefix(prefixes));
        call.end(self.projections.attend(x, spec, &mut Past::none(), pass))
    }
}

visits!(PrefixLmAttention: all projections);
