//! Error messages of invalid shapes and arguments, and their location, the caller's line. The
//! messages are part of the interface; they are the same in debug and release builds.

// Messages have numbers of 64 bits.
#![cfg(target_pointer_width = "64")]

use retrograd_support::panics;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::ops::activation::Relu;
use retrograd_tensor::ops::loss::{CrossEntropy, Reduction};
use retrograd_tensor::random::{Key, Rng};
use retrograd_tensor::torch_random::TorchRng;
use retrograd_tensor::with_threads;
use retrograd_tensor::{Ellipsis, ErrorKind, INFER, NewAxis, ScatterReduce, Shape, StepBy, Tensor};

fn x(dims: &[usize]) -> Tensor<f32> {
    Tensor::zeros(dims)
}

#[test]
fn rearrangement_and_statistics_check_their_arguments() {
    panics! {
        x(&[2, 3]).repeat(&[2]) =>
            "repeat: [2] has no number for every axis of [2, 3] (hint: tile repeats the last axes)";
        x(&[2, 3]).repeat(&[1 << 62, 4]) =>
            "repeat: shape [9223372036854775808, 12] has more than 9223372036854775807 elements";
        x(&[2]).tile(&[1; 9]) => "tile: [1, 1, 1, 1, 1, 1, 1, 1, 2] has 9 axes, the most is 8";
        x(&[2]).repeat_interleave(1, 2) =>
            "repeat_interleave: axis 1 is out of range for [2], which has rank 1";
        x(&[2]).roll(1, 2) => "roll: axis 1 is out of range for [2], which has rank 1";
        x(&[2, 2, 2]).diag(0) =>
            "diag: [2, 2, 2] must be a vector or a matrix (hint: diag_embed and diagonal take batches)";
        x(&[]).diag_embed(0) => "diag_embed: needs at least one axis, got []";
        x(&[2]).trace() => "trace: axis -2 is out of range for [2], which has rank 1";
        x(&[]).rows().for_each(drop) => "rows: needs at least one axis, got []";
        (&x(&[])).into_iter().for_each(drop) => "rows: needs at least one axis, got []";
        x(&[2]).histc(0, 0.0, 1.0) => "histc: needs at least 1 bin, got 0";
        x(&[2]).histc(3, 1.0, 0.0) => "histc: the range from 1 to 0 must be finite and in order";
        x(&[2]).quantile(.., 1.5) => "quantile: q must be in [0, 1], got 1.5";
        x(&[2, 0]).quantile(1, 0.5) =>
            "quantile: an axis of [2, 0] is empty, so it has no such element";
        x(&[0]).median(..) => "median: an axis of [0] is empty, so it has no such element";
        Tensor::from([3i64, -1]).bincount(0) =>
            "bincount: the element -1 at position 1 is negative";
        x(&[2]).vector_norm(.., f64::NAN) => "vector_norm: the exponent p must not be NaN";
        x(&[2, 0]).vector_norm(1, f64::INFINITY) =>
            "vector_norm: an axis of [2, 0] is empty, so it has no norm of exponent inf";
        x(&[2]).normalize(.., 2.0, -1.0) => "normalize: eps = -1 must be at least 0";
        x(&[2]).masked_select(&Tensor::ones([3])) =>
            "masked_select: cannot broadcast [2] with [3]: axis -1 is 2 and 3";
        x(&[2]).cumprod(1) => "cumprod: axis 1 is out of range for [2], which has rank 1";
        x(&[2]).flip([0, 0]) => "flip: axis 0 of [2] is named twice in [0, 0]";
    }
}

#[test]
fn constructors_check_shapes_and_memory() {
    let e = |dims: &[usize]| Tensor::<f32>::try_full(dims, 0.0).unwrap_err().to_string();
    assert_eq!(
        e(&[1 << 32, 1 << 32]),
        "full: shape [4294967296, 4294967296] has more than 9223372036854775807 elements"
    );
    assert_eq!(
        e(&[0, usize::MAX, 2]),
        "full: shape [0, 18446744073709551615, 2] has more than 9223372036854775807 elements"
    );
    assert_eq!(e(&[1; 9]), "full: [1, 1, 1, 1, 1, 1, 1, 1, 1] has 9 axes, the most is 8");
    assert_eq!(
        Tensor::<f64>::try_full(&[isize::MAX as usize / 2], 0.0).unwrap_err().to_string(),
        "full: 4611686018427387903 elements of f64 do not fit the address space"
    );
    let e = Tensor::try_from_vec(vec![1.0f32; 5], &[2, 3]).unwrap_err();
    assert_eq!(e.to_string(), "from_vec: shape [2, 3] needs 6 elements, got 5");
    assert_eq!(e.kind, ErrorKind::Length);
    panics! {
        Tensor::from_vec(vec![1.0f32; 7], [2, 3]) =>
            "from_vec: shape [2, 3] needs 6 elements, got 7";
        Tensor::<f32>::zeros([1 << 32, 1 << 32]) =>
            "tensor: shape [4294967296, 4294967296] has more than 9223372036854775807 elements";
        Tensor::<f32>::zeros([1 << 50]) => "full: no memory for 4503599627370496 bytes";
        Tensor::<f32>::arange(0.0, 1.0, 0.0) => "arange: 0..1 by 0 has no finite length";
        Tensor::<f32>::one_hot(&Tensor::from([0i64, -1]), 3) =>
            "one_hot: index -1 at position 1 is outside 0..3";
    }
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn views_check_axes_and_ranges() {
    let t = x(&[2, 5]);
    panics! {
        t.reshape([3, 4]) => "reshape: [2, 5] has 10 elements and [3, 4] has 12";
        t.reshape([3, INFER]) =>
            "reshape: [2, 5] has 10 elements, which 3 does not divide for [3, _]";
        x(&[0, 5]).reshape([INFER, 0]) =>
            "reshape: the inferred axis of [_, 0] could have any size";
        t.reshape([INFER, INFER]) => "reshape: only one axis of [_, _] can be inferred";
        t.slice(1, 2..6) => "slice: 2..6 is outside 0..5 on axis 1 of [2, 5]";
        t.slice(1, 3..1) => "slice: 3..1 is outside 0..5 on axis 1 of [2, 5]";
        t.slice(-1, ..=usize::MAX) =>
            "slice: 0..18446744073709551615 is outside 0..5 on axis 1 of [2, 5]";
        t.slice_step(0, .., 0) => "slice: a step of 0 never ends";
        t.slice(2, ..) => "slice: axis 2 is out of range for [2, 5], which has rank 2";
        t.slice(isize::MIN, 0..1) =>
            "slice: axis -9223372036854775808 is out of range for [2, 5], which has rank 2";
        t.narrow(0, usize::MAX, 2) =>
            "narrow: 18446744073709551615..18446744073709551615 is outside 0..2 on axis 0 of [2, 5]";
        t.select(0, 2) => "select: index 2 is outside 0..2 on axis 0 of [2, 5]";
        t.squeeze(0) => "squeeze: axis 0 of [2, 5] has size 2, not 1";
        t.unsqueeze(4) => "unsqueeze: axis 4 is out of range for a new axis of [2, 5]";
        x(&[1; 8]).unsqueeze(0) =>
            "unsqueeze: [1, 1, 1, 1, 1, 1, 1, 1, 1] has 9 axes, the most is 8";
        t.permute([0]) => "permute: [0] names 1 axes, [2, 5] has 2";
        t.permute([0, -2]) => "permute: axis -2 of [2, 5] is named twice in [0, -2]";
        x(&[3]).t() => "t: axis -2 is out of range for [3], which has rank 1";
        t.transpose(0, 7) => "transpose: axis 7 is out of range for [2, 5], which has rank 2";
        t.broadcast_to([2, 6]) => "broadcast_to: [2, 5] does not broadcast to [2, 6]";
        t.broadcast_to([5]) => "broadcast_to: [2, 5] does not broadcast to [5]";
        t.split(1, &[2, 2]) => "split: sizes [2, 2] do not add up to 5, axis 1 of [2, 5]";
        t.split(1, &[usize::MAX, 6]) =>
            "split: sizes [18446744073709551615, 6] do not add up to 5, axis 1 of [2, 5]";
        t.chunk(1, 0) => "chunk: needs at least 1 piece, got 0";
        t.diagonal(1, -1, 0) => "diagonal: axis 1 of [2, 5] is named twice";
        t.unfold(1, 6, 1) => "unfold: windows of 6 every 1 do not fit axis 1 of [2, 5]";
        t.unfold(1, 2, 0) => "unfold: windows of 2 every 0 do not fit axis 1 of [2, 5]";
    }
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn indices_of_several_axes_are_checked() {
    let t = x(&[2, 5]);
    panics! {
        t.i((0, 5)) => "i: 5 is outside 0..5 on axis 1 of [2, 5]";
        t.i((0, -6)) => "i: -6 is outside 0..5 on axis 1 of [2, 5]";
        t.i((.., -6..)) => "i: -6.. is outside 0..5 on axis 1 of [2, 5]";
        t.i((0, 1..6)) => "i: 1..6 is outside 0..5 on axis 1 of [2, 5]";
        t.i((0, 3..1)) => "i: 3..1 is outside 0..5 on axis 1 of [2, 5]";
        t.i((0, ..=-6)) => "i: ..=-6 is outside 0..5 on axis 1 of [2, 5]";
        t.i((0, isize::MIN)) => "i: -9223372036854775808 is outside 0..5 on axis 1 of [2, 5]";
        t.i((0, isize::MIN..)) => "i: -9223372036854775808.. is outside 0..5 on axis 1 of [2, 5]";
        t.i((0, ..=isize::MIN)) => "i: ..=-9223372036854775808 is outside 0..5 on axis 1 of [2, 5]";
        x(&[0]).i(-1) => "i: -1 is outside 0..0 on axis 0 of [0]";
        x(&[2]).i(usize::MAX) => "i: 9223372036854775807 is outside 0..2 on axis 0 of [2]";
        x(&[2]).i(..=usize::MAX) => "i: ..=9223372036854775807 is outside 0..2 on axis 0 of [2]";
        x(&[2]).i(StepBy(.., 0)) => "i: a step of 0 never ends";
        x(&[2]).i((Ellipsis, Ellipsis)) =>
            "i: 2 ellipses: it would not be known which axes each stands for";
        x(&[1; 8]).i(NewAxis) => "i: [1, 1, 1, 1, 1, 1, 1, 1, 1] has 9 axes, the most is 8";
        t.i((0, 0, 0)) => "i: 3 indices for [2, 5], which has rank 2";
        t.i(StepBy(1, 2)) => "StepBy: 1 is no range";
        t.slice_assign(2, 0.0) => "slice_assign: 2 is outside 0..2 on axis 0 of [2, 5]";
        t.slice_assign(0, x(&[4])) => "slice_assign: [4] does not broadcast to [5]";
        t.select_scatter(1, 0, x(&[5])) => "select_scatter: [5] does not broadcast to [2]";
        t.select_scatter(1, 5, 0.0) =>
            "select_scatter: index 5 is outside 0..5 on axis 1 of [2, 5]";
    }
    let twice = Layout::contiguous([1].into()).broadcast_to("", &[2].into()).unwrap();
    panics! {
        x(&[2]).as_strided_scatter(&twice, &x(&[2])) =>
            "as_strided_scatter: Layout { shape: [2], strides: [0, 0, 0, 0, 0, 0, 0, 0], offset: 0 } \
             exceeds [2], or has elements with one position";
    }
    let (t, five) = (x(&[4]), Layout::contiguous([5].into()));
    let [last, reversed] = [1, -1].map(|step| five.slice("", 0, 1, 5, step).unwrap());
    let end = |layout: Layout| format!("{layout:?} exceeds the 4 elements of [4]");
    panics! {
        t.as_strided(&five) => format!("as_strided: {}", end(five));
        t.as_strided(&last) => format!("as_strided: {}", end(last));
        t.as_strided(&reversed) => format!("as_strided: {}", end(reversed));
        t.view_by(|_| Ok(last)) => format!("view_by: {last:?} exceeds the storage");
        x(&[4]).as_strided_add_assign(&last, &x(&[4])) =>
            format!("as_strided_add_assign: [4] through {last:?} does not fit [4]");
    }
}

#[test]
fn scatters_check_shapes_and_indices() {
    let (t, idx) = (x(&[2, 3]), Tensor::from([[0i64], [3]]));
    panics! {
        t.scatter(1, &idx, 0.0) => "scatter: index 3 at position 1 is outside 0..3";
        t.scatter_reduce(1, &idx, &x(&[2, 1]), ScatterReduce::Prod) =>
            "scatter_reduce: index 3 at position 1 is outside 0..3";
        t.scatter(1, &idx, x(&[2, 2])) => "scatter: the values must have shape [2, 1], not [2, 2]";
        t.scatter(0, &Tensor::from([0i64]), 0.0) => "scatter: indices [1] must have rank 2, not 1";
        t.scatter_reduce(0, &Tensor::<i64>::zeros([1, 4]), &x(&[1, 4]), ScatterReduce::Amax) =>
            "scatter_reduce: axis 1 of indices [1, 4] is longer than that of [2, 3]";
        t.scatter(2, &idx, 0.0) => "scatter: axis 2 is out of range for [2, 3], which has rank 2";
    }
}

#[test]
fn selections_and_sums_check_shapes() {
    let (t, idx) = (x(&[3, 4]), Tensor::<i64>::zeros([5, 4]));
    panics! {
        t.gather(1, &idx) => "gather: axis 0 of indices [5, 4] is longer than that of [3, 4]";
        t.gather(1, &Tensor::<i64>::zeros([3])) => "gather: indices [3] must have rank 2, not 1";
        t.scatter_add(0, &idx, &t) =>
            "scatter_add: the values must have shape [5, 4], not [3, 4]";
        t.index_select(2, &Tensor::<i64>::zeros([1])) =>
            "index_select: axis 2 is out of range for [3, 4], which has rank 2";
        x(&[3]).embedding(&idx) => "embedding: the table [3] must have rank 2, not 1";
        Tensor::embedding_vjp(&t, &idx, 3) =>
            "embedding_vjp: the gradient [3, 4] must have rank 3, not 2";
        t.topk(1, 5, true) => "topk: k = 5 is more than 4, axis 1 of [3, 4]";
    }
}

/// Every index is checked, and printed with its sign and its position.
#[test]
fn indices_are_checked() {
    let (table, grad) = (x(&[256, 2]), x(&[8, 2]));
    for bad in [-1, 256, i64::MIN, i64::MAX] {
        let idx = Tensor::from([0, 1, 2, 3, 4, 5, 6, bad]);
        let wide = idx.reshape([8, 1]);
        let text = |op: &str| format!("{op}: index {bad} at position 7 is outside 0..256");
        panics! {
            table.embedding(&idx) => text("embedding");
            table.gather(0, &wide) => text("gather");
            table.index_select(0, &idx) => text("index_select");
            table.index_add(0, &idx, &grad) => text("index_add");
            table.scatter_add(0, &wide, &grad.narrow(1, 0, 1)) => text("scatter_add");
            Tensor::embedding_vjp(&grad, &idx, 256) => text("embedding_vjp");
        }
    }
    // The position is that of the caller, for every axis.
    let idx = Tensor::from([[0i64, 0], [0, 9], [0, 0]]);
    panics! {
        x(&[3, 2]).scatter_add(0, &idx, &x(&[3, 2])) =>
            "scatter_add: index 9 at position 3 is outside 0..3";
    }
}

#[test]
fn joined_parts_are_checked() {
    let scalar = Tensor::scalar(1.0f32);
    panics! {
        Tensor::<f32>::cat(&[], 0) => "cat: needs at least one tensor";
        Tensor::<f32>::stack(&[], 0) => "stack: needs at least one tensor";
        Tensor::cat(&[&x(&[2, 3]), &x(&[2, 4])], 0) =>
            "cat: part 1 is [2, 4], part 0 is [2, 3]: axis 1 differs";
        Tensor::cat(&[&x(&[2, 3]), &x(&[2])], 0) =>
            "cat: part 1 is [2], part 0 is [2, 3]: ranks differ";
        Tensor::stack(&[&x(&[2]), &x(&[3])], 0) => "stack: part 1 is [3], part 0 is [2]";
        Tensor::cat(&[&scalar, &scalar], 0) =>
            "cat: axis 0 is out of range for [], which has rank 0";
    }
}

#[test]
fn element_access_checks_indices() {
    let t = x(&[2, 5]);
    panics! {
        t.at(&[1]) => "at: index [1] has 1 axes, [2, 5] has 2";
        t.at(&[1, 5]) => "at: index 5 is outside 0..5 on axis 1 of [2, 5]";
        t.item() => "item: [2, 5] has 10 elements, not one";
        t.size(2) => "size: axis 2 is out of range for [2, 5], which has rank 2";
        t.t().as_slice().len() =>
            "as_slice: [5, 2] with strides [1, 5] is not contiguous (hint: call contiguous() first)";
    }
}

#[test]
fn arithmetic_checks_shapes() {
    let (a, b) = (x(&[2, 3]), x(&[4, 3]));
    let text = |op: &str| format!("{op}: cannot broadcast [2, 3] with [4, 3]: axis -2 is 2 and 4");
    panics! {
        a.add(&b) => text("add");
        &a + &b => text("add");
        a.clone() - b.clone() => text("sub");
        &a * b.clone() => text("mul");
        a.clone() / &b => text("div");
        a.maximum(&b) => text("maximum");
        a.lt(&b) => text("lt");
        a.lt(b.clone()) => text("lt");
        a.remainder(&b) => text("remainder");
        a.clone().add_assign(&b) => "broadcast_to: [4, 3] does not broadcast to [2, 3]";
        a.clamp(1.0, 0.0) => "clamp: bounds 1 and 0 are not in order";
        a.clamp(f32::NAN, 0.0) => "clamp: bounds NaN and 0 are not in order";
    }
    let keep = Tensor::<bool>::zeros([2, 3]);
    panics! {
        keep.where_(&a, &b) => "where_: cannot broadcast [2, 3] with [4, 3]: axis -2 is 2 and 4";
        x(&[3]).masked_fill(&keep, 0.0) => "masked_fill: [2, 3] does not broadcast to [3]";
    }
}

#[test]
fn comparisons_check_shapes_and_tolerances() {
    let (a, b) = (x(&[2, 3]), x(&[4, 3]));
    let negative =
        |op: &str| format!("{op}: tolerances must not be negative, got rtol -1 and atol 0");
    panics! {
        a.isclose(&a, -1.0, 0.0) => negative("isclose");
        a.allclose(&a, -1.0, 0.0) => negative("allclose");
        a.close_to(&a, -1.0, 0.0) => negative("close_to");
        a.allclose(&b, 0.0, f64::NAN) =>
            "allclose: tolerances must not be negative, got rtol 0 and atol NaN";
        a.allclose(&b, 0.0, 0.0) =>
            "allclose: cannot broadcast [2, 3] with [4, 3]: axis -2 is 2 and 4";
        a.assert_close(&b, 0.0, 0.0) => "assert_close: the shape is [2, 3], expected [4, 3]";
        a.max_ulp_distance(&b) => "max_ulp_distance: shapes [2, 3] and [4, 3] differ";
    }
}

#[test]
fn arithmetic_on_integers_checks_results() {
    let hint = "(hint: cast::<f64>() has a larger range)";
    let i = Tensor::from([[7i64, i64::MAX], [-7, 2]]);
    panics! {
        &i / 0 => format!("div: the result of 7 and 0 at index [0, 0] is no i64 {hint}");
        1 + &i =>
            format!("add_scalar: the result of {} and 1 at index [0, 1] is no i64 {hint}", i64::MAX);
        -10 - &i =>
            format!("sub: the result of -10 and {} at index [0, 1] is no i64 {hint}", i64::MAX);
        i.pow(&Tensor::from([1, -1])) =>
            format!("pow: the result of {} and -1 at index [0, 1] is no i64 {hint}", i64::MAX);
        -Tensor::from([0u32, 3]) => format!("neg: the result of 3 at index [1] is no u32 {hint}");
        i.sum(1) => format!("sum: a result over axes [1] of [2, 2] is no i64 {hint}");
        i.cumsum(1) => format!("cumsum: a sum along axis 1 of [2, 2] is no i64 {hint}");
        i.min(2) => "min: axis 2 is out of range for [2, 2], which has rank 2";
        &i + &Tensor::from([1, 2, 3]) =>
            "add: cannot broadcast [2, 2] with [3]: axis -1 is 2 and 3";
    }
}

#[test]
fn products_check_inner_sizes() {
    panics! {
        x(&[2, 3]).matmul(&x(&[2, 3])) =>
            "matmul: [2, 3] · [2, 3]: the last axis of the left is 3, axis -2 of the right is 2 \
             (hint: transpose one of them with t()?)";
        x(&[2, 3]).matmul(&x(&[2])) =>
            "matmul: [2, 3] · [2]: the last axis of the left is 3, axis -1 of the right is 2 \
             (hint: transpose one of them with t()?)";
        x(&[]).matmul(&x(&[2])) =>
            "matmul: [] · [2]: operands need at least one axis (hint: multiply by a number with `*`)";
        x(&[2, 3, 4]).matmul(&x(&[3, 4, 5])) =>
            "matmul: cannot broadcast [2] with [3]: axis -1 is 2 and 3";
        x(&[2]).dot(&x(&[3])) => "dot: needs two vectors of equal length, got [2] and [3]";
        x(&[2, 2]).outer(&x(&[3])) => "outer: needs two vectors, got [2, 2] and [3]";
        Tensor::einsum("ij,jk->ik", &[&x(&[2, 3]), &x(&[4, 5])]) =>
            "einsum: \"ij,jk->ik\": axis j is 3 and 4";
    }
}

#[test]
fn linear_layers_check_shapes() {
    let hint = "(hint: [.., inputs], [outputs, inputs] and [outputs] go together)";
    panics! {
        x(&[3, 4]).linear(&x(&[2, 5]), None) => format!("linear: [3, 4], weight [2, 5] {hint}");
        x(&[3, 4]).linear_add(&x(&[4, 4]), None, &x(&[4])) =>
            "linear_add: a residual [4] to a result [3, 4]";
        x(&[3, 4]).linear(&x(&[2, 4]), Some(&x(&[3]))) =>
            format!("linear: [3, 4], weight [2, 4], bias [3] {hint}");
        x(&[3, 4]).linear_activation(&x(&[4]), None, Relu) =>
            format!("linear: [3, 4], weight [4] {hint}");
        x(&[]).linear(&x(&[2, 5]), None) => format!("linear: [], weight [2, 5] {hint}");
        x(&[3, 4]).matmul_times(&x(&[4, 2]), &x(&[2])) => "matmul_times: [3, 4] · [4, 2] times [2]";
    }
}

#[test]
fn reductions_check_axes() {
    let t = x(&[2, 0]);
    panics! {
        t.max(1) => "max: axis 1 of [2, 0] is empty, so it has no such element";
        t.min(..) => "min: axis 1 of [2, 0] is empty, so it has no such element";
        t.argmax(-1) => "argmax: axis 1 of [2, 0] is empty, so it has no such element";
        t.sum(2) => "sum: axis 2 is out of range for [2, 0], which has rank 2";
        x(&[]).sum(0) => "sum: axis 0 is out of range for [], which has rank 0";
        t.mean([0, -2]) => "mean: axis -2 of [2, 0] is named twice in [0, -2]";
        t.sum_to([3]) => "sum_to: [3] does not broadcast to [2, 0]";
        x(&[]).cumsum(0) => "cumsum: axis 0 is out of range for [], which has rank 0";
    }
}

#[test]
fn row_operations_check_shapes_and_parameters() {
    let t = x(&[2, 3]);
    panics! {
        t.softmax(2) => "softmax: axis 2 is out of range for [2, 3], which has rank 2";
        x(&[]).log_softmax(-1) => "log_softmax: axis -1 is out of range for [], which has rank 0";
        t.masked_softmax(1, &Tensor::ones([3, 2])) =>
            "masked_softmax: [3, 2] does not broadcast to [2, 3]";
        Tensor::softmax_vjp(&t, &x(&[3, 2]), 1) => "softmax_vjp: [2, 3] and [3, 2] differ";
        t.layer_norm_vjps(None, 1e-5, &x(&[3])) => "layer_norm_vjp: [2, 3] and [3] differ";
        t.layer_norm(Some(&x(&[2])), None, 1e-5) =>
            "layer_norm: weight has shape [2], the last axis of [2, 3] needs [3]";
        t.layer_norm(None, Some(&x(&[1, 3])), 1e-5) =>
            "layer_norm: bias has shape [1, 3], the last axis of [2, 3] needs [3]";
        x(&[]).rms_norm(None, 1e-5) => "rms_norm: needs an axis to normalise, got rank 0";
    }
    for (eps, shown) in [(f64::NAN, "NaN"), (-1.0, "-1"), (f64::INFINITY, "inf")] {
        let text = |op: &str| format!("{op}: eps must be finite and at least 0, got {shown}");
        panics! {
            t.layer_norm(None, None, eps) => text("layer_norm");
            t.layer_norm_vjps(None, eps, &t) => text("layer_norm");
            t.rms_norm(None, eps) => text("rms_norm");
            t.rms_norm_vjps(None, eps, &t) => text("rms_norm");
        }
    }
    let options = CrossEntropy::default();
    panics! {
        t.cross_entropy(&Tensor::from([0i64]), options) =>
            "cross_entropy: logits [2, 3] need one target per row, got targets [1] (hint: the classes \
             are the last axis unless CrossEntropy::axis is another)";
    }
    let on = |axis| CrossEntropy { axis, ..options };
    panics! {
        t.cross_entropy(&Tensor::from([0i64, 1]), on(0)) =>
            "cross_entropy: logits [2, 3] with classes on axis 0 need a target for each of the others, \
             got targets [2] (hint: the classes are the last axis unless CrossEntropy::axis is another)";
        t.cross_entropy(&Tensor::from([0i64, 1]), on(2)) =>
            "cross_entropy: axis 2 is out of range for [2, 3], which has rank 2";
        t.linear_cross_entropy(&t, &Tensor::from([0i64, 1]), on(0)) =>
            "linear_cross_entropy: the classes are the last axis of x · Wᵀ, but CrossEntropy::axis is 0";
    }
    let none = CrossEntropy { reduction: Reduction::None, ..options };
    panics! {
        t.linear_cross_entropy_with_gradients(&t, &Tensor::from([0i64, 1]), none) =>
            "linear_cross_entropy: gradients that are computed with the loss are those of one number, not \
             of the loss of each row (Reduction::None)";
    }
    let targets = Tensor::from([0i64, 1]);
    panics! {
        t.weighted_cross_entropy(&targets, &Tensor::ones([2]), options) =>
            "cross_entropy: 3 classes need weights [3], got [2]";
        t.weighted_cross_entropy(&targets, &Tensor::zeros([0]), options) =>
            "cross_entropy: 3 classes need weights [3], got [0]";
        t.weighted_cross_entropy(&targets, &Tensor::from([1.0, -1.0, f32::NAN]), options) =>
            "cross_entropy: the weight of class 1 must be finite and at least 0, got -1";
    }
    for (bad, ignore_index) in
        [(3, Some(-100)), (-1, Some(-100)), (i64::MIN, None), (-100, None), (i64::MAX, None)]
    {
        let options = CrossEntropy { ignore_index, ..options };
        panics! {
            t.cross_entropy(&Tensor::from([0, bad]), options) => format!(
                "cross_entropy: target {bad} at position 1 is outside 0..3 (hint: \
                 CrossEntropy::ignore_index is the target that is ignored)"
            );
        }
    }
    let options = CrossEntropy { label_smoothing: f64::NAN, ..options };
    panics! {
        t.cross_entropy(&Tensor::from([0i64, 1]), options) =>
            "cross_entropy: label_smoothing must be in [0, 1], got NaN";
    }
}

#[test]
fn thread_counts_are_checked() {
    panics! {
        with_threads(0, || ()) => "with_threads: needs at least 1 thread, got 0";
    }
}

#[test]
fn parameters_of_distributions_are_checked() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let mut torch = TorchRng::manual_seed(1);
    for (lo, hi, shown) in [(nan, 1.0, "[NaN, 1)"), (0.0, nan, "[0, NaN)"), (1.0, 0.0, "[1, 0)")] {
        let text = format!("uniform: {shown} must be in order and of finite width");
        panics! {
            torch.uniform::<f32>([2], lo, hi) => text;
            Tensor::<f32>::uniform([2], lo, hi, &mut Rng::new(1)) => text;
        }
    }
    panics! {
        torch.uniform::<f32>([2], -3e38, 3e38) =>
            format!("uniform: [{}, {}) must be in order and of finite width", -3e38f32, 3e38f32);
    }
    for (mean, std, shown) in [
        (nan, 1.0, "mean NaN, std 1"),
        (0.0, nan, "mean 0, std NaN"),
        (0.0, -inf, "mean 0, std -inf"),
    ] {
        let text = format!("normal: std must be at least 0 and the mean not NaN, got {shown}");
        panics! {
            torch.normal::<f32>([2], mean, std) => text;
        }
    }
    for p in [nan, -0.1, 1.1, inf] {
        let text = |op: &str| format!("{op}: p must be in [0, 1], got {p}");
        panics! {
            Tensor::bernoulli([2], p, &mut Rng::new(1)) => text("bernoulli");
            x(&[2]).dropout(p, Key::new(1, 1)) => text("dropout");
            assert!(Key::new(1, 1).happens(0, p)) => text("happens");
        }
    }
    panics! {
        Tensor::<i64>::randint(3, 3, [1], &mut Rng::new(0)) => "randint: the range 3..3 is empty";
        Tensor::<f32>::uniform([1], 1.0, inf, &mut Rng::new(0)) =>
            "uniform: [1, inf) must be in order and of finite width";
    }
    assert_eq!(Tensor::<i64>::randint(3, 3, [0], &mut Rng::new(0)).numel(), 0);
}

#[test]
fn padding_is_checked() {
    let t = x(&[2, 3]);
    let most = isize::MAX as usize;
    for (before, after) in [(usize::MAX, 0), (0, usize::MAX), (usize::MAX, 1), (most / 2, most / 2)]
    {
        let want = format!(
            "pad: [2, 3] with {before} before and {after} after axis 1 has more than {most} elements"
        );
        panics! {
            t.pad(1, before, after, 0.0) => want;
            t.pad(-1, before, after, 0.0) => want;
        }
    }
    panics! {
        t.pad(2, 1, 1, 0.0) => "pad: axis 2 is out of range for [2, 3], which has rank 2";
        t.pad(0, 1 << 45, 0, 0.0) => "pad: no memory for 422212465066008 bytes";
    }
    assert_eq!(*x(&[0, 3]).pad(0, 1, 2, 0.0).shape(), [3, 3]);
}

#[test]
fn copies_larger_than_memory_are_errors() {
    // One element, broadcast to more elements than fit into memory.
    let one = Tensor::scalar(1.0f32);
    let wide = one.broadcast_to([1 << 45]);
    let no_memory = |op: &str| format!("{op}: no memory for {} bytes", 4u64 << 45);
    panics! {
        wide.contiguous() => no_memory("contiguous");
        wide.to_vec() => no_memory("contiguous");
    }
    let rows = x(&[2, 1]).broadcast_to([2, 1 << 44]);
    panics! {
        rows.flatten() => no_memory("contiguous");
        rows.reshape([1 << 45]) => no_memory("contiguous");
        wide.clone().make_mut() => no_memory("contiguous");
        one.histc(1 << 49, 0.0, 1.0) => "histc: no memory for 2251799813685248 bytes";
        assert!(wide == wide.clone()) => no_memory("contiguous");
    }
    let few = one.broadcast_to([1 << 23]);
    panics! {
        few.unsqueeze(1).mul(&few) => "mul: no memory for 281474976710656 bytes";
        &wide + &wide => no_memory("add");
        Tensor::cat(&[&wide, &wide], 0) => "cat: no memory for 281474976710656 bytes";
        wide.as_strided(wide.layout()) => no_memory("contiguous");
        few.unsqueeze(1).matmul(&few.unsqueeze(0)) => "matmul: no memory for 281474976710656 bytes";
    }
    let wider = one.broadcast_to([1 << 47]);
    panics! {
        wider.gt(&one) => "gt: no memory for 140737488355328 bytes";
        wide.map(Relu) => no_memory("relu");
        wide.map_vjp(Relu, &wide) => no_memory("relu");
        wide.abs() => no_memory("abs");
        wide.add_scalar(1.0) => no_memory("add_scalar");
        wide.clamp(0.0, 1.0) => no_memory("clamp");
        -&wide => no_memory("neg");
        &wide + 1.0 => no_memory("add_scalar");
        &wide / 2.0 => no_memory("div");
        2.0 / &wide => no_memory("div");
        2.0 - wide.clone() => no_memory("sub");
    }
    let (row, column) = (Tensor::<f32>::zeros([1, 1]), one.broadcast_to([1 << 45, 1]));
    panics! {
        column.softmax(-1) => no_memory("softmax");
        column.linear(&row, Some(&Tensor::zeros([1]))) => no_memory("linear");
        column.linear_activation(&row, None, Relu) => no_memory("relu");
    }
}

/// A panic on any thread does not affect later operations.
#[test]
fn operations_work_after_a_panic() {
    for _ in 0..20 {
        let t = Tensor::<f32>::ones([300, 300]);
        panics! {
            t.cross_entropy(&Tensor::<i64>::full([300], 300), CrossEntropy::default()) =>
                "cross_entropy: target 300 at position 0 is outside 0..300 \
                 (hint: CrossEntropy::ignore_index is the target that is ignored)";
        }
        assert_eq!(t.matmul(&t).sum(..).item(), 300f32.powi(3));
    }
    assert_eq!(Shape::try_new(&[2, 3]).unwrap().numel(), 6);
}
