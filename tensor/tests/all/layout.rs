//! Shapes, layouts, indices and loop nests, without the elements of a tensor. Their errors are in `errors`.

use retrograd_tensor::indexing::{AxisIndex, Indices};
use retrograd_tensor::internals::LoopNest;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::{Axes, Ellipsis, INFER, NewAxis, Shape, StepBy, Tensor};

#[test]
fn broadcasting_follows_numpy() {
    let b = |a: &[usize], b: &[usize]| Shape::broadcast("add", &a.into(), &b.into());
    assert_eq!(b(&[2, 1, 3], &[4, 1]).unwrap(), [2, 4, 3]);
    assert_eq!(b(&[], &[0, 3]).unwrap(), [0, 3]);
    assert_eq!(b(&[1], &[0]).unwrap(), [0]);
}

#[test]
fn inferred_sizes() {
    let infer = |from: &[usize], dims: &[usize]| Shape::infer("reshape", &from.into(), dims);
    assert_eq!(infer(&[2, 6], &[3, INFER]).unwrap(), [3, 4]);
    assert_eq!(infer(&[0, 5], &[5, INFER]).unwrap(), [5, 0]);
}

#[test]
fn axes() {
    let shape = Shape::from([2, 3, 4]);
    assert_eq!(shape.axis("sum", -1).unwrap(), 2);
    assert_eq!((..).resolve("sum", &shape).unwrap().len(), 3);
    assert_eq!(shape.reduced([0, 2].resolve("sum", &shape).unwrap(), true), [1, 3, 1]);
    assert_eq!(shape.reduced([0, 2].resolve("sum", &shape).unwrap(), false), [3]);
    assert_eq!(shape.without(1), [2, 4]);
}

fn dense(dims: &[usize]) -> Layout {
    Layout::contiguous(dims.into())
}

#[test]
fn reshape_is_a_view_when_strides_allow() {
    let t = dense(&[2, 3, 4]);
    assert_eq!(t.reshape([6, 4].into()).unwrap().strides(), [4, 1]);
    let p = t.permute("t", &[1, 0, 2]).unwrap();
    assert!(p.reshape([6, 4].into()).is_none());
    assert_eq!(p.reshape([3, 2, 2, 2].into()).unwrap().strides(), [4, 12, 2, 1]);
    let e = dense(&[1, 4]).broadcast_to("t", &[3, 4].into()).unwrap();
    assert!(e.reshape([12].into()).is_none());
    assert_eq!(e.reshape([3, 2, 2].into()).unwrap().strides(), [0, 2, 1]);
    assert!(dense(&[0, 5]).transpose("t", 0, 1).unwrap().reshape([0].into()).is_some());
    assert_eq!(*dense(&[]).reshape([1, 1].into()).unwrap().shape(), [1, 1]);
}

#[test]
fn contiguity_ignores_axes_of_one() {
    let t = dense(&[4, 1, 3]);
    assert!(t.transpose("t", 0, 1).unwrap().is_contiguous());
    assert!(!t.transpose("t", 0, 2).unwrap().is_contiguous());
    assert!(dense(&[0, 3]).transpose("t", 0, 1).unwrap().is_contiguous());
}

fn view(shape: &[usize], indices: impl Indices) -> (Vec<usize>, Vec<isize>, usize) {
    let layout = Layout::contiguous(shape.into()).index("i", &indices.to_indices()).unwrap();
    (layout.shape().to_vec(), layout.strides().to_vec(), layout.offset())
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn indices_resolve_as_in_python() {
    assert_eq!(view(&[2, 5], 1), (vec![5], vec![1], 5));
    assert_eq!(view(&[2, 5], -2), (vec![5], vec![1], 0));
    assert_eq!(view(&[2, 5], (-1, -1)), (vec![], vec![], 9));
    assert_eq!(view(&[2, 5], (.., 1..-1)), (vec![2, 3], vec![5, 1], 1));
    assert_eq!(view(&[2, 5], (.., -3..)), (vec![2, 3], vec![5, 1], 2));
    assert_eq!(view(&[2, 5], (.., ..=-2)), (vec![2, 4], vec![5, 1], 0));
    assert_eq!(view(&[2, 5], (.., 1..=3)), (vec![2, 3], vec![5, 1], 1));
    assert_eq!(view(&[2, 5], (.., 2..2)).0, [2, 0]);
    assert_eq!(view(&[2, 5], (.., 5..)).0, [2, 0]);
    assert_eq!(view(&[2, 5], (0, StepBy(.., -2))), (vec![3], vec![-2], 4));
    assert_eq!(view(&[2, 5], (0, StepBy(1..-1, 2))), (vec![2], vec![2], 1));
    assert_eq!(view(&[2, 3, 5], (Ellipsis, 1)), (vec![2, 3], vec![15, 5], 1));
    assert_eq!(view(&[2, 3, 5], (1, Ellipsis, 1..3)), (vec![3, 2], vec![5, 1], 16));
    assert_eq!(view(&[2, 3], (0, 1, Ellipsis)).0, [0usize; 0]);
    assert_eq!(view(&[2, 3], (NewAxis, .., NewAxis)).0, [1, 2, 1, 3]);
    assert_eq!(view(&[2, 3], (Ellipsis, NewAxis)).0, [2, 3, 1]);
    assert_eq!(view(&[], NewAxis).0, [1]);
    assert_eq!(view(&[4], 2usize).2, 2);
    assert_eq!(view(&[4], 1usize..3usize).0, [2]);
    let several = [AxisIndex::At(1), AxisIndex::NewAxis, AxisIndex::Ellipsis];
    assert_eq!(view(&[2, 3], &several[..]), (vec![1, 3], vec![0, 1], 3));
}

#[test]
fn axes_are_coalesced_and_visited_in_order() {
    let shape = Shape::from([2, 3, 4]);
    let dense = Layout::contiguous(shape);
    assert_eq!(LoopNest::new(&shape, [&dense, &dense]).run_len(), 24);
    let row = Layout::contiguous([4].into()).broadcast_to("t", &shape).unwrap();
    let nest = LoopNest::new(&shape, [&dense, &row]);
    assert_eq!(nest.run_len(), 4);

    let permuted = Layout::contiguous([4, 2, 3].into()).permute("t", &[1, 2, 0]).unwrap();
    let nest = LoopNest::new(&shape, [&permuted]);
    for from in 0..24 {
        let (mut cursor, mut seen) = (nest.cursor(from), Vec::new());
        while seen.len() < 24 - from {
            let (n, [start]) = cursor.next(3.min(24 - from - seen.len()));
            seen.extend((0..n).map(|i| (start as isize + i as isize * nest.stride(0)) as usize));
        }
        let all = (0..24).map(|i| (i % 4) * 6 + i / 12 * 3 + i / 4 % 3);
        assert_eq!(seen, all.skip(from).collect::<Vec<_>>());
    }
    let one = Layout::contiguous(Shape::SCALAR);
    assert_eq!(LoopNest::new(&Shape::SCALAR, [&one]).cursor(0).next_runs(9), (1, 1, [0]));
    assert_eq!(LoopNest::new(&Shape::SCALAR, [&one]).cursor(0).next(9), (1, [0]));
}

#[test]
fn several_runs_at_once_have_the_same_elements() {
    let shape = Shape::from([3, 4, 5]);
    let flipped = Layout::contiguous(shape).slice("t", 1, 0, 4, -1).unwrap();
    let column = Layout::contiguous([3, 1, 1].into()).broadcast_to("t", &shape).unwrap();
    let nest = LoopNest::new(&shape, [&flipped, &column]);
    assert_eq!(nest.dims(), [3, 4, 5]);
    let one_by_one: Vec<_> = {
        let mut cursor = nest.cursor(0);
        (0..60).map(|_| cursor.next(1).1).collect()
    };
    for (from, most) in [(0, 60), (3, 60), (5, 12), (17, 7), (20, 10), (0, 4), (59, 1)] {
        let (mut cursor, mut seen, mut several) = (nest.cursor(from), Vec::new(), false);
        while seen.len() < 60 - from {
            let (count, len, start) = cursor.next_runs(most.min(60 - from - seen.len()));
            assert!(count * len <= most);
            several |= count > 1;
            for (i, j) in (0..count).flat_map(|i| (0..len).map(move |j| (i, j))) {
                let at = |k: usize| {
                    let at = i as isize * nest.step(k) + j as isize * nest.stride(k);
                    start[k].wrapping_add_signed(at)
                };
                seen.push([at(0), at(1)]);
            }
        }
        assert_eq!(seen, one_by_one[from..], "from {from}, at most {most}");
        assert_eq!(several, most >= 10, "from {from}, at most {most}");
    }
}

/// Every order of three axes, sizes around the size of a tile, for whole tensors and slices.
#[test]
fn tiled_copies_equal_elementwise_copies() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for dims in [[3, 40, 17], [16, 1, 32], [33, 9, 8], [7, 100, 64], [1, 130, 15]] {
        let shape = Shape::from(dims);
        let x = Tensor::from_vec((0..shape.numel() as u32).collect(), shape);
        for order in orders {
            let whole = x.permute(order);
            for view in [whole.slice(2, whole.size(2) / 3..), whole] {
                let nest = LoopNest::new(view.shape(), [view.layout()]);
                let mut cursor = nest.cursor(0);
                for (i, &y) in view.contiguous().as_slice().iter().enumerate() {
                    assert_eq!(y as usize, cursor.next(1).1[0], "{dims:?} {order:?} at {i}");
                }
            }
        }
    }
}
