//! What a model keeps of earlier tokens.

use crate::attention::KvCache;
use retrograd_tensor::{Integer, Real, Tensor};

/// The earlier tokens of a sequence or a batch, for [`Gpt::forward_cached`](crate::Gpt::forward_cached).
#[derive(Clone, Debug)]
pub enum GptCache<T: Real = f32> {
    /// The keys and values of every block.
    Layers(Vec<KvCache<T>>),
    /// The tokens themselves, for models whose attention cannot be cached.
    Tokens(Option<Tensor<i64>>),
}

impl<T: Real> GptCache<T> {
    pub(super) fn new(of_layer: KvCache<T>, layers: usize, is_cached: bool) -> Self {
        match is_cached {
            true => GptCache::Layers(vec![of_layer; layers]),
            false => GptCache::Tokens(None),
        }
    }

    /// The size of the cache in bytes: keys and values, or tokens.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let config = GptConfig { vocab: 10, context: 4, layers: 3, heads: 2, width: 8, ..GptConfig::default() };
    /// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    /// let mut cache = model.cache();
    /// model.forward_cached(&Tensor::from([[1i64, 2]]), &mut cache);
    /// assert_eq!(cache.bytes(), 3 * 2 * 2 * 8 * 4); // layers, keys and values, tokens, width, f32
    /// ```
    pub fn bytes(&self) -> usize {
        match self {
            GptCache::Layers(layers) => layers.iter().map(KvCache::bytes).sum(),
            GptCache::Tokens(tokens) => tokens.as_ref().map_or(0, |tokens| 8 * tokens.numel()),
        }
    }

    /// Whether the cache drops old tokens.
    pub(super) fn is_rolling(&self) -> bool {
        match self {
            GptCache::Layers(layers) => {
                layers.first().is_some_and(|layer| layer.remaining().is_none())
            }
            GptCache::Tokens(_) => false,
        }
    }

    /// The number of tokens so far.
    pub fn position(&self) -> usize {
        match self {
            GptCache::Layers(layers) => layers.first().map_or(0, KvCache::position),
            GptCache::Tokens(tokens) => tokens.as_ref().map_or(0, |tokens| tokens.size(-1)),
        }
    }
}

/// Tokens `[.., L]` after earlier ones.
#[track_caller]
pub(super) fn append<I: Integer>(earlier: &Option<Tensor<i64>>, tokens: &Tensor<I>) -> Tensor<i64> {
    let index = |token: I| token.index_in(usize::MAX).expect("checked") as i64;
    let new: Vec<i64> = tokens.to_vec().into_iter().map(index).collect();
    let new = Tensor::from_vec(new, tokens.shape());
    match earlier {
        Some(earlier) => Tensor::cat(&[earlier, &new], -1),
        None => new,
    }
}
