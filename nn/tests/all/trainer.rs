//! [`Trainer`]: what it refuses, steps that are refused, and loading.

use retrograd_nn::checkpoint::Checkpoint;
use retrograd_nn::optim::{AdamConfig, AdamW};
use retrograd_nn::schedule::Schedule;
use retrograd_nn::text::{Corpus, Documents, Tokenizer};
use retrograd_nn::training::{Purpose, Trainer, TrainerConfig};
use retrograd_nn::{ConfigError, Gpt, GptConfig, Module, Pass};
use retrograd_tensor::random::Rng;

const NAN: f64 = f64::NAN;

fn corpus() -> Corpus {
    Corpus::new(&Documents::of("abc ".repeat(40)), 0.1, &Tokenizer::bytes()).unwrap()
}

fn model(width: usize) -> Gpt {
    let config =
        GptConfig { vocab: 256, context: 8, layers: 1, heads: 2, width, ..Default::default() };
    Gpt::new(config, &mut Rng::new(1)).unwrap()
}

fn built<'a>(
    model: &'a Gpt,
    corpus: &'a Corpus,
    config: TrainerConfig,
) -> Result<Trainer<'a>, ConfigError> {
    let optimizer = Box::new(AdamW::new(model, AdamConfig::default()).unwrap());
    Trainer::new(model, corpus, optimizer, config)
}

fn trainer<'a>(model: &'a Gpt, corpus: &'a Corpus) -> Trainer<'a> {
    built(model, corpus, TrainerConfig::default()).unwrap()
}

#[test]
fn invalid_configurations_are_refused() {
    let (model, corpus) = (model(8), corpus());
    let default = TrainerConfig::default;
    for (config, want) in [
        (TrainerConfig { batch: 0, ..default() }, "a batch needs at least 1 sequence, got 0"),
        (TrainerConfig { shards: Some(0), ..default() }, "a batch needs at least 1 shard, got 0"),
        (TrainerConfig { clip: NAN, ..default() }, "the maximum norm must be at least 0, got NaN"),
        (TrainerConfig { clip: -1.0, ..default() }, "the maximum norm must be at least 0, got -1"),
        (
            TrainerConfig { schedule: Schedule::Constant { lr: NAN }, ..default() },
            "the learning rate must be finite and >= 0, got NaN",
        ),
    ] {
        assert_eq!(built(&model, &corpus, config).err().unwrap().to_string(), want);
    }
}

#[test]
fn each_step_and_purpose_has_random_streams_of_its_own() {
    let (model, corpus) = (model(8), corpus());
    let mut run = trainer(&model, &corpus);
    for step in 0..2 {
        let TrainerConfig { seed, batch, .. } = TrainerConfig::default();
        let key = Pass::train_step(Purpose::Dropout.seed(seed), step).key();
        assert_eq!(run.pass().key(), key);
        let drawn = corpus.batch(Purpose::Batches.seed(seed), step, batch, 8);
        assert_eq!(run.batch().tokens, drawn.tokens);
        run.step().unwrap();
    }
}

#[test]
fn a_run_with_a_refused_step_goes_on_with_the_same_bits() {
    let (one, other, corpus) = (model(8), model(8), corpus());
    let mut run = trainer(&one, &corpus);
    run.step().unwrap();
    let refused = run.step_with(|grads| grads.scale(f32::NAN));
    assert!(refused.is_err());
    assert_eq!((run.steps(), run.optimizer().steps()), (2, 1));
    let file = run.checkpoint().unwrap();
    let mut resumed = trainer(&other, &corpus);
    resumed.load(&file).unwrap();
    assert_eq!((resumed.steps(), resumed.optimizer().steps()), (2, 1));
    for _ in 0..3 {
        assert_eq!(run.step().unwrap(), resumed.step().unwrap());
    }
    // Saved and resumed once more.
    run.load(&resumed.checkpoint().unwrap()).unwrap();
    assert_eq!((run.steps(), run.optimizer().steps()), (5, 4));
    assert_eq!(one.state_dict(), other.state_dict());
}

#[test]
fn a_checkpoint_of_another_configuration_is_refused() {
    let (model, corpus) = (model(8), corpus());
    let with = |config| built(&model, &corpus, config).unwrap();
    let default = TrainerConfig::default;
    let mut file = with(TrainerConfig { clip: f64::INFINITY, ..default() }).checkpoint().unwrap();
    let schedule = Schedule::Constant { lr: 0.5 };
    with(TrainerConfig { clip: f64::INFINITY, schedule, ..default() }).load(&file).unwrap();
    let other = TrainerConfig { batch: 8, shards: Some(2), clip: 2.0, seed: 1, ..default() };
    let error = with(other.clone()).load(&file).unwrap_err().to_string();
    let differing = "batch: 12, not 8, clip: null, not 2.0, seed: 1337, not 1, shards: null, not 2";
    assert_eq!(error, format!("another configuration has been saved: {differing}"));
    file.notes.remove("trainer");
    with(other).load(&file).unwrap();
}

#[test]
fn a_checkpoint_that_does_not_fit_changes_nothing() {
    let (small, large, corpus) = (model(8), model(16), corpus());
    let mut run = trainer(&small, &corpus);
    run.step().unwrap();
    let (own, other) = (run.checkpoint().unwrap(), trainer(&large, &corpus).checkpoint().unwrap());
    // Parts of the two, and counts that cannot be.
    let with = |model: &Checkpoint, optimizer: &Checkpoint, step: u64, refused: u64| {
        let mut file = Checkpoint::new();
        file.put("model", &model.get::<f32>("model").unwrap());
        file.put("optimizer", &optimizer.get::<f32>("optimizer").unwrap());
        file.note("step", &step);
        file.note("refused_steps", &refused);
        file
    };
    let mut no_step = with(&own, &own, 1, 0);
    no_step.notes.remove("step");
    let files =
        [with(&other, &own, 9, 0), with(&own, &other, 9, 0), with(&own, &own, 1, 2), no_step];
    for file in files {
        assert!(run.load(&file).is_err());
        let kept = run.checkpoint().unwrap();
        for part in ["model", "optimizer"] {
            assert_eq!(kept.get::<f32>(part).unwrap(), own.get::<f32>(part).unwrap());
        }
        assert_eq!((run.steps(), run.optimizer().steps()), (1, 1));
    }
}
