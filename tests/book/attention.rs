//! Solutions of the exercises of `book::attention`.

use retrograd::nn::attention::{Align, Mask, Sink, Spec, attend, attend_with_lse};
use retrograd::prelude::*;

fn inputs<const N: usize>(lengths: [usize; N], seed: u64) -> [Var<f64>; N] {
    let mut rng = Rng::new(seed);
    lengths.map(|l| Var::constant(Tensor::<f64>::randn([l, 4], &mut rng)))
}

fn distance(a: &Var<f64>, b: &Var<f64>) -> f64 {
    (a.value() - b.value()).abs().max(..).item()
}

#[test]
fn order_of_the_keys() {
    let [q, k, v] = inputs([5; 3], 1);
    let reversed = |spec: &Spec<f64>| {
        distance(&attend(&q, &k, &v, spec), &attend(&q, &k.flip(0), &v.flip(0), spec))
    };
    assert!(reversed(&Spec::new()) < 1e-14);
    assert!(reversed(&Spec::new().causal()) > 0.1); // the mask is about positions
}

#[test]
fn empty_tiles() {
    let (length, rows, columns) = (4096, 32, 64);
    let (mut empty, mut all) = (0, 0);
    for first in (0..length).step_by(rows) {
        for key in (0..length).step_by(columns) {
            all += 1;
            empty += usize::from(key > first + rows - 1); // the last query does not reach the first key
        }
    }
    assert_eq!((empty, all), (4032, 8192)); // 49 %
    // The same by the mask, for fewer tokens.
    let keep = Mask::causal().tensor([1, 1, 256, 256], Align::TopLeft).reshape([256, 256]);
    let is_empty = |i: usize, j: usize| {
        !keep.narrow(0, i * rows, rows).narrow(1, j * columns, columns).to_vec().contains(&true)
    };
    let count = (0..8).flat_map(|i| (0..4).map(move |j| (i, j))).filter(|&(i, j)| is_empty(i, j));
    assert_eq!(count.count(), 12); // of 32
}

#[test]
fn parts_of_the_keys() {
    let [q, k, v] = inputs([3, 10, 10], 2);
    let part = |from: usize, n: usize| {
        attend_with_lse(&q, &k.narrow(0, from, n), &v.narrow(0, from, n), &Spec::new())
    };
    let ((o1, lse1), (o2, lse2)) = (part(0, 4), part(4, 6));
    // Each part has the share exp(lse) of the whole sum.
    let lse = Var::stack(&[&lse1, &lse2], 0).logsumexp(0);
    let weight = |part: &Var<f64>| (part - &lse).exp().unsqueeze(1);
    let whole = &o1 * &weight(&lse1) + &o2 * &weight(&lse2);
    assert!(distance(&whole, &attend(&q, &k, &v, &Spec::new())) < 1e-14);
}

#[test]
fn a_cache_of_keys() {
    let [q, k, v] = inputs([7; 3], 3);
    let whole = attend(&q, &k, &v, &Spec::new().causal());
    for i in 0..7 {
        // One query and i + 1 keys: two products of 4 (i + 1) multiplications, in place of all pairs again.
        let (keys, values) = (k.narrow(0, 0, i + 1), v.narrow(0, 0, i + 1));
        let y = attend(&q.narrow(0, i, 1), &keys, &values, &Spec::new());
        assert!(distance(&y, &whole.narrow(0, i, 1)) < 1e-14);
    }
}

#[test]
fn a_sink_is_another_start() {
    let [q, k, v] = inputs([3, 6, 6], 4);
    let z = 0.7;
    let mut rows = vec![];
    for q in q.value() {
        // The sink is a first key with the score z and the value 0.
        let (mut max, mut sum, mut o) = (z, 1.0, Tensor::zeros([4]));
        for (key, value) in k.value().rows().zip(v.value().rows()) {
            let s = (&key * &q).sum(..).item() / 2.0;
            let new = f64::max(max, s);
            let (alpha, p) = ((max - new).exp(), (s - new).exp());
            (sum, o, max) = (alpha * sum + p, o * alpha + value * p, new);
        }
        rows.extend((o / sum).to_vec());
    }
    let sink = Sink::Learned(Var::constant(Tensor::from([z])));
    let heads = |x: &Var<f64>| x.unsqueeze(0);
    let library = attend(&heads(&q), &heads(&k), &heads(&v), &Spec::new().sink(sink));
    for (a, b) in rows.into_iter().zip(library.value().to_vec()) {
        assert!((a - b).abs() < 1e-14);
    }
}

#[test]
fn tiles_have_the_sizes_that_the_chapter_says() {
    let source = retrograd_support::read("tensor/src/kernels/attention/mod.rs");
    assert!(
        source.contains("const TILE: usize = 64;") && source.contains("const QUERIES: usize = 32;")
    );
    assert_eq!(32 * 64 * size_of::<f32>(), 8 << 10);
}
