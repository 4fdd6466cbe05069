//! Chapter 2: Strides and views: many tensors on one storage.
//!
//! A *view* is a tensor with another layout on the same storage. Transposing, slicing, reversing and
//! repeating change shape, strides and offset only. They take the same time for ten elements and for
//! ten million, because no element is read.
//!
//! # One storage, eight views
//!
//! The cells of this figure show the position in memory that an element is read from.
//!
#![doc = include_str!("../../docs/figures/strides.svg")]
//!
//! The rules can be read off the formula `offset + Σ iₐ · strideₐ`:
//!
//! | operation | what changes |
//! |---|---|
//! | `transpose(a, b)` | sizes and strides of the axes are exchanged |
//! | `slice(axis, from..to)` | the size becomes `to - from`, and the offset grows by `from · stride` |
//! | `slice_step(axis, .., n)` | the stride is multiplied by `n` |
//! | `flip(axis)` | the offset moves to the last element, and the stride changes its sign |
//! | `broadcast_to` | the stride of a repeated axis is 0 |
//! | `select(axis, i)` | the axis disappears, and the offset grows by `i · stride` |
//! | `diagonal` | one axis with the sum of two strides |
//! | `unfold(axis, size, step)` | a new axis with the old stride: windows overlap in memory |
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let x = Tensor::<f32>::arange(0.0, 12.0, 1.0).reshape([3, 4]);
//! let layout = |y: &Tensor| {
//!     (y.shape().to_vec(), y.layout().strides().to_vec(), y.layout().offset())
//! };
//!
//! assert_eq!(layout(&x.t()), (vec![4, 3], vec![1, 4], 0));
//! assert_eq!(layout(&x.slice(1, 1..3)), (vec![3, 2], vec![4, 1], 1));
//! assert_eq!(layout(&x.slice_step(1, .., 2)), (vec![3, 2], vec![4, 2], 0));
//! assert_eq!(layout(&x.flip(0)), (vec![3, 4], vec![-4, 1], 8));
//! assert_eq!(
//!     layout(&x.select(0, 1).broadcast_to([3, 4])),
//!     (vec![3, 4], vec![0, 1], 4)
//! );
//! assert_eq!(layout(&x.diagonal(0, 1, 0)), (vec![3], vec![5], 0));
//! assert_eq!(layout(&x.unfold(1, 2, 1)), (vec![3, 3, 2], vec![4, 1, 1], 0));
//! assert!(x.flip(0).t().shares_storage(&x));
//! ```
//!
//! # When `reshape` copies
//!
//! `reshape` reads the elements in row-major order and gives them another shape. Of a contiguous tensor
//! that is a view. Of a transposed one it usually is not: its elements in row-major order are
//! `0 4 8 1 5 9 ..`, and no pair of strides visits these positions as two rows of six. `reshape` then
//! copies.
//!
//! Two axes `a` and `a + 1` of more than one element each can be merged without a copy exactly if
//! `stride(a) = size(a + 1) · stride(a + 1)`.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Tensor::<f32>::arange(0.0, 12.0, 1.0).reshape([3, 4]);
//! assert!(x.reshape([2, 6]).shares_storage(&x));
//! assert!(!x.t().reshape([2, 6]).shares_storage(&x)); // a copy
//!
//! // The first two axes are not adjacent in this order: 4 is not 5 · 12. Merging them copies.
//! let y = Tensor::<f32>::zeros([5, 3, 4]).transpose(0, 1); // strides [4, 12, 1]
//! assert!(!y.reshape([15, 4]).shares_storage(&y));
//! assert!(y.reshape([3, 5, 2, 2]).shares_storage(&y)); // a split axis: a view
//! ```
//!
//! # A layout in code
//!
//! A layout is a small value of its own. This is the transpose, the slice and the test of contiguity,
//! as in `tensor/src/layout.rs`:
//!
//! ```
//! #[derive(Clone, Debug, PartialEq)]
//! struct Layout {
//!     shape: Vec<usize>,
//!     strides: Vec<isize>,
//!     offset: usize,
//! }
//!
//! impl Layout {
//!     fn contiguous(shape: &[usize]) -> Layout {
//!         let mut strides = vec![1; shape.len()];
//!         for axis in (1..shape.len()).rev() {
//!             strides[axis - 1] = strides[axis] * shape[axis] as isize;
//!         }
//!         Layout { shape: shape.to_vec(), strides, offset: 0 }
//!     }
//!
//!     fn transpose(mut self, a: usize, b: usize) -> Layout {
//!         self.shape.swap(a, b);
//!         self.strides.swap(a, b);
//!         self
//!     }
//!
//!     fn slice(mut self, axis: usize, from: usize, to: usize) -> Layout {
//!         assert!(from <= to && to <= self.shape[axis]);
//!         self.offset += from * self.strides[axis] as usize; // not negative here
//!         self.shape[axis] = to - from;
//!         self
//!     }
//!
//!     fn is_contiguous(&self) -> bool {
//!         let plain = Layout::contiguous(&self.shape);
//!         self.strides == plain.strides // exercise 2: this is too strict
//!     }
//! }
//!
//! let x = Layout::contiguous(&[3, 4]);
//! assert_eq!(x.clone().transpose(0, 1).strides, [1, 4]);
//! assert_eq!(x.clone().slice(1, 1, 3).offset, 1);
//! assert!(x.is_contiguous() && !x.transpose(0, 1).is_contiguous());
//! ```
//!
//! # What a stride costs
//!
//! A CPU moves memory in cache lines of 64 bytes: 16 numbers of `f32`. A loop along an axis of stride 1
//! uses all 16; a loop along an axis of stride 16 or more uses one of them, and the other 15 are moved
//! for nothing. The same elements, read in another order, can take several times as long. So a kernel
//! does not simply loop over the axes in their order. This library's drivers first drop axes of size 1
//! and merge axes that are adjacent in every operand (`tensor/src/loop_nest.rs`): a contiguous tensor
//! of any rank is one loop. An operand that is not contiguous along the innermost axis is copied into a
//! small contiguous block, one block at a time, and the vector loop reads the block
//! (`tensor/src/kernels/elementwise.rs`). The result is contiguous.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Tensor::<f32>::arange(0.0, 6.0, 1.0).reshape([2, 3]).t();
//! let y = x.exp();
//! assert!(!x.is_contiguous() && y.is_contiguous());
//! assert!((y.at(&[2, 1]) - 5f32.exp()).abs() < 1e-4);
//! ```
//!
//! # The gradient of a view
//!
//! A view is a linear map: every output element is a copy of one input element. Its backward rule is
//! the *adjoint* of that map. Where the forward pass read the position `p` for output `i`, the backward
//! pass **adds** gradient `i` to position `p`. It adds because several outputs can read the same
//! position, as `broadcast_to` and `unfold` do.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Var::leaf(Tensor::from([1.0f32, 2.0, 3.0, 4.0]));
//! let windows = x.unfold(0, 3, 1); // [[1, 2, 3], [2, 3, 4]]
//! assert_eq!(windows.value().to_vec(), [1.0, 2.0, 3.0, 2.0, 3.0, 4.0]);
//! // Each element's gradient is the number of windows that it is in.
//! assert_eq!(
//!     windows.sum(..).backward().get(&x).unwrap().to_vec(),
//!     [1.0, 2.0, 2.0, 1.0]
//! );
//! ```
//!
//! A map `A` and its adjoint `Aᵀ` satisfy `⟨A x, y⟩ = ⟨x, Aᵀ y⟩` for all `x` and `y`, where `⟨·, ·⟩` is
//! the sum of products. This is a complete test of a linear backward rule, without finite differences:
//!
//! ```
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(1);
//! let x = Var::leaf(Tensor::<f64>::randn([4, 6], &mut rng));
//! let view = |x: &Var<f64>| x.t().slice_step(0, 1.., 2).flip(1);
//! let y = Tensor::<f64>::randn(view(&x).shape(), &mut rng);
//! let left = (view(&x).value() * &y).sum(..).item();
//! let adjoint = view(&x).backward_with(&y).get(&x).unwrap().clone();
//! let right = (x.value() * &adjoint).sum(..).item();
//! assert!((left - right).abs() < 1e-12);
//! ```
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/strides.rs`; `cargo test -p retrograd-tests --test book strides` runs them.
//!
//! 1. Write a layout that reads a storage of 9 elements as the anti-diagonal `[2, 4, 6]`.
//!    (`anti_diagonal`)
//! 2. `is_contiguous` above says no to shape `[1, 4]` with strides `[99, 1]`, although no element is
//!    out of order. Which strides do not matter? (`strides_of_axes_of_one`)
//! 3. Predict without running: is `x.slice(0, 1..3).reshape([8])` of an `x` of shape `[3, 4]` a view?
//!    And `x.slice(1, 1..3).reshape([6])`? (`reshapes_of_slices`)
//! 4. A convolution of a vector with three weights is `x.unfold(0, 3, 1).matmul(&w)`. What is its
//!    gradient by `x`? (`convolution_by_windows`)
//! 5. Which condition on sizes and strides makes a layout *injective*, so that no two indices share a
//!    position? Test [`Layout::is_injective`](crate::tensor::layout::Layout::is_injective) against a
//!    count. (`injective_layouts`)
//!
//! Next: [the chain rule on a graph](super::chain_rule).
