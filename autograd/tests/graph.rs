//! The graph and the engine: lifetimes, order, partial tracking, concurrency.

use retrograd_autograd::{
    Backprop, Cx, Fused, Id, InputGrads, Op, Slot, Var, grad, jvp, no_grad, pairwise_sum,
    shard_weights, sharded, with_threads,
};
use retrograd_support::panics::{catch, panic_here, panic_text};
use retrograd_support::{panics, panics_here};
use retrograd_tensor::Tensor;
use retrograd_tensor::ops::activation::Gelu;
use retrograd_tensor::random::Rng;

fn leaf(x: f64) -> Var<f64> {
    Var::leaf(Tensor::scalar(x))
}

#[test]
fn invalid_calls_are_reported_at_the_line_of_the_caller() {
    let x = leaf(2.0);
    let y = x.exp();
    drop(y.backward());
    let freed = "freed by an earlier backward pass (hint: Backprop::retain_graph keeps them)";
    let three = Var::leaf(Tensor::<f64>::ones([3]));
    panics_here! {
        y.backward() => freed;
        y.backward_with(&Tensor::scalar(1.0)) => freed;
        Backprop::from(&y).retain_graph().run() => freed;
        grad(&[(&y, None)], &[&x]) => freed;
        sharded(&[1, 1, 1], |_| y.clone()) => freed;
        three.backward() => "has shape [3], not one element";
        three.backward() => "give a cotangent with backward_with";
        three.exp().backward_with(&Tensor::ones([2])) => "the variable is [3], its cotangent [2]";
        no_grad(|| x.exp()).backward() => "is a constant";
        sharded(&[1], |_| three.exp()) => "has shape [3], not one element";
        sharded(&[1, 1], |_| x.detach()) => "is a constant";
        sharded(&[], |_| x.exp()) => "sharded: needs the count";
        with_threads(0, || ()) => "with_threads: needs at least 1 thread, got 0";
    }
    // One element, broadcast to more elements than fit into memory.
    let wide = Var::leaf(Tensor::<f64>::ones([1]).broadcast_to([1 << (usize::BITS * 5 / 7)]));
    let one = Var::constant(Tensor::ones([1, 1]));
    panics_here! {
        wide.relu() => "relu: no memory for";
        wide.exp() => "exp: no memory for";
        -&wide => "neg: no memory for";
        &wide + 1.0 => "add_scalar: no memory for";
        &wide * &wide => "mul: no memory for";
        wide.softmax(0) => "contiguous: no memory for";
        wide.unsqueeze(1).linear(&one, None) => "matmul: no memory for";
    }
    // Within a pool too, on whichever thread the panic occurs.
    with_threads(3, || {
        panics_here! {
            sharded(&[1; 8], |_| y.clone()) => freed;
        }
    });
}

#[test]
fn long_graphs_need_no_recursion() {
    let work = || {
        let x = leaf(1.0);
        let mut y = x.clone();
        for _ in 0..1_000_000 {
            y = y.add_scalar(1e-6);
        }
        let forward = y.clone();
        assert_eq!(y.backward().get(&x).unwrap().item(), 1.0);
        drop(y); // drops the freed nodes without recursion
        assert!((forward.item() - 2.0).abs() < 1e-9);
        drop(forward);

        // A graph that is dropped without a backward pass.
        let mut z = x.clone();
        for _ in 0..1_000_000 {
            z = z.neg();
        }
    };
    retrograd_support::with_stack(64 << 10, work);
}

#[test]
fn gradients_accumulate_over_shared_subexpressions_and_repeated_operands() {
    let x = leaf(3.0);
    let y = x.mul(&x);
    let z = y.add(&y).mul(&y); // 2x⁴
    assert_eq!(z.backward().get(&x).unwrap().item(), 8.0 * 27.0);

    // 2^60 paths through 60 diamonds.
    let mut y = x.clone();
    for _ in 0..60 {
        y = y.add(&y);
    }
    assert_eq!(y.backward().get(&x).unwrap().item(), 2f64.powi(60));
}

#[test]
fn gradients_of_a_variable_with_many_consumers_are_summed() {
    let x = leaf(2.0);
    let parts: Vec<Var<f64>> = (0..100_000).map(|i| x.mul_scalar(i as f64).unsqueeze(0)).collect();
    let sum = Var::cat(&parts.iter().collect::<Vec<_>>(), 0).sum(..);
    assert_eq!(sum.backward().get(&x).unwrap().item(), (0..100_000).sum::<i64>() as f64);
}

#[test]
fn a_second_pass_requires_a_retained_graph() {
    let x = leaf(2.0);
    let y = x.exp();
    let first = Backprop::from(&y).retain_graph().run();
    let second = y.backward();
    assert_eq!(first.get(&x).unwrap(), second.get(&x).unwrap());
}

#[test]
fn operations_on_constants_are_not_recorded() {
    let x = leaf(1.0);
    assert!(!no_grad(|| x.exp()).is_tracked());
    let failed = catch(|| no_grad(|| panic!("inside")));
    assert!(failed.is_err() && x.exp().is_tracked());
    assert!(!Var::scalar(1.0).add(&Var::scalar(2.0)).is_tracked());
    let cut = x.exp().detach().mul(&x);
    assert_eq!(cut.backward().get(&x).unwrap(), x.exp().value());
}

#[test]
fn unreached_variables_have_no_gradient_and_intermediate_ones_if_requested() {
    let (x, other) = (leaf(1.0), leaf(1.0));
    let h = x.exp();
    let y = h.square();
    let grads = Backprop::from(&y).keep(&h).run();
    assert_eq!(grads.get(&h).unwrap(), &h.value().mul_scalar(2.0));
    assert!(grads.get(&other).is_none());
    assert!(grads.get(&y).is_none(), "not requested");
    assert_eq!(grads.len(), 2);
}

#[test]
fn gradients_of_several_roots_are_summed() {
    let x = leaf(2.0);
    let (a, b) = (x.square(), x.mul_scalar(3.0));
    let grads = Backprop::from(&a).and(&b).cotangent(Tensor::scalar(10.0)).run();
    assert_eq!(grads.get(&x).unwrap().item(), 4.0 + 30.0);
}

#[test]
fn second_derivatives_can_share_a_graph() {
    // f = x³y: d²f/dxdy = 3x²
    let (x, y) = (leaf(2.0), leaf(5.0));
    let f = x.powf(3.0).mul(&y);
    let dx = grad(&[(&f, None)], &[&x])[0].clone().unwrap();
    let mixed = grad(&[(&dx, None)], &[&x, &y]);
    assert_eq!(mixed[0].as_ref().unwrap().item(), 60.0);
    assert_eq!(mixed[1].as_ref().unwrap().item(), 12.0);
    // The first graph is retained.
    assert_eq!(f.backward().get(&y).unwrap().item(), 8.0);
}

#[test]
fn later_writes_do_not_change_saved_tensors() {
    let mut x = Var::leaf(Tensor::from([1.0f64, 2.0]));
    let y = x.square().sum(..);
    x.leaf_value_mut().make_mut()[0] = 100.0;
    assert_eq!(y.backward().get(&x).unwrap().to_vec(), [2.0, 4.0]);
    assert_eq!(x.value().to_vec(), [100.0, 2.0]);
}

#[test]
fn grad_within_no_grad_gives_equal_constants() {
    let x = Var::leaf(Tensor::from([[0.3f64, -1.2, 2.0], [1.0, 0.5, -0.4]]));
    let w = Var::leaf(Tensor::from([0.7f64, 1.1, -0.2]));
    // Including fused operations, which have another rule in a recorded pass.
    let h = x.layer_norm(Some(&w), None, 1e-5).softmax(-1);
    let y = h.mul(&x.prod_keepdim(0)).sum(..);
    let v = Var::leaf(Tensor::scalar(2.0f64));
    let recorded = grad(&[(&y, Some(&v))], &[&x, &w]);
    let constant = no_grad(|| grad(&[(&y, Some(&v))], &[&x, &w]));
    for (a, b) in recorded.into_iter().zip(constant) {
        let (a, b) = (a.expect("a gradient"), b.expect("a gradient"));
        assert!(a.is_tracked() && !b.is_tracked());
        for (a, b) in a.value().to_vec().into_iter().zip(b.value().to_vec()) {
            assert!((a - b).abs() <= 1e-12, "{a} and {b}");
        }
    }
}

#[test]
fn a_constant_has_no_gradient() {
    let x = Var::leaf(Tensor::scalar(1.0f64));
    let (y, constant) = (x.exp(), Var::constant(Tensor::scalar(1.0)));
    panics! {
        Backprop::from(&y).keep(&constant) => "backward: the variable to keep is a constant";
        grad(&[(&y, None)], &[&x, &constant]) => "grad: input 1 is not tracked";
    }
}

#[test]
fn shapes_of_both_layers_are_reported_at_the_line_of_the_caller() {
    let leaf = |shape: &[usize]| Var::leaf(Tensor::<f64>::ones(shape));
    let (x, up, down, wrong) = (leaf(&[2, 3]), leaf(&[4, 3]), leaf(&[3, 4]), leaf(&[7, 7]));
    let hint = "(hint: [.., inputs], [outputs, inputs] and [outputs] go together)";
    let of = |x| format!("linear: [2, {x}], weight [7, 7] {hint}");
    panics! {
        x.linear_activation(&wrong, None, Gelu) => of(3);
        x.feed_forward((&wrong, None), Gelu, (&down, None)) => of(3);
        x.feed_forward((&up, None), Gelu, (&wrong, None)) => of(4);
        x.feed_forward_add((&up, None), Gelu, (&down, None), &wrong) =>
            "linear_add: a residual [7, 7] to a result [2, 3]";
    }
}

/// The first element and the rest, as two results of one operation.
fn two_parts(x: &Var<f64>) -> Vec<Var<f64>> {
    let n = x.size(0);
    let parts = vec![x.value().narrow(0, 0, 1), x.value().narrow(0, 1, n - 1)];
    Var::from_op_outputs(const { &Op::new("two_parts", &["x"]) }, parts, [x], |[x]| {
        let x = x.slot();
        move |_, g| InputGrads::of(&x, || Var::cat(&[&g[0], &g[1]], 0))
    })
}

/// `exp(x)` and `exp(-x)`, whose derivatives are those results.
fn exp_and_inverse(x: &Var<f64>) -> Vec<Var<f64>> {
    let values = vec![x.value().exp(), x.value().neg().exp()];
    let [y, z] = [values[0].clone(), values[1].clone()];
    Var::from_op_outputs(const { &Op::new("exp_and_inverse", &["x"]) }, values, [x], |[x]| {
        let x = x.slot();
        move |cx, g| {
            let (y, z) = (cx.output_at(0, &y), cx.output_at(1, &z));
            InputGrads::of(&x, || &g[0] * &y - &g[1] * &z)
        }
    })
}

/// A product whose rule has a tangent for `x`, and a gradient for `y`.
#[test]
fn the_tangent_of_a_rule_is_added_to_those_of_its_gradients() {
    let product = |z: &[Var<f64>; 2]| {
        let op = const { &Op::new("product", &["x", "y"]) };
        Var::from_op(op, z[0].value().mul(z[1].value()), [&z[0], &z[1]], |[x, y]| {
            let (x, y) = (x.save(), y.save());
            move |cx, g| {
                let by_x = match cx.tangents() {
                    Some(t) => InputGrads::tangent([t.of(&x).map(|t| t.mul(&cx.input(&y)))]),
                    None => InputGrads::of(&x, || g.mul(&cx.input(&y))),
                };
                by_x.and(&y, || g.mul(&cx.input(&x)))
            }
        })
    };
    let [x, v] = [[2.0, 3.0], [5.0, 7.0]].map(|pair| pair.map(leaf));
    assert_eq!(jvp(product, &x, &v).1.item(), 5.0 * 3.0 + 2.0 * 7.0);
}

#[test]
fn each_of_several_results_is_connected_in_a_recorded_pass() {
    let x = leaf(2.0);
    for (i, sign) in [(0, 1.0), (1, -1.0)] {
        let y = &exp_and_inverse(&x)[i];
        let dx = grad(&[(y, None)], &[&x])[0].clone().unwrap();
        let ddx = grad(&[(&dx, None)], &[&x])[0].clone().unwrap();
        assert!((dx.item() - sign * (sign * 2.0f64).exp()).abs() < 1e-12, "{i}");
        assert!((ddx.item() - (sign * 2.0f64).exp()).abs() < 1e-12, "{i}");
    }
}

/// The parts of a split can be differentiated in separate passes.
#[test]
fn parts_of_a_split_can_be_differentiated_separately() {
    let x = Var::leaf(Tensor::from([1.0, 2.0, 3.0]));
    let parts = x.split(0, &[1, 2]);
    assert_eq!(parts[0].sum(..).backward().get(&x).unwrap().to_vec(), [1.0, 0.0, 0.0]);
    assert_eq!(parts[1].sum(..).backward().get(&x).unwrap().to_vec(), [0.0, 1.0, 1.0]);
}

/// At the boundary of two branches, all derivatives are those of one branch.
#[test]
fn higher_derivatives_of_elu_at_0() {
    let x = leaf(0.0);
    let mut y = x.elu(0.7);
    for order in 1..=3 {
        y = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
        assert_eq!(y.item(), 0.7, "order {order}");
    }
}

/// Each result has its own id and gradient, and may be unused.
#[test]
fn operations_have_several_results() {
    let x = Var::leaf(Tensor::from([1.0, 2.0, 3.0, 4.0]));
    let parts = two_parts(&x.square());
    let ids: Vec<Id> = parts.iter().map(|p| p.id().unwrap()).collect();
    assert!(ids[0] < ids[1] && parts[0].node().unwrap().outputs().len() == 2);
    for used in [vec![0], vec![1], vec![0, 1]] {
        let sums: Vec<Var<f64>> = used.iter().map(|&i| parts[i].exp().sum(..)).collect();
        let y = sums.iter().fold(Var::scalar(0.0), |sum, x| &sum + x);
        let grads = used
            .iter()
            .fold(Backprop::from(&y).retain_graph(), |pass, &i| pass.keep(&parts[i]))
            .run();
        for (i, part) in parts.iter().enumerate() {
            let kept = grads.get(part).map(|g| g.to_vec());
            assert_eq!(kept, used.contains(&i).then(|| part.exp().value().to_vec()));
        }
        let by_hand = |i: usize, x: f64| match used.contains(&usize::from(i > 0)) {
            true => 2.0 * x * (x * x).exp(),
            false => 0.0,
        };
        let expected: Vec<f64> =
            x.value().to_vec().into_iter().enumerate().map(|(i, x)| by_hand(i, x)).collect();
        for (a, b) in grads.get(&x).unwrap().to_vec().into_iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-12 * b.abs(), "{a} {b}");
        }
        // With respect to the second result, the pass ends at its operation.
        let found = grad(&[(&y, None)], &[&parts[1]])[0].clone();
        assert_eq!(found.is_some(), used.contains(&1));
        // Of a recorded pass, to second order.
        let dx = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
        assert!(grad(&[(&dx.sum(..), None)], &[&x])[0].is_some());
    }
}

#[test]
fn wrong_rules_are_reported_by_name() {
    let (a, b) = (leaf(1.0), leaf(2.0));
    let one = |rule: fn(Slot<f64>) -> InputGrads<f64>| {
        Var::from_op(const { &Op::new("one", &["a"]) }, a.value().clone(), [&a], |[a]| {
            let a = a.slot();
            move |_, _| rule(a.clone())
        })
    };
    let y = one(|_| InputGrads::none());
    let text = panic_here(|| drop(y.backward()));
    assert!(text.contains("the rule of `one` gives no gradient to input 0"), "{text}");

    let wide = Var::leaf(Tensor::<f64>::ones([3]));
    let y =
        Var::from_op(const { &Op::new("wide", &["x"]) }, wide.value().clone(), [&wide], |[x]| {
            let x = x.slot();
            move |_, _| InputGrads::of(&x, || Tensor::ones([2]))
        });
    let text = panic_here(|| drop(y.sum(..).backward()));
    assert!(text.contains("`wide` gives a gradient of shape [2] to input 0, which has shape [3]"));

    let mut slot = None;
    Var::from_op(const { &Op::new("first", &["a"]) }, a.value().clone(), [&a], |[a]| {
        let a = a.save();
        slot = Some(a.clone());
        move |_, g| InputGrads::of(&a, || g.clone())
    });
    let slot = slot.expect("recorded");
    let other = slot.clone();
    let y = Var::from_op(const { &Op::new("second", &["x"]) }, b.value().clone(), [&b], |_| {
        move |_, g| InputGrads::of(&other, || g.clone())
    });
    let text = panic_here(|| drop(y.backward()));
    assert!(text.contains("the rule of `second` uses another operation's slot"), "{text}");
    let y = Var::from_op(const { &Op::new("third", &["b"]) }, b.value().clone(), [&b], |[b]| {
        let b = b.slot();
        move |cx, _| InputGrads::of(&b, || cx.input(&slot))
    });
    let text = panic_text(|| drop(y.backward()));
    assert!(text.contains("the rule of `third` uses another operation's slot"), "{text}");
}

static CIRCULAR: Op = Op::new("circular", &["x"]);

/// `exp`, with a definition that uses its own result.
struct Circular {
    x: Slot<f64>,
    exp: Tensor<f64>,
}

impl Fused<f64> for Circular {
    fn vjp(&self, [g]: [&Tensor<f64>; 1]) -> InputGrads<f64> {
        InputGrads::of(&self.x, || g * &self.exp)
    }

    fn definition(&self, cx: &Cx<'_, f64>) -> [Var<f64>; 1] {
        [cx.output(&self.exp)]
    }
}

#[test]
fn a_definition_that_uses_its_result_is_an_error() {
    let x = leaf(1.0);
    let exp = x.value().exp();
    let [y] = Var::from_fused(&CIRCULAR, [exp.clone()], [&x], |[x]| Circular { x: x.slot(), exp });
    let text = panic_text(|| drop(grad(&[(&y, None)], &[&x])));
    assert!(text.contains("the definition of `circular` uses its own result"), "{text}");
}

#[test]
fn weights_are_shares_of_what_counts() {
    assert_eq!(shard_weights(&[0, 5, 0, 3]), [0.0, 0.625, 0.0, 0.375]);
    assert_eq!(shard_weights(&[0, 0, 0, 0]), [0.25; 4]);
}

#[test]
fn items_that_are_missing_are_left_out() {
    let sum = |items: &[&str]| {
        let items = items.iter().map(|x| (!x.is_empty()).then(|| x.to_string())).collect();
        pairwise_sum(items, |x, y| format!("({x}{y})"))
    };
    assert_eq!(sum(&["a", "b", "c", "d", "e", "f"]).unwrap(), "(((ab)(cd))(ef))");
    assert_eq!(sum(&["", "b", "c", "", "e"]).unwrap(), "((bc)e)");
    assert_eq!(sum(&["", ""]), None);
    assert_eq!(sum(&[]), None);
}

/// A part without a count is left out, and another does not reach `y`.
#[test]
fn gradients_of_parts_have_the_bits_of_accumulation_in_pairs() {
    let [x, y] = [&[300][..], &[7, 5]].map(|shape| Var::leaf(Tensor::<f32>::zeros(shape)));
    for parts in 1..10 {
        let counts: Vec<usize> = (0..parts).map(|i| usize::from(i != 4)).collect();
        let weights = shard_weights(&counts);
        let loss = |i: usize| {
            let rng = &mut Rng::new(i as u64);
            let (a, b) = (Tensor::randn([300], rng), Tensor::randn([5, 7], rng).t());
            let of_x = x.mul(&Var::constant(a)).sum(..);
            if i == 2 { of_x } else { of_x + y.mul(&Var::constant(b)).sum(..) }
        };
        let (_, sum) = sharded(&counts, loss);
        let alone = |i: usize| (counts[i] > 0).then(|| (loss(i) * weights[i] as f32).backward());
        let one_by_one = pairwise_sum((0..parts).map(alone).collect(), |mut a, b| {
            a.accumulate(b);
            a
        });
        let one_by_one = one_by_one.unwrap();
        assert_eq!(sum.len(), one_by_one.len());
        for ((id, a), (other, b)) in sum.iter().zip(one_by_one.iter()) {
            assert_eq!((id, a.to_vec()), (other, b.to_vec()));
        }
    }
}
