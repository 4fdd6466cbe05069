//! Masks that equal simpler ones, and the variants that use them.

use super::{Vars, around, by, with_qkv};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;

pub fn masks(t: &mut Table, with: &str, p: &Projections<f64>) {
    let x = around().1;
    let (full, causal) = (by(p, Mask::full()), by(p, Mask::causal()));

    let window = || Mask::window(2, 1);
    let blocks = Mask::blocks(2, &Tensor::ones([5, 5]));
    for (name, mask, same) in [
        ("window >= L = causal", Mask::window(8, 0), Mask::causal()),
        ("block mask all full = dense", blocks, Mask::full()),
        ("dilation 1 = window", window() & Mask::dilated(1), window()),
        ("mask by head, all alike = mask", Mask::by_head(vec![window(); 3]), window()),
        ("prefixes of 0 = causal", Mask::prefix(&[0]), Mask::causal()),
    ] {
        t.case(with).same(name, &x, by(p, mask), by(p, same));
    }
    let prefix = PrefixLmAttention::new(p.clone());
    t.case(with).same(
        "prefixes of L = full",
        &x,
        |x| prefix.forward(&x[0], &[9, 9], Mask::full(), &mut eval()),
        &full,
    );
    let chunked = ChunkedLocalAttention::new(p.clone(), 9);
    t.case(with).same(
        "chunk >= L = causal",
        &x,
        |x| chunked.forward(&x[0], Spec::new(), &mut eval()),
        &causal,
    );

    use SparseMerge::{Layers, Union};
    let strided = |stride| SparsePattern::Strided { stride };
    let fixed = |stride, summary| SparsePattern::Fixed { stride, summary };
    for (name, pattern, merge, layer) in [
        ("strided near, stride >= L = causal", strided(9), Layers, 0),
        ("strided union, stride >= L = causal", strided(9), Union, 0),
        ("strided far, stride 1 = causal", strided(1), Layers, 1),
        ("fixed near, stride >= L = causal", fixed(9, 1), Layers, 0),
        ("fixed far, summary = stride = causal", fixed(4, 4), Layers, 1),
    ] {
        let sparse = SparseTransformerAttention::new(p.clone(), pattern, merge, layer);
        t.case(with).same(name, &x, |x| sparse.forward(&x[0], Mask::full(), &mut eval()), &causal);
    }

    let near = BigBirdLayout { block: 2, neighbours: 4, global: 0, random: 0, seed: 0 };
    let random = BigBirdLayout { neighbours: 0, random: 4, ..near };
    for (name, layout) in
        [("BigBird, all neighbours = full", near), ("BigBird, all random = full", random)]
    {
        let m = BigBirdAttention::new(p.clone(), layout);
        t.case(with).same(name, &x, |x| m.forward(&x[0], Mask::full(), &mut eval()), &full);
    }
}

/// A bias of -inf equals a mask, also for whole rows.
pub fn minus_infinity(t: &mut Table) {
    let low = f64::NEG_INFINITY;
    let hides = |q: usize, k: usize| q == 1 || k == 2;
    let table = Tensor::from_fn([3, 4], |i| if hides(i[0], i[1]) { low } else { 0.0 });
    let x = [randn(&[3, 2], 1), randn(&[4, 2], 2), randn(&[4, 2], 3)];
    let keep = Spec::from(Mask::keep_pairs(&Tensor::from_fn([3, 4], |i| !hides(i[0], i[1]))));
    let top = || Spec::new().align(Align::TopLeft);
    let added = top().bias(Bias::Additive(Var::constant(table)));
    let hide = move |at: At| if hides(at.query as usize, at.key) { low } else { 0.0 };
    let rule = top().bias(Bias::from_fn("hide", hide));
    for (name, spec) in [
        ("tensor", added),
        ("rule, composed", rule.clone().path(Path::Composed)),
        ("rule, tiled", rule.path(Path::Tiled)),
    ] {
        t.same(
            &format!("bias of -inf = mask, {name}"),
            &x,
            |x| attend(&x[0], &x[1], &x[2], &spec),
            |x| attend(&x[0], &x[1], &x[2], &keep),
        );
    }
}

pub fn longformer(t: &mut Table, case: &str, p: &Projections<f64>) {
    let x = around().1;
    let with = |dilation: &[usize], window, causal| {
        let m = LongformerAttention::new(p.clone(), dilation, window);
        if causal { m.causal() } else { m }
    };
    let run = |m: LongformerAttention<f64>, global: &'static [usize]| {
        move |x: Vars<'_>| m.forward(&x[0], global, Mask::full(), &mut eval())
    };
    t.case(case).same(
        "Longformer, w >= L, causal = causal",
        &x,
        run(with(&[1, 1, 1], 9, true), &[]),
        by(p, Mask::causal()),
    );
    t.case(case).same(
        "Longformer, dilation 1 by head = window",
        &x,
        by(p, with(&[1, 1, 2], 2, false).mask(&[]) & Mask::by_head(vec![Mask::full(); 3])),
        by(
            p,
            Mask::by_head(vec![
                Mask::window(2, 2),
                Mask::window(2, 2),
                Mask::window(4, 4) & Mask::dilated(2),
            ]),
        ),
    );
    let every: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8];
    let all = with(&[1, 2, 3], 1, false);
    let global = with_qkv(p.clone(), [&all.q_global, &all.k_global, &all.v_global]);
    t.case(case).same(
        "Longformer, all global = full",
        &x,
        run(all.clone(), every),
        by(&global, Mask::full()),
    );
    let causal = all.clone().causal();
    t.case(case).same(
        "Longformer, all global, causal = causal",
        &x,
        run(causal, every),
        by(&global, Mask::causal()),
    );
    // Global projections equal to the local ones: one attention under one mask.
    let mut tied = with(&[1, 2, 2], 1, false);
    for (to, of) in [
        (&mut tied.q_global, &p.q_proj),
        (&mut tied.k_global, &p.k_proj),
        (&mut tied.v_global, &p.v_proj),
    ] {
        *to = of.clone();
    }
    let mask = tied.mask(&[2, 7]);
    t.case(case).same(
        "Longformer, tied projections = its mask",
        &x,
        run(tied, &[2, 7]),
        by(p, mask),
    );
}
