//! Modules as functions of their parameters.

use crate::module::Module;
use crate::param::Param;
use retrograd_autograd::Var;
use retrograd_tensor::Real;
use retrograd_tensor::error::{ErrorKind, assert};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `f` with the parameters of a module replaced by the given variables, in the order of
/// [`Module::named_parameters`]: `torch.func.functional_call`. The parameters are restored afterwards, also if `f`
/// panics; until then, other threads that use the module see the replacements.
///
/// ```
/// use retrograd::autograd::jvp;
/// use retrograd::nn::functional_call;
/// use retrograd::prelude::*;
///
/// let model = Linear::<f64>::new(3, 1, &mut Rng::new(1));
/// let weights: Vec<Var<f64>> = model.named_parameters().iter().map(|(_, p)| p.to_var()).collect();
/// let direction: Vec<Var<f64>> =
///     weights.iter().map(|w| Var::constant(Tensor::ones(w.shape()))).collect();
/// let x = Var::constant(Tensor::from([1.0, 2.0, 3.0]));
/// let f = |w: &Vec<Var<f64>>| functional_call(&model, w, |m| m.forward(&x, &mut Pass::eval()));
/// let (_, change) = jvp(f, &weights, &direction);
/// assert_eq!(change.item(), 1.0 + 2.0 + 3.0 + 1.0);
/// ```
///
/// # Panics
/// If the number of variables or a shape differs.
#[track_caller]
pub fn functional_call<T: Real, M: Module<T> + ?Sized, R>(
    module: &M,
    vars: &[Var<T>],
    f: impl FnOnce(&M) -> R,
) -> R {
    let params: Vec<Param<T>> = module.named_parameters().into_iter().map(|(_, p)| p).collect();
    let (want, got) = (params.len(), vars.len());
    assert(want == got, "functional_call", ErrorKind::Mismatch, || {
        format!("the module has {want} parameters, and there are {got} variables")
    });
    for (param, var) in params.iter().zip(vars) {
        assert(param.shape() == *var.shape(), "functional_call", ErrorKind::Mismatch, || {
            format!("{param:?} cannot be replaced by {:?}", var.shape())
        });
    }
    let old: Vec<Var<T>> = params.iter().zip(vars).map(|(p, v)| p.swap(v.clone())).collect();
    let result = catch_unwind(AssertUnwindSafe(|| f(module)));
    for (param, var) in params.iter().zip(old) {
        param.swap(var);
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}
