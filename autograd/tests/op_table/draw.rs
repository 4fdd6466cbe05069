//! Random test cases: shapes, values, layouts and arguments.

use crate::layouts::{Kind, indices};
use proptest::prelude::*;
use retrograd_autograd::Var;
use retrograd_tensor::indexing::{AxisIndex, StepBy, ToAxisIndex};
use retrograd_tensor::layout::Layout;
use retrograd_tensor::random::Key;
use retrograd_tensor::{AxisSet, Real, Shape, Tensor};
use std::ops::Range;

/// The values that an operand may have: those for which the operation is differentiable, at some
/// distance from all others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Domain {
    /// From -2 to 2.
    Plain,
    /// From -2 to 2, but not near these.
    Off(&'static [f64]),
    /// Of either sign, size 0.6 to 2.
    Apart,
    /// Of either sign, size 0.7 to 1.3.
    NearOne,
    /// From 0.6 to 2.4.
    Positive,
    /// All different.
    Distinct,
    /// Of either sign, all magnitudes different.
    Magnitudes,
    /// Neighbours on the last axis far apart.
    Rugged,
    /// All different, also from those of other operands.
    Rival,
    /// Of either sign, size 2.1 to 2.4: not near a multiple of a divisor.
    Remaining,
    /// Of either sign, size 0.85 to 1.0, so that two go into a dividend, and not three: but for it and
    /// its divisor rounded towards different integers.
    Divisor,
    /// From 0.1 to 0.9.
    Probability,
    /// From -0.8 to 0.
    Low,
    /// From 0.3 to 1.0.
    High,
}

/// A test case.
#[derive(Clone, Debug)]
pub struct Case {
    pub sizes: Vec<usize>,
    /// Axes on which each operand has size 1, as bits.
    pub thin: [u8; 3],
    /// The number of leading axes that each operand lacks.
    pub short: [u8; 3],
    pub layouts: [Kind; 3],
    pub cotangent: Kind,
    pub seed: u64,
    /// Whether it is large enough to be computed by several threads.
    pub large: bool,
}

fn kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(&Kind::ALL[..])
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0),
        4 => 1..=3usize,
        2 => proptest::sample::select(&[5, 7, 8, 9][..]),
        2 => proptest::sample::select(&[15, 16, 17, 31, 32, 33][..]),
    ]
}

/// The largest number of elements of an operand, except in large cases.
const MOST: usize = 200;

pub fn case() -> impl Strategy<Value = Case> {
    let bits = || proptest::array::uniform3(prop_oneof![Just(0u8), any::<u8>()]);
    let short = proptest::array::uniform3(prop_oneof![3 => Just(0u8), 1 => 1..4u8]);
    let layouts = proptest::array::uniform3(kind());
    (proptest::collection::vec(size(), 0..=4), bits(), short, layouts, kind(), any::<u64>())
        .prop_map(|(sizes, thin, short, layouts, cotangent, seed)| {
            let sizes = limited(sizes);
            Case { sizes, thin, short, layouts, cotangent, seed, large: false }
        })
}

/// Shortens the longest axes until there are few elements, also if empty axes get size 1.
fn limited(mut sizes: Vec<usize>) -> Vec<usize> {
    while sizes.iter().map(|&d| d.max(1)).product::<usize>() > MOST {
        let longest = sizes.iter_mut().max().expect("not a scalar");
        *longest = (*longest / 2).max(1);
    }
    sizes
}

impl Case {
    pub fn of(sizes: &[usize], seed: u64) -> Case {
        let at = |k: u64| Kind::ALL[((seed + k) % 7) as usize];
        let layouts = [at(0), at(1), at(2)];
        let sizes = sizes.to_vec();
        Case { sizes, thin: [0; 3], short: [0; 3], layouts, cotangent: at(3), seed, large: false }
    }

    /// Cases that are tested for every operation, besides the random ones.
    pub fn always() -> Vec<Case> {
        let mut all = Vec::new();
        let sizes: [&[usize]; 10] =
            [&[], &[1], &[0], &[3], &[2, 3], &[0, 5], &[3, 0], &[2, 0, 4], &[3, 1, 4], &[17]];
        for (i, sizes) in sizes.iter().enumerate() {
            all.push(Case::of(sizes, i as u64));
            for (thin, short) in
                [([1, 2, 4], [0; 3]), ([0, 1, 0], [0, 1, 2]), ([5, 0, 2], [1, 0, 0])]
            {
                all.push(Case { thin, short, ..Case::of(sizes, 100 + i as u64) });
            }
        }
        all
    }

    /// Cases large enough for several threads, with tails; operands are broadcast in two ways.
    pub fn large() -> Vec<Case> {
        let case = Case { large: true, ..Case::of(&[3, 300, 301], 7) };
        vec![Case { thin: [0, 2, 5], ..case.clone() }, Case { short: [0, 2, 1], seed: 10, ..case }]
    }

    fn random(&self, stream: u64, index: usize) -> f64 {
        // SplitMix64, which can be computed at any index.
        let mut z = self.seed.wrapping_add(stream.wrapping_mul(0xD1B5_4A32_D192_ED03));
        z = z.wrapping_add((index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `n`.
    pub fn below(&self, n: usize) -> usize {
        (self.random(1, n) * n as f64) as usize
    }

    /// A number of at most `n`.
    pub fn up_to(&self, n: usize) -> usize {
        self.below(n + 1)
    }

    pub fn flag(&self) -> bool {
        self.below(2) == 1
    }

    pub fn key(&self) -> Key {
        Key::new(self.seed, 2)
    }

    fn axis_of(&self, rank: usize) -> usize {
        self.below(rank)
    }

    pub fn axis<T: Real>(&self, x: &Var<T>) -> isize {
        self.axis_of(x.rank()) as isize
    }

    /// The position of a new axis.
    pub fn new_axis<T: Real>(&self, x: &Var<T>) -> isize {
        self.up_to(x.rank()) as isize
    }

    fn axes_of(&self, rank: usize) -> AxisSet {
        let set = (0..rank).filter(|&i| self.random(3, i) < 0.5);
        let set = set.fold(AxisSet::EMPTY, AxisSet::insert);
        if set.is_empty() && rank > 0 { set.insert(self.axis_of(rank)) } else { set }
    }

    /// Some axes: at least one, if there is one.
    pub fn axes<T: Real>(&self, x: &Var<T>) -> AxisSet {
        self.axes_of(x.rank())
    }

    pub fn order<T: Real>(&self, x: &Var<T>) -> Vec<isize> {
        self.shuffled(4, x.rank()).into_iter().map(|axis| axis as isize).collect()
    }

    /// The numbers below `n` in random order.
    fn shuffled(&self, stream: u64, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, (self.random(stream, i) * (i + 1) as f64) as usize);
        }
        order
    }

    /// The shape that operands broadcast to.
    pub fn common<T: Real>(&self, x: &[Var<T>]) -> Shape {
        x.iter().fold(Shape::SCALAR, |s, x| Shape::broadcast("case", &s, x.shape()).unwrap())
    }

    /// The last axis alone.
    pub fn last(&self, shape: &Shape) -> Shape {
        shape[shape.rank().saturating_sub(1)..].into()
    }

    pub fn mask(&self, shape: &Shape) -> Tensor<bool> {
        let n = shape.numel();
        Tensor::from_vec((0..n).map(|i| self.random(5, i) < 0.6).collect(), *shape)
    }

    /// Operand `k` of an operation that broadcasts to `sizes`.
    fn thinner(&self, k: usize, sizes: &[usize]) -> Shape {
        let mut sizes = sizes.to_vec();
        for (i, d) in sizes.iter_mut().enumerate() {
            if self.thin[k] >> i & 1 == 1 {
                *d = 1;
            }
        }
        sizes[(self.short[k] as usize).min(sizes.len())..].into()
    }

    pub fn thinned<T: Real>(&self, x: &Var<T>) -> Shape {
        self.thinner(0, x.shape())
    }

    pub fn widened(&self, shape: &Shape) -> Shape {
        let wide = |&d: &usize| if d == 1 && !self.large { 3 } else { d };
        let mut dims: Vec<usize> = shape.iter().map(wide).collect();
        if self.flag() {
            dims.insert(0, 2);
        }
        dims.into()
    }

    pub fn reshaped(&self, shape: &Shape) -> Vec<usize> {
        let mut dims = shape.to_vec();
        match self.below(4) {
            0 => dims = vec![shape.numel()],
            1 => dims.reverse(),
            2 => dims.insert(0, 1),
            _ if dims.len() > 1 => {
                let merged = dims.remove(0) * dims[0];
                dims[0] = merged;
            }
            _ => dims.push(1),
        }
        dims
    }

    fn indices_below(&self, n: usize, below: usize) -> Vec<i64> {
        (0..n).map(|i| (self.random(6, i) * below as f64) as i64).collect()
    }

    /// Indices below a number; none if it is 0.
    pub fn index(&self, shape: &Shape, below: usize) -> Tensor<i64> {
        Tensor::from_vec(self.indices_below(shape.numel(), below), *shape)
    }

    pub fn index_shape(&self) -> Shape {
        if self.large {
            return [900].into();
        }
        [&[][..], &[0], &[5], &[2, 3], &[1, 1, 4]][self.below(5)].into()
    }

    pub fn some_of_axis<T: Real>(&self, x: &Var<T>) -> Tensor<i64> {
        let size = x.size(self.axis(x));
        let n = if size == 0 { 0 } else { self.up_to(2 * size) };
        self.index(&[n].into(), size)
    }

    pub fn gather_index<T: Real>(&self, x: &Var<T>) -> Tensor<i64> {
        let axis = self.axis(x) as usize;
        let mut dims: Vec<usize> = x.shape().to_vec();
        for (i, d) in dims.iter_mut().enumerate() {
            *d = if i != axis {
                *d - usize::from(*d > 1 && self.random(7, i) < 0.3)
            } else if *d == 0 {
                0
            } else {
                self.up_to(2 * *d)
            };
        }
        self.index(&dims.into(), x.shape()[axis])
    }

    pub fn targets<T: Real>(&self, logits: &Var<T>) -> Tensor<i64> {
        let rows: Shape = logits.shape()[..logits.rank() - 1].into();
        let mut targets = self.indices_below(rows.numel(), logits.size(-1));
        for (i, t) in targets.iter_mut().enumerate() {
            if self.random(8, i) < 0.25 {
                *t = -100;
            }
        }
        Tensor::from_vec(targets, rows)
    }

    /// Targets for classes on an axis.
    pub fn targets_on<T: Real>(&self, axis: isize, logits: &Var<T>) -> Tensor<i64> {
        let rows = logits.shape().without(axis as usize);
        let mut targets = self.indices_below(rows.numel(), logits.size(axis));
        targets.iter_mut().step_by(5).for_each(|t| *t = -100);
        Tensor::from_vec(targets, rows)
    }

    /// Weights of classes, from 0.6 to 2.4.
    pub fn weights<T: Real>(&self, classes: usize) -> Tensor<T> {
        let values = self.values(Domain::Positive, 5, &[classes].into());
        Tensor::from_vec(values.into_iter().map(T::from_f64).collect(), [classes])
    }

    /// One weight for each element of the last axis; one for all of a scalar.
    pub fn weights_of<T: Real>(&self, shape: &Shape) -> Tensor<T> {
        shape.last().map_or(Tensor::scalar(T::from_f64(1.5)), |&n| self.weights(n))
    }

    pub fn range<T: Real>(&self, x: &Var<T>) -> Range<usize> {
        let size = x.size(self.axis(x));
        let start = self.up_to(size);
        start..start + self.up_to(size - start)
    }

    /// Indices of some of the axes, of all kinds.
    pub fn indices(&self, shape: &Shape) -> Vec<AxisIndex> {
        let mut indices = Vec::new();
        for (axis, &size) in shape.iter().enumerate() {
            let random = |stream, n: usize| (self.random(stream, axis) * n as f64) as usize;
            let (start, sign) = (random(10, size + 1), random(11, 2) == 1);
            let stop = start + random(12, size - start + 1);
            // From the end, except for the end itself.
            let bound =
                |i: usize| if sign && i < size { i as isize - size as isize } else { i as isize };
            let step = [1, 1, 2, -1][random(13, 4)];
            indices.push(match random(14, 5) {
                0 if size > 0 && !self.large => AxisIndex::At(bound(random(15, size))),
                1 => (..).to_axis_index(),
                2 => StepBy(bound(start).., step).to_axis_index(),
                3 => StepBy(..bound(stop), step).to_axis_index(),
                _ => StepBy(bound(start)..bound(stop), step).to_axis_index(),
            });
        }
        if self.flag() {
            indices.truncate(self.up_to(shape.rank()));
            indices.push(AxisIndex::Ellipsis);
        }
        if self.below(3) == 0 {
            indices.insert(self.up_to(indices.len()), AxisIndex::NewAxis);
        }
        indices
    }

    /// Numbers of repetitions, of up to one new axis, too.
    pub fn times(&self, rank: usize) -> Vec<usize> {
        let n = rank + self.below(2);
        let drawn = |i| [1, 2, 1, 3, 0][(self.random(16, i) * 5.0) as usize];
        (0..n).map(|i| if self.large { 1 } else { drawn(i) }).collect()
    }

    /// Sizes that add up to `n`; some may be 0.
    pub fn cuts(&self, n: usize) -> Vec<usize> {
        let first = self.up_to(n);
        let second = self.up_to(n - first);
        vec![first, second, n - first - second]
    }

    pub fn windows(&self, shape: &Shape) -> Layout {
        let axis = self.axis_of(shape.rank());
        Layout::contiguous(*shape).unfold("case", axis as isize, shape[axis].min(2), 1).unwrap()
    }

    pub fn backwards(&self, shape: &Shape) -> Layout {
        let axis = self.axis_of(shape.rank());
        Layout::contiguous(*shape).slice("case", axis as isize, 0, shape[axis], -2).unwrap()
    }

    pub fn doubled(&self, shape: &Shape) -> Shape {
        shape.with(shape.rank() - 1, 2 * shape[shape.rank() - 1]).unwrap()
    }

    pub fn every_other(&self, shape: &Shape) -> Layout {
        let whole = self.doubled(shape);
        let end = whole[whole.rank() - 1];
        Layout::contiguous(whole).slice("case", -1, 0, end, 2).unwrap()
    }

    pub fn repeated(&self, shape: &Shape) -> Layout {
        Layout::contiguous(shape.without(0)).broadcast_to("case", shape).unwrap()
    }

    /// Values of operand `k`. They are `f32` numbers, so that both types get the same.
    pub fn values(&self, domain: Domain, k: usize, shape: &Shape) -> Vec<f64> {
        let n = shape.numel();
        let stream = 20 + k as u64;
        let signed = |i: usize, lo: f64, hi: f64| {
            let x = 2.0 * self.random(stream, i) - 1.0;
            (lo + (hi - lo) * x.abs()).copysign(x)
        };
        let value = |i: usize| match domain {
            Domain::Plain => signed(i, 0.0, 2.0),
            Domain::Apart => signed(i, 0.6, 2.0),
            Domain::NearOne => signed(i, 0.7, 1.3),
            Domain::Remaining => signed(i, 2.1, 2.4),
            Domain::Divisor => signed(i, 0.85, 1.0),
            Domain::Positive => 0.6 + 1.8 * self.random(stream, i),
            Domain::Probability => 0.1 + 0.8 * self.random(stream, i),
            Domain::Low => -0.8 * self.random(stream, i),
            Domain::High => 0.3 + 0.7 * self.random(stream, i),
            Domain::Rugged => {
                let j = i % shape[shape.rank() - 1];
                0.6 * ((7 * j % 5) as f64 - 2.0) + 0.3 * self.random(stream, i)
            }
            Domain::Off(kinks) => (0..)
                .map(|j| 4.0 * self.random(stream + 100 * j, i) - 2.0)
                .find(|x| kinks.iter().all(|k| (x - k).abs() > 0.05))
                .expect("a number not near a kink"),
            Domain::Distinct | Domain::Magnitudes | Domain::Rival => unreachable!(),
        };
        let rounded = |x: f64| f64::from(x as f32);
        if !matches!(domain, Domain::Distinct | Domain::Magnitudes | Domain::Rival) {
            return (0..n).map(|i| rounded(value(i))).collect();
        }
        // Multiples of a step in random order. Those of another operand are offset by half a step.
        let most = match (domain, self.large) {
            (Domain::Distinct | Domain::Magnitudes, _) => n.max(27),
            (_, false) => MOST,
            (_, true) => self.sizes.iter().product(),
        };
        let step = 8.0 / most as f64;
        let at = |i: usize| {
            let jitter = 0.1 * self.random(stream + 50, i);
            if let Domain::Magnitudes = domain {
                let sign = if self.random(stream + 51, i) < 0.5 { -1.0 } else { 1.0 };
                return rounded(sign * (i as f64 + 0.5 + jitter) * step);
            }
            rounded((i as f64 - (n / 2) as f64 + 0.5 * k as f64 + jitter) * step)
        };
        self.shuffled(stream, n).into_iter().map(at).collect()
    }

    /// Values of an operand that repeat along some axes.
    pub fn expanded<T: Real>(&self, x: &Tensor<T>) -> Tensor<T> {
        let mut small = x.clone();
        for axis in 0..x.rank() {
            if x.shape()[axis] > 1 && (self.random(9, axis) < 0.6 || axis == 0) {
                small = small.narrow(axis as isize, 0, 1);
            }
        }
        small.contiguous().broadcast_to(x.shape())
    }

    pub fn cotangent<T: Real>(&self, shape: &Shape) -> Tensor<T> {
        let values = self.values(Domain::Apart, 9, shape);
        Tensor::from_vec(values.into_iter().map(T::from_f64).collect(), *shape)
    }
}

/// Shapes of operands, by kind of operation.
pub mod shapes {
    use super::*;

    fn at_least(case: &Case, rank: usize) -> Vec<usize> {
        let mut sizes = case.sizes.clone();
        while sizes.len() < rank {
            sizes.push([3, 2, 4, 1][sizes.len()]);
        }
        sizes
    }

    fn one(dims: Vec<usize>) -> Vec<Shape> {
        vec![dims.into()]
    }

    pub fn any(case: &Case) -> Vec<Shape> {
        one(case.sizes.clone())
    }

    pub fn pair(case: &Case) -> Vec<Shape> {
        (0..2).map(|k| case.thinner(k, &case.sizes)).collect()
    }

    pub fn triple(case: &Case) -> Vec<Shape> {
        (0..3).map(|k| case.thinner(k, &case.sizes)).collect()
    }

    /// Two of the same shape, not empty.
    pub fn equal_pair(case: &Case) -> Vec<Shape> {
        let dims: Vec<usize> = case.sizes.iter().map(|&d| d.max(1)).collect();
        vec![dims.into(); 2]
    }

    /// A tensor of at least one axis.
    pub fn line(case: &Case) -> Vec<Shape> {
        one(at_least(case, 1))
    }

    /// Few elements.
    pub fn short_line(case: &Case) -> Vec<Shape> {
        one(case.sizes.iter().take(2).map(|&d| d.min(3)).collect())
    }

    pub fn matrix(case: &Case) -> Vec<Shape> {
        one(at_least(case, 2))
    }

    /// A matrix, not a batch.
    pub fn plane(case: &Case) -> Vec<Shape> {
        one(matrix(case)[0][..2].to_vec())
    }

    pub fn short_vector(case: &Case) -> Vec<Shape> {
        one(vec![if case.large { 500 } else { at_least(case, 1)[0] }])
    }

    /// Few elements along the last axis, of which matrices are made.
    pub fn narrow_line(case: &Case) -> Vec<Shape> {
        let mut dims = at_least(case, 1);
        let last = dims.len() - 1;
        dims[last] = dims[last].min(if case.large { 9 } else { 4 });
        one(dims)
    }

    pub fn square_matrix(case: &Case) -> Vec<Shape> {
        let n = if case.large { 520 } else { at_least(case, 1)[0].min(14) };
        one(vec![n, n])
    }

    pub fn filled(case: &Case) -> Vec<Shape> {
        one(case.sizes.iter().map(|&d| d.max(1)).collect())
    }

    /// The chosen axis is not empty.
    pub fn filled_line(case: &Case) -> Vec<Shape> {
        let mut dims = at_least(case, 1);
        let axis = case.axis_of(dims.len());
        dims[axis] = dims[axis].max(1);
        one(dims)
    }

    /// The chosen axes are not empty.
    pub fn reduced(case: &Case) -> Vec<Shape> {
        let mut dims = case.sizes.clone();
        case.axes_of(dims.len()).iter().for_each(|i| dims[i] = dims[i].max(1));
        one(dims)
    }

    /// The chosen axes have at least two elements.
    pub fn reduced2(case: &Case) -> Vec<Shape> {
        let mut dims = at_least(case, 1);
        case.axes_of(dims.len()).iter().for_each(|i| dims[i] = dims[i].max(2));
        if !case.large {
            dims = limited(dims).iter().map(|&d| d.max(2)).collect();
        }
        one(dims)
    }

    fn with_last(case: &Case, least: usize, parameters: usize) -> Vec<Shape> {
        let mut dims = at_least(case, 1);
        let last = dims.len() - 1;
        dims[last] = dims[last].max(least);
        let parameter = Shape::from([dims[last]]);
        [&[dims.into()][..], &vec![parameter; parameters]].concat()
    }

    pub fn rows2(case: &Case) -> Vec<Shape> {
        with_last(case, 2, 0)
    }
    pub fn rows2_weight(case: &Case) -> Vec<Shape> {
        with_last(case, 2, 1)
    }
    pub fn rows2_weight_bias(case: &Case) -> Vec<Shape> {
        with_last(case, 2, 2)
    }
    pub fn rows_weight(case: &Case) -> Vec<Shape> {
        with_last(case, 0, 1)
    }
    pub fn rows_weight_bias(case: &Case) -> Vec<Shape> {
        with_last(case, 0, 2)
    }
    /// Matrices of at least two columns, not empty, as the last two axes.
    pub fn matrices(case: &Case) -> Vec<Shape> {
        let mut dims = at_least(case, 2);
        let n = dims.len();
        (dims[n - 2], dims[n - 1]) = (dims[n - 2].max(1), dims[n - 1].max(2));
        one(dims)
    }

    /// The same with two parameters of their shape.
    pub fn matrices_weight_bias(case: &Case) -> Vec<Shape> {
        let x = matrices(case)[0];
        let parameter = Shape::from(&x[x.rank() - 2..]);
        vec![x, parameter, parameter]
    }

    pub fn classes(case: &Case) -> Vec<Shape> {
        with_last(case, 1, 0)
    }

    /// An input of a convolution, and its taps.
    pub fn convolution(case: &Case) -> Vec<Shape> {
        let mut x = at_least(case, 2);
        let (rank, taps) = (x.len(), 1 + case.below(6));
        x[rank - 2] += taps - 1;
        vec![x[..].into(), [taps, x[rank - 1]].into()]
    }

    /// The vectors q, k, a and b of a recurrence, one after the other; its values and its first state; decays.
    pub fn recurrence(case: &Case) -> Vec<Shape> {
        let [l, dk, dv] = match case.large {
            true => [100, 40, 36],
            false => three_sizes(case),
        };
        let heads = if case.large { 24 } else { 1 + case.below(2) };
        let of = |rows: usize, width: usize| Shape::from([1, heads, rows, width]);
        let decay = if case.flag() { of(l, dk) } else { Shape::from([heads, 1, 1]) };
        vec![of(4 * l, dk), of(l + dk, dv), decay]
    }

    pub fn recurrence_without_decay(case: &Case) -> Vec<Shape> {
        recurrence(case)[..2].to_vec()
    }

    /// At least one token.
    pub fn steps(case: &Case) -> Vec<Shape> {
        let mut sizes = at_least(case, 1);
        sizes[0] = sizes[0].max(1);
        recurrence(&Case { sizes, ..case.clone() })
    }

    fn three_sizes(case: &Case) -> [usize; 3] {
        if case.large {
            return [200, 190, 210];
        }
        let dims = at_least(case, 3);
        [dims[0].min(12), dims[1].min(9), dims[2].min(11)]
    }

    /// Inputs of a linear layer and its weight.
    pub fn linear(case: &Case) -> Vec<Shape> {
        let [rows, width, classes] = three_sizes(case);
        // At least one class, since a target is a class.
        vec![[rows, width].into(), [classes.max(1), width].into()]
    }

    /// Inputs of a linear layer, its weight and its bias; with leading axes or without.
    pub fn affine(case: &Case) -> Vec<Shape> {
        let [rows, width, outputs] = three_sizes(case);
        let x: Shape = match case.thin[0] % 3 {
            0 if !case.large => [width].into(),
            1 if !case.large => [2, rows, width].into(),
            _ => [rows, width].into(),
        };
        vec![x, [outputs, width].into(), [outputs].into()]
    }

    /// Inputs of a feed-forward network and its weights.
    pub fn feed_forward(case: &Case) -> Vec<Shape> {
        let [rows, width, inner] = three_sizes(case);
        let outputs = if case.large { 70 } else { case.below(5) };
        vec![[rows, width].into(), [inner, width].into(), [outputs, inner].into()]
    }

    /// Operands of a matrix product: matrices, vectors, batches, in all combinations.
    pub fn factors(case: &Case) -> Vec<Shape> {
        let [m, k, n] = three_sizes(case);
        let batch = if case.large { 4 } else { case.below(3) };
        let (a, b): (Vec<usize>, Vec<usize>) = match case.thin[0] % 8 {
            0 => (vec![m, k], vec![k, n]),
            1 => (vec![k], vec![k, n]),
            2 => (vec![m, k], vec![k]),
            3 => (vec![k], vec![k]),
            4 => (vec![batch, m, k], vec![batch, k, n]),
            5 => (vec![batch, m, k], vec![k, n]),
            6 => (vec![m, k], vec![batch, k, n]),
            _ => (vec![2, 1, m, k], vec![batch, k, n]),
        };
        vec![a.into(), b.into()]
    }

    pub fn square_factors(case: &Case) -> Vec<Shape> {
        let [n, ..] = three_sizes(case);
        vec![[n, n].into(), [n, n].into()]
    }

    pub fn plain_factors(case: &Case) -> Vec<Shape> {
        let [m, k, n] = three_sizes(case);
        vec![[m, k].into(), [k, n].into()]
    }

    pub fn batched_factors(case: &Case) -> Vec<Shape> {
        let [m, k, n] = three_sizes(case);
        vec![[3, m, k].into(), [3, k, n].into()]
    }

    /// Matrices in batches that broadcast together, of up to two axes.
    pub fn factors_of_any_batch(case: &Case) -> Vec<Shape> {
        let [m, k, n] = three_sizes(case);
        let (a, b): (&[usize], &[usize]) = match case.thin[0] % 5 {
            _ if case.large => (&[2, 2], &[2]),
            0 => (&[], &[]),
            1 => (&[2], &[]),
            2 => (&[2, 1], &[3]),
            3 => (&[1], &[2, 3]),
            _ => (&[2], &[2]),
        };
        vec![[a, &[m, k]].concat().into(), [b, &[k, n]].concat().into()]
    }

    /// Two matrices whose axes have equal sizes, or 1.
    pub fn pair_of_matrices(case: &Case) -> Vec<Shape> {
        let dims = &plane(case)[0];
        let whole = Case { short: [0; 3], ..case.clone() };
        (0..2).map(|k| whole.thinner(k, dims)).collect()
    }

    pub fn bilinear(case: &Case) -> Vec<Shape> {
        let [m, k, _] = three_sizes(case);
        vec![[m].into(), [m, k].into(), [k].into()]
    }

    pub fn vectors(case: &Case) -> Vec<Shape> {
        let n = at_least(case, 1).iter().product::<usize>();
        vec![[n].into(), [n].into()]
    }

    pub fn any_vectors(case: &Case) -> Vec<Shape> {
        if case.large {
            return vec![[500].into(), [601].into()];
        }
        let [m, k, _] = three_sizes(case);
        vec![[m].into(), [k].into()]
    }

    fn on_axis(case: &Case, dims: &[usize], size: usize) -> Shape {
        Shape::from(dims).with(case.axis_of(dims.len()), size).unwrap()
    }

    pub fn scatter(case: &Case) -> Vec<Shape> {
        let to = filled_line(case)[0];
        let mut from = to.to_vec();
        for (i, d) in from.iter_mut().enumerate() {
            *d -= usize::from(*d > 1 && case.thin[1] >> i & 1 == 1);
        }
        let size = case.up_to(2 * to[case.axis_of(to.rank())]);
        vec![to, on_axis(case, &from, size)]
    }

    /// A tensor, and values that broadcast to those at its indices.
    pub fn assigned(case: &Case) -> Vec<Shape> {
        let x = line(case)[0];
        let view = Layout::contiguous(x).index("case", &case.indices(&x)).unwrap();
        vec![x, case.thinner(1, view.shape())]
    }

    /// A tensor, and values that broadcast to one of its slices.
    pub fn with_slice(case: &Case) -> Vec<Shape> {
        let x = filled_line(case)[0];
        vec![x, case.thinner(1, &x.without(case.axis_of(x.rank())))]
    }

    /// A tensor, and one with every other of its elements.
    pub fn with_gaps(case: &Case) -> Vec<Shape> {
        let part = line(case)[0];
        vec![case.doubled(&part), part]
    }

    pub fn line_and_number(case: &Case) -> Vec<Shape> {
        vec![line(case)[0], Shape::SCALAR]
    }

    pub fn index_addition(case: &Case) -> Vec<Shape> {
        let to = filled_line(case)[0];
        let size = case.up_to(2 * to[case.axis_of(to.rank())]);
        vec![to, on_axis(case, &to, size)]
    }

    pub fn table(case: &Case) -> Vec<Shape> {
        let dims = at_least(case, 2);
        one(vec![dims[0].max(1) * if case.large { 50 } else { 1 }, dims[dims.len() - 1]])
    }

    /// Equal shapes except along the chosen axis.
    pub fn parts(case: &Case) -> Vec<Shape> {
        let dims = at_least(case, 1);
        let size = dims[case.axis_of(dims.len())];
        let part = |k: usize| on_axis(case, &dims, size + case.thin[k] as usize % 3);
        (0..3).map(part).collect()
    }

    pub fn equals(case: &Case) -> Vec<Shape> {
        let dims = case.sizes[..case.sizes.len().min(3)].to_vec();
        vec![dims.into(); 3]
    }

    /// The chosen axis has one element.
    pub fn with_one(case: &Case) -> Vec<Shape> {
        let dims = at_least(case, 1);
        if case.large {
            let mut dims = dims;
            dims[0] *= dims[1];
            dims.swap_remove(1);
            dims.insert(case.axis_of(3), 1);
            return one(dims);
        }
        vec![on_axis(case, &dims, 1)]
    }
}

#[test]
fn cases_are_functions_of_their_seed() {
    let case = Case::of(&[2, 3], 5);
    let shape = Shape::from([2, 3]);
    for domain in [Domain::Plain, Domain::Distinct, Domain::Off(&[0.0])] {
        let values = case.values(domain, 0, &shape);
        assert_eq!(values, case.values(domain, 0, &shape));
        assert_eq!(values.len(), indices(&shape).len());
    }
    let (a, b) = (case.values(Domain::Rival, 0, &shape), case.values(Domain::Rival, 1, &shape));
    let mut all = [a, b].concat();
    all.sort_by(f64::total_cmp);
    assert!(all.windows(2).all(|w| w[1] - w[0] > 0.01), "{all:?}");
}
