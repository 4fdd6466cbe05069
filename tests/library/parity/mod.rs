//! Results against PyTorch's, which are in `tests/fixtures`. `--nocapture` shows the largest differences.

mod attention;
mod functional;
mod layers;
mod ops;
mod random;
mod state_rules;
mod training;

use retrograd::autograd::Gradients;
use retrograd::nn::StateDict;
use retrograd::nn::checkpoint::{AnyTensor, Checkpoint, Storable};
use retrograd::prelude::*;
use retrograd::tensor::Real;
use serde_json::Value;

use std::collections::BTreeSet;
use std::sync::Mutex;

/// A file of PyTorch's results, and the names of the tensors that were read.
struct Fixture {
    file: Checkpoint,
    read: Mutex<BTreeSet<String>>,
}

/// The largest permitted difference from an element.
#[derive(Clone, Copy)]
enum Bound {
    Absolute(f64),
    /// Relative to the element, or to 0.1 where it is smaller.
    Relative(f64),
    /// Relative to the element, or to a tenth of the largest where it is smaller, since elements cancel.
    RelativeToLargest(f64),
}

/// The largest difference.
#[track_caller]
fn close<T: Real>(what: &str, ours: &Tensor<T>, theirs: &Tensor<f64>, bound: Bound) -> f64 {
    assert_eq!(ours.shape(), theirs.shape(), "shape of {what}");
    let theirs = theirs.to_vec();
    let largest = theirs.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    let mut worst = 0.0f64;
    for (i, (a, b)) in ours.to_vec().iter().zip(theirs).enumerate() {
        let error = (a.to_f64() - b).abs();
        let bound = match bound {
            Bound::Absolute(bound) => bound,
            Bound::Relative(part) => part * b.abs().max(0.1),
            Bound::RelativeToLargest(part) => part * b.abs().max(0.1 * largest),
        };
        assert!(error <= bound, "{what}: element {i} is {a:?}, not {b:e}, off by {error:e}");
        worst = worst.max(error);
    }
    worst
}

impl Fixture {
    fn load(name: &str) -> Fixture {
        let file = Checkpoint::load(retrograd_support::fixture(name)).unwrap();
        Fixture { file, read: Mutex::default() }
    }

    fn find(&self, name: &str) -> Option<&AnyTensor> {
        self.read.lock().unwrap().insert(name.into());
        self.file.tensors.get(name)
    }

    #[track_caller]
    fn tensor(&self, name: &str) -> &AnyTensor {
        self.find(name).unwrap_or_else(|| panic!("{name} is not in the file"))
    }

    #[track_caller]
    fn real<T: Storable>(&self, name: &str) -> Tensor<T> {
        to(&self.tensor(name).to_float().unwrap())
    }

    #[track_caller]
    fn leaf(&self, name: &str) -> Var<f64> {
        Var::leaf(self.real(name))
    }

    fn bool(&self, name: &str) -> Option<Tensor<bool>> {
        match self.find(name)? {
            AnyTensor::Bool(x) => Some(x.clone()),
            other => panic!("{name}: {other:?}"),
        }
    }

    fn dict(&self, prefix: &str) -> StateDict<f64> {
        let dict: StateDict<f64> = self.file.get(prefix).unwrap();
        self.read.lock().unwrap().extend(dict.keys().map(|name| format!("{prefix}.{name}")));
        dict
    }

    /// A note of the file, which is JSON.
    fn note(&self, name: &str) -> Value {
        serde_json::from_str(&self.file.read_note::<String>(name).unwrap()).unwrap()
    }

    /// Compares a value with `AT.out`, and then [`gradients`](Self::gradients).
    #[track_caller]
    fn check<T: Storable>(
        &self,
        at: &str,
        y: &Var<T>,
        leaves: &[(impl AsRef<str>, Var<T>)],
        bound: Bound,
    ) -> f64 {
        let value = close(&format!("{at}.out"), y.value(), &self.real(&format!("{at}.out")), bound);
        let cotangent = self.real(&format!("{at}.gout"));
        value.max(self.gradients(at, y.backward_with(&cotangent), leaves, bound))
    }

    /// Compares the gradients of leaves with the tensors `AT.NAME`; there must be no others.
    #[track_caller]
    fn gradients<T: Storable>(
        &self,
        at: &str,
        grads: Gradients<T>,
        leaves: &[(impl AsRef<str>, Var<T>)],
        bound: Bound,
    ) -> f64 {
        assert_eq!(grads.len(), leaves.len(), "gradients of {at}");
        let mut worst = 0.0f64;
        for (name, leaf) in leaves {
            let name = format!("{at}.{}", name.as_ref());
            let g = grads.get(leaf).unwrap_or_else(|| panic!("no gradient {name}"));
            worst = worst.max(close(&name, g, &self.real(&name), bound));
        }
        worst
    }

    /// Asserts that all tensors with such names were read.
    fn all_read(&self, which: impl Fn(&str) -> bool) {
        let read = self.read.lock().unwrap();
        let names = self.file.tensors.keys().filter(|name| which(name));
        let left: Vec<_> = names.filter(|name| !read.contains(*name)).collect();
        assert!(left.is_empty(), "not compared: {left:?}");
    }
}

/// The parameters of a module as leaves, by the names of their gradients in the files.
fn parameters(module: &dyn Module<f64>) -> Vec<(String, Var<f64>)> {
    let named = module.named_parameters().into_iter();
    named.map(|(name, p)| (format!("grad.{name}"), p.to_var())).collect()
}

fn to<T: Real>(x: &Tensor<f64>) -> Tensor<T> {
    Tensor::from_vec(x.to_vec().into_iter().map(T::from_f64).collect(), *x.shape())
}
