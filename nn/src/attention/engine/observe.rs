//! What is reported of attention: calls, which an observer may change, and rotations of operands.

use super::bias::Bias;
use super::explain::tiles;
use super::feature_map::feature_map;
use super::mask::Sizes;
pub use super::operands::Change;
use super::operands::Operands;
use super::spec::{Normalizer, Sink, Spec};
use retrograd_autograd::{Recurrence, Var};
use retrograd_tensor::kernels::attention::{At, TileMask};
use retrograd_tensor::observe::{Event, report};
use retrograd_tensor::{Real, Tensor};
use std::cell::RefCell;
use std::sync::Arc;

/// A call of [`attend`](super::attend) or one of its variants. It is an [`Event::Other`], reported before the
/// call is computed.
pub struct AttentionEvent<T: Real> {
    /// The call.
    pub call: Arc<AttentionCall<T>>,
    /// What is changed in it: an experiment. An observer may set it.
    pub change: RefCell<Change<T>>,
}

/// Queries or keys to which rotary positions were applied. It is an [`Event::Other`].
pub struct Rotation<T: Real> {
    /// Before.
    pub before: Tensor<T>,
    /// Afterwards.
    pub after: Tensor<T>,
}

/// The recurrence of a [`StateRule`](crate::attention::StateRule), on constants. It is an [`Event::Other`], reported
/// before it is computed.
pub struct StateCall<T: Real> {
    /// The vectors of the recurrence.
    pub recurrence: Recurrence<T>,
    /// The state before the first token, unless it is 0.
    pub state: Option<Var<T>>,
}

/// Reports a recurrence.
pub(crate) fn stated<T: Real>(of: &Recurrence<T>, state: Option<&Var<T>>) {
    report(|tell| {
        let recurrence = Recurrence {
            q: of.q.detach(),
            k: of.k.detach(),
            v: of.v.detach(),
            decay: of.decay.as_ref().map(Var::detach),
            low_rank: of.low_rank.as_ref().map(|x| x.each_ref().map(Var::detach)),
        };
        tell(&Event::Other(&StateCall { recurrence, state: state.map(Var::detach) }));
    });
}

/// A call of attention, on constants.
pub struct AttentionCall<T: Real> {
    call: Operands<T>,
    spec: Spec<T>,
}

/// Scores and weights `[H, n, Lk]` of some of the queries.
pub struct AttentionRows<T: Real> {
    /// The scores, as they are normalised.
    pub scores: Tensor<T>,
    /// The weights.
    pub weights: Tensor<T>,
    /// What was added to the products `q·k`, if the variant adds to them.
    pub products: Option<Tensor<T>>,
    /// The biases that were added to the scores, with their names.
    pub biases: Vec<(String, Tensor<T>)>,
    /// The scores before heads were mixed, if they were.
    pub unmixed: Option<Tensor<T>>,
}

/// Reports a call, and sets what observers change in it.
pub(super) fn observed<T: Real>(mut call: Operands<T>, spec: &Spec<T>) -> Operands<T> {
    report(|tell| {
        let of = AttentionCall { call: call.constant(), spec: spec.clone() };
        let event = AttentionEvent { call: Arc::new(of), change: RefCell::default() };
        tell(&Event::Other(&event));
        call.change = event.change.into_inner();
    });
    call
}

/// Reports a rotation of queries or keys.
pub(crate) fn rotated<T: Real>(before: &Var<T>, after: &Var<T>) {
    report(|tell| {
        let (before, after) = (before.value().clone(), after.value().clone());
        tell(&Event::Other(&Rotation { before, after }));
    });
}

impl<T: Real> AttentionCall<T> {
    /// The numbers of sequences, query heads, queries and keys.
    pub fn sizes(&self) -> [usize; 4] {
        let Sizes { batch, heads, lq, lk } = self.call.sizes;
        [batch, heads, lq, lk]
    }

    /// The spec that was given.
    pub fn spec(&self) -> &Spec<T> {
        &self.spec
    }

    /// Whether a query of the first sequence attends to a key.
    pub fn keeps(&self, head: usize, query: usize, key: usize) -> bool {
        let query = query as isize + self.call.offset;
        self.call.spec.mask.keep(At { batch: 0, head, query, key })
    }

    /// Whether heads have masks of their own.
    pub fn masks_by_head(&self) -> bool {
        self.call.spec.mask.depends().1
    }

    /// The tiles of the mask of a head, as in [`Spec::explain`].
    pub fn tiles(&self, head: usize) -> String {
        let sizes = Sizes { batch: 1, ..self.call.sizes };
        tiles(&self.call.spec.mask, (0, head), self.call.offset, sizes)
    }

    /// Queries and keys.
    pub fn operands(&self) -> [&Tensor<T>; 2] {
        [self.call.q.value(), self.call.k.value()]
    }

    /// Queries and keys as their products use them: with [`Normalizer::Linear`], after its feature map.
    pub fn mapped_operands(&self) -> [Tensor<T>; 2] {
        let is_linear = self.call.spec.normalizer == Normalizer::Linear;
        let map = |x: &Var<T>| if is_linear { feature_map(x) } else { x.clone() }.into_value();
        [&self.call.q, &self.call.k].map(map)
    }

    /// The factor of the products.
    pub fn scale(&self) -> f64 {
        match self.call.spec.normalizer {
            Normalizer::Linear => 1.0,
            _ => self.call.scale().to_f64(),
        }
    }

    /// The softcap of the scores.
    pub fn softcap(&self) -> Option<f64> {
        self.call.spec.softcap
    }

    /// The function from scores to weights.
    pub fn normalizer(&self) -> Normalizer {
        self.call.spec.normalizer
    }

    /// The logits of the sink, one for each head.
    pub fn sinks(&self) -> Option<Vec<f64>> {
        match &self.call.spec.sink {
            Sink::None => None,
            Sink::Zero => Some(vec![0.0; self.call.sizes.heads]),
            Sink::Learned(sink) => Some(sink.value().to_vec().iter().map(|x| x.to_f64()).collect()),
        }
    }

    /// Scores and weights of `n` queries of the first sequence, from query `first` on, by the composed path.
    pub fn rows(&self, first: usize, n: usize) -> AttentionRows<T> {
        let rows = self.call.rows(first, n);
        let all = rows.composed_all();
        let shape = [1, rows.sizes.heads, rows.sizes.lq, rows.sizes.lk];
        let of = |x: &Var<T>| x.value().broadcast_to(&shape[..]).select(0, 0);
        let bias =
            |bias: &Bias<T>| (format!("{bias:?}"), of(&bias.as_var(rows.sizes, rows.offset)));
        // What each rule adds: the scores after it, without those before it.
        let ruled = |rules: usize| {
            let mut alone = rows.constant();
            (alone.spec.score_mix, alone.spec.normalizer) = (None, Normalizer::Softmax);
            alone.spec.rules.truncate(rules);
            of(&alone.composed_all().scores)
        };
        let rules = rows.spec.rules.iter().enumerate().map(|(i, rule)| {
            let added = ruled(i + 1) - ruled(i);
            (format!("{rule:?}"), added.masked_fill(&added.ne(&added), T::ZERO))
        });
        let unmixed = || {
            let mut alone = rows.constant();
            alone.spec.score_mix = None;
            of(&alone.composed_all().scores)
        };
        AttentionRows {
            scores: of(&all.scores),
            weights: of(&all.weights),
            products: rows.spec.products.as_ref().map(of),
            biases: rows.spec.biases.iter().map(bias).chain(rules).collect(),
            unmixed: rows.spec.score_mix.is_some().then(unmixed),
        }
    }
}
