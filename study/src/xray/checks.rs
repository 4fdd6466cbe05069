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
    /// closure: those of largest magnitude among the eight elements that the page explains.
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

    /// Adds the central differences to the data of a page, whose first nodes are `leaves`. `loss` is that of
    /// the recorded run.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordedStep;
    use retrograd_tensor::random::Rng;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::slice::from_ref;

    fn checks(step: &RecordedStep) -> Vec<(f64, &CheckRow)> {
        let elements = step.data.nodes.iter().flat_map(|node| &node.elements);
        elements.filter_map(|e| Some((e.gradient()?, e.check.as_ref()?))).collect()
    }

    fn network<T: Real>() -> RecordedStep {
        let mut rng = Rng::new(3);
        let [w, v] = [[10, 6], [4, 10]].map(|shape| Var::leaf(Tensor::<T>::randn(shape, &mut rng)));
        let x = Var::constant(Tensor::randn([5, 6], &mut rng));
        let targets = Tensor::randn([5, 4], &mut rng);
        XRay::new("").leaf("w", &w).leaf("v", &v).checked(4).record_at(&[w, v], |v| {
            x.linear(&v[0], None)
                .tanh()
                .linear(&v[1], None)
                .log_softmax(-1)
                .mul(&Var::constant(targets.clone()))
                .sum(..)
                .backward()
        })
    }

    #[test]
    fn differences_are_as_precise_as_they_say() {
        for (step, most) in [(network::<f32>(), 5e-3), (network::<f64>(), 1e-8)] {
            let checks = checks(&step);
            assert_eq!(checks.len(), 8);
            for (gradient, check) in checks {
                let distance = (gradient - check.difference).abs();
                assert!(distance <= 3.0 * check.error, "{gradient}: {check:?}");
                assert!(check.error <= most * gradient.abs().max(0.01), "{gradient}: {check:?}");
                assert!(check.agrees && check.step > 0.0);
            }
            assert!(step.findings().is_empty());
        }
    }

    #[test]
    fn the_largest_of_the_explained_elements_are_checked() {
        let x = Var::leaf(Tensor::from([1.0f64, -3.0, 2.0, 0.5]));
        let step = XRay::new("")
            .leaf("x", &x)
            .checked(2)
            .record_at(&[x], |v| v[0].square().sum(..).backward());
        let checked: Vec<f64> = checks(&step).iter().map(|(gradient, _)| *gradient).collect();
        assert_eq!(checked, [-6.0, 4.0]);
    }

    #[test]
    fn code_that_does_something_else_each_time_is_not_checked() {
        let x = Var::leaf(Tensor::scalar(3.0f64));
        let left_out = |step: &RecordedStep| {
            assert!(checks(step).is_empty());
            step.data.left_out.join("; ")
        };
        let mut run = 0.0;
        let step = XRay::new("").leaf("x", &x).checked(1).record_at(from_ref(&x), |v| {
            run += 1.0;
            (&v[0] * run).backward()
        });
        assert!(left_out(&step).contains("computed another loss when it was repeated"));
        let found = "the runs of the recorded code differ (the loss was 6.0, then ";
        assert!(step.findings()[0].starts_with(found), "{:?}", step.findings());
        let mut run = 0;
        let step = XRay::new("").record(|| {
            run += 1;
            if run == 3 { x.square().exp().backward() } else { x.square().backward() }
        });
        let found = "the runs of the recorded code differ (from event 2 on): ";
        assert!(step.findings()[0].starts_with(found), "{:?}", step.findings());
        let step = XRay::new("")
            .leaf("x", &x)
            .checked(1)
            .record_at(from_ref(&x), |v| (v[0].square().backward(), v[0].exp().backward()));
        assert!(left_out(&step).contains("no backward pass of a scalar, or several"));
        let step = XRay::new("").leaf("x", &x).checked(1).record(|| x.square().backward());
        assert!(left_out(&step).contains("no parameter can be changed"));
    }

    #[test]
    fn a_given_gradient_is_a_factor() {
        let x = Var::leaf(Tensor::scalar(3.0f64));
        let step = XRay::new("")
            .leaf("x", &x)
            .checked(1)
            .record_at(&[x], |v| v[0].square().backward_with(&Tensor::scalar(0.25)));
        let found = checks(&step);
        assert_eq!((found.len(), found[0].0, found[0].1.agrees), (1, 1.5, true));
    }

    #[test]
    fn a_parameter_has_its_value_again_also_after_a_panic() {
        let value = Arc::new(Mutex::new(Tensor::from([1.0f32, 2.0])));
        let (read, written) = (value.clone(), value.clone());
        let Adjustable(difference) =
            Adjustable::new(move || locked(&read).clone(), move |x| *locked(&written) = x);
        let mut seen = Vec::new();
        let loss = f64::from(locked(&value).sum(..).item());
        assert_eq!(loss, 3.0);
        let check = difference(1, &mut || {
            seen.push(locked(&value).to_vec());
            Some(locked(&value).to_vec()[1].powi(2).into())
        });
        assert!((check.unwrap().difference - 4.0).abs() < 1e-2);
        assert!(seen.len() >= 4 && seen.iter().all(|x| x[0] == 1.0 && x[1] != 2.0));
        let run = catch_unwind(AssertUnwindSafe(|| difference(0, &mut || panic!("in the middle"))));
        assert!(run.is_err());
        assert_eq!(locked(&value).to_vec(), [1.0, 2.0]);
    }
}
