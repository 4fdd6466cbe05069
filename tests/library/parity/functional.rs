//! Derivatives by name against torch.func, by tests/fixtures/functional.safetensors.

use super::{Bound, Fixture, close};
use retrograd::autograd::{
    Hessian, Vars, diagonal, gauss_newton_product, grad_and_value, hessian, hvp, jacobian, jvp,
    lanczos, per_sample, power_iteration, trace, vjp,
};
use retrograd::nn::attention::{Mask, Spec, attend};
use retrograd::nn::checkpoint::AnyTensor;
use retrograd::prelude::*;
use retrograd::tensor::ops::activation::Gelu;
use retrograd::tensor::ops::loss::CrossEntropy;
use retrograd_support::panics::panic_text;
use retrograd_support::panics_here;

const BOUND: Bound = Bound::RelativeToLargest(1e-10);

type Inputs = Vec<Var<f64>>;

/// A function of the file.
struct Function<'a> {
    f: &'a Fixture,
    name: &'a str,
}

impl Function<'_> {
    fn at(&self, part: &str) -> String {
        format!("{}.{part}", self.name)
    }

    fn constant(&self, part: &str) -> Var<f64> {
        Var::constant(self.f.real(&self.at(part)))
    }

    fn targets(&self) -> Tensor<i64> {
        match self.f.tensor(&self.at("targets")) {
            AnyTensor::I64(targets) => targets.clone(),
            other => panic!("targets: {other:?}"),
        }
    }

    fn call(&self, x: &Inputs) -> Var<f64> {
        let causal = || Spec::new().causal();
        match self.name {
            "chain" => {
                let x = &x[0];
                x.sin().exp().tanh() * x.square() + (x.square() + 1.0).ln()
            }
            "product" => (&x[0] * &x[1]).exp() / (x[1].square() + 1.0),
            "softmax" => x[0].softmax(-1),
            "layer_norm" => x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5),
            "matmul" => x[0].matmul(&x[1]),
            "cross_entropy" => loss(&x[0], &self.targets()),
            "mlp" => mlp(&self.constant("x"), x),
            "mlp_loss" => loss(&mlp(&self.constant("x"), x), &self.targets()),
            "attention_causal" | "attention_gqa" => attend(&x[0], &x[1], &x[2], &causal()),
            "attention_softcap" => attend(&x[0], &x[1], &x[2], &causal().softcap(1.5)),
            "attention_mask" => {
                let keep = self.f.bool(&self.at("mask")).unwrap();
                attend(&x[0], &x[1], &x[2], &Spec::new().mask(Mask::keep_pairs(&keep)))
            }
            "gpt_block" => block(&self.constant("x"), x),
            "gpt_loss" => loss(&block(&self.constant("x"), x), &self.targets()),
            other => panic!("no function {other}"),
        }
    }

    /// The output of the model in a loss.
    fn model(&self, x: &Var<f64>, weights: &Inputs) -> Var<f64> {
        if self.name == "mlp_loss" { mlp(x, weights) } else { block(x, weights) }
    }

    /// A transform of the function, or of the scalar `Σ f · u`.
    fn transform(&self, kind: &str, x: &Inputs, u: &Var<f64>, v: &Inputs, w: &Inputs) -> Inputs {
        let scalar = |x: &Inputs| (self.call(x) * u).sum(..);
        let with_first = |x: &Inputs, first: &Var<f64>| {
            self.call(&[std::slice::from_ref(first), &x[1..]].concat())
        };
        match kind {
            "vjp" => vjp(|x| self.call(x), x).1(u),
            "jvp" => vec![jvp(|x| self.call(x), x, v).1],
            "jacobian" => vec![jacobian(|first| with_first(x, first), &x[0])],
            "hessian" => vec![hessian(|first| (with_first(x, first) * u).sum(..), &x[0])],
            "hvp" => hvp(scalar, x, v).1,
            "third" => jvp(|x| hvp(scalar, x, v).1, x, w).1,
            "mixed" => {
                let by_first =
                    |x: &Inputs| grad_and_value(|f| (with_first(x, f) * u).sum(..), &x[0]).0;
                let directed = |x: &Inputs| (by_first(x) * &v[0]).sum(..);
                vec![grad_and_value(directed, x).0.swap_remove(1)]
            }
            "ggn" => {
                let (input, targets) = (self.constant("x"), self.targets());
                gauss_newton_product(|w| self.model(&input, w), |y| loss(y, &targets), x, v)
            }
            "per_sample" => {
                let (input, targets) = (self.constant("x"), self.targets());
                let leaves = x.map(&mut |x| Var::leaf(x.value().clone()));
                let of = |i: usize| {
                    let part = self.model(&input.narrow(0, i, 1), &leaves);
                    loss(&part, &targets.narrow(0, i, 1))
                };
                let rows = per_sample(input.size(0), of, |grads| {
                    leaves.map(&mut |x| Var::constant(grads.get(x).unwrap().clone()))
                });
                let stacked =
                    |i: usize| Var::stack(&rows.iter().map(|row| &row[i]).collect::<Vec<_>>(), 0);
                (0..x.len()).map(stacked).collect()
            }
            other => panic!("no transform {other}"),
        }
    }
}

fn loss(logits: &Var<f64>, targets: &Tensor<i64>) -> Var<f64> {
    logits.cross_entropy(targets, CrossEntropy::default())
}

fn mlp(x: &Var<f64>, p: &Inputs) -> Var<f64> {
    x.feed_forward((&p[0], Some(&p[1])), Gelu, (&p[2], Some(&p[3])))
}

/// A block with two heads and no biases: norm, qkv, projection, norm, up, down.
fn block(x: &Var<f64>, p: &Inputs) -> Var<f64> {
    let qkv = x.layer_norm(Some(&p[0]), None, 1e-5).linear(&p[1], None);
    let [batch, length, width] = [0, 1, 2].map(|axis| x.size(axis));
    let heads = qkv.reshape([batch, length, 3, 2, width / 2]).permute([2, 0, 3, 1, 4]);
    let [q, k, v] = [0, 1, 2].map(|i| heads.select(0, i));
    let mixed = attend(&q, &k, &v, &Spec::new().causal()).transpose(1, 2);
    let x = mixed.reshape([batch, length, width]).linear_add(&p[2], None, x);
    let normed = x.layer_norm(Some(&p[3]), None, 1e-5);
    normed.feed_forward_add((&p[4], None), Gelu, (&p[5], None), &x)
}

/// PyTorch's third derivatives of this graph are wrong: they differ from differences of its own second derivatives by
/// a tenth, in each order of forward and reverse mode in another way (2.15.0). So it is compared with differences.
fn third_by_differences(
    function: &Function<'_>,
    third: &Inputs,
    x: &Inputs,
    u: &Var<f64>,
    v: &Inputs,
    w: &Inputs,
) {
    const STEP: f64 = 1e-5;
    let moved = |step: f64| -> Inputs {
        let x = x.iter().zip(w).map(|(x, w)| Var::constant((x + w * step).into_value()));
        function.transform("hvp", &x.collect(), u, v, w)
    };
    for ((third, after), before) in third.iter().zip(moved(STEP)).zip(moved(-STEP)) {
        let difference = (after - before) / (2.0 * STEP);
        close("gpt_loss/third", third.value(), difference.value(), Bound::RelativeToLargest(1e-5));
    }
}

#[test]
fn derivatives_by_name() {
    let f = Fixture::load("functional.safetensors");
    let list =
        |x: &serde_json::Value| -> Vec<String> { serde_json::from_value(x.clone()).unwrap() };
    let mut compared = 0;
    for (name, case) in f.note("cases").as_object().unwrap() {
        let function = Function { f: &f, name };
        let names = list(&case["inputs"]);
        let all = |prefix: &str| -> Inputs {
            names.iter().map(|n| function.constant(&format!("{prefix}{n}"))).collect()
        };
        let (x, v, w, u) = (all(""), all("v."), all("w."), function.constant("u"));
        close(name, function.call(&x).value(), &f.real(&function.at("out")), BOUND);
        for kind in list(&case["transforms"]) {
            let results = function.transform(&kind, &x, &u, &v, &w);
            if (&name[..], &kind[..]) == ("gpt_loss", "third") {
                let read = names.iter().filter(|n| f.find(&format!("{name}/{kind}.{n}")).is_some());
                assert_eq!(read.count(), names.len());
                third_by_differences(&function, &results, &x, &u, &v, &w);
                continue;
            }
            let by_input = matches!(&kind[..], "vjp" | "hvp" | "third" | "ggn" | "per_sample");
            let suffixes = if by_input { names.clone() } else { vec!["out".into()] };
            assert_eq!(results.len(), suffixes.len(), "{name}/{kind}");
            let mut worst = 0.0f64;
            for (result, suffix) in results.iter().zip(suffixes) {
                // torch returns a single tensor where there is one input.
                let (named, single) =
                    (format!("{name}/{kind}.{suffix}"), format!("{name}/{kind}.out"));
                let wanted = if f.find(&named).is_some() { named } else { single };
                worst = worst.max(close(&wanted, result.value(), &f.real(&wanted), BOUND));
            }
            println!("{:30} {worst:.1e}", format!("{name}/{kind}"));
            compared += 1;
        }
    }
    f.all_read(|name| name.contains('/'));
    assert!(compared >= 60, "{compared}");
}

/// `xᵀ A x / 2`, `A` with the eigenvalues -4, 1, 2 and 3.
fn form(x: &Var<f64>) -> Var<f64> {
    // A reflection of the standard basis.
    let axis = Var::constant(Tensor::from([0.5, 0.5, -0.5, 0.5]));
    let reflected = x - &(&axis * &(axis.dot(x) * 2.0));
    let eigenvalues = Var::constant(Tensor::from([3.0, -4.0, 1.0, 2.0]));
    (reflected.square() * eigenvalues).sum(..) * 0.5
}

/// The form of two leaves.
fn quadratic() -> (Var<f64>, [Var<f64>; 2]) {
    let leaves = [[1.0, 0.5], [-0.5, 2.0]].map(|x| Var::leaf(Tensor::from(x)));
    (form(&Var::cat(&[&leaves[0], &leaves[1]], 0)), leaves)
}

#[test]
fn spectra_of_a_quadratic_form() {
    let (y, leaves) = quadratic();
    let h = Hessian::of(&y, leaves.iter().map(|x| x.id().unwrap()));
    assert_eq!(h.gradient().len(), 2);
    let rng = &mut Rng::new(3);
    let start = h.gradient().randn_like(rng);
    let t = lanczos(|v| h.times(v), &start, 10); // the space has four dimensions
    assert_eq!(t.diagonal.len(), 4);
    for (found, wanted) in t.eigenvalues().iter().zip([-4.0, 1.0, 2.0, 3.0]) {
        assert!((found - wanted).abs() < 1e-12, "{found}");
    }
    let (largest, vector) = power_iteration(|v| h.times(v), &start, 200);
    assert!((largest + 4.0).abs() < 1e-12, "{largest}");
    assert!((vector.cosine(&y.hvp(&vector)) + 1.0).abs() < 1e-12);

    // Estimates: exact means over all signs, with errors of the order of one over the root of samples.
    let dense = hessian(form, &Var::constant(Tensor::<f64>::ones([4])));
    let estimate = trace(|v| h.times(v), &start, 4000, rng);
    assert!((estimate - 2.0).abs() < 0.5, "{estimate}");
    let estimate = diagonal(|v| h.times(v), &start, 4000, rng);
    let found: Vec<f64> = leaves.iter().flat_map(|x| estimate.get(x).unwrap().to_vec()).collect();
    for (i, found) in found.iter().enumerate() {
        assert!((found - dense.value().at(&[i, i])).abs() < 0.3, "{i}: {found}");
    }
}

#[test]
fn inputs_are_variables_of_their_own() {
    let x = Var::leaf(Tensor::scalar(3.0f64));
    // The captured x is another variable than the input: the derivative of a · x, and not of x².
    let (g, y) = grad_and_value(|a: &Var<f64>| a * &x, &x);
    assert_eq!((y.item(), g.item()), (9.0, 3.0));
    // Both are x outside.
    assert_eq!(y.backward().get(&x).unwrap().item(), 6.0);
    // Constants do not become leaves whose gradients an optimiser or a norm would count.
    let (_, y) = grad_and_value(|a: &Var<f64>| a * &x, &Var::scalar(2.0));
    assert_eq!(y.backward().len(), 1);
    // Pairs; an output that depends on nothing; constants inside no_grad.
    let pair = (x.clone(), [Var::scalar(1.0), Var::scalar(2.0)]);
    let f = |(a, [b, _]): &(Var<f64>, [Var<f64>; 2])| (a * b, Var::scalar(7.0));
    let ((y, seven), tangents) = no_grad(|| jvp(f, &pair, &pair));
    assert_eq!((y.item(), seven.item()), (3.0, 7.0));
    assert_eq!((tangents.0.item(), tangents.1.item()), (6.0, 0.0));
    assert!(!y.is_tracked() && !tangents.0.is_tracked());
    let (_, pull) = vjp(f, &pair);
    let (a, [b, unused]) = pull(&(Var::scalar(1.0), Var::scalar(1.0)));
    assert_eq!((a.item(), b.item(), unused.item()), (1.0, 3.0, 0.0));
}

#[test]
fn wrong_vectors_are_reported() {
    let (x, two) = (Var::constant(Tensor::<f64>::ones([3])), Var::constant(Tensor::ones([2])));
    let (square, sum) = (|x: &Var<f64>| x.square(), |x: &Var<f64>| x.sum(..));
    let (y, _) = quadratic();
    let none = |_: &Gradients<f64>| Gradients::empty();
    let empty = Gradients::empty();
    panics_here! {
        jvp(square, &x, &two) => "an input is [3], its vector [2]";
        hvp(sum, &x, &two) => "an input is [3], its vector [2]";
        hessian(square, &x) => "the function gives [3], not one element";
        jvp(|x: &Inputs| x[0].clone(), &vec![x.clone()], &vec![]) =>
            "there are 1 variables and 0 vectors";
        lanczos(none, &empty, 1) => "a vector has the norm 0";
        lanczos(none, &empty, 0) => "at least 1 step";
        trace(none, &empty, 0, &mut Rng::new(1)) => "at least 1 sample";
        Hessian::of(&y.detach(), []) => "is a constant";
    }
    // A closure reports no line of its caller.
    let text = panic_text(|| drop(vjp(square, &x).1(&two)));
    assert!(text.contains("a result is [3], its vector [2]"), "{text}");
}
