//! What attention is to be computed, as typed parts.

use super::bias::Bias;
use super::mask::{Align, Held, Mask, Sizes};
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::kernels::attention::{At, TileMask};
use retrograd_tensor::random::Key;

/// One more logit in the softmax's sum, which takes weight and gives nothing.
#[derive(Clone, Debug, Default)]
pub enum Sink<T: Real = f32> {
    /// None: weights of a query sum to 1.
    #[default]
    None,
    /// A logit of 0: `e^s / (1 + Σ e^s)`, "softmax plus one".
    Zero,
    /// A learned logit per head, `[H]`, as in gpt-oss.
    Learned(Var<T>),
}

/// How scores become weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Normalizer {
    /// `e^s / Σ e^s`
    #[default]
    Softmax,
    /// `1 / (1 + e^-(s + bias))`, each on its own; a bias of `-ln Lk` unless given. Ramapuram
    /// et al. 2024 (arXiv 2409.04431).
    Sigmoid {
        /// The bias.
        bias: Option<f64>,
    },
    /// The nearest point of the simplex: `max(s - τ, 0)`, exactly 0 for the unlikely. Martins,
    /// Astudillo 2016 (arXiv 1602.02068).
    Sparsemax,
    /// `max(s/2 - τ, 0)²`: between softmax and sparsemax. Peters, Niculae, Martins 2019
    /// (arXiv 1905.05702).
    Entmax15,
    /// Softmax over the `k` largest scores, of equal ones the first. Zhao et al. 2019
    /// (arXiv 1912.11637).
    TopK(usize),
    /// `φ(q)·φ(k) / (Σ φ(q)·φ(k) + 1e-6)` with features `φ(x) = elu(x) + 1` in place of the
    /// exponential. There are no scores then that could be scaled, capped, biased or mixed.
    /// [`LinearAttention`](crate::attention::LinearAttention) has the forms of linear cost; this
    /// is the quadratic one, under any mask. Katharopoulos et al. 2020 (arXiv 2006.16236).
    Linear,
}

/// Parts of a spec that variants may have of their own; see [`Spec::refuse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Softcap,
    HeadMix,
    Align,
    Sink,
    Normalizer,
}

/// Which implementation computes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// The tiled one where it can and where it pays.
    #[default]
    Auto,
    /// By whole matrices of scores; every combination, gradients of every order.
    Composed,
    /// Tile by tile, skipping what is masked.
    Tiled,
}

/// The parts of an attention, to be put together as needed.
///
/// With `p` the position of a query and `j` that of a key, in this order:
///
/// ```text
/// s = scale · q·k            1/√Dk unless given; of variants that add to q·k, of the sum
/// s = c · tanh(s / c)        if there is a softcap c
/// s = s + bias(h, p, j)      for every bias
/// s = W · s                  over heads, if score heads are mixed: of what each sees
/// w = normalize(s where mask(p, j), sink)
/// w = dropout(w)
/// w = W · w                  over heads, if weight heads are mixed
/// o = w · v
/// ```
///
/// Where heads are mixed and see different pairs: a pair that a head does not see, by its mask
/// or for a score of -inf, counts as a score of 0 in the mixtures of the others; and a head
/// gets the weights that others have for a pair even if its own mask hides it. What no head
/// sees, none gets.
///
/// A variant honours the parts of a spec, or refuses those it has of its own and cannot
/// combine with another's.
///
/// ```
/// use retrograd_autograd::Var;
/// use retrograd_nn::attention::{Bias, Mask, Spec, attend};
/// use retrograd_tensor::{Tensor, random::Rng};
///
/// let mut rng = Rng::new(1);
/// let mut x = |heads| Var::constant(Tensor::<f32>::randn([2, heads, 5, 8], &mut rng));
/// let (q, k, v) = (x(4), x(2), x(2)); // four query heads share two key heads
/// let spec = Spec::new().causal().softcap(30.0).bias(Bias::alibi(4)).mask(Mask::lengths(&[5, 3]));
/// assert_eq!(*attend(&q, &k, &v, &spec).shape(), [2, 4, 5, 8]);
/// ```
#[derive(Clone, Debug)]
pub struct Spec<T: Real = f32> {
    pub(crate) scale: Option<f64>,
    /// Adds to `q·k`, `[B, H, Lq, Lk]`.
    pub(crate) products: Option<Var<T>>,
    pub(crate) softcap: Option<f64>,
    pub(crate) biases: Vec<Bias<T>>,
    pub(crate) score_mix: Option<Var<T>>,
    pub(crate) mask: Mask,
    pub(crate) align: Option<Align>,
    /// What a cache holds before the keys of the call, if there is one.
    pub(crate) held: Option<Held>,
    pub(crate) sink: Sink<T>,
    pub(crate) normalizer: Normalizer,
    pub(crate) dropout: Option<(f64, Key)>,
    pub(crate) weight_mix: Option<Var<T>>,
    pub(crate) path: Path,
}

impl<T: Real> Default for Spec<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Scaled dot-product attention under a mask.
impl<T: Real> From<Mask> for Spec<T> {
    fn from(mask: Mask) -> Self {
        Spec::new().mask(mask)
    }
}

impl<T: Real> From<&Spec<T>> for Spec<T> {
    fn from(spec: &Spec<T>) -> Self {
        spec.clone()
    }
}

impl<T: Real> Spec<T> {
    /// Scaled dot-product attention without more.
    #[inline(never)] // for the reason given at `Pass`
    pub fn new() -> Self {
        Spec {
            scale: None,
            products: None,
            softcap: None,
            biases: Vec::new(),
            score_mix: None,
            mask: Mask::Full,
            align: None,
            held: None,
            sink: Sink::None,
            normalizer: Normalizer::Softmax,
            dropout: None,
            weight_mix: None,
            path: Path::Auto,
        }
    }

    /// Multiplies `q·k`; `1/√Dk` unless given.
    ///
    /// # Panics
    /// If it is not finite as a number of this type.
    #[track_caller]
    pub fn scale(mut self, scale: f64) -> Self {
        let finite = T::from_f64(scale).to_f64().is_finite();
        assert!(finite, "attention: a scale must be finite in {}, got {scale}", T::DTYPE);
        self.scale = Some(scale);
        self
    }

    /// The scale of a variant, unless one is given.
    pub(crate) fn scale_unless_given(mut self, scale: f64) -> Self {
        self.scale.get_or_insert(scale);
        self
    }

    /// A factor of the scale, which has been given.
    pub(crate) fn scale_by(mut self, factor: f64) -> Self {
        self.scale = self.scale.map(|scale| scale * factor);
        self
    }

    /// Adds to `q·k`, before the scale: the part of the scores that a variant makes itself.
    pub(crate) fn add_products(mut self, products: Var<T>) -> Self {
        assert!(self.products.is_none(), "attention: products by two variants");
        self.products = Some(products);
        self
    }

    /// Bounds scores softly: `c · tanh(s / c)`. An infinite `c` is no bound. Gemma 2
    /// (arXiv 2408.00118).
    ///
    /// # Panics
    /// If `c` is not above 0 as a number of this type.
    #[track_caller]
    pub fn softcap(mut self, c: f64) -> Self {
        let as_number = T::from_f64(c);
        assert!(as_number > T::ZERO, "attention: a softcap must be above 0, got {c}");
        self.softcap = Some(c).filter(|_| as_number < T::INFINITY);
        self
    }

    /// Adds to the scores. May be given several times.
    pub fn bias(mut self, bias: Bias<T>) -> Self {
        self.biases.push(bias);
        self
    }

    /// Restricts who sees whom. Given several times, all must agree.
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = self.mask & mask;
        self
    }

    /// The causal mask.
    pub fn causal(self) -> Self {
        self.mask(Mask::causal())
    }

    /// Where queries stand among the keys; the last at the last key unless said.
    pub fn align(mut self, align: Align) -> Self {
        self.align = Some(align);
        self
    }

    /// The position of query 0.
    pub(crate) fn offset(&self, lq: usize, lk: usize) -> isize {
        self.align.unwrap_or_default().offset(lq, lk)
    }

    /// One more logit in the softmax.
    pub fn sink(mut self, sink: Sink<T>) -> Self {
        self.sink = sink;
        self
    }

    /// How scores become weights.
    ///
    /// # Panics
    /// If the bias of [`Normalizer::Sigmoid`] is NaN.
    #[track_caller]
    pub fn normalizer(mut self, normalizer: Normalizer) -> Self {
        if let Normalizer::Sigmoid { bias: Some(bias) } = normalizer {
            assert!(!bias.is_nan(), "attention: the bias of a sigmoid must be a number, got NaN");
        }
        self.normalizer = normalizer;
        self
    }

    /// Dropout of the weights, in a training pass. Rows of weights then no longer sum to 1; in
    /// the mean they do. Which are dropped depends on batch, head, query and key only, not on
    /// the path that computes it.
    ///
    /// # Panics
    /// If `p` is not in `[0, 1]`.
    #[track_caller]
    pub fn dropout(mut self, p: f64, pass: &mut Pass) -> Self {
        assert!((0.0..=1.0).contains(&p), "dropout: p must be in [0, 1], got {p}");
        self.dropout = pass.key().filter(|_| p > 0.0).map(|key| (p, key));
        self
    }

    /// The same with the dropout that a module has, if any.
    ///
    /// # Panics
    /// If both have one.
    #[track_caller]
    pub(crate) fn dropout_of_module(self, p: f64, pass: &mut Pass) -> Self {
        if self.dropout.is_none() {
            return self.dropout(p, pass);
        }
        assert!(p == 0.0, "attention: dropout by the spec, and of {p} by the module");
        self
    }

    /// Mixes heads: scores by `scores` before the mask, weights by `weights` after dropout,
    /// each `[H, H]` from the second axis to the first. Talking heads; Shazeer et al. 2020
    /// (arXiv 2003.02436).
    pub fn mix_heads(mut self, scores: Option<Var<T>>, weights: Option<Var<T>>) -> Self {
        (self.score_mix, self.weight_mix) = (scores, weights);
        self
    }

    /// Which implementation computes it.
    pub fn path(mut self, path: Path) -> Self {
        self.path = path;
        self
    }

    /// For a variant that has a part of its own, which cannot be combined with another's.
    ///
    /// # Panics
    /// If the spec has this part.
    #[track_caller]
    pub(crate) fn refuse(&self, who: &str, part: Part) {
        let (given, what) = match part {
            Part::Softcap => (self.softcap.is_some(), "a softcap"),
            Part::HeadMix => (self.score_mix.is_some() || self.weight_mix.is_some(), "mixed heads"),
            Part::Align => (self.align.is_some(), "an alignment"),
            Part::Sink => (!matches!(self.sink, Sink::None), "a sink"),
            Part::Normalizer => (self.normalizer != Normalizer::Softmax, "a normalizer"),
        };
        assert!(!given, "{who}: {what} in the spec, and another of its own");
    }

    /// The spec of a call with this cache: of the tokens that come next, in evaluation.
    ///
    /// # Panics
    /// If it has an alignment: the cache says where queries stand.
    #[track_caller]
    pub(crate) fn cached(&self, held: Held) -> Spec<T> {
        self.refuse("a cache", Part::Align);
        Spec { held: Some(held), dropout: None, ..self.clone() }
    }

    /// The mask and the biases ready for use with these sizes, by number of key, and the
    /// position of query 0.
    #[track_caller]
    pub(crate) fn fitted(&self, sizes: Sizes) -> (Mask, Vec<Bias<T>>, isize) {
        let offset = match self.held {
            Some(held) => (sizes.lk + held.dropped) as isize - sizes.lq as isize,
            None => self.offset(sizes.lq, sizes.lk),
        };
        let mask = self.mask.fitted(sizes, self.held, offset);
        let biases = self.biases.iter().map(|bias| bias.fitted(sizes, self.held, offset));
        let biases: Result<_, _> = biases.collect();
        match (mask, biases) {
            (Ok(mask), Ok(biases)) => (mask, biases, offset),
            (Err(why), _) | (_, Err(why)) => panic!("attend: {why}"),
        }
    }

    /// This spec for the keys of `sizes` as one for `more` besides, which everyone sees and no
    /// bias touches.
    #[track_caller]
    pub(crate) fn with_memory(&self, sizes: Sizes, more: usize) -> Spec<T> {
        let lk = sizes.lk;
        let (mask, biases, offset) = self.fitted(sizes);
        let mask = match mask {
            Mask::Full => Mask::Full,
            fitted => {
                Mask::rule("as before, and memory", move |at| at.key >= lk || fitted.keep(at))
            }
        };
        let biases = biases.into_iter().map(|bias| {
            if bias.as_rule().is_some() {
                let rule = move |at: At| bias.as_rule().map_or(0.0, |f| f(at));
                return Bias::rule(
                    "memory free",
                    move |at| if at.key < lk { rule(at) } else { 0.0 },
                );
            }
            let x = bias.as_var(sizes, offset);
            let mut dims = if x.rank() == 0 { vec![1] } else { x.shape().to_vec() };
            *dims.last_mut().expect("not empty") = lk;
            Bias::Additive(x.broadcast_to(&dims[..]).pad(-1, 0, more, T::ZERO))
        });
        let (biases, align) = (biases.collect(), Some(Align::Offset(offset)));
        Spec { mask, biases, align, held: None, ..self.clone() }
    }

    /// Why the tiled path cannot compute this, if it cannot.
    pub fn needs_composed(&self) -> Option<&'static str> {
        let reasons = [
            (self.normalizer != Normalizer::Softmax, "the normalizer needs whole rows"),
            (self.score_mix.is_some() || self.weight_mix.is_some(), "heads are mixed"),
            (self.biases.iter().any(|b| b.as_rule().is_none()), "a bias is a tensor"),
            (self.products.is_some(), "scores are not of queries and keys alone"),
        ];
        reasons.into_iter().find(|(true_, _)| *true_).map(|(_, why)| why)
    }
}
