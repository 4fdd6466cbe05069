//! Linear recurrences whose state is a matrix.

use crate::graph::{Cx, InputGrads, Var};
use crate::observe::saved;
use crate::op::{Op, Product, Shapes};
use crate::record::{Fused, Slot};
use retrograd_tensor::error::{ErrorKind, OrPanic, Result, require};
use retrograd_tensor::kernels::recurrence::{Terms, backward, forward};
use retrograd_tensor::{Real, Tensor};

static RECURRENCE: Op = Op::new("recurrence", &["q", "k", "v", "w", "S", "a?", "b?"]).computes(products).formula(
    "y = Sᵀ q, S = diag(w) S' + b (aᵀ S') + k vᵀ, S' the state before, token by token",
    "dq = S g\ndk = G v, G = q gᵀ + the gradient of the state by later tokens\ndv = Gᵀ k\ndw = Σ G · S', over columns\ndS = diag(w) G + a (bᵀ G), of the first token\nda = S' (Gᵀ b)\ndb = G (S'ᵀ a)",
);

/// What the tokens add to states, and read from them.
fn products(shapes: &Shapes<'_>) -> Vec<Product> {
    let (k, v) = (*shapes.of("k"), shapes.output);
    let mut all = vec![Product::new(["k", "v"], k, v[3]), Product::new(["S", "q"], v, k[3])];
    if shapes.inputs.iter().any(|(name, _)| *name == "a") {
        all.extend([Product::new(["S", "a"], v, k[3]), Product::new(["b", "S a"], k, v[3])]);
    }
    all
}

/// The vectors of a linear recurrence, whose state `S` `[B, H, Dk, Dv]` is a matrix for each sequence and head:
///
/// ```text
/// S_t = diag(w_t) S_{t-1} + b_t (a_tᵀ S_{t-1}) + k_t v_tᵀ
/// y_t = S_tᵀ q_t
/// ```
///
/// That includes linear attention (`w = 1`, no `a`), decays of one number or of each channel (RetNet, Mamba-2, GLA), and
/// delta rules (`a = k`, `b = -β k`). A state has constant size, and a token takes constant time.
/// Yang et al. 2024 (arXiv 2406.06484); Peng et al. 2025 (2503.14456).
///
/// ```
/// use retrograd::autograd::Recurrence;
/// use retrograd::prelude::*;
/// // The delta rule: the second token has the key of the first, and replaces its value.
/// let row = |x: [[f64; 2]; 2]| Var::leaf(Tensor::from(x).reshape([1, 1, 2, 2]));
/// let k = row([[1.0, 0.0], [1.0, 0.0]]);
/// let v = row([[3.0, 4.0], [5.0, 6.0]]);
/// let rule = Recurrence { decay: None, low_rank: Some([k.clone(), -&k]), ..Recurrence::new(&k, &k, &v) };
/// let [y, state] = rule.run(None);
/// assert_eq!(y.value().to_vec(), [3.0, 4.0, 5.0, 6.0]);
/// assert_eq!(state.value().to_vec(), [5.0, 6.0, 0.0, 0.0]);
/// ```
#[derive(Clone, Debug)]
pub struct Recurrence<T: Real = f32> {
    /// The queries `[B, H, L, Dk]`.
    pub q: Var<T>,
    /// The keys `[B, H, L, Dk]`.
    pub k: Var<T>,
    /// The values `[B, H, L, Dv]`.
    pub v: Var<T>,
    /// The factors `w`, which broadcast to the keys; `None`: 1.
    pub decay: Option<Var<T>>,
    /// `a` and `b`, of the shape of the keys.
    pub low_rank: Option<[Var<T>; 2]>,
}

impl<T: Real> Recurrence<T> {
    /// A sum of all `k vᵀ`: linear attention without a feature map and without normalisation.
    pub fn new(q: &Var<T>, k: &Var<T>, v: &Var<T>) -> Self {
        Recurrence { q: q.clone(), k: k.clone(), v: v.clone(), decay: None, low_rank: None }
    }

    fn check(&self, state: Option<&Var<T>>) -> Result<()> {
        let (k, v) = (self.k.shape(), self.v.shape());
        let mut valid = k.len() == 4 && v.len() == 4 && self.q.shape() == k && v[..3] == k[..3];
        valid &= self.low_rank.iter().flatten().all(|x| x.shape() == k);
        valid &= state.is_none_or(|s| valid && s.shape()[..] == [k[0], k[1], k[3], v[3]]);
        require(valid, "recurrence", ErrorKind::Mismatch, || {
            let all = [Some(&self.q), Some(&self.k), Some(&self.v), state].into_iter().flatten();
            let all = all.chain(self.low_rank.iter().flatten());
            let shapes: Vec<String> = all.map(|x| format!("{:?}", x.shape())).collect();
            format!("shapes do not fit: q, k, v, state, a, b {}", shapes.join(", "))
        })
    }

    /// The outputs `[B, H, L, Dv]`, and the state after the last token. Without a state before the first
    /// token, that is 0. A sequence in pieces, each from the state of the one before, has the bits of the whole one.
    ///
    /// # Panics
    /// If the shapes do not match.
    #[track_caller]
    pub fn run(&self, state: Option<&Var<T>>) -> [Var<T>; 2] {
        let [w, state] = self.filled(state);
        let low_rank = self.low_rank.as_ref();
        let [a, b] = [0, 1].map(|i| low_rank.map(|x| &x[i]));
        let inputs = [Some(&self.q), Some(&self.k), Some(&self.v), Some(&w), Some(&state), a, b];
        let keeps = inputs.iter().flatten().any(|x| x.is_tracked());
        let terms = Terms {
            q: self.q.value(),
            k: self.k.value(),
            v: self.v.value(),
            w: w.value(),
            low_rank: low_rank.map(|x| x.each_ref().map(Var::value)),
        };
        let (out, last, kept) = forward(&terms, state.value(), keeps);
        Var::from_fused(&RECURRENCE, [out, last], inputs, |inputs| Rule {
            inputs: inputs.map(|x| x.save()),
            kept: saved("states", kept),
        })
    }

    /// The same by ordinary operations, token by token: the definition of [`Recurrence::run`].
    ///
    /// # Panics
    /// If the shapes do not match.
    #[track_caller]
    pub fn steps(&self, state: Option<&Var<T>>) -> [Var<T>; 2] {
        let [w, mut state] = self.filled(state);
        let column = |x: &Var<T>, t: usize| x.narrow(-2, t, 1).t();
        let outputs: Vec<_> = (0..self.k.size(-2))
            .map(|t| {
                let mut next = &state * column(&w, t);
                if let Some([a, b]) = &self.low_rank {
                    next = next + column(b, t).matmul(&a.narrow(-2, t, 1).matmul(&state));
                }
                state = next + column(&self.k, t).matmul(&self.v.narrow(-2, t, 1));
                self.q.narrow(-2, t, 1).matmul(&state)
            })
            .collect();
        let out = match outputs.is_empty() {
            true => self.v.clone(),
            false => Var::cat(&outputs.iter().collect::<Vec<_>>(), -2),
        };
        [out, state]
    }

    /// The weights `[B, H, L, L]` of the values in the outputs, from a state of 0: `y = weights · v`.
    ///
    /// # Panics
    /// If the shapes do not match.
    #[track_caller]
    pub fn weights(&self) -> Var<T> {
        let [batch, heads, l] = [0, 1, 2].map(|axis| self.k.size(axis));
        let v = Var::constant(Tensor::eye(l)).broadcast_to([batch, heads, l, l]);
        let [weights, _] = Recurrence { v, ..self.clone() }.run(None);
        weights
    }

    /// The decays of the shape of the keys, and the first state.
    #[track_caller]
    fn filled(&self, state: Option<&Var<T>>) -> [Var<T>; 2] {
        self.check(state).or_panic();
        let (k, dv) = (self.k.shape(), self.v.size(-1));
        let w = self.decay.clone().unwrap_or_else(|| Var::scalar(T::ONE));
        let zeros = || Var::constant(Tensor::zeros([k[0], k[1], k[3], dv]));
        [w.broadcast_to(k), state.cloned().unwrap_or_else(zeros)]
    }
}

struct Rule<T: Real> {
    /// `q`, `k`, `v`, `w`, the first state, and `a` and `b` if there are any.
    inputs: [Slot<T>; 7],
    kept: Tensor<T>,
}

impl<T: Real> Fused<T, 2> for Rule<T> {
    fn vjp(&self, g: [&Tensor<T>; 2]) -> InputGrads<T> {
        let [q, k, v, w, state, a, b] = &self.inputs;
        let terms = Terms {
            q: q.value(),
            k: k.value(),
            v: v.value(),
            w: w.value(),
            low_rank: a.get().zip(b.get()).map(|(a, b)| [a, b]),
        };
        let all = backward(&terms, &self.kept, g);
        let row = |i: usize| all.rows[i].clone();
        InputGrads::of(q, || row(0))
            .and(k, || row(1))
            .and(v, || all.dv.clone())
            .and(w, || row(2))
            .and(state, || all.dstate.clone())
            .and(a, || row(3))
            .and(b, || row(4))
    }

    fn definition(&self, cx: &Cx<'_, T>) -> [Var<T>; 2] {
        let [q, k, v, w, state, a, b] = &self.inputs;
        let low_rank = cx.optional(a).zip(cx.optional(b)).map(|(a, b)| [a, b]);
        let [q, k, v, w, state] = [q, k, v, w, state].map(|x| cx.input(x));
        Recurrence { q, k, v, decay: Some(w), low_rank }.steps(Some(&state))
    }
}
