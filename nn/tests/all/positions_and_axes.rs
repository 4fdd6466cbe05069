//! What could be read in two ways has to be said: positions of queries, axes of masks and of positions.

use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

fn operands(lq: usize, lk: usize) -> [Var<f64>; 3] {
    [leaf(&[3, 2, lq, 4], 1), leaf(&[3, 2, lk, 4], 2), leaf(&[3, 2, lk, 4], 3)]
}

#[test]
fn a_causal_mask_of_other_numbers_of_queries_and_keys_needs_positions() {
    let [q, k, v] = operands(2, 5);
    let given = "positions are not given";
    for spec in [
        Spec::new().causal(),
        Spec::from(Mask::prefix(&[1])),
        Spec::from(!Mask::causal()),
        Spec::from(Mask::by_head(vec![Mask::full(), Mask::causal() & Mask::window(2, 0)])),
    ] {
        for path in [Path::Auto, Path::Composed] {
            assert_panics_here(given, || attend(&q, &k, &v, &spec.clone().path(path)));
        }
        assert_panics_here(given, || attend_all(&q, &k, &v, &spec));
        attend(&q, &k, &v, &spec.clone().align(Align::Offset(1)));
        attend(&q, &k, &v, &spec.clone().align_each(&[1]));
        let same = spec.clone().align(Align::TopLeft);
        let [q, k, v] = operands(5, 5);
        let (a, b) = (attend(&q, &k, &v, &spec), attend(&q, &k, &v, &same));
        assert_eq!(a.value(), b.value());
    }
    // Masks that are not causal do not ask.
    attend(&q, &k, &v, &Spec::from(Mask::window(2, 2)));
    let run = |spec: Spec<f64>| attend(&q, &k, &v, &spec).into_value();
    let aligned = |align| run(Spec::new().causal().align(align));
    assert_eq!(run(Spec::new().causal_top_left()), aligned(Align::TopLeft));
    assert_eq!(run(Spec::new().causal_bottom_right()), aligned(Align::BottomRight));
    assert_ne!(aligned(Align::TopLeft), aligned(Align::BottomRight));
}

/// Sequences with positions of their own are attended to as if each were alone.
#[test]
fn positions_of_each_sequence_agree_with_sequences_by_themselves() {
    let starts = [4isize, -1, 70];
    let (lq, lk) = (6, 80);
    let [q, k, v] = operands(lq, lk);
    let ids = Tensor::from_fn([3, 80], |i| (i[1] / (5 + i[0])) as i64);
    let dense = Tensor::bernoulli([3, 1, lq, lk], 0.6, &mut Rng::new(7));
    let table = leaf(&[2, 8], 9);
    let buckets = Buckets { count: 8, max_distance: 20, bidirectional: false };
    let of = |n: Option<usize>, x: &Tensor<bool>| n.map_or(x.clone(), |n| x.narrow(0, n, 1));
    type Part<'a> = &'a dyn Fn(Option<usize>) -> Spec<f64>;
    let r = leaf(&[2, 9, 4], 10);
    let parts: [(&str, Part); 12] = [
        ("causal", &|_| Spec::new().causal()),
        ("window", &|_| Spec::from(Mask::causal() & Mask::window(3, 0))),
        ("after", &|_| Spec::from(!Mask::causal() | Mask::first(2))),
        ("by head", &|_| {
            Spec::from(Mask::by_head(vec![Mask::dilated(2), Mask::causal() & Mask::chunks(7)]))
        }),
        ("documents", &|n| {
            let ids = n.map_or(ids.clone(), |n| ids.narrow(0, n, 1));
            Spec::from(Mask::causal() & Mask::documents(&ids))
        }),
        ("lengths", &|n| {
            let lengths = [11, 6, 76];
            let lengths = n.map_or(&lengths[..], |n| &lengths[n..n + 1]);
            Spec::from(Mask::causal() & Mask::lengths(lengths))
        }),
        ("a tensor", &|n| Spec::from(Mask::causal() & Mask::keep(&of(n, &dense)))),
        ("ALiBi", &|_| Spec::new().causal().bias(Bias::alibi(2))),
        ("T5", &|_| Spec::new().causal().rule(Rule::buckets(table.clone(), buckets))),
        ("slopes", &|_| Spec::new().causal().rule(Rule::slopes(table.select(1, 0)))),
        ("relative products", &|n| {
            let a = n.map_or(q.clone(), |n| q.narrow(0, n, 1));
            let index = |away: isize| (away.clamp(-8, 0) + 8) as usize;
            Spec::new().causal().rule(Rule::relative_products(a, r.clone(), index))
        }),
        ("a function", &|_| {
            Spec::from(Mask::from_fn("near", |at| at.query - 3 <= at.key as isize))
        }),
    ];
    for (name, spec) in parts {
        let alone: Vec<Var<f64>> = (0..3)
            .map(|n| {
                let [q, k, v] = [&q, &k, &v].map(|x| x.narrow(0, n, 1));
                attend(&q, &k, &v, &spec(Some(n)).align(Align::Offset(starts[n])))
            })
            .collect();
        let alone = Var::cat(&alone.iter().collect::<Vec<_>>(), 0);
        let whole = |path| attend(&q, &k, &v, &spec(None).align_each(&starts).path(path));
        let gradients = |y: &Var<f64>| {
            let found = y.square().sum(..).backward();
            [&q, &k, &v, &table].map(|x| found.get(x).cloned())
        };
        let want = gradients(&alone);
        let paths: &[Path] = if ["T5", "slopes", "relative products"].contains(&name) {
            &[Path::Auto]
        } else {
            &[Path::Tiled, Path::Composed]
        };
        for path in paths {
            let y = whole(*path);
            close(&format!("{name}, {path:?}"), 1e-13, y.value(), alone.value());
            for (have, want) in gradients(&y).iter().zip(&want) {
                assert_eq!(have.is_some(), want.is_some(), "{name}");
                if let (Some(have), Some(want)) = (have, want) {
                    close(&format!("{name}, {path:?}, gradient"), 1e-12, have, want);
                }
            }
        }
    }
    let spec = Spec::new().causal();
    assert_panics_here("2 positions of queries for a batch of 3", || {
        attend(&q, &k, &v, &spec.clone().align_each(&[0, 1]))
    });
    let text = spec.align_each(&[0, 2]).explain(2, 4);
    assert!(text.contains("query 0 at keys [0, 2], by sequence"), "{text}");
    assert!(text.contains("map of sequence 0\n  #...\n  ##..\n"), "{text}");
    assert!(text.contains("map of sequence 1\n  ###.\n  ####\n"), "{text}");
}

#[test]
fn masks_say_what_their_axes_are() {
    // As many sequences as queries and keys.
    let keep = Tensor::from([[true, false], [true, true]]);
    let tensor = |mask: Mask| {
        let keep = mask.tensor([2, 1, 2, 2], Align::TopLeft);
        keep.broadcast_to([2, 1, 2, 2]).to_vec()
    };
    let pairs = [true, false, true, true, true, false, true, true];
    let keys = [true, false, true, false, true, true, true, true];
    let not = |x: [bool; 8]| x.map(|x| !x);
    assert_eq!(tensor(Mask::keep_pairs(&keep)), pairs);
    assert_eq!(tensor(Mask::drop_pairs(&keep)), not(pairs));
    assert_eq!(tensor(Mask::keep_keys(&keep)), keys);
    assert_eq!(tensor(Mask::drop_keys(&keep)), not(keys));
    assert_panics_here("got [2, 2] (hint: keep_pairs", || Mask::keep(&keep));
    assert_panics_here("got [2, 2] (hint: keep_pairs", || Mask::drop(&keep));
    let three = keep.unsqueeze(0);
    assert_panics_here("unsqueeze(1) if it is the batch", || Mask::keep(&three));
    assert_panics_here("[queries, keys], got [1, 2, 2]", || Mask::keep_pairs(&three));
    assert_panics_here("[queries, keys], got [1, 2, 2]", || Mask::drop_pairs(&three));
    assert_panics_here("[batch, keys], got [1, 2, 2]", || Mask::keep_keys(&three));
    assert_panics_here("[batch, keys], got [1, 2, 2]", || Mask::drop_keys(&three));
    // Three axes are one sequence: lengths of several are refused.
    let x = leaf(&[2, 5, 4], 1);
    assert_panics_here("inputs of three axes are [heads, length, width]", || {
        attend(&x, &x, &x, &Spec::from(Mask::lengths(&[3, 5])))
    });
}

#[test]
fn rotary_positions_say_what_their_axes_are() {
    let rope = Rope::new(4);
    // As many sequences as heads.
    let x = leaf(&[2, 2, 3, 4], 1);
    let positions = Tensor::from([[0i64, 1, 2], [5, 6, 7]]);
    assert_panics_here("need unsqueeze(1)", || rope.rotate_at(&x, &positions));
    let y = rope.rotate_at(&x, &positions.unsqueeze(1));
    for (n, start) in [(0, 0), (1, 5)] {
        let alone = rope.rotate(&x.select(0, n), start);
        assert_eq!(y.value().select(0, n), *alone.value());
    }
    let by_head = rope.rotate_at(&x, &positions.unsqueeze(0));
    assert_eq!(by_head.value().select(1, 1), *rope.rotate(&x.select(1, 1), 5).value());
    assert_panics_here("must be [3], or broadcast to [2, 2, 3]", || {
        rope.rotate_at(&x, &Tensor::from([0i64, 1]))
    });
    let all = rope.rotate_at(&x, &Tensor::scalar(2i64));
    assert_eq!(all.value().select(2, 0), rope.rotate(&x, 2).value().select(2, 0));
}

#[test]
fn rotary_positions_of_tables_are_those_of_the_tables() {
    let scaled = Rope::new(6).base(100.0).scaling(Scaling::Yarn(Yarn::new(4.0, 16)));
    let angles = Tensor::<f64>::from_fn([12, 3], |i| i[0] as f64 * scaled.frequencies()[i[1]]);
    let factor = scaled.attention_factor();
    let given = Rope::from_tables(&(angles.cos() * factor), &(angles.sin() * factor));
    assert_eq!((given.width(), given.attention_factor()), (6, 1.0));
    let x = leaf(&[2, 5, 8], 1); // two elements are not rotated
    for pairing in [Pairing::Half, Pairing::Interleaved] {
        let (given, scaled) = (given.clone().pairing(pairing), scaled.clone().pairing(pairing));
        let (a, b) = (given.rotate(&x, 7), scaled.rotate(&x, 7));
        close("tables", 1e-14, a.value(), b.value());
        let [da, db] = [a, b].map(|y| y.square().mul(&x).sum(..).backward().remove(&x).unwrap());
        close("gradients", 1e-14, &da, &db);
        // In a module, and with positions of sequences.
        let p = Projections::new(HeadSizes::new(12, 2), &mut Rng::new(7));
        let at = Tensor::from([[3i64, 1, 0, 0, 11], [4, 3, 2, 1, 0]]).unsqueeze(1);
        let q = leaf(&[2, 2, 5, 6], 2);
        assert_eq!(given.rotate_at(&q, &at).shape(), q.shape());
        let x = leaf(&[1, 4, 12], 3);
        let run = |rope| p.clone().with_rope(rope);
        let run = |rope| run(rope).forward(&x, Spec::new().causal(), &mut eval());
        close("module", 1e-13, run(given).value(), run(scaled).value());
    }
    assert_panics_here("position 12, and tables for positions below 12", || given.rotate(&x, 8));
    let before = Tensor::from([0i64, -1, 0, 0, 0]);
    assert_panics_here("position -1, and tables", || given.rotate_at(&x, &before));
    assert_panics_here("a base of rotary positions that are given", || given.clone().base(10.0));
    assert_panics_here("frequencies of rotary positions that are given", || given.frequencies());
    let (cos, sin) = (Tensor::<f32>::ones([3, 2]), Tensor::<f32>::ones([2, 2]));
    assert_panics_here("got cos [3, 2] and sin [2, 2]", || Rope::from_tables(&cos, &sin));
}

#[test]
fn scores_are_what_is_normalised() {
    let [q, k, v] = operands(3, 5);
    let mask = Mask::window(1, 1) & Mask::lengths(&[5, 0, 4]);
    for sink in [Sink::None, Sink::Zero] {
        let spec = Spec::from(mask.clone()).softcap(2.0).bias(Bias::alibi(2)).sink(sink);
        let all = attend_all(&q, &k, &v, &spec);
        let weights = (&all.scores - all.lse.unsqueeze(-1)).exp();
        let none = all.lse.value().eq(f64::NEG_INFINITY).unsqueeze(-1);
        close("weights", 1e-13, &weights.value().masked_fill(&none, 0.0), all.weights.value());
        let keep = mask.tensor([3, 2, 3, 5], Align::BottomRight);
        let low = all.scores.value().eq(f64::NEG_INFINITY);
        assert_eq!(low.to_vec(), (!keep.broadcast_to([3, 2, 3, 5])).to_vec());
        // Scores have gradients.
        let kept = all.scores.masked_fill(&low, 0.0).sum(..);
        assert!(kept.backward().get(&q).unwrap().to_vec().iter().any(|&x| x != 0.0));
    }
}
