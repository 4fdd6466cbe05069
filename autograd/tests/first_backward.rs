//! The record of the first backward pass of a process; in a process of its own, which has one such observer.

use retrograd_autograd::observe::{Recorder, What};
use retrograd_autograd::{Cx, Fused, InputGrads, Slot, Var};
use retrograd_tensor::Tensor;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

/// `x²`, whose definition waits in the thread `"second"`: the recorder evaluates it before it notes the rule.
struct Square {
    x: Slot<f64>,
    /// The definition is being evaluated; the record has ended.
    turns: Arc<[Barrier; 2]>,
}

impl Fused<f64> for Square {
    const NAME: &'static str = "square_in_turn";

    fn vjp(&self, [g]: [&Tensor<f64>; 1]) -> InputGrads<f64> {
        InputGrads::of(&self.x, || g * self.x.value() * 2.0)
    }

    fn definition(&self, cx: &Cx<'_, f64>) -> [Var<f64>; 1] {
        if thread::current().name() == Some("second") {
            for turn in self.turns.iter() {
                turn.wait();
            }
        }
        [cx.input(&self.x).square()]
    }
}

/// The derivative of `x⁴`.
fn gradient(x: f64, turns: &Arc<[Barrier; 2]>) -> f64 {
    let x = Var::leaf(Tensor::scalar(x));
    let square = |x: &Var<f64>| {
        let turns = turns.clone();
        let [y] = Var::from_fused([x.value().square()], [x], |[x]| Square { x: x.save(), turns });
        y
    };
    square(&x.square()).backward().get(&x).unwrap().item()
}

/// The first pass ends, and with it the record, while the recorder is called from another thread's pass.
#[test]
fn a_record_ends_while_another_thread_is_in_a_pass() {
    let records = Arc::new(Mutex::new(Vec::new()));
    let sink = records.clone();
    let recorder = Recorder::new().watching(|_| {});
    assert!(recorder.record_first_backward(move |record| sink.lock().unwrap().push(record)));

    let turns = Arc::new([Barrier::new(2), Barrier::new(2)]);
    let shared = turns.clone();
    let second = thread::Builder::new().name("second".into());
    let second = second.spawn(move || gradient(2.0, &shared)).unwrap();
    turns[0].wait();
    assert_eq!(gradient(3.0, &turns), 108.0);
    turns[1].wait();
    assert_eq!(second.join().unwrap(), 32.0);

    let records = records.lock().unwrap();
    assert_eq!(records.len(), 1);
    let rules =
        records[0].events.iter().filter(|event| matches!(event.what, What::RuleEnded { .. }));
    // The operations of both threads, and the rules of the pass that has ended.
    assert_eq!((records[0].operations.len(), rules.count()), (4, 2));
}
