//! Views against a model: a list of the source of every element.

use crate::common::{Rng, bits, indices, shapes};
use proptest::prelude::*;
use retrograd_support::random_tests;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::{INFER, Tensor};

/// Sizes, and the number of the source element of every element in row-major order.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    dims: Vec<usize>,
    from: Vec<usize>,
}

impl Model {
    fn new(dims: &[usize]) -> Model {
        Model { dims: dims.to_vec(), from: (0..dims.iter().product()).collect() }
    }

    fn at(&self, index: &[usize]) -> usize {
        self.from[index.iter().zip(&self.dims).fold(0, |n, (&i, &d)| n * d + i)]
    }

    /// A view with new sizes, from the old index of each new index.
    fn view(&self, dims: &[usize], old: impl Fn(&[usize]) -> Vec<usize>) -> Model {
        let from = indices(dims).iter().map(|i| self.at(&old(i))).collect();
        Model { dims: dims.to_vec(), from }
    }

    fn sized(&self, axis: usize, size: usize) -> Vec<usize> {
        let mut dims = self.dims.clone();
        dims[axis] = size;
        dims
    }
}

/// A view operation, with numbers that are valid for every shape.
#[derive(Clone, Debug)]
struct Step {
    op: usize,
    a: usize,
    b: usize,
    c: usize,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0usize..15, 0usize..1000, 0usize..1000, 0usize..1000)
        .prop_map(|(op, a, b, c)| Step { op, a, b, c });
    prop::collection::vec(step, 0..=6)
}

/// The index of the same axis, counted from the end if `negative`.
fn spell(axis: usize, rank: usize, negative: bool) -> isize {
    axis as isize - if negative { rank as isize } else { 0 }
}

/// Applies an operation to the tensor and the model; `None` if it is invalid.
fn apply(x: &Tensor<f32>, m: &Model, s: &Step) -> Option<(Tensor<f32>, Model)> {
    let rank = m.dims.len();
    let numel = m.from.len();
    let needs_axis = |n: usize| (rank >= n).then_some(());
    let axis = s.a % rank.max(1);
    let name = spell(axis, rank, s.c.is_multiple_of(2));
    let size = m.dims.get(axis).copied().unwrap_or(0);
    let moved = |i: &[usize], to: usize| {
        let mut i = i.to_vec();
        i[axis] = to;
        i
    };
    Some(match s.op {
        // The same elements with other sizes: one axis, or one axis split in two.
        0 => (x.flatten(), Model { dims: vec![numel], from: m.from.clone() }),
        1 => {
            needs_axis(1)?;
            let factor = (1..=size).filter(|d| size % d == 0).nth(s.b % 4)?;
            let mut dims = m.dims.clone();
            dims.splice(axis..=axis, [factor, size / factor]);
            if dims.len() > 8 {
                return None;
            }
            let mut asked = dims.clone();
            if numel > 0 && s.c.is_multiple_of(3) {
                asked[axis + 1] = INFER;
            }
            (x.reshape(asked), Model { dims, from: m.from.clone() })
        }
        2 => {
            needs_axis(2)?;
            // Two adjacent axes merged.
            let axis = s.a % (rank - 1);
            let mut dims = m.dims.clone();
            dims.splice(axis..axis + 2, [dims[axis] * dims[axis + 1]]);
            (x.reshape(&dims), Model { dims, from: m.from.clone() })
        }
        3 => {
            let mut rng = Rng(s.b as u64);
            let mut order: Vec<usize> = (0..rank).collect();
            for i in (1..rank).rev() {
                order.swap(i, rng.below(i + 1));
            }
            let names: Vec<isize> = order.iter().map(|&a| spell(a, rank, s.c % 2 == 1)).collect();
            let dims: Vec<usize> = order.iter().map(|&a| m.dims[a]).collect();
            let model = m.view(&dims, |i| {
                let mut old = vec![0; rank];
                order.iter().zip(i).for_each(|(&a, &i)| old[a] = i);
                old
            });
            (x.permute(names), model)
        }
        4 => {
            needs_axis(1)?;
            let start = s.b % (size + 1);
            let stop = start + s.c % (size - start + 1);
            let step = [1, 2, 3, 7, -1, -2, -5, isize::MIN, isize::MAX][s.b / 7 % 9];
            let picked: Vec<usize> = if step > 0 {
                (start..stop).step_by(step.unsigned_abs()).collect()
            } else {
                (start..stop).rev().step_by(step.unsigned_abs()).collect()
            };
            let model = m.view(&m.sized(axis, picked.len()), |i| moved(i, picked[i[axis]]));
            (x.slice_step(name, start..stop, step), model)
        }
        5 => {
            needs_axis(1)?;
            (size > 0).then_some(())?;
            let at = s.b % size;
            let mut dims = m.dims.clone();
            dims.remove(axis);
            let model = m.view(&dims, |i| [&i[..axis], &[at], &i[axis..]].concat());
            (x.select(name, at), model)
        }
        6 => {
            needs_axis(1)?;
            (size == 1).then_some(())?;
            let mut dims = m.dims.clone();
            dims.remove(axis);
            (x.squeeze(name), Model { dims, from: m.from.clone() })
        }
        7 => {
            (rank < 8).then_some(())?;
            let at = s.a % (rank + 1);
            let mut dims = m.dims.clone();
            dims.insert(at, 1);
            let name = spell(at, rank + 1, s.c % 2 == 1);
            (x.unsqueeze(name), Model { dims, from: m.from.clone() })
        }
        8 => {
            let wide: Vec<usize> =
                m.dims.iter().map(|&d| if d == 1 { [0, 1, 2, 3][s.b % 4] } else { d }).collect();
            let new = [&[][..], &[2], &[1, 2], &[0]][s.c % 4];
            let dims = [new, &wide].concat();
            (dims.len() <= 8 && dims.iter().product::<usize>() <= 20_000).then_some(())?;
            let model = m.view(&dims, |i| {
                let own = &i[new.len()..];
                own.iter().zip(&m.dims).map(|(&i, &d)| if d == 1 { 0 } else { i }).collect()
            });
            (x.broadcast_to(dims.as_slice()), model)
        }
        9 => {
            needs_axis(2)?;
            let other = (axis + 1 + s.b % (rank - 1)) % rank;
            let offset = [0, 1, -1, 2, -3, 100, isize::MAX, isize::MIN][s.c % 8];
            let pairs: Vec<(usize, usize)> = (0..size)
                .filter_map(|i| {
                    let j = (i as isize).checked_add(offset)?;
                    (0..m.dims[other] as isize).contains(&j).then_some((i, j as usize))
                })
                .collect();
            let mut dims: Vec<usize> =
                (0..rank).filter(|&a| a != axis && a != other).map(|a| m.dims[a]).collect();
            dims.push(pairs.len());
            let model = m.view(&dims, |i| {
                let (i, k) = (&i[..i.len() - 1], i[i.len() - 1]);
                let mut rest = i.iter();
                (0..rank)
                    .map(|a| match a {
                        a if a == axis => pairs[k].0,
                        a if a == other => pairs[k].1,
                        _ => *rest.next().unwrap(),
                    })
                    .collect()
            });
            (x.diagonal(name, other as isize, offset), model)
        }
        10 => {
            needs_axis(1)?;
            (rank < 8).then_some(())?;
            let window = s.b % (size + 1);
            let step = 1 + s.c % 4;
            let count = (size - window) / step + 1;
            let mut dims = m.sized(axis, count);
            dims.push(window);
            (dims.iter().product::<usize>() <= 20_000).then_some(())?;
            let model = m.view(&dims, |i| {
                let (i, k) = (&i[..i.len() - 1], i[i.len() - 1]);
                moved(i, i[axis] * step + k)
            });
            (x.unfold(name, window, step), model)
        }
        11 => {
            needs_axis(1)?;
            let start = s.b % (size + 1);
            let len = s.c % (size - start + 1);
            let model = m.view(&m.sized(axis, len), |i| moved(i, start + i[axis]));
            (x.narrow(name, start, len), model)
        }
        12 => {
            needs_axis(1)?;
            (x.flip(name), m.view(&m.dims, |i| moved(i, size - 1 - i[axis])))
        }
        13 => {
            needs_axis(1)?;
            let cut = s.b % (size + 1);
            let pieces = x.split(name, &[cut, 0, size - cut]);
            assert_eq!((pieces.len(), pieces[1].size(axis as isize)), (3, 0));
            let first = s.c.is_multiple_of(2);
            let (start, len) = if first { (0, cut) } else { (cut, size - cut) };
            let model = m.view(&m.sized(axis, len), |i| moved(i, start + i[axis]));
            (pieces[if first { 0 } else { 2 }].clone(), model)
        }
        _ => {
            needs_axis(1)?;
            let n = 1 + s.b % 5;
            let pieces = x.chunk(name, n);
            let each = size.div_ceil(n).max(1);
            assert_eq!(pieces.len(), size.div_ceil(each).max(1));
            assert_eq!(pieces.iter().map(|p| p.size(axis as isize)).sum::<usize>(), size);
            let k = s.c % pieces.len();
            let len = each.min(size - k * each);
            let model = m.view(&m.sized(axis, len), |i| moved(i, k * each + i[axis]));
            (pieces[k].clone(), model)
        }
    })
}

/// Numbers 0, 1, .. as elements, between canaries: NaN before, after and in every other place.
fn base(dims: &[usize]) -> Tensor<f32> {
    let n: usize = dims.iter().product();
    let inside = |i: usize| i >= 7 && i < 7 + 2 * n && (i - 7).is_multiple_of(2);
    let buffer = Tensor::from_fn([2 * n + 11], |i| {
        if inside(i[0]) { ((i[0] - 7) / 2) as f32 } else { f32::NAN }
    });
    buffer.slice_step(0, 7..7 + 2 * n, 2).reshape(dims)
}

#[track_caller]
fn check(x: &Tensor<f32>, m: &Model) {
    assert_eq!(x.shape()[..], m.dims[..]);
    let want: Vec<f32> = m.from.iter().map(|&i| i as f32).collect();
    assert_eq!(x.to_vec(), want);
    assert!(x.contiguous().is_contiguous());
    for (i, &want) in indices(&m.dims).iter().zip(&want).step_by(7) {
        assert_eq!(x.at(i), want);
    }
}

random_tests! {
    ProptestConfig::with_cases(512);

    #[test]
    fn chains_of_views_show_the_elements_of_the_model(dims in shapes(5), steps in steps()) {
        let (mut x, mut m) = (base(&dims), Model::new(&dims));
        check(&x, &m);
        for step in &steps {
            if let Some((y, n)) = apply(&x, &m, step) {
                check(&y, &n);
                (x, m) = (y, n);
            }
        }
        // Operations on the view and on its copy agree, in every kernel.
        let copy = Tensor::from_vec(x.to_vec(), *x.shape());
        prop_assert_eq!(bits(&x.mul(&x)), bits(&copy.mul(&copy)));
        prop_assert_eq!(bits(&x.sum(..)), bits(&copy.sum(..)));
        prop_assert_eq!(x.lt(x.flip_all()).to_vec(), copy.lt(copy.flip_all()).to_vec());
    }

    #[test]
    fn writing_to_one_tensor_changes_no_other(dims in shapes(4), steps in steps(), again in steps()) {
        let base = base(&dims);
        let (mut x, mut m) = (base.clone(), Model::new(&dims));
        let mut alive = vec![(base, m.clone())];
        for step in steps.iter().chain(&again) {
            if let Some((y, n)) = apply(&x, &m, step) {
                alive.push((y.clone(), n.clone()));
                (x, m) = (y, n);
            }
        }
        for i in 0..alive.len() {
            let mut written = alive[i].0.clone();
            written.make_mut().fill(-1.0);
            prop_assert!(written.to_vec().iter().all(|&x| x == -1.0));
            prop_assert_eq!(written.shape(), alive[i].0.shape());
            for (x, m) in &alive {
                check(x, m);
            }
            // Now it is the only user, and is written in place.
            let at = written.as_slice().as_ptr();
            prop_assert_eq!(written.make_mut().as_ptr(), at);
        }
    }

    #[test]
    fn as_strided_and_its_adjoint_are_adjoint(dims in shapes(4), steps in steps(), seed in any::<u64>()) {
        // The layout of the model over a contiguous tensor, by replaying views on one.
        let mut v = Tensor::from_vec((0..dims.iter().product()).map(|i| i as f32).collect(), dims.as_slice());
        let mut model = Model::new(&dims);
        let whole = v.clone();
        for step in &steps {
            if let Some((y, n)) = apply(&v, &model, step)
                && y.shares_storage(&whole)
            {
                (v, model) = (y, n);
            }
        }
        let layout = *v.layout();
        let mut rng = Rng(seed);
        let int = |rng: &mut Rng| rng.below(17) as f64 - 8.0;
        let a: Tensor<f64> = Tensor::from_fn(dims.as_slice(), |_| int(&mut rng));
        let b: Tensor<f64> = Tensor::from_fn(model.dims.as_slice(), |_| int(&mut rng));
        let view = a.as_strided(&layout);
        let flat = a.to_vec();
        prop_assert_eq!(view.to_vec(), model.from.iter().map(|&i| flat[i]).collect::<Vec<_>>());
        let back = b.as_strided_adjoint(dims.as_slice(), &layout);
        // Whole numbers: exact.
        prop_assert_eq!(view.mul(&b).sum(..).item(), a.mul(&back).sum(..).item());
        // The adjoint reads any layout of its argument.
        for (_, b) in crate::common::layouts(&b) {
            prop_assert_eq!(bits(&b.as_strided_adjoint(dims.as_slice(), &layout)), bits(&back));
        }
    }
}

trait FlipAll {
    fn flip_all(&self) -> Self;
}

impl FlipAll for Tensor<f32> {
    fn flip_all(&self) -> Self {
        (0..self.rank() as isize).fold(self.clone(), |x, a| x.flip(a))
    }
}

#[test]
fn empty_axes_never_leave_the_storage() {
    let n = 1 << (usize::BITS - 24);
    let x = Tensor::<f32>::zeros([3, 0, n]);
    assert_eq!(x.select(0, 2).shape()[..], [0, n]);
    assert_eq!(x.flip(0).flip(2).contiguous().numel(), 0);
    assert_eq!(x.transpose(0, 2).reshape([0]).to_vec(), [0f32; 0]);
    assert_eq!(x.select(2, n - 1).sum([1]).to_vec(), [0.0; 3]);
    let mut y = x.select(0, 1);
    assert!(y.make_mut().is_empty());
    assert_eq!(x.diagonal(0, 2, isize::MIN).shape()[..], [0, 0]);
    assert_eq!(x.unfold(1, 0, usize::MAX).shape()[..], [3, 1, n, 0]);
    // Strides and offsets that add up beyond the address space.
    let half = 1 << (usize::BITS - 2);
    let x = Tensor::<f32>::zeros([0, 1, half]);
    assert_eq!(x.diagonal(0, 1, 0).shape()[..], [half, 0]);
    let last = |x: Tensor<f32>, _| x.reshape([0, 2, half / 2]).select(1, 1);
    assert_eq!((0..5).fold(x, last).exp().sum(..).item(), 0.0);
}

#[test]
fn views_keep_their_storage_alive() {
    let view = {
        let x = Tensor::from_vec((0..1000).map(|i| i as f32).collect(), [10, 100]);
        x.t().slice_step(0, 90.., -3)
    };
    // A new tensor of the same size must not reuse that memory.
    let other = Tensor::<f32>::full([10, 100], -1.0);
    assert_eq!(view.select(1, 9).to_vec(), [999.0, 996.0, 993.0, 990.0]);
    drop(other);
}

#[test]
fn make_mut_writes_in_place_only_when_unique_and_whole() {
    let mut x = Tensor::<f32>::zeros([4, 4]);
    let at = x.as_slice().as_ptr();
    assert!(x.is_unique());
    assert_eq!(x.make_mut().as_ptr(), at);
    let row = x.select(0, 1);
    assert!(!x.is_unique());
    x.make_mut()[5] = 1.0;
    assert_eq!(row.to_vec(), [0.0; 4]);
    drop(row);
    // A part of a storage is never written in place, even if no other tensor uses the rest.
    let mut part = x.narrow(0, 0, 2);
    drop(x);
    assert!(!part.is_unique());
    part.make_mut()[0] = 2.0;
    assert_eq!(part.numel(), 8);
    let mut turned = Tensor::<f32>::zeros([2, 3]).t();
    assert!(!turned.is_unique());
    turned.make_mut()[1] = 5.0;
    assert_eq!(turned.at(&[0, 1]), 5.0);
}

#[test]
fn a_tensor_can_be_added_to_itself() {
    let mut x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let same = x.clone();
    x.add_assign(&same);
    assert_eq!(x.to_vec(), [2.0, 4.0, 6.0, 8.0]);
    // An overlapping source: the result is that of a copy.
    let flipped = x.flip(0);
    x.add_assign(&flipped);
    assert_eq!(x.to_vec(), [10.0; 4]);
    let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let (mut rest, mut whole) = (x.narrow(0, 1, 3), x.clone());
    rest.add_assign(&x.narrow(0, 0, 3));
    assert_eq!((rest.to_vec(), x.to_vec()), (vec![3.0, 5.0, 7.0], vec![1.0, 2.0, 3.0, 4.0]));
    let last_three = Layout::contiguous([4].into()).slice("", 0, 1, 4, 1).unwrap();
    whole.as_strided_add_assign(&last_three, &x.narrow(0, 0, 3));
    assert_eq!(whole.to_vec(), [1.0, 3.0, 5.0, 7.0]);
    // Copies keep the sign of zero.
    let zeros = Tensor::from([[-0.0f32, 0.0, -0.0], [0.0, -0.0, -0.0]]);
    let signs =
        |t: Tensor<f32>| t.to_vec().iter().map(|x| x.is_sign_negative()).collect::<Vec<_>>();
    assert_eq!(signs(zeros.t().contiguous()), [true, false, false, true, true, true]);
    assert_eq!(signs(zeros.flip(1).reshape([6])), [true, false, true, true, true, false]);
    let mut wide = Tensor::<f32>::from([1.0, 2.0]).broadcast_to([3, 2]);
    wide.add_assign(&Tensor::from([1.0, 1.0]));
    assert_eq!(wide.to_vec(), [2.0, 3.0, 2.0, 3.0, 2.0, 3.0]);
}

/// Copies of tensors whose last axis is short, or backwards, and of more than one chunk.
#[test]
fn copies_of_short_and_reversed_axes() {
    for columns in [1, 2, 3, 4, 5, 7, 8, 17] {
        let x = Tensor::<f32>::from_fn([3, columns, 33_000], |i| {
            (i[0] * 1_000_000 + i[1] * 100_000 + i[2]) as f32
        });
        for view in
            [x.permute([0, 2, 1]), x.flip(1).permute([0, 2, 1]), x.flip(2), x.permute([2, 0, 1])]
        {
            let (copy, shape) = (view.contiguous(), *view.shape());
            for i in (0..view.numel()).step_by(997).chain(view.numel() - 40..view.numel()) {
                let index = [i / shape[2] / shape[1], i / shape[2] % shape[1], i % shape[2]];
                assert_eq!(copy.as_slice()[i], view.at(&index), "{shape:?} at {index:?}");
            }
        }
    }
}
