//! What causal attention must not see.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Layer;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// Changing a token leaves the outputs before it bit for bit, whatever it is changed to, and
/// gradients of early outputs by later inputs are exactly 0: the Jacobian is block lower
/// triangular.
pub fn causality(t: &mut Table) {
    let rng = || Rng::new(1);
    let s = SelfAttention::new(4, 3, 2, &mut rng());
    let m = mha(4, 2);
    let w = MultiHeadWrapper::new(2, 4, 2, 2, &mut rng());
    let g = GroupedQueryAttention::new(4, 4, 2, &mut rng());
    let p = || Projections::new(HeadSizes::new(4, 2), &mut rng());
    let rope = RopeAttention::new(p(), Rope::new(2));
    let alibi = AlibiAttention::causal(p());
    let xl = TransformerXlAttention::new(p(), &mut rng());
    let chunked = LinearAttention::new(p(), Reach::Causal, LinearForm::Chunked(3));
    let quadratic = LinearAttention::new(p(), Reach::Causal, LinearForm::Quadratic);
    let sparse = SparsePattern::Fixed { stride: 3, summary: 1 };
    let sparse = SparseTransformerAttention::new(p(), sparse, SparseMerge::Heads, 0);
    let longformer = LongformerAttention::new(p(), &[1, 2], 1).causal();
    type Run<'a> = &'a dyn Fn(&Var<f64>) -> Var<f64>;
    let runs: [(&str, Run<'_>); 11] = [
        ("self-attention", &|x| s.forward(x, Mask::causal(), &mut eval())),
        ("multi-head", &|x| m.forward(x, x, x, Mask::causal(), &mut eval())),
        ("wrapper", &|x| w.forward(x, Mask::causal(), &mut eval())),
        ("grouped", &|x| g.forward(x, Mask::causal(), &mut eval())),
        ("RoPE", &|x| rope.forward(x, &Spec::new().causal(), &mut eval())),
        ("ALiBi", &|x| alibi.forward(x, &mut eval())),
        ("Transformer-XL", &|x| xl.forward(x, None, Mask::Full, &mut eval())),
        ("linear, at once", &|x| quadratic.forward(x, &mut eval())),
        ("linear, in chunks", &|x| chunked.forward(x, &mut eval())),
        ("Sparse Transformer", &|x| sparse.forward(x, Mask::Full, &mut eval())),
        ("Longformer", &|x| longformer.forward(x, &[0, 3], Mask::Full, &mut eval())),
    ];
    for (name, run) in runs {
        let statement = format!("causal: tokens before t do not see t, {name}");
        unseen(t, &statement, run, &[5.0, 1e30, f64::NAN]);
    }

    let talking = TalkingHeadsAttention::new(uneven());
    talking.score_mix.set(randn(&[4, 4], 20));
    talking.weight_mix.set(randn(&[4, 4], 21));
    let wide = Tensor::eye(8).narrow(0, 0, 4);
    unseen(
        t,
        "causal: tokens before t do not see t, talking heads",
        &|x| {
            let x = x.matmul(&Var::constant(wide.clone()));
            talking.forward(&x, &Spec::new().causal(), &mut eval())
        },
        &[5.0, 9.0, 1e30, f64::NAN],
    );
}

fn unseen(t: &mut Table, statement: &str, run: &dyn Fn(&Var<f64>) -> Var<f64>, with: &[f64]) {
    let x = randn(&[2, 7, 4], 1);
    let y = run(&Var::constant(x.clone())).into_value();
    for at in 0..7 {
        // The gradient of everything before by everything from there on.
        let leaf = Var::leaf(x.clone());
        let g = run(&leaf).narrow(1, 0, at).sum(..).backward();
        let late = g.get(&leaf).expect("a gradient").narrow(1, at, 7 - at);
        let late = Worst::between(&late, &Tensor::zeros(late.shape()));
        for &with in with {
            let mut changed = x.clone();
            for sequence in 0..2 {
                let row = 4 * (7 * sequence + at);
                changed.make_mut()[row..row + 4].fill(with);
            }
            let changed = run(&Var::constant(changed)).into_value();
            let (before, after) = (y.narrow(1, 0, at), changed.narrow(1, 0, at));
            let same = bits(&before) == bits(&after);
            t.case(format!("t = {at}, {with}")).exact();
            t.push(statement, Worst::between(&after, &before), Some(late), same);
        }
    }
}
