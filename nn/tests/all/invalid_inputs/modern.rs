//! The variants of recent language models.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn invalid_inputs_are_rejected() {
    let mut rng = Rng::new(1);
    assert_panics("rotary width must be even, got 5", || Rope::new(5));
    assert_panics("a rotary width of 8 in heads of width 6", || uneven().with_rope(Rope::new(8)));
    assert_panics("a rotary width of 4 in heads of width 2", || {
        Rope::new(4).rotate(&constant(&[3, 2], 1), 0)
    });
    assert_panics("base must be above 1, got 1", || Rope::new(2).base(1.0));
    assert_panics("2 heads do not divide 5 rows", || {
        Rope::new(2).converted(&randn(&[5, 2], 1), 2, Pairing::Half)
    });
    assert_panics("3 heads do not divide a width of 10", || HeadSizes::new(10, 3));
    assert_panics("6 query heads are not a multiple of 4 key heads", || {
        HeadSizes::new(12, 6).key_heads(4)
    });
    assert_panics("0 heads", || HeadSizes::new(12, 0));
    let sizes = HeadSizes::new(6, 2);
    assert_panics("a head of width 3 is odd", || {
        DifferentialAttention::<f64>::new(sizes, 0, None, &mut Rng::new(1))
    });
    assert_panics("softcap must be above 0, got 0", || SoftcapAttention::new(uneven(), 0.0));
    assert_panics("2 to 5 are beyond the context of 4", || {
        LearnedPositions::<f64>::new(4, 8, &mut Rng::new(1)).forward(&constant(&[3, 8], 1), 2)
    });
    assert_panics("4 is beyond the context of 4", || {
        let positions = LearnedPositions::<f64>::new(4, 8, &mut Rng::new(1));
        positions.forward_at(&constant(&[2, 8], 1), &Tensor::from([0i64, 4]))
    });
    let fine = Yarn::new(4.0, 16);
    for (why, yarn) in [
        ("a factor of at least 1, got 0", Yarn { factor: 0.0, ..fine }),
        ("at least 1, got 0", Yarn { context: 0, ..fine }),
        ("got 33 and 32", Yarn { beta_slow: 33.0, ..fine }),
        ("got 0 and 32", Yarn { beta_slow: 0.0, ..fine }),
        ("above 0, got NaN", Yarn { attention: f64::NAN, ..fine }),
    ] {
        assert_panics(why, || Rope::new(4).scaling(Scaling::Yarn(yarn)));
    }
    let fine = Llama3Scaling { factor: 8.0, context: 16, low: 1.0, high: 4.0 };
    for (why, scaling) in [
        ("a factor of at least 1, got 0.5", Llama3Scaling { factor: 0.5, ..fine }),
        ("at least 1, got 0", Llama3Scaling { context: 0, ..fine }),
        ("got 4 and 4", Llama3Scaling { low: 4.0, ..fine }),
        ("got 0 and 4", Llama3Scaling { low: 0.0, ..fine }),
        ("got 1 and inf", Llama3Scaling { high: f64::INFINITY, ..fine }),
    ] {
        assert_panics(why, || Rope::new(4).scaling(Scaling::Llama3(scaling)));
    }
    assert_panics("no positions", || {
        AttentionPool::new(uneven().with_rope(Rope::new(2)), 2, &mut Rng::new(1))
    });

    let m = uneven();
    let mut cache = KvCache::new(4);
    let mut step = |n: usize, batch: usize| {
        let x = Var::constant(Tensor::randn([batch, n, 8], &mut rng));
        drop(m.forward_cached(&x, &Spec::new().causal(), &mut cache));
    };
    step(3, 2);
    assert_panics("2 more tokens after 3 exceed the capacity of 4", || step(2, 2));
    assert_panics("keys [3, 2, 1, 6] do not continue [2, 2, 1, 6]", || step(1, 3));
    step(1, 2);
    let cached = |spec: Spec<f64>| {
        let mut cache = KvCache::sliding(1);
        let mut step = || drop(m.forward_cached(&constant(&[2, 8], 1), &spec, &mut cache));
        step();
        step();
    };
    assert_panics("a cache: an alignment", || cached(Spec::new().align(Align::BottomRight)));
    let by_number = "per key does not fit a cache that has dropped keys";
    assert_panics("does not broadcast to [1, 4, 2, 2]", || {
        cached(Spec::from(Mask::keep_pairs(&Tensor::ones([2, 3]))))
    });
    assert_panics(by_number, || cached(Spec::from(Mask::keep_pairs(&Tensor::ones([2, 2])))));
    assert_panics(by_number, || cached(Spec::new().bias(Bias::Additive(constant(&[2, 2], 1)))));
    assert_panics("cannot truncate to 5 of 4 tokens", || cache.truncate(5));
    let mut cache = KvCache::<f64>::sliding(1);
    for _ in 0..2 {
        cache.append(&randn(&[1, 2, 1], 1), &randn(&[1, 2, 1], 1));
    }
    assert_panics("cannot go back to 3 of 4 tokens: only 3 are held", || cache.truncate(3));
}

#[test]
fn a_sink_requires_softmax() {
    let x = constant(&[3, 2], 1);
    for n in [Normalizer::Sparsemax, Normalizer::TopK(1), Normalizer::Sigmoid { bias: None }] {
        let spec = Spec::new().normalizer(n).sink(Sink::Zero);
        assert_panics("a sink requires the normalizer Softmax", || attend(&x, &x, &x, &spec));
    }
}
