//! Causal attention does not depend on later tokens.

use crate::common::variants::{CAUSAL, LINEAR, MASKED};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::{CausalSelfAttention, GptConfig, Layer};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// Changing a token does not change one bit of the outputs before it, and gradients of outputs by later
/// inputs are exactly 0: the Jacobian is block lower triangular.
pub fn causality(t: &mut Table) {
    let rng = || Rng::new(1);
    let p = || Projections::new(HeadSizes::new(8, 4).key_heads(2), &mut rng());
    let by_spec = MASKED.into_iter().map(|variant| (variant, Spec::new().causal()));
    let always = CAUSAL.into_iter().chain(LINEAR).map(|variant| (variant, Spec::new()));
    for ((name, run), spec) in by_spec.chain(always) {
        independent(t, name, &|x| run(p(), x, spec.clone(), &mut eval()));
    }
    let config = GptConfig { width: 8, ..config() };
    let gpt = CausalSelfAttention::new(&config, &mut rng());
    independent(t, "nanoGPT's", &|x| gpt.forward(x, &mut eval()));
    let t5 = T5Attention::decoder(8, 2, &mut rng());
    independent(t, "T5", &|x| t5.forward(x, Spec::new(), &mut eval()));
    let s = SelfAttention::new(8, 3, 8, &mut rng());
    independent(t, "self-attention", &|x| s.forward(x, Mask::causal(), &mut eval()));
    let m = mha(8, 2);
    independent(t, "multi-head", &|x| m.forward(x, x, x, Mask::causal(), &mut eval()));
    let w = MultiHeadWrapper::new(2, 8, 4, 4, &mut rng());
    independent(t, "wrapper", &|x| w.forward(x, Mask::causal(), &mut eval()));
    let sizes =
        MlaSizes { width: 8, heads: 2, query_latent: None, latent: 3, nope: 2, rope: 2, value: 3 };
    for form in [MlaForm::Naive, MlaForm::Absorbed] {
        let mut m = MlaAttention::new(sizes, &mut rng());
        m.form = form;
        let run = |x: &Var<f64>| m.forward(x, Spec::new().causal(), &mut eval());
        independent(t, &format!("MLA, {form:?}"), &run);
    }
}

/// Checks a short sequence at every token, and one of several tiles at their boundaries.
fn independent(t: &mut Table, name: &str, run: &dyn Fn(&Var<f64>) -> Var<f64>) {
    let statement = format!("causal: outputs before t do not depend on t, {name}");
    independent_at(t, &statement, run, 7, &[0, 1, 2, 3, 4, 5, 6]);
    independent_at(t, &statement, run, 140, &[1, 31, 63, 64, 65, 128, 139]);
}

fn independent_at(
    t: &mut Table,
    statement: &str,
    run: &dyn Fn(&Var<f64>) -> Var<f64>,
    length: usize,
    places: &[usize],
) {
    let x = randn(&[2, length, 8], 1);
    let y = run(&Var::constant(x.clone())).into_value();
    for &at in places {
        // The gradient of all outputs before `at` by all inputs from `at` on.
        let leaf = Var::leaf(x.clone());
        let g = run(&leaf).narrow(1, 0, at).sum(..).backward();
        let late = g.get(&leaf).expect("a gradient").narrow(1, at, length - at);
        let late = Worst::between(&late, &Tensor::zeros(late.shape()));
        for with in [5.0, 1e30, f64::NAN] {
            let mut changed = x.clone();
            for sequence in 0..2 {
                let row = 8 * (length * sequence + at);
                changed.make_mut()[row..row + 8].fill(with);
            }
            let changed = run(&Var::constant(changed)).into_value();
            let (before, after) = (y.narrow(1, 0, at), changed.narrow(1, 0, at));
            let same = bits(&before) == bits(&after);
            t.case(format!("t = {at}, {with}")).exact();
            t.push(statement, Worst::between(&after, &before), Some(late), same);
        }
    }
}
