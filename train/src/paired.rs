//! Whether paired differences decide a comparison.
//!
//! The rule is a Bayes factor of the one-sample t statistic (Rouder et al. 2009, with a normal prior of the
//! standardised effect and the right Haar prior of the scale), with `k = 1 + nG` after `n` pairs:
//!
//! `B = k^(-1/2) ((1 + t²/(n-1)) / (1 + t²/((n-1)k)))^(n/2)`
//!
//! Without a difference, and with normal noise, it is a martingale with mean 1 as `n` grows (Hendriksen et al. 2021).
//! So it ever reaches 20 in at most 5 % of comparisons, no matter how often one looks (Ville 1939). The interval has
//! all means with a Bayes factor below 20, and is valid at every `n`, too.

use serde::Serialize;

/// The variance of the prior of the mean difference, by that of the noise: large effects are decided after 4 pairs.
const G: f64 = 4.0;
/// The Bayes factor that decides: 1 / 5 %.
const DECIDES: f64 = 20.0;
/// The most pairs that a prediction looks ahead.
const AHEAD: usize = 100;

/// Differences of pairs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Paired {
    pub pairs: usize,
    pub mean: f64,
    /// The standard deviation of a difference.
    pub deviation: f64,
    pub bayes_factor: f64,
    /// Whether the difference is decided.
    pub decided: bool,
    /// The ends of the 95 % interval; `None` if it is not bounded yet.
    pub interval: Option<(f64, f64)>,
    /// The pairs that are still needed, if mean and deviation remain; `None` for more than a hundred.
    pub more: Option<usize>,
}

impl Paired {
    pub fn of(differences: &[f64]) -> Paired {
        let n = differences.len();
        let mean = differences.iter().sum::<f64>() / (n as f64).max(1.0);
        let squares: f64 = differences.iter().map(|x| (x - mean) * (x - mean)).sum();
        let deviation = (squares / (n as f64 - 1.0).max(1.0)).sqrt();
        let factor = |n| bayes_factor(n, mean, deviation);
        let more = (0..=AHEAD).find(|more| n > 1 && factor(n + more) >= DECIDES);
        Paired {
            pairs: n,
            mean,
            deviation,
            bayes_factor: factor(n),
            decided: more == Some(0),
            interval: half_width(n, deviation).map(|half| (mean - half, mean + half)),
            more,
        }
    }

    /// The result as a sentence about a recipe, whose difference to another one this is: the lower, the better.
    pub fn verdict(&self, name: &str) -> String {
        let Paired { pairs, mean, deviation, more, .. } = *self;
        match (self.decided, more) {
            (true, _) if mean < 0.0 => format!("{name} is better, decided after {pairs} pairs"),
            (true, _) => format!("{name} is worse, decided after {pairs} pairs"),
            (false, _) if mean == 0.0 && deviation == 0.0 => {
                "Not decided: all differences are 0".into()
            }
            (false, _) if pairs < 2 => "Not decided: one pair has no standard deviation".into(),
            (false, Some(more)) => {
                format!(
                    "Not decided: at this mean and deviation, about {more} more pairs would decide"
                )
            }
            (false, None) => format!("Not decided: more than {AHEAD} more pairs would be needed"),
        }
    }
}

/// The Bayes factor of a mean and a deviation after `n` pairs.
fn bayes_factor(n: usize, mean: f64, deviation: f64) -> f64 {
    // Equal runs differ in nothing.
    if n < 2 || mean == 0.0 && deviation == 0.0 {
        return 1.0;
    }
    let (n, k) = (n as f64, 1.0 + n as f64 * G);
    let x = n * (mean / deviation).powi(2) / (n - 1.0);
    let ratio = if x.is_finite() { (1.0 + x) / (1.0 + x / k) } else { k };
    ratio.powf(n / 2.0) / k.sqrt()
}

/// The half of the interval: the distance of the mean at which the Bayes factor is 20.
fn half_width(n: usize, deviation: f64) -> Option<f64> {
    let (n, k) = (n as f64, 1.0 + n as f64 * G);
    let ratio = (DECIDES * k.sqrt()).powf(2.0 / n);
    let x = (ratio - 1.0) / (1.0 - ratio / k);
    (n >= 2.0 && ratio < k).then(|| deviation * (x * (n - 1.0) / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use retrograd::prelude::*;

    /// The share of comparisons of up to 20 pairs that are decided, and the mean number of pairs.
    fn decided(noise: impl Fn(&mut Rng) -> Tensor<f64>, mean: f64) -> (f64, f64) {
        let (mut rng, mut count, mut pairs) = (Rng::new(1), 0, 0);
        const ALL: usize = 2000;
        for _ in 0..ALL {
            let all: Vec<f64> = noise(&mut rng).to_vec().into_iter().map(|x| x + mean).collect();
            let n = (2..=20).find(|&n| Paired::of(&all[..n]).decided);
            count += usize::from(n.is_some());
            pairs += n.unwrap_or(20);
        }
        (count as f64 / ALL as f64, pairs as f64 / ALL as f64)
    }

    #[test]
    fn at_most_one_comparison_in_twenty_decides_about_nothing() {
        let normal = |rng: &mut Rng| Tensor::<f64>::randn([20], rng);
        // Student's t with 3 degrees of freedom.
        let heavy = |rng: &mut Rng| {
            let squares = Tensor::<f64>::randn([20, 3], rng).square().mean(1).sqrt();
            &Tensor::<f64>::randn([20], rng) / &squares
        };
        let (none, _) = decided(normal, 0.0);
        let (heavy, _) = decided(heavy, 0.0);
        assert!(none > 0.0 && none < 0.05 && heavy < 0.05, "{none} {heavy}");
        let (all, pairs) = decided(normal, 8.0);
        assert!(all == 1.0 && pairs < 5.0, "{all} {pairs}");
        assert!(!Paired::of(&[0.0; 20]).decided && Paired::of(&[0.5; 4]).decided);
    }

    #[test]
    fn the_interval_ends_where_the_bayes_factor_decides() {
        let differences = [1.0, 3.0, 2.0, 2.5, 1.5, 2.25];
        let paired = Paired::of(&differences);
        let (low, high) = paired.interval.unwrap();
        for end in [low, high] {
            let factor = bayes_factor(6, paired.mean - end, paired.deviation);
            assert!((factor - DECIDES).abs() < 1e-9, "{factor}");
        }
        assert!(paired.decided && low > 0.0);
        let few = Paired::of(&differences[..2]);
        assert!(few.interval.is_none() && few.more.is_some_and(|more| more > 0));
    }
}
