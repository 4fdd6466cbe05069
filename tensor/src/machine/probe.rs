//! The measurements behind [`Machine`].

use super::{Machine, Memory, Peak, Rate, RegionCost, Roofline};
use crate::cost::Cost;
use crate::kernels::Real;
use crate::par;
use crate::simd::{Kernel, Lanes, Level};
use std::hint::black_box;
use std::ops::Range;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// How rates are measured.
#[derive(Clone, Copy)]
struct Effort {
    /// Measurements of a rate; the best is used.
    attempts: usize,
    /// The target time of an attempt.
    attempt: Duration,
    /// The threads that measure the rate of all: the threads of the pool, or others.
    threads: usize,
    in_pool: bool,
    /// The size of a block of main memory: how many times the last cache, at least, at most.
    far: (usize, usize, usize),
}

impl Effort {
    fn thorough() -> Effort {
        Effort {
            attempts: 7,
            attempt: Duration::from_millis(8),
            threads: par::threads(),
            in_pool: true,
            far: (4, 256 << 20, 1 << 30),
        }
    }

    /// Threads of their own: a thread of the pool may be waiting for the result.
    fn brief() -> Effort {
        Effort {
            attempts: 3,
            attempt: Duration::from_millis(3),
            threads: par::threads(),
            in_pool: false,
            far: (2, 64 << 20, 1 << 30),
        }
    }

    /// Runs `f` once on every thread, at the same time.
    fn on_every_thread(&self, f: impl Fn() + Sync) {
        if self.in_pool {
            return par::on_every_thread(f);
        }
        // This thread: in WebAssembly there are no others.
        if self.threads == 1 {
            return f();
        }
        std::thread::scope(|s| (0..self.threads).for_each(|_| drop(s.spawn(&f))));
    }
}

impl Roofline {
    /// Measures the limits for about half a second, with as many threads as parallel work on this thread
    /// uses.
    pub fn measure() -> Roofline {
        let effort = Effort::brief();
        let best = *Level::available().last().expect("the scalar level is always available");
        Roofline { threads: effort.threads, peak: peak(effort, best), memory: memory(effort, best) }
    }
}

impl Peak {
    /// Measures the peak of the best SIMD level for some hundredths of a second, with as many threads as parallel
    /// work on this thread uses.
    ///
    /// ```
    /// use retrograd::tensor::machine::Peak;
    /// assert!(Peak::measure().gflops.all > 0.0);
    /// ```
    pub fn measure() -> Peak {
        let best = *Level::available().last().expect("the scalar level is always available");
        peak(Effort::brief(), best)
    }
}

impl Machine {
    /// Measures the limits for about three seconds, with as many threads as parallel work on this
    /// thread uses.
    ///
    /// Rates are the best of several attempts and times are medians, since other load can only slow
    /// a machine down. Cache sizes are those that Linux reports; elsewhere 32 KiB, 512 KiB and 8
    /// MiB are assumed. The region from outside is one of the global pool.
    pub fn measure() -> Machine {
        let effort = Effort::thorough();
        let clock = clock(effort);
        let peaks = Level::available().into_iter().map(|level| peak(effort, level));
        let peaks = peaks.collect::<Vec<_>>();
        let best = peaks.last().expect("the scalar level is always available").level;
        let threads = par::threads();
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads,
            clock,
            peaks,
            memory: memory(effort, best),
            page_fault: page_fault(),
            // A thread of the standard library is in no pool.
            region_outside: std::thread::scope(|s| {
                s.spawn(RegionCost::measure).join().expect("an empty region")
            }),
            region_inside: par::with_threads(threads, RegionCost::measure),
        }
    }
}

/// The time of `f` in seconds.
fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

fn median(mut x: Vec<f64>) -> f64 {
    x.sort_by(f64::total_cmp);
    x[x.len() / 2]
}

/// The rates of `f`, which repeats its work a number of times; `amount` is the amount of work of
/// one repetition, which is small: the time is bounded in a build without optimisation, too. `ready` is called
/// before every attempt.
fn rates(effort: Effort, amount: f64, mut f: impl FnMut(usize), ready: impl Fn()) -> Vec<f64> {
    let Effort { attempts, attempt, .. } = effort;
    ready();
    let first = seconds(|| f(1)).max(1e-9);
    let some = ((attempt.as_secs_f64() / 8.0 / first) as usize).max(1);
    let each = seconds(|| f(some)) / some as f64;
    let times = ((attempt.as_secs_f64() / each) as usize).max(1);
    let one = |_| {
        ready();
        amount * times as f64 / seconds(|| f(times))
    };
    (0..attempts).map(one).collect()
}

/// The rate of one thread, and of all threads at once. `make` returns the work of one of `n`
/// threads: the amount of a repetition, and a function that repeats it.
fn on_one_and_all<F: FnMut(usize)>(
    effort: Effort,
    make: impl Fn(usize) -> (f64, F) + Sync,
) -> Rate {
    let (amount, f) = make(1);
    let one = rates(effort, amount, f, || ()).into_iter().fold(0.0, f64::max);
    let threads = effort.threads;
    if threads == 1 {
        return Rate { one, all: one };
    }
    // All threads start every attempt together, so that none measures a partly idle machine.
    let (barrier, total) = (Barrier::new(threads), Mutex::new(vec![0.0; effort.attempts]));
    effort.on_every_thread(|| {
        let (amount, f) = make(threads);
        let own = rates(effort, amount, f, || {
            barrier.wait();
        });
        let mut total = total.lock().expect("an addition does not panic");
        total.iter_mut().zip(own).for_each(|(total, x)| *total += x);
    });
    let total = total.into_inner().expect("an addition does not panic");
    Rate { one, all: total.into_iter().fold(0.0, f64::max) }
}

fn clock(effort: Effort) -> f64 {
    const LATENCY: f64 = 4.0; // three of a multiplication, one of an exclusive or
    let chain = |steps: usize| {
        let (mut x, mask) = (black_box(3u64), black_box(0x9e37_79b9_7f4a_7c15));
        for _ in 0..steps * 1000 {
            x = x.wrapping_mul(x) ^ mask;
        }
        black_box(x);
    };
    rates(effort, LATENCY * 1000.0 / 1e9, chain, || ()).into_iter().fold(0.0, f64::max)
}

/// Multiply-adds on `ACC` independent vectors.
///
/// Two units with a latency of four cycles need eight independent registers, and a vector of 16
/// lanes is one register of AVX-512, two of AVX2 and four of NEON and SSE.
struct MultiplyAdds<const ACC: usize> {
    steps: usize,
}

impl<const ACC: usize> Kernel<f32> for MultiplyAdds<ACC> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) -> f32 {
        let (a, b) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
        let mut acc = [s.splat(0.0); ACC];
        for i in 0..ACC {
            acc[i] = s.splat(i as f32);
        }
        for _ in 0..self.steps {
            for x in &mut acc {
                *x = s.fma(*x, a, b);
            }
        }
        let mut sum = acc[0];
        for x in &acc[1..] {
            sum = s.add(sum, *x);
        }
        s.sum(sum)
    }
}

fn peak(effort: Effort, level: Level) -> Peak {
    fn gflops<const ACC: usize>(effort: Effort, level: Level) -> Rate {
        const STEPS: usize = 1000;
        let amount = (2 * 16 * ACC * STEPS) as f64 / 1e9;
        on_one_and_all(effort, |_| {
            let work = move |times| {
                black_box(f32::dispatch(level, MultiplyAdds::<ACC> { steps: STEPS * times }));
            };
            (amount, work)
        })
    }
    let gflops = match level {
        Level::Avx512 => gflops::<24>(effort, level),
        Level::Avx2 | Level::Neon => gflops::<6>(effort, level),
        Level::Scalar | Level::Wasm128 => gflops::<3>(effort, level),
    };
    Peak { level, gflops }
}

/// A sum with eight independent accumulators, which hide the latency of additions at two loads per
/// cycle.
struct Sum<'a>(&'a [f32]);

impl Kernel<f32> for Sum<'_> {
    type Out = f32;
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) -> f32 {
        let mut acc = [s.splat(0.0); 8];
        for x in self.0.chunks_exact(8 * S::N) {
            for i in 0..8 {
                acc[i] = s.add(acc[i], s.load(&x[i * S::N..]));
            }
        }
        let mut sum = acc[0];
        for x in &acc[1..] {
            sum = s.add(sum, *x);
        }
        s.sum(sum)
    }
}

fn memory(effort: Effort, level: Level) -> Vec<Memory> {
    let (threads, caches) = (effort.threads, caches());
    let last = caches.last().map_or(0, |c| c.1);
    let mut known = vec![];
    for (i, &(name, bytes)) in caches.iter().enumerate() {
        let per_core = i < 2;
        // Half of a private cache; for a shared cache, more than the private ones.
        let working_set = match per_core {
            true => bytes / 2,
            false => (bytes / 4).max(2 * threads * caches[1].1) / threads,
        };
        known.push(bandwidth(effort, level, name, bytes, per_core, |_| working_set));
    }
    let (times, least, most) = effort.far;
    let far = (times * last).clamp(least, most);
    known.push(bandwidth(effort, level, "DRAM", usize::MAX, false, |threads| far / threads));
    known
}

/// `f32` elements in a cache line.
const LINE: usize = 16;

/// `f32` elements of a repetition, at most: 256 KiB.
pub const CHUNK: usize = 1 << 16;

/// A block of ones. Copies of what there is are fast in a build without optimisation, too.
fn ones(len: usize) -> Vec<f32> {
    let mut x = Vec::with_capacity(len);
    x.resize(len.min(1024), 1.0);
    while x.len() < len {
        x.extend_from_within(..x.len().min(len - x.len()));
    }
    x
}

/// The chunk after this one, in a block of so many elements that is walked through over and over: so an element is
/// read again after all others, and a repetition takes as long in a large block as in a small one.
pub fn following(chunk: &Range<usize>, len: usize) -> Range<usize> {
    let (size, at) = (len.min(CHUNK), chunk.end);
    if at + size > len { 0..size } else { at..at + size }
}

/// The index of the first aligned cache line: loads that cross cache lines take twice as long.
fn first_line(x: &[f32]) -> usize {
    x.as_ptr().align_offset(4 * LINE).min(LINE)
}

fn bandwidth(
    effort: Effort,
    level: Level,
    name: &'static str,
    bytes: usize,
    per_core: bool,
    working_set: impl Fn(usize) -> usize + Sync,
) -> Memory {
    let floats = |threads: usize| working_set(threads) / 4 / 128 * 128;
    let gb = |floats: usize| floats as f64 * 4.0 / 1e9;
    let read = on_one_and_all(effort, |threads| {
        let x = ones(floats(threads) + LINE);
        let (first, mut chunk) = (first_line(&x), 0..0);
        let work = move |times| {
            for _ in 0..times {
                chunk = following(&chunk, floats(threads));
                let x = black_box(&x[first..][chunk.clone()]);
                black_box(f32::dispatch(level, Sum(x)));
            }
        };
        (gb(floats(threads).min(CHUNK)), work)
    });
    let copy = on_one_and_all(effort, |threads| {
        let mut x = ones(floats(threads) + LINE);
        let half = floats(threads) / 2;
        let (first, mut chunk) = (first_line(&x), 0..0);
        let work = move |times| {
            for _ in 0..times {
                chunk = following(&chunk, half);
                let (from, to) = x[first..].split_at_mut(half);
                to[chunk.clone()].copy_from_slice(&from[chunk.clone()]);
                black_box(to);
            }
        };
        (2.0 * gb(half.min(CHUNK)), work)
    });
    Memory { name, bytes, per_core, read, copy }
}

/// Names and sizes of the data caches, as Linux reports them; the last one is shared.
fn caches() -> Vec<(&'static str, usize)> {
    let mut found = [32 << 10, 512 << 10, 8 << 20];
    for index in 0..8 {
        let read = |what| {
            std::fs::read_to_string(format!(
                "/sys/devices/system/cpu/cpu0/cache/index{index}/{what}"
            ))
        };
        let (Ok(level), Ok(kind), Ok(size)) = (read("level"), read("type"), read("size")) else {
            continue;
        };
        let bytes = size.trim().strip_suffix('K').and_then(|k| k.parse::<usize>().ok());
        let level = level.trim().parse::<usize>().ok().filter(|l| (1..=3).contains(l));
        if let (Some(level), Some(kib), false) = (level, bytes, kind.trim() == "Instruction") {
            found[level - 1] = kib << 10;
        }
    }
    ["L1", "L2", "L3"].into_iter().zip(found).collect()
}

/// Nanoseconds per 4 KiB of untouched memory.
fn page_fault() -> f64 {
    const PAGE: usize = 4096;
    const PAGES: usize = 8192;
    let touch = || {
        // Large enough that the allocator gets untouched memory from the operating system.
        let mut fresh = vec![0u8; PAGE * PAGES];
        let time = seconds(|| fresh.iter_mut().step_by(PAGE).for_each(|x| *x = black_box(1)));
        black_box(fresh);
        time * 1e9 / PAGES as f64
    };
    median((0..5).map(|_| touch()).collect())
}

impl RegionCost {
    /// Measures the overhead for about a tenth of a second, with as many threads as parallel work on
    /// this thread uses.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use retrograd::tensor::machine::RegionCost;
    /// assert!(with_threads(2, RegionCost::measure).busy.is_finite());
    /// ```
    pub fn measure() -> RegionCost {
        region()
    }
}

fn region() -> RegionCost {
    let mut out = vec![0u8; par::threads()];
    // Keeps a thread busy for the given time.
    let spin = |time: Duration| {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    };
    // Long enough that one thread cannot finish all work before another wakes up.
    let work = Duration::from_micros(20);
    let mut go = || {
        let time = seconds(|| par::fill(&mut out, 1, Cost(u32::MAX), |_, _| spin(work)));
        (time - work.as_secs_f64()) * 1e6
    };
    let warm_up = 100;
    let busy = median((0..500 + warm_up).map(|_| go()).skip(warm_up).collect());
    let rested = (0..200).map(|_| {
        spin(Duration::from_micros(200));
        go()
    });
    RegionCost { busy, rested: median(rested.collect()) }
}
