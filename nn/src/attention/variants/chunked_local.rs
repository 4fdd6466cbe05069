//! Chunked local attention: causal attention within chunks.

use crate::attention::engine::{Mask, Spec};
use crate::attention::parts::incremental::{Incremental, Past};
use crate::attention::parts::projections::Projections;
use crate::module::{Call, Module, Visitor};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Causal self-attention within chunks: `p` attends to `j` if `j <= p` and `⌊j / n⌋ = ⌊p / n⌋`.
///
/// `[L, width]` or `[B, L, width]` to the same, in `O(L n width)`, where tiles between chunks
/// are skipped. With `n >= L` it is causal self-attention. Chunks are those of absolute
/// positions, so a cache has to keep at most the last `n` keys. Used in most layers of Llama 4,
/// alternating with full attention.
///
/// Parameters: those of [`Projections`].
#[derive(Clone, Debug)]
pub struct ChunkedLocalAttention<T: Real = f32> {
    /// The projections.
    pub projections: Projections<T>,
    mask: Mask,
}

impl<T: Real> ChunkedLocalAttention<T> {
    /// A layer with chunks of `chunk` tokens.
    ///
    /// # Panics
    /// If `chunk` is 0.
    #[track_caller]
    pub fn new(projections: Projections<T>, chunk: usize) -> Self {
        let mask = Mask::causal() & Mask::chunks(chunk);
        ChunkedLocalAttention { projections, mask }
    }

    /// The output for `x`; `spec` may restrict the attention further.
    ///
    /// # Panics
    /// If the shapes do not match.
    ///
    /// ```
    /// # use retrograd_autograd::Var;
    /// # use retrograd_nn::Pass;
    /// # use retrograd_nn::attention::{ChunkedLocalAttention, HeadSizes, Mask, Projections};
    /// # use retrograd_tensor::Tensor;
    /// # use retrograd_tensor::random::Rng;
    /// # let mut rng = Rng::new(1);
    /// # let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// # let x = Var::constant(Tensor::<f64>::randn([1, 4, 8], &mut rng));
    /// let attention = ChunkedLocalAttention::new(projections, 2);
    /// let y = attention.forward(&x, Mask::first(3), &mut Pass::eval());
    /// assert_eq!(*y.shape(), [1, 4, 8]);
    /// ```
    #[track_caller]
    pub fn forward(&self, x: &Var<T>, spec: impl Into<Spec<T>>, pass: &mut Pass) -> Var<T> {
        Call::start(self).end(self.run(x, &spec.into(), &mut Past::none(), pass))
    }
}

impl<T: Real> Module<T> for ChunkedLocalAttention<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        self.projections.visit(v);
    }
}

impl<T: Real> Incremental<T> for ChunkedLocalAttention<T> {
    #[track_caller]
    fn run(&self, x: &Var<T>, spec: &Spec<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> Var<T> {
        self.projections.attend(x, spec.clone().mask(self.mask.clone()), past, pass)
    }
}
