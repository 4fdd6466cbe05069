//! The time mixing of RWKV-7: a delta rule with a decay and a rate of each channel.

use crate::attention::parts::heads::{join_heads, split_heads};
use crate::attention::parts::state::{LowRank, StateCx, StateRule, StateSizes, Terms, unit};
use crate::linear::Linear;
use crate::module::{Layer, Module, Visitor};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor};

/// The time mixing of RWKV-7:
///
/// ```text
/// x^c_t = x_t + μ_c · (x_{t-1} - x_t), for c in r, w, k, v, a, g
/// r, k, v = W_r x^r, W_k x^k, W_v x^v      w = exp(-e^(-1/2) sigmoid(lora_w(x^w)))     a = sigmoid(lora_a(x^a))
/// κ = k · k_k, of norm 1 in each head      k = k · (1 + (a - 1) · k_a)
/// S_t = (diag(w_t) - (κ_t · a_t) κ_tᵀ) S_{t-1} + k_t v_tᵀ
/// y_t = W_o ((norm(S_tᵀ r_t) + (Σ r_t · k_t · r_k) v_t) · lora_g(x^g))
/// ```
///
/// In layers after the first one, `v` is moved towards the values of the first layer, by `sigmoid(lora_v(x^v))`. `[B, L, width]`
/// to the same, in `O(L D²)` for each head.
///
/// Parameters, named as in flash-linear-attention: `x_r`, `x_w`, `x_k`, `x_v`, `x_a`, `x_g` `[1, 1, width]`, `k_k`, `k_a` `[width]`,
/// `r_k` `[H, D]`, `r_proj`, `k_proj`, `v_proj`, `o_proj` `[width, width]`, `w_lora`, `v_lora`, `a_lora`, `g_lora` with `lora.0` and
/// `lora.2`, `g_norm` `[width]`. Peng et al. 2025 (arXiv 2503.14456).
///
/// ```
/// use retrograd::nn::attention::{Rwkv7, StateRule, StateSizes};
/// use retrograd::prelude::*;
/// let mut rng = Rng::new(1);
/// let rule = Rwkv7::<f32>::new(StateSizes::new(8, 2), (0, 1), &mut rng);
/// let x = Var::constant(Tensor::randn([2, 5, 8], &mut rng));
/// assert_eq!(*rule.forward(&x, &mut Pass::eval()).shape(), [2, 5, 8]);
/// assert!(rule.state_dict().contains_key("w_lora.lora.2.bias"));
/// ```
#[derive(Clone, Debug)]
pub struct Rwkv7<T: Real = f32> {
    /// The shares of the token before, of r, w, k, v, a and g.
    pub shifts: [Param<T>; 6],
    /// `[width]`
    pub k_k: Param<T>,
    /// `[width]`
    pub k_a: Param<T>,
    /// `[H, D]`
    pub r_k: Param<T>,
    /// The projection to queries.
    pub r_proj: Linear<T>,
    /// The projection to keys.
    pub k_proj: Linear<T>,
    /// The projection to values.
    pub v_proj: Linear<T>,
    /// The output projection.
    pub o_proj: Linear<T>,
    /// The projections to the logits of decays.
    pub w_lora: LowRank<T>,
    /// The projections to the logits of the shares of the first layer's values, but in the first layer.
    pub v_lora: Option<LowRank<T>>,
    /// The projections to the logits of rates.
    pub a_lora: LowRank<T>,
    /// The projections to gates.
    pub g_lora: LowRank<T>,
    /// The weight and the bias of the norm of what a head has read, `[width]`.
    pub g_norm: [Param<T>; 2],
    sizes: StateSizes,
}

/// The names of what is shifted.
const SHIFTED: [&str; 6] = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"];

impl<T: Real> Rwkv7<T> {
    /// Layer `layer` of `layers`, initialised as in RWKV-LM, but for the output projection, which is not 0.
    ///
    /// # Panics
    /// If keys or values of all heads do not have the width of the input.
    #[track_caller]
    pub fn new(sizes: StateSizes, (layer, layers): (usize, usize), rng: &mut Rng) -> Self {
        let StateSizes { width, heads, key_width, .. } = sizes;
        assert!(
            sizes.keys() == width && sizes.values() == width,
            "rwkv7: keys and values of all heads must have the width of the input"
        );
        let of = |f: &dyn Fn(f64) -> f64| Tensor::from_fn([width], |i| T::from_f64(f(i[0] as f64)));
        let last = (width.max(2) - 1) as f64;
        let depth = layer as f64 / (layers.max(2) - 1) as f64;
        let rest = 1.0 - layer as f64 / layers.max(1) as f64;
        let linear = move |i: f64| i / last - 0.5;
        let half = ((key_width.max(2) - 1) as f64) / 2.0;
        let zigzag = move |i: f64| {
            let z = (i % key_width as f64 - half) / half;
            z * z.abs()
        };
        let shift = |power: f64| {
            let x = of(&|i| 1.0 - (i / width as f64).powf(power * rest));
            Param::new(x.reshape([1, 1, width]))
        };
        let few = |factor: f64| {
            (((factor * (width as f64).sqrt() / 32.0).round() * 32.0) as usize).max(32)
        };
        let mut low_rank = |n: usize, bias: Option<Tensor<T>>| LowRank {
            down: Linear::without_bias(width, n, rng),
            up: Linear { bias: bias.map(Param::new), ..Linear::without_bias(n, width, rng) },
        };
        let factor = key_width as f64 / 64.0;
        let decay =
            move |i: f64| -5.5 + 6.0 * (i / last).powf(1.0 + depth.powf(0.3)) + 2.5 * zigzag(i);
        let w_lora = low_rank(few(2.5 * factor), Some(of(&decay)));
        let a_lora =
            low_rank(few(2.5 * factor), Some(of(&|i| -0.19 + 0.3 * zigzag(i) + 0.4 * linear(i))));
        let v_lora =
            (layer > 0).then(|| low_rank(few(1.7 * factor), Some(of(&|i| 0.73 - 0.4 * linear(i)))));
        let g_lora = low_rank(few(5.0), None);
        let mut square = || Linear::without_bias(width, width, rng);
        let scale = ((layer + 1) as f64 / layers.max(1) as f64).powf(0.7);
        Rwkv7 {
            shifts: [0.2, 0.9, 0.7, 0.7, 0.9, 0.2].map(shift),
            k_k: Param::new(of(&|i| 0.71 - 0.1 * linear(i))),
            k_a: Param::new(of(&|_| 1.02)),
            r_k: Param::new(Tensor::full([heads, key_width], T::from_f64(-0.04))),
            r_proj: square(),
            k_proj: square(),
            v_proj: square(),
            o_proj: square(),
            w_lora,
            v_lora,
            a_lora,
            g_lora,
            g_norm: [of(&|_| scale), Tensor::zeros([width])].map(Param::new),
            sizes,
        }
    }
}

impl<T: Real> Module<T> for Rwkv7<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        for (name, shift) in SHIFTED.into_iter().zip(&self.shifts) {
            v.param(name, shift);
        }
        v.param("k_k", &self.k_k);
        v.param("k_a", &self.k_a);
        v.param("r_k", &self.r_k);
        v.module("r_proj", &self.r_proj);
        v.module("k_proj", &self.k_proj);
        v.module("v_proj", &self.v_proj);
        v.module("o_proj", &self.o_proj);
        v.module("w_lora.lora.0", &self.w_lora.down);
        v.module("w_lora.lora.2", &self.w_lora.up);
        if let Some(lora) = &self.v_lora {
            v.module("v_lora.lora.0", &lora.down);
            v.module("v_lora.lora.2", &lora.up);
        }
        v.module("a_lora.lora.0", &self.a_lora.down);
        v.module("a_lora.lora.2", &self.a_lora.up);
        v.module("g_lora.lora.0", &self.g_lora.down);
        v.module("g_lora.lora.2", &self.g_lora.up);
        v.param("g_norm.weight", &self.g_norm[0]);
        v.param("g_norm.bias", &self.g_norm[1]);
    }
}

impl<T: Real> StateRule<T> for Rwkv7<T> {
    #[track_caller]
    fn terms(&self, x: &Var<T>, cx: &mut StateCx<'_, T>) -> Terms<T> {
        let heads = self.sizes.heads;
        let delta = cx.with_previous(x, 1).narrow(1, 0, x.size(1)) - x;
        let [r, w, k, v, a, g] = self.shifts.each_ref().map(|share| x + delta.mul(&share.to_var()));
        let pass = &mut *cx.pass;
        let through = |lora: &LowRank<T>, x: &Var<T>, f: fn(&Var<T>) -> Var<T>, pass: &mut Pass| {
            lora.up.forward(&f(&lora.down.forward(x, pass)), pass)
        };
        let steps = through(&self.w_lora, &w, Var::tanh, pass).sigmoid();
        let decay = (steps * T::from_f64(-(-0.5_f64).exp())).exp();
        let mut values = self.v_proj.forward(&v, pass);
        match (&self.v_lora, &*cx.first_values) {
            (Some(lora), Some(first)) => {
                let share = through(lora, &v, Var::clone, pass).sigmoid();
                values = &values + (first - &values).mul(&share);
            }
            _ => *cx.first_values = Some(values.clone()),
        }
        let rate = through(&self.a_lora, &a, Var::clone, pass).sigmoid();
        let gate = through(&self.g_lora, &g, Var::sigmoid, pass);
        let keys = self.k_proj.forward(&k, pass);
        let split = |x: &Var<T>| split_heads(x, heads);
        let erased = unit(&split(&keys.mul(&self.k_k.to_var())));
        let change = (&rate - T::ONE).mul(&self.k_a.to_var());
        let keys = &keys + keys.mul(&change);
        let low_rank = Some([erased.neg(), erased.mul(&split(&rate))]);
        let q = split(&self.r_proj.forward(&r, pass));
        let of = Recurrence::new(&q, &split(&keys), &split(&values));
        Terms {
            recurrence: Recurrence { decay: Some(split(&decay)), low_rank, ..of },
            gate: Some(gate),
        }
    }

    #[track_caller]
    fn output(&self, read: &Var<T>, terms: &Terms<T>, pass: &mut Pass) -> Var<T> {
        let StateSizes { heads, key_width, .. } = self.sizes;
        let Recurrence { q, k, v, .. } = &terms.recurrence;
        let [weight, bias] = self.g_norm.each_ref().map(Param::to_var);
        let normed = read.layer_norm(None, None, 1e-5 * key_width as f64);
        let y = join_heads(&normed).mul(&weight) + bias;
        let bonus = q.mul(k).mul(&self.r_k.to_var().reshape([heads, 1, key_width]));
        let y = y + join_heads(&bonus.sum_keepdim(-1).mul(v));
        self.o_proj.forward(&y.mul(terms.gate.as_ref().expect("by `terms`")), pass)
    }
}
