//! Solutions of the exercises of `book::rules`.

use retrograd::autograd::{InputGrads, Op};
use retrograd::prelude::*;
use retrograd_support::panics::assert_panics;
use std::sync::Arc;

static PRODUCT: Op = Op::new("product", &["a", "b"]);
static CUBE: Op = Op::new("cube", &["x"]);

#[test]
fn a_product_saves_what_it_needs() {
    let product = |a: &Var<f64>, b: &Var<f64>, saved: [bool; 2]| {
        Var::from_op(&PRODUCT, a.value() * b.value(), [a, b], |[a, b]| {
            let (a, b) = (a.save_if(b.needs_grad()), b.save_if(a.needs_grad()));
            assert_eq!([a.get().is_some(), b.get().is_some()], saved);
            move |cx, g| InputGrads::of(&a, || g * &cx.input(&b)).and(&b, || g * &cx.input(&a))
        })
    };
    let (x, c) = (Var::leaf(Tensor::scalar(3.0)), Var::constant(Tensor::scalar(5.0)));
    let grad_of = |y: Var<f64>| y.backward().get(&x).unwrap().item();
    assert_eq!(grad_of(product(&x, &c, [false, true])), 5.0); // only the constant
    assert_eq!(grad_of(product(&c, &x, [true, false])), 5.0);
    assert_eq!(grad_of(product(&x, &x, [true, true])), 6.0);
}

/// `x³`, whose rule captures a token, and sees whether another rule still has one.
fn cube(x: &Var<f64>, token: Arc<()>, is_gone: Option<std::sync::Weak<()>>) -> Var<f64> {
    Var::from_op(&CUBE, x.value().powf(3.0), [x], |[x]| {
        let x = x.save();
        move |cx, g| {
            let _captured = &token;
            assert!(is_gone.as_ref().is_none_or(|other| other.upgrade().is_none()));
            InputGrads::of(&x, || g * &cx.input(&x).square() * 3.0)
        }
    })
}

#[test]
fn rules_are_freed_in_turn() {
    let x = Var::leaf(Tensor::scalar(2.0));
    let last = Arc::new(());
    let inner = cube(&x, Arc::new(()), Some(Arc::downgrade(&last)));
    let y = cube(&inner, last, None);
    assert_eq!(y.backward().get(&x).unwrap().item(), 9.0 * 256.0);
}

#[test]
fn a_forgotten_input() {
    let x = Var::leaf(Tensor::scalar(3.0f64));
    let y = Var::from_op(&PRODUCT, x.value().square(), [&x, &x], |[a, b]| {
        let (a, b) = (a.slot(), b.save());
        move |cx, g| InputGrads::of(&a, || g * &cx.input(&b))
    });
    let error = "the rule of `product` gives no gradient to input 1, which is tracked";
    assert_panics(error, || y.backward());
}

#[test]
fn writes_do_not_reach_rules() {
    let mut value = Tensor::from([1.0, 2.0]);
    let x = Var::leaf(value.clone());
    let y = cube(&x, Arc::new(()), None);
    value.make_mut().fill(100.0); // copies the storage first, as the rule has a clone
    assert_eq!(y.sum(..).backward().get(&x).unwrap().to_vec(), [3.0, 12.0]);
}
