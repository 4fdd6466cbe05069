//! Differential attention: the difference of two softmaxes, which cancels common noise.

use crate::attention::engine::{Spec, attend};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::{HeadSizes, Projections};
use crate::attention::parts::rope::Rope;
use crate::init::Init;
use crate::module::{Layer, visits};
use crate::norm::RmsNorm;
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::random::Rng;

/// Differential attention: `o = (softmax(q₁ k₁ᵀ / √d) - λ softmax(q₂ k₂ᵀ / √d)) · v` per head, with
/// two queries and two keys of width `d` and a value of width `2d`; then
/// `(1 - λ_init) · RmsNorm(o)`, projected.
///
/// ```text
/// λ = exp(λ_q1 · λ_k1) - exp(λ_q2 · λ_k2) + λ_init
/// λ_init = 0.8 - 0.6 exp(-0.3 depth)                  depth of the layer, from 0
/// ```
///
/// `[.., L, width]` to `[.., L, width]`, at the cost of multi-head attention with heads of
/// width `2d` and a little more. With `λ = 0` it is multi-head attention of the first halves,
/// up to the norm.
///
/// Parameters: as [`Projections`] with `2H` heads of width `d`, of which heads `2h` and
/// `2h + 1` are the two of head `h`; `lambda_q1`, `lambda_k1`, `lambda_q2`, `lambda_k2` `[d]`,
/// normal with deviation 0.1 initially; `subln.weight` `[2d]`. Ye et al. 2024 (arXiv 2410.05258).
#[derive(Clone, Debug)]
pub struct DifferentialAttention<T: Real = f32> {
    /// The projections, to twice as many heads of half the width. Dropout uses the same pattern for
    /// both attentions, so that it drops weights of their difference.
    pub projections: Projections<T>,
    /// `[d]`
    pub lambda_q1: Param<T>,
    /// `[d]`
    pub lambda_k1: Param<T>,
    /// `[d]`
    pub lambda_q2: Param<T>,
    /// `[d]`
    pub lambda_k2: Param<T>,
    /// The norm of the output of each head, over its width `2d`.
    pub subln: RmsNorm<T>,
    lambda_init: f64,
}

impl<T: Real> DifferentialAttention<T> {
    /// A layer with `sizes.heads` pairs of heads, at index `depth`, counted from 0. The width `2d`
    /// of a head is `sizes.head_width`.
    ///
    /// # Panics
    /// If the width of a head is odd, or half of it is less than the rotary width.
    ///
    /// ```
    /// use retrograd::nn::attention::{DifferentialAttention, HeadSizes, Incremental, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = DifferentialAttention::<f64>::new(HeadSizes::new(8, 2), 1, None, &mut rng);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(sizes: HeadSizes, depth: usize, rope: Option<Rope>, rng: &mut Rng) -> Self {
        let HeadSizes { width, heads, key_heads, head_width } = sizes;
        assert(head_width.is_multiple_of(2), "differential attention", ErrorKind::Value, || {
            format!("a head of width {head_width} is odd")
        });
        let d = head_width / 2;
        let doubled =
            HeadSizes { width, heads: 2 * heads, key_heads: 2 * key_heads, head_width: d };
        let projections = Projections::new(doubled, rng);
        let projections = match rope {
            Some(rope) => projections.with_rope(rope),
            None => projections,
        };
        let mut lambda = || Param::new(Init::Normal { std: 0.1 }.sample([d], rng));
        DifferentialAttention {
            projections,
            lambda_q1: lambda(),
            lambda_k1: lambda(),
            lambda_q2: lambda(),
            lambda_k2: lambda(),
            subln: RmsNorm { eps: 1e-5, ..RmsNorm::new(head_width) },
            lambda_init: 0.8 - 0.6 * (-0.3 * depth as f64).exp(),
        }
    }

    /// The expected value of λ at initialisation.
    pub fn lambda_init(&self) -> f64 {
        self.lambda_init
    }

    /// λ, the factor of the second attention, of rank 0.
    pub fn lambda(&self) -> Var<T> {
        let power = |q: &Param<T>, k: &Param<T>| q.to_var().mul(&k.to_var()).sum(..).exp();
        power(&self.lambda_q1, &self.lambda_k1) - power(&self.lambda_q2, &self.lambda_k2)
            + T::from_f64(self.lambda_init)
    }

    /// The two attentions of every head, each `[.., H, L, 2d]`.
    #[track_caller]
    pub fn both(
        &self,
        x: &Var<T>,
        spec: &Spec<T>,
        past: &mut Past<'_, T>,
        pass: &mut Pass,
    ) -> [Var<T>; 2] {
        let p = &self.projections;
        let spec = p.with_dropout(spec, pass);
        let q = p.rotate(&p.queries(x, pass), past.start());
        let k = p.rotate(&p.keys(x, pass), past.start());
        let v = p.project(&p.v_proj, p.sizes().key_heads / 2, x, pass);
        let (k, v) = past.extend(&k, &v);
        [0, 1].map(|part| {
            let of = |x: &Var<T>| x.slice_step(-3, part..x.size(-3), 2);
            attend(&of(&q), &of(&k), &v, &spec)
        })
    }
}

visits! { DifferentialAttention:
    all projections, param lambda_q1, param lambda_k1, param lambda_q2, param lambda_k2,
    module subln
}

impl<T: Real> Incremental<T> for DifferentialAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let [first, second] = self.both(x, spec, past, pass);
        let o = first - second.mul(&self.lambda());
        let o = self.subln.forward(&o, pass) * T::from_f64(1.0 - self.lambda_init);
        self.projections.project_out(&o, pass)
    }
}
