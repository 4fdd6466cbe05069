//! Central differences of a recorded step: which elements are compared.

use super::XRay;
use super::data::{CheckRow, Data};
use super::differences::{Adjustable, MOST_ERRORS, loss_of};
use super::elements::{ELEMENTS, chosen_places};
use crate::locked::locked;
use retrograd_autograd::{Id, Var};
use retrograd_tensor::{Real, Tensor};
use std::sync::{Arc, Mutex};

impl XRay {
    /// Also compares `n` elements of the gradient of each parameter with a central difference of the recorded
    /// closure: the ones of largest magnitude among the eight elements that the page explains.
    ///
    /// For each of them the closure is run six to eighteen more times, with the element changed by `±h` of several
    /// sizes. The page shows the difference with the smallest expected error, and that error, which in f32 is often a
    /// per cent of a gradient; [`RecordedStep::findings`](crate::RecordedStep::findings) names gradients that are
    /// further away. There are no differences if the closure does not compute the same loss again (because of
    /// other random numbers, or because it updates the parameters), or if it runs more than one backward pass;
    /// the page says so.
    ///
    /// Parameters of models can be changed by themselves. Leaves are changed where the closure is given them,
    /// by [`XRay::record_at`]; for others, see [`XRay::adjustable`].
    ///
    /// ```
    /// use retrograd::autograd::{InputGrads, Op};
    /// use retrograd::prelude::*;
    ///
    /// static CUBE: Op = Op::new("cube", &["x"]);
    ///
    /// // A rule that is wrong: the derivative of x³ is not 2x².
    /// let cube = |x: &Var<f64>| Var::from_op(&CUBE, x.value().powf(3.0), [x], |[x]| {
    ///     let x = x.save();
    ///     move |cx, g| InputGrads::of(&x, || g * &cx.input(&x).square() * 2.0)
    /// });
    /// let x = Var::leaf(Tensor::from([0.5f64, -1.0]));
    /// let step = XRay::new("").leaf("x", &x).checked(1).record_at(&[x], |v| cube(&v[0]).sum(..).backward());
    /// let finding = "the gradient of x[1] is 2, but its central difference is 3 (expected error";
    /// assert!(step.findings()[0].starts_with(finding));
    /// ```
    pub fn checked(self, n: usize) -> XRay {
        XRay { checks: n, ..self }
    }

    /// Tells how the value of a parameter is read, and replaced between two runs of the closure, for
    /// [`XRay::checked`].
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let x = Var::leaf(Tensor::from([0.5f64]));
    /// let id = x.id().unwrap();
    /// let shared = Arc::new(Mutex::new(x));
    /// let (read, written) = (shared.clone(), shared.clone());
    /// let step = XRay::new("")
    ///     .adjustable(id, move || read.lock().unwrap().value().clone(), move |value| {
    ///         let mut x = written.lock().unwrap();
    ///         *x = x.with_value(value);
    ///     })
    ///     .checked(1)
    ///     .record(|| shared.lock().unwrap().clone().exp().sum(..).backward());
    /// assert!(step.json().contains("\"difference\":1.64"));
    /// ```
    pub fn adjustable<T: Real>(
        mut self,
        parameter: Id,
        get: impl Fn() -> Tensor<T> + Send + Sync + 'static,
        set: impl Fn(Tensor<T>) + Send + Sync + 'static,
    ) -> XRay {
        self.adjustable.insert(parameter, Adjustable::new(get, set));
        self
    }

    /// [`XRay::record`] of a function of leaves, which [`XRay::checked`] changes.
    ///
    /// # Panics
    /// If one of `leaves` is not a leaf.
    #[track_caller]
    pub fn record_at<T: Real, R>(
        mut self,
        leaves: &[Var<T>],
        mut f: impl FnMut(&[Var<T>]) -> R,
    ) -> super::RecordedStep {
        let now = Arc::new(Mutex::new(leaves.to_vec()));
        for (i, leaf) in leaves.iter().enumerate() {
            let id = leaf.id().expect("XRay::record_at: the variable is a constant");
            let _ = leaf.with_value(leaf.value().clone()); // which panics if it is no leaf
            let (read, written) = (now.clone(), now.clone());
            let get = move || locked(&read)[i].value().clone();
            let set = move |value| {
                let mut leaves = locked(&written);
                leaves[i] = leaves[i].with_value(value);
            };
            self = self.adjustable(id, get, set);
        }
        self.record(|| {
            let leaves = locked(&now).clone();
            f(&leaves)
        })
    }

    /// Adds the central differences to the data of a page, whose first nodes are `leaves`. `loss` is the loss
    /// of the recorded run.
    pub(super) fn check<R>(&self, data: &mut Data, leaves: &[Id], f: &mut impl FnMut() -> R) {
        let cause = match (data.made.loss, loss_of(f)) {
            (None, _) | (_, None) => {
                Some("the recorded code runs no backward pass of a scalar, or several")
            }
            (Some(recorded), Some((again, ..))) if recorded.0.to_bits() != again.to_bits() => {
                Some("the recorded code computed another loss when it was repeated")
            }
            _ if self.adjustable.is_empty() => Some("no parameter can be changed between two runs"),
            _ => None,
        };
        if let Some(cause) = cause {
            data.left_out.push(format!("central differences, because {cause}"));
            return;
        }
        let mut loss = || loss_of(&mut *f).map(|(_, loss, seed)| loss * seed);
        for (node, id) in data.nodes.iter_mut().zip(leaves) {
            let Some(Adjustable(difference)) = self.adjustable.get(id) else { continue };
            let places = chosen_places(node.shapes[0].iter().product(), ELEMENTS);
            let size = |e: usize| node.elements[e].gradient().map(f64::abs);
            let mut order: Vec<usize> =
                (0..node.elements.len()).filter(|&e| size(e).is_some()).collect();
            order.sort_by(|&a, &b| size(b).partial_cmp(&size(a)).expect("finite"));
            for e in order.into_iter().take(self.checks) {
                let gradient = node.elements[e].gradient().expect("known");
                node.elements[e].check = difference(places[e], &mut loss).map(|check| {
                    let agrees = (gradient - check.difference).abs() <= MOST_ERRORS * check.error;
                    CheckRow { agrees, ..check }
                });
            }
        }
    }
}
