//! Mask patterns of the papers, written by hand.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// Asserts that a mask of one head equals a drawing: a row per query, `#` where it attends.
#[track_caller]
fn draws(what: &str, mask: &Mask, align: Align, rows: &[&str]) {
    let lk = rows[0].len();
    let keep = mask.tensor([1, 1, rows.len(), lk], align);
    let text: String = keep.to_vec().iter().map(|&k| if k { '#' } else { '.' }).collect();
    let have: Vec<&str> = (0..rows.len()).map(|i| &text[i * lk..(i + 1) * lk]).collect();
    assert_eq!(have, rows, "{what}");
}

#[test]
fn patterns_equal_the_figures_of_the_papers() {
    let by = Align::BottomRight;
    draws("causal, last at last", &Mask::causal(), by, &["###.", "####"]);
    draws("causal, top left", &Mask::causal(), Align::TopLeft, &["#...", "##.."]);
    draws("causal, from 1", &Mask::causal(), Align::Offset(1), &["##..", "###."]);
    draws("causal, more queries", &Mask::causal(), by, &["..", "..", "#.", "##"]);
    draws(
        "window",
        &Mask::window(1, 2),
        by,
        &["###...", "####..", ".####.", "..####", "...###", "....##"],
    );
    let dilated = Mask::window(2, 2) & Mask::dilated(2);
    draws("dilated", &dilated, by, &["#.#...", ".#.#..", "#.#.#.", ".#.#.#", "..#.#.", "...#.#"]);
    draws("prefix", &Mask::prefix(&[3]), by, &["###..", "###..", "###..", "####.", "#####"]);
    draws("lengths", &Mask::lengths(&[2]), by, &["##.", "##.", "##."]);
    draws("queries", &Mask::queries(&[1]), by, &["...", "###", "..."]);
    draws("global", &Mask::global(&[1]), by, &[".#..", "####", ".#..", ".#.."]);

    // Child et al. 2019, figure 3 and section 4.2, with the window of the authors' code.
    let strided = SparsePattern::Strided { stride: 3 };
    let near = ["#......", "##.....", "###....", ".###...", "..###..", "...###.", "....###"];
    let far = ["#......", ".#.....", "..#....", "#..#...", ".#..#..", "..#..#.", "#..#..#"];
    draws("strided, near", &strided.near(), by, &near);
    draws("strided, far", &strided.far(), by, &far);
    let union = ["#......", "##.....", "###....", "####...", ".####..", "..####.", "#..####"];
    draws("strided, union", &strided.mask(SparseMerge::Union, 1, 0), by, &union);
    let fixed = SparsePattern::Fixed { stride: 3, summary: 1 };
    let block = ["#......", "##.....", "###....", "...#...", "...##..", "...###.", "......#"];
    draws("fixed, near", &fixed.near(), by, &block);
    let summaries = [".......", ".......", "..#....", "..#....", "..#....", "..#..#.", "..#..#."];
    draws("fixed, far", &fixed.far(), by, &summaries);
    draws("chunked local", &(Mask::causal() & Mask::chunks(3)), by, &block);

    // Beltagy et al. 2020, figure 2.
    let p = Projections::<f64>::new(HeadSizes::new(2, 1), &mut Rng::new(1));
    let local = LongformerAttention::new(p.clone(), &[1], 1);
    let global = ["######", "###...", "####..", "#.###.", "#..###", "#...##"];
    draws("Longformer", &local.mask(&[0]), by, &global);
    let causal = ["#.....", "##....", "###...", "#.##..", "#..##.", "#...##"];
    draws("Longformer, causal", &local.causal().mask(&[0]), by, &causal);

    // Zaheer et al. 2020, figure 1, without its random blocks; then with as many as there are.
    let big_bird = BigBirdLayout { block: 2, neighbours: 1, global: 1, random: 0, seed: 1 };
    let rows = ["##########", "######....", "########..", "##..######", "##....####"];
    let rows: Vec<&str> = rows.into_iter().flat_map(|row| [row, row]).collect();
    draws("BigBird", &big_bird.mask(1, 10), by, &rows);
    let random = BigBirdLayout { random: 1, ..big_bird };
    let seen = random.blocks(2, 8).to_vec();
    for (i, row) in seen.chunks(8).enumerate() {
        let fixed = |j: usize| (i % 8).abs_diff(j) <= 1 || (i % 8).min(j) == 0;
        let more = (0..8).filter(|&j| row[j] && !fixed(j)).count();
        assert!((0..8).all(|j| row[j] || !fixed(j)) && more == usize::from(i % 8 != 0), "{row:?}");
    }

    // Xiao et al. 2023, figure 1 (d).
    let streaming = StreamingAttention::new(p, 2, 2);
    let rows = ["#......", "##.....", "###....", "####...", "#####..", "##.###.", "##..###"];
    draws("StreamingLLM", &streaming.mask(), by, &rows);

    let packed = Mask::causal() & Packed::new(&[2, 3]).mask();
    draws("packed", &packed, by, &["#....", "##...", "..#..", "..##.", "..###"]);
    let shared = Mask::causal() & Packed::shared_prefix(2, &[1, 2]).mask();
    draws("shared prefix", &shared, by, &["#....", "##...", "###..", "##.#.", "##.##"]);
}

/// Luong et al. 2015, section 3.2: target `t` attends to `[t - D, t + D]`.
#[test]
fn luong_local_m_equals_its_window() {
    let r = &mut Rng::new(1);
    let attention = LuongAttention::new(LuongDot, 7, 7, r);
    // With these values, the context equals the weights.
    let combine = Tensor::cat(&[&Tensor::eye(7), &Tensor::zeros([7, 7])], -1);
    attention.combine.weight.set(combine);
    let (targets, sources) = (constant(&[4, 7], 1), Var::constant(Tensor::eye(7)));
    let y = LuongLocalM::new(attention, 2).forward(&targets, &sources, Mask::full(), &mut eval());
    let seen: String =
        y.value().to_vec().iter().map(|&y| if y > 0.0 { '#' } else { '.' }).collect();
    assert_eq!(seen, ["###....", "####...", "#####..", ".#####."].concat());
}

/// Scale, softcap, bias, mask and sink in the order that the documentation gives, by hand.
#[test]
fn parts_of_a_spec_are_applied_in_the_documented_order() {
    let (heads, lq, lk, d) = (2, 3, 4, 5);
    let [q, k, v] = [(lq, d, 1), (lk, d, 2), (lk, 2, 3)].map(|(l, w, s)| randn(&[heads, l, w], s));
    let (table, sinks) = (randn(&[heads, lq, lk], 4), [0.7, -1.3]);
    let (scale, cap) = (0.8, 1.5);
    let keep = |h: usize, i: usize, j: usize| j <= i + 1 && !(h == 1 && j == 0);
    let want = Tensor::from_fn([heads, lq, 2], |at| {
        let (h, i) = (at[0], at[1]);
        let score = |j: usize| {
            let dot: f64 = (0..d).map(|c| q.at(&[h, i, c]) * k.at(&[h, j, c])).sum();
            cap * (scale * dot / cap).tanh() + table.at(&[h, i, j])
        };
        let seen: Vec<usize> = (0..lk).filter(|&j| keep(h, i, j)).collect();
        let sum: f64 = seen.iter().map(|&j| score(j).exp()).sum::<f64>() + f64::exp(sinks[h]);
        seen.iter().map(|&j| score(j).exp() / sum * v.at(&[h, j, at[2]])).sum::<f64>()
    });
    let [qv, kv, vv] = [&q, &k, &v].map(|x| Var::constant(x.clone()));
    let values = table.clone();
    let rule =
        Bias::from_fn("table", move |at| values.at(&[at.head, (at.query - 1) as usize, at.key]));
    let mask = Mask::causal() & Mask::by_head(vec![Mask::full(), !Mask::first(1)]);
    let spec = |bias| {
        let sink = Sink::Learned(Var::constant(Tensor::from(sinks)));
        let spec = Spec::new().scale(scale).softcap(cap).bias(bias).mask(mask.clone()).sink(sink);
        spec.align(Align::BottomRight)
    };
    for (name, spec) in [
        ("a tensor", spec(Bias::Additive(Var::constant(table.clone())))),
        ("a rule, composed", spec(rule.clone()).path(Path::Composed)),
        ("a rule, tiled", spec(rule).path(Path::Tiled)),
    ] {
        let have = attend(&qv, &kv, &vv, &spec);
        close(&format!("order by hand, bias by {name}"), 1e-14, have.value(), &want);
    }
}
