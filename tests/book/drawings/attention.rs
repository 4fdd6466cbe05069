//! Tiles of a mask, and the online softmax.

use super::svg::{Anchor, BLUE, GREEN, INK, ORANGE, Plot, Svg};
use retrograd::nn::attention::{Align, Mask};
use retrograd::prelude::*;

/// Queries and keys in the figure, and in a tile of it.
const LENGTH: usize = 32;
const TILE: usize = 4;

/// The tiles of causal attention within a window, in the order in which they are computed.
pub(crate) fn tiles() -> String {
    let mask = Mask::causal() & Mask::window(11, None);
    let keep = mask.tensor([1, 1, LENGTH, LENGTH], Align::TopLeft).select(0, 0).select(0, 0);
    let (side, left, top) = (10.0, 60.0, 40.0);
    let mut svg =
        Svg::new(700.0, 390.0, "Tiles of a causal mask with a window: empty, partial and full");
    for i in 0..LENGTH {
        for j in (0..LENGTH).filter(|&j| keep.at(&[i, j])) {
            let at = (left + side * j as f64, top + side * i as f64);
            svg.area(at, (side, side), (BLUE, 0.35));
        }
    }
    let mut counts = [0; 3];
    for row in 0..LENGTH / TILE {
        let mut order = 0;
        for column in 0..LENGTH / TILE {
            let tile = keep.narrow(0, row * TILE, TILE).narrow(1, column * TILE, TILE);
            let visible = tile.to_vec().into_iter().filter(|&keep| keep).count();
            let class = usize::from(visible > 0) + usize::from(visible == TILE * TILE);
            counts[class] += 1;
            let whole = side * TILE as f64;
            let at = (left + whole * column as f64, top + whole * row as f64);
            svg.rect(at, (whole, whole), ([INK, ORANGE, GREEN][class], [0.0, 0.16, 0.16][class]));
            if class > 0 {
                order += 1;
                svg.text((at.0 + whole / 2.0, at.1 + whole / 2.0 + 5.0), Anchor::Middle, order);
            }
        }
    }
    let size = side * LENGTH as f64;
    svg.text((left + size / 2.0, top - 12.0), Anchor::Middle, format!("{LENGTH} keys"));
    svg.text((left - 8.0, top + size / 2.0), Anchor::End, "queries");
    let total: i32 = counts.iter().sum();
    let legend = [
        (INK, 0.0, format!("{} of {total} tiles are empty: skipped", counts[0])),
        (ORANGE, 0.16, format!("{} are partial: the mask is applied", counts[1])),
        (GREEN, 0.16, format!("{} are full: no mask", counts[2])),
    ];
    for (i, (color, opacity, text)) in legend.into_iter().enumerate() {
        let y = 80.0 + 30.0 * i as f64;
        svg.rect((410.0, y - 14.0), (18.0, 18.0), (color, opacity));
        svg.text((438.0, y), Anchor::Start, text);
    }
    svg.text((410.0, 190.0), Anchor::Start, "A number is the place of a tile");
    svg.text((410.0, 208.0), Anchor::Start, "in the order of its row of tiles.");
    svg.text((410.0, 236.0), Anchor::Start, "Blue pairs attend.");
    svg.finish()
}

/// The scores of one query, the running maximum and the factor at each tile.
pub(crate) fn online() -> String {
    let (count, tile) = (32, 4);
    let noise = Tensor::<f64>::randn([count], &mut Rng::new(4)).to_vec();
    // Larger scores for later keys, so that the maximum rises several times.
    let scores: Vec<f64> =
        noise.iter().zip(0..).map(|(x, j)| x - 2.0 + 0.1 * f64::from(j)).collect();
    let (mut max, mut sum) = (f64::NEG_INFINITY, 0.0);
    let mut steps = vec![];
    for tile in scores.chunks(tile) {
        let new = tile.iter().copied().fold(max, f64::max);
        let rescale = (max - new).exp();
        sum = rescale * sum + tile.iter().map(|s| (s - new).exp()).sum::<f64>();
        max = new;
        steps.push((max, rescale, sum));
    }
    let lse = Tensor::from_vec(scores.clone(), [count]).logsumexp(..).item();
    assert!((max + sum.ln() - lse).abs() < 1e-12);
    let mut svg =
        Svg::new(760.0, 370.0, "Online softmax: the running maximum over eight tiles of scores");
    let plot = Plot {
        at: (60.0, 40.0),
        size: (680.0, 200.0),
        x: (0.0, count as f64),
        y: (-4.0, 4.0),
        log: false,
    };
    plot.axes(&mut svg, (&[], ""), (&[-4.0, -2.0, 0.0, 2.0, 4.0], "scores of one query, by key"));
    for (j, &score) in scores.iter().enumerate() {
        let ((x0, y0), (x1, y1)) =
            (plot.point(j as f64 + 0.2, score), plot.point(j as f64 + 0.8, 0.0));
        svg.area((x0, y0.min(y1)), (x1 - x0, (y1 - y0).abs()), (BLUE, 0.6));
    }
    let row =
        |svg: &mut Svg, y: f64, name: &str| svg.styled(((54.0, y), Anchor::End), (12.0, INK), name);
    for (y, name) in [(262.0, "tile"), (284.0, "m"), (306.0, "factor"), (328.0, "ℓ")] {
        row(&mut svg, y, name);
    }
    for (t, (max, rescale, sum)) in steps.into_iter().enumerate() {
        let (from, to) = ((tile * t) as f64, (tile * (t + 1)) as f64);
        plot.line(&mut svg, &[(from, max), (to, max)], (ORANGE, 2.0));
        let x = plot.point((from + to) / 2.0, 0.0).0;
        svg.path(&[plot.point(to, -4.0), plot.point(to, 4.0)], (INK, 0.4), true);
        let color = if rescale < 1.0 { ORANGE } else { INK };
        svg.text((x, 262.0), Anchor::Middle, t + 1);
        svg.text((x, 284.0), Anchor::Middle, format!("{max:.2}"));
        svg.styled(((x, 306.0), Anchor::Middle), (13.0, color), format!("{rescale:.3}"));
        svg.text((x, 328.0), Anchor::Middle, format!("{sum:.2}"));
    }
    let end = format!("at the end m + ln ℓ = {:.4}, the log-sum-exp of all scores", max + sum.ln());
    svg.text((60.0, 356.0), Anchor::Start, end);
    svg.finish()
}
