//! Softcap: scores bounded by a tanh, as in Gemma 2.

use crate::attention::engine::{Part, Spec};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, require};

/// Softcap attention: `softmax(c · tanh(s / c)) · v` with `s = q · kᵀ / √D`: scores stay within
/// `±c`, so that no weight saturates at 1.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections, one more
/// `tanh` per score. Parameters: those of [`Projections`]. For `c → ∞` it is attention without a
/// cap. Gemma 2 (arXiv 2408.00118) has `c` = 50, grouped queries, rotary positions, and a window in
/// every other layer.
#[derive(Clone, Debug)]
pub struct SoftcapAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The bound `c`.
    pub cap: f64,
}

impl<T: Real> SoftcapAttention<T> {
    /// A layer with scores within `±cap`.
    ///
    /// # Panics
    /// If the cap is not above 0.
    #[track_caller]
    pub fn new(projections: Projections<T>, cap: f64) -> Self {
        require(cap > 0.0, "attention", ErrorKind::Value, || {
            format!("a softcap must be above 0, got {cap}")
        })
        .or_panic();
        SoftcapAttention { projections, cap }
    }
}

impl<T: Real> Module<T> for SoftcapAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}

impl<T: Real> Incremental<T> for SoftcapAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        spec.reject("SoftcapAttention", Part::Softcap);
        self.projections.attend(x, spec.clone().softcap(self.cap), past, pass)
    }
}
