//! Einstein summation: products and sums specified by the names of the axes.
//!
//! The rules use the operations of a trait only ([`Operand`]), which both tensors and
//! differentiable variables implement.

use crate::error::{ErrorKind, OrPanic, Result, ShapeError};
use crate::kernels::Real;
use crate::shape::{MAX_RANK, Shape};
use crate::tensor::Tensor;

/// The operations that einsum uses on its operands.
pub trait Operand: Clone {
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
}

impl<T: Real> Operand for Tensor<T> {
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
}

/// The parsed subscripts of a formula: the axis names of each operand and of the result.
struct Subscripts {
    inputs: Vec<Vec<char>>,
    output: Vec<char>,
}

impl Subscripts {
    fn parse(text: &str, shapes: &[Shape]) -> Result<Subscripts> {
        let fail =
            |kind, why: String| Err(ShapeError::new("einsum", kind, format!("\"{text}\": {why}")));
        let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match compact.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (compact.as_str(), None),
        };
        let inputs: Vec<Vec<char>> = left.split(',').map(|s| s.chars().collect()).collect();
        if let Some(c) = left
            .chars()
            .chain(right.unwrap_or("").chars())
            .find(|c| !c.is_alphabetic() && *c != ',')
        {
            return fail(ErrorKind::Value, format!("axes are named by letters, not {c:?}"));
        }
        if inputs.len() != shapes.len() {
            return fail(
                ErrorKind::Rank,
                format!("{} operands named, {} given", inputs.len(), shapes.len()),
            );
        }
        let mut sizes: Vec<(char, usize)> = Vec::new();
        for (names, shape) in inputs.iter().zip(shapes) {
            if names.len() != shape.rank() {
                return fail(
                    ErrorKind::Rank,
                    format!("{} axes named, the operand is {shape:?}", names.len()),
                );
            }
            for (&name, &size) in names.iter().zip(shape.iter()) {
                match sizes.iter().find(|(n, _)| *n == name) {
                    Some(&(_, other)) if other != size => {
                        return fail(
                            ErrorKind::Mismatch,
                            format!("axis {name} is {other} and {size}"),
                        );
                    }
                    Some(_) => {}
                    None => sizes.push((name, size)),
                }
            }
        }
        let output: Vec<char> = match right {
            Some(right) => right.chars().collect(),
            // As in NumPy: the names that occur once, in alphabetical order.
            None => {
                let count = |c: char| left.chars().filter(|&d| d == c).count();
                let mut names: Vec<char> =
                    sizes.iter().map(|s| s.0).filter(|&c| count(c) == 1).collect();
                names.sort_unstable();
                names
            }
        };
        for (i, c) in output.iter().enumerate() {
            if !sizes.iter().any(|(n, _)| n == c) {
                return fail(ErrorKind::Axis, format!("axis {c} of the result is in no operand"));
            }
            if output[..i].contains(c) {
                return fail(ErrorKind::Axis, format!("axis {c} of the result is named twice"));
            }
        }
        Ok(Subscripts { inputs, output })
    }
}

/// An operand with the names of its axes, all different.
#[derive(Clone)]
struct Named<A> {
    names: Vec<char>,
    x: A,
}

impl<A: Operand> Named<A> {
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
/// # use retrograd_tensor::Tensor;
/// let a = Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]);
/// assert_eq!(Tensor::einsum("ij->ji", &[&a]).to_vec(), [1.0, 3.0, 2.0, 4.0]);
/// ```
#[inline(never)]
#[track_caller]
pub fn einsum<A: Operand>(formula: &str, operands: &[&A]) -> A {
    let shapes: Vec<Shape> = operands.iter().map(|x| x.shape()).collect();
    let Subscripts { inputs, output } = Subscripts::parse(formula, &shapes).or_panic();
    let mut rest: std::collections::VecDeque<Named<A>> =
        inputs.into_iter().zip(operands).map(|(names, &x)| Named::new(names, x.clone())).collect();
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
    /// Products are matrix products over the common axes, from left to right. Without `->`
    /// the result has the letters that occur once, in alphabetical order.
    ///
    /// # Panics
    /// If the formula does not fit the operands.
    ///
    /// ```
    /// use retrograd_tensor::Tensor;
    /// let q = Tensor::<f32>::ones([1, 2, 3, 4]); // batch, query, head, width
    /// let k = Tensor::<f32>::ones([1, 5, 3, 4]);
    /// let scores = Tensor::einsum("bqhd,bkhd->bhqk", &[&q, &k]);
    /// assert_eq!(*scores.shape(), [1, 3, 2, 5]);
    /// assert_eq!(scores.at(&[0, 0, 0, 0]), 4.0);
    /// ```
    #[track_caller]
    pub fn einsum(formula: &str, operands: &[&Tensor<T>]) -> Tensor<T> {
        einsum(formula, operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x(shape: &[usize]) -> Tensor<f64> {
        let mut n = 0.0;
        Tensor::from_fn(shape, |_| {
            n += 1.0;
            n
        })
    }

    #[test]
    fn classic_forms() {
        let (a, b) = (x(&[2, 3]), x(&[3, 4]));
        assert_eq!(Tensor::einsum("ij,jk->ik", &[&a, &b]), a.matmul(&b));
        assert_eq!(Tensor::einsum("ij,jk", &[&a, &b]), a.matmul(&b));
        assert_eq!(Tensor::einsum("ij->ji", &[&a]), a.t());
        assert_eq!(Tensor::einsum("ij->", &[&a]).item(), 21.0);
        assert_eq!(Tensor::einsum("ij,ij->i", &[&a, &a]), a.square().sum(1));
        let s = x(&[3, 3]);
        assert_eq!(Tensor::einsum("ii->", &[&s]).item(), 15.0);
        assert_eq!(Tensor::einsum("ii->i", &[&s]).to_vec(), [1.0, 5.0, 9.0]);
        let v = x(&[3]);
        assert_eq!(Tensor::einsum("i,j->ij", &[&v, &v]), v.outer(&v));
        assert_eq!(
            Tensor::einsum("ij,jk,k->i", &[&a, &b, &x(&[4])]),
            a.matmul(&b.matmul(&x(&[4])))
        );
        assert_eq!(Tensor::einsum("ij,kj->ki", &[&a, &x(&[0, 3])]).shape()[..], [0, 2]);
    }

    #[test]
    fn bad_formulas() {
        let e = |f: &str| {
            Subscripts::parse(f, &[[2, 3].into(), [3, 4].into()]).err().unwrap().to_string()
        };
        assert_eq!(e("ij,ik->jk"), "einsum: \"ij,ik->jk\": axis i is 2 and 3");
        assert_eq!(e("ij->ij"), "einsum: \"ij->ij\": 1 operands named, 2 given");
        assert!(e("ij,jk->iz").contains("axis z of the result is in no operand"));
        assert!(e("ij,jk->ii").contains("named twice"));
        assert!(e("ij,j.->i").contains("letters"));
    }
}
