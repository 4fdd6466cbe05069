//! Batches and windows of a text.

use retrograd_nn::text::{Batch, Corpus, Documents, Tokenizer};

fn corpus() -> Corpus {
    let text = Documents::of("abcdefghij".repeat(10));
    Corpus::new(&text, 0.1, &Tokenizer::chars(text.texts())).unwrap()
}

#[test]
fn batches_depend_on_seed_and_step_only() {
    let tokens = |seed, step| corpus().batch(seed, step, 3, 8).tokens.to_vec();
    assert_eq!(tokens(1, 5), tokens(1, 5));
    assert_ne!(tokens(1, 5), tokens(1, 6));
    assert_ne!(tokens(1, 5), tokens(2, 5));
    let Batch { tokens, targets } = corpus().batch(1, 1, 3, 8);
    for (x, y) in tokens.to_vec().into_iter().zip(targets.to_vec()) {
        assert_eq!((x + 1) % 10, y);
    }
}

/// The random numbers are part of what makes runs repeatable.
#[test]
fn batches_stay_the_same_from_version_to_version() {
    let digits = Documents::of((0..100u8).map(char::from).collect::<String>());
    let corpus = Corpus::new(&digits, 0.1, &Tokenizer::bytes()).unwrap();
    let first = |step| corpus.batch(1337, step, 6, 1).tokens.to_vec();
    assert_eq!(first(0), [83, 81, 20, 28, 59, 52]);
    assert_eq!(first(1_000_000), [64, 24, 70, 8, 30, 87]);
}

#[test]
fn texts_that_are_too_short_are_errors() {
    assert!(corpus().check(9).is_ok());
    let error = corpus().check(10).unwrap_err().to_string();
    assert!(error.contains("of its 100 tokens 10 are for validation"), "{error}");
}
