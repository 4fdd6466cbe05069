//! Solutions of the exercises of `book::products`.

use retrograd::autograd::{hvp, jvp, vjp};
use retrograd::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_dot_product_checks_both_modes() {
    let mut rng = Rng::new(1);
    let a = Var::constant(Tensor::randn([3, 4], &mut rng));
    let f = |x: &Var<f64>| a.matmul(x).tanh().softmax(-1);
    let [x, v] = [(); 2].map(|()| Var::constant(Tensor::randn([4], &mut rng)));
    let u = Var::constant(Tensor::randn([3], &mut rng));
    let (_, jv) = jvp(f, &x, &v);
    let (_, pull) = vjp(f, &x);
    let (left, right) = (u.dot(&jv).item(), pull(&u).dot(&v).item());
    assert!((left - right).abs() < 1e-14, "{left} {right}");
}

#[test]
fn largest_eigenvalue() {
    let a = Var::constant(Tensor::from([[2.0, 1.0], [1.0, 2.0]])); // its eigenvalues are 1 and 3
    let f = |x: &Var<f64>| x.dot(&a.matmul(x)) * 0.5;
    let mut v = Var::constant(Tensor::from([1.0, 0.0]));
    for _ in 0..40 {
        let (_, hv) = no_grad(|| hvp(f, &v, &v));
        v = &hv / hv.norm(..);
    }
    assert!((v.dot(&hvp(f, &v, &v).1).item() - 3.0).abs() < 1e-12);
}

#[test]
fn nested_recomputation() {
    // 2ᵈ operations in halves, each of which is recomputed: how often is an operation computed?
    fn halves(x: &Var, depth: u32, calls: Arc<AtomicUsize>) -> Var {
        if depth == 0 {
            calls.fetch_add(1, Ordering::Relaxed);
            return x.sin();
        }
        let half = move |x: &Var| halves(x, depth - 1, calls.clone());
        let first = x.recompute(half.clone());
        first.recompute(half)
    }
    for depth in 0..5 {
        let (x, calls) = (Var::leaf(Tensor::scalar(0.5f32)), Arc::new(AtomicUsize::new(0)));
        let y = halves(&x, depth, calls.clone());
        let grads = y.backward();
        let usual = (0..1 << depth).fold(x.clone(), |y, _| y.sin());
        assert_eq!(grads.get(&x), usual.backward().get(&x));
        // The forward pass, and once more for each level.
        assert_eq!(calls.load(Ordering::Relaxed), (1 + depth as usize) << depth);
    }
}
