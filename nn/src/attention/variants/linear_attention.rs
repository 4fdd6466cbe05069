//! Linear attention: a product of features in place of the exponential.

use crate::attention::engine::feature_map::{EPS, feature_map, normalize_by_sum};
use crate::attention::engine::product::{mix, scores};
use crate::attention::parts::heads::repeat_heads;
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::Projections;
use crate::module::{Call, Layer, visits};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};

/// The keys that a query attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All keys.
    Full,
    /// Keys up to the position of the query.
    Causal,
}

/// The form of the computation. All forms have the same result, up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinearForm {
    /// A matrix of all weights, as in softmax attention: `O(L² D)`.
    Quadratic,
    /// One token at a time, with a state: `O(L D²)`. The form of decoding.
    Recurrent,
    /// Chunks of `n` tokens: quadratic within a chunk, a state between chunks. `O(L (n + D) D)`;
    /// the fastest form.
    Chunked(usize),
}

/// Linear attention from queries `[.., Lq, Dk]` to keys `[.., Lk, Dk]` and values `[.., Lk, Dv]`,
/// `[.., Lq, Dv]`:
///
/// ```text
/// o_i = Σ_j φ(q_i)·φ(k_j) v_j / (Σ_j φ(q_i)·φ(k_j) + 1e-6)
/// ```
///
/// # Panics
/// If the shapes do not match, or `Lq != Lk` where causal, or the chunk size is 0.
#[track_caller]
pub fn linear_attention<T: Real>(
    q: &Var<T>,
    k: &Var<T>,
    v: &Var<T>,
    reach: Reach,
    form: LinearForm,
) -> Var<T> {
    let (lq, lk) = (q.size(-2), k.size(-2));
    let valid = q.rank() >= 2 && q.size(-1) == k.size(-1) && lk == v.size(-2);
    assert(valid, "linear attention", ErrorKind::Mismatch, || {
        format!("shapes do not fit: q {:?}, k {:?}, v {:?}", q.shape(), k.shape(), v.shape())
    });
    assert(reach == Reach::Full || lq == lk, "linear attention", ErrorKind::Mismatch, || {
        format!("causal, with {lq} queries and {lk} keys")
    });
    let step = match form {
        LinearForm::Quadratic => {
            let weights = scores(&feature_map(q), &feature_map(k));
            let weights = if reach == Reach::Causal { weights.tril(0) } else { weights };
            return mix(&normalize_by_sum(&weights), v);
        }
        LinearForm::Recurrent => 1,
        LinearForm::Chunked(n) => {
            assert(n > 0, "linear attention", ErrorKind::Value, || {
                "chunks must hold at least 1 token, got 0".into()
            });
            n
        }
    };
    let mut state = LinearState::new(k, v);
    let mut outputs = Vec::new();
    // At least one chunk, even of an empty sequence.
    for first in (0..lk.max(1)).step_by(step) {
        let n = step.min(lk - first);
        let (k, v) = (k.narrow(-2, first, n), v.narrow(-2, first, n));
        match (reach, form) {
            (Reach::Full, _) => state.update(&k, &v),
            (_, LinearForm::Recurrent) if n == 1 => {
                outputs.push(state.step(&q.narrow(-2, first, 1), &k, &v));
            }
            _ => outputs.push(state.chunk(&q.narrow(-2, first, n), &k, &v)),
        }
    }
    match reach {
        Reach::Full => state.read(q),
        Reach::Causal => Var::cat(&outputs.iter().collect::<Vec<_>>(), -2),
    }
}

/// The recurrent state of linear attention; its size does not depend on the length.
#[derive(Clone, Debug)]
pub struct LinearState<T: Real = f32> {
    /// `S = Σ_j φ(k_j) v_jᵀ`, `[.., Dk, Dv]`
    pub s: Var<T>,
    /// `z = Σ_j φ(k_j)`, `[.., Dk, 1]`
    pub z: Var<T>,
}

impl<T: Real> LinearState<T> {
    /// The state before the first token, for keys `[.., L, Dk]` and values `[.., L, Dv]`.
    pub fn new(k: &Var<T>, v: &Var<T>) -> Self {
        let zeros = |width: usize| {
            let mut dims = k.shape().to_vec();
            let last = dims.len() - 1;
            (dims[last - 1], dims[last]) = (dims[last], width);
            Var::constant(Tensor::zeros(dims))
        };
        LinearState { s: zeros(v.size(-1)), z: zeros(1) }
    }

    /// Adds keys and values to the state.
    #[track_caller]
    pub fn update(&mut self, k: &Var<T>, v: &Var<T>) {
        let k = feature_map(k).t();
        self.s = &self.s + k.matmul(v);
        self.z = &self.z + k.sum_keepdim(-1);
    }

    /// The outputs of queries `[.., n, Dk]`, `[.., n, Dv]`.
    #[track_caller]
    pub fn read(&self, q: &Var<T>) -> Var<T> {
        let q = feature_map(q);
        q.matmul(&self.s) / (q.matmul(&self.z) + T::from_f64(EPS))
    }

    /// The output of the next token, whose key and value are added to the state first.
    #[track_caller]
    pub fn step(&mut self, q: &Var<T>, k: &Var<T>, v: &Var<T>) -> Var<T> {
        self.update(k, v);
        self.read(q)
    }

    /// The causal outputs of the next tokens: earlier tokens contribute through the state, tokens of
    /// the chunk through weights. Then the keys and values of the chunk are added to the state.
    #[track_caller]
    pub fn chunk(&mut self, q: &Var<T>, k: &Var<T>, v: &Var<T>) -> Var<T> {
        let f = feature_map(q);
        let weights = scores(&f, &feature_map(k)).tril(0);
        let sum = f.matmul(&self.s) + mix(&weights, v);
        let norm = f.matmul(&self.z) + weights.sum_keepdim(-1);
        self.update(k, v);
        sum / (norm + T::from_f64(EPS))
    }

    /// The state without its graph, for truncated backpropagation between segments.
    pub fn detach(&self) -> Self {
        LinearState { s: self.s.detach(), z: self.z.detach() }
    }
}

/// Multi-head self-attention by [`linear_attention`].
///
/// `[L, width]` or `[B, L, width]` to the same, at the cost of its [`LinearForm`]; the three
/// forms differ by rounding only, forward and backward. Decoding uses a [`LinearState`] of
/// fixed size instead of a cache. Under other masks it is
/// [`NormalizedAttention`](crate::attention::NormalizedAttention) by
/// [`Normalizer::Linear`](crate::attention::Normalizer::Linear).
///
/// Parameters: as [`Projections`]. Katharopoulos et al. 2020 (arXiv 2006.16236).
///
/// ```
/// use retrograd::nn::attention::{HeadSizes, LinearAttention, LinearForm, Projections, Reach};
/// use retrograd::prelude::*;
///
/// let mut rng = Rng::new(1);
/// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
/// let attention = LinearAttention::new(projections, Reach::Causal, LinearForm::Chunked(4));
/// let x = Var::constant(Tensor::randn([10, 8], &mut rng));
/// let pass = &mut Pass::eval();
/// let all = attention.forward(&x, pass);
/// // Token by token:
/// let mut state = None;
/// for i in 0..10 {
///     let y = attention.step(&x.narrow(0, i, 1), &mut state, pass);
///     let error = (y - all.narrow(0, i, 1)).abs().sum(..).item();
///     assert!(error < 1e-12);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct LinearAttention<T: Real = f32> {
    /// The projections, without dropout, since there are no weights, and without rotary positions,
    /// since a state has no position.
    pub projections: Projections<T>,
    /// The keys that a query attends to.
    pub reach: Reach,
    /// The form of the computation.
    pub form: LinearForm,
}

impl<T: Real> LinearAttention<T> {
    /// A layer with these projections.
    ///
    /// # Panics
    /// If they have dropout or rotary positions.
    #[track_caller]
    pub fn new(projections: Projections<T>, reach: Reach, form: LinearForm) -> Self {
        let m = LinearAttention { projections, reach, form };
        m.check();
        m
    }

    #[track_caller]
    fn check(&self) {
        let p = self.projections.dropout.p();
        assert(p == 0.0, "LinearAttention", ErrorKind::Value, || {
            format!("a dropout of {p}, and no weights to drop")
        });
        self.projections.reject_rope("LinearAttention", "a state has no position");
    }

    /// Queries, keys and values with the same number of heads.
    #[track_caller]
    fn qkv(&self, x: &Var<T>, pass: &mut Pass) -> [Var<T>; 3] {
        self.check();
        let [q, k, v] = self.projections.qkv(x, &mut Past::none(), pass);
        let heads = q.size(-3);
        [q, repeat_heads(&k, heads), repeat_heads(&v, heads)]
    }

    /// The causal output of the next tokens `[.., n, width]`. The first call creates the state.
    ///
    /// # Panics
    /// If the shapes do not match, it is not causal, or the projections have dropout or positions.
    #[track_caller]
    pub fn step(&self, x: &Var<T>, state: &mut Option<LinearState<T>>, pass: &mut Pass) -> Var<T> {
        assert(self.reach == Reach::Causal, "LinearAttention", ErrorKind::Mismatch, || {
            "steps need causal attention".into()
        });
        let [q, k, v] = self.qkv(x, pass);
        let state = state.get_or_insert_with(|| LinearState::new(&k, &v));
        self.projections.project_out(&state.chunk(&q, &k, &v), pass)
    }
}

visits!(LinearAttention: all projections);

impl<T: Real> Layer<T> for LinearAttention<T> {
    #[track_caller]
    fn forward(&self, x: &Var<T>, pass: &mut Pass) -> Var<T> {
        let call = Call::start(self);
        let [q, k, v] = self.qkv(x, pass);
        call.end(
            self.projections
                .project_out(&linear_attention(&q, &k, &v, self.reach, self.form), pass),
        )
    }
}
