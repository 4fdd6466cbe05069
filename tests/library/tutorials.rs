//! Every number that five tutorials on attention print, and their exercises, by the code of the
//! example `tutorials`.

use crate::check::Lesson;
use crate::{s0, s1, s2, s3, s4};

fn passes(tutorial: fn(&mut Lesson)) {
    let mut lesson = Lesson::default();
    tutorial(&mut lesson);
    assert!(lesson.passed(), "\n{}", lesson.report());
}

#[test]
fn attention_on_attention() {
    passes(s0::run);
}

#[test]
fn trainable_weights() {
    passes(s1::run);
}

#[test]
fn attention_for_transformers() {
    passes(s2::run);
}

#[test]
fn self_to_causal_attention() {
    passes(s3::run);
}

#[test]
fn self_attention_from_scratch() {
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
