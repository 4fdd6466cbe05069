//! The storage pool: steady loops allocate nothing, old contents are never visible, and excessive
//! sizes are errors. The pool is global, so these tests run one at a time.

#[path = "all/common/mod.rs"]
mod common;

use common::Rng;
use retrograd_tensor::storage::{PoolStats, pool_clear, pool_reset, pool_stats};
use retrograd_tensor::{ErrorKind, Tensor, with_threads};
use std::sync::{Mutex, MutexGuard};

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

/// A step similar to training: views, temporaries, results of many sizes.
fn step(x: &Tensor<f32>, w: &Tensor<f32>) -> Tensor<f32> {
    let h = x.matmul(w).gelu();
    let y = h.softmax(-1).mul(&h.t().t()).layer_norm(None, None, 1e-5);
    let keep = y.gt(0.0);
    let z = y.masked_fill(&keep, 0.0).sum_keepdim(-1).add(&y);
    let index: Tensor<i64> = z.argmax(-1);
    z.gather(-1, &index.unsqueeze(1)).var(.., 1)
}

fn inputs(rows: usize, width: usize) -> (Tensor<f32>, Tensor<f32>) {
    let mut rng = Rng(1);
    (rng.normals(&[rows, width]), rng.normals(&[width, width]))
}

#[test]
fn loops_allocate_nothing_after_the_first_iteration() {
    let _turn = turn();
    let (x, w) = inputs(100, 65);
    // Threads take blocks in varying orders, but no more of them.
    for threads in [1, 2] {
        with_threads(threads, || {
            for _ in 0..3 {
                step(&x, &w);
            }
            let before = pool_stats();
            for _ in 0..50 {
                step(&x, &w);
            }
            let after = pool_stats();
            assert_eq!(after.fresh, before.fresh, "{before:?} {after:?}");
            assert!(after.reused > before.reused);
            assert_eq!((after.live, after.peak), (before.live, before.peak));
        });
    }
}

/// Kept memory of unused sizes is freed for the sizes in use.
#[test]
fn loops_allocate_nothing_after_a_change_of_sizes() {
    let _turn = turn();
    for (rows, width) in [(400, 65), (90, 33), (333, 64), (17, 70)] {
        let (x, w) = inputs(rows, width);
        for _ in 0..40 {
            step(&x, &w);
        }
        let before = pool_stats();
        for _ in 0..20 {
            step(&x, &w);
        }
        let after = pool_stats();
        assert_eq!(after.fresh, before.fresh, "{rows} rows of {width}");
        assert!(after.kept <= after.peak, "{after:?}");
    }
    pool_reset();
    let reset = pool_stats();
    assert_eq!((reset.kept, reset.peak), (0, reset.live));
}

/// The statistics when they no longer change: a thread that worked for an earlier test may free its
/// last buffers after that test has returned.
fn settled() -> PoolStats {
    loop {
        let before = pool_stats();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let after = pool_stats();
        if (after.live, after.kept) == (before.live, before.kept) {
            return after;
        }
    }
}

#[test]
fn live_bytes_are_counted_and_kept_bytes_can_be_freed() {
    let _turn = turn();
    // Blocks of earlier tests may be evicted instead of the one of this test, or with it.
    pool_clear();
    let before = settled();
    let x = Tensor::<f64>::zeros([1 << 16]);
    let view = x.slice(0, 5..9);
    assert_eq!(pool_stats().live, before.live + (8 << 16));
    drop(x);
    assert_eq!(pool_stats().live, before.live + (8 << 16), "a view keeps the whole storage");
    drop(view);
    assert_eq!(pool_stats().live, before.live);
    assert!(pool_stats().kept >= 8 << 16);
    pool_clear();
    assert_eq!(pool_stats().kept, 0);
    let empty = Tensor::<f32>::zeros([0, 7]);
    assert_eq!(pool_stats().live, before.live);
    drop(empty);
}

/// Blocks are aligned, do not overlap, and are the smallest of the size classes.
#[test]
fn blocks_fit_and_waste_at_most_an_eighth() {
    let _turn = turn();
    settled();
    let mut block = 0;
    for bytes in 1..70_000 {
        let before = pool_stats().live;
        let x = Tensor::<bool>::full([bytes], true);
        let next = pool_stats().live - before;
        assert!(next == block || bytes == block + 1, "{bytes} in {next}, not in {block}");
        block = next;
        assert!((bytes..=bytes + bytes / 8 + 64).contains(&block), "{bytes} in {block}");
        assert!(x.as_slice().as_ptr().addr().is_multiple_of(64));
    }
    let all: Vec<_> = (0..40).map(|i| Tensor::<f32>::full([i * 7], i as f32)).collect();
    for (i, x) in all.iter().enumerate() {
        assert!(x.as_slice().iter().all(|&x| x == i as f32));
    }
}

/// Every element type in memory that held every other type, with adverse bit patterns.
#[test]
fn memory_is_reused_by_other_types() {
    let _turn = turn();
    let n = 1000;
    let dirty = || {
        drop(Tensor::<f32>::full([2 * n], f32::NAN));
        drop(Tensor::<f64>::full([n], f64::NAN));
        drop(Tensor::<i64>::full([n], -1));
        drop(Tensor::<u32>::full([2 * n], u32::MAX));
        drop(Tensor::<bool>::full([8 * n], true));
    };
    for _ in 0..5 {
        dirty();
        let x = Tensor::<f32>::from_fn([2 * n], |i| i[0] as f32);
        assert!(x.gt(-1.0).to_vec().iter().all(|&b| b));
        dirty();
        let keep = Tensor::<bool>::from_fn([8 * n], |i| i[0] % 3 == 0);
        assert_eq!(keep.count_true(), (8 * n).div_ceil(3));
        dirty();
        assert!(Tensor::<f64>::zeros([n]).sum(..).item() == 0.0);
        assert_eq!(keep.not().cast::<i64>().to_vec().iter().sum::<i64>(), 5333);
        dirty();
        let one_hot = Tensor::<f32>::one_hot(&Tensor::<u32>::indices(40), 50);
        assert_eq!(one_hot.sum(..).item(), 40.0);
        let mut copy = x.slice(0, 1..);
        copy.make_mut()[0] = 7.0;
        assert_eq!((x.at(&[1]), copy.at(&[0]), copy.at(&[1])), (1.0, 7.0, 2.0));
        dirty();
        assert_eq!(Tensor::<f32>::eye(30).sum(..).item(), 30.0);
        assert!((x.narrow(0, 0, 64).softmax(-1).sum(..).item() - 1.0).abs() < 1e-6);
    }
}

/// Matrix multiplication reads operands in place, with any strides: it allocates the result only.
#[test]
fn matmul_copies_no_operand() {
    let _turn = turn();
    let blocks = |f: &dyn Fn() -> Tensor<f32>| {
        let before = pool_stats();
        let y = f();
        let after = pool_stats();
        assert!(y.numel() > 0);
        after.fresh + after.reused - before.fresh - before.reused
    };
    let mut rng = Rng(3);
    let (x, w) = (rng.normals(&[3, 40, 20]), rng.normals(&[40, 30]));
    assert_eq!(blocks(&|| x.transpose(1, 2).matmul(&w)), 1, "a transposed batch by a matrix");
    assert_eq!(blocks(&|| x.t().matmul(&w.unsqueeze(0))), 1, "by a batch of one");
    assert_eq!(blocks(&|| w.t().matmul(&x)), 1, "a transposed matrix by a batch");
    let (q, k) = (rng.normals(&[2, 30, 4, 16]), rng.normals(&[2, 25, 4, 16]));
    assert_eq!(blocks(&|| Tensor::einsum("bqhd,bkhd->bhqk", &[&q, &k])), 1, "scores of heads");
    let weights = rng.normals(&[2, 4, 30, 25]);
    let context = || Tensor::einsum("bhqk,bkhd->bqhd", &[&weights, &k]);
    assert_eq!(blocks(&context), 1, "values of heads");
}

#[test]
fn sizes_beyond_memory_are_errors() {
    let _turn = turn();
    let kind = |dims: &[usize]| Tensor::<f64>::try_full(dims, 1.0).unwrap_err().kind;
    let root = 1 << (usize::BITS / 2);
    assert_eq!(kind(&[isize::MAX as usize / 2]), ErrorKind::Overflow);
    assert_eq!(kind(&[root, root]), ErrorKind::Overflow);
    assert_eq!(kind(&[usize::MAX, 2, 0]), ErrorKind::Overflow);
    #[cfg(target_pointer_width = "64")]
    {
        assert_eq!(kind(&[1 << 50]), ErrorKind::OutOfMemory);
        let error = Tensor::<f64>::try_full(&[1 << 50], 1.0).unwrap_err();
        assert_eq!(error.to_string(), "full: no memory for 9007199254740992 bytes");
    }
}

/// The process survives a failed allocation, and kept memory is freed first.
#[cfg(target_os = "linux")]
#[test]
fn a_failed_allocation_is_an_error() {
    let _turn = turn();
    let limit = |bytes: u64| {
        let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls only read or write the struct on this stack.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &mut old), 0);
            let new = libc::rlimit { rlim_cur: bytes.min(old.rlim_max), ..old };
            assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &new), 0);
        }
        old.rlim_cur
    };
    pool_clear();
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let alive = Tensor::<f32>::full([1000], 3.0);
    // Large, since threads that start meanwhile reserve address space too, 64 MB or more each.
    let old = limit(pages * 4096 + (1000 << 20));
    let refused = Tensor::<f32>::try_full(&[1 << 29], 1.0);
    // 600 MB, kept when it is dropped; then as much of another size, which requires freeing it.
    drop(Tensor::<f32>::try_full(&[150 << 20], 1.0).unwrap());
    let other = Tensor::<f32>::try_full(&[170 << 20], 1.0);
    // A vector of 680 MB, which is not from the pool.
    let vector = retrograd_support::panics::catch(|| other.as_ref().map(Tensor::to_vec).map(drop));
    limit(old);
    let text = vector.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(*text, "to_vec: no memory for 713031680 bytes");
    assert_eq!(refused.unwrap_err().kind, ErrorKind::OutOfMemory);
    assert!(other.is_ok(), "kept memory was not freed");
    assert!(alive.to_vec().iter().all(|&x| x == 3.0));
    drop(other);
    pool_clear();
    // Positions by index, which are not from the pool either: 640 MB besides an operand and a sum of 320 MB.
    let (long, one) = (Tensor::<f32>::zeros([80 << 20]), Tensor::from([1.0f32]));
    let old = limit(pages * 4096 + (1000 << 20));
    let sum = retrograd_support::panics::catch(|| long.index_add(0, &Tensor::from([7i64]), &one));
    limit(old);
    let text = sum.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(*text, "index_add: no memory for 671088648 bytes");
    drop(long);
    pool_clear();
}
