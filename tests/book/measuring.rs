//! Solutions of the exercises of `book::measuring`.

use crate::drawings::measuring::{CALLS, median, time};
use retrograd::tensor::random::Key;

#[test]
fn the_figure_shows_what_the_chapter_says() {
    let of = |is_a: fn(usize) -> bool, a: bool| -> Vec<f64> {
        (0..2 * CALLS).filter(|&i| is_a(i) == a).map(|i| time(i, a)).collect()
    };
    let after_each_other = |i: usize| i < CALLS;
    let in_turns = |i: usize| i.is_multiple_of(2);
    let ratio = |is_a| median(&of(is_a, true)) / median(&of(is_a, false));
    assert!(ratio(after_each_other) < 0.95);
    assert!((ratio(in_turns) - 1.1).abs() < 0.06);
}

#[test]
fn how_much_noise_a_median_takes() {
    // Interruptions are independent, and a pair is disturbed if one of its calls is.
    let key = Key::new(3, 0);
    let ratio = |p: f64| {
        let time = |program: f64, i: u64| program + if key.happens(i, p) { 0.6 } else { 0.0 };
        let pairs: Vec<f64> = (0..1000).map(|i| time(1.1, 2 * i) / time(1.0, 2 * i + 1)).collect();
        median(&pairs)
    };
    assert!((ratio(0.1) - 1.1).abs() < 1e-9 && (ratio(0.25) - 1.1).abs() < 1e-9);
    // Even at half of all calls the median is right: disturbances of A and of B cancel.
    assert!((ratio(0.5) - 1.1).abs() < 0.1);
    // If only A is disturbed, half of the pairs is too much.
    let only_a = |p: f64| {
        let pairs: Vec<f64> =
            (0..1000).map(|i| 1.1 + if key.happens(i, p) { 0.6 } else { 0.0 }).collect();
        median(&pairs)
    };
    assert!((only_a(0.4) - 1.1).abs() < 1e-9 && only_a(0.6) > 1.6);
}

#[test]
fn a_steady_drift() {
    // Each call takes 1 % longer than the one before. Both programs are equal.
    let machine = |call: usize| 1.01f64.powi(call as i32);
    let ratio = |order: [usize; 4]| {
        // order[i] is the program of call i of four: 0 is A.
        let mut times = [1.0; 2];
        for (call, program) in order.into_iter().enumerate() {
            times[program] *= machine(call);
        }
        (times[0] / times[1]).sqrt() // geometric mean of two calls each
    };
    assert!((ratio([0, 1, 0, 1]) - 1.0 / 1.01).abs() < 1e-12); // A seems 1 % faster
    assert!((ratio([0, 1, 1, 0]) - 1.0).abs() < 1e-12);
}

/// The probability of at least `k` heads in `n` throws.
fn luck(n: u32, k: u32) -> f64 {
    let choose = |k: u32| (0..k).fold(1.0, |c, i| c * f64::from(n - i) / f64::from(i + 1));
    (k..=n).map(choose).sum::<f64>() / 2f64.powi(n as i32)
}

#[test]
fn pairs_that_are_needed() {
    let wins = |n: u32| (0.6 * f64::from(n)).round() as u32;
    let needed = (10..1000).step_by(10).find(|&n| luck(n, wins(n)) < 0.01).unwrap();
    assert!((120..160).contains(&needed), "{needed}");
}

#[test]
fn bootstrap_interval() {
    let key = Key::new(5, 0);
    // 60 ratios around 1.1 with noise of 10 %.
    let ratios: Vec<f64> = (0..60).map(|i| 1.05 + 0.1 * key.uniform(i)).collect();
    let samples = Key::new(5, 1);
    let resampled = |n: u64| {
        let pick = |i: u64| ratios[(samples.uniform(60 * n + i) * 60.0) as usize];
        median(&(0..60).map(pick).collect::<Vec<f64>>())
    };
    let mut medians: Vec<f64> = (0..2000).map(resampled).collect();
    medians.sort_by(f64::total_cmp);
    let (low, high) = (medians[50], medians[1949]);
    assert!(low < median(&ratios) && median(&ratios) < high);
    assert!(1.0 < low && high - low < 0.05); // surely slower, and by about 10 %
}

#[test]
fn minima_of_more_calls() {
    let key = Key::new(6, 0);
    let minimum =
        |n: u64| (0..n).map(|i| 1.0 + key.uniform(i).sqrt()).fold(f64::INFINITY, f64::min);
    assert!(minimum(1000) < minimum(100) && minimum(100) < minimum(10));
}
