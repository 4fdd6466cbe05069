//! Chapter 1: What a tensor is: elements in memory and a shape.
//!
//! A *tensor* is an array of numbers of one type, with any number of axes. Its *shape* is the list of
//! the sizes of its axes. A matrix of 3 rows and 4 columns has the shape `[3, 4]`, a vector of 5
//! numbers `[5]`, and a single number `[]`: it has no axes and one element. The number of axes is the
//! *rank*.
//!
//! ```
//! use retrograd::prelude::*;
//!
//! let x = Tensor::<f32>::arange(10.0, 22.0, 1.0).reshape([3, 4]);
//! assert_eq!((x.rank(), x.numel()), (2, 12));
//! assert_eq!(x.at(&[1, 2]), 16.0);
//! assert_eq!(Tensor::scalar(2.5f32).rank(), 0);
//! assert_eq!(Tensor::<f32>::zeros([2, 0, 3]).numel(), 0); // no elements
//! ```
//!
//! # Storage and layout
//!
//! Memory has one axis. A tensor therefore consists of two parts: the *storage*, a block of memory with
//! the elements one after the other, and the *layout*, which says where in it an element lies. The
//! usual order is *row-major*: the last index changes fastest.
//!
#![doc = include_str!("../../docs/figures/storage.svg")]
//!
//! In row-major order the element `[i, j]` of a matrix with `n` columns is at position `i · n + j`. The
//! general rule has a *stride* for each axis, the distance in memory between neighbours along it, and
//! an *offset*:
//!
//! ```text
//! position(i₀, i₁, ..) = offset + i₀ · stride₀ + i₁ · stride₁ + ..
//! ```
//!
//! In row-major order without gaps the last stride is 1, and each other one is the product of the sizes
//! after it. Such a tensor is *contiguous*. The next chapter, [strides](super::strides), is about all
//! other layouts.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Tensor::<f32>::arange(10.0, 22.0, 1.0).reshape([3, 4]);
//! let layout = x.layout();
//! assert_eq!((layout.strides(), layout.offset()), (&[4, 1][..], 0));
//! let position =
//!     layout.offset() as isize + layout.strides()[0] + 2 * layout.strides()[1];
//! assert_eq!(x.as_slice()[position as usize], x.at(&[1, 2]));
//!
//! let y = Tensor::<f32>::zeros([2, 3, 5]);
//! assert_eq!(y.layout().strides(), [15, 5, 1]);
//! ```
//!
//! # A tensor in thirty lines
//!
//! Nothing more is needed to write a tensor. Here, the storage is reference-counted, so that several
//! tensors can share it. That is also what `tensor/src/tensor.rs` does, with a storage that is recycled
//! when it is dropped.
//!
//! ```
//! use std::rc::Rc;
//!
//! #[derive(Clone)]
//! struct Array {
//!     storage: Rc<Vec<f32>>,
//!     shape: Vec<usize>,
//!     strides: Vec<usize>,
//! }
//!
//! impl Array {
//!     fn new(data: Vec<f32>, shape: &[usize]) -> Array {
//!         assert_eq!(data.len(), shape.iter().product::<usize>());
//!         let mut strides = vec![1; shape.len()];
//!         for axis in (1..shape.len()).rev() {
//!             strides[axis - 1] = strides[axis] * shape[axis];
//!         }
//!         Array { storage: Rc::new(data), shape: shape.to_vec(), strides }
//!     }
//!
//!     fn at(&self, index: &[usize]) -> f32 {
//!         assert!(
//!             index.iter().zip(&self.shape).all(|(i, n)| i < n),
//!             "{index:?} in {:?}",
//!             self.shape
//!         );
//!         self.storage
//!             [index.iter().zip(&self.strides).map(|(i, s)| i * s).sum::<usize>()]
//!     }
//! }
//!
//! let x = Array::new((10..22).map(|i| i as f32).collect(), &[3, 4]);
//! assert_eq!((x.at(&[1, 2]), &x.strides[..]), (16.0, &[4, 1][..]));
//! assert!(Rc::ptr_eq(&x.storage, &x.clone().storage)); // a clone copies no elements
//! ```
//!
//! # Values, not places
//!
//! In PyTorch two tensors that share a storage are two names of one place: a write through one is
//! visible through the other. Here, tensors are values, as numbers are. A clone shares the storage
//! until one of the two is written to. The write then copies the storage first (*copy-on-write*); if
//! the storage has one owner, nothing is copied.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Tensor::from([1.0f32, 2.0, 3.0]);
//! let mut y = x.clone();
//! assert!(y.shares_storage(&x)); // so far, no element has been copied
//! y.make_mut()[0] = 9.0;
//! assert!(!y.shares_storage(&x));
//! assert_eq!((x.to_vec(), y.to_vec()), (vec![1.0, 2.0, 3.0], vec![9.0, 2.0, 3.0]));
//! ```
//!
//! For automatic differentiation this matters: a backward rule saves tensors of the forward pass, and a
//! later write to one of them would make the gradient wrong. PyTorch counts the versions of each tensor
//! to detect this. Here it cannot happen.
//!
//! # Element types
//!
//! The type of the elements is a type parameter: `Tensor<f32>` (the default), `f64`, `i64`, `u32` and
//! `bool`. There is no implicit conversion, so the compiler rejects the sum of a `Tensor<f32>` and a
//! `Tensor<f64>`.
//!
//! An `f32` has 24 significant bits. Of whole numbers, all up to 2²⁴ = 16 777 216 are exact. Above, not
//! every one is: the sum of 2²⁴ and 1 is rounded back to 2²⁴. A long sum in `f32` can therefore depend
//! on its order. The library adds up in blocks, always in the same order, whatever the number of
//! threads.
//!
//! ```
//! # use retrograd::prelude::*;
//! assert_eq!(16_777_216f32 + 1.0, 16_777_216.0);
//!
//! // One number after the other: after 2²⁴ ones the sum does not grow.
//! let n = (1 << 24) + 1000;
//! let one_by_one = (0..n).fold(0.0f32, |sum, _| sum + 1.0);
//! assert_eq!(one_by_one, 16_777_216.0);
//! assert_eq!(Tensor::<f32>::ones([n]).sum(..).item(), n as f32); // in blocks: exact
//! ```
//!
//! # Operations
//!
//! *Pointwise* operations compute every element from the elements at the same index. *Reductions*
//! combine the elements along axes. The axis is always the first argument, `-1` is the last one, and
//! `..` are all.
//!
//! ```
//! # use retrograd::prelude::*;
//! let x = Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]]);
//! assert_eq!((&x * &x).sum(1).to_vec(), [14.0, 77.0]); // of each row
//! assert_eq!(x.mean(0).to_vec(), [2.5, 3.5, 4.5]); // of each column
//! assert_eq!(x.max(..).item(), 6.0);
//!
//! // The product of [2, 3] and [3, 2].
//! assert_eq!(x.matmul(&x.t()).to_vec(), [14.0, 32.0, 32.0, 77.0]);
//! ```
//!
//! Operations on shapes that do not fit panic at the line of the caller. The message has both shapes:
//!
//! ```
//! # use retrograd::prelude::*;
//! let error =
//!     Shape::broadcast("add", &Shape::from([3, 4]), &Shape::from([3])).unwrap_err();
//! let text = error.to_string();
//! assert!(
//!     text.contains("add") && text.contains("[3, 4]") && text.contains("[3]"),
//!     "{text}"
//! );
//! ```
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/tensors.rs`; `cargo test -p retrograd-tests --test book tensors` runs them.
//!
//! 1. What are the strides of a contiguous tensor of shape `[2, 3, 4, 5]`, and at which position is
//!    `[1, 2, 3, 4]`? (`strides_of_four_axes`)
//! 2. Give `Array` a method `matmul` with three loops, and compare it with the library's.
//!    (`matmul_by_hand`)
//! 3. How many bytes does a clone of a tensor with a million elements copy, and how many does the first
//!    write to it? Use [`pool_stats`](crate::tensor::storage::pool_stats), which counts the blocks of
//!    memory that were taken. (`a_clone_takes_no_memory`)
//! 4. Find the smallest whole number `n` for which the sum of `n` ones in `f32`, one by one, is wrong.
//!    (`the_first_wrong_sum`)
//! 5. A tensor of shape `[0, 3]` has no elements. What is its sum, its product and its mean?
//!    (`reductions_of_nothing`)
//!
//! Next: [strides and views](super::strides).
