//! The feature map of linear attention, and its normalization.

use retrograd_autograd::Var;
use retrograd_tensor::Real;

/// Added to denominators, against division by 0.
pub(crate) const EPS: f64 = 1e-6;

/// `φ(x) = elu(x) + 1`, which is positive. The gradient by a NaN is 0: the NaN may be masked, and
/// then must not spread.
pub(crate) fn feature_map<T: Real>(x: &Var<T>) -> Var<T> {
    let nan = x.value().ne(x.value());
    if !nan.any(..).item() {
        return x.elu(T::ONE).add_scalar(T::ONE);
    }
    let of_numbers = x.masked_fill(&nan, T::ZERO).elu(T::ONE).add_scalar(T::ONE);
    of_numbers.masked_fill(&nan, T::from_f64(f64::NAN))
}

/// Products of features divided by the sum of their row.
pub(crate) fn normalize_by_sum<T: Real>(products: &Var<T>) -> Var<T> {
    products / (products.sum_keepdim(-1) + T::from_f64(EPS))
}
