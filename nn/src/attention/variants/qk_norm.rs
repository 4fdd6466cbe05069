//! QK-norm: queries and keys normalised per head, before rotary positions, so that scores do not
//! grow with the weights.

use crate::attention::engine::{Spec, attend};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::visits;
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_autograd::ops::norm::over_root;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};

/// `softmax(g · q̂ · k̂ᵀ) · v` with `q̂ = q / ‖q‖` and `k̂ = k / ‖k‖`: scores are cosines times a
/// learned scale, in place of `1/√D`. A scale in the spec multiplies them, too.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L² · H D)` and the work of the projections; the
/// norms are `O(L · H D)`. Parameters: as [`Projections`], and `g` `[1]`, `log2(L² - L)` at
/// first for the usual length `L`. If queries and keys have norm `D^(1/4)`, it is multi-head
/// attention without norms, with `g = 1`; with `g = √D` it is [`Projections::with_qk_norm`] with
/// weights of 1.
/// Multiplying `q_proj` or `k_proj` by a positive number changes nothing. A vector of norm 0 stays
/// 0. Henry et al. 2020 (arXiv 2010.04245).
#[derive(Clone, Debug)]
pub struct QkL2Attention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// The scale of the cosines, `[1]`.
    pub g: Param<T>,
}

impl<T: Real> QkL2Attention<T> {
    /// A layer for sequences that usually have this length.
    ///
    /// # Panics
    /// If the length is below 2.
    ///
    /// ```
    /// use retrograd::nn::attention::{HeadSizes, Incremental, Projections, QkL2Attention, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = QkL2Attention::new(projections, 4);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(projections: Projections<T>, length: usize) -> Self {
        assert(length >= 2, "qk-norm", ErrorKind::Value, || {
            format!("a usual length of at least 2, got {length}")
        });
        projections.reject_qk_norm("qk-norm", "the variant has its own");
        let g = ((length * (length - 1)) as f64).log2();
        QkL2Attention { projections, g: Param::new(Tensor::full([1], T::from_f64(g))) }
    }
}

/// `x / ‖x‖` over the last axis. The constant under the root keeps value and derivative at 0
/// finite, and is far below the squares of usual norms.
fn unit<T: Real>(x: &Var<T>) -> Var<T> {
    let (x, root, _) = over_root(x, 1e-12, |x| x.square().sum_keepdim(-1));
    x.mul(&root)
}

visits!(QkL2Attention: all projections, param g);

impl<T: Real> Incremental<T> for QkL2Attention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let spec = self.projections.with_dropout(spec, pass);
        let p = &self.projections;
        let q = p.rotate(&unit(&p.queries(x, pass)).mul(&self.g.to_var()), past.start());
        let k = p.rotate(&unit(&p.keys(x, pass)), past.start());
        let (k, v) = past.extend(&k, &p.values(x, pass));
        p.project_out(&attend(&q, &k, &v, &spec.scale_unless_given(1.0)), pass)
    }
}
