//! Records of forward and backward passes.

use retrograd_autograd::{Gradients, Var, grad, no_grad, sharded, with_threads};
use retrograd_study::record::{
    Constant, Recorder, Recording, Seen, Source, Target, What, find_nonfinite, record,
};
use retrograd_study::trace::trace;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// A small network: the weights, and the loss of a part of the data.
struct Net {
    w: [Var; 3],
    x: Tensor,
}

impl Net {
    fn new() -> Net {
        let mut rng = Rng::new(7);
        let mut leaf = |shape: [usize; 2]| Var::leaf(Tensor::randn(shape, &mut rng) * 0.3);
        let w = [leaf([16, 8]), leaf([16, 16]), leaf([4, 16])];
        Net { w, x: Tensor::randn([12, 8], &mut Rng::new(8)) }
    }

    fn loss(&self, part: usize) -> Var {
        let x = Var::constant(self.x.narrow(0, part * 4, 4));
        let h = x.linear(&self.w[0], None).gelu();
        let h = &h + &h.linear(&self.w[1], None).tanh(); // h is used twice
        h.linear(&self.w[2], None).log_softmax(-1).square().mean(..)
    }

    fn bits(&self, grads: &Gradients<f32>) -> Vec<u32> {
        let of = |w: &Var| grads.get(w).unwrap().to_vec();
        self.w.iter().flat_map(of).map(f32::to_bits).collect()
    }
}

fn leaves_received(recording: &Recording) -> BTreeMap<Target, usize> {
    let mut received = BTreeMap::new();
    for event in &recording.events {
        if let What::Delivered { to: to @ Target::Leaf(_), .. } = event.what {
            *received.entry(to).or_default() += 1;
        }
    }
    received
}

#[test]
fn a_watcher_that_keeps_gradients_changes_no_bit() {
    let net = Net::new();
    let grads = net.bits(&net.loss(0).backward());
    let kept = Arc::new(Mutex::new(Vec::new()));
    let sink = kept.clone();
    let recorder = Recorder::new().watching(move |seen| {
        if let Seen::Delivered { sum, .. } = seen {
            sink.lock().unwrap().push(sum.downcast_ref::<Tensor<f32>>().unwrap().clone());
        }
    });
    let (got, _) = recorder.record(|| net.loss(0).backward());
    assert_eq!(net.bits(&got), grads);
}

#[test]
fn events_are_in_the_order_of_the_graph() {
    let net = Net::new();
    let (_, recording) = record(|| net.loss(0).backward());
    let mut computed = Vec::new();
    let (mut rules, mut ended) = (Vec::new(), Vec::new());
    for event in &recording.events {
        match event.what {
            What::Computed(op) => computed.push(op),
            What::RuleBegan(op) => rules.push(op),
            What::RuleEnded { operation, .. } => ended.push(operation),
            What::Delivered { from, to, .. } => {
                assert_eq!(rules.last(), Some(&from));
                // Operations deliver to earlier ones, whose rules were not called yet.
                if let Target::Output(to, _) = to {
                    assert!(to < from && !rules.contains(&to));
                }
            }
            What::Seeded(to) => assert_eq!(to, Target::Output(*computed.last().unwrap(), 0)),
        }
    }
    assert_eq!(computed, (0..recording.operations.len()).collect::<Vec<_>>());
    assert_eq!(rules, ended);
    assert!(rules.is_sorted_by(|a, b| a > b), "{rules:?}");
    let tracked = recording.operations.iter().filter(|op| op.id.is_some()).count();
    assert_eq!(rules.len(), tracked);
    let own = recording.operations.iter().filter(|op| op.rule_of.is_none());
    let at = own.map(|op| op.location.unwrap());
    assert!(at.clone().all(|at| at.file().ends_with("record.rs")), "{:?}", at.collect::<Vec<_>>());
    assert_eq!(leaves_received(&recording).len(), 3);
}

#[test]
fn shards_are_lanes() {
    let net = Net::new();
    let (one, _) = sharded(&[4, 4, 4], |i| net.loss(i));
    for threads in [1, 3] {
        let ((loss, _), recording) =
            with_threads(threads, || record(|| sharded(&[4, 4, 4], |i| net.loss(i))));
        assert_eq!(loss.to_bits(), one.to_bits());
        let (_, alone) = record(|| (net.loss(0) * 0.5).backward());
        let names = |r: &Recording, lane| -> Vec<_> {
            r.operations.iter().filter(|op| op.lane == lane).map(|op| op.name()).collect()
        };
        let kinds = |r: &Recording, lane| {
            let of = |what: &What| match what {
                What::Computed(_) => 'c',
                What::Seeded(_) => 's',
                What::RuleBegan(_) => 'r',
                What::RuleEnded { .. } => 'e',
                What::Delivered { is_added: true, .. } => '+',
                What::Delivered { .. } => '=',
            };
            r.events.iter().filter(|e| e.lane == lane).map(|e| of(&e.what)).collect::<String>()
        };
        for lane in 0..3 {
            assert_eq!(names(&recording, lane), names(&alone, 0));
            assert_eq!(kinds(&recording, lane), kinds(&alone, 0));
        }
    }
}

#[test]
fn operations_of_a_recorded_pass_belong_to_a_rule() {
    let x = Var::leaf(Tensor::from([0.5f64, -1.0]));
    let (_, recording) = record(|| {
        let y = x.tanh().softmax(-1).square().sum(..);
        grad(&[(&y, None)], &[&x])[0].clone().unwrap().sum(..).backward()
    });
    let of = |name: &str| recording.operations.iter().position(|op| op.name() == name).unwrap();
    let rules: Vec<_> = recording.operations.iter().filter_map(|op| op.rule_of).collect();
    for name in ["tanh", "softmax", "square"] {
        assert!(rules.contains(&of(name)), "{name}: {rules:?}");
    }
    assert!(recording.operations[of("tanh")].rule_of.is_none());
}

#[test]
fn constants_have_a_reason() {
    let x = Var::leaf(Tensor::from([0.5f32, -1.0]));
    let (_, recording) = record(|| {
        let exp = x.exp();
        let free = no_grad(|| exp.sin());
        let made = Var::constant(Tensor::from([1.0, 2.0]));
        let sum = &(&exp * &exp.detach()) + &(&free * &x.detach());
        (&sum * &made.cos()).sum(..)
    });
    let op = |name: &str| recording.operations.iter().position(|op| op.name() == name).unwrap();
    let inputs = recording.operations.iter().flat_map(|op| &op.inputs);
    let reasons = inputs.filter_map(|input| match input.source {
        Source::Constant(why) => Some(why),
        _ => None,
    });
    let reasons: Vec<Constant> = reasons.collect();
    let wanted = [
        Constant::DetachedResult(op("exp")),
        Constant::GradDisabled(op("sin")),
        Constant::DetachedLeaf(x.id().unwrap()),
        Constant::Made,
        Constant::Computed(op("mul")), // of two constants, the one before the last
    ];
    for why in &wanted[..4] {
        assert!(reasons.contains(why), "{why:?} in {reasons:?}");
    }
    assert!(reasons.iter().any(|why| matches!(why, Constant::Computed(_))), "{reasons:?}");
}

#[test]
fn an_outer_record_sees_what_an_inner_one_sees() {
    let net = Net::new();
    let ((_, inner), outer) = record(|| record(|| net.loss(0).backward()));
    let outline = |r: &Recording| -> Vec<_> {
        let kernels = r.operations.iter().map(|op| (op.name(), op.kernels.len(), op.saved.len()));
        kernels.collect()
    };
    let events = |r: &Recording| r.events.iter().map(|event| event.what).collect::<Vec<_>>();
    assert_eq!(outline(&inner), outline(&outer));
    assert_eq!(events(&inner), events(&outer));
    assert!(inner.operations.iter().any(|op| !op.kernels.is_empty()));
    let ((_, trace), recording) = record(|| trace(|| net.w[0].exp()));
    assert_eq!(recording.operations[0].kernels, trace.calls());
    // What a watcher computes is recorded by nobody but itself.
    let seen = Arc::new(Mutex::new(0));
    let sink = seen.clone();
    let recorder = Recorder::new().watching(move |_| {
        let (_, own) = record(|| Var::leaf(Tensor::scalar(1.0f32)).exp());
        *sink.lock().unwrap() += own.operations.len();
    });
    let (_, recording) = record(|| recorder.record(|| net.w[0].exp()));
    assert_eq!((recording.operations.len(), *seen.lock().unwrap()), (1, 1));
}

#[test]
fn a_panic_ends_the_record() {
    let x = Var::leaf(Tensor::from([0.5f32, -1.0]));
    let panicked = std::panic::catch_unwind(|| record(|| x.exp().reshape([3])));
    assert!(panicked.is_err());
    assert!(!retrograd_tensor::observe::is_observed());
    let (_, recording) = record(|| x.exp());
    assert_eq!(recording.operations.len(), 1);
}

#[test]
fn a_graph_of_earlier_operations_is_recorded() {
    let x = Var::leaf(Tensor::from([0.5f32, -1.0]));
    let y = x.exp().square().sum(..);
    let (_, recording) = record(|| y.backward());
    let own = recording.operations.iter().filter(|op| op.rule_of.is_none());
    let own: Vec<_> = own.map(|op| (op.name(), op.location)).collect();
    assert_eq!(own, [("sum", None), ("square", None), ("exp", None)]);
    assert_eq!(leaves_received(&recording).len(), 1);
}

#[test]
fn the_first_value_that_is_not_finite_is_found() {
    let x = Var::leaf(Tensor::from([[0.5f32, -1.0, 2.0]]));
    let line = line!() + 1;
    let found = find_nonfinite(|| (x.ln().exp() * 2.0).sum(..).backward()).1.unwrap();
    assert_eq!((found.operation, found.is_backward), ("ln", false));
    assert_eq!((found.result.nan, found.inputs[0].range), (1, Some((-1.0, 2.0))));
    let at = found.location.unwrap();
    assert_eq!((at.file().rsplit('/').next(), at.line()), (Some("record.rs"), line));
    assert!(found.to_string().starts_with("the first NaN: `ln` at "), "{found}");

    // √0 is finite, and its derivative is not; the sum after it has begun nothing.
    let zero = Var::leaf(Tensor::from([0.0f64, 4.0]));
    let found = find_nonfinite(|| zero.square().sqrt().sum(..).backward()).1.unwrap();
    assert_eq!((found.operation, found.is_backward, found.result.infinite), ("sqrt", true, 1));

    // A NaN that was there before; here, in a constant.
    let data = Var::constant(Tensor::from([[1.0f32, f32::NAN, 2.0]]));
    let found = find_nonfinite(|| x.mul(&data).exp().sum(..).backward()).1.unwrap();
    assert_eq!((found.operation, found.input, found.result.nan), ("mul", Some(1), 1));
    assert!(found.to_string().starts_with("the first NaN: in input 1 of `mul` at "), "{found}");

    // Two finite gradients whose sum is not.
    let (_, found) = find_nonfinite(|| {
        let large = Var::leaf(Tensor::scalar(1.0f32));
        (&large * 3e38 + &large * 3e38 * 0.9 - &large * 1e38).backward()
    });
    assert!(found.is_some_and(|found| found.result.infinite == 1));

    // A row of scores without a key: its infinities are on purpose, the NaN is not.
    let all = Tensor::from([[true, true, true]]);
    let (_, found) = find_nonfinite(|| {
        let masked = x.masked_fill(&all, f32::NEG_INFINITY);
        (&masked - &masked).exp().sum(..).backward()
    });
    let found = found.unwrap();
    assert_eq!((found.operation, found.inputs[0].infinite, found.result.nan), ("sub", 3, 3));

    // Masked scores are infinite on purpose.
    let mask = Tensor::from([[true, false, false]]);
    let (_, found) = find_nonfinite(|| {
        x.masked_fill(&mask, f32::NEG_INFINITY).softmax(-1).square().sum(..).backward()
    });
    assert!(found.is_none(), "{}", found.unwrap());
}

#[test]
fn fused_operations_unfold_into_their_definition() {
    let (x, w) = (Var::leaf(Tensor::from([[0.5f64, -1.0]])), Var::leaf(Tensor::ones([2])));
    let run = || x.rms_norm(Some(&w), 1e-6).softmax(-1).square().sum(..).backward();
    let (plain, recording) = Recorder::new().watching(|_| {}).record(run);
    let of = |name: &str| {
        let op = recording.operations.iter().find(|op| op.name() == name).unwrap();
        op.definition.clone()
    };
    let softmax = of("softmax").unwrap();
    assert!(["exp(", "x0", " / "].iter().all(|part| softmax.contains(part)), "{softmax}");
    let norm = of("rms_norm").unwrap();
    assert!(norm.contains("x0") && norm.ends_with("· x1"), "{norm}");
    assert_eq!(of("square"), None);
    // They were evaluated beside the computation.
    assert_eq!(plain.get(&x).unwrap().to_vec(), run().get(&x).unwrap().to_vec());
    assert!(recording.operations.iter().all(|op| op.name() != "exp"));
}
