//! The kernels of attention and of a training step.

use retrograd_autograd::Var;
use retrograd_nn::attention::{Path, Spec, attend};
use retrograd_nn::*;
use retrograd_study::trace::trace;
use retrograd_tensor::Tensor;
use retrograd_tensor::observe::{KernelCall, Size};
use retrograd_tensor::random::Rng;

const BATCH: usize = 2;
const HEADS: usize = 3;
const LENGTH: usize = 128;
const WIDTH: usize = 16;

fn operands() -> [Var; 3] {
    let rng = &mut Rng::new(1);
    [(); 3].map(|()| Var::leaf(Tensor::randn([BATCH, HEADS, LENGTH, WIDTH], rng)))
}

#[test]
fn tiled_attention_counts_its_tiles() {
    let [q, k, v] = operands();
    let (grads, trace) = trace(|| attend(&q, &k, &v, &Spec::new().causal()).sum(..).backward());
    assert!(grads.get(&q).is_some());
    let of = |name| trace.calls().iter().find(|call| call.operation == name).expect(name);
    let all = (BATCH * HEADS) as u64;
    // Tiles of 32 queries and 64 keys, in units of 32 x 32 pairs:
    // partial 1 and 2; full 2 and 2, partial 1 and 2; the others are skipped.
    let pairs = all * 32 * 32 * (1 + 2 + 2 + 2 + 1 + 2);
    let (batch, heads, queries, keys, width) = (BATCH, HEADS, LENGTH, LENGTH, WIDTH);
    for (name, products) in [("attention", 1 + 1), ("attention_vjp", 3 + 2)] {
        let call = of(name);
        assert_eq!(call.kernel, "tiled");
        let tiles = format!("tiles: {} full, {} partial, {} skipped", 2 * all, 4 * all, 2 * all);
        assert_eq!(call.detail, tiles, "{name}");
        assert_eq!(call.flops, 2 * pairs * products * WIDTH as u64, "{name}");
        assert_eq!(call.size, Size::Attention { batch, heads, queries, keys, width });
    }
    let forward = of("attention");
    let (elements, queries) = (BATCH * HEADS * LENGTH * WIDTH, BATCH * HEADS * LENGTH);
    assert_eq!(forward.read, 4 * 3 * elements as u64);
    assert_eq!(forward.written, 4 * (elements + queries) as u64);
}

#[test]
fn composed_attention_names_the_reason_and_contains_its_operations() {
    let [q, k, v] = operands();
    let spec = Spec::new().causal().path(Path::Composed);
    let (_, trace) = trace(|| attend(&q, &k, &v, &spec));
    let outer = trace.calls().iter().find(|call| call.kernel == "composed").unwrap();
    let described = (outer.operation, outer.detail.as_str(), outer.depth);
    assert_eq!(described, ("attention", "requested", 0));
    let inside = |call: &&KernelCall| call.depth == 1 && call.start >= outer.start;
    let products = trace.calls().iter().filter(inside).filter(|call| call.operation == "matmul");
    assert_eq!(products.count(), 2);
    let parts: f64 = trace.calls().iter().filter(inside).map(|call| call.elapsed).sum();
    assert!(outer.elapsed >= outer.seconds + parts);
}

/// The products of a training step are those of the forward pass, and two of the same size for each in the
/// backward pass: the gradients of the input and of the weight.
#[test]
fn operations_of_a_training_step_follow_the_formula() {
    let (batch, length, layers, width, vocab) = (3, 32, 2, 32, 19);
    let config =
        GptConfig { vocab, context: length, layers, heads: 2, width, ..GptConfig::default() };
    let model = Gpt::<f32>::new(config, &mut Rng::new(1)).unwrap();
    let rng = &mut Rng::new(7);
    let [x, y] = [(); 2].map(|()| Tensor::<i64>::randint(0, vocab as i64, [batch, length], rng));
    let step = || model.loss_and_gradients(&x, &y, &mut Pass::train(1));
    let plain = step();
    let (traced, trace) = trace(step);
    assert_eq!(plain.0.to_bits(), traced.0.to_bits());

    let of_sizes = |call: &KernelCall| match call.size {
        Size::Product { batch, m, k, n } => 2 * batch * m * k * n,
        _ => 0,
    };
    let products: usize = trace.calls().iter().map(of_sizes).sum();
    // qkv, projection, and the two layers of the MLP; the logits.
    let weights = layers * (3 + 1 + 4 + 4) * width * width + vocab * width;
    assert_eq!(products, 3 * 2 * batch * length * weights);
    // One tile per sequence and head, of 32 x 32 pairs.
    let attention = |call: &&KernelCall| matches!(call.size, Size::Attention { .. });
    let flops: u64 = trace.calls().iter().filter(attention).map(|call| call.flops).sum();
    assert_eq!(flops as usize, layers * batch * 2 * (length * length) * (2 + 5) * width);
    for call in trace.calls() {
        assert!(call.flops as usize >= of_sizes(call), "{call:?}");
    }
}
