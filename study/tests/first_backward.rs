//! The record of the first backward pass of a process; each in a process of its own.

use retrograd_autograd::{Cx, Fused, InputGrads, Op, Slot, Var, sharded};
use retrograd_nn::{Activation, Layer, Module, Pass, Visitor};
use retrograd_study::record::{Recorder, What};
use retrograd_support::document::data;
use retrograd_tensor::settings::with_grad_enabled;
use retrograd_tensor::{Tensor, with_threads};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

/// `x²`, whose definition waits in the thread `"second"`: the recorder evaluates it before it notes the rule.
struct Square {
    x: Slot<f64>,
    /// The definition is being evaluated; the record has ended.
    turns: Arc<[Barrier; 2]>,
}

impl Fused<f64> for Square {
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

static IN_TURN: Op = Op::new("square_in_turn", &["x"]);

/// The derivative of `x⁴`.
fn gradient(x: f64, turns: &Arc<[Barrier; 2]>) -> f64 {
    let x = Var::leaf(Tensor::scalar(x));
    let square = |x: &Var<f64>| {
        let turns = turns.clone();
        let [y] = Var::from_fused(&IN_TURN, [x.value().square()], [x], |[x]| Square {
            x: x.save(),
            turns,
        });
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
    recorder.record_first_backward(move |record| sink.lock().unwrap().push(record));

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

/// Prints what is recorded of the first pass of this process: that of five shards, of which the first is not computed
/// since it counts nothing, or with 0 threads of no shards. A rule computes shards, too.
fn print_record(threads: usize) {
    Recorder::new().record_first_backward(|record| {
        let mut lanes = [0; 5];
        for event in &record.events {
            if let What::Computed(op) | What::RuleEnded { operation: op, .. } = event.what
                && ["outer", "matmul", "tanh"].contains(&record.operations[op].name())
            {
                lanes[event.lane] += 1;
            }
        }
        print!("\nrecord: {lanes:?}, loss {:?}", record.loss.unwrap());
    });
    let w = Var::leaf(Tensor::<f64>::ones([64, 64]));
    let mean = |i: usize| {
        let y = Var::from_op(
            const { &Op::new("outer", &["w"]) },
            w.value() * (i as f64 * 1e-3),
            [&w],
            |[w]| {
                let w = w.slot();
                move |_, g| {
                    let x = Var::leaf(g.value().clone());
                    let inner = || sharded(&[1, 1], |_| x.square().mean(..)).1;
                    let inner = with_grad_enabled(true, inner);
                    InputGrads::of(&w, || Var::constant(inner.get(&x).unwrap().clone()))
                }
            },
        );
        y.matmul(&w).tanh().mean(..)
    };
    let alone = || mean(1).backward();
    let (loss, lanes) = match threads {
        0 => (drop(alone()), (mean(1).item(), [8, 0, 0, 0, 0])).1,
        n => (with_threads(n, || sharded(&[0, 1, 2, 3, 4], mean)).0, [8, 8, 8, 8, 0]),
    };
    println!("\nresult: {lanes:?}, loss {loss:?}");
    alone(); // is not recorded
}

#[test]
fn a_record_has_the_passes_of_all_shards() {
    if let Ok(threads) = std::env::var("FIRST_BACKWARD_THREADS") {
        return print_record(threads.parse().unwrap());
    }
    for threads in ["0", "1", "2", "2", "2", "2", "2", "3", "5"] {
        let variables = [("FIRST_BACKWARD_THREADS", threads)];
        let output = again("a_record_has_the_passes_of_all_shards", &variables, Path::new("."));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        assert!(line("result: ").is_some(), "{text}");
        assert_eq!(line("record: "), line("result: "), "{threads} threads");
    }
}

/// This test program again, which executes one test, with environment variables.
fn again(test: &str, variables: &[(&str, &str)], folder: &Path) -> Output {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact", "--nocapture"]).envs(variables.iter().copied());
    let output = again.current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// Several variables at once, in a program without a model.
#[test]
fn variables_do_not_exclude_each_other() {
    if std::env::var_os("RETROGRAD_XRAY").is_some() {
        retrograd_study::from_env();
        let x = Var::leaf(Tensor::<f32>::ones([4, 4]));
        drop(x.matmul(&x).mean(..).backward());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let variables =
        [("RETROGRAD_XRAY", "1"), ("RETROGRAD_NONFINITE", "1"), ("RETROGRAD_TRACE", "t.txt")];
    let output = again("variables_do_not_exclude_each_other", &variables, folder.path());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.matches("the first backward pass is in xray.html").count(), 1, "{said}");
    let page = std::fs::read_to_string(folder.path().join("xray.html")).unwrap();
    let modules = &data(&page)["modules"]; // the program itself
    assert!(modules[0]["path"] == "" && modules[1].is_null(), "{modules}");
    let trace = std::fs::read_to_string(folder.path().join("t.txt")).unwrap();
    assert!(trace.lines().any(|line| line.contains("  matmul  ")), "{trace}");
}

#[test]
fn a_value_requests_nothing_standard_error_or_a_file() {
    if std::env::var_os("RETROGRAD_TRACE").is_some() {
        retrograd_study::from_env();
        drop(Tensor::<f32>::ones([4]).exp().exp().ln());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("a")).unwrap();
    let whole = folder.path().join("trace").to_str().unwrap().to_string();
    let files = |path: &Path| std::fs::read_dir(path).unwrap().count();
    let run = |value: &str| {
        let name = "a_value_requests_nothing_standard_error_or_a_file";
        let output = again(name, &[("RETROGRAD_TRACE", value)], folder.path());
        String::from_utf8(output.stderr).unwrap()
    };
    for value in ["", " ", "0"] {
        assert_eq!(run(value), "", "{value:?}");
    }
    for value in ["yes", "2", "summaries", "-1"] {
        let said = run(value);
        assert!(said.contains(&format!("{value:?} is neither 0, nor 1")), "{said}");
    }
    let said = run("missing/x");
    assert!(said.starts_with("RETROGRAD_TRACE: missing/x cannot be created: "), "{said}");
    assert!(run("1").starts_with("trace: "));
    let summary = run("summary");
    let lines = |name: &str| summary.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
    let counts = ["  exp  ", "  ln  "].map(|name| lines(name)[0].split_whitespace().next());
    assert_eq!(counts, [Some("2"), Some("1")], "{summary}");
    assert_eq!([lines("  exp  "), lines("trace: ")].map(|lines| lines.len()), [1, 1], "{summary}");
    assert_eq!(files(folder.path()), 1);
    for value in ["trace.txt", &whole, "./1", "a/b"] {
        assert_eq!(run(value), "", "{value}");
        let text = std::fs::read_to_string(folder.path().join(value)).unwrap();
        assert!(text.starts_with("trace: "), "{text}");
    }
}

/// A module that also computes something itself.
struct Inner(Activation);

impl Module<f32> for Inner {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("a", &self.0);
    }
}

struct Model(Activation, Inner);

impl Module<f32> for Model {
    fn visit(&self, v: &mut Visitor<'_, f32>) {
        v.module("h.10", &self.0);
        v.module("h.2", &self.1);
    }
}

impl Model {
    fn forward(&self, x: &Var) -> Var {
        let pass = &mut Pass::eval();
        self.observe(|| {
            let x = self.0.forward(x, pass);
            self.1.observe(|| self.1.0.forward(&x, pass).exp())
        })
    }
}

/// The page of a process has the modules that computed something, in the order of their numbers.
#[test]
fn recorded_modules_are_in_the_order_of_their_numbers() {
    if std::env::var_os("RETROGRAD_XRAY").is_some() {
        retrograd_study::from_env();
        let model = Model(Activation::Tanh, Inner(Activation::Sigmoid));
        return drop(model.forward(&Var::leaf(Tensor::scalar(1.0f32))).backward());
    }
    let folder = tempfile::tempdir().unwrap();
    let name = "recorded_modules_are_in_the_order_of_their_numbers";
    again(name, &[("RETROGRAD_XRAY", "1")], folder.path());
    let page = data(&std::fs::read_to_string(folder.path().join("xray.html")).unwrap());
    let modules = page["modules"].as_array().unwrap().iter();
    let modules: Vec<Value> = modules.map(|m| json!([m["path"], m["type"], m["parent"]])).collect();
    let wanted = json!([
        ["", "program", -1],
        ["h.2", "Inner", 0],
        ["h.2.a", "Activation", 1],
        ["h.10", "Activation", 0]
    ]);
    assert_eq!(json!(modules), wanted);
    let nodes = page["nodes"].as_array().unwrap().iter().filter(|node| node["kind"] != "leaf");
    let nodes: Vec<Value> = nodes.map(|node| json!([node["name"], node["module"]])).collect();
    assert_eq!(json!(nodes), json!([["tanh", 3], ["sigmoid", 2], ["exp", 1]]));
}
