//! Einstein summation: products and sums specified by the names of the axes.
//!
//! The rules use the operations of a trait only ([`EinsumOperand`]), which both tensors and
//! differentiable variables implement.

use crate::error::{ErrorKind, OrPanic, Result, ShapeError};
use crate::kernels::Real;
use crate::shape::{MAX_RANK, Shape};
use crate::tensor::Tensor;

/// The operations that einsum uses on its operands.
pub trait EinsumOperand: Clone {
    /// Sizes of the axes.
    fn shape(&self) -> Shape;
    /// Axes in another order.
    fn permute(&self, axes: &[isize]) -> Self;
    /// Another shape with the same number of elements.
    fn reshape(&self, dims: &[usize]) -> Self;
    /// The sum over one axis, which is removed.
    fn sum_axis(&self, axis: isize) -> Self;
    /// The diagonal of two axes as a new last axis.
    fn diagonal(&self, a: isize, b: isize) -> Self;
    /// Batched matrix product of `[b, m, k]` and `[b, k, n]`.
    fn matmul(&self, other: &Self) -> Self;
    /// Elementwise product.
    fn mul(&self, other: &Self) -> Self;
}

impl<T: Real> EinsumOperand for Tensor<T> {
    fn shape(&self) -> Shape {
        *Tensor::shape(self)
    }
    fn permute(&self, axes: &[isize]) -> Self {
        Tensor::permute(self, axes)
    }
    fn reshape(&self, dims: &[usize]) -> Self {
        Tensor::reshape(self, dims)
    }
    fn sum_axis(&self, axis: isize) -> Self {
        self.sum(axis)
    }
    fn diagonal(&self, a: isize, b: isize) -> Self {
        Tensor::diagonal(self, a, b, 0)
    }
    fn matmul(&self, other: &Self) -> Self {
        Tensor::matmul(self, other)
    }
    fn mul(&self, other: &Self) -> Self {
        Tensor::mul(self, other)
    }
}

/// The parsed subscripts of a formula: the axis names of each operand and of the result.
#[derive(Debug)]
struct Subscripts {
    inputs: Vec<Vec<char>>,
    /// The axes of each operand that are broadcast: they have size 1, and more in other operands.
    broadcast: Vec<Vec<usize>>,
    output: Vec<char>,
}

/// The name of an axis that `...` stands for, counted from the last one.
fn of_ellipsis(from_end: usize) -> char {
    // A character for private use: no letter.
    char::from_u32(0xE000 + from_end as u32).expect("a character")
}

/// The names in a formula's text for one operand or the result; `...` stands for `others` axes.
fn names(text: &str, others: Option<usize>) -> Result<Vec<char>, String> {
    let (before, after) = match text.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    };
    let letters = |part: &str| match part.chars().find(|c| !c.is_alphabetic()) {
        Some(c) => Err(format!("axes are named by letters, not {c:?}")),
        None => Ok(part.chars().collect::<Vec<char>>()),
    };
    let mut all = letters(before)?;
    if let Some(after) = after {
        all.extend((0..others.unwrap_or(0)).rev().map(of_ellipsis));
        all.extend(letters(after)?);
    }
    Ok(all)
}

impl Subscripts {
    fn parse(text: &str, shapes: &[Shape]) -> Result<Subscripts> {
        let fail =
            |kind, why: String| ShapeError::new("einsum", kind, format!("\"{text}\": {why}"));
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match compact.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (compact.as_str(), None),
        };
        let parts: Vec<&str> = left.split(',').collect();
        let bad = |why| fail(ErrorKind::Value, why);
        for part in parts.iter().chain(&right) {
            names(part, None).map_err(bad)?;
        }
        if parts.len() != shapes.len() {
            let text = format!("{} operands named, {} given", parts.len(), shapes.len());
            return Err(fail(ErrorKind::Rank, text));
        }
        let mut inputs = Vec::with_capacity(parts.len());
        let mut sizes: Vec<(char, usize)> = Vec::new();
        let mut ellipsis = 0;
        for (part, shape) in parts.iter().zip(shapes) {
            let named = names(part, None).map_err(bad)?.len();
            let others = shape.rank().checked_sub(named);
            let others = others.filter(|&n| n == 0 || part.contains("...")).ok_or_else(|| {
                let text = format!("{named} axes named, the operand is {shape:?}");
                fail(ErrorKind::Rank, text)
            })?;
            ellipsis = ellipsis.max(others);
            let own = names(part, Some(others)).map_err(bad)?;
            for (i, (&name, &size)) in own.iter().zip(shape.iter()).enumerate() {
                let twice = own[..i].iter().position(|&c| c == name).map(|j| shape[j]);
                let known = sizes.iter_mut().find(|(n, _)| *n == name);
                match (twice, known) {
                    (Some(other), _) if other != size => {
                        let text = format!("axis {name} is {other} and {size} in one operand");
                        return Err(fail(ErrorKind::Mismatch, text));
                    }
                    (_, Some((_, other))) if *other == 1 => *other = size,
                    (_, Some(&mut (_, other))) if other != size && size != 1 => {
                        let axis =
                            if name.is_alphabetic() { name.to_string() } else { "...".into() };
                        let text = format!("axis {axis} is {other} and {size}");
                        return Err(fail(ErrorKind::Mismatch, text));
                    }
                    (_, Some(_)) => {}
                    (_, None) => sizes.push((name, size)),
                }
            }
            inputs.push(own);
        }
        let size = |name: char| sizes.iter().find(|(n, _)| *n == name).map(|s| s.1);
        let output: Vec<char> = match right {
            Some(right) => names(right, Some(ellipsis)).map_err(bad)?,
            // As in NumPy: `...`, and the names that occur once, in alphabetical order.
            None => {
                let count = |c: char| left.chars().filter(|&d| d == c).count();
                let once = sizes.iter().map(|s| s.0).filter(|&c| count(c) == 1);
                let mut letters: Vec<char> = once.collect();
                letters.sort_unstable();
                (0..ellipsis).rev().map(of_ellipsis).chain(letters).collect()
            }
        };
        for (i, &c) in output.iter().enumerate() {
            if size(c).is_none() {
                let text = format!("axis {c} of the result is in no operand");
                return Err(fail(ErrorKind::Axis, text));
            }
            if output[..i].contains(&c) {
                return Err(fail(
                    ErrorKind::Axis,
                    format!("axis {c} of the result is named twice"),
                ));
            }
        }
        let broadcast = inputs.iter().zip(shapes).map(|(names, shape)| {
            let is_broadcast = |&i: &usize| shape[i] == 1 && size(names[i]) != Some(1);
            (0..names.len()).filter(is_broadcast).collect()
        });
        Ok(Subscripts { broadcast: broadcast.collect(), inputs, output })
    }
}

/// An operand with the names of its axes, all different.
#[derive(Clone)]
struct Named<A> {
    names: Vec<char>,
    x: A,
}

impl<A: EinsumOperand> Named<A> {
    /// Repeated names become diagonals.
    fn new(mut names: Vec<char>, mut x: A) -> Named<A> {
        while let Some((i, j)) = (0..names.len())
            .flat_map(|j| (0..j).map(move |i| (i, j)))
            .find(|&(i, j)| names[i] == names[j])
        {
            x = x.diagonal(i as isize, j as isize);
            let name = names.remove(j);
            names.remove(i);
            names.push(name);
        }
        Named { names, x }
    }

    /// Sums over all axes that are not `wanted`.
    fn sum_out(mut self, wanted: impl Fn(char) -> bool) -> Named<A> {
        while let Some(i) = self.names.iter().position(|&c| !wanted(c)) {
            self.x = self.x.sum_axis(i as isize);
            self.names.remove(i);
        }
        self
    }

    /// A batch of matrices whose rows and columns are groups of axes. Batch axes are merged only if
    /// the rank requires it, so that matmul can read as many operands as possible without a copy.
    fn matrices(&self, batch: &[char], rows: &[char], cols: &[char]) -> A {
        let product = |group: &[char]| group.iter().map(|&c| self.size(c)).product::<usize>();
        let mut sizes: Vec<usize> = batch.iter().map(|&c| self.size(c)).collect();
        if sizes.len() + 2 > MAX_RANK {
            sizes = vec![product(batch)];
        }
        sizes.extend([product(rows), product(cols)]);
        self.ordered(&[batch, rows, cols].concat()).reshape(&sizes)
    }

    fn ordered(&self, names: &[char]) -> A {
        if self.names == names {
            return self.x.clone();
        }
        self.x.permute(&names.iter().map(|&c| self.place(c) as isize).collect::<Vec<_>>())
    }

    fn place(&self, name: char) -> usize {
        self.names.iter().position(|&c| c == name).expect("an axis of this operand")
    }

    fn size(&self, name: char) -> usize {
        self.x.shape()[self.place(name)]
    }

    /// The product, summed over the common axes that are not `wanted`.
    fn product(&self, other: &Named<A>, wanted: impl Fn(char) -> bool) -> Named<A> {
        let both = |keep: bool| -> Vec<char> {
            let common = self.names.iter().filter(|c| other.names.contains(c));
            common.filter(|&&c| wanted(c) == keep).copied().collect()
        };
        let only = |a: &Named<A>, b: &Named<A>| -> Vec<char> {
            a.names.iter().filter(|c| !b.names.contains(c)).copied().collect()
        };
        let (batch, inner) = (both(true), both(false));
        let (rows, cols) = (only(self, other), only(other, self));
        if rows.is_empty() && cols.is_empty() {
            // Matrices of one row and one column would be many small products.
            let names = [&batch[..], &inner[..]].concat();
            let x = self.ordered(&names).mul(&other.ordered(&names));
            return Named { names, x }.sum_out(|c| batch.contains(&c));
        }
        let left = self.matrices(&batch, &rows, &inner);
        let right = other.matrices(&batch, &inner, &cols);
        let names = [batch.clone(), rows.clone(), cols.clone()].concat();
        let sizes: Vec<usize> = batch
            .iter()
            .chain(&rows)
            .map(|&c| self.size(c))
            .chain(cols.iter().map(|&c| other.size(c)))
            .collect();
        Named { names, x: left.matmul(&right).reshape(&sizes) }
    }
}

/// Einsum over any operands; operands are multiplied from left to right.
///
/// ```
/// use retrograd::prelude::*;
/// let a = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(Tensor::einsum("ij->ji", &[&a]).to_vec(), [1.0, 3.0, 2.0, 4.0]);
/// ```
#[inline(never)]
#[track_caller]
pub fn einsum<A: EinsumOperand>(formula: &str, operands: &[&A]) -> A {
    let shapes: Vec<Shape> = operands.iter().map(|x| x.shape()).collect();
    let Subscripts { inputs, broadcast, output } = Subscripts::parse(formula, &shapes).or_panic();
    // What is constant along an axis need not have it: the others do.
    let without = |(names, gone): (Vec<char>, Vec<usize>), x: &A| {
        if gone.is_empty() {
            return Named::new(names, x.clone());
        }
        let kept = |i: &usize| !gone.contains(i);
        let dims: Vec<usize> = (0..names.len()).filter(kept).map(|i| x.shape()[i]).collect();
        Named::new((0..names.len()).filter(kept).map(|i| names[i]).collect(), x.reshape(&dims))
    };
    let mut rest: std::collections::VecDeque<Named<A>> =
        inputs.into_iter().zip(broadcast).zip(operands).map(|(of, &x)| without(of, x)).collect();
    let wanted = |c: char, rest: &std::collections::VecDeque<Named<A>>| {
        output.contains(&c) || rest.iter().any(|o| o.names.contains(&c))
    };
    let first = rest.pop_front().expect("a formula names at least one operand");
    let mut acc = first.sum_out(|c| wanted(c, &rest));
    while let Some(next) = rest.pop_front() {
        let next = next.sum_out(|c| wanted(c, &rest) || acc.names.contains(&c));
        acc = acc.product(&next, |c| wanted(c, &rest));
    }
    acc.ordered(&output)
}

/// # Einstein summation
impl<T: Real> Tensor<T> {
    /// Einstein summation: axes are named by letters, those missing from the result are
    /// summed over, and repeated letters within an operand take a diagonal.
    ///
    /// Products are matrix products over the common axes, from left to right, or elementwise products and a sum if
    /// all axes are common. Without `->`
    /// the result has the letters that occur once, in alphabetical order. `...` stands for the axes that
    /// are not named; in several operands they are aligned at the last one. An axis of size 1 is broadcast
    /// to the axis of the same name in other operands.
    ///
    /// # Panics
    /// If the formula does not fit the operands.
    ///
    /// ```
    /// use retrograd::prelude::*;
    /// let q = Tensor::<f32>::ones([1, 2, 3, 4]); // batch, query, head, width
    /// let k = Tensor::<f32>::ones([1, 5, 3, 4]);
    /// let scores = Tensor::einsum("bqhd,bkhd->bhqk", &[&q, &k]);
    /// assert_eq!(*scores.shape(), [1, 3, 2, 5]);
    /// assert_eq!(scores.at(&[0, 0, 0, 0]), 4.0);
    /// let products = Tensor::einsum("...ij,jk->...ik", &[&q, &Tensor::ones([4, 7])]);
    /// assert_eq!(*products.shape(), [1, 2, 3, 7]);
    /// ```
    #[track_caller]
    pub fn einsum(formula: &str, operands: &[&Tensor<T>]) -> Tensor<T> {
        einsum(formula, operands)
    }
}
