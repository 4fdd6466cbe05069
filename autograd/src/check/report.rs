//! What a check has found: a [`Report`], or a [`CheckError`] that names the worst element.

use retrograd_tensor::Shape;
use std::cmp::Ordering;
use std::fmt;

/// What a successful check has done.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Numbers compared: entries of the Jacobian, or projections of it.
    pub compared: usize,
    /// Evaluations of the function.
    pub evaluations: usize,
    /// The comparison that came nearest to failing; `None` if there was nothing to compare.
    pub worst: Option<Compared>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} derivatives agree", self.compared)?;
        match &self.worst {
            Some(worst) => write!(f, "; the worst: {worst}"),
            None => Ok(()),
        }
    }
}

/// One derivative, computed in two ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Which input, and the index of its element; `None` of a projection on a random
    /// direction.
    pub input: Option<(usize, Vec<usize>)>,
    /// The index of the output element; `None` of a random combination of them.
    pub output: Option<Vec<usize>>,
    /// The derivative by the backward pass.
    pub analytic: f64,
    /// The derivative by differences (or by the other of two backward passes).
    pub numeric: f64,
    /// `|analytic - numeric|`
    pub error: f64,
    /// How large the error may be.
    pub allowed: f64,
}

impl Compared {
    fn is_wrong(&self) -> bool {
        // Also if either is NaN.
        !matches!(self.error.partial_cmp(&self.allowed), Some(Ordering::Less | Ordering::Equal))
    }

    /// How much of the tolerance is used; above 1 it is exceeded.
    pub fn ratio(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.allowed }
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.input {
            Some((input, element)) => write!(f, "input {input} at {element:?}")?,
            None => f.write_str("a random direction of the inputs")?,
        }
        match &self.output {
            Some(output) => write!(f, ", output at {output:?}")?,
            None => f.write_str(", a random combination of outputs")?,
        }
        let Compared { analytic, numeric, error, allowed, .. } = self;
        write!(
            f,
            ": analytic {analytic:?}, numeric {numeric:?}, error {error:.3e} (allowed {allowed:.3e})"
        )
    }
}

/// Why a check failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CheckError {
    /// No input is tracked, so there is nothing to check.
    NothingTracked,
    /// The gradient and the differences disagree.
    Mismatch {
        /// How many of the numbers compared do.
        wrong: usize,
        /// Out of how many.
        compared: usize,
        /// The worst of them.
        worst: Compared,
    },
    /// An input got no gradient, though the output depends on it.
    Detached {
        /// The input.
        input: usize,
        /// A derivative that is not 0.
        example: Compared,
    },
    /// A gradient has another shape than its input, or the output another shape at another
    /// point.
    Shape {
        /// Which.
        what: String,
        /// The shape it should have.
        expected: Vec<usize>,
        /// The shape it has.
        got: Vec<usize>,
    },
    /// A value that is NaN or infinite.
    NotFinite {
        /// What it is a value of.
        what: String,
        /// The index of the element.
        element: Vec<usize>,
        /// The value.
        value: f64,
    },
    /// Two runs with the same inputs differ in bits.
    Nondeterministic {
        /// What differs.
        what: String,
        /// The index of the first element that does.
        element: Vec<usize>,
        /// Its values.
        values: (f64, f64),
    },
    /// A recorded pass gives another gradient than the fast one.
    Recorded {
        /// The worst element: recorded as analytic, fast as numeric.
        worst: Compared,
    },
    /// A fused operation differs from its definition.
    Definition {
        /// The worst element: by the kernel as analytic, by the definition as numeric. `input` is
        /// `None` for an element of the result.
        worst: Compared,
    },
    /// The backward pass panicked.
    Panicked {
        /// The message.
        message: String,
    },
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckError::NothingTracked => {
                f.write_str("no input is tracked (hint: make inputs with Var::leaf)")
            }
            CheckError::Mismatch { wrong, compared, worst } => {
                write!(f, "{wrong} of {compared} derivatives are wrong; the worst: {worst}")
            }
            CheckError::Detached { input, example } => write!(
                f,
                "input {input} is detached: it got no gradient, though the output depends on it: \
                 {example}"
            ),
            CheckError::Shape { what, expected, got } => {
                write!(f, "{what} has shape {got:?}, should have {expected:?}")
            }
            CheckError::NotFinite { what, element, value } => {
                write!(f, "{what} is {value} at {element:?}")
            }
            CheckError::Nondeterministic { what, element, values: (a, b) } => write!(
                f,
                "{what} is nondeterministic: {a:?} and {b:?} at {element:?} from the same inputs"
            ),
            CheckError::Recorded { worst } => write!(
                f,
                "a recorded pass (analytic) gives another gradient than the fast one (numeric): \
                 {worst}"
            ),
            CheckError::Definition { worst } => write!(
                f,
                "the kernel of a fused operation (analytic) differs from its definition \
                 (numeric): {worst}"
            ),
            CheckError::Panicked { message } => write!(f, "backward panicked: {message}"),
        }
    }
}

impl std::error::Error for CheckError {}

/// Comparisons made.
#[derive(Default)]
pub(super) struct Tally {
    pub compared: usize,
    pub wrong: usize,
    pub worst: Option<Compared>,
}

impl Tally {
    pub fn add(
        &mut self,
        analytic: f64,
        numeric: f64,
        allowed: f64,
        input: impl FnOnce() -> Option<(usize, Vec<usize>)>,
        output: impl FnOnce() -> Option<Vec<usize>>,
    ) {
        let error = (analytic - numeric).abs();
        let mut this = Compared { input: None, output: None, analytic, numeric, error, allowed };
        self.compared += 1;
        self.wrong += this.is_wrong() as usize;
        let nearer = |worst: &Compared| {
            this.error.is_nan() && !worst.error.is_nan() || this.ratio() > worst.ratio()
        };
        if self.worst.as_ref().is_none_or(nearer) {
            (this.input, this.output) = (input(), output());
            self.worst = Some(this);
        }
    }
}

/// The index of the `i`-th element in row-major order.
pub(super) fn unravel(mut i: usize, shape: &Shape) -> Vec<usize> {
    let mut index = vec![0; shape.rank()];
    for axis in (0..shape.rank()).rev() {
        index[axis] = i % shape[axis];
        i /= shape[axis];
    }
    index
}
