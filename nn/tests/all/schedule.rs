//! Learning rates by step, and schedules that are rejected.

use retrograd_nn::schedule::Schedule;
use std::f64::consts::PI;

#[test]
fn shapes() {
    let s = Schedule::Linear { lr: 1.0, min_lr: 0.5, warmup: 0, steps: 10 };
    assert_eq!((s.lr(0), s.lr(5), s.lr(10), s.lr(99)), (1.0, 0.75, 0.5, 0.5));
    let s = Schedule::WarmupStableDecay { lr: 1.0, min_lr: 0.0, warmup: 1, decay: 4, steps: 10 };
    assert_eq!([0, 1, 6, 8, 10, 99].map(|step| s.lr(step)), [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]);
    let s = Schedule::WarmupStableDecay { lr: 1.0, min_lr: 0.0, warmup: 4, decay: 99, steps: 8 };
    assert_eq!([4, 6, 8].map(|step| s.lr(step)), [1.0, 0.5, 0.0]);
    let s = Schedule::Step { lr: 1.0, every: 10, factor: 0.5 };
    assert_eq!((s.lr(9), s.lr(10), s.lr(25)), (1.0, 0.5, 0.25));
    let s = Schedule::Exponential { lr: 2.0, factor: 0.5 };
    assert_eq!([0, 1, 3].map(|step| s.lr(step)), [2.0, 1.0, 0.25]);
    let s = Schedule::InverseSqrt { lr: 1.0, warmup: 4 };
    assert_eq!([0, 3, 4, 16, 64].map(|step| s.lr(step)), [0.2, 0.8, 1.0, 0.5, 0.25]);
    // A warm-up longer than the run.
    let s = Schedule::WarmupCosine { lr: 1.0, min_lr: 0.0, warmup: 10, steps: 5 };
    assert!(s.lr(7) < 1.0 && s.lr(10) == 0.0);
}

#[test]
fn cosines_restart_with_longer_periods() {
    let s = Schedule::CosineRestarts { lr: 3.0, min_lr: 1.0, period: 2, growth: 3 };
    // Periods of 2, 6 and 18 steps; as PyTorch's CosineAnnealingWarmRestarts(T_0=2, T_mult=3).
    let close = |step, want: f64| assert!((s.lr(step) - want).abs() < 1e-12, "{step}");
    for (step, want) in [(0, 3.0), (1, 2.0), (2, 3.0), (5, 2.0), (8, 3.0), (17, 2.0), (26, 3.0)] {
        close(step, want);
    }
    close(3, 2.0 + (PI / 6.0).cos());
    let s = Schedule::CosineRestarts { lr: 1.0, min_lr: 0.0, period: 5, growth: 1 };
    assert_eq!((s.lr(0), s.lr(5), s.lr(5_000_000)), (1.0, 1.0, 1.0));
    assert!(s.lr(u64::MAX).is_finite());
    let fast = Schedule::CosineRestarts { lr: 1.0, min_lr: 0.0, period: 1, growth: u64::MAX };
    assert!(fast.lr(u64::MAX).is_finite());
}

#[test]
fn sequences_count_each_schedule_from_0() {
    let ramp = Schedule::Linear { lr: 1.0, min_lr: 0.0, warmup: 0, steps: 4 };
    let s = Schedule::Sequence(vec![
        (2, Schedule::Constant { lr: 5.0 }),
        (0, Schedule::Constant { lr: 7.0 }),
        (4, ramp.clone()),
        (1, Schedule::Sequence(vec![(1, Schedule::Constant { lr: 9.0 })])),
    ]);
    assert_eq!([0, 1, 2, 4, 5, 6, 99].map(|step| s.lr(step)), [5.0, 5.0, 1.0, 0.5, 0.25, 9.0, 9.0]);
    assert!(s.check().is_ok());
    let wrong = Schedule::Sequence(vec![(1, ramp), (1, Schedule::Constant { lr: -1.0 })]);
    assert!(wrong.check().unwrap_err().to_string().contains("-1"));
    let empty = Schedule::Sequence(Vec::new());
    assert!(empty.check().is_err() && empty.lr(3) == 0.0);
    for (s, want) in [
        (Schedule::InverseSqrt { lr: 1.0, warmup: 0 }, "warm-up"),
        (Schedule::CosineRestarts { lr: 1.0, min_lr: 0.0, period: 0, growth: 1 }, "first period"),
        (Schedule::CosineRestarts { lr: 1.0, min_lr: 0.0, period: 1, growth: 0 }, "growth"),
        (Schedule::Exponential { lr: 1.0, factor: f64::NAN }, "factor"),
    ] {
        let text = s.check().unwrap_err().to_string();
        assert!(text.contains(want), "{text}");
        assert!(s.lr(3).is_finite() || matches!(s, Schedule::Exponential { .. }));
    }
}

#[test]
fn rates_must_be_rates() {
    assert!(Schedule::Constant { lr: 0.0 }.check().is_ok());
    for lr in [f64::NAN, f64::INFINITY, -1.0] {
        let e = Schedule::Constant { lr }.check().unwrap_err().to_string();
        assert!(e.contains("learning rate") && e.contains(&lr.to_string()), "{e}");
    }
}

#[test]
fn schedules_equal_their_formulas() {
    let cosine = Schedule::WarmupCosine { lr: 1e-3, min_lr: 1e-4, warmup: 100, steps: 2000 };
    // nanoGPT's get_lr, by hand.
    let nano = |it: f64| match it {
        it if it < 100.0 => 1e-3 * (it + 1.0) / 101.0,
        it if it > 2000.0 => 1e-4,
        it => {
            let ratio = (it - 100.0) / 1900.0;
            1e-4 + 0.5 * (1.0 + (PI * ratio).cos()) * 9e-4
        }
    };
    for step in (0..2500).chain([u64::MAX]) {
        let (got, want) = (cosine.lr(step), nano(step as f64));
        assert!((got - want).abs() < 1e-18, "step {step}: {got} {want}");
    }
    let all = [
        cosine,
        Schedule::Constant { lr: 0.5 },
        Schedule::Linear { lr: 1.0, min_lr: 0.0, warmup: u64::MAX, steps: 0 },
        Schedule::WarmupCosine { lr: 1.0, min_lr: 0.0, warmup: 0, steps: 0 },
        Schedule::Step { lr: 1.0, every: 1, factor: 0.5 },
    ];
    for schedule in all {
        schedule.check().unwrap();
        for step in [0, 1, 99, 100, 101, 5000, u64::MAX - 1, u64::MAX] {
            let lr = schedule.lr(step);
            assert!((0.0..=1.0).contains(&lr), "{schedule:?} at {step}: {lr}");
        }
    }
    let error = |s: Schedule| s.check().unwrap_err().to_string();
    let text = error(Schedule::Step { lr: 1.0, every: 0, factor: 0.5 });
    assert_eq!(text, "steps between changes must be at least 1, got 0");
    let text = error(Schedule::Step { lr: 1.0, every: 1, factor: f64::NAN });
    assert_eq!(text, "the factor must be finite and >= 0, got NaN");
    let text = error(Schedule::Linear { lr: 1.0, min_lr: -1.0, warmup: 0, steps: 9 });
    assert_eq!(text, "the final learning rate must be finite and >= 0, got -1");
}
