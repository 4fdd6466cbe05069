//! The projections around the multi-head variants of recent language models.

use super::heads::{join_heads, split_heads};
use super::incremental::Past;
use super::rope::{Pairing, Rope};
use crate::linear::Linear;
use crate::module::{Layer, Module, Walk};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::random::Rng;

/// How many heads of which width a self-attention has.
///
/// ```
/// use retrograd_nn::attention::HeadSizes;
/// let sizes = HeadSizes::new(64, 8).key_heads(2);
/// assert_eq!((sizes.head_width, sizes.key_heads), (8, 2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSizes {
    /// Width of what goes in and comes out.
    pub width: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub key_heads: usize,
    /// Width of each head.
    pub head_width: usize,
}

impl HeadSizes {
    /// As many key heads as query heads, all together as wide as the model.
    ///
    /// # Panics
    /// If the heads do not divide the width.
    #[track_caller]
    pub fn new(width: usize, heads: usize) -> Self {
        assert!(
            heads > 0 && width.is_multiple_of(heads),
            "attention: {heads} heads do not divide a width of {width}"
        );
        HeadSizes { width, heads, key_heads: heads, head_width: width / heads }
    }

    /// Query heads share key heads: grouped-query attention, or with 1 multi-query attention.
    ///
    /// # Panics
    /// If the number does not divide that of the query heads.
    #[track_caller]
    pub fn key_heads(self, key_heads: usize) -> Self {
        assert!(
            key_heads > 0 && self.heads.is_multiple_of(key_heads),
            "attention: {} query heads are no multiple of {key_heads} key heads",
            self.heads
        );
        HeadSizes { key_heads, ..self }
    }

    /// Heads of another width.
    pub fn head_width(self, head_width: usize) -> Self {
        HeadSizes { head_width, ..self }
    }
}

/// The projections around a self-attention, with rotary positions if wanted.
///
/// Parameters, named as in Llama: `q_proj` `[H · D, width]`, `k_proj` and `v_proj`
/// `[Hk · D, width]`, `o_proj` `[width, H · D]`, without biases unless they are put there.
#[derive(Clone, Debug)]
pub struct HeadProjections<T: Real = f32> {
    /// To queries.
    pub q_proj: Linear<T>,
    /// To keys.
    pub k_proj: Linear<T>,
    /// To values.
    pub v_proj: Linear<T>,
    /// From the heads back to the width.
    pub o_proj: Linear<T>,
    sizes: HeadSizes,
    rope: Option<Rope>,
}

impl<T: Real> HeadProjections<T> {
    /// Without biases and without positions.
    pub fn new(sizes: HeadSizes, rng: &mut Rng) -> Self {
        let HeadSizes { width, heads, key_heads, head_width } = sizes;
        HeadProjections {
            q_proj: Linear::without_bias(width, heads * head_width, rng),
            k_proj: Linear::without_bias(width, key_heads * head_width, rng),
            v_proj: Linear::without_bias(width, key_heads * head_width, rng),
            o_proj: Linear::without_bias(heads * head_width, width, rng),
            sizes,
            rope: None,
        }
    }

    /// With rotary positions.
    ///
    /// # Panics
    /// If more is to be rotated than a head has.
    #[track_caller]
    pub fn with_rope(mut self, rope: Rope) -> Self {
        assert!(
            rope.width() <= self.sizes.head_width,
            "rope: a rotary width of {} in heads of width {}",
            rope.width(),
            self.sizes.head_width
        );
        self.rope = Some(rope);
        self
    }

    /// The sizes.
    pub fn sizes(&self) -> HeadSizes {
        self.sizes
    }

    /// The rotary positions.
    pub fn rope(&self) -> Option<&Rope> {
        self.rope.as_ref()
    }

    /// Goes over to another pairing of rotated elements: permutes the rows of `q_proj` and
    /// `k_proj` so that the output stays the same.
    ///
    /// # Panics
    /// If there are no rotary positions.
    #[track_caller]
    pub fn convert_pairing(&mut self, to: Pairing) {
        let from = self.rope.clone().expect("rope: a pairing to convert");
        let HeadSizes { heads, key_heads, .. } = self.sizes;
        for (layer, heads) in [(&self.q_proj, heads), (&self.k_proj, key_heads)] {
            for param in [Some(&layer.weight), layer.bias.as_ref()].into_iter().flatten() {
                param.set(from.converted(&param.value(), heads, to));
            }
        }
        self.rope = Some(from.pairing(to));
    }

    /// Queries `[.., H, L, D]`, keys and values `[.., Hk, L, D]`, before positions.
    #[track_caller]
    pub(crate) fn heads(&self, x: &Var<T>, pass: &mut Pass) -> [Var<T>; 3] {
        let HeadSizes { heads, key_heads, .. } = self.sizes;
        [
            split_heads(&self.q_proj.forward(x, pass), heads),
            split_heads(&self.k_proj.forward(x, pass), key_heads),
            split_heads(&self.v_proj.forward(x, pass), key_heads),
        ]
    }

    /// Queries or keys, the first of which stands at `start`, with their positions.
    pub(crate) fn place(&self, x: &Var<T>, start: usize) -> Var<T> {
        self.rope.as_ref().map_or_else(|| x.clone(), |rope| rope.rotate(x, start))
    }

    /// Queries, and keys and values of everything so far, with positions.
    #[track_caller]
    pub(crate) fn qkv(&self, x: &Var<T>, past: &mut Past<'_, T>, pass: &mut Pass) -> [Var<T>; 3] {
        let [q, k, v] = self.heads(x, pass);
        let (q, k) = (self.place(&q, past.start()), self.place(&k, past.start()));
        let (k, v) = past.extend(&k, &v);
        [q, k, v]
    }

    /// The heads `[.., H, L, D]` joined and projected.
    #[track_caller]
    pub(crate) fn out(&self, heads: &Var<T>, pass: &mut Pass) -> Var<T> {
        self.o_proj.forward(&join_heads(heads), pass)
    }
}

impl<T: Real> Module<T> for HeadProjections<T> {
    fn walk(&self, w: &mut Walk<'_, T>) {
        w.module("q_proj", &self.q_proj);
        w.module("k_proj", &self.k_proj);
        w.module("v_proj", &self.v_proj);
        w.module("o_proj", &self.o_proj);
    }
}
