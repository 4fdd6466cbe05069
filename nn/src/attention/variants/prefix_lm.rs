//! Prefix-LM: a prefix that sees itself whole, and a continuation that is causal.

use crate::attention::engine::{Mask, Spec};
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Self-attention where `p` sees `j` if `j <= p` or `j < prefix`, with a prefix per sequence.
///
/// `[L, width]` or `[B, L, width]` to the same, in `O(L² width)`. With prefixes of 0 (or 1) it
/// is causal self-attention, with prefixes of `L` full self-attention.
///
/// Parameters: those of [`Projections`]. Liu et al. 2018 (arXiv 1801.10198); Raffel et al.
/// 2019 (arXiv 1910.10683).
#[derive(Clone, Debug)]
pub struct PrefixLmAttention<T: Real = f32> {
    /// Around it.
    pub projections: Projections<T>,
}

impl<T: Real> PrefixLmAttention<T> {
    /// Over these projections.
    pub fn new(projections: Projections<T>) -> Self {
        PrefixLmAttention { projections }
    }

    /// Attends with prefixes of these lengths, one for each sequence or one for all; `spec` may
    /// restrict it further.
    ///
    /// # Panics
    /// If shapes do not fit, or there is another number of prefixes.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Var<T>,
        prefixes: &[usize],
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let spec = spec.into().mask(Mask::prefix(prefixes));
        self.projections.attend(x, spec, &mut Past::none(), pass)
    }
}

impl<T: Real> Module<T> for PrefixLmAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}
