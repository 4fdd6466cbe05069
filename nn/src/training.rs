//! The training of a language model: [`Trainer`].

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config_error::ConfigError;
use crate::gpt::{Gpt, Shards};
use crate::module::Module;
use crate::optim::{Optimizer, StepError};
use crate::pass::Pass;
use crate::schedule::Schedule;
use crate::state::StateDict;
use crate::text::{Batch, Corpus, TextMetrics, Window};
use retrograd_autograd::{Gradients, Var, no_grad, sharded};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Key;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The purposes of random numbers in a run. Each has a seed of its own, which follows from the seed of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Initial weights.
    Weights,
    /// Positions of the windows in a batch.
    Batches,
    /// Dropout.
    Dropout,
    /// Generated text.
    Samples,
}

impl Purpose {
    /// The seed for this purpose, in a run with the seed `run`.
    pub fn seed(self, run: u64) -> u64 {
        Key::new(run, u64::MAX).bits(self as u64)
    }
}

/// The hyperparameters of a [`Trainer`].
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerConfig {
    /// The learning rate at each step.
    pub schedule: Schedule,
    /// Sequences of a batch, each as long as the model's context.
    pub batch: usize,
    /// Shards of a batch, see [`Gpt::shards`]; `None`: a number that its size determines.
    pub shards: Option<usize>,
    /// The maximum global norm of the gradients.
    pub clip: f64,
    /// The seed of batches and dropout.
    pub seed: u64,
}

impl Default for TrainerConfig {
    fn default() -> Self {
        let schedule = Schedule::Constant { lr: 1e-3 };
        TrainerConfig { schedule, batch: 12, shards: None, clip: 1.0, seed: 1337 }
    }
}

/// Which process computes what of a step. By default, one process computes everything; `retrograd::distributed::DataParallel`
/// divides the work among several, with the same bits.
pub trait Strategy: Send + Sync {
    /// The number of this process, and the number of processes.
    fn rank(&self) -> (usize, usize) {
        (0, 1)
    }

    /// The mean loss of the shards, weighted by `counts`, and its gradients, as [`sharded`].
    fn gradients(
        &self,
        counts: &[usize],
        loss: &(dyn Fn(usize) -> Var + Send + Sync),
    ) -> (f32, Gradients) {
        sharded(counts, loss)
    }

    /// Scales the gradients of all processes to a global norm of at most `max`, and returns their norm.
    fn clip_norm(&self, grads: &mut Gradients, max: f64) -> f64 {
        grads.clip_norm(max)
    }

    /// Sends the parameters that this process has updated to the others.
    fn share_parameters(&self) {}

    /// The bytes of each process.
    fn all_gather(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        vec![mine.to_vec()]
    }

    /// The state of the optimiser, given the part of each process: at process 0, `None` at others.
    fn gather_state(&self, mine: &StateDict) -> Option<StateDict> {
        Some(mine.clone())
    }

    /// Of the state of the optimiser, the part of this process.
    fn own_state(&self, whole: &StateDict) -> StateDict {
        whole.clone()
    }
}

/// One process computes everything.
#[derive(Clone, Copy, Debug)]
pub struct SingleProcess;

impl Strategy for SingleProcess {}

/// The training of a [`Gpt`] on a [`Corpus`]: batches, losses, gradients, clipping, updates, evaluation and
/// checkpoints. A run that is saved and loaded goes on with the same bits: batches and dropout are functions
/// of the seed and the step.
///
/// ```
/// use retrograd::nn::training::{Trainer, TrainerConfig};
/// use retrograd::prelude::*;
///
/// let text = Documents::of("the cat sat on the mat. ".repeat(100));
/// let tokenizer = Tokenizer::chars(text.texts());
/// let corpus = Corpus::new(&text, 0.1, &tokenizer)?;
///
/// let vocab = tokenizer.vocab_size();
/// let config = GptConfig { vocab, context: 16, layers: 1, heads: 2, width: 32, ..GptConfig::default() };
/// let model = Gpt::new(config, &mut Rng::new(1))?;
/// let optimizer = AdamW::new(&model, AdamConfig::default())?;
/// let schedule = Schedule::WarmupCosine { lr: 1e-2, min_lr: 1e-3, warmup: 5, steps: 60 };
/// let config = TrainerConfig { schedule, batch: 8, ..TrainerConfig::default() };
/// let mut trainer = Trainer::new(&model, &corpus, Box::new(optimizer), config)?;
///
/// while trainer.steps() < 60 {
///     let step = trainer.step()?;
///     if step.number % 20 == 0 {
///         println!("step {}: loss {:.3}, held-out {:.3}", step.number, step.loss, trainer.evaluate().loss());
///     }
/// }
/// assert!(trainer.evaluate().loss() < 1.0); // uniform predictions: 2.4
///
/// let path = std::env::temp_dir().join(format!("doc-trainer-{}", std::process::id()));
/// trainer.checkpoint().expect("this is process 0").save(&path)?;
/// trainer.load(&Checkpoint::load(&path)?)?;
/// std::fs::remove_file(&path)?;
/// Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Trainer<'a> {
    model: &'a Gpt,
    corpus: &'a Corpus,
    optimizer: Box<dyn Optimizer>,
    config: TrainerConfig,
    strategy: Arc<dyn Strategy>,
    steps: u64,
    /// Of these, the ones that the optimiser has not taken.
    refused: u64,
}

impl<'a> Trainer<'a> {
    /// Trains on one process. The optimiser must have been made for the model.
    ///
    /// # Errors
    /// If a batch has no sequence or no shard, the maximum norm is negative or NaN, or the schedule is invalid
    /// ([`Schedule::check`]).
    pub fn new(
        model: &'a Gpt,
        corpus: &'a Corpus,
        optimizer: Box<dyn Optimizer>,
        config: TrainerConfig,
    ) -> Result<Trainer<'a>, ConfigError> {
        let TrainerConfig { batch, shards, clip, .. } = config;
        for (what, n) in [("sequence", batch), ("shard", shards.unwrap_or(1))] {
            if n == 0 {
                return Err(ConfigError(format!("a batch needs at least 1 {what}, got 0")));
            }
        }
        if clip.is_nan() || clip < 0.0 {
            return Err(ConfigError(format!("the maximum norm must be at least 0, got {clip}")));
        }
        config.schedule.check()?;
        let strategy = Arc::new(SingleProcess);
        Ok(Trainer { model, corpus, optimizer, config, strategy, steps: 0, refused: 0 })
    }

    /// Divides the work as a strategy says. The optimiser must be for the parameters of this process.
    pub fn with_strategy(mut self, strategy: Arc<dyn Strategy>) -> Self {
        self.strategy = strategy;
        self
    }

    /// The optimiser, of the parameters of this process.
    pub fn optimizer(&self) -> &dyn Optimizer {
        &*self.optimizer
    }

    /// Changes the learning rates of the next steps.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.config.schedule = schedule;
    }

    /// The steps that were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The batch of the next step.
    pub fn batch(&self) -> Batch {
        let TrainerConfig { batch, seed, .. } = self.config;
        let context = self.model.config().context;
        self.corpus.batch(Purpose::Batches.seed(seed), self.steps, batch, context)
    }

    /// The batch of the next step, in shards.
    pub fn shards(&self) -> Shards<'a, f32, i64> {
        let shards = self.config.shards;
        let Batch { tokens, targets } = self.batch();
        self.model.shards(&tokens, &targets, shards, &mut self.pass())
    }

    /// The pass of the next step, with its random numbers of dropout.
    pub fn pass(&self) -> Pass {
        Pass::train_step(Purpose::Dropout.seed(self.config.seed), self.steps)
    }

    /// Takes a step: batch, loss, gradients, clipping, update.
    ///
    /// # Errors
    /// If the loss or a gradient is not finite. The step is counted, and no parameter has changed.
    pub fn step(&mut self) -> Result<Step, TrainError> {
        self.step_with(|_| ())
    }

    /// [`Trainer::step`] with a callback, which may change the gradients of this process before they are clipped.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub fn step_with(&mut self, callback: impl FnOnce(&mut Gradients)) -> Result<Step, TrainError> {
        let lr = self.config.schedule.lr(self.steps);
        let shards = self.shards();
        let (loss, mut grads) = self.strategy.gradients(shards.counts(), &|i| shards.loss(i));
        self.steps += 1;
        self.refused += 1; // until the optimiser has taken it
        let loss = f64::from(loss);
        if !loss.is_finite() {
            return Err(TrainError::Loss(loss));
        }
        callback(&mut grads);
        let grad_norm = self.strategy.clip_norm(&mut grads, self.config.clip);
        self.optimizer.set_lr(lr);
        let stepped = self.optimizer.step(&grads);
        self.strategy.share_parameters();
        // The same text on all ranks.
        let own = |e| if let StepError::OtherRank(_, e) = e { *e } else { e };
        stepped.map_err(|e| TrainError::Optimizer(own(e)))?;
        self.refused -= 1;
        Ok(Step { number: self.steps, loss, lr, grad_norm })
    }

    /// Metrics of the model on the whole held-out part of the corpus.
    pub fn evaluate(&self) -> TextMetrics {
        let windows = self.corpus.windows(self.model.config().context);
        evaluate(self.model, &windows, &*self.strategy, &|| false).expect("nothing stops it")
    }

    /// A checkpoint with the weights, the state of the optimiser and the number of steps, to which notes can be
    /// added: at process 0; `None` at others. All processes call this.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        let optimizer = self.strategy.gather_state(&self.optimizer.state_dict())?;
        let mut file = Checkpoint::new();
        file.put("model", &self.model.state_dict());
        file.put("optimizer", &optimizer);
        file.note("step", &self.steps);
        file.note("trainer", &self.settings());
        if self.refused > 0 {
            file.note("refused_steps", &self.refused);
        }
        Some(file)
    }

    /// What batches, shards, gradients and dropout of the next steps depend on.
    fn settings(&self) -> BTreeMap<&str, Value> {
        let TrainerConfig { batch, shards, clip, seed, .. } = self.config;
        let values = [json!(batch), json!(shards), json!(clip), json!(seed)];
        ["batch", "shards", "clip", "seed"].into_iter().zip(values).collect()
    }

    /// Goes on from a checkpoint. The schedule may be another one.
    ///
    /// # Errors
    /// If it is that of another model, optimiser or configuration, or is incomplete; then nothing has been changed.
    pub fn load(&mut self, file: &Checkpoint) -> Result<(), Box<dyn std::error::Error>> {
        // Those of earlier versions lack it.
        if file.notes.contains_key("trainer") {
            let saved: BTreeMap<String, Value> = file.read_note("trainer")?;
            let of = |name: &str| saved.get(name).unwrap_or(&Value::Null);
            let own = self.settings();
            let differing: Vec<String> = own
                .iter()
                .filter(|&(name, value)| of(name) != value)
                .map(|(name, value)| format!("{name}: {}, not {value}", of(name)))
                .collect();
            if !differing.is_empty() {
                let why = format!("another configuration has been saved: {}", differing.join(", "));
                return Err(ConfigError(why).into());
            }
        }
        let (model, whole) = (file.get("model")?, file.get("optimizer")?);
        let steps: u64 = file.read_note("step")?;
        let refused = match file.notes.contains_key("refused_steps") {
            true => file.read_note("refused_steps")?,
            false => 0,
        };
        let taken = steps.checked_sub(refused).ok_or_else(|| {
            CheckpointError::Absent(format!("number of refused steps up to {steps}, but {refused}"))
        })?;
        let before = (self.optimizer.steps(), self.optimizer.state_dict());
        self.optimizer.load_state_dict(taken, &self.strategy.own_state(&whole))?;
        if let Err(e) = self.model.load_state_dict(&model) {
            self.optimizer.load_state_dict(before.0, &before.1).expect("it is its own state");
            return Err(e.into());
        }
        (self.steps, self.refused) = (steps, refused);
        Ok(())
    }
}

/// A step that was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its number, from 1.
    pub number: u64,
    /// The loss of the batch before the update.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// The norm of the gradients before clipping.
    pub grad_norm: f64,
}

/// Metrics of a model on windows of text; `None` if `stops` is true on one of the processes before they are
/// computed. Batches are divided among processes, and their metrics added in one order: the result has the same
/// bits for any number of processes.
pub fn evaluate(
    model: &Gpt,
    windows: &[Window<'_>],
    strategy: &dyn Strategy,
    stops: &dyn Fn() -> bool,
) -> Option<TextMetrics> {
    /// Windows of a batch, the most logits, 64 MB, and about the most tokens in a forward pass.
    const BATCH: usize = 32;
    const LOGITS: usize = 1 << 24;
    const TOKENS: usize = 8192;
    let row = model.config().context * model.config().vocab;
    let most = (LOGITS / row.max(1)).clamp(1, BATCH);
    // The last window may be shorter, and is then a batch of its own.
    let equal = windows.chunk_by(|a, b| a.tokens.len() == b.tokens.len());
    let groups: Vec<&[Window<'_>]> = equal.flat_map(|windows| windows.chunks(most)).collect();
    let (rank, ranks) = strategy.rank();
    let of_group = |group: &&[Window<'_>]| {
        let Batch { tokens, targets } = Batch::new(group.iter().map(|window| window.tokens));
        let (n, row) = (tokens.size(0), tokens.size(1));
        let few = (TOKENS / row.max(1)).clamp(1, n);
        let part = |i| tokens.narrow(0, i, few.min(n - i));
        let forward = |i| no_grad(|| model.forward(&part(i), &mut Pass::eval())).into_value();
        let parts: Vec<Tensor> = (0..n).step_by(few).map(forward).collect();
        let logits = match &parts[..] {
            [all] => all.clone(),
            parts => Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0),
        };
        let mut m = TextMetrics::default();
        m.add(&logits, &targets, group.iter().map(|window| window.bytes).sum());
        // As integers: JSON has no NaN.
        [m.nats.to_bits(), m.tokens, m.correct, m.bytes]
    };
    let mine = groups.iter().skip(rank).step_by(ranks);
    let mine: Option<Vec<[u64; 4]>> =
        mine.map(|group| (!stops()).then(|| of_group(group))).collect();
    let all = strategy.all_gather(&serde_json::to_vec(&mine).expect("integers"));
    let all = all.iter().map(|json| serde_json::from_slice(json).expect("written by a process"));
    let all: Vec<Vec<[u64; 4]>> = all.collect::<Option<_>>()?;
    let in_order = (0..groups.len()).map(|i| all[i % ranks][i / ranks]);
    Some(in_order.fold(TextMetrics::default(), |sum, [nats, tokens, correct, bytes]| {
        sum + TextMetrics { nats: f64::from_bits(nats), tokens, correct, bytes }
    }))
}

/// Why a step was not taken.
#[derive(Clone, Debug, PartialEq)]
pub enum TrainError {
    /// The loss is not finite.
    Loss(f64),
    /// The error of the optimiser.
    Optimizer(StepError),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrainError::Loss(loss) => write!(f, "the loss is {loss}"),
            TrainError::Optimizer(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for TrainError {}
