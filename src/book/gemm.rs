//! Chapter 13: A fast matrix product: from three loops to the machine's peak.
//!
//! `C = A B` for `n × n` matrices takes `n³` multiplications and as many additions: `2 n³` operations
//! on `3 n²` numbers. For `n = 768` that is 0.9 · 10⁹ operations on 7 MB. There is more arithmetic than
//! data, so the arithmetic units of the CPU can be the limit. A naive program is far from it.
//!
//! # The peak
//!
//! A core with AVX-512 has registers of 16 `f32`. A *fused multiply-add* (FMA) computes `a · b + c` of
//! 16 lanes in one instruction, 32 operations. A Zen 5 core starts two of them in each cycle:
//!
//! ```text
//! 2 FMAs · 16 lanes · 2 operations = 64 operations per cycle; at 4.0 GHz 256 GFLOP/s
//! ```
//!
//! `examples/kernel_ladder` measures the peak, 257 GFLOP/s here, and nine programs. Each changes one
//! thing. The figure is drawn from `docs/figures/kernel_ladder.txt`, which is what the example printed
//! with `--only matmul` on one thread of an AMD EPYC (Zen 5) on 2026-11-23: of three runs, the one with
//! the median rate of the library's product. (The last program was the crate matrixmultiply, by which this library
//! then multiplied in portable code.)
//!
#![doc = include_str!("../../docs/figures/ladder.svg")]
//!
//! The scale is logarithmic: each line is a factor of ten. This is the record, and what the chapter
//! says of it:
//!
//! ```
//! const RECORD: &str = include_str!(concat!(
//!     env!("CARGO_MANIFEST_DIR"),
//!     "/docs/figures/kernel_ladder.txt"
//! ));
//! let number = |name: &str, column: usize| -> f64 {
//!     let line = RECORD.lines().find(|line| line.starts_with(name)).unwrap();
//!     line[name.len()..].split_whitespace().nth(column).unwrap().parse().unwrap()
//! };
//! let rate = |name: &str| number(name, 0);
//! let speedup = |name: &str| number(name, 4); // compared with "naive"
//! let is_near = |x: f64, y: f64| (x / y - 1.0).abs() < 0.02;
//! assert!(is_near(speedup("reordered"), 39.0));
//! assert!(is_near(rate("vectorised") / rate("reordered"), 2.7));
//! assert!(is_near(rate("tiled") / rate("vectorised"), 3.7));
//! assert!(
//!     is_near(rate("tiled") / 257.0, 0.95) && is_near(rate("ours") / 257.0, 0.94)
//! );
//! assert!(rate("blocked") < rate("reordered") && rate("packed") < rate("tiled"));
//! let naive = rate("reordered") / speedup("reordered");
//! let cycles = 2.0 * 4.0 / naive; // of one multiplication and addition
//! assert!(is_near(cycles, 12.5));
//! ```
//!
//! # 1. Naive
//!
//! ```
//! fn naive(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
//!     for i in 0..n {
//!         for j in 0..n {
//!             for k in 0..n {
//!                 c[i * n + j] += a[i * n + k] * b[k * n + j];
//!             }
//!         }
//!     }
//! }
//! let (a, b, mut c) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [0.0; 4]);
//! naive(&a, &b, 2, &mut c);
//! assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
//! ```
//!
//! The inner loop reads `b` down a column, with a stride of `n`: from each cache line of 16 numbers it
//! uses one. And each addition waits for the one before it, since all go to the same element of `c`. A
//! step of the inner loop takes 12.5 cycles, in which the core could start 25 FMAs of 16 lanes.
//!
//! # 2. Reordered, 3. blocked
//!
//! With the loops in the order `i, k, j` the inner loop runs along rows of `b` and `c`. All reads are
//! contiguous, and the additions are independent of each other. The compiler recognises this and uses
//! vector instructions (four lanes, which every x86-64 has). That one exchange is the largest step of
//! the ladder, a factor of 39:
//!
//! ```
//! fn reordered(a: &[f32], b: &[f32], n: usize, c: &mut [f32]) {
//!     for (a, c) in a.chunks_exact(n).zip(c.chunks_exact_mut(n)) {
//!         for (&x, b) in a.iter().zip(b.chunks_exact(n)) {
//!             for (c, &y) in c.iter_mut().zip(b) {
//!                 *c += x * y;
//!             }
//!         }
//!     }
//! }
//! let (a, b, mut c) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [0.0; 4]);
//! reordered(&a, &b, 2, &mut c);
//! assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
//! ```
//!
//! Each row of `c` reads all of `b`, 2.4 MB for `n = 768`: more than the L2 cache of 1 MB. *Blocking*
//! takes a part of the rows of `b` for all rows of `a` first, so that it stays in the cache. At this
//! stage it gains nothing. The loop is limited by something else, and a remedy for a limit that is not
//! reached has no effect.
//!
//! # 4. Vectors
//!
//! This library's vectors have 16 lanes on every instruction set. A kernel is written once, generic
//! over [`Lanes`](crate::tensor::simd::Lanes), and compiled for each of them; `dispatch` calls the
//! version for this CPU. All of it is safe code: the token `s` proves that the CPU has the
//! instructions.
//!
//! ```
//! use retrograd::tensor::Real;
//! use retrograd::tensor::settings::level;
//! use retrograd::tensor::simd::{Kernel, Lanes};
//!
//! /// c += x · y for rows of whole vectors.
//! struct Axpy<'a>(f32, &'a [f32], &'a mut [f32]);
//!
//! impl Kernel<f32> for Axpy<'_> {
//!     type Out = ();
//!     #[inline(always)]
//!     fn run<S: Lanes<f32>>(self, s: S) {
//!         let x = s.splat(self.0);
//!         for (y, c) in self.1.chunks_exact(S::N).zip(self.2.chunks_exact_mut(S::N))
//!         {
//!             s.store(s.fma(x, s.load(y), s.load(c)), c);
//!         }
//!     }
//! }
//!
//! let (y, mut c) = ([2.0f32; 32], [1.0f32; 32]);
//! f32::dispatch(level(), Axpy(3.0, &y, &mut c));
//! assert_eq!(c, [7.0; 32]);
//! ```
//!
//! Four times as many lanes, and FMA in place of two instructions, could be a factor of 8. It is 2.7.
//! Each FMA here needs two loads and a store. A core can do two loads and one store of this width in a
//! cycle, at best, so at most one FMA per cycle is possible, and less when data comes from L2.
//!
//! # 5. A tile in registers
//!
//! The remedy is to use every loaded number several times. A tile of `MR` rows and `NR` columns of `C`
//! is held in registers for the whole sum. Step `k` loads `NR` numbers of `B` and `MR` of `A`, and
//! computes `MR · NR` products from them:
//!
//! ```
//! const MR: usize = 6;
//! const NR: usize = 16;
//!
//! /// The tile of c from MR rows of a and NR columns of b.
//! fn micro_kernel(a: &[f32], b: &[f32], n: usize, j: usize) -> [[f32; NR]; MR] {
//!     let mut sums = [[0.0; NR]; MR];
//!     for k in 0..n {
//!         let y: [f32; NR] = b[k * n + j..][..NR].try_into().unwrap(); // one vector
//!         for i in 0..MR {
//!             let x = a[i * n + k]; // one number for all lanes
//!             for lane in 0..NR {
//!                 sums[i][lane] += x * y[lane];
//!             }
//!         }
//!     }
//!     sums
//! }
//!
//! use retrograd::prelude::*;
//! let n = 48;
//! let mut rng = Rng::new(1);
//! let (a, b) = (
//!     Tensor::<f32>::randn([n, n], &mut rng),
//!     Tensor::<f32>::randn([n, n], &mut rng),
//! );
//! let c = a.matmul(&b);
//! // Rows 6 to 11, columns 32 to 47.
//! let tile = micro_kernel(&a.as_slice()[6 * n..], b.as_slice(), n, 32);
//! for i in 0..MR {
//!     for lane in 0..NR {
//!         assert!((tile[i][lane] - c.at(&[6 + i, 32 + lane])).abs() < 1e-4);
//!     }
//! }
//! ```
//!
//! The size of the tile follows from three numbers. There are 32 registers. An FMA has a latency of 4
//! cycles and two start per cycle, so at least 8 independent sums must be in flight; a tile of 6 × 4
//! vectors has 24. And it should need few loads: per step 4 vectors of `B` and 6 numbers of `A` for 24
//! FMAs, which is 2.4 FMAs per load. 24 sums, 4 vectors and one broadcast number fill 29 of the 32
//! registers.
//!
//! # 6. Blocks and packing
//!
#![doc = include_str!("../../docs/figures/blocks.svg")]
//!
//! For large matrices every level of the memory needs a block that fits it (Goto, van de Geijn 2008;
//! the names come from BLIS). A panel of `B` with `KC` rows and `NR` columns is read for every tile
//! of a column of tiles, and a block of `A` with `MC` rows and `KC` columns for every panel. *Packing*
//! copies a block into the order in which the micro-kernel reads it. The reads are then one stream,
//! which the prefetcher follows, and need few pages. The copy takes `O(n²)` time for `O(n³)` work.
//!
//! In the ladder packing does not pay: `n = 768` is small, and the micro-kernel's reads hit the caches.
//! Whether it pays depends on sizes and strides. The library decides by them
//! (`tensor/src/kernels/gemm`), and reads operands in place where it can.
//!
//! # 7. Threads
//!
//! Rows of `C` are independent, so each thread computes some of them. The division must not change the
//! order of any sum, then results have the same bits on any number of threads. So sums (the dimension
//! `k`) are never divided among threads here.
//!
//! ```
//! # use retrograd::prelude::*;
//! let mut rng = Rng::new(2);
//! let (a, b) = (
//!     Tensor::<f32>::randn([200, 300], &mut rng),
//!     Tensor::<f32>::randn([300, 100], &mut rng),
//! );
//! let product = |threads| with_threads(threads, || a.matmul(&b).to_vec());
//! assert_eq!(product(1), product(3)); // equal bits
//! ```
//!
//! # Rounding
//!
//! The versions add in different orders, so their results differ by rounding. The error of a sum of `n`
//! products is at most about `n · ε · Σ |aᵢ bᵢ|`, with `ε = 2⁻²⁴` in `f32`, and for random signs about
//! `√n` in place of `n`. So two right programs agree to about 6 digits, not to the bit, and a test
//! needs a bound that grows with `n`.
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/gemm.rs`; `cargo test -p retrograd-tests --test book gemm` runs them.
//!
//! 1. For which `n` do three `f32` matrices fit a cache of 32 KB, and of 1 MB? (`sizes_of_caches`)
//! 2. How many FMAs per load have tiles of 1 × 1, 4 × 1, 6 × 4 and 12 × 2 vectors, and how many
//!    registers do they take? Which is best with 16 registers? (`tiles`)
//! 3. Complete the micro-kernel to a matrix product for `n` that is no multiple of the tile. (`edges`)
//! 4. Show that exchanging the inner loops changes no bit of the result for `reordered`, but summing in
//!    blocks of `k` does. (`order_of_the_sums`)
//! 5. When is a matrix product limited by memory? Compute operations per byte of a matrix times a
//!    vector. (`matrix_times_vector`)
//!
//! Previous: [Training](super::training). Next: [Measuring](super::measuring).
