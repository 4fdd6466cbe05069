//! The classic variants.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_nn::{Dropout, Layer};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn invalid_inputs_are_rejected() {
    let rng = || Rng::new(1);
    let of = |width, heads| Projections::<f64>::new(HeadSizes::new(width, heads), &mut rng());
    let x = |shape: &[usize]| Var::constant(randn(shape, 1));
    assert_panics("2 heads do not divide a width of 7", || {
        Projections::<f64>::new(HeadSizes::new(7, 2), &mut rng())
    });
    assert_panics("a summary of 4 in blocks of 3", || {
        SparsePattern::Fixed { stride: 3, summary: 4 }.far()
    });
    let longformer = LongformerAttention::new(of(4, 1), &[1], 2);
    assert_panics("global token 5 in a sequence of 5", || {
        longformer.forward(&x(&[5, 4]), &[5], Mask::full(), &mut eval())
    });
    let packed = PackedAttention::new(of(4, 1));
    assert_panics("5 tokens for documents of 4", || {
        packed.forward(&x(&[5, 4]), &Packed::new(&[2, 2]), Mask::full(), &mut eval())
    });
    assert_panics("[0, 4, 3]", || Packed::from_cu_seqlens(&[0, 4, 3]));
    let location =
        LuongAttention::<f64, _>::new(LuongLocation::new(4, 3, &mut rng()), 4, 4, &mut rng());
    assert_panics("a source of 5 positions, made for 3", || {
        location.context(&x(&[2, 4]), &x(&[5, 4]), Mask::full())
    });
    let qkv = |spec: Spec<f64>| {
        let x = x(&[2, 5, 4]);
        attend(&x, &x, &x, &spec)
    };
    assert_panics("3 slopes, 2 heads", || qkv(Spec::new().bias(Bias::alibi(3))));
    assert_panics("[5, 4] does not broadcast to [1, 2, 5, 5]", || {
        qkv(Spec::new().bias(Bias::Additive(x(&[5, 4]))))
    });
    assert_panics("masks for 1 heads, of 2", || {
        qkv(Spec::new().mask(Mask::by_head(vec![Mask::full()])))
    });
    let buckets = Buckets { count: 8, max_distance: 16, bidirectional: true };
    assert_panics("a table of buckets must be [2, 8], got [8, 2]", || {
        qkv(Spec::new().bias(Bias::Buckets { table: x(&[8, 2]), buckets }))
    });
    let near = Buckets { max_distance: 2, ..buckets };
    assert_panics("8 buckets require a max_distance above 2, got 2", || {
        qkv(Spec::new().bias(Bias::Buckets { table: x(&[2, 8]), buckets: near }))
    });
    assert_panics("8 buckets require a max_distance above 2, got 2", || {
        T5Attention::<f64>::with_buckets(4, 2, near, &mut rng())
    });
    assert_panics("a dilation must be at least 1, got 0", || Mask::dilated(0));
    assert_panics("chunks must hold at least 1 position, got 0", || Mask::chunks(0));
    assert_panics("the last 0 keys of every block of 0", || Mask::last_of_each(0, 0));
    assert_panics("the last 3 keys of every block of 2", || Mask::last_of_each(3, 2));
    assert_panics("blocks must hold at least 1 position", || {
        Mask::blocks(0, &Tensor::ones([5, 5]))
    });
    assert_panics("must be [nq, nk] or [H, nq, nk], got [5]", || {
        Mask::blocks(1, &Tensor::ones([5]))
    });
    assert_panics("must be [batch, length], got [5]", || Mask::documents(&Tensor::zeros([5])));
    for (why, mask) in [
        // Without the error, queries beyond the layout or the ids would be fully masked.
        ("2 blocks of 2 for 5 queries", Mask::blocks(2, &Tensor::ones([2, 3]))),
        ("2 blocks of 2 for 5 keys", Mask::blocks(2, &Tensor::ones([3, 2]))),
    ] {
        assert_panics(why, || qkv(Spec::from(mask.clone())));
        assert_panics(why, || qkv(Spec::from(!(Mask::full() | mask.clone()))));
    }
    let later = |mask| qkv(Spec::from(mask).align(Align::Offset(2)));
    assert_panics("3 blocks of 2 for 7 queries", || later(Mask::blocks(2, &Tensor::ones([3, 3]))));
    assert_panics("ids [1, 6] for 7 positions", || later(Mask::documents(&Tensor::zeros([1, 6]))));
    // With memory keys, too.
    let spec = || Spec::new().bias(Bias::alibi(3));
    assert_panics("3 slopes, 2 heads", || {
        let config = MultiHeadConfig { zero_attn: true, ..MultiHeadConfig::new(4, 2) };
        let m = MultiHeadAttention::<f64>::new(&config, &mut rng());
        m.forward(&x(&[5, 4]), &x(&[5, 4]), &x(&[5, 4]), spec(), &mut eval())
    });
    assert_panics("3 slopes, 2 heads", || {
        let m = MemoryAttention::new(of(4, 2), 2, &mut rng());
        m.forward(&x(&[5, 4]), spec(), &mut eval())
    });
}

/// Options of projections that a variant does not support are rejected by its constructor, and by
/// its forward pass if they are set later.
#[test]
fn unsupported_options_of_projections_are_rejected() {
    let p = || Projections::<f64>::new(HeadSizes::new(8, 2), &mut Rng::new(1));
    let rotated = || p().with_rope(Rope::new(2));
    let with_dropout = || {
        let mut with_dropout = p();
        with_dropout.dropout = Dropout::new(0.1);
        with_dropout
    };
    let rng = || Rng::new(2);
    let x = constant(&[3, 8], 1);
    let pass = || eval();

    assert_panics("ShawAttention: no rotary positions", || {
        ShawAttention::new(rotated(), 2, &mut rng())
    });
    let mut m = ShawAttention::new(p(), 2, &mut rng());
    m.projections = rotated();
    assert_panics("ShawAttention: no rotary positions", || m.forward(&x, &mut pass()));

    let name = "TransformerXlAttention: no rotary positions";
    assert_panics(name, || TransformerXlAttention::new(rotated(), &mut rng()));
    let mut m = TransformerXlAttention::new(p(), &mut rng());
    m.projections = rotated();
    assert_panics(name, || m.forward(&x, None, Mask::full(), &mut pass()));

    let linear = |p| LinearAttention::new(p, Reach::Causal, LinearForm::Recurrent);
    assert_panics("LinearAttention: no rotary positions", || linear(rotated()));
    assert_panics("a dropout of 0.1, and no weights to drop", || linear(with_dropout()));
    let mut m = linear(p());
    m.projections = with_dropout();
    assert_panics("a dropout of 0.1, and no weights to drop", || m.forward(&x, &mut pass()));
    m.projections = rotated();
    assert_panics("a state has no position", || m.step(&x, &mut None, &mut pass()));

    let mut m = AttentionPool::new(p(), 2, &mut rng());
    m.projections = rotated();
    assert_panics("latents have no positions", || m.forward(&x, &Spec::new(), &mut pass()));

    assert_panics("3 dilations for 2 heads", || LongformerAttention::new(p(), &[1, 1, 2], 1));
    let spec = Spec::new().dropout(0.2, &mut retrograd_nn::Pass::train(1));
    assert_panics("dropout by the spec, and of 0.1 by the module", || {
        PrefixLmAttention::new(with_dropout()).forward(&x, &[1], &spec, &mut pass())
    });
    // Dropout of the spec alone is applied.
    let m = PrefixLmAttention::new(p());
    let run = |spec: &Spec<f64>| m.forward(&x, &[1], spec, &mut pass()).into_value().to_vec();
    assert_ne!(run(&spec), run(&Spec::new()));
    assert_panics("[length, width] or [batch, length, width], got [1, 1, 3, 8]", || {
        m.forward(&x.reshape([1, 1, 3, 8]), &[1], Mask::full(), &mut pass())
    });
}
