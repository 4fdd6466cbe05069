//! Records of parallel regions: their trees, and the bits of a training step that is recorded.

use retrograd_nn::optim::{Muon, MuonConfig, Optimizer};
use retrograd_nn::{Gpt, GptConfig, Module, Pass};
use retrograd_study::regions::{Part, RegionTree, Task, record};
use retrograd_study::scaling::{Rules, predict};
use retrograd_tensor::cost::Cost;
use retrograd_tensor::observe::Division;
use retrograd_tensor::par::{each, fill, fill2, map, on_every_thread, shards, span};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Tensor, with_threads};
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

/// Takes a step of training, and returns the loss, the norm and all weights.
fn step() -> (f32, f64, Vec<Vec<f32>>) {
    let (layers, heads, width) = (1, 2, 64);
    let config = GptConfig { vocab: 40, context: 64, layers, heads, width, ..GptConfig::modern() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let token = |i: usize| (i * 7919 % 40) as i64;
    let [tokens, targets] = [0, 1].map(|next| {
        let data = (0..24 * 64).map(|i| token(i + next)).collect();
        Tensor::from_vec(data, [24, 64])
    });
    let (loss, mut grads) = model.loss_and_gradients(&tokens, &targets, &mut Pass::train(1));
    let norm = grads.clip_norm(0.1);
    let mut muon = Muon::new(&model, MuonConfig::default()).unwrap();
    muon.step(&grads).unwrap();
    let weights = model.named_parameters().into_iter().map(|(_, p)| p.value().to_vec());
    (loss, norm, weights.collect())
}

/// The spans of a tree by name, and regions as their rule and the number of tasks, to a depth.
fn outline(task: &Task, depth: usize, out: &mut Vec<String>) {
    for part in &task.parts {
        match part {
            Part::Serial(_) => {}
            Part::Span(name, inner) => {
                out.push(name.to_string());
                if depth > 0 {
                    outline(inner, depth - 1, out);
                }
            }
            Part::Region(region) => {
                if let Division::Shards = region.division {
                    out.push(format!("{} shards", region.tasks.len()));
                    outline(&region.tasks[0], 0, out);
                }
            }
        }
    }
}

#[test]
fn a_recorded_step_has_the_bits_of_another() {
    let plain = with_threads(1, step);
    for threads in [1, 2, 3, 5] {
        let (recorded, recording) = with_threads(threads, || record(step));
        assert!(recorded == plain, "{threads} threads");
        let mut found = Vec::new();
        outline(&recording.task, 1, &mut found);
        // Gradients of four shards, and updates of the six matrices of a block.
        let gradients =
            "cut into shards, loss and gradients, 4 shards, forward, backward, sum of gradients";
        let update = "clip_norm, muon, 6 shards, adam, weights";
        assert_eq!(found.join(", "), format!("{gradients}, {update}"), "{threads} threads");
    }
}

#[test]
fn a_step_is_predicted_to_be_faster_on_more_cores() {
    let ((), recording): ((), RegionTree) = with_threads(1, || record(|| drop(step())));
    let on = |cores| predict(&recording, Rules::new(cores, &recording, 0.0));
    let [one, four] = [on(1), on(4)];
    assert!((one.seconds / recording.seconds() - 1.0).abs() < 1e-9);
    assert!(four.seconds < one.seconds && four.seconds >= four.least);
}

const MUCH: Cost = Cost(1_000_000_000);
const LITTLE: Cost = Cost(1);

/// The tree as text: spans and regions by name, with the tasks of regions.
fn shape(task: &Task) -> String {
    let parts = task.parts.iter().filter_map(|part| match part {
        Part::Serial(seconds) => {
            assert!(*seconds >= 0.0);
            None
        }
        Part::Span(name, task) => Some(format!("{name}({})", shape(task))),
        Part::Region(region) => {
            let tasks: Vec<String> = region.tasks.iter().map(shape).collect();
            Some(format!("{:?}[{}]", region.division, tasks.join("|")))
        }
    });
    parts.collect::<Vec<_>>().join(" ")
}

fn program() {
    let _all = span("all");
    fill(&mut [0; 10], 4, MUCH, |_, _| ());
    shards(2, |i| {
        let _inner = span("inner");
        if i == 0 {
            map(2, 1, LITTLE, |_| each(vec![(); 3], 1, MUCH, |()| ()));
        }
    });
    drop(_all);
    let _last = span("last");
    fill2((&mut [0; 2], 1), (&mut [0; 4], 2), LITTLE, |_, _, _| ());
}

const PROGRAM: &str = "all(Chunks[||] Shards[inner(Chunks[Chunks[||]|Chunks[||]])|inner()]) \
                       last(Chunks[|])";

#[test]
fn the_tree_of_a_program_is_that_of_its_regions_on_any_number_of_threads() {
    for threads in [1, 2, 3, 8] {
        let ((), recording) = with_threads(threads, || record(program));
        let mut tree = shape(&recording.task);
        // The order in which shards start is that of their numbers on one thread only.
        if threads > 1 {
            tree = tree.replace(
                "Shards[inner()|inner(Chunks[Chunks[||]|Chunks[||]])]",
                "Shards[inner(Chunks[Chunks[||]|Chunks[||]])|inner()]",
            );
        }
        assert_eq!(tree, PROGRAM, "{threads} threads");
        assert_eq!(recording.counts(), (6, 3 + 2 + 2 + 6 + 2));
        assert!(recording.in_pool);
    }
    let ((), outside) = record(program);
    assert!(!outside.in_pool);
    assert_eq!(outside.counts(), (6, 15));
}

#[test]
fn nothing_is_recorded_outside_of_a_record() {
    program();
    let ((), recording) = record(|| {
        on_every_thread(program); // on other threads, outside of regions
    });
    assert_eq!(recording.counts(), (0, 0));
}

#[test]
fn regions_in_another_pool_are_recorded() {
    let ((), recording) = record(|| with_threads(2, program));
    assert!(shape(&recording.task).starts_with("Pool[all("), "{}", shape(&recording.task));
    assert_eq!(recording.counts(), (7, 16));
}

#[test]
fn a_record_inside_of_a_record_has_the_same_regions() {
    let (inner, outer) = record(|| record(program).1);
    assert_eq!((inner.counts(), outer.counts()), ((6, 15), (6, 15)));
}

#[test]
fn a_panic_leaves_the_record_of_the_outer_task_intact() {
    let ((), recording) = with_threads(1, || {
        record(|| {
            let failing = || {
                let _span = span("failing");
                each(vec![0, 1, 2], 1, MUCH, |i| assert!(i != 1, "item 1"));
            };
            assert!(catch_unwind(failing).is_err());
            fill(&mut [0; 2], 1, MUCH, |_, _| ());
        })
    });
    assert_eq!(shape(&recording.task), "failing(Chunks[|]) Chunks[|]");
}

#[test]
fn times_add_up_to_the_time_of_the_whole() {
    let wait = || std::thread::sleep(Duration::from_millis(3));
    let start = Instant::now();
    let ((), recording) = record(|| {
        wait();
        let _span = span("two shards");
        shards(1, |_| wait());
        wait();
    });
    let whole = start.elapsed().as_secs_f64();
    assert!((9e-3..=whole).contains(&recording.seconds()), "{} of {whole}", recording.seconds());
    let [Part::Serial(before), Part::Span(_, span), Part::Serial(_)] = &recording.task.parts[..]
    else {
        panic!("{recording:?}")
    };
    let [Part::Serial(_), Part::Region(region), Part::Serial(after)] = &span.parts[..] else {
        panic!("{recording:?}")
    };
    assert!(*before >= 3e-3 && *after >= 3e-3 && region.tasks[0].seconds() >= 3e-3);
    assert_eq!(region.name(), "shards");
}
