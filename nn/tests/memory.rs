//! Memory of a training step: after the first steps it allocates no memory from the system. In a
//! process of its own, because the pool and page faults are counted per process.

use retrograd_autograd::with_threads;
use retrograd_nn::optim::{AdamConfig, AdamW, Optimizer};
use retrograd_nn::{Gpt, GptConfig, Pass};
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;
use retrograd_tensor::storage::pool_stats;

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

#[test]
fn later_steps_allocate_no_memory() {
    let config = GptConfig {
        vocab: 65,
        context: 64,
        layers: 2,
        heads: 4,
        width: 128,
        dropout: 0.1,
        ..GptConfig::default()
    };
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
