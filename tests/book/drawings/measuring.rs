//! Measuring two programs one after the other, and in turns, on a machine that changes its speed.

use super::svg::{Anchor, BLUE, INK, ORANGE, Plot, Svg};
use retrograd::tensor::random::Key;

/// A name, and whether a call is one of A.
type Order = (&'static str, fn(usize) -> bool);

/// Calls of each program.
pub(crate) const CALLS: usize = 40;

/// A simulated time of call `i` of all: program B takes 1 ms and A 1.1 ms on a machine that is alone. The
/// machine becomes a quarter slower during the second half, and one call in eight is interrupted.
pub(crate) fn time(i: usize, is_a: bool) -> f64 {
    let key = Key::new(7, 0);
    let program = if is_a { 1.1 } else { 1.0 };
    let machine = if i >= CALLS { 1.25 } else { 1.0 };
    let noise = 0.02 * key.uniform(2 * i as u64);
    let interruption = if key.uniform(2 * i as u64 + 1) < 0.125 { 0.6 } else { 0.0 };
    machine * program + noise + interruption
}

pub(crate) fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

/// Times by call in two orders, and the ratios that follow from them.
pub(crate) fn turns() -> String {
    let mut svg =
        Svg::new(760.0, 560.0, "The same two programs measured one after the other, and in turns");
    let orders: [Order; 2] =
        [("all calls of A, then all of B", |i| i < CALLS), ("in turns: A B A B", |i| i % 2 == 0)];
    for (panel, (name, is_a)) in orders.into_iter().enumerate() {
        let times: Vec<f64> = (0..2 * CALLS).map(|i| time(i, is_a(i))).collect();
        let of = |a: bool| -> Vec<f64> {
            (0..2 * CALLS).filter(|&i| is_a(i) == a).map(|i| times[i]).collect()
        };
        let (a, b) = (of(true), of(false));
        let plot = Plot {
            at: (60.0, 40.0 + 280.0 * panel as f64),
            size: (460.0, 170.0),
            x: (0.0, 2.0 * CALLS as f64),
            y: (0.8, 2.2),
            log: false,
        };
        let xs: Vec<f64> = (0..=4).map(|i| 20.0 * f64::from(i)).collect();
        plot.axes(
            &mut svg,
            (&xs, "call"),
            (&[1.0, 1.5, 2.0], &format!("{name} (time in ms, simulated)")),
        );
        for (i, &time) in times.iter().enumerate() {
            let color = if is_a(i) { ORANGE } else { BLUE };
            svg.circle(plot.point(i as f64 + 0.5, time), 2.6, (color, 0.9));
        }
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let pairs: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
        let (x, y) = (545.0, plot.at.1 + 14.0);
        let mut lines = vec![
            "time of A / time of B".to_string(),
            "truth: 1.10".into(),
            format!("ratio of means: {:.2}", mean(&a) / mean(&b)),
            format!("ratio of medians: {:.2}", median(&a) / median(&b)),
        ];
        if panel == 1 {
            lines.push(format!("median of pairs: {:.2}", median(&pairs)));
        }
        for (i, line) in lines.into_iter().enumerate() {
            svg.styled(((x, y + 22.0 * i as f64), Anchor::Start), (13.0, INK), line);
        }
        for (i, (name, color)) in [("A", ORANGE), ("B", BLUE)].into_iter().enumerate() {
            let y = plot.at.1 + 140.0 + 20.0 * i as f64;
            svg.circle((x + 5.0, y), 4.0, (color, 0.9));
            svg.text((x + 16.0, y + 4.5), Anchor::Start, name);
        }
    }
    svg.finish()
}
