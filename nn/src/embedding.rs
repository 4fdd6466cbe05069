//! Embeddings.

use crate::init::Init;
use crate::module::{Module, Visitor};
use crate::param::Param;
use retrograd_autograd::Var;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Integer, Real, Tensor};

/// An embedding, a table of vectors indexed by tokens: `[..]` to `[.., width]`.
///
/// Parameter: `weight` `[entries, width]`, standard normal initially, as in PyTorch.
#[derive(Clone, Debug)]
pub struct Embedding<T: Real = f32> {
    /// `[entries, width]`
    pub weight: Param<T>,
}

impl<T: Real> Embedding<T> {
    /// A table of `entries` vectors.
    #[track_caller]
    pub fn new(entries: usize, width: usize, rng: &mut Rng) -> Self {
        Embedding { weight: Param::new(Init::Normal { std: 1.0 }.sample([entries, width], rng)) }
    }

    /// Samples the entries anew.
    #[track_caller]
    pub fn init(self, init: Init, rng: &mut Rng) -> Self {
        self.weight.set(init.sample(self.weight.shape(), rng));
        self
    }

    /// The vectors at the given indices.
    ///
    /// # Panics
    /// If an index is outside the table.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let table = Embedding::<f32>::new(10, 4, &mut Rng::new(1));
    /// let y = table.forward(&Tensor::from([[3i64, 7, 3]]));
    /// assert_eq!(*y.shape(), [1, 3, 4]);
    /// ```
    #[track_caller]
    pub fn forward<I: Integer>(&self, index: &Tensor<I>) -> Var<T> {
        self.weight.to_var().embedding(index)
    }
}

impl<T: Real> Module<T> for Embedding<T> {
    fn visit(&self, v: &mut Visitor<'_, T>) {
        v.param("weight", &self.weight);
    }
    fn is_one_operation(&self) -> bool {
        true
    }
}
