//! Graphs with values and gradients.

use super::svg::{Anchor, BLUE, GREEN, INK, ORANGE, Svg};
use crate::scalar::{Recursion, Recursive, diamonds};
use retrograd::prelude::*;

/// `y = (a b + c)²` with its values, the partial derivatives of each step, and the gradients.
pub(crate) fn chain() -> String {
    let leaf = |x: f64| Var::leaf(Tensor::scalar(x));
    let (a, b, c) = (leaf(2.0), leaf(3.0), leaf(-4.0));
    let u = &a * &b;
    let v = &u + &c;
    let y = v.square();
    let grads = Backprop::from(&y).keep(&u).keep(&v).keep(&y).run();
    let places = [
        ("a", &a, (70.0, 50.0)),
        ("b", &b, (70.0, 150.0)),
        ("u = a · b", &u, (270.0, 100.0)),
        ("c", &c, (270.0, 210.0)),
        ("v = u + c", &v, (470.0, 150.0)),
        ("y = v²", &y, (670.0, 150.0)),
    ];
    let mut svg = Svg::new(
        760.0,
        260.0,
        "The graph of (a b + c)² with values, partial derivatives and gradients",
    );
    let slopes = [
        (0, 2, format!("∂u/∂a = b = {}", b.item()), (170.0, 50.0)),
        (1, 2, format!("∂u/∂b = a = {}", a.item()), (170.0, 150.0)),
        (2, 4, "∂v/∂u = 1".into(), (390.0, 104.0)),
        (3, 4, "∂v/∂c = 1".into(), (400.0, 208.0)),
        (4, 5, format!("∂y/∂v = 2v = {}", 2.0 * v.item()), (570.0, 138.0)),
    ];
    for (from, to, label, at) in slopes {
        let (start, end) = (places[from].2, places[to].2);
        let (dx, dy) = (end.0 - start.0, end.1 - start.1);
        // From the right edge of a box to the left edge of another.
        let (start, end) = ((start.0 + 55.0, start.1 + 0.2 * dy), (end.0 - 56.0, end.1 - 0.2 * dy));
        assert!(dx > 0.0);
        svg.arrow(start, end, (INK, 1.3));
        svg.styled((at, Anchor::Middle), (11.5, INK), label);
    }
    for (name, var, at) in places {
        let color = if var.node().is_none() { ORANGE } else { BLUE };
        let grad = grads.get(var).expect("kept").item();
        let lines = [name.to_string(), format!("value {}", var.item()), format!("gradient {grad}")];
        svg.node(at, (110.0, 56.0), color, &lines);
    }
    svg.finish()
}

/// The diamond `y = 2 x² + 3 x²` in two orders.
pub(crate) fn diamond() -> String {
    let all = diamonds(3.0, 1);
    let y = &all[4].1;
    let (wrong, right) = (Recursive::pass(y, Recursion::FirstArrival), y.gradients::<f64>());
    let orders = ["y c b x d", "y d c b x"];
    let names = ["x", "b = x²", "c = 2b", "d = 3b", "y = c + d"];
    let mut svg =
        Svg::new(760.0, 410.0, "Gradients of a diamond in two orders: 12 is wrong, 30 is right");
    for (panel, title) in [(0, "recursion, on at the first arrival"), (1, "descending ids")] {
        let left = 380.0 * f64::from(panel);
        svg.styled(((left + 190.0, 22.0), Anchor::Middle), (14.5, INK), title);
        let at = |i: usize| {
            let (x, y) =
                [(190.0, 350.0), (190.0, 260.0), (90.0, 165.0), (290.0, 165.0), (190.0, 70.0)][i];
            (left + x, y)
        };
        for (from, to) in [(4, 2), (4, 3), (2, 1), (3, 1), (1, 0)] {
            let is_lost = panel == 0 && from == 3;
            let ((x0, y0), (x1, y1)) = (at(from), at(to));
            let points = [(x0 + 0.25 * (x1 - x0), y0 + 28.0), (x1 - 0.25 * (x1 - x0), y1 - 28.0)];
            let color = if is_lost { ORANGE } else { INK };
            svg.arrow(points[0], points[1], (color, 1.4));
        }
        let order = orders[panel as usize].split(' ').collect::<Vec<_>>();
        for i in 0..5 {
            let value = &all[i].1;
            let grad = if panel == 0 { wrong.gradient(value) } else { right.get(value) };
            let visit = order.iter().position(|n| names[i].starts_with(n)).expect("visited") + 1;
            let is_wrong = grad != right.get(value);
            let lines =
                [names[i].to_string(), format!("gradient {grad}"), format!("visit {visit}")];
            svg.node(at(i), (120.0, 56.0), if is_wrong { ORANGE } else { GREEN }, &lines);
        }
        if panel == 0 {
            let late = "arrives after b was processed:";
            svg.styled(((left + 252.0, 216.0), Anchor::Start), (11.5, INK), late);
            svg.styled(((left + 252.0, 232.0), Anchor::Start), (11.5, INK), "does not reach x");
        }
    }
    svg.finish()
}
