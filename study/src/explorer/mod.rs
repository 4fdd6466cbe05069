//! The attention explorer: what the heads of a model attend to, collected from its forward passes.

mod digest;
mod layers;
mod states;
mod tap;
mod text;

pub use text::ExplorerText;

use crate::attention::{AttentionLayer, AttentionLook, AttentionPage, AttentionText};
use digest::{default_pair, digest, joined};
use layers::{Found, layers};
use retrograd_autograd::{Var, no_grad, with_grad_enabled};
use retrograd_nn::{Gpt, Module, Pass};
use retrograd_tensor::ops::loss::CrossEntropy;
use retrograd_tensor::{Real, Tensor};
use states::digest_state;
use tap::{Experiment, Observed, observe};

/// A text, its place on the page, and the pair that is shown first.
type KnownText = (ExplorerText, usize, Option<(usize, usize)>);

/// The largest number of weights whose gradients are computed: 16 heads on 1024 tokens.
const GRADIENTS: usize = 1 << 24;

/// Collects the attention of a model, and writes it as a page that any browser shows.
///
/// It observes the calls of [`attend`](retrograd_nn::attention::attend) and its variants in a forward pass, so
/// it works with any model whose layers compute attention by the engine. Layers whose variant computes no
/// weights are listed with that remark. Of a batch, the first sequence is shown.
///
/// The page has, for each layer and head: the weights as text, as a matrix and as links; averages such
/// as the weight of the previous token ([`Patterns`](crate::attention::Patterns)); one score
/// from `q·k` to the weight; the tiles of the mask; if the forward pass returns a loss, its gradients by
/// the weights; and by [`AttentionExplorer::ablations`] the loss without each head. Weights are computed
/// block by block of queries, so that no matrix of all scores is held; gradients need such matrices, and
/// are computed of up to 2²⁴ weights.
///
/// ```
/// use retrograd::prelude::*;
/// use retrograd::study::{AttentionExplorer, ExplorerText};
///
/// let config = GptConfig { vocab: 5, context: 4, layers: 2, heads: 2, width: 8, ..GptConfig::default() };
/// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
/// let text = ExplorerText::new("four letters", ["a", "b", "c", "b"]);
/// let mut explorer = AttentionExplorer::new("Attention of an untrained model").ablations(true);
/// explorer.record_gpt("untrained", &model, &text, &Tensor::from([[0i64, 1, 2, 1]]));
/// assert!(explorer.page.html().contains("transformer.h.1.attn"));
/// ```
#[derive(Clone, Debug)]
pub struct AttentionExplorer {
    /// The page, to be written; its note, its limit, and the head that it shows first can be set.
    pub page: AttentionPage,
    /// The texts so far, their places on the page, and the pairs that are shown first.
    texts: Vec<KnownText>,
    gradients: bool,
    ablations: bool,
}

impl AttentionExplorer {
    /// An explorer without a text, whose page has this title.
    pub fn new(title: &str) -> Self {
        let page = AttentionPage::new(title);
        AttentionExplorer { page, texts: Vec::new(), gradients: true, ablations: false }
    }

    /// Whether gradients of the loss by the weights are computed, by another forward pass and a backward
    /// pass; by default they are.
    pub fn gradients(mut self, on: bool) -> Self {
        self.gradients = on;
        self
    }

    /// Whether the loss without each head is computed: with its output set to 0, by one forward pass for
    /// each head of each layer. By default it is not.
    pub fn ablations(mut self, on: bool) -> Self {
        self.ablations = on;
        self
    }

    /// Records the attention of `model` in the forward pass `run` on a text. `snapshot` names the state
    /// of the model, such as `"step 500"`; snapshots that are recorded on the same text can be compared.
    ///
    /// `run` is called once to record weights, and if it returns a loss, a single number, again for its
    /// gradients and for each ablation: it must return the same each time, as in evaluation. It must
    /// compute on this thread, not in the shards of [`sharded`](retrograd_autograd::sharded).
    ///
    /// ```
    /// use retrograd::nn::attention::{Mask, MultiHeadAttention, MultiHeadConfig};
    /// use retrograd::prelude::*;
    /// use retrograd::study::{AttentionExplorer, ExplorerText};
    ///
    /// let mut rng = Rng::new(1);
    /// let model = MultiHeadAttention::<f32>::new(&MultiHeadConfig::new(8, 2), &mut rng);
    /// let x = Var::constant(Tensor::randn([1, 3, 8], &mut rng));
    /// let source = Var::constant(Tensor::randn([1, 4, 8], &mut rng));
    /// let text = ExplorerText::new("three of four", ["a", "b", "c"]).source(["1", "2", "3", "4"]);
    /// let mut explorer = AttentionExplorer::new("Cross-attention");
    /// explorer.record("random", &model, &text, || {
    ///     model.forward(&x, &source, &source, Mask::full(), &mut Pass::eval())
    /// });
    /// ```
    pub fn record<T: Real>(
        &mut self,
        snapshot: &str,
        model: &dyn Module<T>,
        text: &ExplorerText,
        mut run: impl FnMut() -> Var<T>,
    ) {
        let (output, observed) = no_grad(|| observe(model, Experiment::None, &mut run));
        let found = layers(&observed);
        let loss = (output.value().numel() == 1).then(|| output.item().to_f64());
        let mut notes = Vec::new();
        if found.is_empty() {
            notes.push(
                "No call of attention was observed. Those of other threads (in shards), of another element \
                 type than the model's, and products that are written without the attention engine are not."
                    .to_string(),
            );
        }
        let gradients = match (loss, self.gradients) {
            (Some(_), true) => gradients(model, &observed, &mut notes, &mut run),
            _ => None,
        };
        let (place, pair) = self.place_of(text, &found, &observed);
        let of = |layer| layer_of(layer, &observed, text, gradients.as_deref(), pair);
        let mut layers: Vec<AttentionLayer> = no_grad(|| found.iter().map(of).collect());
        if self.ablations && loss.is_some() {
            for (layer, found) in layers.iter_mut().zip(&found) {
                let mut heads = layer.heads.iter_mut();
                for &call in &found.calls {
                    let [_, n, ..] = observed.calls[call].call.sizes();
                    for (head, map) in (0..n).zip(&mut heads) {
                        let off = Experiment::HeadOff { call, head };
                        let (loss, _) = no_grad(|| observe(model, off, &mut run));
                        map.set_loss_without(loss.item().to_f64());
                    }
                }
            }
        }
        let snapshot = snapshot.to_string();
        self.page.look(AttentionLook { snapshot, text: place, loss, layers, notes });
    }

    /// [`AttentionExplorer::record`] of a language model on one sequence of tokens `[1, L]`, with the mean
    /// loss of predicting the 2nd to the last of them.
    ///
    /// # Panics
    /// As [`Gpt::forward`].
    #[track_caller]
    pub fn record_gpt<T: Real>(
        &mut self,
        snapshot: &str,
        model: &Gpt<T>,
        text: &ExplorerText,
        tokens: &Tensor<i64>,
    ) {
        let length = tokens.size(-1);
        // Errors are reported at the caller's line.
        let _ = no_grad(|| model.forward(tokens, &mut Pass::eval()));
        self.record(snapshot, model, text, || {
            let logits = model.forward(tokens, &mut Pass::eval());
            if length < 2 {
                return logits;
            }
            let targets = tokens.narrow(-1, 1, length - 1);
            logits.narrow(-2, 0, length - 1).cross_entropy(&targets, CrossEntropy::default())
        });
    }

    /// The place of a text on the page, and the pair that is shown first, which is chosen in the first
    /// look at the text: in the last layer in which its first sequence attends.
    fn place_of<T: Real>(
        &mut self,
        text: &ExplorerText,
        found: &[Found],
        observed: &Observed<T>,
    ) -> (usize, Option<(usize, usize)>) {
        if let Some((_, place, pair)) = self.texts.iter().find(|(known, ..)| known == text) {
            return (*place, *pair);
        }
        let pair = text.text.pair.or_else(|| {
            let chosen = found.iter().rev().find_map(|layer| {
                let seen = &observed.calls[*layer.calls.first()?];
                let [_, _, lq, lk] = seen.call.sizes();
                let [queries, keys] = text.sequences_of(&layer.module.path, lq, lk);
                (queries == Some(0)).then_some((seen, keys == Some(0)))
            });
            let (seen, is_self) = chosen?;
            no_grad(|| default_pair(seen, is_self, text.text.prompt))
        });
        let place = self.page.text(AttentionText { pair, ..text.text.clone() });
        self.texts.push((text.clone(), place, pair));
        (place, pair)
    }
}

/// The gradient of the loss by the weights of each call, or a note why there are none.
fn gradients<T: Real>(
    model: &dyn Module<T>,
    observed: &Observed<T>,
    notes: &mut Vec<String>,
    run: &mut impl FnMut() -> Var<T>,
) -> Option<Vec<Option<Tensor<T>>>> {
    let sizes = observed.calls.iter().map(|seen| seen.call.sizes());
    let count: usize = sizes.map(|sizes| sizes.iter().product::<usize>()).sum();
    if count > GRADIENTS {
        notes.push(format!(
            "Gradients were left out: they need a matrix of all weights, and there are {count} weights."
        ));
        return None;
    }
    let (loss, observed) = with_grad_enabled(true, || observe(model, Experiment::Weights, run));
    if !loss.is_tracked() {
        notes.push("There are no gradients: the loss was computed without recording.".into());
        return None;
    }
    let gradients = loss.backward();
    Some(observed.weights.iter().map(|weights| gradients.get(weights).cloned()).collect())
}

/// A layer of the page.
fn layer_of<T: Real>(
    layer: &Found,
    observed: &Observed<T>,
    text: &ExplorerText,
    gradients: Option<&[Option<Tensor<T>>]>,
    pair: Option<(usize, usize)>,
) -> AttentionLayer {
    let mut shown = AttentionLayer {
        name: layer.module.path.clone(),
        kind: layer.module.type_name.clone(),
        sequences: [0, 0],
        parts: String::new(),
        heads: Vec::new(),
        scores: None,
        state: None,
        notes: Vec::new(),
    };
    if let Some(state) = layer.state {
        let (call, _) = &observed.states[state];
        let length = call.recurrence.k.size(2);
        let found = text.sequences_of(&layer.module.path, length, length);
        shown.sequences = found.map(|s| s.unwrap_or(0));
        let tokens = found[0].is_some().then(|| text.identities(shown.sequences[0]));
        let (heads, state) = digest_state(call, tokens.as_deref());
        (shown.heads, shown.state) = (heads, Some(state));
        shown.notes.push(
            "It has a state and no weights. Shown are the equivalent weights: by how much the value of a \
             token is multiplied in the output of another one. They may be negative; averages are those of \
             their absolute values, as shares."
                .into(),
        );
        return shown;
    }
    let Some(&first) = layer.calls.first() else {
        shown.notes.push(
            "It computes no matrix of weights with the attention engine, so there is nothing to show."
                .into(),
        );
        return shown;
    };
    let seen = &observed.calls[first];
    let [_, heads, lq, lk] = seen.call.sizes();
    let found = text.sequences_of(&layer.module.path, lq, lk);
    shown.sequences = found.map(|s| s.unwrap_or(0));
    if found.contains(&None) {
        shown.notes.push(format!(
            "No sequence of the text has as many tokens as this layer, which has {lq} queries and {lk} \
             keys: they are numbered."
        ));
    }
    let length = text.text.sequences[shown.sequences[1]].labels.len();
    if found[1].is_some() && lk > length {
        shown.notes.push(format!("The last {} keys are not tokens but learned.", lk - length));
    }
    let is_self = found[0].is_some() && found[0] == found[1];
    let tokens = is_self.then(|| text.identities(shown.sequences[0]));
    let explained = seen.call.spec().explain(lq, lk);
    shown.parts = explained.split("map").next().unwrap_or("").trim_end().to_string();
    if layer.calls.len() > 1 {
        shown.notes.push(format!(
            "It calls attention {} times, with {heads} heads each; its heads are shown in this order.",
            layer.calls.len()
        ));
    }
    let mut scores = Vec::new();
    for &place in &layer.calls {
        let gradient = gradients.and_then(|all| all[place].as_ref());
        let seen = &observed.calls[place];
        let (heads, parts) = digest(seen, observed, tokens.as_deref(), gradient, pair);
        shown.heads.extend(heads);
        scores.push(parts);
    }
    shown.scores = joined(scores);
    if shown.scores.is_none() {
        shown.notes.push("Its calls of attention differ, so that scores cannot be opened.".into());
    }
    shown
}
