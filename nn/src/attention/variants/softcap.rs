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
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{HeadSizes, Past, Projections, SoftcapAttention, Spec, Incremental};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = SoftcapAttention::new(projections, 1e9); // far above all scores
    /// let (spec, pass) = (Spec::new().causal(), &mut Pass::eval());
    /// let y = attention.forward(&x, &spec, pass);
    /// let plain = attention.projections.attend(&x, spec, &mut Past::none(), pass);
    /// assert!((y - plain).value().abs().max(..).item() < 1e-6);
    /// ```
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
