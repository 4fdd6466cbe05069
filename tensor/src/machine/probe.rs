//! The measurements behind [`Machine`].

use super::{Machine, Memory, Peak, Rate, Region};
use crate::cost::Cost;
use crate::kernels::Real;
use crate::par;
use crate::simd::{Kernel, Lanes, Level};
use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// Measurements of a rate; the best is used.
const ATTEMPTS: usize = 7;
/// The target time of an attempt, unless one pass takes longer.
const ATTEMPT: Duration = Duration::from_millis(8);

impl Machine {
    /// Measures the limits for about three seconds, with as many threads as parallel work on this
    /// thread uses.
    ///
    /// Rates are the best of several attempts and times are medians, since other load can only slow
    /// a machine down. Cache sizes are those that Linux reports; elsewhere 32 KiB, 512 KiB and 8
    /// MiB are assumed. The region from outside is one of the global pool.
    pub fn measure() -> Machine {
        let clock = clock();
        let peaks = Level::available().into_iter().map(peak).collect::<Vec<_>>();
        let best = peaks.last().expect("the scalar level is always available").level;
        let threads = par::threads();
        Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            threads,
            clock,
            peaks,
            memory: memory(best, threads),
            page_fault: page_fault(),
            // A thread of the standard library is in no pool.
            region_outside: std::thread::scope(|s| {
                s.spawn(Region::measure).join().expect("an empty region")
            }),
            region_inside: par::with_threads(threads, Region::measure),
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
/// one repetition. `ready` is called before every attempt.
fn rates(amount: f64, mut f: impl FnMut(usize), ready: impl Fn()) -> [f64; ATTEMPTS] {
    ready();
    let first = seconds(|| f(1)).max(1e-9);
    let some = ((ATTEMPT.as_secs_f64() / 8.0 / first) as usize).max(1);
    let each = seconds(|| f(some)) / some as f64;
    let times = ((ATTEMPT.as_secs_f64() / each) as usize).max(1);
    [(); ATTEMPTS].map(|()| {
        ready();
        amount * times as f64 / seconds(|| f(times))
    })
}

/// The rate of one thread, and of all threads at once. `make` returns the work of one of `n`
/// threads: the amount of a repetition, and a function that repeats it.
fn on_one_and_all<F: FnMut(usize)>(make: impl Fn(usize) -> (f64, F) + Sync) -> Rate {
    let (amount, f) = make(1);
    let one = rates(amount, f, || ()).into_iter().fold(0.0, f64::max);
    let threads = par::threads();
    if threads == 1 {
        return Rate { one, all: one };
    }
    // All threads start every attempt together, so that none measures a partly idle machine.
    let (barrier, total) = (Barrier::new(threads), Mutex::new([0.0; ATTEMPTS]));
    par::on_every_thread(|| {
        let (amount, f) = make(threads);
        let own = rates(amount, f, || {
            barrier.wait();
        });
        let mut total = total.lock().expect("an addition does not panic");
        total.iter_mut().zip(own).for_each(|(total, x)| *total += x);
    });
    let total = total.into_inner().expect("an addition does not panic");
    Rate { one, all: total.into_iter().fold(0.0, f64::max) }
}

fn clock() -> f64 {
    const LATENCY: f64 = 4.0; // three of a multiplication, one of an exclusive or
    let chain = |steps: usize| {
        let (mut x, mask) = (black_box(3u64), black_box(0x9e37_79b9_7f4a_7c15));
        for _ in 0..steps * 1000 {
            x = x.wrapping_mul(x) ^ mask;
        }
        black_box(x);
    };
    rates(LATENCY * 1000.0 / 1e9, chain, || ()).into_iter().fold(0.0, f64::max)
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

fn peak(level: Level) -> Peak {
    fn gflops<const ACC: usize>(level: Level) -> Rate {
        const STEPS: usize = 1000;
        let amount = (2 * 16 * ACC * STEPS) as f64 / 1e9;
        on_one_and_all(|_| {
            let work = move |times| {
                black_box(f32::dispatch(level, MultiplyAdds::<ACC> { steps: STEPS * times }));
            };
            (amount, work)
        })
    }
    let gflops = match level {
        Level::Avx512 => gflops::<24>(level),
        Level::Avx2 | Level::Neon => gflops::<6>(level),
        Level::Scalar => gflops::<3>(level),
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

fn memory(level: Level, threads: usize) -> Vec<Memory> {
    let caches = caches();
    let last = caches.last().map_or(0, |c| c.1);
    let mut known = vec![];
    for (i, &(name, bytes)) in caches.iter().enumerate() {
        let per_core = i < 2;
        // Half of a private cache; for a shared cache, more than the private ones.
        let working_set = match per_core {
            true => bytes / 2,
            false => (bytes / 4).max(2 * threads * caches[1].1) / threads,
        };
        known.push(bandwidth(level, name, bytes, per_core, |_| working_set));
    }
    let far = (4 * last).clamp(256 << 20, 1 << 30);
    known.push(bandwidth(level, "DRAM", usize::MAX, false, |threads| far / threads));
    known
}

/// `f32` elements in a cache line.
const LINE: usize = 16;

/// The index of the first aligned cache line: loads that cross cache lines take twice as long.
fn first_line(x: &[f32]) -> usize {
    x.as_ptr().align_offset(4 * LINE).min(LINE)
}

fn bandwidth(
    level: Level,
    name: &'static str,
    bytes: usize,
    per_core: bool,
    working_set: impl Fn(usize) -> usize + Sync,
) -> Memory {
    let floats = |threads: usize| working_set(threads) / 4 / 128 * 128;
    let gb = |floats: usize| floats as f64 * 4.0 / 1e9;
    let read = on_one_and_all(|threads| {
        let x = vec![1.0f32; floats(threads) + LINE];
        let first = first_line(&x);
        let work = move |times| {
            for _ in 0..times {
                let x = black_box(&x[first..][..floats(threads)]);
                black_box(f32::dispatch(level, Sum(x)));
            }
        };
        (gb(floats(threads)), work)
    });
    let copy = on_one_and_all(|threads| {
        let mut x = vec![1.0f32; floats(threads) + LINE];
        let first = first_line(&x);
        let work = move |times| {
            for _ in 0..times {
                let x = &mut x[first..][..floats(threads)];
                let (from, to) = x.split_at_mut(floats(threads) / 2);
                to.copy_from_slice(from);
                black_box(to);
            }
        };
        (gb(floats(threads)), work)
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

impl Region {
    /// Measures the overhead for about a tenth of a second, with as many threads as parallel work on
    /// this thread uses.
    ///
    /// ```
    /// use retrograd_tensor::{machine::Region, with_threads};
    /// assert!(with_threads(2, Region::measure).busy.is_finite());
    /// ```
    pub fn measure() -> Region {
        region()
    }
}

fn region() -> Region {
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
    Region { busy, rested: median(rested.collect()) }
}
