//! Nothing to see: empty sequences, rows that are masked altogether, and what stands behind a
//! mask.

use super::plain;
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

// ---------------------------------------------------------------------------------- odd input

#[test]
fn nothing_to_see_gives_nothing() {
    let m = mha(4, 2);
    let bias = m.out_proj.bias.as_ref().unwrap().value().to_vec();
    let run = |lq: usize, lk: usize, batch: usize, mask: Mask| {
        let (x, other) = (leaf(&[batch, lq, 4], 1), leaf(&[batch, lk, 4], 2));
        let (y, w) = m.forward_with_weights(&x, &other, &other, mask, &mut eval());
        assert_eq!(*y.shape(), [batch, lq, 4]);
        assert_eq!(*w.shape(), [batch, 2, lq, lk]);
        let g = y.sum(..).backward();
        let zero = |v: &Var<f64>| g.get(v).is_none_or(|g| g.to_vec().iter().all(|&g| g == 0.0));
        assert!(zero(&x) && zero(&other));
        assert!(y.value().to_vec().chunks(4).all(|row| row == bias), "output is b_out");
        assert!(w.value().to_vec().iter().all(|&w| w == 0.0));
    };
    run(3, 0, 2, Mask::Full); // Lk = 0
    run(0, 3, 2, Mask::Full); // Lq = 0
    run(3, 3, 0, Mask::Full); // batch 0
    run(0, 0, 0, Mask::causal());
    run(3, 3, 2, !Mask::Full); // masked altogether

    let c = CrossAttention::new(4, 5, 3, 2, &mut Rng::new(1));
    let y = c.forward(&leaf(&[3, 4], 1), &leaf(&[0, 5], 1), Mask::Full, &mut eval());
    assert_eq!(y.value().to_vec(), [0.0; 6]);
    let g = GroupedQueryAttention::<f64>::new(4, 4, 2, &mut Rng::new(1));
    assert_eq!(*g.forward(&leaf(&[2, 0, 4], 1), Mask::causal(), &mut eval()).shape(), [2, 0, 4]);
    assert_eq!(*g.forward(&leaf(&[0, 3, 4], 1), Mask::causal(), &mut eval()).shape(), [0, 3, 4]);
    let w = MultiHeadWrapper::<f64>::new(2, 4, 2, 2, &mut Rng::new(1));
    assert_eq!(*w.forward(&leaf(&[2, 0, 4], 1), Mask::Full, &mut eval()).shape(), [2, 0, 4]);
    let r = RenormalizedSelfAttention::new(4, 3, 2, &mut Rng::new(1));
    assert_eq!(*r.forward(&leaf(&[0, 4], 1), &Mask::causal(), &mut eval()).shape(), [0, 2]);
    assert_eq!(*plain_self_attention(&leaf(&[0, 4], 1)).shape(), [0, 4]);
}

#[test]
fn empty_sequences() {
    let mla =
        MlaSizes { width: 8, heads: 2, query_latent: None, latent: 3, nope: 2, rope: 2, value: 3 };
    let causal =
        |m: &dyn Incremental<f64>, x: &Var<f64>| m.forward(x, &Spec::new().causal(), &mut eval());
    // Empty sequences and batches come back empty.
    for shape in [[0usize, 3, 8], [2, 0, 8]] {
        let x = Var::constant(Tensor::zeros(shape));
        assert_eq!(*causal(&RopeAttention::new(uneven(), Rope::new(4)), &x).shape(), shape);
        assert_eq!(*causal(&SinkAttention::new(uneven()), &x).shape(), shape);
        assert_eq!(
            *causal(&MemoryAttention::new(uneven(), 2, &mut Rng::new(1)), &x).shape(),
            shape
        );
        let sizes = HeadSizes::new(8, 2);
        let m = DifferentialAttention::<f64>::new(sizes, 0, None, &mut Rng::new(1));
        assert_eq!(*causal(&m, &x).shape(), shape);
        assert_eq!(*causal(&MlaAttention::<f64>::new(mla, &mut Rng::new(1)), &x).shape(), shape);
    }
    // A sequence that is all padding gives zeros.
    let x = constant(&[1, 3, 8], 1);
    let y = plain().forward(&x, &Spec::new().mask(Mask::lengths(&[0])), &mut eval());
    assert!(y.value().to_vec().iter().all(|&y| y == 0.0));
}

#[test]
fn linear_attention_of_nothing() {
    // A sequence of nothing, and queries of another number.
    for form in [LinearForm::Quadratic, LinearForm::Recurrent, LinearForm::Chunked(2)] {
        let x = |l: usize, d: usize| Var::constant(randn(&[2, l, d], 1));
        let y = linear_attention(&x(0, 4), &x(0, 4), &x(0, 5), Reach::Causal, form);
        assert_eq!(*y.shape(), [2, 0, 5]);
        let y = linear_attention(&x(3, 4), &x(0, 4), &x(0, 5), Reach::Full, form);
        assert!(*y.shape() == [2, 3, 5] && y.value().to_vec().iter().all(|&x| x == 0.0));
    }
}
