//! Matrix multiplication and einsum against loops, within the standard error bound.

use crate::common::{Rng, indices, layouts, same};
use proptest::prelude::*;
use proptest::sample::select;
use retrograd_support::panics::catch;
use retrograd_support::random_tests;
use retrograd_tensor::kernels::gemm::{Products, gemm};
use retrograd_tensor::matrix::MatRef;
use retrograd_tensor::{Real, Shape, Tensor};

/// `|C - A·B| <= γ_K (|A|·|B|)`, element by element.
#[track_caller]
fn check<T: Real>(what: &str, a: &Tensor<T>, b: &Tensor<T>, got: &Tensor<T>) {
    let a2 = if a.rank() == 1 { a.unsqueeze(0) } else { a.clone() };
    let b2 = if b.rank() == 1 { b.unsqueeze(1) } else { b.clone() };
    let (m, k, n) = (a2.size(-2), a2.size(-1), b2.size(-1));
    let lead = |t: &Tensor<T>| Shape::from(&t.shape()[..t.rank() - 2]);
    let batch = Shape::broadcast("t", &lead(&a2), &lead(&b2)).unwrap();
    let mut dims = batch.to_vec();
    dims.extend((a.rank() > 1).then_some(m));
    dims.extend((b.rank() > 1).then_some(n));
    assert_eq!(got.shape()[..], dims[..], "shape of {what}");
    let wide = |t: &Tensor<T>, r: usize, c: usize| -> Vec<f64> {
        let all = [&batch[..], &[r, c]].concat();
        t.broadcast_to(all.as_slice()).to_vec().iter().map(|x| x.to_f64()).collect()
    };
    let (av, bv, cv) = (wide(&a2, m, k), wide(&b2, k, n), got.to_vec());
    let u = T::EPSILON.to_f64() / 2.0;
    let gamma = k as f64 * u / (1.0 - k as f64 * u);
    for (at, &c) in cv.iter().enumerate() {
        let (p, i, j) = (at / (m * n), at / n % m, at % n);
        let terms = (0..k).map(|l| av[(p * m + i) * k + l] * bv[(p * k + l) * n + j]);
        let (mut sum, mut size) = (0.0, 0.0);
        terms.for_each(|t| {
            sum += t;
            size += t.abs();
        });
        let error = (c.to_f64() - sum).abs();
        // In f64 the reference has the same error.
        let bound = gamma * size * if u < 1e-10 { 2.0 } else { 1.0 };
        assert!(error <= bound, "{what}: element {at} is {c:?}, not {sum:e} to {bound:e}");
    }
}

fn sizes() -> impl Strategy<Value = usize> {
    const SOME: [usize; 21] =
        [0usize, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65];
    prop_oneof![3 => select(&SOME[1..]), 1 => select(&SOME[..])]
}

random_tests! {
    ProptestConfig::with_cases(96);

    #[test]
    fn products_of_every_layout((m, k, n) in (sizes(), sizes(), sizes()), seed in any::<u64>()) {
        let mut rng = Rng(seed);
        let (a, b): (Tensor<f32>, Tensor<f32>) = (rng.normals(&[m, k]), rng.normals(&[k, n]));
        let want = a.matmul(&b);
        check("f32", &a, &b, &want);
        let (a64, b64): (Tensor<f64>, Tensor<f64>) = (a.cast(), b.cast());
        check("f64", &a64, &b64, &a64.matmul(&b64));
        // Transposed, strided, padded and flipped operands in all pairs; gaps are NaN.
        for (p, a) in layouts(&a) {
            for (q, b) in layouts(&b) {
                same(&format!("{p} · {q}"), &a.matmul(&b), &want);
            }
        }
        // The other three transposes, as products of transposed operands.
        let back = b.t().matmul(&a.t());
        check("Bᵀ·Aᵀ", &b.t(), &a.t(), &back);
        let (at, bt) = (a.t().contiguous(), b.t().contiguous());
        same("Aᵀ stored", &at.t().matmul(&b), &want);
        same("Bᵀ stored", &a.matmul(&bt.t()), &want);
        same("both stored", &at.t().matmul(&bt.t()), &want);
    }

    #[test]
    fn products_of_broadcast_operands((m, k, n) in (sizes(), sizes(), sizes()), seed in any::<u64>()) {
        let mut rng = Rng(seed);
        let row: Tensor<f32> = rng.normals(&[1, k]);
        let column: Tensor<f32> = rng.normals(&[k, 1]);
        let (a, b) = (row.broadcast_to([m, k]), column.broadcast_to([k, n]));
        let copy = |t: &Tensor<f32>| Tensor::from_vec(t.to_vec(), *t.shape());
        let c = a.matmul(&b);
        check("expanded", &a, &b, &c);
        same("expanded", &c, &copy(&a).matmul(&copy(&b)));
        let one = Tensor::<f32>::scalar(0.5);
        let c = one.broadcast_to([m, k]).matmul(&one.broadcast_to([k, n]));
        prop_assert!(c.to_vec().iter().all(|&x| x == 0.25 * k as f32));
    }

    #[test]
    fn batches(
        (m, k, n) in (0usize..9, 0usize..9, 0usize..9),
        batch in prop::collection::vec(0usize..4, 0..=3),
        seed in any::<u64>(),
    ) {
        let mut rng = Rng(seed);
        let mut operand = |r: usize, c: usize| -> Tensor<f32> {
            let missing = rng.below(batch.len() + 1);
            let mut dims: Vec<usize> = batch[missing..].to_vec();
            dims.iter_mut().for_each(|d| *d = if rng.below(3) == 0 { 1 } else { *d });
            dims.extend([r, c]);
            rng.normals(&dims)
        };
        let (a, b) = (operand(m, k), operand(k, n));
        let want = a.matmul(&b);
        check("batch", &a, &b, &want);
        for (p, a) in layouts(&a) {
            for (q, b) in layouts(&b).into_iter().rev().take(3) {
                check(&format!("{p} · {q}"), &a, &b, &a.matmul(&b));
            }
        }
        // Vectors on either side.
        let (v, w): (Tensor<f32>, Tensor<f32>) = (Rng(seed).normals(&[m]), Rng(seed).normals(&[n]));
        check("vector · batch", &v, &a, &v.matmul(&a));
        check("batch · vector", &b, &w, &b.matmul(&w));
        check("vector · vector", &v, &v, &v.matmul(&v));
        same("dot", &v.dot(&v), &v.mul(&v).sum(..));
        prop_assert_eq!(v.outer(&w).shape()[..].to_vec(), vec![m, n]);
    }

    #[test]
    fn einsum_equals_loops(seed in any::<u64>()) {
        let mut rng = Rng(seed);
        let sizes = [1 + rng.below(3), rng.below(4), 1 + rng.below(2), 3];
        let count = 1 + rng.below(3);
        let names: Vec<Vec<usize>> =
            (0..count).map(|_| (0..rng.below(4)).map(|_| rng.below(4)).collect()).collect();
        let mut used: Vec<usize> = names.concat();
        used.sort_unstable();
        used.dedup();
        for i in (1..used.len()).rev() {
            used.swap(i, rng.below(i + 1));
        }
        let output: Vec<usize> = used[..rng.below(used.len() + 1)].to_vec();
        let text = |n: &[usize]| n.iter().map(|&i| ['a', 'b', 'z', 'é'][i]).collect::<String>();
        let left: Vec<String> = names.iter().map(|n| text(n)).collect();
        let formula = format!("{} -> {}", left.join(","), text(&output));
        let operands: Vec<Tensor<f64>> = names
            .iter()
            .map(|n| {
                let dims: Vec<usize> = n.iter().map(|&i| sizes[i]).collect();
                Tensor::from_fn(dims.as_slice(), |_| rng.below(9) as f64 - 4.0)
            })
            .collect();
        let dims: Vec<usize> = output.iter().map(|&i| sizes[i]).collect();
        let mut want: Tensor<f64> = Tensor::zeros(dims.as_slice());
        let loops: Vec<usize> = (0..4).map(|i| if used.contains(&i) { sizes[i] } else { 1 }).collect();
        for index in indices(&loops) {
            let term = names.iter().zip(&operands).map(|(n, x)| {
                x.at(&n.iter().map(|&i| index[i]).collect::<Vec<_>>())
            });
            let term: f64 = term.product();
            let at = output.iter().fold(0, |at, &i| at * sizes[i] + index[i]);
            want.make_mut()[at] += term;
        }
        let refs: Vec<&Tensor<f64>> = operands.iter().collect();
        let got = Tensor::einsum(&formula, &refs);
        prop_assert!(got == want, "{formula} {:?}", got);
        // In any layout.
        let odd: Vec<Tensor<f64>> =
            operands.iter().map(|x| layouts(x).pop().unwrap().1).collect();
        let got = Tensor::einsum(&formula, &odd.iter().collect::<Vec<_>>());
        prop_assert!(got == want, "{formula} of odd layouts");
    }
}

#[test]
fn nan_and_infinity_propagate() {
    let a = Tensor::from([[f32::NAN, 0.0], [1.0, 0.0]]);
    let b = Tensor::from([[1.0, 2.0], [f32::INFINITY, 1.0]]);
    for c in [a.matmul(&b), a.cast::<f64>().matmul(&b.cast()).cast()] {
        assert!(c.at(&[0, 0]).is_nan() && c.at(&[0, 1]).is_nan(), "{c:?}");
        // 0 · inf is NaN too: zeros are not skipped.
        assert!(c.at(&[1, 0]).is_nan() && c.at(&[1, 1]) == 2.0, "{c:?}");
    }
}

/// The result of empty sums is 0, for any previous contents of the memory.
#[test]
fn recycled_memory_is_never_read() {
    for (m, k, n) in [(33, 0, 17), (33, 5, 17), (64, 64, 64), (1, 300, 1), (130, 7, 130)] {
        let (a, b) = (Tensor::<f32>::ones([m, k]), Tensor::<f32>::ones([k, n]));
        for _ in 0..20 {
            drop(Tensor::<f32>::full([m, n], f32::NAN));
            assert!(a.matmul(&b).to_vec().iter().all(|&x| x == k as f32));
        }
        let (va, vb) = (vec![1.0f32; m * k], vec![1.0f32; k * n]);
        let mut out = vec![f32::NAN; m * n];
        let product = Products::one(MatRef::new(&va, m, k), MatRef::new(&vb, k, n));
        for (add, times) in [(false, 1.0), (true, 2.0)] {
            gemm(&product, add, &mut out);
            assert!(out.iter().all(|&x| x == times * k as f32));
        }
    }
}

#[test]
fn operands_that_exceed_their_slice_are_rejected() {
    let data = vec![0.0f32; 12];
    let ok = MatRef::new(&data, 3, 4);
    assert!(ok.is_inside());
    let bad = [
        MatRef { offset: 1, ..ok },
        MatRef { rows: 4, ..ok },
        MatRef { row_stride: -1, ..ok },
        MatRef { col_stride: isize::MAX, ..ok },
        MatRef { offset: usize::MAX, ..ok },
    ];
    let b = MatRef::new(&data, 4, 3);
    for a in bad {
        assert!(!a.is_inside(), "{a:?}");
        let mut out = vec![0.0; a.rows * 3];
        let multiply = move || gemm(&Products::one(a, b), false, &mut out);
        assert!(catch(multiply).is_err());
    }
    assert!(MatRef { rows: 0, offset: 99, ..ok }.is_inside());
    let flipped = MatRef { offset: 11, row_stride: -4, col_stride: -1, ..ok };
    assert!(flipped.is_inside());
}

#[test]
fn zeros_skip_non_finite_elements_in_every_product() {
    let x = Tensor::from([[f32::NAN, 1.0], [2.0, f32::INFINITY]]);
    let w = Tensor::from([[0.0f32, 1.0], [1.0, 0.0]]);
    let pairs = w.broadcast_to([5, 2, 2]).matmul_skipping_zeros(&x);
    assert_eq!(pairs.select(0, 4).select(0, 0).to_vec(), [2.0, f32::INFINITY]);
    assert_eq!(pairs.select(0, 4).at(&[1, 1]), 1.0);
    let none = Tensor::<f32>::zeros([5, 0, 2]).matmul_skipping_zeros(&x);
    assert_eq!(*none.shape(), [5, 0, 2]);
}
