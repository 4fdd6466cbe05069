//! Checks for modules.

use crate::functional::functional_call;
use crate::module::{Module, Visitor};
use crate::param::ParamMade;
use retrograd_autograd::check::{Check, Report, gradcheck, gradgradcheck};
use retrograd_autograd::{Gradients, Var};
use retrograd_tensor::observe::{Event, Observer};
use retrograd_tensor::random::Rng;
use retrograd_tensor::settings::with_observer;
use retrograd_tensor::{Real, Tensor, with_threads};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Builds a module and checks that `visit` visits every parameter that was created, under a unique
/// name, and that `loss` has a gradient by each that is finite and not all 0.
///
/// # Panics
/// If a check fails, with the name of the parameter.
pub fn check_module<T: Real, M: Module<T>>(
    build: impl FnOnce() -> M,
    loss: impl FnOnce(&M) -> Var<T>,
) {
    let made = Arc::new(Made::default());
    let module = with_observer(made.clone(), build);
    check_visit(&module, made.0.load(Relaxed));
    check_gradients(&module, &loss(&module).backward());
}

/// Counts parameters that are made.
#[derive(Default)]
struct Made(AtomicUsize);

impl Observer for Made {
    fn event(&self, event: &Event<'_>) {
        if let Event::Other(event) = event {
            self.0.fetch_add(usize::from(event.is::<ParamMade>()), Relaxed);
        }
    }
}

#[inline(never)]
fn check_visit<T: Real>(module: &dyn Module<T>, made: usize) {
    let visited = module.named_parameters().len();
    assert_eq!(made, visited, "parameters created and parameters that visit() visits");
    drop(module.state_dict()); // panics if a name is given twice
}

#[inline(never)]
fn check_gradients<T: Real>(module: &dyn Module<T>, grads: &Gradients<T>) {
    for (name, param) in module.named_parameters() {
        let g = grads.by_id(param.id()).unwrap_or_else(|| panic!("{name} got no gradient"));
        assert!(*g.shape() == param.shape(), "{name}: gradient {:?}", g.shape());
        let size = g.abs().sum(..).item().to_f64();
        assert!(
            size.is_finite() && (size > 0.0 || g.numel() == 0),
            "{name}: gradient sums to {size}"
        );
    }
}

/// The result of [`check_variant`].
#[derive(Clone, Debug)]
pub struct VariantReport {
    /// Number of parameters.
    pub parameters: usize,
    /// First derivatives against finite differences.
    pub first: Report,
    /// Second derivatives against finite differences.
    pub second: Report,
}

/// Checks a differentiable module in f64: every parameter is visited and has a gradient
/// ([`check_module`]); gradients by inputs and parameters against finite differences, to second
/// order; a state dict that loads into another instance and gives equal bits; equal bits on 1 and 2
/// threads, forward and backward.
///
/// `inputs` are continuous inputs; `run` is the forward pass on variables of their shapes.
///
/// # Panics
/// If a check fails, with its name.
pub fn check_variant<M: Module<f64>>(
    name: &str,
    build: impl Fn(&mut Rng) -> M + Sync,
    inputs: &[Tensor<f64>],
    run: impl Fn(&M, &[Var<f64>]) -> Var<f64> + Sync,
) -> VariantReport {
    let instance = |rng: &mut Rng| {
        let module = Arc::new(build(rng));
        let (of, run) = (module.clone(), &run);
        Instance { module, run: Box::new(move |inputs| run(&of, inputs)) }
    };
    check_instances(name, &instance, inputs)
}

type Forward<'a> = dyn Fn(&[Var<f64>]) -> Var<f64> + Send + Sync + 'a;

/// A module and its forward pass without their types, so that the checks are compiled once and not for
/// every module.
struct Instance<'a> {
    module: Arc<dyn Module<f64> + 'a>,
    run: Box<Forward<'a>>,
}

impl Module<f64> for Instance<'_> {
    fn visit(&self, v: &mut Visitor<'_, f64>) {
        self.module.visit(v);
    }
}

/// `inline`: it is compiled in tests, which call it, and not here.
#[inline]
fn check_instances<'a>(
    name: &str,
    build: &(dyn Fn(&mut Rng) -> Instance<'a> + Sync),
    inputs: &[Tensor<f64>],
) -> VariantReport {
    let constants: Vec<Var<f64>> = inputs.iter().cloned().map(Var::constant).collect();
    let weigh = |y: &Var<f64>| {
        let weights = Tensor::randn(y.shape(), &mut Rng::new(77));
        y.mul(&Var::constant(weights)).sum(..)
    };
    let module = build(&mut Rng::new(1));
    let params: Vec<Var<f64>> = module.named_parameters().iter().map(|(_, p)| p.to_var()).collect();
    if !params.is_empty() {
        check_module(|| build(&mut Rng::new(1)), |m| weigh(&(m.run)(&constants)));
    }

    let mut leaves: Vec<Var<f64>> = inputs.iter().cloned().map(Var::leaf).collect();
    leaves.extend(params.iter().map(|p| Var::leaf(p.value().clone())));
    let f: &dyn Fn(&[Var<f64>]) -> Var<f64> = &|x| {
        let (inputs, params) = x.split_at(constants.len());
        functional_call(&build(&mut Rng::new(1)), params, |m| (m.run)(inputs))
    };
    let first = gradcheck(f, &leaves, &Check::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let second =
        gradgradcheck(f, &leaves, &Check::default()).unwrap_or_else(|e| panic!("{name}: {e}"));

    let other = build(&mut Rng::new(2));
    other.load_state_dict(&module.state_dict()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let bits = |m: &Instance<'_>, threads| {
        with_threads(threads, || {
            let y = (m.run)(&leaves[..inputs.len()]);
            let grads = weigh(&y).backward();
            let mut all = y.value().to_vec();
            let ids = leaves[..inputs.len()].iter().filter_map(|x| x.id());
            let params = m.named_parameters();
            let ids = ids.chain(params.iter().map(|(_, p)| p.id()));
            all.extend(ids.filter_map(|id| grads.by_id(id)).flat_map(|g| g.to_vec()));
            all.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        })
    };
    if !leaves.is_empty() {
        let want = bits(&module, 1);
        assert!(bits(&other, 1) == want, "{name}: a loaded state dict gives other results");
        assert!(bits(&module, 2) == want, "{name}: two threads give other results");
    }
    VariantReport { parameters: params.len(), first, second }
}
