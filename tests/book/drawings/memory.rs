//! Storage, strides and broadcasting.

use super::svg::{Anchor, BLUE, GREEN, INK, ORANGE, PURPLE, Svg};
use retrograd::prelude::*;

const ROWS: [&str; 3] = [BLUE, ORANGE, GREEN];
const CELL: f64 = 34.0;

/// The position in memory of an element.
fn position(x: &Tensor, index: &[usize]) -> usize {
    x.layout().position("figure", index).expect("within the shape")
}

fn cell(svg: &mut Svg, (x, y): (f64, f64), (color, opacity): (&str, f64), text: String) {
    svg.rect((x, y), (CELL, CELL), (color, opacity));
    svg.text((x + CELL / 2.0, y + CELL / 2.0 + 4.5), Anchor::Middle, text);
}

/// A tensor of three rows and its storage.
pub(crate) fn storage() -> String {
    let x = Tensor::<f32>::arange(10.0, 22.0, 1.0).reshape([3, 4]);
    let mut svg =
        Svg::new(700.0, 250.0, "A tensor of shape [3, 4] and the 12 elements of its storage");
    svg.text((20.0, 24.0), Anchor::Start, "the tensor: shape [3, 4], strides [4, 1], offset 0");
    for i in 0..3 {
        for j in 0..4 {
            let at = (20.0 + CELL * j as f64, 36.0 + CELL * i as f64);
            cell(&mut svg, at, (ROWS[i], 0.25), x.at(&[i, j]).to_string());
        }
    }
    let [s0, s1] = [0, 1].map(|axis| x.layout().strides()[axis]);
    let (i, j) = (1, 2);
    let at = position(&x, &[i, j]);
    let formula = format!("x[{i}, {j}] is at offset + {i} · {s0} + {j} · {s1} = {at}");
    svg.text((230.0, 80.0), Anchor::Start, formula);
    svg.text((230.0, 102.0), Anchor::Start, format!("its value is {}", x.as_slice()[at]));
    svg.text((20.0, 176.0), Anchor::Start, "the storage: 12 elements, each with its position");
    for (at, value) in x.as_slice().iter().enumerate() {
        let corner = (20.0 + 50.0 * at as f64, 188.0);
        svg.rect(corner, (50.0, CELL), (ROWS[at / 4], 0.25));
        svg.text((corner.0 + 25.0, 209.5), Anchor::Middle, value);
        svg.styled(((corner.0 + 25.0, 236.0), Anchor::Middle), (11.0, INK), at);
    }
    let (left, top) = (20.0 + 50.0 * at as f64, 188.0);
    svg.path(
        &[
            (left, top),
            (left + 50.0, top),
            (left + 50.0, top + CELL),
            (left, top + CELL),
            (left, top),
        ],
        (INK, 2.5),
        false,
    );
    svg.finish()
}

/// Views of one storage; the cells show positions in memory.
pub(crate) fn strides() -> String {
    let x = Tensor::<f32>::arange(0.0, 12.0, 1.0).reshape([3, 4]);
    let views = [
        ("x", x.clone()),
        ("x.t()", x.t()),
        ("x.slice(1, 1..3)", x.slice(1, 1..3)),
        ("x.slice_step(1, .., 2)", x.slice_step(1, .., 2)),
        ("x.flip(0)", x.flip(0)),
        ("x.select(0, 1).broadcast_to([3, 4])", x.select(0, 1).broadcast_to([3, 4])),
        ("x.unfold(1, 2, 1).select(0, 0)", x.unfold(1, 2, 1).select(0, 0)),
        ("x.diagonal(0, 1, 0).unsqueeze(0)", x.diagonal(0, 1, 0).unsqueeze(0)),
    ];
    let mut svg =
        Svg::new(760.0, 640.0, "Eight views of one storage: their strides, and the positions read");
    for (n, (name, view)) in views.iter().enumerate() {
        let (left, top) = (20.0 + 370.0 * (n % 2) as f64, 22.0 + 160.0 * (n / 2) as f64);
        let layout = view.layout();
        svg.text((left, top), Anchor::Start, name);
        let what = format!(
            "shape {:?}, strides {:?}, offset {}",
            view.shape().to_vec(),
            layout.strides(),
            layout.offset()
        );
        svg.styled(((left, top + 17.0), Anchor::Start), (11.5, INK), what);
        let side = 28.0;
        for i in 0..view.size(0) {
            for j in 0..view.size(1) {
                let at = position(view, &[i, j]);
                assert_eq!(x.as_slice()[at], view.at(&[i, j]));
                let corner = (left + side * j as f64, top + 26.0 + side * i as f64);
                svg.rect(corner, (side, side), (ROWS[at / 4], 0.25));
                svg.text((corner.0 + side / 2.0, corner.1 + 18.5), Anchor::Middle, at);
            }
        }
    }
    svg.finish()
}

/// A column plus a row, and the sums that are the gradients.
pub(crate) fn broadcasting() -> String {
    let x = Var::leaf(Tensor::from([[10.0f32], [20.0], [30.0]]));
    let y = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0, 4.0]));
    let sum = &x + &y;
    let g = Tensor::from_fn([3, 4], |at| ((at[0] + 2 * at[1]) % 4) as f32);
    let grads = sum.backward_with(&g);
    let (dx, dy) = (grads.get(&x).expect("a leaf"), grads.get(&y).expect("a leaf"));
    let mut svg = Svg::new(
        760.0,
        400.0,
        "Broadcasting a column and a row, and the sums of the backward pass",
    );
    let mut grid =
        |left: f64, top: f64, x: &Tensor, color: &str, is_real: &dyn Fn(usize, usize) -> bool| {
            for i in 0..x.size(0) {
                for j in 0..x.size(1) {
                    let opacity = if is_real(i, j) { 0.35 } else { 0.08 };
                    let at = (left + CELL * j as f64, top + CELL * i as f64);
                    cell(&mut svg, at, (color, opacity), x.at(&[i, j]).to_string());
                }
            }
        };
    let (column, row) = (x.value().broadcast_to([3, 4]), y.value().broadcast_to([3, 4]));
    grid(20.0, 50.0, &column, BLUE, &|_, j| j == 0);
    grid(220.0, 50.0, &row, ORANGE, &|i, _| i == 0);
    grid(420.0, 50.0, sum.value(), GREEN, &|_, _| true);
    grid(20.0, 240.0, &g, PURPLE, &|_, _| true);
    grid(260.0, 240.0, dx, BLUE, &|_, _| true);
    grid(420.0, 240.0, &dy.unsqueeze(0), ORANGE, &|_, _| true);
    svg.text((188.0, 106.0), Anchor::Middle, "+");
    svg.text((388.0, 106.0), Anchor::Middle, "=");
    let strides = |x: &Tensor| format!("{:?}", x.layout().strides());
    let title = |svg: &mut Svg, x: f64, y: f64, text: String| svg.text((x, y), Anchor::Start, text);
    title(&mut svg, 20.0, 24.0, "x: shape [3, 1]".into());
    title(&mut svg, 20.0, 42.0, format!("strides {} in the sum", strides(&column)));
    title(&mut svg, 220.0, 24.0, "y: shape [4]".into());
    title(&mut svg, 220.0, 42.0, format!("strides {} in the sum", strides(&row)));
    title(&mut svg, 420.0, 42.0, "x + y: shape [3, 4]".into());
    title(&mut svg, 20.0, 214.0, "the gradient g of x + y,".into());
    title(&mut svg, 20.0, 231.0, "shape [3, 4]".into());
    title(&mut svg, 240.0, 214.0, "of x: sums of rows".into());
    title(&mut svg, 240.0, 231.0, "shape [3, 1]".into());
    title(&mut svg, 420.0, 214.0, "of y: sums of columns".into());
    title(&mut svg, 420.0, 231.0, "shape [4]".into());
    svg.text((590.0, 80.0), Anchor::Start, "faint cells are reads");
    svg.text((590.0, 98.0), Anchor::Start, "of the same element,");
    svg.text((590.0, 116.0), Anchor::Start, "by a stride of 0");
    svg.finish()
}
