//! State rules against plain recurrences in PyTorch, forward and backward, by tests/fixtures/state_rules.safetensors.

use super::{Bound, Fixture, close, parameters};
use retrograd::nn::attention::{
    DeltaNet, GatedDeltaNet, GatedLinearAttention, KimiDeltaAttention, Mamba2, RecurrentState,
    Retention, Rwkv7, StateCx, StateRule, StateSizes,
};
use retrograd::prelude::*;

const BOUND: Bound = Bound::Absolute(1e-10);
const SIZES: StateSizes = StateSizes { width: 8, heads: 2, key_width: 4, value_width: 6 };

/// All rules, with the weights of the file.
fn rules(f: &Fixture) -> Vec<(&'static str, Box<dyn StateRule<f64>>)> {
    let rng = &mut Rng::new(1);
    let square = StateSizes { value_width: 4, ..SIZES };
    let all: Vec<(&str, Box<dyn StateRule<f64>>)> = vec![
        ("retention", Box::new(Retention::new(SIZES, rng))),
        ("gated_linear", Box::new(GatedLinearAttention::new(SIZES, rng))),
        ("delta_net", Box::new(DeltaNet::new(SIZES, rng))),
        ("gated_delta_net", Box::new(GatedDeltaNet::new(SIZES, rng))),
        ("kimi_delta", Box::new(KimiDeltaAttention::new(SIZES, rng))),
        ("mamba2", Box::new(Mamba2::new(SIZES, rng))),
        ("rwkv7", Box::new(Rwkv7::new(square, (1, 2), rng))),
    ];
    for (name, rule) in &all {
        rule.load_state_dict(&f.dict(&format!("{name}.state"))).unwrap();
    }
    all
}

/// Calls a rule, with the values of the first layer if the file has some.
fn run(
    rule: &dyn StateRule<f64>,
    x: &Var<f64>,
    first: Option<&Var<f64>>,
    state: &mut RecurrentState<f64>,
    keep: Option<&Tensor<bool>>,
) -> Var<f64> {
    let (mut pass, mut first) = (Pass::eval(), first.cloned());
    let mut cx = StateCx::new(&mut pass, state, &mut first);
    cx.keep = keep;
    rule.run(x, &mut cx)
}

#[test]
fn recurrences() {
    let f = Fixture::load("state_rules.safetensors");
    for (name, rule) in rules(&f) {
        let x = f.leaf(&format!("{name}.x"));
        let first = f.find(&format!("{name}.first")).is_some();
        let first = first.then(|| f.leaf(&format!("{name}.first")));
        let mut leaves = parameters(&*rule);
        leaves.push(("g_x".into(), x.clone()));
        leaves.extend(first.clone().map(|first| ("g_first".into(), first)));
        // As a whole, and in pieces from the state of the one before.
        for cuts in [&[0, 11][..], &[0, 1, 4, 11], &[0, 9, 10, 11]] {
            let mut state = RecurrentState::default();
            let piece = |at: &[usize]| {
                let of = |x: &Var<f64>| x.narrow(1, at[0], at[1] - at[0]);
                run(&*rule, &of(&x), first.as_ref().map(of).as_ref(), &mut state, None)
            };
            let pieces: Vec<_> = cuts.windows(2).map(piece).collect();
            let y = Var::cat(&pieces.iter().collect::<Vec<_>>(), 1);
            let worst = f.check(name, &y, &leaves, BOUND);
            println!("{name:20} {cuts:?} {worst:.1e}");
        }
        // The recurrence by ordinary operations, and by the weights of all values.
        let (mut pass, mut state, mut first) = (Pass::eval(), RecurrentState::default(), first);
        let terms = rule.terms(&x, &mut StateCx::new(&mut pass, &mut state, &mut first));
        let want = f.real(&format!("{name}.out"));
        let [steps, _] = terms.recurrence.steps(None);
        let composed = terms.recurrence.weights().matmul(&terms.recurrence.v);
        for (form, read) in [("steps", steps), ("weights", composed)] {
            let y = rule.output(&read, &terms, &mut Pass::eval());
            close(&format!("{name}, {form}"), y.value(), &want, BOUND);
        }
    }
    f.all_read(|_| true);
}

/// Padding before and after a sequence changes neither its outputs nor its state, whatever it contains.
#[test]
fn padding() {
    let f = Fixture::load("state_rules.safetensors");
    for (name, rule) in rules(&f) {
        let x = Var::constant(f.real(&format!("{name}.x")));
        let mut plain = RecurrentState::default();
        let want = run(&*rule, &x, None, &mut plain, None);
        let nan = Var::constant(Tensor::full([2, 3, 8], f64::NAN));
        for (start, parts) in [(3, [&nan, &x]), (0, [&x, &nan])] {
            let keep = Tensor::from_fn([2, 14], |i| (start..start + 11).contains(&i[1]));
            let mut state = RecurrentState::default();
            let y = run(&*rule, &Var::cat(&parts, 1), None, &mut state, Some(&keep));
            let y = y.narrow(1, start, 11);
            close(name, y.value(), want.value(), Bound::Absolute(1e-12));
            // Padding before a sequence moves its positions, and turns the keys of retention.
            if (name, start) == ("retention", 3) {
                continue;
            }
            let [ours, theirs] =
                [&state, &plain].map(|state| state.matrix().unwrap().value().clone());
            close(name, &ours, &theirs, Bound::Absolute(1e-12));
        }
    }
}
