//! Running a backward pass: [`Var::backward`], [`Backprop`], [`grad`].

use crate::engine::{Engine, Seeds};
use crate::gradients::Gradients;
use crate::graph::{Id, Var};
use crate::leaves::run_each;
use crate::var::no_grad;
use retrograd_tensor::settings::grad_enabled;
use retrograd_tensor::{Real, Tensor};

/// A backward pass: the variables to start from, their cotangents, and what to keep.
///
/// [`Var::backward`] is the common case. The others:
///
/// ```
/// use retrograd::prelude::*;
///
/// let x = Var::leaf(Tensor::from([1.0f32, 2.0]));
/// let h = x.square();
/// let y = h.exp();
/// let grads = Backprop::from(&y)
///     .cotangent(Tensor::from([1.0, 0.0])) // of y, which is not a scalar
///     .keep(&h) // returns the gradient of h, which is not a leaf
///     .retain_graph() // allows another pass
///     .run();
/// assert_eq!(grads.get(&h).unwrap().to_vec(), [1f32.exp(), 0.0]);
/// assert_eq!(grads.get(&x).unwrap().to_vec(), [2.0 * 1f32.exp(), 0.0]);
/// ```
#[derive(Debug)]
#[must_use = "nothing happens until run() is called"]
pub struct Backprop<'a, T: Real> {
    roots: Vec<(&'a Var<T>, Option<Tensor<T>>)>,
    retain: bool,
    keep: Vec<Id>,
}

impl<'a, T: Real> Backprop<'a, T> {
    /// Starts from one variable.
    pub fn from(root: &'a Var<T>) -> Self {
        Backprop { roots: vec![(root, None)], retain: false, keep: Vec::new() }
    }

    /// Starts from another variable, too, in the same pass.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let x = Var::leaf(Tensor::scalar(3.0f32));
    /// let (y, z) = (x.square(), x.neg());
    /// let grads = Backprop::from(&y).and(&z).run(); // of y + z
    /// assert_eq!(grads.get(&x).unwrap().item(), 5.0);
    /// ```
    pub fn and(mut self, root: &'a Var<T>) -> Self {
        self.roots.push((root, None));
        self
    }

    /// The cotangent of the variable that was named last. The default is 1, for a scalar.
    pub fn cotangent(mut self, g: Tensor<T>) -> Self {
        self.roots.last_mut().expect("there is always a root").1 = Some(g);
        self
    }

    /// Keeps saved tensors, so that another pass can run over the same graph.
    pub fn retain_graph(mut self) -> Self {
        self.retain = true;
        self
    }

    /// Returns the gradient of this variable as well, which need not be a leaf.
    ///
    /// # Panics
    /// If it is a constant.
    #[track_caller]
    pub fn keep(mut self, x: &Var<T>) -> Self {
        assert!(x.is_tracked(), "backward: the variable to keep is a constant");
        self.keep.extend(x.id());
        self
    }

    /// Runs the pass.
    ///
    /// # Panics
    /// If a root is not tracked, or is not a scalar and has no cotangent, or a cotangent has
    /// another shape; if the saved tensors of the graph were freed by an earlier pass.
    #[track_caller]
    pub fn run(self) -> Gradients<T> {
        or_panic(self.try_run())
    }

    /// Runs the pass, and passes the gradient of each leaf to `f` as soon as it is complete, that is when
    /// all operations that use the leaf have been differentiated: before the operations that computed their other
    /// inputs. So gradients can be used, sent or dropped while the pass goes on.
    ///
    /// # Panics
    /// As [`Backprop::run`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let (w1, w2) = (Var::leaf(Tensor::scalar(3.0f32)), Var::leaf(Tensor::scalar(5.0)));
    /// let y = w1.square().mul(&w2);
    /// let mut found = Vec::new();
    /// Backprop::from(&y).run_each(|id, g| found.push((Some(id), g.item())));
    /// assert_eq!(found, [(w2.id(), 9.0), (w1.id(), 30.0)]); // the last operation's first
    /// ```
    #[track_caller]
    pub fn run_each(self, mut f: impl FnMut(Id, Tensor<T>)) {
        let engine = Engine::new(self.retain, false, self.keep, None);
        or_panic(seeds(self.roots).and_then(|roots| {
            no_grad(|| run_each(engine, roots, &mut |id, g| f(id, g.into_value())))
        }));
    }

    /// [`Backprop::run`] with an error instead of a panic.
    pub(crate) fn try_run(self) -> Result<Gradients<T>, String> {
        let roots = seeds(self.roots)?;
        let found = no_grad(|| Engine::new(self.retain, false, self.keep, None).run(roots))?;
        Ok(found.into_iter().filter_map(|(id, g)| Some((id, g?.into_value()))).collect())
    }
}

/// # Backward passes
impl<T: Real> Var<T> {
    /// Gradients of this scalar with respect to all leaves it was computed from.
    ///
    /// Saved tensors are freed as the pass proceeds, so it can run once. [`Backprop`] has more options.
    ///
    /// # Panics
    /// If this is not a scalar, not tracked, or the saved tensors of its graph were freed by an earlier pass.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let w = Var::leaf(Tensor::from([1.0f32, 2.0]));
    /// let grads = w.square().sum(..).backward();
    /// assert_eq!(grads.get(&w).unwrap().to_vec(), [2.0, 4.0]);
    /// ```
    #[track_caller]
    pub fn backward(&self) -> Gradients<T> {
        Backprop::from(self).run()
    }

    /// [`Var::backward`] of a variable of any shape, given its own gradient.
    ///
    /// # Panics
    /// As [`Backprop::run`].
    #[track_caller]
    pub fn backward_with(&self, cotangent: &Tensor<T>) -> Gradients<T> {
        Backprop::from(self).cotangent(cotangent.clone()).run()
    }
}

/// Gradients of `outputs` (each with its cotangent) with respect to `inputs`, as variables
/// that can be differentiated again (inside [`no_grad`], constants). `None` where an output does
/// not depend on an input.
///
/// The pass is always recorded, and the graph is kept, as with `create_graph=True` in PyTorch. A first
/// derivative alone takes less memory by [`Var::backward`] or [`Backprop`].
///
/// ```
/// use retrograd::prelude::*;
/// let x = Var::leaf(Tensor::scalar(3.0f64));
/// let y = x.powf(3.0);
/// let dy = grad(&[(&y, None)], &[&x])[0].clone().unwrap();
/// let ddy = grad(&[(&dy, None)], &[&x])[0].clone().unwrap();
/// assert_eq!((dy.item(), ddy.item()), (27.0, 18.0));
/// ```
///
/// # Panics
/// As [`Backprop::run`]; or if an input is not tracked.
#[track_caller]
#[inline(never)]
pub fn grad<T: Real>(
    outputs: &[(&Var<T>, Option<&Var<T>>)],
    inputs: &[&Var<T>],
) -> Vec<Option<Var<T>>> {
    let untracked = inputs.iter().position(|x| !x.is_tracked());
    assert!(untracked.is_none(), "grad: input {} is not tracked", untracked.unwrap_or(0));
    let wanted: Vec<Id> = inputs.iter().filter_map(|x| x.id()).collect();
    let roots = outputs.iter().map(|(y, g)| (*y, g.map(|g| g.value().clone()))).collect();
    let mut seeds = or_panic(seeds(roots));
    let recorded = grad_enabled();
    for ((_, seed), (_, given)) in seeds.iter_mut().zip(outputs) {
        if let Some(given) = given.filter(|_| recorded) {
            *seed = given.clone();
        }
    }
    // Variables with lower ids do not depend on any of the inputs.
    let oldest = wanted.iter().min().copied();
    let found = or_panic(Engine::new(true, recorded, wanted.clone(), oldest).run(seeds));
    wanted.iter().map(|id| found.get(id).cloned().flatten()).collect()
}

/// The value, or a panic at the caller's line. A function, because closures have no `track_caller`.
#[track_caller]
pub(crate) fn or_panic<R>(result: Result<R, String>) -> R {
    match result {
        Ok(value) => value,
        Err(why) => panic!("{why}"),
    }
}

/// Roots with the gradients they begin with, checked.
#[inline(never)]
pub(crate) fn seeds<T: Real>(
    roots: Vec<(&Var<T>, Option<Tensor<T>>)>,
) -> Result<Seeds<'_, T>, String> {
    let mut out = Vec::with_capacity(roots.len());
    for (root, g) in roots {
        if !root.is_tracked() {
            return Err("backward: the variable is a constant, computed from no leaf (hint: \
                        Var::leaf makes a variable whose gradient is wanted)"
                .into());
        }
        let g = match g {
            Some(g) if g.shape() == root.shape() => g,
            Some(g) => {
                return Err(format!(
                    "backward: the variable is {:?}, its cotangent {:?}",
                    root.shape(),
                    g.shape()
                ));
            }
            None if root.value().numel() == 1 => Tensor::ones(root.shape()),
            None => {
                return Err(format!(
                    "backward: the variable has shape {:?}, not one element (hint: reduce it to a \
                     scalar, or give a cotangent with backward_with)",
                    root.shape()
                ));
            }
        };
        out.push((root, Var::constant(g)));
    }
    Ok(out)
}
