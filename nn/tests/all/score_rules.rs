//! Rules of scores: the tiled path and its gradients agree with the composed path.

use crate::common::*;
use retrograd_autograd::{Var, check};
use retrograd_nn::attention::*;

/// Sizes within a tile, around its edges, and over several.
const LENGTHS: [(usize, usize); 6] = [(1, 1), (5, 3), (1, 70), (33, 64), (70, 65), (40, 150)];

type Operands<'a> = &'a dyn Fn(usize, usize) -> (Vec<Var<f64>>, Vec<Rule<f64>>);

/// Outputs and gradients, of the operands too, under several masks, with two query heads for a key head.
fn agrees(name: &str, operands: Operands<'_>) {
    for (lq, lk) in LENGTHS {
        let q = leaf(&[2, 4, lq, 3], 1);
        let [k, v] = [(2, 3), (3, 5)].map(|(seed, width)| leaf(&[2, 2, lk, width], seed));
        let masks = [
            ("full", Mask::full()),
            ("causal", Mask::causal()),
            ("window", Mask::window(9, 9) & Mask::lengths(&[lk, lk / 2])),
        ];
        for (mask_name, mask) in masks {
            for softcap in [false, true] {
                let name = format!("{name}, {lq} queries, {lk} keys, {mask_name}, {softcap}");
                let (learned, rules) = operands(lq, lk);
                let spec = Spec::from(mask.clone()).align(Align::BottomRight);
                let spec = if softcap { spec.softcap(2.0) } else { spec };
                let spec = rules.into_iter().fold(spec, |spec, rule| spec.rule(rule));
                assert_eq!(spec.needs_composed(), None, "{name}");
                let y = attend(&q, &k, &v, &spec);
                check::definition(&y, 1e-11).unwrap_or_else(|e| panic!("{name}: {e}"));
                let composed = attend(&q, &k, &v, &spec.path(Path::Composed));
                close(&name, 1e-12, y.value(), composed.value());
                let [found, want] = [&y, &composed].map(|y| y.square().sum(..).backward());
                for x in [&q, &k, &v].into_iter().chain(&learned) {
                    let [found, want] = [&found, &want].map(|g| g.get(x).expect("tracked"));
                    close(&format!("{name}: gradient {:?}", x.shape()), 1e-11, found, want);
                }
            }
        }
    }
}

#[test]
fn rules_agree_with_the_composed_path() {
    let buckets = Buckets { count: 8, max_distance: 40, bidirectional: true };
    agrees("buckets", &|_, _| {
        let table = leaf(&[4, 8], 4);
        (vec![table.clone()], vec![Rule::buckets(table, buckets)])
    });
    agrees("slopes and temperature", &|_, _| {
        let (slopes, factors) = (leaf(&[4], 4), leaf(&[4], 5));
        let rules = vec![Rule::slopes(slopes.clone()), Rule::temperature(factors.clone())];
        (vec![slopes, factors], rules)
    });
    agrees("window", &|lq, _| {
        let (centre, width) = (leaf(&[2, 1, lq], 4), leaf(&[4, lq], 5).square().detach() + 20.0);
        let width = Var::leaf(width.value().clone());
        (vec![centre.clone(), width.clone()], vec![Rule::gaussian(centre, width)])
    });
    agrees("relative vectors", &|lq, _| {
        let (a, r, b) = (leaf(&[2, 4, lq, 3], 4), leaf(&[7, 3], 5), leaf(&[4, 7, 5], 6));
        let index = |d: isize| (d.clamp(-3, 3) + 3) as usize;
        let products = Rule::relative_products(a.clone(), r.clone(), index);
        let values = Rule::relative_values(b.clone(), index);
        (vec![a, r, b], vec![products, values])
    });
}

#[test]
fn forget_gates_agree_with_the_composed_path() {
    agrees("forget gates", &|lq, lk| {
        let gates = leaf(&[2, 4, lq.max(lk)], 4);
        let sums = (-gates.square()).cumsum(-1);
        let of = |n: usize| Var::leaf(sums.narrow(-1, sums.size(-1) - n, n).into_value());
        let (queries, keys) = (of(lq), of(lk));
        let same = Rule::forget(&gates.narrow(-1, 0, 1).broadcast_to([2, 4, 1]));
        assert!(format!("{same:?}").starts_with("forget gates: s + "), "{same:?}");
        let rule = Rule::forget_between(queries.clone(), keys.clone());
        (vec![queries, keys], vec![rule])
    });
}

#[test]
fn contextual_positions_agree_with_the_composed_path() {
    // Up to position 12, so that far keys share the last.
    agrees("contextual", &|lq, _| {
        let z = leaf(&[2, 4, lq, 13], 4);
        (vec![z.clone()], vec![Rule::contextual(z)])
    });
}
