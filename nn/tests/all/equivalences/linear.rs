//! The forms of linear attention.

use super::{Vars, around, by};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Layer;
use retrograd_nn::attention::*;

pub fn linear(t: &mut Table) {
    let x = [randn(&[2, 3, 11, 4], 1), randn(&[2, 3, 11, 4], 2), randn(&[2, 3, 11, 5], 3)];
    let run = |reach, form| move |x: Vars<'_>| linear_attention(&x[0], &x[1], &x[2], reach, form);
    for reach in [Reach::Causal, Reach::Full] {
        let forms = [1, 3, 4, 11, 20].map(LinearForm::Chunked);
        for form in [LinearForm::Recurrent].into_iter().chain(forms) {
            t.same(
                &format!("linear, {reach:?}, {form:?} = Quadratic"),
                &x,
                run(reach, form),
                run(reach, LinearForm::Quadratic),
            );
        }
    }
    let (p, x) = around();
    let m = LinearAttention::new(p, Reach::Causal, LinearForm::Quadratic);
    t.same(
        "linear, decoded by a state, 1 + 4 + 4 tokens = at once",
        &x,
        |x| {
            let mut state = None;
            let parts = x[0].split(1, &[1, 4, 4]);
            let parts: Vec<_> = parts.iter().map(|x| m.step(x, &mut state, &mut eval())).collect();
            Var::cat(&parts.iter().collect::<Vec<_>>(), 1)
        },
        |x| m.forward(&x[0], &mut eval()),
    );
    let (p, x) = around();
    let causal = by(&p, Spec::new().causal().normalizer(Normalizer::Linear));
    t.same("linear normalizer = linear attention", &x, causal, |x| m.forward(&x[0], &mut eval()));
    let spec = Spec::from(Mask::lengths(&[4])).normalizer(Normalizer::Linear);
    let q = [randn(&[2, 3, 11, 4], 1), randn(&[2, 3, 9, 4], 2), randn(&[2, 3, 9, 5], 3)];
    t.same(
        "linear normalizer, padded = truncated",
        &q,
        |x| attend(&x[0], &x[1], &x[2], &spec),
        |x| {
            let (k, v) = (x[1].narrow(2, 0, 4), x[2].narrow(2, 0, 4));
            linear_attention(&x[0], &k, &v, Reach::Full, LinearForm::Recurrent)
        },
    );
}
