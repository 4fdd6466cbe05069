//! `examples/scalar.rs` against the library: derivatives of orders 1 to 3.

use crate::scalar::Value;
use retrograd::prelude::*;

/// Both engines have these functions under the same names.
macro_rules! expression {
    ($x:expr, $y:expr, $number:expr, $pow:ident) => {{
        let (x, y) = ($x, $y);
        let u = &(x * y).tanh() + &(x / y).exp();
        let v = &u.$pow(1.5) - &(y - x).relu();
        &(&v * &$number(0.5)) + &(&u * x).ln()
    }};
}

#[test]
fn derivatives_of_any_order_are_those_of_the_library() {
    let (a, b) = (0.7, 1.9);
    let (x, y) = (Value::new(a), Value::new(b));
    let mut scalar = expression!(&x, &y, Value::new, powf);
    let (p, q) = (Var::leaf(Tensor::scalar(a)), Var::leaf(Tensor::scalar(b)));
    let mut tensor = expression!(&p, &q, Var::scalar, powf);
    assert!((scalar.data() - tensor.item()).abs() < 1e-14);
    for order in 1..=3 {
        // By x and y in turns: ∂/∂x, ∂²/∂x∂y, ∂³/∂x²∂y.
        let by_y = order == 2;
        let grads = scalar.gradients::<Value>();
        scalar = grads.get(if by_y { &y } else { &x });
        tensor = grad(&[(&tensor, None)], &[if by_y { &q } else { &p }])[0].clone().unwrap();
        let difference = (scalar.data() - tensor.item()).abs();
        assert!(difference < 1e-12 * tensor.item().abs().max(1.0), "order {order}: {difference}");
    }
}

#[test]
fn a_plain_pass_and_a_recorded_one_give_the_same_numbers() {
    let (x, y) = (Value::new(-0.4), Value::new(1.2));
    let z = &(&x * &y).exp() / &(&x - &y);
    let (numbers, values) = (z.gradients::<f64>(), z.gradients::<Value>());
    for v in [&x, &y, &z] {
        assert_eq!(numbers.get(v), values.get(v).data());
    }
    // What the result does not depend on has the gradient 0.
    assert_eq!(numbers.get(&Value::new(1.0)), 0.0);
}
