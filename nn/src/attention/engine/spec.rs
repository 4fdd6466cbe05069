//! The specification of an attention: mask, biases, normaliser and other parts.

use super::bias::Bias;
use super::capture::Capture;
use super::mask::{Align, CachedPositions, Mask, Sizes};
use super::rule::Rule;
use crate::dropout::Dropout;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, OrPanic, Result, ShapeError, assert, require};
use retrograd_tensor::kernels::attention::{At, TileMask};
use retrograd_tensor::random::Key;
use std::sync::Arc;

/// An attention sink: one more logit in the denominator of the softmax, without a value.
#[derive(Clone, Debug, Default)]
pub enum Sink<T: Real = f32> {
    /// None: the weights of a query sum to 1.
    #[default]
    None,
    /// A logit of 0: `e^s / (1 + Σ e^s)`, "softmax plus one".
    Zero,
    /// A learned logit per head, `[H]`, as in gpt-oss.
    Learned(Var<T>),
}

/// The function from scores to weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Normalizer {
    /// `e^s / Σ e^s`
    #[default]
    Softmax,
    /// `1 / (1 + e^-(s + bias))` for each score by itself; the bias is `-ln Lk` unless given.
    /// Ramapuram et al. 2024 (arXiv 2409.04431).
    Sigmoid {
        /// The bias.
        bias: Option<f64>,
    },
    /// The nearest point of the simplex, `max(s - τ, 0)`: exactly 0 for small scores. Martins,
    /// Astudillo 2016 (arXiv 1602.02068).
    Sparsemax,
    /// `max(s/2 - τ, 0)²`: between softmax and sparsemax. Peters, Niculae, Martins 2019
    /// (arXiv 1905.05702).
    Entmax15,
    /// Softmax over the `k` largest scores; of equal scores, the first. Zhao et al. 2019
    /// (arXiv 1912.11637).
    TopK(usize),
    /// `φ(q)·φ(k) / (Σ φ(q)·φ(k) + 1e-6)` with the feature map `φ(x) = elu(x) + 1` in place of the
    /// exponential. It cannot be combined with a scale, a softcap, a bias or mixed score heads.
    /// [`LinearAttention`](crate::attention::LinearAttention) has the forms of linear cost; this
    /// is the quadratic form, under any mask. Katharopoulos et al. 2020 (arXiv 2006.16236).
    Linear,
}

/// The number of operands of rules that the tiled path can have.
pub(crate) const MAX_OPERANDS: usize = 4;

/// Parts of a spec that some variants set themselves; see [`Spec::reject`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Softcap,
    HeadMix,
    Align,
    Sink,
    Normalizer,
}

/// The implementation that computes the attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// The tiled path where it supports the spec, else the composed path.
    #[default]
    Auto,
    /// Matrices of all scores; supports every spec, and gradients of every order.
    Composed,
    /// Tiles of keys with an online softmax; tiles that are masked entirely are skipped.
    Tiled,
}

/// The specification of an attention, built from parts.
///
/// With `p` the position of a query and `j` the position of a key, in this order:
///
/// ```text
/// s = scale · q·k            scale 1/√Dk unless given; variants and relative products add to q·k before
/// s = c · tanh(s / c)        if there is a softcap c
/// s = s + bias(h, p, j)      for every bias
/// s = rule(s, p, j)          for every rule, with operands of its own
/// s = W · s                  over heads, if score heads are mixed; masked scores count as 0
/// w = normalize(s where mask(p, j), sink)
/// w = dropout(w)
/// w = W · w                  over heads, if weight heads are mixed
/// o = w · v                  with relative values, w · (v + r)
/// ```
///
/// If heads are mixed and their masks differ: a pair that is masked for a head, or has a score of
/// -inf, counts as a score of 0 in the mixtures of the other heads. A head receives the mixed
/// weights of a pair even if its own mask excludes the pair. A pair that all heads mask has no
/// weight.
///
/// A variant applies the parts of a spec, and panics if the spec has a part that the variant sets
/// itself.
///
/// ```
/// use retrograd::nn::attention::{Bias, Mask, Spec, attend};
/// use retrograd::prelude::*;
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
    /// Added to `q·k`, `[B, H, Lq, Lk]`.
    pub(crate) products: Option<Var<T>>,
    pub(crate) softcap: Option<f64>,
    pub(crate) biases: Vec<Bias<T>>,
    pub(crate) rules: Vec<Rule<T>>,
    /// The number of keys that rules of scores apply to, if it is not all.
    pub(crate) rule_keys: Option<usize>,
    pub(crate) score_mix: Option<Var<T>>,
    pub(crate) mask: Mask,
    pub(crate) align: Option<Align>,
    /// The position of query 0 of each sequence, or of all, instead of an alignment.
    pub(crate) starts: Option<Arc<[isize]>>,
    /// The positions of the keys in the cache, if there is one.
    pub(crate) cached: Option<CachedPositions>,
    pub(crate) sink: Sink<T>,
    pub(crate) normalizer: Normalizer,
    pub(crate) dropout: Option<(f64, Key)>,
    pub(crate) weight_mix: Option<Var<T>>,
    pub(crate) path: Path,
    pub(crate) capture: Option<Capture<T>>,
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
    /// Scaled dot-product attention without a mask.
    #[inline(never)] // for the reason given at `Pass`
    pub fn new() -> Self {
        Spec {
            scale: None,
            products: None,
            softcap: None,
            biases: Vec::new(),
            rules: Vec::new(),
            rule_keys: None,
            score_mix: None,
            mask: Mask::full(),
            align: None,
            starts: None,
            cached: None,
            sink: Sink::None,
            normalizer: Normalizer::Softmax,
            dropout: None,
            weight_mix: None,
            path: Path::Auto,
            capture: None,
        }
    }

    /// Sets the factor of `q·k`, which is `1/√Dk` by default.
    ///
    /// # Panics
    /// If it is not finite as a number of this type.
    #[track_caller]
    pub fn scale(mut self, scale: f64) -> Self {
        let finite = T::from_f64(scale).to_f64().is_finite();
        assert(finite, "attention", ErrorKind::Value, || {
            format!("a scale must be finite in {}, got {scale}", T::DTYPE)
        });
        self.scale = Some(scale);
        self
    }

    /// Sets the scale unless it is set.
    pub(crate) fn scale_unless_given(mut self, scale: f64) -> Self {
        self.scale.get_or_insert(scale);
        self
    }

    /// Multiplies the scale, which must be set.
    pub(crate) fn scale_by(mut self, factor: f64) -> Self {
        self.scale = self.scale.map(|scale| scale * factor);
        self
    }

    /// Adds to `q·k`, before the scale, scores that a variant computes itself.
    pub(crate) fn add_products(mut self, products: Var<T>) -> Self {
        assert(self.products.is_none(), "attention", ErrorKind::Mismatch, || {
            "two variants add to the scores".into()
        });
        self.products = Some(products);
        self
    }

    /// Bounds the scores by `c · tanh(s / c)`. An infinite `c` is no bound. Gemma 2 (arXiv
    /// 2408.00118).
    ///
    /// # Panics
    /// If `c` is not above 0 as a number of this type.
    #[track_caller]
    pub fn softcap(mut self, c: f64) -> Self {
        let as_number = T::from_f64(c);
        assert(as_number > T::ZERO, "attention", ErrorKind::Value, || {
            format!("a softcap must be above 0, got {c}")
        });
        self.softcap = Some(c).filter(|_| as_number < T::INFINITY);
        self
    }

    /// Adds a bias to the scores. Several biases are summed.
    pub fn bias(mut self, bias: Bias<T>) -> Self {
        self.biases.push(bias);
        self
    }

    /// Adds a rule of scores. Several formulas are applied in the order in which they were added. Rules do not apply to
    /// keys that a variant learns, such as those of [`MemoryAttention`](super::super::MemoryAttention).
    pub fn rule(mut self, rule: Rule<T>) -> Self {
        self.rules.push(rule);
        self
    }

    /// Restricts the attention to the pairs of a mask. Several masks are combined by `&`.
    pub fn mask(mut self, mask: Mask) -> Self {
        self.mask = self.mask & mask;
        self
    }

    /// Adds the causal mask: a query attends to the keys up to its position.
    ///
    /// With as many queries as keys, query `i` stands at key `i`; with a cache, the queries are the
    /// newest tokens. Without a cache, and with other numbers of queries and keys, the positions have
    /// to be chosen: [`Spec::causal_top_left`] is PyTorch's `is_causal=True`,
    /// [`Spec::causal_bottom_right`] puts the last query at the last key, and [`Spec::align`] and
    /// [`Spec::align_each`] set any others. [`attend`](super::attend) panics if none is.
    pub fn causal(self) -> Self {
        self.mask(Mask::causal())
    }

    /// The causal mask with query `i` at the position of key `i`, for any numbers of queries and keys:
    /// PyTorch's `is_causal=True`. It cannot be used with a cache, where the queries are the newest
    /// tokens.
    ///
    /// ```
    /// use retrograd::nn::attention::{Spec, attend};
    /// use retrograd::prelude::*;
    /// let q = Var::constant(Tensor::<f64>::zeros([2, 4])); // equal scores
    /// let k = Var::constant(Tensor::<f64>::zeros([3, 4]));
    /// let v = Var::constant(Tensor::from([[6.0f64], [12.0], [18.0]]));
    /// let y = attend(&q, &k, &v, &Spec::new().causal_top_left());
    /// assert_eq!(y.value().to_vec(), [6.0, 9.0]); // means of one value and of two
    /// let y = attend(&q, &k, &v, &Spec::new().causal_bottom_right());
    /// assert_eq!(y.value().to_vec(), [9.0, 12.0]); // means of two values and of three
    /// ```
    #[doc(alias = "is_causal")]
    pub fn causal_top_left(self) -> Self {
        self.causal().align(Align::TopLeft)
    }

    /// The causal mask with the last query at the position of the last key, for any numbers of queries
    /// and keys: queries that continue a sequence. PyTorch's `causal_lower_right`.
    pub fn causal_bottom_right(self) -> Self {
        self.causal().align(Align::BottomRight)
    }

    /// Sets the positions of the queries relative to the keys, for masks and biases that depend on
    /// them; [`Align::BottomRight`] by default, but see [`Spec::causal`].
    pub fn align(mut self, align: Align) -> Self {
        (self.align, self.starts) = (Some(align), None);
        self
    }

    /// Sets the position of query 0 of each sequence, `[B]`: for sequences of different lengths whose
    /// keys are padded at the end, as in a cache with a slot for every position. Masks and biases of
    /// positions follow; masks of tensors are by index.
    ///
    /// [`Rope::rotate_at`](crate::attention::Rope::rotate_at) rotates for the same positions.
    ///
    /// ```
    /// use retrograd::nn::attention::{Spec, attend};
    /// use retrograd::prelude::*;
    /// // A query for each of two sequences, of which 1 and 3 tokens are in the cache; its own key is
    /// // at position 1 and 3.
    /// let q = Var::constant(Tensor::<f64>::zeros([2, 1, 1, 4]));
    /// let k = Var::constant(Tensor::<f64>::zeros([2, 1, 4, 4]));
    /// let v = Var::constant(Tensor::from_fn([2, 1, 4, 1], |i| i[2] as f64));
    /// let y = attend(&q, &k, &v, &Spec::new().causal().align_each(&[1, 3]));
    /// assert_eq!(y.value().to_vec(), [0.5, 1.5]); // means of 0, 1 and of 0, 1, 2, 3
    /// ```
    pub fn align_each(mut self, positions: &[isize]) -> Self {
        (self.align, self.starts) = (None, Some(positions.into()));
        self
    }

    /// The position of query 0.
    pub(crate) fn offset(&self, lq: usize, lk: usize) -> isize {
        self.align.unwrap_or_default().offset(lq, lk)
    }

    /// Sets the attention sink.
    pub fn sink(mut self, sink: Sink<T>) -> Self {
        self.sink = sink;
        self
    }

    /// Sets the function from scores to weights.
    ///
    /// # Panics
    /// If the bias of [`Normalizer::Sigmoid`] is NaN.
    #[track_caller]
    pub fn normalizer(mut self, normalizer: Normalizer) -> Self {
        if let Normalizer::Sigmoid { bias: Some(bias) } = normalizer {
            assert(!bias.is_nan(), "attention", ErrorKind::Value, || {
                "the bias of a sigmoid must be a number, got NaN".into()
            });
        }
        self.normalizer = normalizer;
        self
    }

    /// Sets the dropout of the weights, in a training pass. Rows of weights then sum to 1 only in
    /// expectation. Which weights are dropped depends on batch, head, query and key only, not on
    /// the path.
    ///
    /// # Panics
    /// If `p` is not in `[0, 1]`.
    #[track_caller]
    pub fn dropout(mut self, p: f64, pass: &mut Pass) -> Self {
        let p = Dropout::new(p).p();
        self.dropout = pass.key().filter(|_| p > 0.0).map(|key| (p, key));
        self
    }

    /// Sets the dropout of a module, if the spec has none.
    ///
    /// # Panics
    /// If both have a dropout.
    #[track_caller]
    pub(crate) fn dropout_of_module(self, p: f64, pass: &mut Pass) -> Self {
        if self.dropout.is_none() {
            return self.dropout(p, pass);
        }
        assert(p == 0.0, "attention", ErrorKind::Value, || {
            format!("dropout by the spec, and of {p} by the module")
        });
        self
    }

    /// Mixes heads: the scores by the matrix `scores` before the mask, the weights by the matrix
    /// `weights` after dropout; each is `[H, H]`, outputs by inputs. Talking heads; Shazeer et al.
    /// 2020 (arXiv 2003.02436).
    pub fn mix_heads(mut self, scores: Option<Var<T>>, weights: Option<Var<T>>) -> Self {
        (self.score_mix, self.weight_mix) = (scores, weights);
        self
    }

    /// Sets the implementation.
    pub fn path(mut self, path: Path) -> Self {
        self.path = path;
        self
    }

    /// Appends the attention weights of the call to `capture`. The composed path is then used.
    pub fn capture(mut self, capture: &Capture<T>) -> Self {
        self.capture = Some(capture.clone());
        self
    }

    /// Checks that the spec does not have a part that the variant `module` sets itself.
    ///
    /// # Panics
    /// If the spec has this part.
    #[track_caller]
    pub(crate) fn reject(&self, module: &'static str, part: Part) {
        let (given, what) = match part {
            Part::Softcap => (self.softcap.is_some(), "a softcap"),
            Part::HeadMix => (self.score_mix.is_some() || self.weight_mix.is_some(), "mixed heads"),
            Part::Align => (self.align.is_some() || self.starts.is_some(), "an alignment"),
            Part::Sink => (!matches!(self.sink, Sink::None), "a sink"),
            Part::Normalizer => (self.normalizer != Normalizer::Softmax, "a normalizer"),
        };
        assert(!given, module, ErrorKind::Mismatch, || {
            format!("{what} in the spec, and another of its own")
        });
    }

    /// The spec for the next tokens after those in a cache, in evaluation.
    ///
    /// # Panics
    /// If the spec has an alignment: the cache determines the positions of the queries.
    #[track_caller]
    pub(crate) fn with_cache(&self, cached: CachedPositions) -> Spec<T> {
        self.reject("a cache", Part::Align);
        Spec { cached: Some(cached), dropout: None, ..self.clone() }
    }

    /// The rules about the positions of the queries.
    fn check_positions(&self, sizes: Sizes) -> Result<()> {
        let Sizes { batch, lq, lk, .. } = sizes;
        if let Some(starts) = &self.starts {
            let n = starts.len();
            return require(n == batch || n == 1, "attend", ErrorKind::Mismatch, || {
                format!("{n} positions of queries for a batch of {batch}")
            });
        }
        let chosen = self.cached.is_some() || self.align.is_some();
        let clear = chosen || lq == lk || lq * lk == 0 || !self.mask.is_causal();
        require(clear, "attend", ErrorKind::Mismatch, || {
            format!("a causal mask of {lq} queries and {lk} keys, whose positions are not given")
        })
        .map_err(|error| {
            error.hint(
                "causal_top_left is PyTorch's is_causal=True; causal_bottom_right puts the last query \
                 at the last key",
            )
        })
    }

    /// The mask and the biases resolved for these sizes, and the position of query 0.
    #[track_caller]
    pub(crate) fn resolved(&self, sizes: Sizes) -> (Mask, Vec<Bias<T>>, isize) {
        let offset = match (self.cached, &self.starts) {
            (Some(cached), _) => (sizes.lk + cached.dropped) as isize - sizes.lq as isize,
            // The last, which the sizes of masks are checked for.
            (None, Some(starts)) => starts.iter().copied().max().unwrap_or(0),
            (None, None) => self.offset(sizes.lq, sizes.lk),
        };
        let resolve = || {
            self.check_positions(sizes)?;
            let mask = self.mask.resolved(sizes, self.cached, offset)?;
            let biases = self.biases.iter().map(|bias| bias.resolved(sizes, self.cached));
            let biases = biases.collect::<Result<Vec<_>>>()?;
            let Some(starts) = &self.starts else { return Ok((mask, biases, offset)) };
            let shifts = starts.iter().map(|start| start - offset).collect();
            let biases = biases.iter().map(|bias| bias.shifted(&shifts));
            Ok((mask.shifted(&shifts), biases.collect(), offset))
        };
        resolve().map_err(|e| ShapeError { op: "attend", ..e }).or_panic()
    }

    /// The spec for the keys of `sizes` followed by `more` keys, to which every query attends,
    /// without biases.
    #[track_caller]
    pub(crate) fn with_memory(&self, sizes: Sizes, more: usize) -> Spec<T> {
        let lk = sizes.lk;
        let by_index = self.starts.is_none() && !self.has_gap();
        assert(self.rules.is_empty() || by_index, "attend", ErrorKind::Mismatch, || {
            "memory, with a rule of positions by sequence or of a cache that has dropped keys"
                .into()
        });
        let (mask, biases, offset) = self.resolved(sizes);
        let mask = match mask.is_full() {
            true => mask,
            false => {
                Mask::from_fn("as before, and memory", move |at| at.key >= lk || mask.keep(at))
            }
        };
        let biases = biases.into_iter().map(|bias| {
            if bias.as_fn().is_some() {
                let f = move |at: At| bias.as_fn().map_or(0.0, |f| f(at));
                return Bias::from_fn("no memory", move |at| if at.key < lk { f(at) } else { 0.0 });
            }
            let x = bias.as_var(sizes, offset);
            let mut dims = if x.rank() == 0 { vec![1] } else { x.shape().to_vec() };
            *dims.last_mut().expect("not empty") = lk;
            Bias::Additive(x.broadcast_to(&dims[..]).pad(-1, 0, more, T::ZERO))
        });
        let (biases, align) = (biases.collect(), Some(Align::Offset(offset)));
        let rule_keys = Some(self.rule_keys.unwrap_or(lk));
        Spec { mask, biases, rule_keys, align, starts: None, cached: None, ..self.clone() }
    }

    /// Whether the cache has dropped keys.
    fn has_gap(&self) -> bool {
        self.cached.is_some_and(|cached| cached.dropped > 0)
    }

    /// The number of operands of the rules.
    fn operands(&self) -> usize {
        self.rules.iter().map(|rule| rule.vars().count()).sum()
    }

    /// The reason why the tiled path does not support this spec; `None` if it does.
    pub fn needs_composed(&self) -> Option<&'static str> {
        let contextual = self.rules.iter().filter(|rule| rule.is_contextual()).count();
        let reasons = [
            (self.normalizer != Normalizer::Softmax, "the normalizer needs whole rows"),
            (self.score_mix.is_some() || self.weight_mix.is_some(), "heads are mixed"),
            (self.biases.iter().any(|b| b.as_fn().is_none()), "a bias is a tensor"),
            (self.products.is_some(), "a variant adds to the scores"),
            (
                !self.rules.is_empty() && (self.starts.is_some() || self.has_gap()),
                "a rule needs positions by sequence or of a cache",
            ),
            (!self.rules.is_empty() && self.rule_keys.is_some(), "a rule is not for all keys"),
            (self.operands() > MAX_OPERANDS, "rules have more than four operands"),
            (contextual > 1, "two rules have contextual positions"),
            (self.capture.is_some(), "weights are captured"),
        ];
        reasons.into_iter().find(|(true_, _)| *true_).map(|(_, why)| why)
    }
}
