//! Talking heads, sinks, and normalisation of queries and keys.

use super::{causal, same};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Module;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;

#[test]
fn talking_heads_equal_their_formula() {
    let m = TalkingHeadsAttention::new(uneven());
    m.score_mix.set(randn(&[4, 4], 20));
    m.weight_mix.set(randn(&[4, 4], 21));
    let x = randn(&[1, 6, 8], 22);
    let full = causal(&m, &Var::constant(x.clone()));
    // By hand.
    let p = &m.projections;
    let split =
        |w: &Tensor<f64>, heads: usize| x.matmul(&w.t()).reshape([1, 6, heads, 6]).transpose(1, 2);
    let repeat = |x: Tensor<f64>| x.index_select(1, &Tensor::from([0i64, 0, 1, 1]));
    let q = split(&p.q_proj.weight.value(), 4);
    let k = repeat(split(&p.k_proj.weight.value(), 2));
    let v = repeat(split(&p.v_proj.weight.value(), 2));
    let mix = |w: &Tensor<f64>, s: &Tensor<f64>| Tensor::einsum("gh,bhqk->bgqk", &[w, s]);
    let s = mix(&m.score_mix.value(), &q.matmul(&k.t()).mul_scalar(1.0 / 6f64.sqrt()));
    let w = mix(&m.weight_mix.value(), &s.masked_softmax(-1, &Tensor::ones([6, 6]).tril(0)));
    let o = w.matmul(&v).transpose(1, 2).reshape([1, 6, 24]);
    same("talking heads by hand", &full, &o.matmul(&p.o_proj.weight.value().t()));
}

#[test]
fn pooling_takes_means_of_neighbours() {
    let m = mha(8, 4);
    let g = m.grouped(2);
    let w = m.state_dict()["in_proj_weight"].clone(); // keys are rows 8 to 15, two for a head
    let k = g.k_proj.weight.value();
    for (i, j) in [(0, 0), (1, 5), (2, 3), (3, 7)] {
        let (group, d) = (i / 2, i % 2);
        let head = |h: usize| w.at(&[8 + 2 * h + d, j]);
        let want = (head(2 * group) + head(2 * group + 1)) / 2.0;
        assert!((k.at(&[i, j]) - want).abs() < 1e-15);
    }
    assert_eq!(g.q_proj.weight.value().to_vec(), w.narrow(0, 0, 8).to_vec());
    assert_eq!(g.k_proj.bias.as_ref().unwrap().shape(), [4]);
    // The parameters are independent of the original.
    m.out_proj.weight.set(Tensor::zeros([8, 8]));
    assert!(g.o_proj.weight.value().to_vec().iter().any(|&x| x != 0.0));
}

#[test]
fn renormalizing_underflows_where_a_masked_softmax_does_not() {
    let s = Var::constant(Tensor::from([[0.0f32, 1.0, 200.0]]));
    let keep = Tensor::from([[true, true, false]]);
    let mask = Mask::keep_pairs(&keep);
    let renormalized = renormalize(&s.softmax(-1), &mask);
    assert_eq!(renormalized.value().to_vec(), [0.0; 3]);
    let masked = s.masked_softmax(-1, &keep).value().to_vec();
    assert!((masked[1] - 0.731_058_6).abs() < 1e-6);
    // Digits are lost before everything underflows.
    let s = Var::constant(Tensor::from([[0.0f32, 1.0, 100.0]]));
    let renormalized = renormalize(&s.softmax(-1), &mask).value().to_vec();
    let off = (renormalized[1] - masked[1]).abs();
    println!("99 below a masked score, f32: renormalised differs by {off:.1e}");
    assert!(off > 1e-5 && renormalized[1] > 0.0);
}

#[test]
fn qk_l2_norm_has_the_documented_scale_and_gives_0_for_inputs_of_0() {
    let l2 = QkL2Attention::new(uneven().with_rope(Rope::new(4)), 9);
    assert_eq!(l2.g.value().item(), 72f64.log2());
    l2.g.set(Tensor::full([1], 6f64.sqrt()));
    let zero = causal(&l2, &Var::constant(Tensor::zeros([1, 3, 8])));
    assert!(zero.to_vec().iter().all(|&y| y == 0.0), "queries of 0");
}

#[test]
fn empty_packed_documents_have_no_effect() {
    assert_eq!(Packed::new(&[4, 0, 7]).positions(), Packed::new(&[4, 7]).positions());
}
