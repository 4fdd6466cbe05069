//! Memory of a training step: after the first steps it allocates no memory from the system. In a
//! process of its own, because the pool and page faults are counted per process.
//! `RETROGRAD_STEPS` sets the steps of a small model (1000).

use retrograd_autograd::with_threads;
use retrograd_nn::optim::{AdamConfig, AdamW, Optimizer};
use retrograd_nn::{Gpt, GptConfig, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use retrograd_tensor::storage::pool_stats;
use std::sync::{Mutex, MutexGuard};

/// The minor page faults of this process, field 10 of `proc_pid_stat(5)`.
#[cfg(target_os = "linux")]
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    after_name.split(' ').nth(7).unwrap().parse().unwrap()
}

#[cfg(not(target_os = "linux"))]
fn page_faults() -> u64 {
    0
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

#[test]
fn later_steps_allocate_no_memory() {
    let _turn = turn();
    let (layers, heads, width, dropout) = (2, 4, 128, 0.1);
    let config =
        GptConfig { vocab: 65, context: 64, layers, heads, width, dropout, ..Default::default() };
    let rng = &mut Rng::new(1);
    let model = Gpt::<f32>::new(config, rng).unwrap();
    let mut optimizer = AdamW::new(&model, AdamConfig::decoupled()).unwrap();
    let tokens = Tensor::<i64>::randint(0, 65, [8, 64], rng);
    let targets = Tensor::<i64>::randint(0, 65, [8, 64], rng);
    with_threads(2, || {
        let mut step = |n: u64| {
            let mut grads = model.loss(&tokens, &targets, &mut Pass::train(n)).backward();
            grads.clip_norm(1.0);
            optimizer.step(&grads).unwrap();
        };
        (0..5).for_each(&mut step);
        let pool = pool_stats();
        let mut faults = Vec::new();
        for round in 0..5 {
            let before = page_faults();
            (0..20).for_each(|i| step(5 + 20 * round + i));
            faults.push((page_faults() - before) as f64 / 20.0);
        }
        let pool_now = pool_stats();
        let [fresh, reused] = [pool_now.fresh - pool.fresh, pool_now.reused - pool.reused];
        println!("blocks per step: {} new, {} reused", fresh as f64 / 100.0, reused / 100);
        println!("page faults per step, in rounds of 20 steps: {faults:?}");
        assert_eq!(pool_now.fresh, pool.fresh, "{pool:?} {pool_now:?}");
        assert_eq!(pool_now.live, pool.live);
        // A system under load reclaims pages and faults them in again, but not in every round.
        let least = faults.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least < 20.0, "{faults:?} page faults per step");
    });
}

/// Threads, open files and resident kilobytes of this process.
#[cfg(target_os = "linux")]
fn held() -> [usize; 3] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    [field("Threads:"), files, field("VmRSS:")]
}

#[cfg(target_os = "linux")]
#[test]
fn many_steps_hold_no_more_than_few() {
    let _turn = turn();
    let steps = std::env::var("RETROGRAD_STEPS").map_or(1000, |n| n.parse().expect("a number"));
    let small =
        GptConfig { vocab: 17, context: 8, layers: 1, heads: 2, width: 16, ..Default::default() };
    let rng = &mut Rng::new(1);
    let model = Gpt::<f32>::new(GptConfig { dropout: 0.1, ..small }, rng).unwrap();
    let mut optimizer = AdamW::new(&model, AdamConfig::decoupled()).unwrap();
    let tokens = Tensor::<i64>::randint(0, 17, [2, 8], rng);
    with_threads(2, || {
        let mut step = |n: u64| {
            let mut pass = Pass::train(n);
            let (_, grads) = model.loss_and_gradients(&tokens, &tokens, &mut pass);
            optimizer.step(&grads).unwrap();
        };
        (0..steps / 10).for_each(&mut step);
        let (first, pool) = (held(), pool_stats());
        let mut resident = vec![first[2]];
        for round in 1..10 {
            (0..steps / 10).for_each(|i| step(round * (steps / 10) + i));
            resident.push(held()[2]);
        }
        println!("{steps} steps, {} threads, {} files, kilobytes {resident:?}", first[0], first[1]);
        assert_eq!(held()[..2], first[..2]);
        assert_eq!(pool_stats().live, pool.live);
        // Threads take blocks in varying orders, and the allocator keeps some pages.
        assert!(resident[9] < first[2] + 1000, "{resident:?}");
    });
}
