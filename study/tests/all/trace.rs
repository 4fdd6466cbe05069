//! What is reported of kernels: which one ran, its operations and bytes, and that it changes nothing.

use retrograd_study::trace::trace;
use retrograd_tensor::kernels::gemm::{Products, gemm};
use retrograd_tensor::kernels::recurrence::{self, Terms};
use retrograd_tensor::machine::{Memory, Peak, Rate, Roofline};
use retrograd_tensor::matrix::MatRef;
use retrograd_tensor::observe::{self, KernelCall, Size};
use retrograd_tensor::ops::activation::{Gelu, Relu};
use retrograd_tensor::ops::loss::CrossEntropy;
use retrograd_tensor::random::{Key, Rng};
use retrograd_tensor::settings::with_level;
use retrograd_tensor::simd::Level;
use retrograd_tensor::{
    DType, MatmulPrecision, Shape, Tensor, par, with_matmul_precision, with_threads,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn randn<const R: usize>(shape: [usize; R]) -> Tensor<f32> {
    Tensor::randn(shape, &mut Rng::new(1))
}

/// The calls in `f`, whose result is dropped.
fn calls<R>(f: impl FnOnce() -> R) -> Vec<KernelCall> {
    trace(f).1.calls().to_vec()
}

/// The only call in `f`.
#[track_caller]
fn only<R>(f: impl FnOnce() -> R) -> KernelCall {
    let all = calls(f);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.into_iter().next().unwrap()
}

/// The operation and the kernel of the only call in `f`.
#[track_caller]
fn kernel<R>(f: impl FnOnce() -> R) -> String {
    let call = only(f);
    format!("{}: {}", call.operation, call.kernel)
}

/// The levels with GEMM kernels of our own, and the columns of their tiles.
fn own() -> Vec<(Level, usize)> {
    let columns = |level| if level == Level::Avx512 { 64 } else { 16 };
    let levels = Level::available().into_iter().filter(|level| level.is_fused());
    levels.map(|level| (level, columns(level))).collect()
}

#[test]
fn products_report_the_kernel_of_their_level_and_layout() {
    let of = |a: &Tensor<f32>, b: &Tensor<f32>| {
        let call = with_threads(1, || only(|| a.matmul(b)));
        assert_eq!((call.operation, call.threads, call.detail.as_str()), ("matmul", 1, ""));
        (call.kernel.to_string(), call.level)
    };
    for (level, columns) in own() {
        with_level(level, || {
            let blocked =
                |a: &str, b: &str| (format!("6x{columns}, A {a}, B {b}"), Some(level.name()));
            let (rows, tall) = (randn([600, 128]), randn([128, 600]));
            assert_eq!(of(&rows, &randn([128, 96])), blocked("in place", "packed"));
            // Rows of one tile read every element of B once.
            assert_eq!(of(&randn([6, 128]), &randn([128, 96])), blocked("in place", "in place"));
            // Sums of 16 terms: a panel stays in the L1 cache.
            assert_eq!(of(&randn([600, 16]), &randn([16, 96])), blocked("in place", "in place"));
            // Columns that are 600 elements apart, for few columns and for many.
            assert_eq!(of(&tall.t(), &randn([128, 96])), blocked("in place", "packed"));
            assert_eq!(of(&tall.t(), &randn([128, 192])), blocked("packed", "packed"));
            // Contiguous columns of B are packed, unless A has at most 8 rows.
            assert_eq!(of(&randn([9, 128]), &randn([96, 128]).t()), blocked("in place", "packed"));
            let skinny = ("skinny".to_string(), Some(level.name()));
            assert_eq!(of(&randn([8, 128]), &randn([96, 128]).t()), skinny);
            assert_eq!(of(&randn([1, 128]), &randn([96, 128]).t()), skinny);
            let large = Tensor::full([2048, 2048], 0.5);
            assert_eq!(of(&randn([4, 2048]), &large).0, "rows");
            assert_eq!(of(&randn([4, 0]), &randn([0, 5])).0, "nothing");
        });
    }
    let (a, b) = (randn([20, 30]), randn([30, 40]));
    let portable = ("portable".to_string(), Some(Level::Scalar.name()));
    assert_eq!(with_level(Level::Scalar, || of(&a, &b)), portable);
    let (a, b) = (a.cast::<f64>(), b.cast::<f64>());
    for level in Level::available() {
        let expected = match level {
            Level::Scalar | Level::Wasm128 => "portable",
            Level::Avx512 => "6x32, A in place, B in place",
            Level::Avx2 => "6x8, A in place, B in place",
            Level::Neon => "matrixmultiply",
        };
        assert_eq!(only(|| with_level(level, || a.matmul(&b))).kernel, expected);
    }
}

#[test]
fn products_report_their_precision() {
    let (a, b) = (randn([64, 64]), randn([64, 64]));
    for precision in MatmulPrecision::ALL {
        let call = with_matmul_precision(precision, || only(|| a.matmul(&b)));
        let is_amx = precision != MatmulPrecision::F32 && precision.is_supported();
        assert_eq!(call.kernel == format!("AMX {precision}"), is_amx, "{call:?}");
        let few = with_matmul_precision(precision, || only(|| a.matmul(&b.narrow(1, 0, 8))));
        assert!(!few.kernel.starts_with("AMX"), "{few:?}");
    }
}

#[test]
fn products_report_how_they_are_divided() {
    let one = |threads, shapes: [[usize; 2]; 2]| {
        let [a, b] = shapes.map(randn);
        with_threads(threads, || only(|| a.matmul(&b)))
    };
    let blocks = one(2, [[512, 256], [256, 512]]);
    assert_eq!(blocks.threads, 2);
    let (count, size) = blocks.detail.split_once(" blocks of ").unwrap();
    let (rows, cols) = size.split_once('x').unwrap();
    let [count, rows, cols]: [usize; 3] = [count, rows, cols].map(|n| n.parse().unwrap());
    assert_eq!(count, 512_usize.div_ceil(rows) * 512_usize.div_ceil(cols));
    assert_eq!(blocks.size.to_string(), "512x256x512");
    assert_eq!(one(1, [[512, 256], [256, 512]]).detail, "");

    for (level, _) in own() {
        let split = with_level(level, || one(2, [[65, 16384], [16384, 64]]));
        assert_eq!((split.detail.as_str(), split.threads), ("split-K, 32 parts of 512", 2));
    }

    let (a, b) = (randn([8, 30, 40]), randn([8, 40, 50]));
    let batch = only(|| a.matmul(&b));
    assert_eq!(batch.size, Size::Product { batch: 8, m: 30, k: 40, n: 50 });
    assert!(batch.detail.ends_with(" per task"), "{batch:?}");
    assert_eq!(batch.flops, 2 * 8 * 30 * 40 * 50);
    assert_eq!(batch.read, 4 * 8 * (30 * 40 + 40 * 50));
    // A matrix that is broadcast over the batch is read once.
    let one = randn([1, 30, 50]).broadcast_to([8, 30, 50]);
    let shared = only(|| a.transpose(1, 2).matmul(&one));
    assert_eq!(shared.read, 4 * (8 * 30 * 40 + 30 * 50));
}

#[test]
fn edges_of_a_partition_may_have_another_kernel() {
    let (k, n) = (512, 64);
    let columns = randn([n, k]);
    for (level, _) in own() {
        let mut edges = 0;
        for m in 60..140 {
            let a = randn([m, k]);
            let call = with_level(level, || with_threads(8, || only(|| a.matmul(&columns.t()))));
            let (count, rest) = call.detail.split_once(" blocks of ").expect("large enough");
            let (size, others) = rest.split_once("; ").unwrap_or((rest, ""));
            let (rows, cols) = size.split_once('x').unwrap();
            let [count, rows, cols]: [usize; 3] = [count, rows, cols].map(|n| n.parse().unwrap());
            assert_eq!(count, m.div_ceil(rows) * n.div_ceil(cols));
            // At most 8 rows of A, with contiguous columns of B.
            let last = m - (m.div_ceil(rows) - 1) * rows;
            assert_eq!(call.kernel == "skinny", rows <= 8, "{call:?}");
            let is_edge = rows > 8 && last <= 8;
            let expected = format!("{} by skinny", n.div_ceil(cols));
            assert_eq!(others, if is_edge { &expected } else { "" }, "{call:?}");
            edges += usize::from(is_edge);
        }
        assert!(edges > 0, "{level}");
    }
}

#[test]
fn operations_and_bytes_follow_the_formulas() {
    let (m, k, n) = (24, 48, 40);
    let (x, w, bias, r) = (randn([m, k]), randn([n, k]), randn([n]), randn([m, n]));
    let product = 2 * m * k * n;
    let (operands, out, b) = (m * k + k * n, m * n, Some(&bias));
    let linear_add = only(|| x.linear_add(&w, b, &r));
    let cases = [
        ("matmul", only(|| x.linear(&w, None)), product, operands, out),
        ("linear", only(|| x.linear(&w, b)), product + out, operands + n, out),
        ("linear_add", linear_add, product + 2 * out, operands + n + out, out),
        ("relu", only(|| x.linear_activation(&w, None, Relu)), product + out, operands, 2 * out),
        ("matmul_times", only(|| x.matmul_times(&w.t(), &r)), product + out, operands + out, out),
        ("sqrt", only(|| r.sqrt()), out, out, out),
        ("relu_squared", only(|| r.relu_squared()), 2 * out, out, out),
        ("add", only(|| r.add(&bias)), out, out + n, out),
        ("sum", only(|| r.sum(-1)), out, out, m),
        ("sum", only(|| r.sum(0)), out, out, n),
        ("contiguous", only(|| r.t().contiguous()), 0, out, out),
        ("cat", only(|| Tensor::cat(&[&r, &r], 0)), 0, 2 * out, 2 * out),
        ("full", only(|| Tensor::<f32>::zeros([m, n])), 0, 0, out),
    ];
    for (name, call, flops, read, written) in cases {
        assert_eq!(call.operation, name);
        let expected = (flops as u64, 4 * read as u64, 4 * written as u64);
        assert_eq!((call.flops, call.read, call.written), expected, "{call:?}");
    }
    let accumulated = only(|| {
        let mut out = vec![0.0; m * n];
        let (x, w) = (MatRef::new(x.as_slice(), m, k), MatRef::new(w.as_slice(), n, k).t());
        gemm(&Products::one(x, w), true, &mut out);
    });
    assert_eq!(accumulated.read, 4 * (operands + out) as u64);
    // Beside their products and copies.
    let of = |name: &str, calls: Vec<KernelCall>| {
        let call = calls.into_iter().find(|call| call.operation == name).expect(name);
        [call.flops, call.read, call.written].map(|n| n as usize)
    };
    let targets = Tensor::<i64>::indices(m);
    let loss = calls(|| x.linear_cross_entropy(&w, &targets, CrossEntropy::default()));
    assert!(loss.iter().any(|call| call.kernel == "rows" && call.level.is_some()), "{loss:?}");
    assert_eq!(of("linear_cross_entropy", loss), [out, 4 * out, 0]);
    let scatter = calls(|| r.scatter(1, &Tensor::<i64>::zeros([m, 1]), r.narrow(1, 0, 1)));
    assert_eq!(of("scatter", scatter), [0, 4 * (out + m), (4 + 8) * out]);
    // Three tokens of a recurrence: the operands, and the outputs with the last state.
    let (q, v, state) = (randn([1, 1, 3, 2]), randn([1, 1, 3, 4]), randn([1, 1, 2, 4]));
    let terms = Terms { q: &q, k: &q, v: &v, w: &q, low_rank: None };
    let [_, read, written] = of("recurrence", calls(|| recurrence::forward(&terms, &state, false)));
    assert_eq!((read, written), (4 * (3 * 6 + 12 + 8), 4 * (3 + 2) * 4));
}

#[test]
fn operations_of_formulas_are_counted() {
    let (x, w) = (randn([24, 64]), randn([64, 64]));
    let each = |call: &KernelCall| call.flops / x.numel() as u64;
    // An exponential is a polynomial and a scaling; GELU has a few of these.
    let (exp, gelu) = (only(|| x.exp()), only(|| x.gelu()));
    assert!((8..40).contains(&each(&exp)) && exp.flops.is_multiple_of(24 * 64), "{exp:?}");
    assert!((each(&exp)..200).contains(&each(&gelu)), "{gelu:?}");
    // With its derivative it takes more.
    let product = 2 * 24 * 64 * 64;
    let fused = (only(|| x.linear_activation(&w, None, Gelu)).flops - product) / x.numel() as u64;
    assert!((each(&gelu) + 1..3 * each(&gelu)).contains(&fused), "{fused}");
    // A softmax has an exponential, a maximum, a difference, a sum and a quotient.
    let softmax = only(|| x.softmax(-1));
    assert!((each(&exp) + 3..each(&exp) + 10).contains(&each(&softmax)), "{softmax:?}");
    assert_eq!((softmax.read, softmax.written), (4 * 24 * 64, 4 * 24 * 64));
    // Layouts and threads do not matter.
    for x in [x.t(), x.narrow(1, 3, 8), x.narrow(1, 5, 50)] {
        assert_eq!(only(|| x.exp()).flops, each(&exp) * x.numel() as u64);
    }
    let double = x.cast::<f64>();
    assert_eq!(only(|| double.exp()).flops, x.numel() as u64);
}

#[test]
fn kernels_report_how_they_read_their_operands() {
    let x = randn([64, 64]);
    let every_other = x.as_strided(&x.layout().slice("t", 1, 0, 64, 2).unwrap());
    let column = randn([64, 1]);
    assert_eq!(kernel(|| x.exp()), "exp: contiguous");
    assert_eq!(kernel(|| x.t().exp()), "exp: transposed tiles");
    assert_eq!(kernel(|| x.narrow(1, 0, 8).exp()), "exp: short runs copied");
    assert_eq!(kernel(|| x.add(&column)), "add: repeated numbers");
    assert_eq!(kernel(|| x.sum(-1)), "sum: inner reduction");
    assert_eq!(kernel(|| x.sum(0)), "sum: outer reduction");
    assert_eq!(kernel(|| x.argmax(-1)), "argmax: lines");
    assert_eq!(kernel(|| x.t().contiguous()), "contiguous: transposed tiles");
    assert_eq!(kernel(|| x.narrow(1, 0, 8).contiguous()), "contiguous: contiguous runs");
    assert_eq!(kernel(|| every_other.contiguous()), "contiguous: strided runs");
    assert_eq!(kernel(|| x.sort(-1, false)), "sort: sort");
    assert_eq!(kernel(|| x.topk(-1, 3, true)), "topk: partial sort");
    assert_eq!(kernel(|| x.dropout(0.5, Key::new(1, 0))), "dropout: Philox");
    let (idx, targets) = (Tensor::from([1i64, 0, 1]), Tensor::full([64], 3i64));
    assert_eq!(kernel(|| x.index_select(0, &idx)), "index_select: slices copied");
    let loss = kernel(|| x.cross_entropy(&targets, CrossEntropy::default()));
    assert_eq!(loss, "cross_entropy: rows");
    assert_eq!(kernel(|| &idx + &idx), "add: element by element");
}

#[test]
fn outer_calls_exclude_the_time_of_inner_ones() {
    let x = randn([400, 500]);
    let all = calls(|| x.t().softmax(-1));
    let named = |call: &KernelCall| (call.operation, call.depth);
    assert!(all.iter().map(named).eq([("contiguous", 1), ("softmax", 0)]), "{all:?}");
    let (inner, outer) = (&all[0], &all[1]);
    assert_eq!(inner.seconds, inner.elapsed);
    assert!(outer.start <= inner.start);
    assert!(outer.elapsed >= outer.seconds + inner.elapsed, "{all:?}");
    assert!(outer.seconds > 0.0 && inner.seconds > 0.0);

    // A panic inside of a call ends it, without a report.
    let after = calls(|| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _call = observe::begin();
            panic!("inside")
        }));
        assert!(panicked.is_err());
        x.exp()
    });
    assert!(after.iter().map(named).eq([("exp", 0)]), "{after:?}");
}

#[test]
fn threads_are_those_that_got_work() {
    let (small, large) = (randn([10]), randn([1 << 20]));
    let threads = |n, x: &Tensor<f32>| with_threads(n, || only(|| x.exp())).threads;
    assert_eq!([threads(3, &small), threads(3, &large), threads(1, &large)], [1, 3, 1]);
    assert_eq!(with_threads(3, || only(|| par::single_threaded(|| large.exp()))).threads, 1);
    // Not those of an inner call.
    let inner = with_threads(3, || {
        calls(|| {
            let call = observe::begin();
            let y = large.exp();
            observe::end(call, || KernelCall::new("outer", "test", DType::F32, *y.shape()));
        })
    });
    assert_eq!(inner.iter().map(|call| call.threads).collect::<Vec<_>>(), [3, 1]);
}

#[test]
fn calls_of_all_threads_are_collected() {
    let (_, trace) = trace(|| with_threads(2, || par::shards(4, |_| randn([100]).exp())));
    let of_exp: Vec<_> = trace
        .calls()
        .iter()
        .zip(trace.lanes())
        .filter(|(call, _)| call.operation == "exp")
        .collect();
    assert_eq!(of_exp.len(), 4);
    assert!(of_exp.iter().all(|(call, lane)| call.threads == 1 && lane.starts_with("worker ")));
}

/// Results of many kernels, as bits.
fn results() -> Vec<u32> {
    let rng = &mut Rng::new(3);
    let x = Tensor::<f32>::randn([70, 90], rng);
    let w = Tensor::<f32>::randn([50, 90], rng);
    let all = [
        x.matmul(&w.t()),
        x.linear(&w, Some(&w.narrow(1, 0, 1).reshape([50]))),
        x.linear_activation(&w, None, Gelu).1,
        x.t().softmax(-1),
        x.sum(0),
        x.mean(1),
        x.t().contiguous(),
        x.narrow(1, 3, 7).exp(),
        x.dropout(0.3, Key::new(5, 0)),
        x.sort(0, true).0,
        x.cumsum(0),
        Tensor::randn([33], rng),
    ];
    all.iter().flat_map(|x| x.to_vec()).map(f32::to_bits).collect()
}

#[test]
fn a_trace_changes_no_bit() {
    for threads in [1, 3] {
        with_threads(threads, || assert_eq!(results(), trace(results).0));
    }
}

#[test]
fn tables_have_a_line_per_call_or_kernel() {
    let x = randn([64, 64]);
    let (_, trace) = trace(|| (x.matmul(&x), x.matmul(&x), x.exp(), x.t().softmax(-1)));
    let rate = Rate { one: 50.0, all: 100.0 };
    let dram = Memory { name: "DRAM", bytes: usize::MAX, per_core: false, read: rate, copy: rate };
    let peak = Peak { level: Level::Scalar, gflops: rate };
    let limits = Roofline { threads: 2, peak, memory: vec![dram] };
    for (trace, has_limits) in [(trace.clone(), false), (trace.with_limits(limits), true)] {
        let text = trace.to_string();
        let rows: Vec<Vec<&str>> = text.lines().map(columns).collect();
        assert_eq!(rows.len(), 1 + 5);
        assert!(rows.iter().all(|row| row.len() == 11), "{text}");
        let column = |name| rows[0].iter().position(|&x| x == name).unwrap();
        let names: Vec<&str> = rows[1..].iter().map(|row| row[column("operation")]).collect();
        assert_eq!(names, ["matmul", "matmul", "exp", "> contiguous", "softmax"]);
        for (row, call) in rows[1..].iter().zip(trace.calls()) {
            let us: f64 = row[column("us")].parse().unwrap();
            assert!((us - call.seconds * 1e6).abs() <= 0.051);
            assert_eq!(row[column("share")].ends_with('%'), has_limits, "{text}");
            assert_eq!(row[column("limit")] != "-", has_limits);
        }
        let totals = trace.by_operation();
        assert_eq!(totals.rows.len(), 4);
        assert!(totals.rows.is_sorted_by(|a, b| a.seconds >= b.seconds));
        let matmul = totals.rows.iter().find(|total| total.operation == "matmul").unwrap();
        assert_eq!((matmul.calls, matmul.flops), (2, 2 * 2 * 64 * 64 * 64));
        assert_eq!(matmul.least.is_some(), has_limits);
        let of_calls: f64 = trace.calls()[..2].iter().map(|call| call.seconds).sum();
        assert!((matmul.seconds - of_calls).abs() < 1e-12);
        assert_eq!(totals.to_string().lines().count(), 1 + 4);
    }
}

/// The columns of a line: two or more spaces separate them.
fn columns(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect()
}

#[test]
fn sizes_are_printed_without_spaces() {
    let size = |size: Size| size.to_string();
    assert_eq!(size(Shape::from([2, 3]).into()), "[2,3]");
    assert_eq!(size(Size::Product { batch: 1, m: 2, k: 3, n: 4 }), "2x3x4");
    assert_eq!(size(Size::Product { batch: 5, m: 2, k: 3, n: 4 }), "5*2x3x4");
    let attention = Size::Attention { batch: 1, heads: 2, queries: 3, keys: 4, width: 5 };
    assert_eq!(size(attention), "1*2*3x4x5");
}
