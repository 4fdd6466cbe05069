//! Rules of scores: the tiled path and its gradients agree with the composed path.

use crate::common::*;
use retrograd_autograd::{Var, check};
use retrograd_nn::Pass;
use retrograd_nn::attention::*;
use retrograd_tensor::{Real, Tensor};

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
            for others in [false, true] {
                let name = format!("{name}, {lq} queries, {lk} keys, {mask_name}, {others}");
                let (mut learned, rules) = operands(lq, lk);
                let spec = Spec::from(mask.clone()).align(Align::BottomRight);
                let spec = if others {
                    learned.push(leaf(&[4], 9));
                    let sink = Sink::Learned(learned.last().expect("pushed").clone());
                    spec.softcap(2.0).sink(sink).dropout(0.3, &mut Pass::train(1))
                } else {
                    spec
                };
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
fn products_before_formulas_and_contextual_positions_agree() {
    agrees("all kinds", &|lq, _| {
        let (a, r) = (leaf(&[4, lq, 3], 4), leaf(&[4, 5, 3], 5));
        let (factors, z) = (leaf(&[4], 6), leaf(&[2, 4, lq, 6], 7));
        let index = |d: isize| (d.clamp(-2, 2) + 2) as usize;
        let rules = vec![
            Rule::temperature(factors.clone()),
            Rule::relative_products(a.clone(), r.clone(), index),
            Rule::contextual(z.clone()),
        ];
        (vec![a, r, factors, z], rules)
    });
}

#[test]
fn operands_of_size_1_are_shared() {
    agrees("shared operands", &|_, lk| {
        let (centre, width) = (leaf(&[1, 4, 1], 4), Var::leaf(Tensor::full([1], 30.0)));
        let keys = leaf(&[2, 1, lk], 6);
        let query = leaf(&[4, 1], 7);
        let gates = Rule::forget_between(query.clone(), keys.clone());
        let learned = vec![centre.clone(), width.clone(), query, keys];
        (learned, vec![Rule::gaussian(centre, width), gates])
    });
}

fn as_type<T: Real>(x: &Tensor<f64>) -> Var<T> {
    Var::leaf(Tensor::from_fn(*x.shape(), |i| T::from_f64(x.at(i))))
}

/// All kernels on `f32`, beside `f64`.
#[test]
fn rules_in_single_precision() {
    fn run<T: Real>() -> Vec<Vec<f64>> {
        let x = |shape: &[usize], seed| as_type::<T>(&randn(shape, seed));
        let [q, k, v] = [1, 2, 3].map(|seed| x(&[1, 2, 90, 8], seed));
        let all =
            [x(&[2], 4), x(&[2, 90], 5), x(&[2, 90, 8], 6), x(&[9, 8], 7), x(&[2, 90, 10], 8)];
        let [slopes, sums, a, r, z] = &all;
        let index = |d: isize| (d.clamp(-4, 4) + 4) as usize;
        let specs = [
            Spec::new()
                .rule(Rule::slopes(slopes.clone()))
                .rule(Rule::forget_between(sums.clone(), sums.clone())),
            Spec::new()
                .rule(Rule::relative_products(a.clone(), r.clone(), index))
                .rule(Rule::relative_values(r.clone(), index))
                .rule(Rule::contextual(z.clone())),
        ];
        let mut found = Vec::new();
        for spec in specs {
            let y = attend(&q, &k, &v, &spec.causal().path(Path::Tiled));
            let gradients = y.square().sum(..).backward();
            let of = |x: &Tensor<T>| x.to_vec().iter().map(|x| x.to_f64()).collect();
            found.push(of(y.value()));
            let leaves = [&q, &k, &v].into_iter().chain(&all);
            found.extend(leaves.filter_map(|x| gradients.get(x)).map(of));
        }
        found
    }
    let (single, double) = (run::<f32>(), run::<f64>());
    assert_eq!(single.len(), 2 + 5 + 6);
    for (a, b) in single.iter().zip(&double) {
        let scale = b.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 2e-4 * scale, "{a} and {b}");
        }
    }
}

#[test]
fn heads_of_width_0_have_rules() {
    for (dk, dv) in [(0, 2), (2, 0), (0, 0)] {
        let [q, k] = [1, 2].map(|seed| leaf(&[2, 2, 5, dk], seed));
        let v = leaf(&[2, 2, 5, dv], 3);
        let (a, r, b) = (leaf(&[5, dk], 4), leaf(&[5, dk], 5), leaf(&[5, dv], 6));
        let slopes = leaf(&[2], 7);
        let index = |d: isize| (d.clamp(-2, 2) + 2) as usize;
        let spec = Spec::new()
            .rule(Rule::relative_products(a.clone(), r.clone(), index))
            .rule(Rule::relative_values(b.clone(), index))
            .rule(Rule::slopes(slopes.clone()));
        let by = |path| attend(&q, &k, &v, &spec.clone().path(path));
        let [tiled, composed] = [Path::Tiled, Path::Composed].map(by);
        close("width 0", 1e-12, tiled.value(), composed.value());
        let [found, want] = [&tiled, &composed].map(|y| y.square().sum(..).backward());
        for x in [&a, &r, &b, &slopes] {
            close("width 0, gradient", 1e-12, found.get(x).unwrap(), want.get(x).unwrap());
        }
    }
}

/// A masked key that is NaN changes no gradient, nor do the operands' derivatives at its pairs.
#[test]
fn masked_keys_have_no_influence_through_rules() {
    let (q, v) = (leaf(&[1, 2, 70, 3], 1), leaf(&[1, 2, 70, 3], 3));
    let all = [leaf(&[2], 4), leaf(&[2], 5), leaf(&[2, 70, 6], 6)];
    let run = |last: f64| {
        let last = Var::leaf(Tensor::full([1, 2, 6, 3], last));
        let k = Var::cat(&[&leaf(&[1, 2, 64, 3], 2), &last], 2);
        let [slopes, factors, z] = &all;
        let spec = Spec::from(Mask::lengths(&[64]))
            .softcap(3.0)
            .rule(Rule::temperature(factors.clone()))
            .rule(Rule::contextual(z.clone()))
            .rule(Rule::slopes(slopes.clone()));
        let y = attend(&q, &k, &v, &spec.path(Path::Tiled));
        let found = y.square().sum(..).backward();
        let gradients = [&q, &v].into_iter().chain(&all).map(|x| found.get(x).unwrap().to_vec());
        (y.value().to_vec(), gradients.collect::<Vec<_>>(), found.get(&last).unwrap().to_vec())
    };
    let (nan, zero) = (run(f64::NAN), run(0.0));
    assert_eq!(nan, zero);
    assert!(nan.2.iter().all(|&g| g == 0.0));
}

#[test]
fn rules_that_the_tiled_path_cannot_do() {
    let z = || Rule::contextual(leaf(&[5, 3], 1));
    let two = Spec::new().rule(z()).rule(z());
    assert_eq!(two.needs_composed(), Some("two rules have contextual positions"));
    let slopes = || Rule::slopes(leaf(&[1], 2));
    let five = (0..5).fold(Spec::new(), |spec, _| spec.rule(slopes()));
    assert_eq!(five.needs_composed(), Some("rules have more than four operands"));
    let q = leaf(&[1, 5, 2], 3);
    let y = attend(&q, &q, &q, &five);
    let sum = Rule::slopes(Var::leaf(leaf(&[1], 2).value() * 5.0));
    let once = attend(&q, &q, &q, &Spec::new().rule(sum));
    close("five operands", 1e-12, y.value(), once.value());
}

#[test]
fn forget_gates_agree_with_the_composed_path() {
    agrees("forget gates", &|lq, lk| {
        let gates = leaf(&[2, 4, lq.max(lk)], 4);
        let sums = (-gates.square()).cumsum(-1);
        let of = |n: usize| Var::leaf(sums.narrow(-1, sums.size(-1) - n, n).into_value());
        let (queries, keys) = (of(lq), of(lk));
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
