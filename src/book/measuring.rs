//! Chapter 14: Measuring honestly: when a difference of speed is real.
//!
//! A time is a sample from a distribution. It contains the program, the state of the machine, and
//! everything else that runs on it. A claim such as "10 % faster" is about the program. This chapter is
//! about how to separate the two.
//!
//! # In turns, not one after the other
//!
//! The speed of a machine changes: the clock rises and falls with temperature and load, other processes
//! come and go, and a virtual machine shares its memory with others. If program A is measured first and
//! B later, a change in between looks like a difference of the programs.
//!
//! The figure has simulated times. B takes 1 ms and A 1.1 ms. At half time the machine becomes a
//! quarter slower, and one call in eight is interrupted. Measured one after the other, A seems to be
//! **faster** than B. In turns (A B A B), both meet the same machine:
//!
#![doc = include_str!("../../docs/figures/turns.svg")]
//!
//! ```
//! /// Program, machine and interruptions; the machine is slower from call 40 on.
//! fn time(call: usize, is_a: bool) -> f64 {
//!     let program = if is_a { 1.1 } else { 1.0 };
//!     let machine = if call >= 40 { 1.25 } else { 1.0 };
//!     let interruption = if call % 8 == 3 { 0.6 } else { 0.0 };
//!     program * machine + interruption
//! }
//!
//! fn median(mut x: Vec<f64>) -> f64 {
//!     x.sort_by(f64::total_cmp);
//!     x[x.len() / 2]
//! }
//!
//! // All of A, then all of B.
//! let a: Vec<f64> = (0..40).map(|i| time(i, true)).collect();
//! let b: Vec<f64> = (40..80).map(|i| time(i, false)).collect();
//! assert!(median(a) / median(b) < 0.9); // A seems to be faster
//!
//! // In turns: the ratio of each pair, and the median of the ratios.
//! let ratios =
//!     (0..40).map(|i| time(2 * i, true) / time(2 * i + 1, false)).collect();
//! assert!((median(ratios) - 1.1f64).abs() < 1e-9);
//! ```
//!
//! # Medians
//!
//! The distribution of times is not symmetric. A call can be interrupted and take long; it cannot take
//! less than the program needs. The mean is moved by every outlier, however rare. The *median* is the
//! middle of the sorted times: as long as fewer than half of the calls are disturbed, it is a time of
//! an undisturbed call.
//!
//! The *minimum* estimates the time on an ideal machine. It suits a loop that computes the same thing
//! every time. It is wrong where the work itself varies, and the more calls one makes, the smaller it
//! gets, so two minima are comparable only with equally many calls.
//!
//! # Ratios, and how to average them
//!
//! Absolute times do not carry from one machine to another. Ratios of times from the same minutes do
//! better, and a ratio is what a claim is about. Averages of ratios need care. If A takes half of B's
//! time in one case and twice in another, they are even. The arithmetic mean of the ratios says 1.25,
//! in **either** direction. The geometric mean says 1:
//!
//! ```
//! let (b_over_a, a_over_b) = ([0.5f64, 2.0], [2.0f64, 0.5]);
//! let arithmetic = |x: [f64; 2]| (x[0] + x[1]) / 2.0;
//! let geometric = |x: [f64; 2]| (x[0] * x[1]).sqrt();
//! assert_eq!((arithmetic(b_over_a), arithmetic(a_over_b)), (1.25, 1.25));
//! assert_eq!((geometric(b_over_a), geometric(a_over_b)), (1.0, 1.0));
//! ```
//!
//! # How sure is it?
//!
//! First measure **A against A**. The ratio should be 1; its distance from 1 is the resolution of the
//! setup. A difference between A and B below it says nothing.
//!
//! Then ask whether the sign is sure. If A and B were equally fast, each pair would be won by either
//! with probability ½. The probability that one wins `k` or more of `n` pairs by luck is a sum of
//! binomial coefficients (*sign test*). It assumes nothing about the distribution of times, only that
//! pairs are independent:
//!
//! ```
//! /// The probability of at least `k` heads in `n` throws.
//! fn luck(n: u32, k: u32) -> f64 {
//!     let choose =
//!         |k: u32| (0..k).fold(1.0, |c, i| c * f64::from(n - i) / f64::from(i + 1));
//!     (k..=n).map(choose).sum::<f64>() / 2f64.powi(n as i32)
//! }
//!
//! assert!(luck(10, 7) > 0.1); // 7 of 10 pairs: no evidence
//! assert!(luck(10, 10) < 0.001); // 10 of 10
//! assert!(luck(100, 70) < 1e-4); // the same share of more pairs
//! ```
//!
//! # What lies
//!
//! - **The compiler.** A result that is never used need not be computed.
//!   [`black_box`](std::hint::black_box) hides a value from the optimiser: put the inputs through it
//!   before and the result after.
//! - **The first call.** It takes memory from the operating system, page by page, loads code, starts
//!   threads, and finds caches empty. Call once before measuring, unless the first call is the
//!   question. This library recycles memory, so the second call of an operation takes none:
//!
//! ```
//! use retrograd::prelude::*;
//! use retrograd::tensor::storage::pool_stats;
//!
//! let x = Tensor::<f32>::ones([123_457]);
//! drop(x.exp()); // warm-up
//! let before = pool_stats();
//! drop(x.exp());
//! assert_eq!(pool_stats().fresh, before.fresh);
//! ```
//!
//! - **Caches.** A benchmark that repeats one small operation reads its operands from the L1 cache. In
//!   a program they come from memory. State which; measure both where it matters.
//! - **Other work.** Compare programs that compute the same thing, and check that they do: the ladder
//!   of the [chapter on matrix products](super::gemm) compares the results before it times anything. A
//!   program in `f32` and one in `bf16`, or one that skips the gradient of its inputs, are different
//!   programs.
//! - **Subnormal numbers.** Below 1.2 · 10⁻³⁸ `f32` arithmetic takes many times as long on some CPUs.
//!   An experiment with numbers that shrink measures that.
//! - **The clock.** A reading takes tens of nanoseconds. Time a loop, not a call, if a call takes less
//!   than some microseconds.
//! - **The best of many.** Who tries twenty variants and keeps the fastest has selected luck too.
//!   Measure the winner again, with new samples.
//! - **The limit.** "Ten times as fast" as what? Beside a rate belongs what the machine can do: the
//!   [FMA peak](crate::machine::Peak) for arithmetic, the bandwidth of memory for copies. A kernel at
//!   90 % of the limit is finished; one at 20 % is not, even if it won.
//!
//! # The roofline
//!
//! The limit of an operation follows from two numbers of the machine and two of the operation. With `F`
//! operations and `B` bytes that have to be moved, no program takes less than the larger one of
//! `F / peak` and `B / bandwidth` (Williams et al. 2009).
//! [`Machine::least_seconds`](crate::machine::Machine::least_seconds) computes it from measured limits.
//!
//! ```
//! let (peak, bandwidth) = (240e9, 40e9); // operations and bytes per second
//! let least =
//!     |operations: f64, bytes: f64| f64::max(operations / peak, bytes / bandwidth);
//! let n = 1e6;
//! // The sum of two vectors, 12 n bytes: memory is the limit, by a factor of 72.
//! assert_eq!(least(n, 12.0 * n), 12.0 * n / bandwidth);
//! // A matrix product of 1000 by 1000: arithmetic is the limit.
//! assert_eq!(least(2e9, 12e6), 2e9 / peak);
//! ```
//!
//! # In this repository
//!
//! `benches/compare` runs libraries in turns and reports ratios of medians. `BENCHMARKS.md` states
//! machine, threads, versions and date of each table, and lists the cases that were lost. No test has a
//! time limit: a timed test fails on a busy machine and passes on a broken program.
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/measuring.rs`; `cargo test -p retrograd-tests --test book measuring` runs them.
//!
//! 1. In the simulation of the figure, how many interrupted calls does it take until the median of
//!    pairs is wrong by more than a tenth? (`how_much_noise_a_median_takes`)
//! 2. The order A B A B has a flaw if the machine slows down steadily: B is always later. Show it, and
//!    show that A B B A mends it. (`a_steady_drift`)
//! 3. How many pairs does the sign test need to be sure (1 %) if A wins 60 % of them?
//!    (`pairs_that_are_needed`)
//! 4. Compute a 95 % interval of the median ratio by resampling the pairs (bootstrap).
//!    (`bootstrap_interval`)
//! 5. Show that the minimum of more calls is smaller, although nothing has become faster.
//!    (`minima_of_more_calls`)
//!
//! Previous: [A fast matrix product](super::gemm). Next: [Extending](super::extending).
