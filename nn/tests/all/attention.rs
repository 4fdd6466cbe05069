//! The attention engine: masks, weights, and what must not leak. That its two paths agree stands
//! in the lattice, and for random problems in `attention_random`.

use crate::common::*;
use proptest::prelude::*;
use retrograd_autograd::{Backprop, Var, grad};
use retrograd_nn::attention::{Mask, Path, Spec, attend, attend_all};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

#[test]
fn nothing_leaks_from_behind_a_mask() {
    let mut rng = Rng::new(2);
    let hidden = 3; // keys from here on are not seen
    let q = Tensor::<f64>::randn([1, 1, 4, 5], &mut rng);
    let k = Tensor::<f64>::randn([1, 1, 6, 5], &mut rng);
    let v = Tensor::<f64>::randn([1, 1, 6, 2], &mut rng);
    let poison = |x: &Tensor<f64>, with: f64| {
        let mut x = x.clone();
        let width = x.size(-1);
        x.make_mut()[hidden * width..].fill(with);
        x
    };
    for path in [Path::Tiled, Path::Composed] {
        let run = |with: f64| {
            let (q, k, v) =
                (Var::leaf(q.clone()), Var::leaf(poison(&k, with)), Var::leaf(poison(&v, with)));
            let spec = Spec::new().mask(Mask::lengths(&[hidden])).softcap(5.0).path(path);
            let y = attend(&q, &k, &v, &spec);
            let first = grad(&[(&y.square().sum(..), None)], &[&q, &k, &v]);
            let first: Vec<Var<f64>> = first.into_iter().flatten().collect();
            let second = Backprop::from(&first[0].square().sum(..)).run();
            let mut all = vec![y.into_value()];
            all.extend(first.iter().map(|g| g.value().clone()));
            all.extend([&q, &k, &v].map(|x| second.get(x).unwrap().clone()));
            all
        };
        let clean = run(0.0);
        for with in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            for (i, (a, b)) in run(with).iter().zip(&clean).enumerate() {
                assert_eq!(a.to_vec(), b.to_vec(), "{path:?}, {with}, result {i}");
            }
        }
        let g = &clean[2].to_vec()[hidden * 5..];
        assert!(g.iter().all(|&x| x == 0.0), "gradient of hidden keys: {g:?}");
    }
}

#[test]
fn weights_and_log_sum_exp() {
    let (q, k, v) = (leaf(&[3, 4], 4), leaf(&[5, 4], 5), leaf(&[5, 2], 6));
    let all = attend_all(&q, &k, &v, &Spec::new().mask(Mask::lengths(&[2])));
    assert_eq!((*all.output.shape(), *all.weights.shape()), ([3, 2].into(), [3, 5].into()));
    close("rows sum to 1", 1e-12, &all.weights.value().sum(-1), &Tensor::ones([3]));
    let s = q.value().matmul(&k.value().t()).mul_scalar(0.5).slice(1, 0..2);
    close("log-sum-exp", 1e-12, all.lse.value(), &s.logsumexp(-1));
    let none = attend_all(&q, &k, &v, &Spec::new().mask(!Mask::Full));
    assert!(none.lse.value().to_vec().iter().all(|&x| x == f64::NEG_INFINITY));
    assert!(none.weights.value().to_vec().iter().all(|&x| x == 0.0));
}

#[test]
fn misfits_are_told() {
    let message = |q: &[usize], k: &[usize], v: &[usize], spec: Spec<f64>| {
        panic_text(|| attend(&leaf(q, 1), &leaf(k, 2), &leaf(v, 3), &spec))
    };
    let s = Spec::new;
    let e = message(&[3, 5, 4], &[2, 5, 4], &[2, 5, 4], s());
    assert!(e.contains("3 query heads are no multiple of 2 key heads"), "{e}");
    let e = message(&[5, 4], &[5, 3], &[5, 3], s());
    assert!(e.contains("different widths"), "{e}");
    let e = message(&[5, 4], &[5, 4], &[6, 4], s());
    assert!(e.contains("different lengths"), "{e}");
    let e = message(&[5, 4], &[5, 4], &[5, 4], s().mask(Mask::keep(&Tensor::ones([5, 6]))));
    assert!(e.contains("does not broadcast to [1, 1, 5, 5]"), "{e}");
    let e = message(&[5, 4], &[5, 4], &[5, 4], s().mask(Mask::lengths(&[6])));
    assert!(e.contains("a length of 6 for 5 keys"), "{e}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The class of a tile never contradicts its pairs.
    #[test]
    fn classes_are_right(q0 in -5isize..40, n in 1isize..20, k0 in 0usize..40, m in 1usize..20) {
        use retrograd_tensor::drive::attention::{At, Class, Rule};
        let ids = Tensor::from_fn([1, 60], |i| (i[1] / 9) as i64);
        let layout = Tensor::from_fn([8, 8], |i| (i[0] + i[1]) % 3 == 0);
        let rules = [
            Mask::Full, Mask::causal(), Mask::window(3, 2), Mask::dilated(1), Mask::dilated(2),
            Mask::first(20), Mask::global(&[3, 30]), Mask::prefix(&[10]), Mask::lengths(&[25]),
            Mask::documents(&ids), Mask::chunks(8), Mask::blocks(8, &layout),
            Mask::queries(&[3, 4, 5, 6, 30]), Mask::last_of_each(3, 8), Mask::last_of_each(5, 5),
            Mask::by_head(vec![Mask::window(2, 0)]),
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
        }
    }
}
