//! Random test cases: shapes, values, layouts and arguments.

use crate::layouts::Kind;
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
        // Vectors of every size up to this one, for sanitizers.
        let most = std::env::var("OP_SIZES").map_or(0, |n| n.parse().expect("a size"));
        all.extend((0..most).map(|n| Case::of(&[n + 1], n as u64)));
        all
    }

    /// Cases large enough for several threads, with tails; operands are broadcast in two ways.
    pub fn large() -> Vec<Case> {
        let case = Case { large: true, ..Case::of(&[3, 190, 191], 7) };
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

pub mod shapes;

#[test]
fn cases_are_functions_of_their_seed() {
    let case = Case::of(&[2, 3], 5);
    let shape = Shape::from([2, 3]);
    for domain in [Domain::Plain, Domain::Distinct, Domain::Off(&[0.0])] {
        let values = case.values(domain, 0, &shape);
        assert_eq!(values, case.values(domain, 0, &shape));
        assert_eq!(values.len(), 6);
    }
    let (a, b) = (case.values(Domain::Rival, 0, &shape), case.values(Domain::Rival, 1, &shape));
    let mut all = [a, b].concat();
    all.sort_by(f64::total_cmp);
    assert!(all.windows(2).all(|w| w[1] - w[0] > 0.01), "{all:?}");
}
