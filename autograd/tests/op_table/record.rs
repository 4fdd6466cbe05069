//! A record of every row: it changes no bit, and names and formulas are complete.

use crate::draw::Case;
use crate::table::{Cube, ROWS, Row};
use retrograd_autograd::{Gradients, Var};
use retrograd_study::record::{Operation, Recorder, Seen, Target, What};
use retrograd_tensor::Tensor;
use retrograd_tensor::ops::pointwise::{ForEachOp, Pointwise, formulas};
use retrograd_tensor::ops::{activation, unary};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Operations that are defined in these tests, as a user would.
const OF_USERS: [&str; 2] = ["times_square", "wrong"];

/// Letters and words of formulas that stand for numbers, if they are no input.
const CONSTANTS: [&str; 8] = ["c", "p", "lo", "hi", "slope", "alpha", "delta", "ε"];

/// Runs a row with and without a record.
pub fn check_record(row: &Row, case: &Case, x: &[Var<f64>]) -> Result<(), String> {
    let run = || {
        let y = (row.f64)(x, case);
        y.backward_with(&Tensor::ones(y.shape()))
    };
    if !(row.f64)(x, case).is_tracked() {
        return Ok(());
    }
    let bits = |grads: &Gradients<f64>| -> Vec<Option<Vec<u64>>> {
        let of =
            |x: &Var<f64>| Some(grads.get(x)?.to_vec().into_iter().map(f64::to_bits).collect());
        x.iter().map(of).collect()
    };
    let plain = run();
    let sums = Arc::new(Mutex::new(BTreeMap::<usize, Tensor<f64>>::new()));
    let sink = sums.clone();
    let recorder = Recorder::new().watching(move |seen| {
        if let Seen::Delivered { event, sum, .. } = seen
            && let Some(sum) = sum.downcast_ref::<Tensor<f64>>()
        {
            sink.lock().unwrap().insert(*event, sum.contiguous());
        }
    });
    let (recorded, recording) = recorder.record(run);
    if bits(&plain) != bits(&recorded) {
        return Err("a record changes the gradients".into());
    }
    // What was delivered last to a leaf is its gradient.
    let mut last = BTreeMap::new();
    for (i, event) in recording.events.iter().enumerate() {
        if let What::Delivered { to: Target::Leaf(id), .. } = event.what {
            last.insert(id, i);
        }
    }
    for x in x.iter().filter(|x| x.is_tracked()) {
        let Some(event) = x.id().and_then(|id| last.get(&id)) else { continue };
        let sum = &sums.lock().unwrap()[event];
        let g = recorded.get(x).ok_or("a delivered gradient is missing")?;
        if sum.to_vec().iter().zip(g.to_vec()).any(|(a, b)| a.to_bits() != b.to_bits()) {
            return Err("the delivered gradient differs from the result".into());
        }
    }
    let is_printed = |op: &Operation| {
        op.call.formula().is_some_and(|f| [f.forward, f.backward].join("\n") == row.formula)
    };
    if !row.formula.is_empty() && !recording.operations.iter().any(is_printed) {
        return Err("no operation has the formula of the row".into());
    }
    let is_own = |name: &str| !OF_USERS.contains(&name);
    for op in recording.operations.iter().filter(|op| op.id.is_some() && is_own(op.name())) {
        let Some(formula) = op.call.formula() else {
            return Err(format!("`{}` has no formula (Op::formula)", op.name()));
        };
        let is_missing = |word: &&str| {
            let is_input = formula.backward.contains(&format!("d{word} "));
            CONSTANTS.contains(word) && !is_input && op.call.numbers().all(|(c, _)| c != *word)
        };
        if let Some(word) = formula.forward.split(|c: char| !c.is_alphanumeric()).find(is_missing) {
            return Err(format!("`{}` does not say its {word} (Op::with)", op.name()));
        }
        if op.location.is_none() {
            return Err(format!("`{}` has no place in the source code", op.name()));
        }
    }
    // What a rule keeps is listed.
    for event in &recording.events {
        if let What::RuleEnded { operation, unlisted, .. } = event.what
            && unlisted > 0
            && is_own(recording.operations[operation].name())
        {
            let name = recording.operations[operation].name();
            return Err(format!("`{name}` keeps {unlisted} bytes without a name (observe::saved)"));
        }
    }
    // Every tracked operation is differentiated at most once, and what it keeps is dropped.
    let mut rules = vec![0; recording.operations.len()];
    for event in &recording.events {
        if let What::RuleBegan(op) = event.what {
            rules[op] += 1;
        }
    }
    match rules.iter().position(|&n| n > 1) {
        Some(op) => {
            Err(format!("the rule of `{}` was called twice", recording.operations[op].name()))
        }
        None => Ok(()),
    }
}

#[test]
fn every_pointwise_operation_has_a_row_with_its_formulas() {
    struct Printed(BTreeSet<String>);
    impl ForEachOp<f64> for Printed {
        fn op<P: Pointwise<f64>>(&mut self) {
            self.0.insert(formulas::<f64, P>().join("\n"));
        }
    }
    let mut printed = Printed(BTreeSet::new());
    activation::for_each(&mut printed);
    unary::for_each(&mut printed);
    printed.op::<Cube>();
    let rows = ROWS.iter().map(|row| row.formula.to_string()).filter(|text| !text.is_empty());
    assert_eq!(printed.0, rows.collect());
}
