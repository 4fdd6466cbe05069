//! Five tutorials on attention, walked through with every number that they print.
//!
//! ```sh
//! cargo test --release -p retrograd-tests --test tutorials -- --nocapture    # with explanations
//! cargo test --release -p retrograd-tests --test tutorials s3 -- --nocapture # one of the five
//! ```
//!
//! The tutorials are written for PyTorch and begin with random weights, so their results depend on PyTorch's random
//! numbers. `TorchRng` makes the same ones, so what is computed here must be what was printed there. The printed
//! numbers are in `published.txt`; `extras.txt` has the results of their exercises.
//!
//! Published tables are shown without `grad_fn` and without faults of their typesetting, such as wrong brackets and
//! indentation; the numbers are as they were printed. Two tables that do not fit side by side are shown as ours,
//! followed by the numbers in which the published one differs. In the printed text, `|` is code, as it has just been
//! run; `ours` is its result, beside or above the published one; `(!)` is an error or a misleading statement of the
//! tutorial; `[x]` is a statement that was computed and is true.

mod check;
mod s0;
mod s1;
mod s2;
mod s3;
mod s4;

use check::Lesson;

fn passes(tutorial: fn(&mut Lesson)) {
    let mut lesson = Lesson::default();
    tutorial(&mut lesson);
    println!("{}All comparisons\n\n{}", lesson.text, lesson.report());
    assert!(lesson.passed());
}

#[test]
fn s0_attention_on_attention() {
    passes(s0::run);
}

#[test]
fn s1_trainable_weights() {
    passes(s1::run);
}

#[test]
fn s2_attention_for_transformers() {
    passes(s2::run);
}

#[test]
fn s3_self_to_causal_attention() {
    passes(s3::run);
}

#[test]
fn s4_self_attention_from_scratch() {
    passes(s4::run);
}

#[test]
fn every_table_is_compared() {
    let mut lesson = Lesson::default();
    for tutorial in [s0::run, s1::run, s2::run, s3::run, s4::run] {
        tutorial(&mut lesson);
    }
    assert_eq!(lesson.not_compared(), [""; 0]);
    let values = |extra| lesson.rows.iter().filter(move |r| r.extra == extra).map(|r| r.values);
    assert_eq!((values(false).sum(), values(true).sum()), (801, 172));
    assert!(lesson.report().contains("\n973 values compared, worst difference "));
}

/// Differences and false statements are reported.
#[test]
fn differences_are_detected() {
    let omega = retrograd::tensor::Tensor::from([8.5808, -7.6597, 3.2558, 1.0395, 11.1469, -0.48]);
    let mut lesson = Lesson::default();
    lesson.table("s4.omega2", &omega);
    assert!(!lesson.passed() && lesson.text.contains("DIFFERENT"));

    let mut lesson = Lesson::default();
    lesson.table("s4.omega24", &retrograd::tensor::Tensor::scalar(f32::NAN));
    lesson.holds("one is two", false);
    lesson.same("one", 1, "2");
    assert!(!lesson.passed());
    assert_eq!(lesson.report().matches("DIFFERENT").count(), 3);
}
