//! Variants of multi-head attention.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Module;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn invalid_inputs_are_rejected() {
    let rng = || Rng::new(1);
    assert_panics("4 heads do not divide a width of 6", || {
        MultiHeadAttention::<f64>::new(&MultiHeadConfig::new(6, 4), &mut rng())
    });
    assert_panics("0 heads do not divide a width of 6", || {
        MultiHeadAttention::<f64>::new(&MultiHeadConfig::new(6, 0), &mut rng())
    });
    assert_panics("4 query heads are not a multiple of 3 key heads", || mha(8, 4).grouped(3));
    assert_panics("keys of width 5 and values of width 8 for queries of 8", || {
        let config = MultiHeadConfig { key_width: 5, ..MultiHeadConfig::new(8, 4) };
        MultiHeadAttention::<f64>::new(&config, &mut rng()).grouped(2)
    });
    assert_panics("at least 1 head", || MultiHeadWrapper::<f64>::new(0, 4, 2, 2, &mut rng()));
    assert_panics("got 1.5", || SelfAttention::<f64>::new(4, 3, 2, &mut rng()).dropout(1.5));

    let m = mha(4, 2);
    let x = leaf(&[2, 5, 4], 1);
    let run = |part: &str, q: &Var<f64>, k: &Var<f64>, v: &Var<f64>, mask: Mask| {
        assert_panics(part, || m.forward(q, k, v, mask, &mut eval()));
    };
    let wide = leaf(&[2, 5, 3], 1);
    run(
        "key must be [length, 4] or [batch, length, 4], got [2, 5, 3]",
        &x,
        &wide,
        &x,
        Mask::full(),
    );
    let long = leaf(&[2, 6, 4], 1);
    run("k and v have different lengths", &x, &x, &long, Mask::full());
    let more = leaf(&[3, 5, 4], 1);
    run("batch sizes differ", &x, &more, &more, Mask::full());
    run(
        "[1, 1, 5, 4] does not broadcast to [2, 2, 5, 5]",
        &x,
        &x,
        &x,
        Mask::keep_pairs(&Tensor::ones([5, 4])),
    );
    run("a length of 6 for 5 keys", &x, &x, &x, Mask::lengths(&[6, 1]));
    run("3 lengths for a batch of 2", &x, &x, &x, Mask::lengths(&[1, 2, 3]));
    let deep = leaf(&[1, 2, 5, 4], 1);
    run("got [1, 2, 5, 4]", &deep, &deep, &deep, Mask::full());
    let s = SelfAttention::new(4, 3, 2, &mut rng());
    assert_panics("linear", || s.forward(&wide, Mask::full(), &mut eval()));
    let r = RenormalizedSelfAttention::new(4, 3, 2, &mut rng());
    let small = Mask::keep_pairs(&Tensor::ones([4, 4]));
    assert_panics("does not broadcast to [2, 1, 5, 5]", || r.forward(&x, &small, &mut eval()));
    let state = mha(4, 2).state_dict();
    let config = MultiHeadConfig { value_width: 3, ..MultiHeadConfig::new(4, 2) };
    let error = MultiHeadAttention::new(&config, &mut rng()).load_state_dict(&state).unwrap_err();
    assert_eq!(error.missing, ["q_proj_weight", "k_proj_weight", "v_proj_weight"]);
    assert_eq!(error.unexpected, ["in_proj_weight"]);
}
