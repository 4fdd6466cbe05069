//! Jacobians by the backward pass and by differences, side by side.

use super::options::{Check, Stencil};
use super::report::{CheckError, Report, Tally, unravel};
use crate::backprop::Backprop;
use crate::graph::Var;
use retrograd_tensor::layout::Layout;
use retrograd_tensor::random::Key;
use retrograd_tensor::{Shape, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The same values as leaves of their own.
pub(super) fn fresh(inputs: &[Var<f64>]) -> Vec<Var<f64>> {
    let leaf = |x: &Var<f64>| {
        if x.is_tracked() { Var::leaf(x.value().clone()) } else { x.clone() }
    };
    inputs.iter().map(leaf).collect()
}

/// `n` numbers of random sign and size between 1/2 and 1.
pub(super) fn noise(seed: u64, stream: u64, n: usize) -> Vec<f64> {
    let key = Key::new(seed, stream);
    let number = |i: u64| {
        let x = 2.0 * key.uniform(i) - 1.0;
        0.5 * (x + 1f64.copysign(x))
    };
    (0..n as u64).map(number).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

pub(super) fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, CheckError> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        CheckError::Panicked { message: text.unwrap_or_else(|| "no message".into()) }
    })
}

/// An input, ready to be laid out again with other elements.
struct Point {
    tracked: bool,
    shape: Shape,
    layout: Layout,
    elements: Vec<f64>,
    /// Where each element lives, and how long the storage is.
    places: Vec<usize>,
    span: usize,
}

impl Point {
    fn new(x: &Var<f64>) -> Point {
        let shape = *x.shape();
        let elements = x.value().to_vec();
        let places = |layout: &Layout| -> Vec<usize> {
            let at = |i| layout.position("gradcheck", &unravel(i, &shape)).expect("an index");
            (0..elements.len()).map(at).collect()
        };
        let mut layout = *x.value().layout();
        let mut sorted = places(&layout);
        sorted.sort_unstable();
        if sorted.windows(2).any(|w| w[0] == w[1]) || elements.is_empty() {
            layout = Layout::contiguous(shape);
        }
        let places = places(&layout);
        let span = places.iter().max().map_or(0, |p| p + 1);
        Point { tracked: x.is_tracked(), shape, layout, elements, places, span }
    }

    /// Other elements in the same layout; gaps hold NaN.
    fn lay(&self, elements: &[f64]) -> Tensor<f64> {
        let mut storage = vec![f64::NAN; self.span];
        for (&place, &x) in self.places.iter().zip(elements) {
            storage[place] = x;
        }
        Tensor::from_vec(storage, [self.span]).as_strided(&self.layout)
    }

    fn step(&self, element: usize, h: f64) -> f64 {
        h * self.elements[element].abs().max(1.0)
    }
}

/// A function at a point, and how to check it there.
pub(super) struct Checker<'a, F> {
    f: F,
    inputs: &'a [Var<f64>],
    points: Vec<Point>,
    check: &'a Check,
    evaluations: usize,
}

/// A graph at the point that is checked.
struct Graph {
    leaves: Vec<Var<f64>>,
    y: Var<f64>,
}

impl<'a, F: Fn(&[Var<f64>]) -> Var<f64>> Checker<'a, F> {
    pub fn new(f: F, inputs: &'a [Var<f64>], check: &'a Check) -> Result<Self, CheckError> {
        let points: Vec<Point> = inputs.iter().map(Point::new).collect();
        if !points.iter().any(|p| p.tracked) {
            return Err(CheckError::NothingTracked);
        }
        Ok(Checker { f, inputs, points, check, evaluations: 0 })
    }

    pub fn run(mut self) -> Result<Report, CheckError> {
        // Elsewhere first, so that what an operation keeps from its first call is not right.
        let elsewhere: Vec<Vec<f64>> = self
            .points
            .iter()
            .map(|p| (0..p.elements.len()).map(|i| p.step(i, self.check.step)).collect())
            .collect();
        self.moved(1.0, &elsewhere);
        let graph = self.graph();
        let shape = *graph.y.shape();
        let y = graph.y.value().to_vec();
        finite(|| "the output".into(), &y, &shape)?;

        let elements: usize =
            self.points.iter().filter(|p| p.tracked).map(|p| p.elements.len()).sum();
        let each_input = elements <= self.check.full;
        let each_output = each_input && y.len() <= self.check.full;
        let cotangents: Vec<Vec<f64>> = if each_output {
            let one_hot = |j| (0..y.len()).map(|i| f64::from(u8::from(i == j))).collect();
            (0..y.len()).map(one_hot).collect()
        } else {
            (0..self.check.directions).map(|k| noise(self.check.seed, 2 * k, y.len())).collect()
        };

        // Differences, between the forward and the backward pass.
        let columns = if each_input { self.columns(&shape)? } else { Vec::new() };
        let mut tally = Tally::default();
        let mut missing = vec![true; self.points.len()];
        let mut first: Vec<Vec<Vec<f64>>> = Vec::new();
        for (j, v) in cotangents.iter().enumerate() {
            let gradients = self.gradients(&graph, v, &shape, &mut missing)?;
            if each_input {
                let output = || each_output.then(|| unravel(j, &shape));
                self.compare(&mut tally, &gradients, &columns, v, output);
            } else {
                self.project(&mut tally, j as u64, &gradients, v, &shape)?;
            }
            first.push(gradients);
        }
        if tally.wrong > 0 {
            let worst = tally.worst.expect("something is wrong");
            return Err(match &worst.input {
                Some((input, _)) if missing[*input] => {
                    CheckError::Detached { input: *input, example: worst }
                }
                _ => CheckError::Mismatch { wrong: tally.wrong, compared: tally.compared, worst },
            });
        }

        // Again, with a graph of its own.
        let again = self.graph();
        equal_bits(|| "the output".into(), &y, &again.y.value().to_vec(), &shape)?;
        for (v, before) in cotangents.iter().zip(first) {
            let after = self.gradients(&again, v, &shape, &mut missing)?;
            for (k, (a, b)) in before.iter().zip(after).enumerate() {
                let name = || format!("the gradient of input {k}");
                equal_bits(name, a, &b, &self.points[k].shape)?;
            }
        }
        let Tally { compared, worst, .. } = tally;
        Ok(Report { compared, evaluations: self.evaluations, worst })
    }

    fn graph(&mut self) -> Graph {
        let leaves = fresh(self.inputs);
        let y = (self.f)(&leaves);
        self.evaluations += 1;
        Graph { leaves, y }
    }

    /// The function at the inputs plus `t` times a direction.
    fn moved(&mut self, t: f64, direction: &[Vec<f64>]) -> (Vec<f64>, Shape) {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for ((x, p), u) in self.inputs.iter().zip(&self.points).zip(direction) {
            inputs.push(if p.tracked {
                let moved: Vec<f64> = p.elements.iter().zip(u).map(|(x, u)| x + t * u).collect();
                Var::constant(p.lay(&moved))
            } else {
                x.clone()
            });
        }
        self.evaluations += 1;
        let y = (self.f)(&inputs);
        (y.value().to_vec(), *y.shape())
    }

    /// The derivative of every output along a direction, for steps of `h` in it.
    fn difference(
        &mut self,
        direction: &[Vec<f64>],
        h: f64,
        shape: &Shape,
    ) -> Result<Vec<f64>, CheckError> {
        let stencil = self.check.stencil;
        let mut at = |t: f64| {
            let (y, got) = self.moved(t, direction);
            if got == *shape {
                return Ok(y);
            }
            let what = "the output near the inputs".into();
            Err(CheckError::Shape { what, expected: shape.to_vec(), got: got.to_vec() })
        };
        let (a, b) = (at(h)?, at(-h)?);
        let near = a.iter().zip(&b).map(|(a, b)| a - b);
        let quotient: Vec<f64> = match stencil {
            Stencil::Central => near.map(|d| d / (2.0 * h)).collect(),
            Stencil::FivePoint => {
                let (a, b) = (at(2.0 * h)?, at(-2.0 * h)?);
                let far = a.iter().zip(&b).map(|(a, b)| a - b);
                near.zip(far).map(|(n, f)| (8.0 * n - f) / (12.0 * h)).collect()
            }
        };
        finite(|| "the difference quotient of the output".into(), &quotient, shape)?;
        Ok(quotient)
    }

    /// One column of the Jacobian for each element of each tracked input.
    fn columns(&mut self, shape: &Shape) -> Result<Vec<Vec<Vec<f64>>>, CheckError> {
        let still = |p: &Point| vec![0.0; p.elements.len()];
        let mut direction: Vec<Vec<f64>> = self.points.iter().map(still).collect();
        let mut columns = Vec::new();
        for k in 0..self.points.len() {
            let n = if self.points[k].tracked { self.points[k].elements.len() } else { 0 };
            let mut of_input = Vec::with_capacity(n);
            for i in 0..n {
                direction[k][i] = 1.0;
                let h = self.points[k].step(i, self.check.step);
                of_input.push(self.difference(&direction, h, shape)?);
                direction[k][i] = 0.0;
            }
            columns.push(of_input);
        }
        Ok(columns)
    }

    /// Gradients for one cotangent: 0 where there is none.
    fn gradients(
        &self,
        graph: &Graph,
        v: &[f64],
        shape: &Shape,
        missing: &mut [bool],
    ) -> Result<Vec<Vec<f64>>, CheckError> {
        let none = |p: &Point| vec![0.0; p.elements.len()];
        if !graph.y.is_tracked() {
            return Ok(self.points.iter().map(none).collect());
        }
        let v = Tensor::from_vec(v.to_vec(), shape);
        let found = guarded(|| Backprop::from(&graph.y).cotangent(v).retain_graph().run())?;
        let mut out = Vec::new();
        for (k, (x, p)) in graph.leaves.iter().zip(&self.points).enumerate() {
            let name = || format!("the gradient of input {k}");
            out.push(match found.get(x) {
                None => none(p),
                Some(g) if *g.shape() != p.shape => {
                    return Err(CheckError::Shape {
                        what: name(),
                        expected: p.shape.to_vec(),
                        got: g.shape().to_vec(),
                    });
                }
                Some(g) => {
                    missing[k] = false;
                    let g = g.to_vec();
                    finite(name, &g, &p.shape)?;
                    g
                }
            });
        }
        Ok(out)
    }

    /// Every element of the gradients against the columns.
    fn compare(
        &self,
        tally: &mut Tally,
        gradients: &[Vec<f64>],
        columns: &[Vec<Vec<f64>>],
        v: &[f64],
        output: impl Fn() -> Option<Vec<usize>>,
    ) {
        for (k, (gradient, columns)) in gradients.iter().zip(columns).enumerate() {
            for (i, column) in columns.iter().enumerate() {
                let numeric = dot(v, column);
                let at = || Some((k, unravel(i, &self.points[k].shape)));
                tally.add(gradient[i], numeric, self.check.allowed(numeric), at, &output);
            }
        }
    }

    /// One projection; and if it is wrong, a search for the element to blame.
    fn project(
        &mut self,
        tally: &mut Tally,
        k: u64,
        gradients: &[Vec<f64>],
        v: &[f64],
        shape: &Shape,
    ) -> Result<(), CheckError> {
        let elements: usize = gradients.iter().map(|g| g.len()).sum();
        let scale = (8.0 / (elements as f64).sqrt()).min(1.0);
        let mut u = noise(self.check.seed, 2 * k + 1, elements).into_iter().map(|u| u * scale);
        let direction: Vec<Vec<f64>> =
            gradients.iter().map(|g| u.by_ref().take(g.len()).collect()).collect();
        let tracked = |k: &usize| self.points[*k].tracked;
        let analytic: f64 =
            (0..self.points.len()).filter(tracked).map(|k| dot(&gradients[k], &direction[k])).sum();
        let along = self.difference(&direction, self.check.step, shape)?;
        let numeric = dot(v, &along);
        let before = tally.wrong;
        tally.add(analytic, numeric, self.check.allowed(numeric), || None, || None);
        if tally.wrong > before {
            let columns = self.columns(shape)?;
            let mut search = Tally::default();
            self.compare(&mut search, gradients, &columns, v, || None);
            if search.wrong > 0 {
                *tally = search;
            }
        }
        Ok(())
    }
}

fn finite(what: impl FnOnce() -> String, x: &[f64], shape: &Shape) -> Result<(), CheckError> {
    match x.iter().position(|x| !x.is_finite()) {
        None => Ok(()),
        Some(i) => {
            Err(CheckError::NotFinite { what: what(), element: unravel(i, shape), value: x[i] })
        }
    }
}

fn equal_bits(
    what: impl FnOnce() -> String,
    a: &[f64],
    b: &[f64],
    shape: &Shape,
) -> Result<(), CheckError> {
    match a.iter().zip(b).position(|(a, b)| a.to_bits() != b.to_bits()) {
        None => Ok(()),
        Some(i) => Err(CheckError::Nondeterministic {
            what: what(),
            element: unravel(i, shape),
            values: (a[i], b[i]),
        }),
    }
}
