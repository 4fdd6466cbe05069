//! Elements of the gradients that rules of products deliver, with their numbers.

use super::collect::ELEMENTS;
use super::elements::{Evaluated, chosen_places, dot, listed};
use retrograd_tensor::{Real, Tensor};

/// The operations whose operands are kept until their rule has run, as the operations themselves do.
pub(super) const PRODUCTS: [&str; 2] = ["linear", "matmul"];

/// For each input, the explained elements of its gradient: `g · w` summed over the results that use the element.
/// Empty for an input whose gradient is not explained.
pub(super) fn gradients<T: Real>(
    operation: &str,
    inputs: &[Tensor<T>],
    gradient: &Tensor<T>,
) -> Vec<Vec<Evaluated>> {
    let [x, z, rest @ ..] = inputs else { return Vec::new() };
    if z.rank() != 2
        || x.rank() == 0
        || gradient.rank() == 0
        || (operation == "matmul" && x.rank() != 2)
    {
        return Vec::new();
    }
    let width = x.shape()[x.rank() - 1];
    let results = gradient.shape()[gradient.rank() - 1];
    let (rows, is_linear) = (gradient.numel() / results.max(1), operation == "linear");
    // An operation of another crate may have this name.
    let wanted = if is_linear { [results, width] } else { [width, results] };
    let is_this = z.shape()[..] == wanted && rows * width == x.numel();
    if !is_this || rest.iter().any(|addend| addend.rank() == 1 && addend.numel() != results) {
        return Vec::new();
    }
    let [g, xs, zs] =
        [gradient, x, z].map(|t| -> Vec<f64> { t.to_vec().into_iter().map(T::to_f64).collect() });
    // The element of the second operand that the column c of x is multiplied by, for the result j.
    let second =
        |j: usize, c: usize| if is_linear { zs[j * width + c] } else { zs[c * results + j] };
    let each = |n: usize, f: &dyn Fn(usize) -> Option<Evaluated>| -> Vec<Evaluated> {
        chosen_places(n, ELEMENTS).into_iter().map(f).collect::<Option<_>>().unwrap_or_default()
    };
    let mut all = vec![
        each(xs.len(), &|place| {
            let (row, c) = (place / width, place % width);
            dot((0..results).map(|j| Some((g[row * results + j], second(j, c)))), results)
        }),
        each(zs.len(), &|place| {
            let (j, c) = match is_linear {
                true => (place / width, place % width),
                false => (place % results, place / results),
            };
            dot((0..rows).map(|r| Some((g[r * results + j], xs[r * width + c]))), rows)
        }),
    ];
    // Addends: a bias for each result, or a residual of the same shape.
    all.extend(rest.iter().map(|addend| match addend.rank() {
        1 => each(addend.numel(), &|j| {
            let terms: Vec<f64> = (0..rows).map(|r| g[r * results + j]).collect();
            Some((listed(&terms, " + "), terms.iter().sum()))
        }),
        _ => Vec::new(),
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_sum_to_the_gradients() {
        use retrograd_autograd::Var;
        use retrograd_tensor::random::Rng;
        let mut rng = Rng::new(4);
        let mut leaf = |shape: &[usize]| Var::leaf(Tensor::<f64>::randn(shape, &mut rng));
        let (x, w, b) = (leaf(&[2, 3, 5]), leaf(&[4, 5]), leaf(&[4]));
        let (a, z) = (leaf(&[3, 5]), leaf(&[5, 4]));
        let [g, h] = [leaf(&[2, 3, 4]), leaf(&[3, 4])].map(|g| g.value().clone());
        let check = |operation: &str, y: Var<f64>, g: &Tensor<f64>, leaves: &[&Var<f64>]| {
            let values: Vec<Tensor<f64>> = leaves.iter().map(|x| x.value().clone()).collect();
            let (found, wanted) = (gradients(operation, &values, g), y.backward_with(g));
            assert_eq!(found.len(), leaves.len());
            for (leaf, found) in leaves.iter().zip(found) {
                let wanted = wanted.get(*leaf).unwrap().to_vec();
                let places = chosen_places(wanted.len(), ELEMENTS);
                assert_eq!(places.len(), found.len());
                for (place, (text, sum)) in places.into_iter().zip(found) {
                    assert!((sum - wanted[place]).abs() < 1e-12, "{operation}: {text}");
                }
            }
        };
        check("linear", x.linear(&w, Some(&b)), &g, &[&x, &w, &b]);
        check("matmul", a.matmul(&z), &h, &[&a, &z]);
        let batched = [x.value().clone(), leaf(&[2, 5, 4]).value().clone()];
        assert!(gradients("matmul", &batched, &g).is_empty());
        let other = [x.value().clone(), z.value().clone()];
        assert!(gradients("linear", &other, &g).is_empty());
    }
}
