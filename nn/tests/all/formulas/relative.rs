//! Relative positions.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::Layer;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// The softmax of one row, as in the papers.
fn softmax_row(scores: &[Var<f64>]) -> Vec<Var<f64>> {
    let exp: Vec<_> = scores.iter().map(|s| s.exp()).collect();
    let sum = exp.iter().skip(1).fold(exp[0].clone(), |a, b| a + b);
    exp.iter().map(|e| e / &sum).collect()
}

#[test]
fn relative_positions_equal_their_formulas() {
    let t = &mut Table::default();
    let r = &mut Rng::new(2);
    let x = [randn(&[6, 4], 4)];
    let l = 6;
    // A score and a value for each pair.
    type Pair<'a> = &'a dyn Fn(usize, usize, usize, [&Var<f64>; 3]) -> (Var<f64>, Var<f64>);
    let by_pairs = |p: &Projections<f64>, x: &Var<f64>, causal: bool, pair: Pair<'_>| {
        let [q, k, v] = p.qkv(x, &mut Past::none(), &mut eval());
        let row = |x: &Var<f64>, h: usize, i: usize| x.select(0, h).select(0, i);
        let mut heads = Vec::new();
        for h in 0..2 {
            let mut rows = Vec::new();
            for i in 0..l {
                let end = if causal { i + 1 } else { l };
                let (scores, values): (Vec<_>, Vec<_>) = (0..end)
                    .map(|j| pair(h, i, j, [&row(&q, h, i), &row(&k, h, j), &row(&v, h, j)]))
                    .unzip();
                let weights = softmax_row(&scores);
                let terms = weights.iter().zip(&values).map(|(w, v)| w * v);
                rows.push(terms.reduce(|a, b| a + b).unwrap());
            }
            heads.push(Var::stack(&rows.iter().collect::<Vec<_>>(), 0));
        }
        p.project_out(&Var::stack(&heads.iter().collect::<Vec<_>>(), 0), &mut eval())
    };

    let m = ShawAttention::new(Projections::new(HeadSizes::new(4, 2), r), 2, r);
    t.same(
        "Shaw = its formula by pairs",
        &x,
        |x| m.forward(&x[0], &mut eval()),
        |x| {
            by_pairs(&m.projections, &x[0], false, &|_, i, j, [q, k, v]| {
                let c = (j as isize - i as isize).clamp(-2, 2) + 2;
                let of = |t: &retrograd_nn::Param<f64>| t.to_var().select(0, c as usize);
                let s = (k + of(&m.relative_keys)).dot(q) * 0.5f64.sqrt();
                (s, v + of(&m.relative_values))
            })
        },
    );

    let m = TransformerXlAttention::new(Projections::new(HeadSizes::new(4, 2), r), r);
    t.same(
        "Transformer-XL = its formula by pairs",
        &x,
        |x| m.forward(&x[0], None, Mask::full(), &mut eval()),
        |x| {
            by_pairs(&m.projections, &x[0], true, &|h, i, j, [q, k, v]| {
                let d = (i - j) as f64;
                let r = Tensor::from([[d.sin(), (d / 100.0).sin(), d.cos(), (d / 100.0).cos()]]);
                let r = m.r_net.forward(&Var::constant(r), &mut eval()).select(0, 0);
                let r = r.slice(0, 2 * h..2 * h + 2);
                let of = |t: &retrograd_nn::Param<f64>| t.to_var().select(0, h);
                let s = (q + of(&m.r_w_bias)).dot(k) + (q + of(&m.r_r_bias)).dot(&r);
                (s * 0.5f64.sqrt(), v.clone())
            })
        },
    );

    let m = T5Attention::encoder(4, 2, r);
    let mut p = Projections::new(HeadSizes::new(4, 2), r);
    (p.q_proj, p.k_proj, p.v_proj) = (m.q.clone(), m.k.clone(), m.v.clone());
    p.o_proj.weight.set(m.o.weight.value());
    t.same(
        "T5 = its formula by pairs",
        &x,
        |x| m.forward(&x[0], Spec::new(), &mut eval()),
        |x| {
            by_pairs(&p, &x[0], false, &|h, i, j, [q, k, v]| {
                // Short distances have a bucket each; buckets 16 and above are for keys after the query.
                let bucket = if j > i { 16 + j - i } else { i - j };
                let bias = m.relative_attention_bias.weight.to_var().select(0, bucket).select(0, h);
                (q.dot(k) + bias, v.clone())
            })
        },
    );
    t.check("relative positions by their formulas");
}

#[test]
fn buckets_and_slopes_are_the_published_ones() {
    // T5: 32 buckets, distances up to 128, both directions.
    let encoder = Buckets { count: 32, max_distance: 128, bidirectional: true };
    let first = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91];
    for (bucket, &distance) in first.iter().enumerate() {
        let distance = distance as isize;
        assert_eq!(encoder.of(-distance), bucket, "distance -{distance}");
        if distance > 0 {
            assert_eq!(encoder.of(1 - distance), bucket - 1, "distance -{}", distance - 1);
            assert_eq!(encoder.of(distance), 16 + bucket, "distance {distance}");
        }
    }
    assert_eq!((encoder.of(-10_000), encoder.of(10_000)), (15, 31));
    let decoder = Buckets { bidirectional: false, ..encoder };
    assert_eq!(
        [-15, -16, -31, -113, -5000, 0, 7].map(|d| decoder.of(d)),
        [15, 16, 21, 31, 31, 0, 0]
    );
    // ALiBi: 12 heads, as the authors' code gives them.
    let want =
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.5, 1.5, 2.5, 3.5].map(|x: f64| (-x).exp2());
    for (slope, want) in alibi_slopes(12).into_iter().zip(want) {
        assert!((slope - want).abs() < 1e-16, "{slope} is not {want}");
    }
}
