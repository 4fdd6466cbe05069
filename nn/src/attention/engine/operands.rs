//! The operands of a call, checked against one another and against the spec.

use super::bias::Bias;
use super::mask::Sizes;
use super::spec::{Normalizer, Sink, Spec};
use retrograd_autograd::Var;
use retrograd_autograd::observe::saved;
use retrograd_tensor::error::{ErrorKind, OrPanic, Result, ShapeError, require};
use retrograd_tensor::{Real, Shape, Tensor};

/// The checked operands of a call, with four axes, and the spec, resolved for their sizes.
pub(crate) struct Operands<T: Real> {
    pub q: Var<T>,
    pub k: Var<T>,
    pub v: Var<T>,
    pub spec: Spec<T>,
    pub sizes: Sizes,
    pub key_heads: usize,
    /// The position of query 0, in the positions of the keys.
    pub offset: isize,
    /// What is added to the positions of the queries, for each sequence or for all.
    pub shifts: Vec<isize>,
    /// The number of axes of the operands before they were reshaped.
    rank: usize,
    /// What an observer changes in this call.
    pub change: Change<T>,
}

/// What an observer changes in a call.
#[derive(Clone, Default)]
pub enum Change<T: Real> {
    /// Nothing.
    #[default]
    None,
    /// The output of this head is 0.
    HeadOff(usize),
    /// This variable, which is 0, is added to the weights.
    Weights(Var<T>),
}

impl<T: Real> Operands<T> {
    #[track_caller]
    pub fn new(q: &Var<T>, k: &Var<T>, v: &Var<T>, spec: &Spec<T>) -> Operands<T> {
        check_operands(q, k, v).or_panic();
        let rank = q.rank();
        let four = |x: &Var<T>| {
            let mut dims = vec![1; 4 - rank];
            dims.extend(x.shape().iter());
            x.reshape(dims)
        };
        let (q, k, v) = (four(q), four(k), four(v));
        let sizes = Sizes { batch: q.size(0), heads: q.size(1), lq: q.size(2), lk: k.size(2) };
        let (mask, biases, offset) = spec.resolved(sizes);
        let of_rules = Sizes { lk: spec.rule_keys.unwrap_or(sizes.lk), ..sizes };
        for rule in &spec.rules {
            rule.check(of_rules, v.size(-1))
                .map_err(|e| ShapeError { op: "attend", ..e })
                .or_panic();
        }
        let resolved = Spec { mask, biases, ..spec.clone() };
        check_spec(&resolved, sizes.heads).or_panic();
        let shifts = match &spec.starts {
            Some(starts) => starts.iter().map(|start| start - offset).collect(),
            None => vec![0],
        };
        let (key_heads, change) = (k.size(1), Change::None);
        let call =
            Operands { q, k, v, spec: resolved, sizes, key_heads, offset, shifts, rank, change };
        let places = call.places();
        for rule in &call.spec.rules {
            let checked = rule.check_distances(&places);
            checked.map_err(|e| ShapeError { op: "attend", ..e }).or_panic();
        }
        call
    }

    /// The same call on constants, without a sink.
    pub fn detached(&self) -> Operands<T> {
        let call = self.with(&self.q.detach(), &self.k.detach(), &self.v.detach(), Sink::None);
        call.with_rules(|x| x.detach())
    }

    /// The same call, whose rules have operands of the shapes that the kernels take.
    pub fn with_resolved_rules(&self) -> Operands<T> {
        let mut call = self.with(&self.q, &self.k, &self.v, self.spec.sink.clone());
        let rules = self.spec.rules.iter().map(|rule| rule.resolved(self.sizes, self.offset));
        call.spec.rules = rules.collect();
        call
    }

    /// The same call with other operands of its rules.
    pub fn with_rules(self, mut f: impl FnMut(&Var<T>) -> Var<T>) -> Operands<T> {
        let rules = self.spec.rules.iter().map(|rule| rule.map(&mut f)).collect();
        Operands { spec: Spec { rules, ..self.spec }, ..self }
    }

    /// [`Operands::detached`] for the rule of an operation, which saves the tensors of the mask and of biases.
    pub fn saved(&self) -> Operands<T> {
        let call = self.detached();
        let mask = call.spec.mask.saved();
        for bias in &call.spec.biases {
            if let Bias::Additive(values) = bias {
                drop(saved("bias", values.value().clone()));
            }
        }
        Operands { spec: Spec { mask, ..call.spec }, ..call }
    }

    /// The same call with other operands and another sink.
    pub fn with(&self, q: &Var<T>, k: &Var<T>, v: &Var<T>, sink: Sink<T>) -> Operands<T> {
        let spec = Spec { sink, ..self.spec.clone() };
        let (q, k, v) = (q.clone(), k.clone(), v.clone());
        let shifts = self.shifts.clone();
        Operands { q, k, v, spec, shifts, change: Change::None, ..*self }
    }

    /// The same call on constants, with a constant sink.
    pub fn constant(&self) -> Operands<T> {
        let sink = match &self.spec.sink {
            Sink::Learned(sink) => Sink::Learned(sink.detach()),
            other => other.clone(),
        };
        let call = self.with(&self.q.detach(), &self.k.detach(), &self.v.detach(), sink);
        call.with_rules(|x| x.detach())
    }

    /// The same call for `n` of the queries of the first sequence, from query `first` on.
    pub fn rows(&self, first: usize, n: usize) -> Operands<T> {
        let part = |x: &Var<T>| {
            // The axes that are missing are broadcast.
            let rank = x.rank() as isize;
            let x = if rank == 4 && x.size(0) > 1 { x.narrow(0, 0, 1) } else { x.clone() };
            if rank >= 2 && x.size(-2) > 1 { x.narrow(-2, first, n) } else { x }
        };
        let one = |x: &Var<T>| x.narrow(0, 0, 1);
        let Sizes { batch, heads, lq, lk } = self.sizes;
        let all = [batch, heads, lq, lk];
        let mut call = self.with(
            &one(&self.q).narrow(2, first, n),
            &one(&self.k),
            &one(&self.v),
            self.spec.sink.clone(),
        );
        call.sizes = Sizes { batch: 1, lq: n, ..self.sizes };
        call.offset += first as isize;
        call.shifts.truncate(1);
        call.spec.capture = None;
        call.spec.products = self.spec.products.as_ref().map(|x| part(&x.reshape(all)));
        for bias in &mut call.spec.biases {
            if let Bias::Additive(x) = bias {
                *x = part(x);
            }
        }
        call.spec.rules = call.spec.rules.iter().map(|rule| rule.rows(first, n)).collect();
        call
    }

    /// Whether the weights are variables, so that the composed path is required.
    pub fn weights_are_variables(&self) -> bool {
        matches!(self.change, Change::Weights(_))
    }

    /// The weights `[B, Hq, Lq, Lk]`, as variables if an observer asks for their gradient.
    pub fn with_variables(&self, weights: Var<T>) -> Var<T> {
        match &self.change {
            Change::Weights(zeros) => weights + zeros,
            _ => weights,
        }
    }

    /// An output or weights of all heads, `[B, Hq, ..]`, with 0 for a head that is off.
    pub fn without_head(&self, x: Var<T>) -> Var<T> {
        let Change::HeadOff(off) = self.change else { return x };
        let on = Tensor::from_fn([1, self.sizes.heads, 1, 1], |i| {
            if i[1] == off { T::ZERO } else { T::ONE }
        });
        x * &Var::constant(on)
    }

    /// Reshapes a result of four axes to the rank of the operands.
    pub fn restore_rank(&self, x: &Var<T>) -> Var<T> {
        x.reshape(&x.shape()[4 - self.rank..])
    }

    /// The scale of the scores: the scale of the spec, or `1/√Dk`.
    pub fn scale(&self) -> T {
        let width = self.q.size(-1).max(1) as f64;
        T::from_f64(self.spec.scale.unwrap_or(1.0 / width.sqrt()))
    }

    /// `[B, Hq, L, X]` to `[B, Hk, Hq / Hk, L, X]`: query heads grouped by the key head they share.
    pub fn grouped(&self, x: &Var<T>) -> Var<T> {
        let s = x.shape();
        let groups = self.sizes.heads / self.key_heads.max(1);
        x.reshape([s[0], self.key_heads, groups, s[2], s[3]])
    }

    /// The inverse of [`Operands::grouped`].
    pub fn ungrouped(&self, x: &Var<T>) -> Var<T> {
        x.reshape([x.size(0), self.sizes.heads, x.size(-2), x.size(-1)])
    }
}

/// Checks the shapes of queries, keys and values.
fn check_operands<T: Real>(q: &Var<T>, k: &Var<T>, v: &Var<T>) -> Result<()> {
    let (rank, op) = (q.rank(), "attend");
    let shapes = || format!("q {:?}, k {:?}, v {:?}", q.shape(), k.shape(), v.shape());
    require(
        (2..=4).contains(&rank) && k.rank() == rank && v.rank() == rank,
        op,
        ErrorKind::Rank,
        || format!("q, k and v must have the same number of axes, 2 to 4: {}", shapes()),
    )?;
    let agree = |condition: bool, what: &str| {
        require(condition, op, ErrorKind::Mismatch, || format!("{what}: {}", shapes()))
    };
    // Counted from the last axis; axes that are missing have size 1.
    let size = |shape: &Shape, axis: usize| if axis <= rank { shape[rank - axis] } else { 1 };
    let sizes = |axis| [q, k, v].map(|x| size(x.shape(), axis));
    let [q_batch, k_batch, v_batch] = sizes(4);
    agree(q_batch == k_batch && k_batch == v_batch, "batch sizes differ")?;
    agree(q.size(-1) == k.size(-1), "q and k have different widths")?;
    agree(k.size(-2) == v.size(-2), "k and v have different lengths")?;
    let [heads, key_heads, value_heads] = sizes(3);
    agree(key_heads == value_heads, "k and v have different numbers of heads")?;
    let shared = key_heads > 0 && heads.is_multiple_of(key_heads);
    require(shared || heads == 0 && key_heads == 0, op, ErrorKind::Mismatch, || {
        format!("{heads} query heads are not a multiple of {key_heads} key heads: {}", shapes())
    })
}

/// Checks that the parts of a resolved spec fit `heads` query heads and can be combined.
fn check_spec<T: Real>(spec: &Spec<T>, heads: usize) -> Result<()> {
    let op = "attend";
    if let Sink::Learned(sink) = &spec.sink {
        require(*sink.shape() == [heads], op, ErrorKind::Mismatch, || {
            format!("learned sinks must be [{heads}], got {:?}", sink.shape())
        })?;
    }
    let softmax = spec.normalizer == Normalizer::Softmax;
    require(softmax || matches!(spec.sink, Sink::None), op, ErrorKind::Mismatch, || {
        format!("a sink requires the normalizer Softmax, got {:?}", spec.normalizer)
    })?;
    let changes_scores = spec.scale.is_some()
        || spec.softcap.is_some()
        || spec.score_mix.is_some()
        || spec.products.is_some()
        || !spec.rules.is_empty()
        || !spec.biases.is_empty();
    let linear = spec.normalizer == Normalizer::Linear;
    require(!(linear && changes_scores), op, ErrorKind::Mismatch, || {
        "the normalizer Linear cannot be combined with a scale, softcap, bias, rule or mixed score heads"
            .into()
    })?;
    for mix in [&spec.score_mix, &spec.weight_mix].into_iter().flatten() {
        require(*mix.shape() == [heads, heads], op, ErrorKind::Mismatch, || {
            format!("a matrix that mixes heads must be [{heads}, {heads}], got {:?}", mix.shape())
        })?;
    }
    Ok(())
}
