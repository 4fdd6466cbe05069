//! Predictions of the time on more cores, from trees of tasks with given times.

use retrograd_study::regions::{Part, Region, RegionTree, Task};
use retrograd_study::scaling::{Prediction, Rules, predict};
use retrograd_support::panics::assert_panics;
use retrograd_tensor::observe::Division;
use std::panic::Location;
use std::sync::Arc;

/// The name of regions in this file.
const HERE: &str = "study/tests/all/scaling";

fn task(parts: Vec<Part>) -> Task {
    Task { parts }
}

fn work(seconds: f64) -> Part {
    Part::Serial(seconds)
}

/// A region whose tasks take these times, and are estimated to take `estimate` seconds.
fn region(division: Division, estimate: f64, tasks: Vec<Task>) -> Part {
    let (location, estimate) = (Location::caller(), (estimate * 1e12) as u64);
    Part::Region(Region { location, estimate, division, tasks })
}

fn chunks(times: &[f64]) -> Part {
    let tasks = times.iter().map(|&t| task(vec![work(t)])).collect();
    region(Division::Chunks, times.iter().sum(), tasks)
}

fn shards(tasks: Vec<Task>) -> Part {
    region(Division::Shards, 0.0, tasks)
}

fn recording(parts: Vec<Part>) -> RegionTree {
    RegionTree { task: task(parts), in_pool: true }
}

fn on(cores: usize, parts: &[Part]) -> Prediction {
    let rules = Rules { cores, threshold: 0, overhead: 0.0 };
    predict(&recording(parts.to_vec()), rules)
}

fn seconds(cores: usize, parts: &[Part]) -> f64 {
    on(cores, parts).seconds
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{a} instead of {b}");
}

#[test]
fn two_equal_tasks_take_half_the_time_on_two_cores() {
    let parts = [chunks(&[1.0, 1.0])];
    let [one, two, three] = [1, 2, 3].map(|cores| on(cores, &parts));
    assert_eq!([one.seconds, two.seconds, three.seconds], [2.0, 1.0, 1.0]);
    assert_eq!([one.speedup, two.speedup, three.speedup], [1.0, 2.0, 2.0]);
    assert_eq!([one.least, two.least, three.least], [2.0, 1.0, 1.0]);
    assert_eq!([one.idle, two.idle, three.idle], [0.0, 0.0, 1.0 / 3.0]);
}

#[test]
fn tasks_are_started_in_order_as_cores_become_free() {
    // Graham's worst case: the long task comes last.
    assert_eq!(seconds(2, &[chunks(&[1.0, 1.0, 2.0])]), 3.0);
    assert_eq!(seconds(2, &[chunks(&[2.0, 1.0, 1.0])]), 2.0);
    assert_eq!(seconds(2, &[work(0.5), chunks(&[1.0, 1.0]), work(0.25)]), 1.75);
}

#[test]
fn small_regions_are_serial() {
    let parts = [chunks(&[1.0, 1.0])];
    let at = |threshold| {
        let rules = Rules { cores: 2, threshold, overhead: 0.0 };
        predict(&recording(parts.to_vec()), rules).seconds
    };
    assert_eq!([at(2_000_000_000_000), at(2_000_000_000_001)], [1.0, 2.0]);
    // A single task is not distributed, and has no overhead.
    let rules = Rules { cores: 2, threshold: 0, overhead: 1.0 };
    assert_eq!(predict(&recording(vec![chunks(&[3.0])]), rules).seconds, 3.0);
}

#[test]
fn every_distributed_region_has_an_overhead() {
    let rules = |cores| Rules { cores, threshold: 0, overhead: 0.125 };
    let recording = recording(vec![chunks(&[1.0; 8]), work(1.0), chunks(&[1.0; 8])]);
    let seconds = |cores| predict(&recording, rules(cores)).seconds;
    assert_eq!([1, 2, 8].map(seconds), [17.0, 9.25, 3.75]);
    let two = predict(&recording, rules(2));
    close(two.extra, 0.25 / 18.5); // one core starts the regions
    close(two.idle, 1.25 / 18.5); // the other one waits for this, and for the serial second
}

#[test]
fn regions_in_shards_are_distributed_if_there_are_fewer_shards_than_cores() {
    let shard = || task(vec![work(1.0), chunks(&[1.0; 4]), work(1.0)]);
    let parts = [shards(vec![shard(), shard()])];
    assert_eq!(seconds(1, &parts), 12.0);
    assert_eq!(seconds(2, &parts), 6.0); // each on one core
    // Both regions have eight tasks in all, of which the first shard, once it goes on, delays one.
    assert_eq!(seconds(4, &parts), 5.0);
    assert_eq!(seconds(8, &parts), 3.0);
    assert_eq!(on(8, &parts).least, 3.0);
    // Three shards on two cores: one after the other two.
    assert_eq!(seconds(2, &[shards(vec![shard(), shard(), shard()])]), 12.0);
    // One shard is no shard.
    assert_eq!(seconds(2, &[shards(vec![shard()])]), 4.0);
}

#[test]
fn a_core_whose_thread_waits_executes_other_tasks() {
    // The first shard waits for two tasks while the second one computes.
    let parts = [shards(vec![task(vec![chunks(&[2.0, 2.0, 2.0])]), task(vec![work(4.0)])])];
    assert_eq!(seconds(3, &parts), 4.0);
}

#[test]
fn products_are_divided_by_the_number_of_threads() {
    let divide = |threads: usize| vec![vec![1.25 / threads as f64; threads], vec![0.5]];
    let product = |estimate| {
        let division = Division::ByThreads(Arc::new(divide));
        region(division, estimate, vec![task(vec![work(8.0)])])
    };
    assert_eq!([1, 2, 4].map(|n| seconds(n, &[product(8.0)])), [8.0, 9.0, 6.5]);
    let small = Rules { cores: 4, threshold: 1, overhead: 0.0 };
    assert_eq!(predict(&recording(vec![product(0.0)]), small).seconds, 8.0);
    // In a shard that distributes nothing, too.
    let inner = || task(vec![product(8.0)]);
    assert_eq!(seconds(2, &[shards(vec![inner(), inner()])]), 8.0);
    assert_eq!(on(4, &[product(8.0)]).least, 6.5);
    // Two shards share four cores: each product is divided for two.
    assert_eq!(seconds(4, &[shards(vec![inner(), inner()])]), 8.0 * (1.25 / 2.0 + 0.5));
}

/// A tree from a sequence of random numbers.
fn tree(random: &mut impl FnMut(usize) -> usize, depth: usize) -> Task {
    let parts = (0..1 + random(3)).map(|_| match random(if depth == 0 { 2 } else { 5 }) {
        0 | 1 => work(random(1000) as f64 / 1e3),
        2 => Part::Span("span", tree(random, depth - 1)),
        kind => {
            let tasks: Vec<_> = (0..1 + random(6)).map(|_| tree(random, depth - 1)).collect();
            let division = if kind == 3 { Division::Chunks } else { Division::Shards };
            region(division, 1.0, tasks)
        }
    });
    task(parts.collect())
}

fn trees() -> impl Iterator<Item = RegionTree> {
    let mut state = 1u64;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    (0..200).map(move |_| RegionTree { task: tree(&mut random, 4), in_pool: true })
}

/// The longest chain of work that cannot be computed at the same time, in a tree without products.
fn span(task: &Task) -> f64 {
    let of = |part: &Part| match part {
        Part::Serial(seconds) => *seconds,
        Part::Span(_, task) => span(task),
        Part::Region(region) => region.tasks.iter().map(span).fold(0.0, f64::max),
    };
    task.parts.iter().map(of).sum()
}

#[test]
fn one_core_takes_the_sum_and_many_take_the_span() {
    for recording in trees() {
        let at = |cores| predict(&recording, Rules { cores, threshold: 0, overhead: 0.0 });
        close(at(1).seconds, recording.seconds());
        let many = at(1_000_000);
        close(many.seconds, many.least);
        close(many.least, span(&recording.task));
    }
}

#[test]
fn times_are_between_the_bounds_of_list_scheduling() {
    // Shards that distribute nothing may exceed the upper bound, so there are none.
    fn without_shards(task: &mut Task) {
        for part in &mut task.parts {
            match part {
                Part::Serial(_) => {}
                Part::Span(_, task) => without_shards(task),
                Part::Region(region) => {
                    region.division = Division::Chunks;
                    region.tasks.iter_mut().for_each(without_shards);
                }
            }
        }
    }
    for mut recording in trees() {
        for cores in [1, 2, 3, 4, 7, 16, 64] {
            let rules = Rules { cores, threshold: 0, overhead: 0.0 };
            let Prediction { seconds, least, .. } = predict(&recording, rules);
            assert!(least <= seconds + 1e-9 && seconds <= recording.seconds() + 1e-9);
        }
        without_shards(&mut recording.task);
        let (work, span) = (recording.seconds(), span(&recording.task));
        for cores in [1, 2, 3, 4, 7, 16, 64] {
            let rules = Rules { cores, threshold: 0, overhead: 0.0 };
            let seconds = predict(&recording, rules).seconds;
            let most = work / cores as f64 + span * (1.0 - 1.0 / cores as f64);
            assert!(seconds <= most + 1e-9, "{seconds} on {cores} cores, at most {most}");
        }
    }
}

#[test]
fn more_cores_never_take_longer_for_a_sequence_of_regions() {
    let times = |n: usize| -> Vec<f64> { (0..n).map(|i| (i * 7 % 11) as f64).collect() };
    let parts = [work(2.0), chunks(&times(5)), chunks(&times(50)), work(1.0), chunks(&times(9))];
    let mut last = f64::INFINITY;
    for cores in 1..=64 {
        let now = seconds(cores, &parts);
        assert!(now <= last, "{now} on {cores} cores after {last}");
        last = now;
    }
    assert_eq!(last, on(64, &parts).least);
}

#[test]
fn places_on_the_critical_path_add_up_to_the_time() {
    for recording in trees() {
        for cores in [1, 2, 5, 16] {
            let rules = Rules { cores, threshold: 0, overhead: 0.01 };
            let p = predict(&recording, rules);
            close(p.places.iter().map(|place| place.seconds).sum(), p.seconds);
            let busy: f64 = p.places.iter().map(|place| place.seconds * place.busy).sum();
            assert!(busy >= recording.seconds() - 1e-9, "with the overhead");
            let lost: f64 = p.places.iter().map(|place| place.lost).sum();
            if p.seconds > 0.0 {
                close(lost, 1.0 - busy / p.seconds / cores as f64);
                close(lost, p.idle);
                close(p.idle + p.extra + recording.seconds() / p.seconds / cores as f64, 1.0);
            }
        }
    }
}

#[test]
fn serial_places_come_first() {
    let update = Part::Span("update", task(vec![work(2.0)]));
    let p = on(4, &[chunks(&[1.0; 4]), update, work(1.0)]);
    let places: Vec<_> = p.places.iter().map(|x| (&x.name[..], x.seconds, x.busy)).collect();
    let chunks = (HERE, 1.0, 4.0);
    assert_eq!(places, [("update > serial code", 2.0, 1.0), ("serial code", 1.0, 1.0), chunks]);
    assert_eq!(p.places[0].lost, 2.0 * 0.75 / 4.0);
}

#[test]
fn names_tell_why_a_region_is_serial() {
    let small = region(Division::Chunks, 0.0, vec![task(vec![work(1.0)]); 2]);
    let rules = Rules { cores: 2, threshold: 1, overhead: 0.0 };
    let p = predict(&recording(vec![small, chunks(&[3.0]), shards(vec![])]), rules);
    let names: Vec<&str> = p.places.iter().map(|place| &place.name[..]).collect();
    assert_eq!(names, [format!("{HERE} (one task)"), format!("{HERE} (too small to divide)")]);
}

#[test]
fn an_empty_record_takes_no_time() {
    let p = on(4, &[]);
    assert_eq!((p.seconds, p.speedup, p.least, p.places), (0.0, 1.0, 0.0, vec![]));
}

#[test]
fn wrong_rules_are_refused() {
    assert_panics("needs at least 1 core", || on(0, &[]));
    let rules = Rules { cores: 2, threshold: 0, overhead: f64::NAN };
    assert_panics("the overhead must be finite", || predict(&recording(vec![]), rules));
}
