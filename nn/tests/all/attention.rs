//! The attention engine: masks, weights, and masked keys. The agreement of its two paths is tested
//! in `equivalences`, and for random problems in `attention_random`.

use crate::common::*;
use proptest::prelude::*;
use retrograd_autograd::{Var, check};
use retrograd_nn::attention::{
    Align, Bias, KvCache, LongformerAttention, Mask, Past, Path, Sink, Spec, attend, attend_all,
};
use retrograd_nn::internals::additive_scores;
use retrograd_support::random_tests;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn weights_sum_to_one_and_log_sum_exp_equals_its_formula() {
    let (q, k, v) = (leaf(&[3, 4], 4), leaf(&[5, 4], 5), leaf(&[5, 2], 6));
    let all = attend_all(&q, &k, &v, &Spec::new().mask(Mask::lengths(&[2])));
    assert_eq!((*all.output.shape(), *all.weights.shape()), ([3, 2].into(), [3, 5].into()));
    close("rows sum to 1", 1e-12, &all.weights.value().sum(-1), &Tensor::ones([3]));
    let s = q.value().matmul(&k.value().t()).mul_scalar(0.5).slice(1, 0..2);
    close("log-sum-exp", 1e-12, all.lse.value(), &s.logsumexp(-1));
    let none = attend_all(&q, &k, &v, &Spec::new().mask(!Mask::full()));
    assert!(none.lse.value().to_vec().iter().all(|&x| x == f64::NEG_INFINITY));
    assert!(none.weights.value().to_vec().iter().all(|&x| x == 0.0));
}

/// The log-sum-exp of a query without visible keys, by a mask or a bias, is -inf, with a finite gradient.
#[test]
fn log_sum_exp_without_visible_keys_has_a_finite_gradient() {
    let low = Var::constant(Tensor::full([2], f64::NEG_INFINITY));
    let nothing =
        Bias::from_fn("nothing", |at| if at.query == 3 { f64::NEG_INFINITY } else { 0.0 });
    for spec in [Spec::from(!Mask::full()), Spec::new().bias(nothing)] {
        for sink in [Sink::None, Sink::Learned(low.clone())] {
            let [q, k] = [1, 2].map(|seed| leaf(&[2, 4, 3], seed));
            let lse = attend_all(&q, &k, &k, &spec.clone().sink(sink)).lse;
            let of_nothing = lse.narrow(1, 3, 1).value().to_vec();
            assert!(of_nothing.iter().all(|&x| x == f64::NEG_INFINITY));
            let g = lse.sum(..).backward();
            let g = [&q, &k].map(|x| g.get(x).unwrap().to_vec()).concat();
            assert!(g.iter().all(|x| x.is_finite()), "{spec:?}: {g:?}");
        }
    }
}

#[test]
fn an_infinite_softcap_has_no_effect() {
    let [q, k, v] = [1, 2, 3].map(|seed| Tensor::<f32>::randn([5, 4], &mut Rng::new(seed)));
    let [q, k, v] = [q, k, v].map(Var::constant);
    for path in [Path::Composed, Path::Tiled] {
        let run = |spec: Spec| attend(&q, &k, &v, &spec.path(path)).value().to_vec();
        for cap in [f64::INFINITY, 1e200] {
            assert_eq!(run(Spec::new().softcap(cap)), run(Spec::new()));
        }
    }
    assert_panics("softcap must be above 0", || Spec::<f32>::new().softcap(1e-200));
}

#[test]
fn invalid_inputs_are_rejected() {
    for (q, k, why) in [
        ([3, 5, 4], [2, 5, 4], "3 query heads are not a multiple of 2 key heads"),
        ([1, 5, 4], [1, 5, 3], "different widths"),
    ] {
        assert_panics(why, || attend(&leaf(&q, 1), &leaf(&k, 2), &leaf(&k, 3), &Spec::new()));
    }
}

const FAR: usize = usize::MAX;

/// Sizes larger than all positions do not restrict a mask, or make it empty.
#[test]
fn huge_sizes_do_not_overflow() {
    let (lq, lk) = (70, 67); // the first queries have positions before the first key
    let tensor = |mask: &Mask| mask.tensor([1, 1, lq, lk], Align::BottomRight);
    let x = |l: usize, seed| Var::constant(randn(&[1, 1, l, 4], seed));
    let (q, k) = (x(lq, 1), x(lk, 2));
    let run = |mask: &Mask, path| {
        let spec = Spec::new().mask(mask.clone()).align(Align::BottomRight).path(path);
        attend(&q, &k, &k, &spec).into_value()
    };
    let (causal, after) = (Mask::causal(), !Mask::causal() | Mask::window(0, 0));
    let from_0 = Mask::from_fn("from 0", |at| at.query >= 0);
    let one = Tensor::ones([1, 1]);
    for (mask, same) in [
        (Mask::window(FAR, 0), &causal),
        (Mask::window(FAR, FAR), &Mask::full()),
        (Mask::window(0, FAR), &after),
        (Mask::window(None, 0), &causal),
        (Mask::window(None, None), &Mask::full()),
        (Mask::window(0, None), &after),
        (Mask::window(None, 2), &Mask::window(FAR, 2)),
        (Mask::dilated(FAR), &Mask::window(0, 0)),
        (Mask::first(FAR), &Mask::full()),
        (Mask::prefix(&[FAR]), &Mask::full()),
        (Mask::chunks(FAR), &from_0),
        (Mask::blocks(FAR, &one), &from_0),
        (Mask::global(&[FAR]), &!Mask::full()),
        (Mask::queries(&[FAR]), &!Mask::full()),
        (Mask::last_of_each(1, FAR), &!Mask::full()),
    ] {
        assert_eq!(tensor(&mask).to_vec(), tensor(same).to_vec(), "{mask:?}");
        for path in [Path::Tiled, Path::Composed] {
            close(&format!("{mask:?}, {path:?}"), 1e-12, &run(&mask, path), &run(same, path));
        }
    }
    let longformer = LongformerAttention::new(uneven(), &[1, 2, FAR, 1], FAR);
    let x = constant(&[1, 5, 8], 3);
    let step =
        Mask::by_head(vec![Mask::full(), Mask::dilated(2), Mask::window(0, 0), Mask::full()]);
    let want = uneven().attend(&x, step, &mut Past::none(), &mut eval());
    let have = longformer.forward(&x, &[], Mask::full(), &mut eval());
    close("Longformer without a limit", 1e-12, have.value(), want.value());
    let mut cache = KvCache::<f64>::streaming(1, FAR);
    for _ in 0..3 {
        cache.append(&randn(&[2, 3], 1), &randn(&[2, 3], 1));
    }
    assert_eq!(cache.len(), 6);
}

random_tests! {
    ProptestConfig::with_cases(24);

    /// The class of a tile agrees with its pairs, and the bits of its rows are exactly these.
    #[test]
    fn tile_classes_agree_with_the_mask(q0 in -5isize..40, n in 1isize..20, k0 in 0usize..40, m in 1usize..20) {
        use retrograd_tensor::kernels::attention::{At, Class, TileMask};
        let ids = Tensor::from_fn([1, 60], |i| (i[1] / 9) as i64);
        let layout = Tensor::from_fn([8, 8], |i| (i[0] + i[1]) % 3 == 0);
        let rules = [
            Mask::full(), Mask::causal(), Mask::window(3, 2), Mask::dilated(1), Mask::dilated(2),
            Mask::first(20), Mask::global(&[3, 30]), Mask::prefix(&[10]), Mask::lengths(&[25]),
            Mask::documents(&ids), Mask::chunks(8), Mask::blocks(8, &layout),
            Mask::queries(&[3, 4, 5, 6, 30]), Mask::last_of_each(3, 8), Mask::last_of_each(5, 5),
            Mask::by_head(vec![Mask::window(2, 0)]), Mask::window(None, 2), Mask::window(1, None),
            Mask::window(FAR, 0), Mask::window(0, FAR), Mask::dilated(FAR), Mask::first(FAR),
            Mask::global(&[FAR]), Mask::queries(&[FAR]), Mask::prefix(&[FAR]), Mask::chunks(FAR),
            Mask::blocks(FAR, &Tensor::ones([1, 1])), Mask::last_of_each(1, FAR),
        ];
        let pairs = rules.iter().flat_map(|a| rules.iter().map(move |b| {
            [a.clone() & b.clone(), a.clone() | !b.clone()]
        }));
        for mask in pairs.flatten().chain(rules.clone()) {
            let class = mask.class(0, 0, q0..q0 + n, k0..k0 + m);
            let mut kept = 0;
            for query in q0..q0 + n {
                for key in k0..k0 + m {
                    kept += mask.keep(At { batch: 0, head: 0, query, key }) as usize;
                }
            }
            match class {
                Class::Full => prop_assert_eq!(kept, n as usize * m, "{:?}", mask),
                Class::Empty => prop_assert_eq!(kept, 0, "{:?}", mask),
                Class::Partial => {}
            }
            for query in q0..q0 + n {
                let at = |key| At { batch: 0, head: 0, query, key };
                let bit = |i: usize| u64::from(mask.keep(at(k0 + i))) << i;
                prop_assert_eq!(mask.row(at(k0), m), (0..m).map(bit).sum::<u64>(), "{:?}", mask);
            }
        }
    }
}

#[test]
fn tiles_that_end_in_the_next_block_are_not_full() {
    use retrograd_tensor::kernels::attention::{Class, TileMask};
    let class = |keys| Mask::last_of_each(3, 8).class(0, 0, 0..4, keys);
    let of = [class(5..8), class(5..9), class(0..5), class(0..6)];
    assert_eq!(of, [Class::Full, Class::Partial, Class::Empty, Class::Partial]);
}

/// Tiled attention is compared with its definition in `equivalences::paths`.
#[test]
fn additive_scores_agree_with_their_definition() {
    let mut rng = Rng::new(1);
    let mut x = |shape: &[usize]| Var::leaf(Tensor::<f64>::randn(shape, &mut rng));
    for (q, k) in [(&[3, 4][..], &[5, 4][..]), (&[2, 3, 4], &[2, 1, 4]), (&[0, 4], &[5, 4])] {
        let scores = additive_scores(&x(q), &x(k), &x(&[4]));
        assert_eq!(check::definition(&scores, 1e-12), Ok(true));
    }
}
