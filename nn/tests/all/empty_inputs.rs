//! Empty sequences, fully masked rows, and masked elements.

use crate::common::variants::{CAUSAL, LINEAR, MASKED, NOT_CAUSAL};
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn fully_masked_queries_give_zero() {
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
    run(3, 0, 2, Mask::full()); // Lk = 0
    run(0, 3, 2, Mask::full()); // Lq = 0
    run(3, 3, 0, Mask::full()); // batch 0
    run(0, 0, 0, Mask::causal());
    run(3, 3, 2, !Mask::full()); // masked altogether

    let c = CrossAttention::new(4, 5, 3, 2, &mut Rng::new(1));
    let y = c.forward(&leaf(&[3, 4], 1), &leaf(&[0, 5], 1), Mask::full(), &mut eval());
    assert_eq!(y.value().to_vec(), [0.0; 6]);
    let w = MultiHeadWrapper::<f64>::new(2, 4, 2, 2, &mut Rng::new(1));
    assert_eq!(*w.forward(&leaf(&[2, 0, 4], 1), Mask::full(), &mut eval()).shape(), [2, 0, 4]);
    let r = RenormalizedSelfAttention::new(4, 3, 2, &mut Rng::new(1));
    assert_eq!(*r.forward(&leaf(&[0, 4], 1), &Mask::causal(), &mut eval()).shape(), [0, 2]);
    assert_eq!(*plain_self_attention(&leaf(&[0, 4], 1)).shape(), [0, 4]);
}

/// The output for empty sequences and batches is empty, in every variant.
#[test]
fn empty_inputs_give_empty_outputs() {
    let r = &mut Rng::new(2);
    let mla =
        MlaSizes { width: 8, heads: 2, query_latent: None, latent: 3, nope: 2, rope: 2, value: 3 };
    let (encoder, decoder) = (T5Attention::encoder(8, 2, r), T5Attention::decoder(8, 2, r));
    let mla = MlaAttention::new(mla, r);
    let additive = AdditiveAttention::new(8, 8, 3, r);
    let luong = LuongAttention::new(LuongGeneral::new(8, 8, r), 8, 8, r);
    let concat = LuongAttention::new(LuongConcat::new(8, 8, 3, r), 8, 8, r);
    let local_p = LuongLocalP::new(luong.clone(), 8, 2, r);
    let local_m = LuongLocalM::new(luong.clone(), 2);
    type Run<'a> = Box<dyn Fn(&Var<f64>) -> Var<f64> + 'a>;
    let mut runs: Vec<(&str, Run<'_>)> = vec![
        ("T5", Box::new(|x| encoder.forward(x, Mask::causal(), &mut eval()))),
        ("T5, causal", Box::new(|x| decoder.forward(x, Mask::causal(), &mut eval()))),
        ("MLA", Box::new(|x| mla.forward(x, Mask::causal(), &mut eval()))),
        ("additive", Box::new(|x| additive.forward(x, x, x, Mask::full(), &mut eval()))),
        ("Luong", Box::new(|x| luong.forward(x, x, Mask::full(), &mut eval()))),
        ("concat", Box::new(|x| concat.forward(x, x, Mask::full(), &mut eval()))),
        ("local-m", Box::new(|x| local_m.forward(x, x, Mask::full(), &mut eval()))),
        ("local-p", Box::new(|x| local_p.forward(x, x, &[x.size(1)], &mut eval()))),
    ];
    for (name, run) in CAUSAL.into_iter().chain(MASKED).chain(NOT_CAUSAL).chain(LINEAR) {
        let spec = Spec::new().causal();
        runs.push((name, Box::new(move |x| run(uneven(), x, spec.clone(), &mut eval()))));
    }
    for shape in [[0usize, 3, 8], [2, 0, 8], [0, 0, 8]] {
        for (name, run) in &runs {
            let x = Var::leaf(Tensor::zeros(shape));
            let y = run(&x);
            assert_eq!(*y.shape(), shape, "{name}");
            let g = y.sum(..).backward();
            assert!(g.get(&x).is_none_or(|g| *g.shape() == shape), "{name}");
        }
    }
    // The output for a sequence of padding is 0.
    let y = uneven().forward(&constant(&[1, 3, 8], 1), Mask::lengths(&[0]), &mut eval());
    assert!(y.value().to_vec().iter().all(|&y| y == 0.0));
    // Latents without keys give the output for no keys.
    let pool = AttentionPool::new(uneven(), 2, r);
    let y = pool.forward(&Var::constant(Tensor::zeros([3, 0, 8])), &Spec::new(), &mut eval());
    assert_eq!((*y.shape(), y.value().to_vec()), ([3, 2, 8].into(), vec![0.0; 48]));
    let y = pool.forward(&Var::constant(Tensor::zeros([0, 4, 8])), &Spec::new(), &mut eval());
    assert_eq!(*y.shape(), [0, 2, 8]);
}

#[test]
fn linear_attention_of_empty_sequences() {
    // No keys, and some queries.
    for form in [LinearForm::Quadratic, LinearForm::Recurrent, LinearForm::Chunked(2)] {
        let x = |l: usize, d: usize| Var::constant(randn(&[2, l, d], 1));
        let y = linear_attention(&x(0, 4), &x(0, 4), &x(0, 5), Reach::Causal, form);
        assert_eq!(*y.shape(), [2, 0, 5]);
        let y = linear_attention(&x(3, 4), &x(0, 4), &x(0, 5), Reach::Full, form);
        assert!(*y.shape() == [2, 3, 5] && y.value().to_vec().iter().all(|&x| x == 0.0));
    }
}
