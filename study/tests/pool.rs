//! The memory of a record is that of the pool. One test, since the pool is that of the process.

use retrograd_autograd::Var;
use retrograd_study::record::{Recorder, What, record};
use retrograd_tensor::ops::activation::Gelu;
use retrograd_tensor::random::Rng;
use retrograd_tensor::storage::pool_stats;
use retrograd_tensor::{Tensor, par};
use std::sync::{Arc, Mutex};

fn layer(x: &Var, w: &[Var]) -> Var {
    let h = x.layer_norm(None, None, 1e-5);
    let h = h.feed_forward((&w[0], None), Gelu, (&w[1], None));
    (h + x).softmax(-1)
}

#[test]
fn bytes_are_those_of_the_pool() {
    par::single_threaded(|| {
        let mut rng = Rng::new(1);
        let mut leaf = |shape: &[usize]| Var::leaf(Tensor::<f32>::randn(shape, &mut rng));
        let (x, w) = (leaf(&[64, 96]), [leaf(&[200, 96]), leaf(&[96, 200])]);
        let step = || layer(&layer(&x, &w), &w).square().mean(..);
        let before = pool_stats();

        // Forward: what the graph keeps is what is listed as saved. (Sizes are multiples of the size classes.)
        let (loss, recording) = record(step);
        assert_eq!(recording.live, before.live);
        let kept = pool_stats().live - before.live - 64; // the loss itself
        let own = recording.operations.iter().flat_map(|op| &op.saved).filter(|t| !t.is_shared);
        let listed: usize = own.map(|t| t.bytes.next_multiple_of(64)).sum();
        assert!(kept > 100_000, "{kept}");
        assert!((kept / 2..=kept).contains(&listed), "{listed} listed, {kept} kept");
        drop(loss);
        assert_eq!(pool_stats().live, before.live);

        // Backward: the peak of the record is that of the pool, for the first time in this process.
        let earlier = pool_stats().peak;
        let (grads, recording) = record(|| step().backward());
        assert!(recording.peak() > earlier, "the peak must be that of the step");
        assert_eq!(recording.peak(), pool_stats().peak);
        let at_events = recording.events.iter().map(|event| event.live).max().unwrap();
        assert!(recording.peak() >= at_events);
        drop(grads);
        assert_eq!(pool_stats().live, before.live);

        // After each event, the bytes are those of the pool.
        let live = Arc::new(Mutex::new(Vec::new()));
        let sink = live.clone();
        let recorder =
            Recorder::new().watching(move |_| sink.lock().unwrap().push(pool_stats().live));
        let (_, recording) = recorder.record(|| step().backward());
        let watched = recording.events.iter().filter(|e| !matches!(e.what, What::RuleEnded { .. }));
        let recorded: Vec<usize> = watched.map(|event| event.live).collect();
        assert_eq!(recorded, *live.lock().unwrap());
    });
}
