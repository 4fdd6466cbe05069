//! A model in training, step by step.

use retrograd::nn::AttentionKind;
use retrograd::prelude::*;
use retrograd::study::{AttentionExplorer, ExplorerText};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a model is made of, and how it is trained.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The text, of which a tenth is held out.
    pub text: String,
    /// The name of the attention variant.
    pub attention: AttentionKind,
    /// The name of the encoding of positions.
    pub positions: String,
    /// The name of the feed-forward layer.
    pub mlp: String,
    /// Blocks.
    pub layers: usize,
    /// Heads of a block.
    pub heads: usize,
    /// Numbers per token.
    pub width: usize,
    /// Tokens in a sequence.
    pub context: usize,
    /// Sequences in a batch.
    pub batch: usize,
    /// The learning rate.
    pub lr: f64,
    /// Chooses the first weights and the batches.
    pub seed: u64,
}

/// A model in training.
pub struct Session {
    recipe: Recipe,
    tokenizer: Tokenizer,
    corpus: Corpus,
    model: Gpt,
    optimizer: AdamW<f32>,
    step: u64,
}

/// A change of one number that a step reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// An element of a parameter, by its position in row-major order, becomes this number.
    Weight { parameter: String, at: usize, value: f32 },
    /// A token of the first sequence becomes another character.
    Token { at: usize, text: String },
}

/// The norm of a parameter's gradient without and with a change, and the norm of the difference.
#[derive(Debug, PartialEq, Serialize)]
pub struct Moved {
    pub parameter: String,
    pub shape: Vec<usize>,
    pub before: f64,
    pub after: f64,
    pub difference: f64,
}

/// The most characters of a text, tokens of a step, and heads that are drawn.
const MOST_TEXT: usize = 4_000_000;
const MOST_TOKENS: usize = 1 << 14;
const MOST_HEADS: usize = 256;
/// The most numbers of logits or scores of a step, of 4 bytes each: memory has addresses of 32 bits.
const MOST_NUMBERS: f64 = (1 << 26) as f64;
const MOST_PARAMETERS: f64 = 2e7;
/// The most multiply-adds of a forward and backward pass: about 20 seconds in a browser.
const MOST_WORK: f64 = 1e11;

impl Recipe {
    /// An error if a model of so many tokens would not fit into memory, or would take minutes for a step.
    fn check(&self, vocab: usize) -> Result<(), String> {
        if self.batch == 0 || self.batch.saturating_mul(self.context) > MOST_TOKENS {
            return Err(format!(
                "a step has 1 to {MOST_TOKENS} characters: sequences times the length of one"
            ));
        }
        if self.layers.saturating_mul(self.heads) > MOST_HEADS {
            return Err(format!("a model has at most {MOST_HEADS} heads in all its blocks"));
        }
        if !(self.lr > 0.0 && self.lr < 1.0) {
            return Err("the learning rate is between 0 and 1".into());
        }
        let sizes = [self.layers, self.width, self.context, self.batch, self.heads, vocab];
        let [layers, width, context, batch, heads, vocab] = sizes.map(|n| n as f64);
        let parameters = 12.0 * layers * width * width + (vocab + context) * width;
        let numbers = batch * context * (vocab + layers * (heads * context + 12.0 * width));
        let work = 3.0 * batch * context * (parameters + layers * context * width);
        if parameters > MOST_PARAMETERS || numbers > MOST_NUMBERS || work > MOST_WORK {
            return Err(format!(
                "about {parameters:.0} parameters and {work:.1e} multiply-adds a step are too many for a page (hint: \
                 fewer blocks or characters, or a smaller width)"
            ));
        }
        Ok(())
    }
}

impl Session {
    /// A model with its first weights.
    ///
    /// # Errors
    /// If the recipe has too large sizes, or sizes or a text of which no model can be made.
    pub fn new(mut recipe: Recipe) -> Result<Session, String> {
        fn said(e: impl std::error::Error) -> String {
            e.to_string()
        }
        let text = std::mem::take(&mut recipe.text);
        if text.chars().count() > MOST_TEXT {
            return Err(format!("the text has more than {MOST_TEXT} characters"));
        }
        let tokenizer = Tokenizer::chars([text.as_str()]);
        recipe.check(tokenizer.vocab_size())?;
        let corpus = Corpus::new(&Documents::of(text), 0.1, &tokenizer).map_err(said)?;
        corpus.check(recipe.context).map_err(said)?;
        let config = GptConfig {
            vocab: tokenizer.vocab_size(),
            context: recipe.context,
            layers: recipe.layers,
            heads: recipe.heads,
            width: recipe.width,
            positions: recipe.positions.parse().map_err(said)?,
            mlp: recipe.mlp.parse().map_err(said)?,
            ..GptConfig::default()
        };
        let config = config.with_attention(recipe.attention);
        let model = Gpt::new(config, &mut Rng::new(recipe.seed)).map_err(said)?;
        let config = AdamConfig { lr: recipe.lr, betas: (0.9, 0.99), ..AdamConfig::default() };
        let optimizer = AdamW::new(&model, config).map_err(said)?;
        Ok(Session { recipe, tokenizer, corpus, model, optimizer, step: 0 })
    }

    /// The model.
    pub fn model(&self) -> &Gpt {
        &self.model
    }

    /// Steps that were taken.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The loss of a guess among all tokens with equal probabilities.
    pub fn uniform_loss(&self) -> f64 {
        (self.tokenizer.vocab_size() as f64).ln()
    }

    /// The tokens of the next step, and those that follow each.
    fn batch(&self, sequences: usize) -> (Tensor<i64>, Tensor<i64>) {
        let batch = self.corpus.batch(self.recipe.seed, self.step, sequences, self.recipe.context);
        (batch.tokens, batch.targets)
    }

    fn loss(&self, (tokens, targets): &(Tensor<i64>, Tensor<i64>)) -> Var {
        self.model.loss(tokens, targets, &mut Pass::train_step(self.recipe.seed, self.step))
    }

    /// One step; its loss.
    pub fn train(&mut self) -> Result<f32, String> {
        let loss = self.loss(&self.batch(self.recipe.batch));
        let mut gradients = loss.backward();
        gradients.clip_norm(1.0);
        self.optimizer.step(&gradients).map_err(|e| e.to_string())?;
        self.step += 1;
        Ok(loss.item())
    }

    /// The loss of the first sequences of the held-out text, as many as a batch has.
    pub fn held_out(&self) -> f64 {
        let mut metrics = TextMetrics::default();
        for window in self.corpus.windows(self.recipe.context).into_iter().take(self.recipe.batch) {
            let batch = window.batch();
            let logits = no_grad(|| self.model.forward(&batch.tokens, &mut Pass::eval()));
            metrics.add(logits.value(), &batch.targets, window.bytes);
        }
        metrics.loss()
    }

    /// A text that the model continues, from the same random numbers at every step.
    pub fn sample(&self, prompt: &str, count: usize, temperature: f64) -> Result<String, String> {
        let start = self.tokenizer.encode(prompt).map_err(|e| e.to_string())?;
        let start = if start.is_empty() { self.corpus.train()[..1].to_vec() } else { start };
        let (sampler, mut rng) = (Sampler { temperature, ..Sampler::default() }, Rng::new(1));
        let tokens: Vec<i64> = self.model.generate(&start, sampler, &mut rng).take(count).collect();
        Ok(self.tokenizer.decode(&tokens))
    }

    /// The beginning of the held-out text: its tokens, and the character of each.
    fn shown(&self) -> (Vec<i64>, Vec<String>) {
        let text = self.corpus.held_out();
        let tokens = text[..self.recipe.context.min(text.len()).min(32)].to_vec();
        let labels = tokens.iter().map(|&token| self.tokenizer.label(token)).collect();
        (tokens, labels)
    }

    /// The characters of a short text, and the attention weights of each layer and head among them: from 0 to 255, row by
    /// row.
    pub fn heads(&self) -> (Vec<String>, Vec<Vec<Vec<u8>>>) {
        let (tokens, labels) = self.shown();
        let n = tokens.len();
        let maps = self.model.attention_maps(&Tensor::from_vec(tokens, [1, n]));
        let head = |weights: &[f32]| weights.iter().map(|x| (x * 255.0).round() as u8).collect();
        let layer = |map: &Tensor| map.to_vec().chunks((n * n).max(1)).map(head).collect();
        (labels, maps.iter().map(layer).collect())
    }

    /// The page of the next step: the loss of two of its sequences, forward and backward, with values.
    pub fn xray(&self) -> String {
        let batch = self.batch(2.min(self.recipe.batch));
        let xray = XRay::of(&self.model).title(&format!("Step {} of this model", self.step + 1));
        xray.record(|| self.loss(&batch).backward()).page().html()
    }

    /// The page of the attention explorer.
    pub fn explorer(&self) -> String {
        let (tokens, labels) = self.shown();
        let n = tokens.len();
        let text = ExplorerText::new("held-out text", labels).tokens(tokens.iter().copied());
        let mut explorer = AttentionExplorer::new("What the heads read").ablations(true);
        let snapshot = format!("step {}", self.step);
        explorer.record_gpt(&snapshot, &self.model, &text, &Tensor::from_vec(tokens, [1, n]));
        explorer.page.html()
    }

    /// The names and shapes of all parameters.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let shape = |(name, param): (String, Param)| (name, param.shape().to_vec());
        self.model.named_parameters().into_iter().map(shape).collect()
    }

    /// The element of a parameter that a [`Change::Weight`] changes.
    pub fn weight(&self, parameter: &str, at: usize) -> Result<f32, String> {
        let param = self.parameter(parameter)?;
        let values = param.value().to_vec();
        values.get(at).copied().ok_or_else(|| format!("{parameter} has {} elements", values.len()))
    }

    fn parameter(&self, name: &str) -> Result<Param, String> {
        let mut all = self.model.named_parameters().into_iter();
        all.find(|row| row.0 == name)
            .map(|row| row.1)
            .ok_or_else(|| format!("there is no parameter {name:?}"))
    }

    /// The loss of the next step without and with a change, and how far it moves the gradient of every parameter. The
    /// model stays as it is.
    pub fn compare(&self, change: &Change) -> Result<(f32, f32, Vec<Moved>), String> {
        let plain = self.batch(self.recipe.batch);
        let step = |batch: &(Tensor<i64>, Tensor<i64>)| {
            let loss = self.loss(batch);
            (loss.item(), loss.backward())
        };
        let before = step(&plain);
        let after = match change {
            Change::Weight { value, .. } if !value.is_finite() => {
                return Err("a number is missing".into());
            }
            Change::Weight { parameter, at, value } => {
                let old = self.weight(parameter, *at)?;
                let param = self.parameter(parameter)?;
                let set = |x: f32| param.update(|tensor| tensor.make_mut()[*at] = x);
                set(*value);
                let after = step(&plain);
                set(old);
                after
            }
            Change::Token { at, text } => {
                let token = match self.tokenizer.encode(text).map_err(|e| e.to_string())?[..] {
                    [token] => token,
                    _ => return Err("a token is one character of the text".into()),
                };
                if *at >= self.recipe.context {
                    return Err(format!("a sequence has {} tokens", self.recipe.context));
                }
                let (mut tokens, mut targets) = plain.clone();
                tokens.make_mut()[*at] = token;
                if let Some(before) = at.checked_sub(1) {
                    targets.make_mut()[before] = token;
                }
                step(&(tokens, targets))
            }
        };
        let moved = self.model.named_parameters().into_iter().map(|(parameter, param)| {
            let of = |step: &(f32, Gradients<f32>)| {
                step.1.by_id(param.id()).cloned().unwrap_or_else(|| Tensor::zeros(param.shape()))
            };
            let (a, b) = (of(&before), of(&after));
            let norm = |x: &Tensor| x.cast::<f64>().vector_norm(.., 2.0).item();
            Moved {
                parameter,
                shape: param.shape().to_vec(),
                before: norm(&a),
                after: norm(&b),
                difference: norm(&(&b - &a)),
            }
        });
        Ok((before.0, after.0, moved.collect()))
    }

    /// The first sequence of the next step, as characters.
    pub fn tokens(&self) -> Vec<String> {
        let (tokens, _) = self.batch(1);
        tokens.to_vec().into_iter().map(|token| self.tokenizer.label(token)).collect()
    }

    /// The weights as a file of safetensors, with the configuration and the tokenizer as notes.
    pub fn weights(&self) -> Result<Vec<u8>, String> {
        let mut file = Checkpoint::new();
        file.put("", &self.model.state_dict());
        let notes: BTreeMap<&str, String> = BTreeMap::from([
            ("config", serde_json::to_string(self.model.config()).map_err(|e| e.to_string())?),
            ("tokenizer", self.tokenizer.to_json()),
            ("step", self.step.to_string()),
        ]);
        notes.iter().for_each(|(name, text)| file.note(name, text));
        let mut bytes = Vec::new();
        file.write_plain(&mut bytes).map_err(|e| e.to_string())?;
        Ok(bytes)
    }
}
