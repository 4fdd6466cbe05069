//! The attention explorer: what the heads of a model attend to, as a page.
//!
//! [`AttentionPage`] takes plain data: texts, and the weights of heads as rows of numbers. A model's are
//! collected by [`AttentionExplorer`](crate::AttentionExplorer).

mod head;
mod pairs;
mod patterns;
mod scores;
mod state;

pub use head::HeadMap;
pub use pairs::PairMask;
pub use patterns::Patterns;
pub use scores::{AddedPart, AddedTo, ScoreNormalizer, ScoreParts};
pub use state::StateParts;

use crate::Page;
use head::HeadData;
use pairs::MaskData;
use serde::Serialize;
use std::borrow::Cow;
use std::io;
use std::path::Path;

/// A sequence of tokens: their labels, and what makes them equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sequence {
    /// What it is, such as `"text"` or `"source"`.
    pub name: String,
    /// The tokens as text.
    pub labels: Vec<String>,
}

/// An input of the model: one sequence, or several that attend to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttentionText {
    /// The name in the list of texts.
    pub name: String,
    /// The sequences.
    pub sequences: Vec<Sequence>,
    /// The number of tokens that were given, if the others were generated one by one.
    pub prompt: Option<usize>,
    /// The query and the key that are shown first.
    pub pair: Option<(usize, usize)>,
}

/// One layer of attention on one text.
#[derive(Clone, Debug)]
pub struct AttentionLayer {
    /// The path of the module, such as `"transformer.h.0.attn"`.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The sequences of the queries and of the keys, by their place in the text.
    pub sequences: [usize; 2],
    /// The parts of the specification, in words.
    pub parts: String,
    /// The heads; none if there are no weights.
    pub heads: Vec<HeadMap>,
    /// Queries and keys.
    pub scores: Option<ScoreParts>,
    /// The state over time, of a recurrence.
    pub state: Option<StateParts>,
    /// What is to be said of this layer: why it has no weights, or what was left out.
    pub notes: Vec<String>,
}

/// The attention of a model on one text.
#[derive(Clone, Debug)]
pub struct AttentionLook {
    /// The state of the model, such as `"step 500"`.
    pub snapshot: String,
    /// The text, by its place.
    pub text: usize,
    /// The loss of the model on the text.
    pub loss: Option<f64>,
    /// The layers, in the order of their calls.
    pub layers: Vec<AttentionLayer>,
    /// What is to be said of all layers.
    pub notes: Vec<String>,
}

/// A page with the attention weights of a model: on texts, at several states of the training, or of
/// several models.
///
/// ```
/// use retrograd::study::attention::*;
///
/// let mask = PairMask::new([2, 2], |query, key| key <= query, "+", 64);
/// let mut head = HeadMap::new(mask, Some(&[0, 1]));
/// head.push(&[1.0, 0.0], None);
/// head.push(&[0.75, 0.25], None);
///
/// let mut page = AttentionPage::new("Two words");
/// let labels = ["two", "words"].map(String::from).to_vec();
/// let sequences = vec![Sequence { name: "text".into(), labels }];
/// let text = page.text(AttentionText { name: "two words".into(), sequences, prompt: None, pair: None });
/// let layer = AttentionLayer {
///     name: "attn".into(), kind: "Attention".into(), sequences: [0, 0], parts: "".into(),
///     heads: vec![head], scores: None, state: None, notes: vec![],
/// };
/// page.look(AttentionLook { snapshot: "now".into(), text, loss: None, layers: vec![layer], notes: vec![] });
/// assert!(page.html().contains("two"));
/// ```
#[derive(Clone, Debug)]
pub struct AttentionPage {
    title: String,
    note: String,
    limit: Option<usize>,
    start: Option<(usize, usize)>,
    texts: Vec<AttentionText>,
    looks: Vec<AttentionLook>,
}

/// What is left out, in this order, until the page is within its limit.
#[derive(Clone, Copy, Debug, Default)]
struct Without {
    /// Of looks before the last snapshot, queries and keys outside of the chosen pair.
    earlier_scores: bool,
    /// Of all looks.
    scores: bool,
    earlier_gradients: bool,
    gradients: bool,
    /// Weights beyond so many of a query.
    links: Option<usize>,
}

impl AttentionPage {
    /// A page without a text.
    pub fn new(title: &str) -> AttentionPage {
        let (title, note) = (title.to_string(), String::new());
        let (texts, looks) = (Vec::new(), Vec::new());
        AttentionPage { title, note, limit: None, start: None, texts, looks }
    }

    /// Sets the line below the title.
    pub fn note(&mut self, note: &str) {
        self.note = note.to_string();
    }

    /// Sets the layer and the head that are shown first, counted from 0. If no snapshot has them, the note says so.
    pub fn start(&mut self, layer: usize, head: usize) {
        self.start = Some((layer, head));
    }

    /// Sets the largest size in bytes. Without it, it is 2 MB if no sequence has more than 512 tokens,
    /// else 6 MB. The page says what is left out beyond it: first the queries and keys of pairs
    /// that are not the chosen one, then gradients, then the smaller weights of each query; each time
    /// first of the snapshots before the last. If that is not enough, the page is larger, and says so.
    pub fn limit(&mut self, bytes: usize) {
        self.limit = Some(bytes);
    }

    /// Adds a text; returns its place, for [`AttentionLook::text`].
    pub fn text(&mut self, text: AttentionText) -> usize {
        self.texts.push(text);
        self.texts.len() - 1
    }

    /// Adds the attention of a model on a text.
    ///
    /// # Panics
    /// If there is no such text, or a layer refers to a sequence that the text does not have.
    ///
    /// ```should_panic
    /// use retrograd::study::attention::{AttentionLook, AttentionPage};
    /// let look = AttentionLook { snapshot: "now".into(), text: 3, loss: None, layers: vec![], notes: vec![] };
    /// AttentionPage::new("Heads").look(look);
    /// ```
    #[track_caller]
    pub fn look(&mut self, look: AttentionLook) {
        let Some(text) = self.texts.get(look.text) else {
            panic!("AttentionPage::look: there is no text {}", look.text);
        };
        let sequences = text.sequences.len();
        for layer in &look.layers {
            assert!(
                layer.sequences.iter().all(|&s| s < sequences),
                "AttentionPage::look: layer {} refers to sequences {:?} of {sequences}",
                layer.name,
                layer.sequences
            );
        }
        self.looks.push(look);
    }

    /// The page, reduced to its limit.
    pub fn page(&self) -> Page {
        let longest = self.texts.iter().flat_map(|t| &t.sequences).map(|s| s.labels.len()).max();
        let limit = self.limit.unwrap_or(match longest {
            Some(n) if n > 512 => 6_000_000,
            _ => 2_000_000,
        });
        let mut without = Without::default();
        let mut left_out = Vec::new();
        let mut page = self.page_without(without, &left_out, None);
        type Step = (fn(&mut Without), &'static str);
        let steps: [Step; 7] = [
            (
                |w| w.earlier_scores = true,
                "queries and keys of the snapshots before the last, but those of the first pair",
            ),
            (|w| w.scores = true, "queries and keys, but those of the first pair"),
            (|w| w.earlier_gradients = true, "gradients of the snapshots before the last"),
            (|w| w.gradients = true, "gradients"),
            (|w| w.links = Some(16), "weights but the 16 largest of each query"),
            (|w| w.links = Some(8), "weights but the 8 largest of each query"),
            (|w| w.links = Some(4), "weights but the 4 largest of each query"),
        ];
        for (step, what) in steps {
            let size = page.html().len();
            if size <= limit {
                break;
            }
            step(&mut without);
            left_out.push(what);
            let smaller = self.page_without(without, &left_out, None);
            match smaller.html().len() < size {
                true => page = smaller,
                false => {
                    left_out.pop();
                }
            }
        }
        match page.html().len() > limit {
            true => self.page_without(without, &left_out, Some(limit)),
            false => page,
        }
    }

    /// The document.
    pub fn html(&self) -> String {
        self.page().html()
    }

    /// Writes the document to a file.
    ///
    /// # Errors
    /// If the file cannot be written; the message names it.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.page().write(path)
    }

    fn page_without(
        &self,
        without: Without,
        left_out: &[&'static str],
        exceeded: Option<usize>,
    ) -> Page {
        let mut snapshots: Vec<&str> = Vec::new();
        for look in &self.looks {
            if !snapshots.contains(&look.snapshot.as_str()) {
                snapshots.push(&look.snapshot);
            }
        }
        let mut masks: Vec<&PairMask> = Vec::new();
        let looks = self
            .looks
            .iter()
            .map(|look| {
                let snapshot = snapshots.iter().position(|s| *s == look.snapshot).unwrap_or(0);
                let is_earlier = snapshot + 1 < snapshots.len();
                let pair = self.texts[look.text].pair;
                LookData {
                    text: look.text,
                    snapshot,
                    loss: look.loss,
                    notes: &look.notes,
                    layers: look
                        .layers
                        .iter()
                        .map(|layer| layer.data(&mut masks, pair, is_earlier, without))
                        .collect(),
                }
            })
            .collect();
        let has = |&(layer, head): &(usize, usize)| {
            let mut layers = self.looks.iter().filter_map(|look| look.layers.get(layer));
            layers.any(|layer| head < layer.heads.len().max(1)) || self.looks.is_empty()
        };
        let (start, mut note) = (self.start.filter(has), self.note.clone());
        if let (Some((layer, head)), None) = (self.start, start) {
            note +=
                &format!(" There is no head {head} of layer {layer}, which was to be shown first.");
        }
        let data = Data {
            attention: 1,
            made: env!("CARGO_PKG_VERSION"),
            title: &self.title,
            note: &note,
            start,
            texts: &self.texts,
            snapshots,
            masks: masks.iter().map(|mask| MaskData::of(mask)).collect(),
            looks,
            left_out,
            exceeded,
        };
        Page::new(&self.title, &data).style(STYLE).script(SCRIPT)
    }
}

impl AttentionLayer {
    fn data<'a>(
        &'a self,
        masks: &mut Vec<&'a PairMask>,
        pair: Option<(usize, usize)>,
        is_earlier: bool,
        without: Without,
    ) -> LayerData<'a> {
        let heads = self.heads.iter().map(|head| {
            let known = masks.iter().position(|mask| *mask == head.mask());
            let mask = known.unwrap_or_else(|| {
                masks.push(head.mask());
                masks.len() - 1
            });
            let gradients = !(without.gradients || without.earlier_gradients && is_earlier);
            head.data(mask, without.links, gradients)
        });
        let heads = heads.collect();
        let few = without.scores || without.earlier_scores && is_earlier;
        let scores = self.scores.as_ref().map(|scores| match (few, pair) {
            (true, Some((i, j))) => Cow::Owned(scores.only(&[i], &[j])),
            (true, None) => Cow::Owned(scores.only(&[], &[])),
            (false, _) => Cow::Borrowed(scores),
        });
        LayerData {
            name: &self.name,
            kind: &self.kind,
            sequences: self.sequences,
            parts: &self.parts,
            heads,
            scores,
            state: self.state.as_ref(),
            notes: &self.notes,
        }
    }
}

const STYLE: &str = include_str!("../../assets/attention.css");
const SCRIPT: &str = include_str!("../../assets/attention.js");

/// The data of the page.
#[derive(Serialize)]
struct Data<'a> {
    /// The version of this format.
    attention: u32,
    made: &'static str,
    title: &'a str,
    note: &'a str,
    start: Option<(usize, usize)>,
    texts: &'a [AttentionText],
    snapshots: Vec<&'a str>,
    masks: Vec<MaskData<'a>>,
    looks: Vec<LookData<'a>>,
    left_out: &'a [&'static str],
    /// The limit, if the page is larger although all that can be left out was.
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded: Option<usize>,
}

#[derive(Serialize)]
struct LookData<'a> {
    text: usize,
    snapshot: usize,
    loss: Option<f64>,
    notes: &'a [String],
    layers: Vec<LayerData<'a>>,
}

#[derive(Serialize)]
struct LayerData<'a> {
    name: &'a str,
    kind: &'a str,
    sequences: [usize; 2],
    parts: &'a str,
    heads: Vec<HeadData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scores: Option<Cow<'a, ScoreParts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a StateParts>,
    notes: &'a [String],
}
