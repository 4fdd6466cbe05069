//! Muon: momentum, orthogonalised by Newton-Schulz iterations.

use super::hyperparameters::{at_least_0, checked_lr, in_unit_interval};
use super::optimizer::{Group, Optimizer, StepError};
use super::param_states::ParamStates;
use super::rules::{AdamConfig, AdamW};
use crate::config_error::ConfigError;
use crate::module::Module;
use crate::param::Param;
use crate::state::{LoadError, StateDict};
use retrograd_autograd::Gradients;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::formula::{Algebra, Expr};
use retrograd_tensor::kernels::update::{Item, Update, update_all};
use retrograd_tensor::{AxisSet, Real, Shape, Tensor, par};
use std::cmp::Reverse;

/// Hyperparameters of [`Muon`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// Learning rate of the matrices.
    pub lr: f64,
    /// The decay rate of the average of gradients.
    pub momentum: f64,
    /// Nesterov momentum.
    pub nesterov: bool,
    /// Decoupled weight decay of the matrices.
    pub weight_decay: f64,
    /// Newton-Schulz iterations.
    pub iterations: usize,
    /// The scale of an update.
    pub scale: MuonScale,
    /// AdamW for the other parameters. Its learning rate keeps its ratio to `lr` when that is set.
    pub adam: AdamConfig,
}

/// The factor of an orthogonalised update of a matrix `[rows, columns]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MuonScale {
    /// `√max(1, rows / columns)`; Jordan 2024.
    #[default]
    Spectral,
    /// `0.2 · √max(rows, columns)`, which gives updates the root mean square of AdamW's, so that learning
    /// rates of AdamW can be used; Liu et al. 2025 (arXiv 2502.16982).
    MatchAdam,
}

impl Default for MuonConfig {
    /// Jordan's defaults: a learning rate of 0.02, Nesterov momentum of 0.95, five iterations; and
    /// AdamW with a learning rate of 3e-3.
    fn default() -> Self {
        MuonConfig {
            lr: 0.02,
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.0,
            iterations: 5,
            scale: MuonScale::Spectral,
            adam: AdamConfig { lr: 3e-3, betas: (0.9, 0.95), ..AdamConfig::default() },
        }
    }
}

impl MuonConfig {
    fn check(&self) -> Result<(), ConfigError> {
        at_least_0("learning rate", self.lr)?;
        at_least_0("weight decay", self.weight_decay)?;
        in_unit_interval("momentum", self.momentum)?;
        if self.lr == 0.0 && self.adam.lr > 0.0 {
            return Err(ConfigError("a learning rate of 0 has no ratio to that of AdamW".into()));
        }
        Ok(())
    }
}

/// Muon for the matrices of hidden layers, and [`AdamW`] for embeddings, the head, norms and biases.
///
/// With the average `m = μ m + (1 - μ) g` of the gradient of a matrix, and for Nesterov momentum
/// `u = (1 - μ) g + μ m`, else `u = m`:
///
/// ```text
/// w = (1 - lr · decay) w - lr · scale · NewtonSchulz(u)
/// ```
///
/// `NewtonSchulz(u)` approximates `U Vᵀ` of the singular value decomposition `u = U S Vᵀ` by iterations
/// of `X = a X + b (X Xᵀ) X + c (X Xᵀ)² X` from `X = u / ‖u‖` with `a, b, c = 3.4445, -4.7750, 2.0315`:
/// singular values are between 0.7 and 1.2 after five. Jordan et al. 2024
/// (<https://kellerjordan.github.io/posts/muon/>).
///
/// The state is `momentum.<parameter>` for matrices, and the state of [`AdamW`] for the others.
///
/// ```
/// use retrograd::prelude::*;
///
/// let config = GptConfig { vocab: 10, context: 8, layers: 1, heads: 2, width: 16, ..GptConfig::default() };
/// let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
/// let mut muon = Muon::new(&model, MuonConfig::default()).unwrap();
/// let (x, y) = (Tensor::from([[1i64, 2, 3]]), Tensor::from([[2i64, 3, 4]]));
/// let before = model.loss(&x, &y, &mut Pass::eval()).item();
/// for step in 0..20 {
///     let (_, grads) = model.loss_and_gradients(&x, &y, &mut Pass::train(step));
///     muon.step(&grads).unwrap();
/// }
/// assert!(model.loss(&x, &y, &mut Pass::eval()).item() < 0.7 * before);
/// ```
#[derive(Debug)]
pub struct Muon<T: Real = f32> {
    config: MuonConfig,
    /// The matrices, each with its average; `None` if there is none.
    matrices: Option<ParamStates<T, 1>>,
    /// `None` if all parameters are matrices of hidden layers.
    rest: Option<AdamW<T>>,
    /// The learning rate of AdamW divided by the learning rate of the matrices.
    ratio: f64,
}

/// The last parts of names of embeddings and heads.
const EMBEDDINGS: [&str; 7] =
    ["wte", "wpe", "lm_head", "embed_tokens", "embed_positions", "embedding", "head"];

impl<T: Real> Muon<T> {
    /// An optimiser for a module: Muon for parameters of rank 2, except embeddings and heads,
    /// which are recognised by the last part of the module's name (`wte`, `wpe`, `lm_head`,
    /// `embed_tokens`, `embed_positions`, `embedding`, `head`). [`Muon::with_rule`] takes another rule.
    ///
    /// # Errors
    /// If a hyperparameter is out of range, or there is no parameter.
    pub fn new(module: &impl Module<T>, config: MuonConfig) -> Result<Self, ConfigError> {
        Muon::with_rule(module, config, |name, param| {
            let module = name.rsplit('.').nth(1).unwrap_or_default();
            param.shape().rank() == 2 && !EMBEDDINGS.contains(&module)
        })
    }

    /// An optimiser for a module: Muon for the parameters that `is_hidden` selects, by name, AdamW for
    /// the others, with the weight decay of `config.adam` from rank 2 on. If it selects none, this
    /// is AdamW.
    ///
    /// # Errors
    /// If a hyperparameter is out of range, a selected parameter is not a matrix, or there is no parameter.
    pub fn with_rule(
        module: &impl Module<T>,
        config: MuonConfig,
        is_hidden: impl Fn(&str, &Param<T>) -> bool,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let (params, rest): (Vec<_>, Vec<_>) =
            module.named_parameters().into_iter().partition(|(name, p)| is_hidden(name, p));
        if let Some((name, p)) = params.iter().find(|(_, p)| p.shape().rank() != 2) {
            return Err(ConfigError(format!("{name} {:?} is not a matrix", p.shape())));
        }
        let hidden = Group { params, weight_decay: config.weight_decay, ..Group::default() };
        let matrices = match hidden.params.is_empty() && !rest.is_empty() {
            true => None,
            false => Some(ParamStates::new(["momentum"], vec![hidden])?),
        };
        let rest = match rest.is_empty() {
            true => None,
            false => {
                let (decayed, others) = rest.into_iter().partition(|(_, p)| p.shape().rank() >= 2);
                let group =
                    |params, weight_decay| Group { params, weight_decay, ..Group::default() };
                let groups = vec![group(decayed, config.adam.weight_decay), group(others, 0.0)];
                Some(AdamW::with_groups(groups, config.adam)?)
            }
        };
        let ratio = if config.lr == 0.0 { 0.0 } else { config.adam.lr / config.lr };
        Ok(Muon { config, matrices, rest, ratio })
    }

    /// The orthogonalised update of each trainable matrix, and its new average.
    fn updates(&self, grads: &Gradients<T>) -> Vec<(Tensor<T>, Tensor<T>)> {
        let matrices = self.matrices.iter().flat_map(|matrices| matrices.iter());
        let trained: Vec<_> = matrices.filter(|slot| slot.param.is_trainable()).collect();
        let (keep, add) = (self.config.momentum, 1.0 - self.config.momentum);
        // The largest ones first, so that no thread begins one when the others have nothing left.
        let mut order: Vec<usize> = (0..trained.len()).collect();
        let work = |shape: Shape| shape[0].min(shape[1]) * shape.numel();
        order.sort_by_key(|&i| Reverse(work(trained[i].param.shape())));
        let updates = par::shards(trained.len(), |i| {
            let slot = trained[order[i]];
            let g = grads.by_id(slot.param.id()).expect("checked") * T::from_f64(add);
            let average = &slot.state[0] * T::from_f64(keep) + &g;
            let update = match self.config.nesterov {
                true => &average * T::from_f64(keep) + &g,
                false => average.clone(),
            };
            (orthogonalize(&update, self.config.iterations).contiguous(), average)
        });
        let mut updates: Vec<_> = order.into_iter().zip(updates).collect();
        updates.sort_by_key(|&(i, _)| i);
        updates.into_iter().map(|(_, update)| update).collect()
    }

    fn scale(&self, rows: usize, columns: usize) -> f64 {
        let (rows, columns) = (rows as f64, columns as f64);
        match self.config.scale {
            MuonScale::Spectral => (rows / columns).max(1.0).sqrt(),
            MuonScale::MatchAdam => 0.2 * rows.max(columns).sqrt(),
        }
    }
}

/// Approximates `U Vᵀ` of the singular value decomposition `x = U S Vᵀ` of a matrix by Newton-Schulz
/// iterations, see [`Muon`]. A matrix of zeros stays 0.
///
/// ```
/// use retrograd::nn::optim::orthogonalize;
/// use retrograd::prelude::*;
/// let x = orthogonalize(&Tensor::<f64>::randn([4, 6], &mut Rng::new(1)), 5);
/// let product = x.matmul(&x.t()); // nearly the identity
/// assert!((product - Tensor::eye(4)).abs().max(..).item() < 0.6);
/// ```
///
/// # Panics
/// If `x` is not a matrix.
#[track_caller]
pub fn orthogonalize<T: Real>(x: &Tensor<T>, iterations: usize) -> Tensor<T> {
    const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
    let [a, b, c] = COEFFICIENTS.map(T::from_f64);
    assert!(x.rank() == 2, "orthogonalize: {:?} is not a matrix", x.shape());
    // The product of the shorter side with itself is the smaller one.
    let is_tall = x.size(0) > x.size(1);
    let x = if is_tall { x.t().contiguous() } else { x.clone() };
    let (mut x, mut squares, mut eps) = (x.clone(), x.square().sum(..), 1e-7);
    if let Some(scale) = x.scales_of_powers("orthogonalize", &squares, AxisSet::all(2), 32) {
        x = x.mul(&scale);
        (squares, eps) = (x.square().sum(..), eps * scale.to_vec()[0].to_f64());
    }
    let mut x = x * T::from_f64(1.0 / (squares.item().to_f64().sqrt() + eps));
    for _ in 0..iterations {
        let gram = x.symmetric_matmul(&x.t());
        let polynomial = &gram * b + gram.symmetric_matmul(&gram) * c;
        x = polynomial.matmul(&x) + x * a;
    }
    if is_tall { x.t() } else { x }
}

/// `w · keep - update · rate`, in place.
#[derive(Clone, Copy)]
struct Decayed {
    keep: f64,
    rate: f64,
}

impl<T: Real> Update<T, 1, 1> for Decayed {
    const COST: Cost = Cost::CHEAP;
    #[inline(always)]
    fn f<A: Algebra<T>>(self, [w]: [Expr<T, A>; 1], [update]: [Expr<T, A>; 1]) -> [Expr<T, A>; 1] {
        [w * self.keep - update * self.rate]
    }
}

impl<T: Real> Optimizer<T> for Muon<T> {
    fn step(&mut self, grads: &Gradients<T>) -> Result<(), StepError> {
        let _span = par::span("muon");
        self.check(grads)?;
        // What takes most memory is first: if there is none, nothing has changed.
        let updates = self.updates(grads);
        let hidden = self.matrices.iter().flat_map(|all| all.iter());
        let hidden: Vec<_> = hidden.map(|slot| &slot.param).filter(|p| p.is_trainable()).collect();
        // Copies what graphs share.
        Param::update_all(&hidden, |weights| {
            for w in weights {
                w.make_mut();
            }
        });
        if let Some(rest) = &mut self.rest {
            rest.step(grads)?;
        }
        let _span = par::span("weights");
        let lr = self.config.lr;
        let scales: Vec<f64> =
            updates.iter().map(|(u, _)| self.scale(u.size(0), u.size(1))).collect();
        let Some(matrices) = &mut self.matrices else { return Ok(()) };
        let trained: Vec<_> = matrices.iter().filter(|slot| slot.param.is_trainable()).collect();
        let params: Vec<&Param<T>> = trained.iter().map(|slot| &slot.param).collect();
        Param::update_all(&params, |weights| {
            let items = weights.into_iter().zip(trained).zip(updates.iter().zip(scales));
            let items = items.map(|((w, slot), ((update, _), scale))| {
                let op = Decayed { keep: 1.0 - lr * slot.weight_decay, rate: lr * scale };
                Item { op, w: [w], r: [update] }
            });
            update_all("muon", items.collect());
        });
        let mut averages = updates.into_iter().map(|(_, average)| average);
        matrices.step_each(grads, |slot, _| {
            slot.state[0] = averages.next().expect("one per trained matrix");
        })
    }

    fn check(&self, grads: &Gradients<T>) -> Result<(), StepError> {
        self.matrices.as_ref().map_or(Ok(()), |matrices| matrices.check(grads))?;
        self.rest.as_ref().map_or(Ok(()), |rest| rest.check(grads))
    }

    fn lr(&self) -> f64 {
        self.config.lr
    }

    #[track_caller]
    fn set_lr(&mut self, lr: f64) {
        let lr = checked_lr(lr);
        if let Some(rest) = &mut self.rest {
            rest.set_lr(lr * self.ratio);
        }
        self.config.lr = lr;
    }

    fn steps(&self) -> u64 {
        let rest = || self.rest.as_ref().map_or(0, |rest| rest.steps());
        self.matrices.as_ref().map_or_else(rest, |matrices| matrices.steps())
    }

    fn state_dict(&self) -> StateDict<T> {
        let matrices = self.matrices.as_ref();
        let mut dict = matrices.map_or_else(StateDict::new, |matrices| matrices.state_dict());
        dict.extend(self.rest.iter().flat_map(|rest| rest.state_dict()));
        dict
    }

    fn load_state_dict(&mut self, steps: u64, dict: &StateDict<T>) -> Result<(), LoadError> {
        let is_matrix = |name: &str| {
            let mut slots = self.matrices.iter().flat_map(|matrices| matrices.iter());
            slots.any(|slot| slot.name == name)
        };
        let of_matrix = |name: &str| match name.split_once('.') {
            Some(("momentum", _)) => true,
            Some(("step", param)) => is_matrix(param),
            _ => false,
        };
        let (matrices, rest): (StateDict<T>, StateDict<T>) =
            dict.clone().into_iter().partition(|(name, _)| of_matrix(name));
        let unexpected = |dict: StateDict<T>| match dict.is_empty() {
            true => Ok(()),
            false => {
                Err(LoadError { unexpected: dict.into_keys().collect(), ..LoadError::default() })
            }
        };
        // All or nothing.
        match &self.matrices {
            None => unexpected(matrices.clone())?,
            Some(all) => drop(all.check_state_dict(steps, &matrices)?),
        }
        match &mut self.rest {
            None => unexpected(rest)?,
            Some(adam) => adam.load_state_dict(steps, &rest)?,
        }
        self.matrices.as_mut().map_or(Ok(()), |all| all.load_state_dict(steps, &matrices))
    }
}
