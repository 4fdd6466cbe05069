//! Solutions of the exercises of `book::chain_rule`.

use retrograd::autograd::check::{Check, gradcheck};
use retrograd::prelude::*;
use std::ops::{Add, Div};

#[test]
fn sum_over_paths() {
    // u = x · x, y = u · x. By the first and the second factor of u: x · x each; and by the second factor
    // of y: u.
    let x = 2.0;
    let paths = [x * x, x * x, x * x];
    let leaf = Var::leaf(Tensor::scalar(x));
    let y = &(&leaf * &leaf) * &leaf;
    assert_eq!(y.backward().get(&leaf).unwrap().item(), paths.iter().sum::<f64>());
}

#[test]
fn unit_vector() {
    // With n = ‖x‖ and y = x / n: dy = dx / n - x (x · dx) / n³, so x̄ = (g - y (y · g)) / n.
    let x = Tensor::from([1.0f64, 2.0, -2.0]);
    let g = Tensor::from([0.3f64, -0.5, 0.7]);
    let n = x.square().sum(..).item().sqrt();
    let y = &x / n;
    let by_hand = (&g - &y * (&y * &g).sum(..).item()) / n;
    let unit = |x: &Var<f64>| x / &x.square().sum(..).sqrt();
    let leaf = Var::leaf(x);
    let found = unit(&leaf).backward_with(&g).get(&leaf).unwrap().clone();
    assert!((&by_hand - &found).abs().max(..).item() < 1e-15);
    assert!(gradcheck(|v| unit(&v[0]), &[leaf], &Check::precise()).is_ok());
    // The gradient is orthogonal to x: the length of x does not matter to y.
    assert!((&by_hand * &y).sum(..).item().abs() < 1e-15);
}

#[derive(Clone, Copy)]
struct Dual(f64, f64);

impl Add for Dual {
    type Output = Dual;
    fn add(self, o: Dual) -> Dual {
        Dual(self.0 + o.0, self.1 + o.1)
    }
}

impl Div for Dual {
    type Output = Dual;
    fn div(self, o: Dual) -> Dual {
        Dual(self.0 / o.0, (self.1 * o.0 - self.0 * o.1) / (o.0 * o.0))
    }
}

impl Dual {
    fn exp(self) -> Dual {
        Dual(self.0.exp(), self.0.exp() * self.1)
    }
}

#[test]
fn dual_sigmoid() {
    let one = Dual(1.0, 0.0);
    let x = 0.7;
    let y = one / (one + Dual(-x, -1.0).exp());
    let sigmoid = 1.0 / (1.0 + (-x).exp());
    assert!((y.0 - sigmoid).abs() < 1e-15);
    assert!((y.1 - sigmoid * (1.0 - sigmoid)).abs() < 1e-15);
}

#[test]
fn cost_of_both_modes() {
    // Reverse: a row vector times k matrices, of which the last has one row: k - 1 products with n² and the
    // first n. Forward: the same for each of n inputs.
    let (n, k) = (20_u64, 5);
    let reverse = n + (k - 1) * n * n;
    let forward = n * ((k - 1) * n * n + n);
    assert_eq!(forward / reverse, n);

    // Both orders give the same numbers.
    let mut rng = Rng::new(1);
    let mut matrix = |rows, columns| Tensor::<f64>::randn([rows, columns], &mut rng);
    let (first, second, last) = (matrix(4, 4), matrix(4, 4), matrix(1, 4));
    let from_the_left = last.matmul(&second).matmul(&first);
    let from_the_right = last.matmul(&second.matmul(&first));
    assert!((from_the_left - from_the_right).abs().max(..).item() < 1e-13);
}

#[test]
fn gradient_of_a_gradient() {
    let x = Var::leaf(Tensor::scalar(0.8f64));
    let y = x.square().exp();
    let first = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
    let second = first.backward().get(&x).unwrap().item();
    let wanted = (2.0 + 4.0 * 0.64) * 0.64f64.exp();
    assert!((second - wanted).abs() < 1e-14);
}
