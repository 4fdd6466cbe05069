//! `--memory`: what is predicted of a step, and runs with recomputed blocks.

use crate::program::{FAILED, Place, TINY};
use retrograd::autograd::sharded;
use retrograd::prelude::*;
use retrograd::tensor::settings::with_observer;
use retrograd_train::memory::{Forecast, Meter};
use std::sync::Arc;

#[test]
fn the_peak_of_a_step_is_predicted() {
    const LAYERS: usize = 4;
    let (layers, heads, width) = (LAYERS, 4, 64);
    let config = GptConfig { vocab: 65, context: 256, layers, heads, width, ..Default::default() };
    for (dropout, batch, number, threads) in [(0.1, 3, 1, 2), (0.0, 6, 3, 1), (0.1, 4, 2, 2)] {
        let model = Gpt::new(GptConfig { dropout, ..config.clone() }, &mut Rng::new(1)).unwrap();
        let x = Tensor::<i64>::randint(0, 65, [batch, 256], &mut Rng::new(2));
        let peaks = |blocks| {
            let model = model.clone().with_recompute(blocks);
            let shards = model.shards(&x, &x, Some(number), &mut Pass::train(1));
            let meter = Arc::new(Meter::default());
            with_observer(meter.clone(), || drop(sharded(shards.counts(), |i| shards.loss(i))));
            meter.peak()
        };
        with_threads(threads, || {
            let model = model.clone().with_recompute(LAYERS);
            let shards = model.shards(&x, &x, Some(number), &mut Pass::train(1));
            let forecast = Forecast::new(&shards, LAYERS, 0);
            let measured: Vec<f64> = (0..=LAYERS).map(|n| peaks(n) as f64).collect();
            for (blocks, is) in measured.iter().enumerate() {
                let ratio = forecast.of_step(blocks) as f64 / is;
                // Shards that are computed at the same time may not reach their peaks together.
                let most = 1.05 * number.min(threads) as f64;
                assert!((0.95..most).contains(&ratio), "{number} shards, {blocks} blocks: {ratio}");
            }
            assert!(measured[LAYERS] < 0.7 * measured[0], "{measured:?}");
            assert!(forecast.seconds(0) < forecast.seconds(LAYERS));
        });
    }
}

#[test]
fn a_run_with_less_memory_has_the_same_bits() {
    let place = Place::new();
    let train = format!("{TINY} --steps 3 --dropout 0.1 --layers 4 --context 128 --no-page");
    place.ok(&format!("{train} --out usual"));
    let said = ["a step takes at least", "1 KB"];
    place.fails(&format!("{train} --out less --memory 1KB"), FAILED, &said);
    assert!(!place.exists("less"));
    place.run(&format!("{train} --out less --memory 6MB")).says("3 of 4 blocks are recomputed");
    assert!(place.checkpoint("usual") == place.checkpoint("less"));
    place.run("resume --out less --steps 4 --memory 1GiB").says("0 of 4 blocks are recomputed");
}
