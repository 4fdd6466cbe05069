//! Learned keys and values beside the keys and values of the sequence.

use crate::attention::engine::{Sizes, Spec, attend};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::init::Init;
use crate::module::visits;
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// [`attend`] with `M` more keys `[Hk, M, Dk]` and values `[Hk, M, Dv]`, to which every
/// query of every sequence attends, independent of the mask. They have no position, and biases are
/// not applied to them.
///
/// With one key and one value of zeros it is [`Sink::Zero`](crate::attention::Sink::Zero).
///
/// # Panics
/// As [`attend`], or if the memory has other heads or widths than the keys and values.
#[track_caller]
pub fn attend_with_memory<T: Real>(
    q: &Var<T>,
    k: &Var<T>,
    v: &Var<T>,
    (memory_k, memory_v): (&Var<T>, &Var<T>),
    spec: &Spec<T>,
) -> Var<T> {
    let joined = |x: &Var<T>, memory: &Var<T>| {
        let mut dims = x.shape().to_vec();
        let axis = x.rank() - 2;
        dims[axis] = memory.size(-2);
        Var::cat(&[x, &memory.broadcast_to(&dims[..])], -2)
    };
    // After the other keys, whose positions then do not change.
    let size = |axis: usize| q.rank().checked_sub(axis).map_or(1, |axis| q.shape()[axis]);
    let sizes = Sizes { batch: size(4), heads: size(3), lq: size(2), lk: k.size(-2) };
    let spec = spec.with_memory(sizes, memory_k.size(-2));
    attend(q, &joined(k, memory_k), &joined(v, memory_v), &spec)
}

/// Multi-head attention with `M` learned keys and values per key head beside the keys and values of the
/// sequence; in place of a feed-forward layer, or as sinks.
///
/// `[.., L, width]` to `[.., L, width]`, in `O(L (L + M) · H D)` and the work of the projections.
/// Parameters: as [`Projections`], and `memory_k` and `memory_v` `[Hk, M, D]`, normal with
/// deviations `1/√D` and `1/√M` initially. With `M` of 0 it is multi-head attention. Sukhbaatar et
/// al. 2019 (arXiv 1907.01470).
#[derive(Clone, Debug)]
pub struct MemoryAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    /// `[Hk, M, D]`
    pub memory_k: Param<T>,
    /// `[Hk, M, D]`
    pub memory_v: Param<T>,
}

impl<T: Real> MemoryAttention<T> {
    /// A layer with `m` learned keys and values per key head.
    ///
    /// ```
    /// use retrograd::nn::attention::{HeadSizes, Incremental, MemoryAttention, Projections, Spec};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = MemoryAttention::new(projections, 3, &mut rng);
    /// let y = attention.forward(&x, &Spec::new().causal(), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn new(projections: Projections<T>, m: usize, rng: &mut Rng) -> Self {
        let sizes = projections.sizes();
        let mut normal = |n: usize| {
            let std = 1.0 / (n.max(1) as f64).sqrt();
            let shape = [sizes.key_heads, m, sizes.head_width];
            Param::new(Init::Normal { std }.sample(shape, rng))
        };
        MemoryAttention { memory_k: normal(sizes.head_width), memory_v: normal(m), projections }
    }
}

visits!(MemoryAttention: all projections, param memory_k, param memory_v);

impl<T: Real> Incremental<T> for MemoryAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        let spec = self.projections.with_dropout(spec, pass);
        let [q, k, v] = self.projections.qkv(x, past, pass);
        let memory = (&self.memory_k.to_var(), &self.memory_v.to_var());
        self.projections.project_out(&attend_with_memory(&q, &k, &v, memory, &spec), pass)
    }
}
