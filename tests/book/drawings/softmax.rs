//! Overflow of the log-sum-exp.

use super::svg::{Anchor, BLUE, INK, ORANGE, Plot, Svg};
use retrograd::prelude::*;

/// The log-sum-exp of `[c, c + 1, c + 2]`, minus `c`, in f32: from its definition and by the library.
pub(crate) fn overflow() -> String {
    let mut svg = Svg::new(700.0, 305.0, "Log-sum-exp by its definition overflows and underflows");
    let plot = Plot {
        at: (60.0, 40.0),
        size: (600.0, 200.0),
        x: (-120.0, 120.0),
        y: (0.0, 4.0),
        log: false,
    };
    let xs: Vec<f64> = (-4..=4).map(|i| 30.0 * f64::from(i)).collect();
    plot.axes(
        &mut svg,
        (&xs, "c"),
        (&[0.0, 1.0, 2.0, 3.0, 4.0], "logsumexp([c, c + 1, c + 2]) - c in f32"),
    );
    let (mut naive, mut safe) = (vec![], vec![]);
    for c in (-480..=480).map(|i| f64::from(i) / 4.0) {
        let x = Tensor::from([c as f32, c as f32 + 1.0, c as f32 + 2.0]);
        naive.push((c, f64::from(x.exp().sum(..).ln().item()) - c));
        safe.push((c, f64::from(x.logsumexp(..).item()) - c));
    }
    let is_finite = |points: &[(f64, f64)], from: &dyn Fn(usize) -> usize| {
        (0..points.len()).map(from).find(|&i| !points[i].1.is_finite()).map(|i| points[i].0)
    };
    let (n, half) = (naive.len(), naive.len() / 2);
    let above = is_finite(&naive[half..], &|i| i).expect("overflows");
    let below = is_finite(&naive[..half], &|i| half - 1 - i).expect("underflows");
    assert!(safe.len() == n && safe.iter().all(|p| p.1.is_finite()));
    for (from, to) in [(-120.0, below), (above, 120.0)] {
        let ((x0, y0), (x1, y1)) = (plot.point(from, 4.0), plot.point(to, 0.0));
        svg.area((x0, y0), (x1 - x0, y1 - y0), (ORANGE, 0.2));
    }
    plot.line(&mut svg, &naive, (ORANGE, 6.0));
    plot.line(&mut svg, &safe, (BLUE, 2.0));
    let label = |svg: &mut Svg, x: f64, y: f64, color: &str, text: String| {
        svg.styled((plot.point(x, y), Anchor::Middle), (12.5, color), text);
    };
    label(&mut svg, 0.0, 2.85, BLUE, "narrow line: max + ln Σ exp(x - max)".into());
    label(&mut svg, 0.0, 1.7, ORANGE, "wide line: ln Σ exp(x)".into());
    label(&mut svg, (above + 120.0) / 2.0, 0.4, INK, "∞".into());
    label(&mut svg, (below - 120.0) / 2.0, 0.4, INK, "-∞".into());
    let range =
        format!("shaded: ln Σ exp(x) is not finite, for c up to {below} and from {above} on");
    svg.text((60.0, 292.0), Anchor::Start, range);
    svg.finish()
}
