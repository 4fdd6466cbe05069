//! Selection by masks, and concatenation, against loops over all elements.

use retrograd_tensor::{Tensor, with_threads};

fn counted(shape: &[usize]) -> Tensor<i64> {
    Tensor::indices(shape.iter().product()).reshape(shape)
}

#[test]
fn where_does_not_propagate_nan_of_the_other_operand() {
    let keep = Tensor::from([[true], [false]]);
    let a = Tensor::from([1.0f32, f32::NAN, -0.0]);
    let y = keep.where_(&a, &Tensor::scalar(f32::INFINITY));
    assert_eq!(*y.shape(), [2, 3]);
    let bits: Vec<u32> = y.to_vec().iter().map(|y| y.to_bits()).collect();
    let inf = f32::INFINITY.to_bits();
    let nan = f32::NAN.to_bits();
    assert_eq!(bits, [1.0f32.to_bits(), nan, (-0.0f32).to_bits(), inf, inf, inf]);
    let none = Tensor::<bool>::zeros([0, 1]);
    assert_eq!(*none.where_(&a, &a).shape(), [0, 3]);
}

#[test]
fn masked_fill_keeps_the_shape_of_the_tensor() {
    let x = Tensor::from([[1.0f32, f32::NAN], [3.0, 4.0]]);
    let mask = Tensor::from([false, true]);
    assert_eq!(x.masked_fill(&mask, 0.0).to_vec(), [1.0, 0.0, 3.0, 0.0]);
    assert_eq!(x.t().masked_fill(&mask, 0.0).select(1, 0).to_vec()[0], 1.0);
}

#[test]
fn tril_and_triu_equal_loops() {
    for shape in [&[3usize, 4][..], &[4, 3], &[2, 3, 3], &[1, 1], &[0, 2], &[2, 0], &[2, 0, 3]] {
        let x = counted(shape).transpose(-2, -1);
        let r = x.rank();
        for d in [isize::MIN, -9, -2, -1, 0, 1, 2, 9, isize::MAX] {
            let below = |i: &[usize]| i[r - 1] as i128 - (i[r - 2] as i128) <= d as i128;
            let lower = Tensor::from_fn(x.shape(), |i| if below(i) { x.at(i) } else { 0 });
            assert_eq!(x.tril(d), lower, "{shape:?} {d}");
            let above = |i: &[usize]| i[r - 1] as i128 - (i[r - 2] as i128) >= d as i128;
            let upper = Tensor::from_fn(x.shape(), |i| if above(i) { x.at(i) } else { 0 });
            assert_eq!(x.triu(d), upper, "{shape:?} {d}");
        }
    }
    assert_eq!(Tensor::from([[f32::NAN; 2]; 2]).triu(2).to_vec(), [0.0; 4]);
}

#[test]
fn logical_operations_broadcast() {
    let (a, b) = (Tensor::from([[true], [false]]), Tensor::from([true, false]));
    assert_eq!((&a & &b).to_vec(), [true, false, false, false]);
    assert_eq!((&a | &b).to_vec(), [true, true, true, false]);
    assert_eq!((!&a).to_vec(), [false, true]);
    assert_eq!(!(a.clone() & b.clone()), !a | !b);
}

#[test]
fn cat_concatenates_parts() {
    for axis in 0..3 {
        for sizes in [&[1usize, 3, 2][..], &[0, 2, 0], &[5], &[0]] {
            let part = |&n: &usize| {
                let mut shape = [3, 4, 5];
                shape[axis] = n;
                // In another layout.
                counted(&[shape[2], shape[0], shape[1]]).permute([1, 2, 0])
            };
            let parts: Vec<_> = sizes.iter().map(part).collect();
            let y = Tensor::cat(&parts.iter().collect::<Vec<_>>(), axis as isize);
            let mut start = 0;
            for part in &parts {
                assert_eq!(y.narrow(axis as isize, start, part.shape()[axis]), *part);
                start += part.shape()[axis];
            }
            assert_eq!(y.shape()[axis], start);
        }
    }
}

#[test]
fn bits_of_long_concatenations_do_not_depend_on_threads() {
    // Chunks start inside rows and inside parts.
    for (axis, shapes) in [
        (1, [[300, 701], [300, 1], [300, 333]]),
        (1, [[70_001, 5], [70_001, 2], [70_001, 1]]),
        (0, [[1, 999], [500, 999], [3, 999]]),
    ] {
        let parts = shapes.map(|s| counted(&s));
        let parts = [&parts[0], &parts[1].t().contiguous().t(), &parts[2]];
        let y = with_threads(3, || Tensor::cat(&parts, axis));
        assert_eq!(y, with_threads(1, || Tensor::cat(&parts, axis)));
        let mut start = 0;
        for part in parts {
            assert_eq!(y.narrow(axis, start, part.size(axis)), *part);
            start += part.size(axis);
        }
    }
}

#[test]
fn selections_of_several_chunks_equal_loops() {
    let x = counted(&[300, 701]).t().mul(&Tensor::scalar(7919)).remainder(&Tensor::scalar(10));
    let (rare, flat) = (x.eq(3), x.to_vec());
    let places: Vec<i64> = (0..).zip(&flat).filter(|&(_, &x)| x == 3).map(|(i, _)| i).collect();
    let mut counts = [0; 10];
    flat.iter().for_each(|&i| counts[i as usize] += 1);
    for threads in [1, 3] {
        with_threads(threads, || {
            assert_eq!(rare.count_true(), places.len());
            let found = rare.nonzero().to_vec();
            assert!(found.chunks(2).map(|i| i[0] * 300 + i[1]).eq(places.iter().copied()));
            assert_eq!(counted(&[701, 300]).masked_select(&rare).to_vec(), places);
            assert_eq!(x.bincount(0).to_vec(), counts);
        });
    }
}

#[test]
fn stack_adds_an_axis() {
    let parts = [counted(&[2, 3]), counted(&[2, 3]).masked_fill(&Tensor::ones([1]), 7)];
    for axis in [0, 1, 2, -1, -2, -3] {
        let y = Tensor::stack(&[&parts[0], &parts[1]], axis);
        let axis = if axis < 0 { axis + 3 } else { axis };
        assert_eq!(y.select(axis, 0), parts[0]);
        assert_eq!(y.select(axis, 1), parts[1]);
    }
    let scalar = Tensor::scalar(1i64);
    assert_eq!(Tensor::stack(&[&scalar, &scalar], 0).to_vec(), [1, 1]);
}

#[test]
fn pad_adds_elements_on_both_sides() {
    let x = counted(&[2, 3]);
    assert_eq!(x.pad(0, 1, 2, -1).select(1, 2).to_vec(), [-1, 2, 5, -1, -1]);
    assert_eq!(x.pad(-1, 0, 0, -1), x);
    assert_eq!(counted(&[2, 0]).pad(1, 1, 1, 4).to_vec(), [4; 4]);
    assert_eq!(*counted(&[0, 2]).pad(1, 1, 1, 4).shape(), [0, 4]);
}
