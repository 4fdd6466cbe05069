//! Comparison of two computations: rows of a [`Table`], which is printed and checked as a whole,
//! and single comparisons where there are no gradients.

use super::randn;
use retrograd_autograd::{Backprop, Gradients, Var};
use retrograd_tensor::{Real, Tensor};
use std::fmt;

/// The largest of several errors; NaN once one of them is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worst(pub f64);

impl Worst {
    /// Includes another error.
    pub fn include(&mut self, error: f64) {
        if error.is_nan() || error > self.0 {
            self.0 = error;
        }
    }

    /// The largest difference between elements of two tensors. It is non-finite if any element is, even
    /// if both are equal.
    #[track_caller]
    pub fn between<T: Real>(a: &Tensor<T>, b: &Tensor<T>) -> Worst {
        assert_eq!(a.shape(), b.shape(), "shapes of the compared tensors");
        let mut worst = Worst::default();
        for (x, y) in a.to_vec().into_iter().zip(b.to_vec()) {
            worst.include((x.to_f64() - y.to_f64()).abs());
        }
        worst
    }

    /// Whether no error exceeds the bound; false for NaN.
    pub fn within(self, bound: f64) -> bool {
        self.0 <= bound
    }
}

/// Asserts that no element of `a` is further than `bound` from that of `b`, prints the largest
/// difference, and returns it.
#[track_caller]
pub fn close<T: Real>(what: &str, bound: f64, a: &Tensor<T>, b: &Tensor<T>) -> f64 {
    let worst = Worst::between(a, b);
    println!("{what:70} {:.1e}", worst.0);
    assert!(worst.within(bound), "{what}: {:e} exceeds {bound:e}", worst.0);
    worst.0
}

/// The results of a computation.
pub trait Results {
    /// The results as a list.
    fn vars(self) -> Vec<Var<f64>>;
}

impl Results for Var<f64> {
    fn vars(self) -> Vec<Var<f64>> {
        vec![self]
    }
}

impl Results for (Var<f64>, Var<f64>) {
    fn vars(self) -> Vec<Var<f64>> {
        vec![self.0, self.1]
    }
}

/// A statement of equality, and the largest differences between its sides.
#[derive(Clone, Debug)]
pub struct Row {
    statement: String,
    outputs: Worst,
    gradients: Option<Worst>,
    bound: f64,
    /// Whether outputs must have the same bits.
    exact: bool,
    same_bits: bool,
    /// The first case in which it failed.
    failed: Option<String>,
}

impl Row {
    fn holds(&self) -> bool {
        let bounded = |worst: Worst| worst.within(self.bound);
        bounded(self.outputs)
            && self.gradients.is_none_or(bounded)
            && (self.same_bits || !self.exact)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gradients = self.gradients.map_or("-".into(), |g| format!("{:.1e}", g.0));
        let bits = match (self.exact, self.same_bits) {
            (true, true) => "equal, as required",
            (true, false) => "DIFFERENT",
            (false, true) => "equal",
            (false, false) => "",
        };
        let (statement, outputs, bound) = (&self.statement, self.outputs.0, self.bound);
        write!(f, "{statement:66} {outputs:>7.1e} {gradients:>9} {bound:>6.0e}  {bits}")
    }
}

/// The results for these inputs.
type Computation<'a> = dyn Fn(&[Var<f64>]) -> Vec<Var<f64>> + 'a;

/// Statements of equality. Repeated checks of a statement, in several cases, share a row.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Row>,
    case: String,
    bound: f64,
    exact: bool,
}

/// The default bound on differences.
pub const BOUND: f64 = 1e-12;

impl Default for Table {
    fn default() -> Self {
        Table { rows: Vec::new(), case: String::new(), bound: BOUND, exact: false }
    }
}

impl Table {
    /// Names the case of the next comparison, for the message of a failure.
    pub fn case(&mut self, case: impl Into<String>) -> &mut Self {
        self.case = case.into();
        self
    }

    /// Sets the bound of the next comparison.
    pub fn bound(&mut self, bound: f64) -> &mut Self {
        self.bound = bound;
        self
    }

    /// Requires equal bits of the outputs, and equal gradients, in the next comparison.
    pub fn exact(&mut self) -> &mut Self {
        self.exact = true;
        self.bound(0.0)
    }

    /// Compares the results of two functions of the same inputs, and the gradients of each
    /// result by every input.
    #[track_caller]
    pub fn same<A: Results, B: Results>(
        &mut self,
        statement: &str,
        inputs: &[Tensor<f64>],
        a: impl Fn(&[Var<f64>]) -> A,
        b: impl Fn(&[Var<f64>]) -> B,
    ) {
        self.same_results(statement, inputs, &|x| a(x).vars(), &|x| b(x).vars());
    }

    /// [`Table::same`] without the types of the functions, compiled once.
    #[track_caller]
    fn same_results(
        &mut self,
        statement: &str,
        inputs: &[Tensor<f64>],
        a: &Computation<'_>,
        b: &Computation<'_>,
    ) {
        let leaves: Vec<_> = inputs.iter().cloned().map(Var::leaf).collect();
        self.vars(statement, &a(&leaves), &b(&leaves), &leaves);
    }

    /// Compares results that were computed before, and their gradients by `leaves`, each of which
    /// must have one on both sides.
    #[track_caller]
    pub fn vars(&mut self, statement: &str, a: &[Var<f64>], b: &[Var<f64>], leaves: &[Var<f64>]) {
        assert_eq!(a.len(), b.len(), "{statement}: number of results");
        let (mut outputs, mut gradients) = (Worst::default(), Worst::default());
        let mut same_bits = true;
        let mut reached = vec![[false; 2]; leaves.len()];
        for (a, b) in a.iter().zip(b) {
            outputs.include(Worst::between(a.value(), b.value()).0);
            same_bits &= super::bits(a.value()) == super::bits(b.value());
            let cotangent = randn(a.shape(), 77);
            let back =
                |y: &Var<f64>| Backprop::from(y).cotangent(cotangent.clone()).retain_graph().run();
            let (of_a, of_b) = (back(a), back(b));
            for (leaf, reached) in leaves.iter().zip(&mut reached) {
                let of = |g: &Gradients<f64>| g.get(leaf).cloned();
                let (x, y) = (of(&of_a), of(&of_b));
                reached[0] |= x.is_some();
                reached[1] |= y.is_some();
                let zeros = || Tensor::zeros(leaf.shape());
                let (x, y) = (x.unwrap_or_else(zeros), y.unwrap_or_else(zeros));
                gradients.include(Worst::between(&x, &y).0);
            }
        }
        assert!(
            reached.iter().all(|sides| *sides == [true; 2]),
            "{statement}: inputs with a gradient: {reached:?}"
        );
        self.push(statement, outputs, Some(gradients).filter(|_| !leaves.is_empty()), same_bits);
    }

    /// Compares two values.
    #[track_caller]
    pub fn values<T: Real>(&mut self, statement: &str, a: &Tensor<T>, b: &Tensor<T>) {
        self.push(statement, Worst::between(a, b), None, super::bits(a) == super::bits(b));
    }

    /// Adds the result of a comparison.
    pub fn push(
        &mut self,
        statement: &str,
        outputs: Worst,
        gradients: Option<Worst>,
        same_bits: bool,
    ) {
        let (bound, exact) = (self.bound, self.exact);
        (self.bound, self.exact) = (BOUND, false);
        let statement = statement.to_string();
        let row = Row { statement, outputs, gradients, bound, exact, same_bits, failed: None };
        let case = std::mem::take(&mut self.case);
        let failed = (!row.holds()).then_some(case);
        let known = self.rows.iter().position(|old| old.statement == row.statement);
        let at = known.unwrap_or_else(|| {
            self.rows.push(row.clone());
            self.rows.len() - 1
        });
        let old = &mut self.rows[at];
        assert!((old.bound, old.exact) == (bound, exact), "{}: two bounds", row.statement);
        old.outputs.include(row.outputs.0);
        if let (Some(old), Some(new)) = (&mut old.gradients, row.gradients) {
            old.include(new.0);
        }
        old.same_bits &= row.same_bits;
        old.failed = old.failed.take().or(failed);
    }

    /// The statements that do not hold, with the first case in which each failed.
    pub fn failures(&self) -> Vec<String> {
        let wrong = self.rows.iter().filter(|row| !row.holds());
        wrong.map(|row| format!("{row}  {}", row.failed.as_deref().unwrap_or(""))).collect()
    }

    /// Prints the table, and panics if some rows do not hold.
    #[track_caller]
    pub fn check(&self, title: &str) {
        println!("{self}");
        let failures = self.failures();
        assert!(failures.is_empty(), "{title}: these do not hold:\n{}", failures.join("\n"));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = ["statement", "outputs", "gradients", "bound", "same bits"];
        let [statement, outputs, gradients, bound, bits] = heads;
        writeln!(f, "{statement:66} {outputs:>7} {gradients:>9} {bound:>6}  {bits}")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

/// Tables detect differences.
#[test]
fn tables_detect_differences() {
    let x = Tensor::from([1.0, 2.0]);
    let off = |by: f64| Tensor::from([1.0, 2.0 + by]);
    let fails = |f: &dyn Fn(&mut Table)| {
        let mut t = Table::default();
        f(&mut t);
        t.failures().len()
    };
    assert_eq!(fails(&|t| t.values("equal", &x, &x)), 0);
    assert_eq!(fails(&|t| t.values("near", &x, &off(1e-13))), 0);
    assert_eq!(fails(&|t| t.values("far", &x, &off(1e-11))), 1);
    assert_eq!(fails(&|t| t.bound(1e-10).values("bounded", &x, &off(1e-11))), 0);
    assert_eq!(fails(&|t| t.exact().values("exact", &x, &off(1e-15))), 1);
    assert_eq!(
        fails(&|t| t.exact().values("of two zeros", &off(-2.0), &Tensor::from([1.0, -0.0]))),
        1
    );
    for odd in [f64::NAN, f64::INFINITY] {
        let nan = Tensor::from([odd, 2.0]);
        assert_eq!(fails(&|t| t.values("NaN here", &nan, &x)), 1);
        assert_eq!(fails(&|t| t.values("NaN there", &x, &nan)), 1);
        assert_eq!(fails(&|t| t.exact().values("NaN twice", &nan, &nan)), 1);
    }
    // The first of two cases, the second, and a gradient.
    let case = |t: &mut Table, by| t.values("two cases", &x, &off(by));
    assert_eq!(fails(&|t| [f64::NAN, 0.0].into_iter().for_each(|by| case(t, by))), 1);
    assert_eq!(fails(&|t| [0.0, f64::NAN].into_iter().for_each(|by| case(t, by))), 1);
    let twice = |t: &mut Table, by: f64| {
        t.same(
            "gradient",
            std::slice::from_ref(&x),
            |x| x[0].square(),
            |x| &x[0] * &x[0].detach() * by,
        )
    };
    assert_eq!(fails(&|t| twice(t, 1.0)), 1);
    let root = |t: &mut Table| {
        let zeros = [Tensor::zeros([2])];
        t.same("NaN as a gradient", &zeros, |x| &x[0] * 1.0, |x| (&x[0] * 0.0).sqrt() + &x[0])
    };
    assert_eq!(fails(&root), 1);
}
