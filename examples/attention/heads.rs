//! Analysis of the model of the pronoun: the weights of its heads, its accuracy, and its accuracy without one
//! head.

use crate::language::{KINDS, LONGEST, Sentence, Vocabulary};
use retrograd::prelude::*;
use std::fmt;

/// One head, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub layer: usize,
    pub head: usize,
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "head {} of layer {}", self.head + 1, self.layer + 1)
    }
}

/// How strongly a head attends from the pronoun to its noun.
pub struct Finding {
    pub head: Head,
    /// The mean weight from *it* to its noun.
    pub weight: f64,
    /// The fraction of sentences in which that is the largest weight.
    pub found: f64,
}

/// Rows of words as tokens, padded by full stops.
pub fn tokens(rows: &[&[&str]], vocabulary: &Vocabulary) -> Tensor<i64> {
    let length = rows.iter().map(|row| row.len()).max().expect("a row").min(LONGEST);
    let token = |i: &[usize]| vocabulary.encode(rows[i[0]].get(i[1]).unwrap_or(&"."));
    Tensor::from_fn([rows.len(), length], token)
}

/// The weights `[heads, L, L]` of each layer.
pub fn maps(model: &Gpt, vocabulary: &Vocabulary, sentence: &Sentence) -> Vec<Tensor> {
    let maps = model.attention_maps(&tokens(&[&sentence.words], vocabulary));
    maps.iter().map(|layer| layer.select(0, 0)).collect()
}

/// The attention weights of a query word in a head.
pub fn row(maps: &[Tensor], head: Head, word: usize) -> Vec<f32> {
    maps[head.layer].select(0, head.head).select(0, word).to_vec()
}

/// The attention of each head from *it* to its noun.
pub fn findings(model: &Gpt, vocabulary: &Vocabulary, sentences: &[Sentence]) -> Vec<Finding> {
    let config = model.config();
    let maps: Vec<_> = sentences.iter().map(|s| maps(model, vocabulary, s)).collect();
    let n = sentences.len() as f64;
    let heads = (0..config.layers)
        .flat_map(|layer| (0..config.heads).map(move |head| Head { layer, head }));
    let finding = |head| {
        let rows = || maps.iter().zip(sentences).map(|(maps, s)| (row(maps, head, s.it), s.noun));
        let weight: f64 = rows().map(|(row, noun)| f64::from(row[noun])).sum();
        let largest = |(row, noun): &(Vec<f32>, usize)| row.iter().all(|&w| w <= row[*noun]);
        let count = rows().filter(largest).count() as f64;
        Finding { head, weight: weight / n, found: count / n }
    };
    heads.map(finding).collect()
}

/// The fraction of sentences for which the most probable word after "it was" is the verb of the
/// right kind of thing.
pub fn accuracy(model: &Gpt, vocabulary: &Vocabulary, sentences: &[Sentence]) -> f64 {
    let beginnings: Vec<Vec<&str>> =
        sentences.iter().map(|s| [&s.words[..=s.it], &["was"]].concat()).collect();
    let rows: Vec<&[&str]> = beginnings.iter().map(Vec::as_slice).collect();
    let logits = no_grad(|| model.forward(&tokens(&rows, vocabulary), &mut Pass::eval()));
    let guesses = logits.value().argmax(-1);
    let right = |(i, s): &(usize, &Sentence)| {
        let guess = vocabulary.word(guesses.at(&[*i, s.it + 1]));
        guess == KINDS[s.kind].was[0]
    };
    sentences.iter().enumerate().filter(right).count() as f64 / sentences.len() as f64
}

/// [`accuracy`] without a head: the columns of the output projection that belong to it are 0.
pub fn accuracy_without(
    model: &Gpt,
    vocabulary: &Vocabulary,
    sentences: &[Sentence],
    head: Head,
) -> f64 {
    let name = format!("transformer.h.{}.attn.c_proj.weight", head.layer);
    let params = model.named_parameters();
    let (_, weight) = params.iter().find(|(n, _)| *n == name).expect("the projection");
    let whole = weight.value();
    let width = model.config().width / model.config().heads;
    let (from, to) = (head.head * width, (head.head + 1) * width);
    weight.set(Tensor::from_fn(whole.shape(), |i| {
        if (from..to).contains(&i[1]) { 0.0 } else { whole.at(i) }
    }));
    let without = accuracy(model, vocabulary, sentences);
    weight.set(whole);
    without
}
