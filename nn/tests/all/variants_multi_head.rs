//! Multi-head attention and its kin: a row of checks each, the equalities between them, and
//! what odd input gives. Run with `--nocapture` for the tables.

use retrograd_autograd::{Backprop, Gradients, Var};
use retrograd_nn::attention::{
    Align, Bias, CausalSelfAttention, Concat, CrossAttention, GroupedQueryAttention, Mask,
    MultiHeadAttention, MultiHeadConfig, MultiHeadCrossAttention, MultiHeadWrapper,
    PlainSelfAttention, RenormalizedSelfAttention, SelfAttention, Sink, Spec, attend,
    plain_self_attention, renormalize,
};
use retrograd_nn::testing::{VariantReport, check_variant};
use retrograd_nn::{GptConfig, Layer, Linear, Module, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn input(shape: &[usize], seed: u64) -> Tensor<f64> {
    Tensor::randn(shape, &mut Rng::new(seed))
}

fn var(shape: &[usize], seed: u64) -> Var<f64> {
    Var::leaf(input(shape, seed))
}

fn eval() -> Pass {
    Pass::eval()
}

// ------------------------------------------------------------------------------ one row each

fn show(name: &str, r: &VariantReport) {
    let worst =
        |report: &retrograd_autograd::check::Report| report.worst.as_ref().map_or(0.0, |w| w.error);
    println!(
        "{name:48} {:3} parameters {:6} first {:.1e} {:6} second {:.1e}",
        r.parameters,
        r.first.compared,
        worst(&r.first),
        r.second.compared,
        worst(&r.second)
    );
}

fn row<M: Module<f64> + Sync>(
    name: &str,
    build: impl Fn(&mut Rng) -> M + Sync,
    shapes: &[&[usize]],
    run: impl Fn(&M, &[Var<f64>]) -> Var<f64> + Sync,
) {
    let inputs: Vec<_> = (5..).zip(shapes).map(|(seed, shape)| input(shape, seed)).collect();
    show(name, &check_variant(name, build, &inputs, run));
}

#[test]
fn plain() {
    row(
        "PlainSelfAttention",
        |_| PlainSelfAttention,
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], &mut eval()),
    );
}

#[test]
fn self_attention() {
    let masks = [
        Mask::Full,
        Mask::causal(),
        Mask::lengths(&[3, 0]),
        Mask::drop(&Tensor::from_fn([3, 3], |i| i[0] == i[1])),
    ];
    for mask in masks {
        row(
            &format!("SelfAttention, {mask:?}"),
            |rng| SelfAttention::new(4, 3, 2, rng),
            &[&[2, 3, 4]],
            |m, x| m.forward(&x[0], mask.clone(), &mut eval()),
        );
    }
    row(
        "SelfAttention with biases and softcap",
        |rng| SelfAttention::with_bias(4, 3, 2, rng),
        &[&[3, 4]],
        |m, x| m.forward(&x[0], Spec::new().softcap(2.0), &mut eval()),
    );
    row(
        "SelfAttention with dropout",
        |rng| SelfAttention::new(4, 3, 2, rng).dropout(0.3),
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], Mask::Full, &mut Pass::train(1)),
    );
}

#[test]
fn renormalized() {
    row(
        "RenormalizedSelfAttention",
        |rng| RenormalizedSelfAttention::new(4, 3, 2, rng),
        &[&[2, 3, 4]],
        |m, x| m.forward(&x[0], &Mask::causal(), &mut eval()),
    );
}

#[test]
fn cross() {
    row(
        "CrossAttention",
        |rng| CrossAttention::new(4, 5, 3, 2, rng),
        &[&[2, 3, 4], &[2, 4, 5]],
        |m, x| m.forward(&x[0], &x[1], Mask::lengths(&[4, 2]), &mut eval()),
    );
    row(
        "MultiHeadCrossAttention",
        |rng| MultiHeadCrossAttention::new(4, 5, 2, rng),
        &[&[2, 3, 4], &[2, 4, 5]],
        |m, x| m.forward(&x[0], &x[1], Mask::Full, &mut eval()),
    );
}

#[test]
fn multi_head() {
    let plain = MultiHeadConfig::new(4, 2);
    let configs = [
        plain.clone(),
        MultiHeadConfig { bias: false, ..plain.clone() },
        MultiHeadConfig { key_width: 3, value_width: 5, ..plain.clone() },
        MultiHeadConfig { bias_kv: true, zero_attn: true, ..plain.clone() },
        MultiHeadConfig { dropout: 0.4, key_width: 3, bias_kv: true, ..plain.clone() },
    ];
    for config in configs {
        let MultiHeadConfig { key_width, value_width, .. } = config;
        row(
            &format!("MultiHeadAttention, {config:?}").replace("MultiHeadConfig ", ""),
            |rng| MultiHeadAttention::new(&config, rng),
            &[&[2, 3, 4], &[2, 4, key_width], &[2, 4, value_width]],
            |m, x| m.forward(&x[0], &x[1], &x[2], Mask::lengths(&[4, 3]), &mut Pass::train(2)),
        );
    }
    row(
        "MultiHeadAttention, output and weights",
        |rng| MultiHeadAttention::new(&MultiHeadConfig { bias_kv: true, ..plain.clone() }, rng),
        &[&[3, 4]],
        |m, x| {
            let how = Spec::new().causal().bias(Bias::alibi(2));
            let (y, w) = m.forward_with_weights(&x[0], &x[0], &x[0], how, &mut eval());
            Var::cat(&[&y.flatten(), &w.mean(-3).flatten()], 0)
        },
    );
}

#[test]
fn wrapper() {
    for concat in [Concat::Features, Concat::First] {
        row(
            &format!("MultiHeadWrapper, {concat:?}"),
            |rng| MultiHeadWrapper::new(3, 4, 2, 2, rng).concat(concat),
            &[&[2, 3, 4]],
            |m, x| m.forward(&x[0], Mask::causal(), &mut eval()),
        );
    }
    row(
        "MultiHeadWrapper, projected",
        |rng| {
            let heads = MultiHeadWrapper::new(2, 4, 2, 2, rng);
            heads.project(Linear::new(4, 4, rng))
        },
        &[&[3, 4]],
        |m, x| m.forward(&x[0], Mask::causal(), &mut eval()),
    );
}

#[test]
fn grouped_query() {
    for key_heads in [1, 2, 4] {
        row(
            &format!("GroupedQueryAttention, 4 heads, {key_heads} of keys"),
            |rng| GroupedQueryAttention::new(4, 4, key_heads, rng),
            &[&[2, 3, 4]],
            |m, x| m.forward(&x[0], Mask::causal(), &mut eval()),
        );
    }
}

// --------------------------------------------------------------------------------- equalities

fn difference(a: &Tensor<f64>, b: &Tensor<f64>) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let pairs = a.to_vec().into_iter().zip(b.to_vec());
    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |m: f64, d| if d > m { d } else { m });
    assert!(a.to_vec().iter().chain(&b.to_vec()).all(|x| x.is_finite()));
    worst
}

/// Prints and bounds how far two ways are apart, in their results and in the gradients of the
/// first inputs.
fn equal(what: &str, bound: f64, pairs: &[(&Var<f64>, &Var<f64>)], inputs: &[&Var<f64>]) {
    let mut worst = [0f64; 2];
    for (a, b) in pairs {
        worst[0] = worst[0].max(difference(a.value(), b.value()));
        let g = input(a.shape(), 70);
        let back = |y: &Var<f64>| Backprop::from(y).cotangent(g.clone()).retain_graph().run();
        let (ga, gb) = (back(a), back(b));
        for x in inputs {
            let of = |g: &Gradients<f64>| g.get(x).expect("a gradient").clone();
            worst[1] = worst[1].max(difference(&of(&ga), &of(&gb)));
        }
    }
    println!("{what:62} results {:.1e} gradients {:.1e}", worst[0], worst[1]);
    assert!(worst[0] <= bound && worst[1] <= bound, "{what}: {worst:?} exceed {bound:e}");
}

fn mha(width: usize, heads: usize) -> MultiHeadAttention<f64> {
    let mut rng = Rng::new(3);
    let m = MultiHeadAttention::new(&MultiHeadConfig::new(width, heads), &mut rng);
    let noise = |m: &MultiHeadAttention<f64>| {
        m.visit(&mut |_, p| p.set(Tensor::randn(p.shape(), &mut Rng::new(p.shape()[0] as u64))))
    };
    noise(&m); // biases too
    m
}

#[test]
fn grouped_with_a_key_head_each_is_multi_head() {
    let m = mha(8, 4);
    let g = GroupedQueryAttention::from_multi_head(&m, 4);
    let x = var(&[2, 5, 8], 1);
    let a = m.forward_with_weights(&x, &x, &x, Mask::causal(), &mut eval());
    let b = g.forward_with_weights(&x, Mask::causal(), &mut eval());
    equal("GQA(Hk = H) = MHA", 1e-12, &[(&a.0, &b.0), (&a.1, &b.1)], &[&x]);
}

#[test]
fn grouped_is_multi_head_with_repeated_keys() {
    // Heads of a group whose keys and values are those of the group.
    for key_heads in [1, 2, 4] {
        let g = GroupedQueryAttention::new(8, 4, key_heads, &mut Rng::new(2));
        let m = mha(8, 4);
        let repeat = |p: &Linear<f64>| {
            let w = p.weight.value().reshape([key_heads, 1, 2, 8]);
            w.broadcast_to([key_heads, 4 / key_heads, 2, 8]).contiguous().reshape([8, 8])
        };
        let parts = [g.q_proj.weight.value(), repeat(&g.k_proj), repeat(&g.v_proj)];
        let mut state = m.state_dict();
        state.insert("in_proj_weight".into(), Tensor::cat(&parts.each_ref(), 0));
        state.insert("in_proj_bias".into(), Tensor::zeros([24]));
        state.insert("out_proj.weight".into(), g.o_proj.weight.value());
        state.insert("out_proj.bias".into(), Tensor::zeros([8]));
        m.load_state_dict(&state).unwrap();
        let x = var(&[2, 5, 8], 1);
        let a = g.forward(&x, Mask::causal(), &mut eval());
        let b = m.forward(&x, &x, &x, Mask::causal(), &mut eval());
        equal(&format!("GQA({key_heads}) = MHA with repeated keys"), 1e-12, &[(&a, &b)], &[&x]);
        // Pooling what was repeated gives the groups back.
        let back = GroupedQueryAttention::from_multi_head(&m, key_heads);
        let c = back.forward(&x, Mask::causal(), &mut eval());
        equal(&format!("GQA({key_heads}) = pooled from that MHA"), 1e-12, &[(&a, &c)], &[&x]);
    }
}

#[test]
fn grouped_with_one_key_head_is_multi_query() {
    let g = GroupedQueryAttention::new(8, 4, 1, &mut Rng::new(2));
    let x = var(&[2, 5, 8], 1);
    let a = g.forward(&x, Mask::causal(), &mut eval());
    // Multi-query as Shazeer writes it: one k and v for all heads, by einsum.
    let q = g.q_proj.forward(&x, &mut eval()).reshape([2, 5, 4, 2]);
    let k = g.k_proj.forward(&x, &mut eval());
    let v = g.v_proj.forward(&x, &mut eval());
    let s = Var::einsum("bqhd,bkd->bhqk", &[&q, &k]) * 0.5f64.sqrt();
    let w = s.masked_softmax(&Tensor::ones([5, 5]).tril(0), -1);
    let o = Var::einsum("bhqk,bkd->bqhd", &[&w, &v]).reshape([2, 5, 8]);
    let b = g.o_proj.forward(&o, &mut eval());
    equal("GQA(1) = MQA", 1e-12, &[(&a, &b)], &[&x]);
}

#[test]
fn pooling_takes_means_of_neighbours() {
    let m = mha(8, 4);
    let g = GroupedQueryAttention::from_multi_head(&m, 2);
    let w = m.state_dict()["in_proj_weight"].clone(); // keys are rows 8 to 15, two for a head
    let k = g.k_proj.weight.value();
    for (i, j) in [(0, 0), (1, 5), (2, 3), (3, 7)] {
        let (group, d) = (i / 2, i % 2);
        let head = |h: usize| w.at(&[8 + 2 * h + d, j]);
        let want = (head(2 * group) + head(2 * group + 1)) / 2.0;
        assert!((k.at(&[i, j]) - want).abs() < 1e-15);
    }
    assert_eq!(g.q_proj.weight.value().to_vec(), w.narrow(0, 0, 8).to_vec());
    assert_eq!(g.k_proj.bias.as_ref().unwrap().shape(), [4]);
    // The parameters are new ones.
    m.out_proj.weight.set(Tensor::zeros([8, 8]));
    assert!(g.o_proj.weight.value().to_vec().iter().any(|&x| x != 0.0));
}

#[test]
fn cross_of_a_sequence_to_itself_is_self() {
    let x = var(&[2, 5, 4], 1);
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1));
    let c = CrossAttention::new(4, 4, 3, 2, &mut Rng::new(2));
    c.load_state_dict(&s.state_dict()).unwrap();
    let a = s.forward_with_weights(&x, Mask::causal(), &mut eval());
    let b = c.forward_with_weights(&x, &x, Mask::causal(), &mut eval());
    equal("cross with x1 = x2 = self, one head", 0.0, &[(&a.0, &b.0), (&a.1, &b.1)], &[&x]);

    let m = mha(4, 2);
    let c = MultiHeadCrossAttention::new(4, 4, 2, &mut Rng::new(2));
    c.load_state_dict(&m.state_dict()).unwrap();
    let a = m.forward(&x, &x, &x, Mask::Full, &mut eval());
    let b = c.forward(&x, &x, Mask::Full, &mut eval());
    equal("cross with x1 = x2 = self, heads", 0.0, &[(&a, &b)], &[&x]);
}

#[test]
fn one_head_is_self_attention() {
    let m = MultiHeadAttention::new(
        &MultiHeadConfig { bias: false, ..MultiHeadConfig::new(4, 1) },
        &mut Rng::new(1),
    );
    m.out_proj.weight.set(Tensor::eye(4));
    let s = SelfAttention::new(4, 4, 4, &mut Rng::new(2));
    let state = m.state_dict();
    let parts = |i| state["in_proj_weight"].narrow(0, 4 * i, 4);
    let names = ["W_query.weight", "W_key.weight", "W_value.weight"];
    let dict = names.iter().enumerate().map(|(i, n)| (n.to_string(), parts(i))).collect();
    s.load_state_dict(&dict).unwrap();
    let x = var(&[2, 5, 4], 1);
    let a = m.forward(&x, &x, &x, Mask::causal(), &mut eval());
    let b = s.forward(&x, Mask::causal(), &mut eval());
    equal("MHA(H = 1, W_out = 1) = self-attention", 1e-12, &[(&a, &b)], &[&x]);
    let s = SelfAttention::new(4, 4, 4, &mut Rng::new(2));
    s.visit(&mut |_, p| p.set(Tensor::eye(4)));
    let b = s.forward(&x, Spec::new().scale(1.0), &mut eval());
    equal("self-attention of identities = plain", 1e-12, &[(&plain_self_attention(&x), &b)], &[&x]);
    let y = x.softmax(-1); // and the definition, for one that is not batched
    let y = y.select(0, 1);
    let want = y.matmul(&y.t()).softmax(-1).matmul(&y);
    equal("plain = softmax(x xᵀ) x", 1e-12, &[(&plain_self_attention(&y), &want)], &[&x]);
}

#[test]
fn wrapper_is_multi_head_with_block_weights() {
    let (heads, width, d) = (3, 6, 2);
    let mut rng = Rng::new(1);
    let w = MultiHeadWrapper::new(heads, width, d, d, &mut rng);
    let w = w.project(Linear::new(width, width, &mut rng));
    let m = mha(width, heads);
    let state = w.state_dict();
    let stack = |name: &str| {
        let parts: Vec<_> = (0..heads).map(|h| &state[&format!("heads.{h}.{name}")]).collect();
        Tensor::cat(&parts, 0)
    };
    let all = ["W_query.weight", "W_key.weight", "W_value.weight"].map(stack);
    let dict = [
        ("in_proj_weight", Tensor::cat(&all.each_ref(), 0)),
        ("in_proj_bias", Tensor::zeros([3 * width])),
        ("out_proj.weight", state["out_proj.weight"].clone()),
        ("out_proj.bias", state["out_proj.bias"].clone()),
    ];
    m.load_state_dict(&dict.into_iter().map(|(n, t)| (n.to_string(), t)).collect()).unwrap();
    let x = var(&[2, 5, width], 1);
    let a = w.forward_with_weights(&x, Mask::causal(), &mut eval());
    let b = m.forward_with_weights(&x, &x, &x, Mask::causal(), &mut eval());
    equal("wrapper of H heads = MHA of block weights", 1e-12, &[(&a.0, &b.0), (&a.1, &b.1)], &[&x]);

    // Along the first axis the same numbers stand elsewhere.
    let sides = MultiHeadWrapper::from_heads(w.heads.clone());
    let below = sides.clone().concat(Concat::First);
    let a = sides.forward(&x, Mask::Full, &mut eval()).reshape([2, 5, heads, d]);
    let b = below.forward(&x, Mask::Full, &mut eval()).reshape([heads, 2, 5, d]);
    let a = a.permute([2, 0, 1, 3]);
    equal("wrapper: first axis = features, moved", 0.0, &[(&a, &b)], &[&x]);
}

#[test]
fn renormalized_is_masked_softmax() {
    let masks = [
        Mask::Full,
        Mask::causal(),
        Mask::lengths(&[5, 2]),
        Mask::causal() & !Mask::first(2), // the first two queries see nothing
    ];
    for mask in masks {
        let x = var(&[2, 5, 4], 1);
        let r = RenormalizedSelfAttention::new(4, 3, 2, &mut Rng::new(1));
        let s = SelfAttention::new(4, 3, 2, &mut Rng::new(2));
        s.load_state_dict(&r.state_dict()).unwrap();
        let a = r.forward_with_weights(&x, &mask, &mut eval());
        let b = s.forward_with_weights(&x, mask.clone(), &mut eval());
        let what = format!("renormalised = masked softmax, {mask:?}");
        equal(&what, 1e-12, &[(&a.0, &b.0), (&a.1, &b.1)], &[&x]);
    }
}

#[test]
fn renormalizing_underflows_where_a_masked_softmax_does_not() {
    let s = Var::constant(Tensor::from([[0.0f32, 1.0, 200.0]]));
    let keep = Tensor::from([[true, true, false]]);
    let renormalized = renormalize(&s.softmax(-1), &keep);
    assert_eq!(renormalized.value().to_vec(), [0.0; 3]);
    let masked = s.masked_softmax(&keep, -1).value().to_vec();
    assert!((masked[1] - 0.731_058_6).abs() < 1e-6);
    // Before all is lost, the digits go.
    let s = Var::constant(Tensor::from([[0.0f32, 1.0, 100.0]]));
    let renormalized = renormalize(&s.softmax(-1), &keep).value().to_vec();
    let off = (renormalized[1] - masked[1]).abs();
    println!("99 below a masked score, f32: renormalised differs by {off:.1e}");
    assert!(off > 1e-5 && renormalized[1] > 0.0);
}

#[test]
fn padded_is_truncated() {
    let m = mha(4, 2);
    let x = var(&[2, 5, 4], 1);
    let short = x.narrow(1, 0, 3);
    let padding = Tensor::from_fn([2, 1, 1, 5], |i| i[3] >= 3);
    let a = m.forward(&short, &short, &short, Mask::Full, &mut eval());
    for (name, mask) in [("lengths", Mask::lengths(&[3, 3])), ("dense", Mask::drop(&padding))] {
        let b = m.forward(&x, &x, &x, mask, &mut eval()).narrow(1, 0, 3);
        equal(&format!("padded = truncated, by {name}"), 1e-12, &[(&a, &b)], &[&x]);
    }
}

#[test]
fn order_of_keys_does_not_matter() {
    let order = Tensor::from([3i64, 0, 4, 1, 2]);
    let x = var(&[2, 3, 4], 1);
    let other = var(&[2, 5, 6], 2);
    let moved = other.index_select(1, &order);
    let c = CrossAttention::new(4, 6, 3, 2, &mut Rng::new(1));
    let a = c.forward(&x, &other, Mask::Full, &mut eval());
    let b = c.forward(&x, &moved, Mask::Full, &mut eval());
    equal("permuted keys and values, one head", 1e-12, &[(&a, &b)], &[&x, &other]);
    let m = MultiHeadCrossAttention::new(4, 6, 2, &mut Rng::new(1));
    let a = m.forward_with_weights(&x, &other, Mask::Full, &mut eval());
    let b = m.forward_with_weights(&x, &moved, Mask::Full, &mut eval());
    let w = a.1.index_select(-1, &order);
    equal("permuted keys and values, heads", 1e-12, &[(&a.0, &b.0), (&w, &b.1)], &[&x, &other]);
}

#[test]
fn causal_attention_does_not_see_the_future() {
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1));
    let m = mha(4, 2);
    let w = MultiHeadWrapper::new(2, 4, 2, 2, &mut Rng::new(1));
    let g = GroupedQueryAttention::new(4, 4, 2, &mut Rng::new(1));
    type Run<'a> = &'a dyn Fn(&Var<f64>) -> Var<f64>;
    let runs: [(&str, Run<'_>); 4] = [
        ("self-attention", &|x| s.forward(x, Mask::causal(), &mut eval())),
        ("multi-head", &|x| m.forward(x, x, x, Mask::causal(), &mut eval())),
        ("wrapper", &|x| w.forward(x, Mask::causal(), &mut eval())),
        ("grouped", &|x| g.forward(x, Mask::causal(), &mut eval())),
    ];
    let x = input(&[2, 7, 4], 1);
    for (name, run) in runs {
        let y = run(&Var::constant(x.clone())).into_value();
        for t in 0..7 {
            for with in [5.0, 1e30, f64::NAN] {
                let mut changed = x.clone();
                changed.make_mut()[4 * t..4 * (t + 1)].fill(with);
                let changed = run(&Var::constant(changed)).into_value();
                let bits = |y: &Tensor<f64>| -> Vec<u64> {
                    y.narrow(1, 0, t).to_vec().into_iter().map(f64::to_bits).collect()
                };
                assert!(bits(&y) == bits(&changed), "{name}: token {t} changed an earlier one");
            }
            // The Jacobian is block lower triangular.
            let x = Var::leaf(x.clone());
            let g = run(&x).narrow(1, 0, t).sum(..).backward();
            let late = g.get(&x).unwrap().narrow(1, t, 7 - t).to_vec();
            assert!(late.iter().all(|&g| g == 0.0), "{name}: tokens before {t} depend on later");
        }
    }
    println!("{:62} bit-identical", "causal: a token and those before it");
}

#[test]
fn extra_keys_are_sinks() {
    // A key and value of 0 is a logit of 0 that gives nothing.
    let config = MultiHeadConfig { zero_attn: true, ..MultiHeadConfig::new(4, 2) };
    let zero = MultiHeadAttention::new(&config, &mut Rng::new(1));
    let m = mha(4, 2);
    zero.load_state_dict(&m.state_dict()).unwrap();
    let x = var(&[2, 5, 4], 1);
    for spec in
        [Spec::new(), Spec::new().causal().bias(Bias::alibi(2)), Mask::lengths(&[5, 0]).into()]
    {
        let a = zero.forward(&x, &x, &x, &spec, &mut eval());
        let b = m.forward(&x, &x, &x, spec.sink(Sink::Zero), &mut eval());
        equal("zero_attn = a sink of 0", 1e-12, &[(&a, &b)], &[&x]);
    }
}

#[test]
fn dropout_is_of_weights_and_in_training_only() {
    let x = var(&[2, 5, 4], 1);
    let config = MultiHeadConfig { dropout: 0.4, ..MultiHeadConfig::new(4, 2) };
    let m = MultiHeadAttention::new(&config, &mut Rng::new(1));
    let dry = MultiHeadAttention::new(&MultiHeadConfig::new(4, 2), &mut Rng::new(2));
    dry.load_state_dict(&m.state_dict()).unwrap();
    let a = m.forward(&x, &x, &x, Mask::causal(), &mut eval());
    let b = dry.forward(&x, &x, &x, Mask::causal(), &mut Pass::train(1));
    equal("dropout in evaluation = none", 0.0, &[(&a, &b)], &[&x]);

    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(0.4);
    let (a, weights) = s.forward_with_weights(&x, Mask::causal(), &mut Pass::train(1));
    let dropped = weights.dropout(0.4, Pass::train(1).key().unwrap());
    let b = dropped.matmul(&s.attention.value.forward(&x, &mut eval()));
    equal("dropout = of the weights, returned before it", 1e-12, &[(&a, &b)], &[&x]);
    assert_ne!(
        s.forward(&x, Mask::causal(), &mut Pass::train(2)).value().to_vec(),
        a.value().to_vec()
    );
    assert_eq!(
        s.forward(&x, Mask::causal(), &mut Pass::train(1)).value().to_vec(),
        a.value().to_vec()
    );

    let all = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(1.0);
    let y = all.forward(&x, Mask::Full, &mut Pass::train(1));
    assert!(y.value().to_vec().iter().all(|&y| y == 0.0));

    // In the mean, nothing changes.
    let s = SelfAttention::new(4, 3, 2, &mut Rng::new(1)).dropout(0.4);
    let dry = s.forward(&x, Mask::Full, &mut eval()).into_value();
    let n = 4000;
    let mut sum = Tensor::zeros(dry.shape());
    for seed in 0..n {
        sum = &sum + s.forward(&x, Mask::Full, &mut Pass::train(seed)).value();
    }
    let off = difference(&sum.mul_scalar(1.0 / n as f64), &dry);
    println!("mean of {n} passes with dropout 0.4: {off:.1e} from none");
    assert!(off < 0.06, "{off}");
}

#[test]
fn fused_causal_is_multi_head() {
    // The same weights under nanoGPT's names and PyTorch's; any number of batch axes.
    let config = GptConfig {
        vocab: 1,
        context: 8,
        layers: 1,
        heads: 2,
        width: 4,
        dropout: 0.0,
        bias: true,
        tied: true,
    };
    let c = CausalSelfAttention::new(&config, &mut Rng::new(1));
    let m = mha(4, 2);
    let names = [
        ("c_attn.weight", "in_proj_weight"),
        ("c_attn.bias", "in_proj_bias"),
        ("c_proj.weight", "out_proj.weight"),
        ("c_proj.bias", "out_proj.bias"),
    ];
    let state = m.state_dict();
    let dict = names.map(|(ours, theirs)| (ours.to_string(), state[theirs].clone()));
    c.load_state_dict(&dict.into_iter().collect()).unwrap();
    for shape in [&[5, 4][..], &[2, 5, 4], &[2, 3, 5, 4], &[2, 0, 5, 4]] {
        let x = var(shape, 1);
        let flat = x.reshape([shape[..shape.len() - 2].iter().product(), 5, 4]);
        let a = c.forward_with_weights(&x, &mut eval());
        let b = m.forward_with_weights(&flat, &flat, &flat, Mask::causal(), &mut eval());
        let (y, w) = (b.0.reshape(a.0.shape()), b.1.reshape(a.1.shape()));
        let what = format!("fused causal = MHA with a causal mask, {shape:?}");
        equal(&what, 1e-12, &[(&a.0, &y), (&a.1, &w)], &[&x]);
        let z = c.forward(&x, &mut eval());
        equal(&what, 0.0, &[(&a.0, &z)], &[&x]);
    }
}

// ---------------------------------------------------------------------------------- odd input

#[test]
fn nothing_to_see_gives_nothing() {
    let m = mha(4, 2);
    let bias = m.out_proj.bias.as_ref().unwrap().value().to_vec();
    let run = |lq: usize, lk: usize, batch: usize, mask: Mask| {
        let (x, other) = (var(&[batch, lq, 4], 1), var(&[batch, lk, 4], 2));
        let (y, w) = m.forward_with_weights(&x, &other, &other, mask, &mut eval());
        assert_eq!(*y.shape(), [batch, lq, 4]);
        assert_eq!(*w.shape(), [batch, 2, lq, lk]);
        let g = y.sum(..).backward();
        let zero = |v: &Var<f64>| g.get(v).is_none_or(|g| g.to_vec().iter().all(|&g| g == 0.0));
        assert!(zero(&x) && zero(&other));
        assert!(y.value().to_vec().chunks(4).all(|row| row == bias), "output is b_out");
        assert!(w.value().to_vec().iter().all(|&w| w == 0.0));
    };
    run(3, 0, 2, Mask::Full); // Lk = 0
    run(0, 3, 2, Mask::Full); // Lq = 0
    run(3, 3, 0, Mask::Full); // batch 0
    run(0, 0, 0, Mask::causal());
    run(3, 3, 2, !Mask::Full); // masked altogether

    let c = CrossAttention::new(4, 5, 3, 2, &mut Rng::new(1));
    let y = c.forward(&var(&[3, 4], 1), &var(&[0, 5], 1), Mask::Full, &mut eval());
    assert_eq!(y.value().to_vec(), [0.0; 6]);
    let g = GroupedQueryAttention::<f64>::new(4, 4, 2, &mut Rng::new(1));
    assert_eq!(*g.forward(&var(&[2, 0, 4], 1), Mask::causal(), &mut eval()).shape(), [2, 0, 4]);
    assert_eq!(*g.forward(&var(&[0, 3, 4], 1), Mask::causal(), &mut eval()).shape(), [0, 3, 4]);
    let w = MultiHeadWrapper::<f64>::new(2, 4, 2, 2, &mut Rng::new(1));
    assert_eq!(*w.forward(&var(&[2, 0, 4], 1), Mask::Full, &mut eval()).shape(), [2, 0, 4]);
    let r = RenormalizedSelfAttention::new(4, 3, 2, &mut Rng::new(1));
    assert_eq!(*r.forward(&var(&[0, 4], 1), &Mask::causal(), &mut eval()).shape(), [0, 2]);
    assert_eq!(*plain_self_attention(&var(&[0, 4], 1)).shape(), [0, 4]);
}

#[test]
fn a_bias_of_minus_infinity_masks() {
    // Whole rows of it, too; by an additive tensor and by a rule, on both paths.
    use retrograd_nn::attention::Path;
    let low = f64::NEG_INFINITY;
    let hides = |q: usize, k: usize| q == 1 || k == 2;
    let table = Tensor::from_fn([3, 4], |i| if hides(i[0], i[1]) { low } else { 0.0 });
    let (q, k, v) = (var(&[3, 2], 1), var(&[4, 2], 2), var(&[4, 2], 3));
    let keep = Mask::keep(&Tensor::from_fn([3, 4], |i| !hides(i[0], i[1])));
    let want = attend(&q, &k, &v, &Spec::from(keep));
    let top = || Spec::new().align(Align::TopLeft);
    let added = top().bias(Bias::Additive(Var::constant(table)));
    let rule =
        top().bias(Bias::rule(
            "hide",
            move |at| if hides(at.query as usize, at.key) { low } else { 0.0 },
        ));
    for (name, spec) in [
        ("tensor", added),
        ("rule, composed", rule.clone().path(Path::Composed)),
        ("rule, tiled", rule.path(Path::Tiled)),
    ] {
        let y = attend(&q, &k, &v, &spec);
        equal(&format!("bias of -inf = mask, {name}"), 1e-12, &[(&y, &want)], &[&q, &k, &v]);
    }
}

fn message<R>(f: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(f()))).expect_err("should panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().unwrap().to_string(),
    }
}

#[test]
fn misfits_are_told() {
    let rng = || Rng::new(1);
    let has = |text: String, part: &str| assert!(text.contains(part), "{text}");
    has(
        message(|| MultiHeadAttention::<f64>::new(&MultiHeadConfig::new(6, 4), &mut rng())),
        "4 heads do not divide a width of 6",
    );
    has(
        message(|| MultiHeadAttention::<f64>::new(&MultiHeadConfig::new(6, 0), &mut rng())),
        "0 heads do not divide a width of 6",
    );
    has(
        message(|| GroupedQueryAttention::<f64>::new(8, 4, 3, &mut rng())),
        "3 key heads do not divide 4 heads",
    );
    has(
        message(|| GroupedQueryAttention::from_multi_head(&mha(8, 4), 3)),
        "3 key heads do not divide 4 heads",
    );
    has(
        message(|| {
            let config = MultiHeadConfig { key_width: 5, ..MultiHeadConfig::new(8, 4) };
            let m = MultiHeadAttention::<f64>::new(&config, &mut rng());
            GroupedQueryAttention::from_multi_head(&m, 2)
        }),
        "keys of width 5 and values of width 8 for queries of 8",
    );
    has(message(|| MultiHeadWrapper::<f64>::new(0, 4, 2, 2, &mut rng())), "at least 1 head");
    has(message(|| SelfAttention::<f64>::new(4, 3, 2, &mut rng()).dropout(1.5)), "got 1.5");

    let m = mha(4, 2);
    let x = var(&[2, 5, 4], 1);
    let run = |q: &Var<f64>, k: &Var<f64>, v: &Var<f64>, mask: Mask| {
        message(|| m.forward(q, k, v, mask, &mut eval()))
    };
    let wide = var(&[2, 5, 3], 1);
    has(
        run(&x, &wide, &x, Mask::Full),
        "key must be [length, 4] or [batch, length, 4], got [2, 5, 3]",
    );
    let long = var(&[2, 6, 4], 1);
    has(run(&x, &x, &long, Mask::Full), "k and v have different lengths");
    let more = var(&[3, 5, 4], 1);
    has(run(&x, &more, &more, Mask::Full), "batches differ");
    has(
        run(&x, &x, &x, Mask::keep(&Tensor::ones([5, 4]))),
        "[1, 1, 5, 4] does not broadcast to [2, 2, 5, 5]",
    );
    has(run(&x, &x, &x, Mask::lengths(&[6, 1])), "a length of 6 for 5 keys");
    has(run(&x, &x, &x, Mask::lengths(&[1, 2, 3])), "3 lengths for a batch of 2");
    let deep = var(&[1, 2, 5, 4], 1);
    has(run(&deep, &deep, &deep, Mask::Full), "got [1, 2, 5, 4]");
    let s = SelfAttention::new(4, 3, 2, &mut rng());
    has(message(|| s.forward(&wide, Mask::Full, &mut eval())), "matmul");
    let r = RenormalizedSelfAttention::new(4, 3, 2, &mut rng());
    let small = Mask::keep(&Tensor::ones([4, 4]));
    has(message(|| r.forward(&x, &small, &mut eval())), "does not broadcast to [2, 1, 5, 5]");
    let state = mha(4, 2).state_dict();
    let config = MultiHeadConfig { value_width: 3, ..MultiHeadConfig::new(4, 2) };
    let error = MultiHeadAttention::new(&config, &mut rng()).load_state_dict(&state).unwrap_err();
    assert_eq!(error.missing, ["q_proj_weight", "k_proj_weight", "v_proj_weight"]);
    assert_eq!(error.unexpected, ["in_proj_weight"]);
}
