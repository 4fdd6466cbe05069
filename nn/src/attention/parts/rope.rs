//! Rotary positions (RoPE): queries and keys are rotated by angles proportional to their positions,
//! so that the product of a query and a key depends only on their distance.
//!
//! Pair `m` of a vector at position `p` is rotated by `p · θ_m`, `θ_m = base^(-2m / width)`:
//!
//! ```text
//! (a, b) → (a cos - b sin, a sin + b cos)
//! ```
//!
//! A rotation preserves lengths, and its transpose is the rotation by the opposite angle, which is
//! the backward pass. Cost: `O(L · width)` per head, no parameters. Su et al. 2021 (arXiv
//! 2104.09864).
//!
//! There are two conventions for pairs of elements, and weights trained with one are wrong with the
//! other; [`Rope::converted`] permutes weights.

use crate::attention::engine::observe::rotated;
use retrograd_autograd::observe::saved;
use retrograd_autograd::{InputGrads, Op, Var};
use retrograd_tensor::error::{ErrorKind, OrPanic, Result, assert, require};
use retrograd_tensor::{Real, Shape, Tensor};
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static ROPE: Op = Op::new("rope", &["x"])
    .formula("y = x, pairs of elements rotated by angles of the position", "dx = g, rotated back");

/// The pairs of elements that are rotated together, for a rotary width `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pairing {
    /// `(x[m], x[m + w/2])`: GPT-NeoX, and Llama in the Hugging Face format.
    Half,
    /// `(x[2m], x[2m + 1])`: the paper, GPT-J, Llama in Meta's format, DeepSeek.
    Interleaved,
}

/// The scaling of angles for sequences longer than in training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scaling {
    /// No scaling.
    None,
    /// `θ / factor`: position interpolation. Chen et al. 2023 (arXiv 2306.15595).
    Linear {
        /// The ratio of the lengths.
        factor: f64,
    },
    /// A base of `base · factor^(w / (w - 2))`: the highest frequency is unchanged, the lowest is
    /// divided by the factor.
    Ntk {
        /// The ratio of the lengths.
        factor: f64,
    },
    /// High frequencies are unchanged, low ones are divided by a factor.
    Yarn(Yarn),
    /// The same with other bounds, as in Llama 3.1.
    Llama3(Llama3Scaling),
}

/// YaRN scaling of rotary positions.
///
/// Pairs with more than `beta_fast` rotations in the training context keep their frequency, those
/// with fewer than `beta_slow` have it divided by `factor`, and between them the two frequencies
/// are interpolated linearly in the index of the pair. Rotated elements are multiplied by
/// `attention`, and so their part of the scores by its square. If only part of a head is rotated,
/// the scores of the rest are unchanged, as in the code of Hugging Face and OpenAI;
/// [`MlaAttention`](crate::attention::MlaAttention) scales all scores, as in the code of DeepSeek.
/// Peng et al. 2023 (arXiv 2309.00071; the paper interpolates linearly in the number of rotations,
/// its code and all later implementations in the index of the pair).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yarn {
    /// The ratio of the context to the training context.
    pub factor: f64,
    /// The training context.
    pub context: usize,
    /// Number of rotations above which a frequency is unchanged; 32 by default.
    pub beta_fast: f64,
    /// Number of rotations below which a frequency is divided by `factor`; 1 by default.
    pub beta_slow: f64,
    /// Whether the bounds of the interpolation are rounded outwards to whole pairs, as in the code
    /// of the paper and of Hugging Face (true by default), or not, as in gpt-oss.
    pub rounded: bool,
    /// The attention factor, which scales rotated elements; `0.1 ln(factor) + 1` by default.
    pub attention: f64,
}

/// The scaling of rotary positions in Llama 3.1 and its successors.
///
/// Pairs with more than `high` rotations in the training context keep their frequency, those with
/// fewer than `low` have it divided by `factor`, and between them the two frequencies are interpolated
/// linearly in the number of rotations. Meta 2024, *The Llama 3 Herd of Models* (arXiv 2407.21783); the
/// formula is in the code of Meta and Hugging Face only.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Llama3Scaling {
    /// The divisor of low frequencies.
    pub factor: f64,
    /// The training context.
    pub context: usize,
    /// Number of rotations below which a frequency is divided by `factor`: `low_freq_factor`.
    pub low: f64,
    /// Number of rotations above which a frequency is unchanged: `high_freq_factor`.
    pub high: f64,
}

impl Llama3Scaling {
    /// The rule for the parameters.
    fn rule(&self) -> Result<()> {
        let Llama3Scaling { factor, context, low, high } = *self;
        require(factor >= 1.0 && factor.is_finite(), "rope", ErrorKind::Value, || {
            format!("a factor of at least 1, got {factor}")
        })?;
        require(context > 0, "rope", ErrorKind::Value, || {
            "a training context of at least 1, got 0".into()
        })?;
        require(0.0 < low && low < high && high.is_finite(), "rope", ErrorKind::Value, || {
            format!("bounds must be 0 < low < high, got {low} and {high}")
        })
    }

    /// The scaled frequency.
    fn frequency(&self, theta: f64) -> f64 {
        let rotations = self.context as f64 * theta / TAU;
        let kept = ((rotations - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        theta * kept + theta / self.factor * (1.0 - kept)
    }
}

impl Scaling {
    /// The rule for the parameters.
    pub(crate) fn rule(&self) -> Result<()> {
        match self {
            Scaling::None => Ok(()),
            Scaling::Linear { factor } | Scaling::Ntk { factor } => {
                require(*factor > 0.0 && factor.is_finite(), "rope", ErrorKind::Value, || {
                    format!("a factor must be above 0, got {factor}")
                })
            }
            Scaling::Yarn(yarn) => yarn.rule(),
            Scaling::Llama3(scaling) => scaling.rule(),
        }
    }
}

impl Yarn {
    /// YaRN with the constants of the paper.
    ///
    /// # Panics
    /// If the factor is below 1, or the context is 0.
    #[track_caller]
    pub fn new(factor: f64, context: usize) -> Self {
        let yarn = Yarn {
            factor,
            context,
            beta_fast: 32.0,
            beta_slow: 1.0,
            rounded: true,
            attention: 0.1 * factor.ln() + 1.0,
        };
        yarn.rule().or_panic();
        yarn
    }

    /// The rule for the parameters.
    fn rule(&self) -> Result<()> {
        let Yarn { factor, context, beta_fast, beta_slow, attention, .. } = *self;
        require(factor >= 1.0 && factor.is_finite(), "yarn", ErrorKind::Value, || {
            format!("a factor of at least 1, got {factor}")
        })?;
        require(context > 0, "yarn", ErrorKind::Value, || {
            "a training context of at least 1, got 0".into()
        })?;
        let valid = 0.0 < beta_slow && beta_slow <= beta_fast && beta_fast.is_finite();
        require(valid, "yarn", ErrorKind::Value, || {
            format!("bounds must be 0 < beta_slow <= beta_fast, got {beta_slow} and {beta_fast}")
        })?;
        require(attention > 0.0 && attention.is_finite(), "yarn", ErrorKind::Value, || {
            format!("an attention factor above 0, got {attention}")
        })
    }

    /// The share of the divided frequency of pair `m`, from 0 to 1.
    fn ramp(&self, m: usize, width: f64, base: f64) -> f64 {
        // The index of the pair, as a fraction, with so many rotations in the context.
        let pair = |rotations: f64| {
            width * (self.context as f64 / (rotations * TAU)).ln() / (2.0 * base.ln())
        };
        let (low, high) = (pair(self.beta_fast), pair(self.beta_slow));
        let (low, high) = match self.rounded {
            true => (low.floor().max(0.0), high.ceil().min(width - 1.0)),
            false => (low, high),
        };
        let span = if high == low { 0.001 } else { high - low };
        ((m as f64 - low) / span).clamp(0.0, 1.0)
    }
}

/// Rotary positions, of [`Projections`](crate::attention::Projections).
///
/// ```
/// use retrograd::nn::attention::{Pairing, Rope, Scaling};
/// use retrograd::prelude::*;
///
/// // Of heads of width 4, the first 2 elements are rotated.
/// let rope = Rope::new(2).pairing(Pairing::Interleaved).scaling(Scaling::Linear { factor: 2.0 });
/// let x = Var::constant(Tensor::from([[1.0f64, 0.0, 5.0, 6.0]]));
/// let y = rope.rotate(&x, 3).into_value().to_vec();
/// assert_eq!(y, [1.5f64.cos(), 1.5f64.sin(), 5.0, 6.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    width: usize,
    pairing: Pairing,
    base: f64,
    scaling: Scaling,
    /// Cosines and sines instead of base and scaling.
    tables: Option<Arc<Tables>>,
    computed: Computed,
}

/// The cosines and sines of all pairs at positions from 0 on, `[positions, pairs]`.
#[derive(Debug, PartialEq)]
struct Tables {
    cos: Vec<f64>,
    sin: Vec<f64>,
    positions: usize,
}

/// Cosines and sines that have been computed, which clones share: all layers of a model need the same.
#[derive(Clone, Debug, Default)]
struct Computed(Arc<Mutex<Option<Arc<Tables>>>>);

impl Computed {
    /// The number of cosines that are kept: 1 MiB of them.
    const MOST: usize = 1 << 17;

    fn tables(&self) -> MutexGuard<'_, Option<Arc<Tables>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has been computed is no property of a rotation.
impl PartialEq for Computed {
    fn eq(&self, _: &Computed) -> bool {
        true
    }
}

impl Tables {
    /// The rows of these positions.
    fn rows<T: Real>(&self, positions: &[i64], pairs: usize) -> Result<(Vec<T>, Vec<T>)> {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for &p in positions {
            let row = usize::try_from(p).ok().filter(|&row| row < self.positions);
            require(row.is_some(), "rope", ErrorKind::Index, || {
                format!("position {p}, and tables for positions below {}", self.positions)
            })?;
            let range = row.map_or(0..0, |row| row * pairs..(row + 1) * pairs);
            cos.extend(self.cos[range.clone()].iter().map(|&x| T::from_f64(x)));
            sin.extend(self.sin[range].iter().map(|&x| T::from_f64(x)));
        }
        Ok((cos, sin))
    }
}

/// The rule about the positions of `x` `[.., L, D]`.
fn check_positions(x: &Shape, positions: &Shape) -> Result<()> {
    let (leading, rank) = (&x[..x.rank() - 1], positions.rank());
    let known = rank <= 1 || rank == leading.len();
    let mut axes = positions.iter().rev().zip(leading.iter().rev());
    let fits = known && axes.all(|(&have, &want)| have == want || have == 1);
    require(fits, "rope", ErrorKind::Mismatch, || {
        let length = &leading[leading.len() - 1..];
        format!("positions {positions:?} of {x:?} must be {length:?}, or broadcast to {leading:?}")
    })
    .map_err(|error| match (rank, leading.len()) {
        (2, 3) => error.hint("positions [batch, length] of sequences need unsqueeze(1)"),
        _ => error,
    })
}

impl Rope {
    /// Rotary positions for the first `width` elements of every head ("partial rotary" if there are
    /// more); pairing by halves, base 10000, no scaling.
    ///
    /// # Panics
    /// If the width is odd.
    #[track_caller]
    pub fn new(width: usize) -> Self {
        assert(width.is_multiple_of(2), "rope", ErrorKind::Value, || {
            format!("a rotary width must be even, got {width}")
        });
        let (pairing, scaling) = (Pairing::Half, Scaling::None);
        let (tables, computed) = (None, Computed::default());
        Rope { width, pairing, base: 10000.0, scaling, tables, computed }
    }

    /// Rotary positions by tables of cosines and sines `[positions, pairs]`, for heads whose first
    /// `2 · pairs` elements are rotated, such as `cos_cache` and `sin_cache` of ONNX: position `p` has
    /// row `p`. An attention factor is part of the tables. The tables of `transformers`, `[L, D]`,
    /// contain the pairs twice: the first half of their columns is meant here.
    ///
    /// # Panics
    /// If the tables are not matrices of the same shape; when it rotates, if a position is beyond them.
    ///
    /// ```
    /// use retrograd::nn::attention::Rope;
    /// use retrograd::prelude::*;
    /// let angles = Tensor::from_fn([8, 2], |i| i[0] as f64 * [1.0, 0.01][i[1]]);
    /// let (given, same) = (Rope::from_tables(&angles.cos(), &angles.sin()), Rope::new(4));
    /// let x = Var::constant(Tensor::from([[1.0f64, 2.0, 3.0, 4.0]]));
    /// assert!(given.rotate(&x, 5).value().allclose(same.rotate(&x, 5).value(), 1e-14, 0.0));
    /// ```
    #[track_caller]
    pub fn from_tables<T: Real>(cos: &Tensor<T>, sin: &Tensor<T>) -> Self {
        let fits = cos.rank() == 2 && cos.shape() == sin.shape();
        assert(fits, "rope", ErrorKind::Mismatch, || {
            let (cos, sin) = (cos.shape(), sin.shape());
            format!("tables must both be [positions, pairs], got cos {cos:?} and sin {sin:?}")
        });
        let values = |x: &Tensor<T>| x.to_vec().into_iter().map(T::to_f64).collect();
        let tables = Tables { cos: values(cos), sin: values(sin), positions: cos.size(0) };
        Rope { tables: Some(Arc::new(tables)), ..Rope::new(2 * cos.size(1)) }
    }

    /// The rule that angles which tables give are not computed.
    #[track_caller]
    fn reject_tables(&self, what: &str) {
        assert(self.tables.is_none(), "rope", ErrorKind::Mismatch, || {
            format!("{what} of rotary positions that are given by tables")
        });
    }

    /// Sets the pairing.
    pub fn pairing(self, pairing: Pairing) -> Self {
        Rope { pairing, ..self }
    }

    /// Sets the base.
    ///
    /// # Panics
    /// If it is not above 1, or the angles are given by tables.
    ///
    /// ```
    /// use retrograd::nn::attention::Rope;
    /// assert_eq!(Rope::new(4).base(100.0).frequencies(), [1.0, 0.1]);
    /// ```
    #[track_caller]
    pub fn base(self, base: f64) -> Self {
        assert(base > 1.0, "rope", ErrorKind::Value, || {
            format!("a base must be above 1, got {base}")
        });
        self.reject_tables("a base");
        Rope { base, computed: Computed::default(), ..self }
    }

    /// Sets the scaling.
    ///
    /// # Panics
    /// If a factor is not above 0, or for YaRN if the factor is below 1, the context 0, the bounds
    /// not `0 < beta_slow <= beta_fast`, or the attention factor not above 0; or for Llama 3 if the
    /// factor is below 1, the context 0, or the bounds not `0 < low < high`.
    #[track_caller]
    pub fn scaling(self, scaling: Scaling) -> Self {
        scaling.rule().or_panic();
        self.reject_tables("a scaling");
        Rope { scaling, computed: Computed::default(), ..self }
    }

    /// The number of elements of a head that are rotated.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The frequency of each pair: its angle per position.
    ///
    /// # Panics
    /// If the rotary positions are given by tables.
    #[track_caller]
    pub fn frequencies(&self) -> Vec<f64> {
        self.reject_tables("frequencies");
        let width = self.width as f64;
        let base = match self.scaling {
            Scaling::Ntk { factor } if self.width > 2 => {
                self.base * factor.powf(width / (width - 2.0))
            }
            _ => self.base,
        };
        let scaled = |m: usize| {
            let theta = base.powf(-2.0 * m as f64 / width);
            match self.scaling {
                Scaling::None | Scaling::Ntk { .. } => theta,
                Scaling::Linear { factor } => theta / factor,
                Scaling::Yarn(yarn) => {
                    let slowed = yarn.ramp(m, width, base);
                    theta * (1.0 - slowed) + theta / yarn.factor * slowed
                }
                Scaling::Llama3(scaling) => scaling.frequency(theta),
            }
        };
        (0..self.width / 2).map(scaled).collect()
    }

    /// The factor of rotated elements: 1 except with YaRN.
    pub fn attention_factor(&self) -> f64 {
        match self.scaling {
            Scaling::Yarn(yarn) => yarn.attention,
            _ => 1.0,
        }
    }

    /// The same rotation with an attention factor of 1.
    pub fn without_attention_factor(&self) -> Rope {
        let scaling = match self.scaling {
            Scaling::Yarn(yarn) => Scaling::Yarn(Yarn { attention: 1.0, ..yarn }),
            other => other,
        };
        Rope { scaling, computed: Computed::default(), ..self.clone() }
    }

    /// `x` `[.., L, D]`, rotated for positions `start..start + L`.
    ///
    /// # Panics
    /// If `D` is smaller than the rotary width.
    #[track_caller]
    pub fn rotate<T: Real>(&self, x: &Var<T>, start: usize) -> Var<T> {
        let positions = Tensor::from_fn([x.size(-2)], |i| (start + i[0]) as i64);
        self.rotate_at(x, &positions)
    }

    /// `x` `[.., L, D]`, rotated for given positions: `[L]` for all sequences and heads, such as positions
    /// of packed documents, or with the axes of `x` but the last, each of that size or 1. Positions
    /// `[B, L]` of sequences, for `x` `[B, H, L, D]`, are therefore `[B, 1, L]`; as they are, they are
    /// refused, since `[H, L]` could be meant.
    ///
    /// # Panics
    /// If `D` is smaller than the rotary width, or the positions have other axes, or do not broadcast.
    ///
    /// ```
    /// use retrograd::nn::attention::Rope;
    /// use retrograd::prelude::*;
    /// let x = Var::constant(Tensor::<f64>::ones([2, 4]));
    /// let y = Rope::new(4).rotate_at(&x, &Tensor::from([0i64, 5]));
    /// assert_eq!(y.value().select(0, 0).to_vec(), [1.0; 4]); // position 0
    /// // Two sequences, the second of which has two tokens of padding at its beginning.
    /// let position_ids = Tensor::from([[0i64, 1, 2], [0, 0, 0]]);
    /// let x = Var::constant(Tensor::<f64>::ones([2, 8, 3, 4])); // [batch, heads, length, width]
    /// let y = Rope::new(4).rotate_at(&x, &position_ids.unsqueeze(1));
    /// assert_eq!(y.value().select(0, 1), x.value().select(0, 1)); // all at position 0
    /// ```
    #[track_caller]
    pub fn rotate_at<T: Real>(&self, x: &Var<T>, positions: &Tensor<i64>) -> Var<T> {
        assert(self.width <= x.size(-1), "rope", ErrorKind::Mismatch, || {
            format!(
                "a rotary width of {} in heads of width {}: {:?}",
                self.width,
                x.size(-1),
                x.shape()
            )
        });
        check_positions(x.shape(), positions.shape()).or_panic();
        let mut dims = positions.shape().to_vec();
        dims.push(self.width / 2);
        let at = positions.to_vec();
        let (cos, sin) = match self.tables.clone().or_else(|| self.computed(&at)) {
            Some(tables) => tables.rows(&at, self.width / 2).or_panic(),
            None => self.angles(&at),
        };
        let rotation = Rotation {
            cos: Tensor::from_vec(cos, &dims[..]),
            sin: Tensor::from_vec(sin, &dims[..]),
            pairing: self.pairing,
        };
        let y = rotation.apply(x);
        rotated(x, &y);
        y
    }

    /// The number of positions whose angles are kept.
    #[doc(hidden)]
    pub fn kept_positions(&self) -> usize {
        self.computed.tables().as_ref().map_or(0, |tables| tables.positions)
    }

    /// Tables with these positions, unless they would be large.
    fn computed(&self, positions: &[i64]) -> Option<Arc<Tables>> {
        let (first, last) = (*positions.iter().min()?, *positions.iter().max()?);
        usize::try_from(first).ok()?;
        let needed = usize::try_from(last).ok()?.checked_add(1)?;
        let has = |tables: &&Arc<Tables>| tables.positions >= needed;
        if let Some(tables) = self.computed.tables().as_ref().filter(has) {
            return Some(tables.clone());
        }
        // Twice as many as needed at most, because a text is continued token by token.
        let positions = needed.checked_next_power_of_two()?;
        if positions.checked_mul(self.width / 2)? > Computed::MOST {
            return None;
        }
        let (cos, sin) = self.angles(&(0..positions as i64).collect::<Vec<_>>());
        let tables = Arc::new(Tables { cos, sin, positions });
        *self.computed.tables() = Some(tables.clone());
        Some(tables)
    }

    /// The cosines and sines of positions from 0 on, `[positions, pairs]`.
    pub(crate) fn tables(&self, positions: usize) -> [Tensor<f32>; 2] {
        let (cos, sin) = self.angles(&(0..positions as i64).collect::<Vec<_>>());
        [cos, sin].map(|table| Tensor::from_vec(table, [positions, self.width / 2]))
    }

    /// The cosines and sines of all pairs at each position.
    fn angles<T: Real>(&self, positions: &[i64]) -> (Vec<T>, Vec<T>) {
        let frequencies = self.frequencies();
        let attention_factor = self.attention_factor();
        // Angles in f64 for every type: large angles lose too many digits in f32.
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for p in positions {
            for theta in &frequencies {
                let (s, c) = (*p as f64 * theta).sin_cos();
                cos.push(T::from_f64(c * attention_factor));
                sin.push(T::from_f64(s * attention_factor));
            }
        }
        (cos, sin)
    }

    /// The rows of a projection `[heads · D, ..]` (weight or bias) to queries or keys, permuted so
    /// that scores with the pairing `to` equal the scores with this pairing.
    ///
    /// # Panics
    /// If the heads do not divide the rows, or are narrower than the rotary width.
    ///
    /// ```
    /// use retrograd::nn::attention::{Pairing, Rope};
    /// use retrograd::prelude::*;
    /// let bias = Tensor::from([1.0f32, 2.0, 3.0, 4.0]); // one head, pairs (1, 3) and (2, 4)
    /// let converted = Rope::new(4).converted(&bias, 1, Pairing::Interleaved);
    /// assert_eq!(converted.to_vec(), [1.0, 3.0, 2.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn converted<T: Real>(&self, weight: &Tensor<T>, heads: usize, to: Pairing) -> Tensor<T> {
        let rows = weight.size(0);
        assert(heads > 0 && rows.is_multiple_of(heads), "rope", ErrorKind::Mismatch, || {
            format!("{heads} heads do not divide {rows} rows")
        });
        let head_width = rows / heads;
        assert(self.width <= head_width, "rope", ErrorKind::Mismatch, || {
            format!("a rotary width of {} in heads of width {head_width}", self.width)
        });
        if self.pairing == to {
            return weight.clone();
        }
        let half = self.width / 2;
        // The index in a head of the element that moves to index `i`.
        let source = |i: usize| match to {
            _ if i >= self.width => i,
            Pairing::Interleaved => i / 2 + i % 2 * half,
            Pairing::Half => i % half * 2 + i / half,
        };
        let index = Tensor::from_fn([rows], |i| {
            (i[0] / head_width * head_width + source(i[0] % head_width)) as i64
        });
        weight.index_select(0, &index)
    }
}

/// A rotation of pairs; its backward rule is the rotation by the opposite angle.
#[derive(Clone, Debug)]
struct Rotation<T: Real> {
    /// `[.., L, pairs]`
    cos: Tensor<T>,
    sin: Tensor<T>,
    pairing: Pairing,
}

impl<T: Real> Rotation<T> {
    #[track_caller]
    fn apply(&self, x: &Var<T>) -> Var<T> {
        Var::from_op(&ROPE, self.value(x.value()), [x], |[x]| {
            let (cos, sin) = (saved("cos", self.cos.clone()), saved("sin", self.sin.clone()));
            let (x, rotation) = (x.slot(), Rotation { cos, sin, ..self.clone() });
            move |_, g| {
                let inverse = Rotation { sin: rotation.sin.neg(), ..rotation.clone() };
                InputGrads::of(&x, || inverse.apply(g))
            }
        })
    }

    #[track_caller]
    fn value(&self, x: &Tensor<T>) -> Tensor<T> {
        let pairs = self.cos.size(-1);
        let width = 2 * pairs;
        let (a, b) = match self.pairing {
            Pairing::Half => (x.narrow(-1, 0, pairs), x.narrow(-1, pairs, pairs)),
            Pairing::Interleaved => {
                (x.slice_step(-1, 0..width, 2), x.slice_step(-1, 1.min(width)..width, 2))
            }
        };
        let rotated_a = a.mul(&self.cos).sub(&b.mul(&self.sin));
        let rotated_b = a.mul(&self.sin).add(&b.mul(&self.cos));
        let rest = x.narrow(-1, width, x.size(-1) - width);
        match self.pairing {
            Pairing::Half => Tensor::cat(&[&rotated_a, &rotated_b, &rest], -1),
            Pairing::Interleaved => {
                let mut dims = x.shape().to_vec();
                dims.pop();
                dims.push(width);
                let rotated = Tensor::stack(&[&rotated_a, &rotated_b], -1).reshape(dims);
                Tensor::cat(&[&rotated, &rest], -1)
            }
        }
    }
}
