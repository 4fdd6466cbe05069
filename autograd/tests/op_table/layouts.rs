//! Layouts: equal elements in different memory orders.

use retrograd_tensor::layout::Layout;
use retrograd_tensor::random::Key;
use retrograd_tensor::{Real, Shape, Tensor};

/// A kind of layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Contiguous,
    /// The last axis outermost in memory.
    Transposed,
    /// Every second element of the last axis.
    Step2,
    /// All axes backwards.
    Reversed,
    /// From the third element of the storage: nothing is aligned.
    Offset,
    /// Gaps between rows.
    Padded,
    /// Axes in any order, some reversed, some with steps.
    Mixed,
}

impl Kind {
    pub const ALL: [Kind; 7] = [
        Kind::Contiguous,
        Kind::Transposed,
        Kind::Step2,
        Kind::Reversed,
        Kind::Offset,
        Kind::Padded,
        Kind::Mixed,
    ];

    fn layout(self, shape: &Shape, seed: u64) -> Layout {
        let rank = shape.rank();
        let key = Key::new(seed, 77);
        let random = |i: usize, n: usize| (key.uniform(i as u64) * n as f64) as usize;
        let mixed = self == Kind::Mixed;
        // Axes from outermost to innermost in memory.
        let mut order: Vec<usize> = (0..rank).collect();
        match self {
            Kind::Transposed => order.reverse(),
            Kind::Mixed => {
                for i in (1..rank).rev() {
                    order.swap(i, random(i, i + 1));
                }
            }
            _ => {}
        }
        let step = |axis: usize| match self {
            Kind::Step2 if axis + 1 == rank => 2,
            Kind::Mixed => 1 + random(10 + axis, 3),
            _ => 1,
        };
        let pad = |axis: usize| match self {
            Kind::Padded if axis + 1 == rank => 3,
            Kind::Mixed => random(20 + axis, 2),
            _ => 0,
        };
        let reversed = |axis: usize| self == Kind::Reversed || mixed && random(30 + axis, 2) == 1;
        let offset = if matches!(self, Kind::Offset | Kind::Mixed) { 3 } else { 0 };

        // A first axis of two, of which the second half is used, makes the offset.
        let mut dims: Vec<usize> = order.iter().map(|&a| shape[a] * step(a) + pad(a)).collect();
        let inner: usize = dims.iter().product();
        dims.insert(0, 1);
        let flat = Layout::contiguous([inner + offset].into());
        let flat = flat.slice("lay", 0, offset, inner + offset, 1).unwrap();
        let mut layout = flat.reshape(dims.as_slice().into()).expect("contiguous");
        layout = layout.squeeze("lay", 0).unwrap();
        for (at, &a) in order.iter().enumerate() {
            let by = step(a) as isize * if reversed(a) { -1 } else { 1 };
            layout = layout.slice("lay", at as isize, 0, shape[a] * step(a), by).unwrap();
        }
        let mut back = vec![0; rank];
        for (at, &a) in order.iter().enumerate() {
            back[a] = at as isize;
        }
        let layout = layout.permute("lay", &back).unwrap();
        assert_eq!(layout.shape(), shape);
        layout
    }
}

/// The same elements in another layout; gaps hold NaN.
pub fn lay<T: Real>(x: &Tensor<T>, kind: Kind, seed: u64) -> Tensor<T> {
    let layout = kind.layout(x.shape(), seed);
    let mut at = vec![layout.offset() as isize];
    for (&d, &stride) in layout.shape().iter().zip(layout.strides()) {
        at = at.iter().flat_map(|&p| (0..d as isize).map(move |k| p + k * stride)).collect();
    }
    let mut storage = vec![T::NAN; at.iter().max().map_or(0, |&m| m as usize + 1)];
    for (at, x) in at.into_iter().zip(x.to_vec()) {
        storage[at as usize] = x;
    }
    Tensor::from_vec(storage.clone(), [storage.len()]).as_strided(&layout)
}

#[test]
fn layouts_hold_the_same_elements() {
    for dims in [&[][..], &[5], &[2, 3], &[3, 1, 4], &[2, 0, 3], &[2, 3, 2, 2]] {
        let n = dims.iter().product::<usize>() as f64;
        let x = Tensor::<f64>::arange(0.0, n, 1.0).reshape(dims);
        for kind in Kind::ALL {
            for seed in 0..8 {
                assert_eq!(lay(&x, kind, seed), x, "{kind:?}");
            }
        }
    }
    let x = Tensor::<f64>::ones([3, 4]);
    let strides = |kind| lay(&x, kind, 0).layout().strides().to_vec();
    assert_eq!(strides(Kind::Transposed), [1, 3]);
    assert_eq!(strides(Kind::Step2), [8, 2]);
    assert_eq!(strides(Kind::Reversed), [-4, -1]);
    assert_eq!(strides(Kind::Padded), [7, 1]);
    assert_eq!(lay(&x, Kind::Offset, 0).layout().offset(), 3);
}
