//! Elements of results and gradients with their numbers.

use retrograd_autograd::{Kind, Var};
use retrograd_nn::attention::{Mask, Spec, attend};
use retrograd_study::internals::*;
use retrograd_study::record::{Recorder, Seen};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The element at `index` of the last operation of `f` whose result has it.
fn explain(index: &'static [usize], f: impl FnOnce() -> Var<f64>) -> String {
    let text = Arc::new(Mutex::new(String::new()));
    let last = text.clone();
    let watch = move |seen: &Seen<'_>| {
        let Seen::Computed { call, inputs, results, .. } = seen else { return };
        let all = inputs.iter().filter_map(|(name, x)| Some((*name, x.downcast_ref()?)));
        let inputs: Vec<(&'static str, &Tensor<f64>)> = all.collect();
        let output = results[0].downcast_ref::<Tensor<f64>>().unwrap();
        let is_inside = index.iter().zip(output.shape().iter()).all(|(i, n)| i < n);
        let mut last = last.lock().unwrap();
        // Views of its result do not hide an operation.
        let is_shown = call.op.kind != Kind::View || last.is_empty();
        if output.rank() == index.len() && is_inside && is_shown {
            *last = Operation { call, inputs: &inputs, output }.explain(index);
        }
    };
    Recorder::new().watching(watch).record(f);
    let text = text.lock().unwrap();
    text.clone()
}

#[test]
fn numbers_stand_in_the_formula() {
    let var = |x: Tensor<f64>| Var::leaf(x);
    let x = var(Tensor::from([[1.0, -2.0], [0.5, 4.0]]));
    let w = var(Tensor::from([[3.0, 0.25], [1.0, -1.0], [2.0, 0.0]]));
    let (b, r) = (var(Tensor::from([10.0, 20.0, 30.0])), var(Tensor::ones([2, 3])));
    let rows = Tensor::from([2i64, 0]);
    let cases = [
        (explain(&[1, 1], || x.add(&b.value().narrow(0, 0, 2).into())), "y[1, 1] = 4 + 20 = 24"),
        (explain(&[0, 1], || x.mul(&x)), "y[0, 1] = −2 · (−2) = 4"),
        (
            explain(&[0, 1], || x.maximum(&r.value().narrow(1, 0, 2).into())),
            "y[0, 1] = −2 if (−2) > 1 else 1 = 1",
        ),
        (explain(&[0, 1], || x.matmul(&x)), "y[0, 1] = 1 · (−2) + (−2) · 4 = −10"),
        (
            explain(&[0, 0], || x.linear_add(&w, Some(&b), &r)),
            "y[0, 0] = 1 · 3 + (−2) · 0.25 + 10 + 1 = 13.5",
        ),
        (explain(&[], || x.sum(..)), "y = 1 + (−2) + 0.5 + 4 = 3.5"),
        (explain(&[1], || x.sum(0)), "y[1] = (−2) + 4 = 2"),
        (explain(&[1, 0], || x.tanh()), "y[1, 0] = tanh(0.5) = 0.4621"),
        (explain(&[0, 1], || x.add_scalar(0.5)), "y[0, 1] = −2 + 0.5 = −1.5"),
        (explain(&[2], || x.reshape([4])), "y[2] = x[1, 0] = 0.5"),
        (explain(&[1, 0], || x.softmax(-1)), "y[1, 0] = exp(0.5 − 4) / (0.0302 + 1) = 0.02931"),
        (explain(&[1, 0], || x.softmax(0)), "y[1, 0] = exp(0.5 − 1) / (1 + 0.6065) = 0.3775"),
        (explain(&[0], || b.rms_norm(None, 0.0)), "y[0] = 10 / 21.6 = 0.4629"),
        (explain(&[0, 1], || w.embedding(&rows)), "y[0, 1] = w[2, 1] = 0"),
    ];
    for (got, wanted) in cases {
        assert_eq!(got, wanted);
    }
}

#[test]
fn attention_is_weights_by_values() {
    let mut rng = Rng::new(2);
    let mut x = |shape: &[usize]| Var::leaf(Tensor::<f64>::randn(shape, &mut rng));
    // Two heads of queries share one of keys.
    let (q, k, v) = (x(&[1, 4, 3, 2]), x(&[1, 2, 3, 2]), x(&[1, 2, 3, 2]));
    let shared =
        |x: &Tensor<f64>| Tensor::from_fn([1, 4, 3, 2], |i| x.at(&[i[0], i[1] / 2, i[2], i[3]]));
    let scores = q.value().matmul(&shared(k.value()).transpose(-1, -2)) / 2f64.sqrt();
    for (mask, keys) in [
        (Mask::full(), vec![0, 1, 2]),
        (Mask::causal(), vec![0, 1]),
        (Mask::window(0, 1), vec![1, 2]),
    ] {
        let index: &[usize] = &[0, 3, 1, 1];
        let row = |j: &usize| scores.at(&[0, 3, 1, *j]).exp();
        let sum: f64 = keys.iter().map(row).sum();
        let value = |j: &usize| v.value().at(&[0, 1, *j, 1]);
        let terms: Vec<String> = keys
            .iter()
            .map(|j| format!("{} · {}", number(row(j) / sum), factor(value(j))))
            .collect();
        let y = keys.iter().map(|j| row(j) / sum * value(j)).sum();
        let wanted = format!("y[0, 3, 1, 1] = p v = {} = {}", terms.join(" + "), number(y));
        let text = explain(index, || attend(&q, &k, &v, &Spec::from(mask)));
        assert_eq!(text, wanted);
    }
    // Scores with a cap are not explained.
    let text = explain(&[0, 3, 1, 1], || attend(&q, &k, &v, &Spec::new().softcap(2.0)));
    assert!(!text.contains("p v"), "{text}");
}

#[test]
fn terms_sum_to_the_gradients() {
    let mut rng = Rng::new(4);
    let mut leaf = |shape: &[usize]| Var::leaf(Tensor::<f64>::randn(shape, &mut rng));
    let (x, w, b) = (leaf(&[2, 3, 5]), leaf(&[4, 5]), leaf(&[4]));
    let (a, z) = (leaf(&[3, 5]), leaf(&[2, 5, 4]));
    for (y, leaves) in [
        (x.linear(&w, Some(&b)), vec![&x, &w, &b]),
        (a.matmul(&w.t()), vec![&a]),
        (x.matmul(&z), vec![&x, &z]),
    ] {
        let g = leaf(y.shape()).value().clone();
        let node = y.node().unwrap();
        let values = leaves.iter().map(|x| x.value().clone());
        let mut inputs: Vec<_> = node.input_names().zip(values).collect();
        if inputs.len() == 1 {
            inputs.push(("z", w.value().t()));
        }
        let found = gradients(node.call(), &inputs, &g).unwrap();
        let wanted = y.backward_with(&g);
        for (leaf, found) in leaves.iter().zip(found) {
            let wanted = wanted.get(*leaf).unwrap();
            let places = chosen(wanted, ELEMENTS);
            assert_eq!(places.len(), found.len());
            for (place, (text, sum)) in places.iter().zip(found) {
                assert!((sum - wanted.at(place)).abs() < 1e-12, "{node:?}: {text}");
            }
        }
    }
}

#[test]
fn every_element_of_a_small_tensor_is_chosen() {
    assert_eq!(chosen(&Tensor::<f32>::ones([2, 2]), 8).len(), 4);
    assert_eq!(chosen(&Tensor::<f32>::ones([]), 8), [Vec::<usize>::new()]);
    assert_eq!(chosen_places(9, 8), [0, 1, 2, 3, 4, 5, 6, 8]);
    let columns = chosen(&Tensor::<f32>::ones([64, 128]), 8).into_iter().map(|at| at[1]);
    assert_eq!(columns.collect::<BTreeSet<usize>>().len(), 8);
    let some = chosen(&Tensor::<f32>::ones([100, 10]), 8);
    assert_eq!((some.len(), &some[0], some.last().unwrap()), (8, &vec![0, 0], &vec![99, 9]));
    assert!(chosen(&Tensor::<f32>::ones([0]), 8).is_empty());
}
