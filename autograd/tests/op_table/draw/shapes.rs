//! Shapes of operands, by kind of operation.

use super::*;

fn at_least(case: &Case, rank: usize) -> Vec<usize> {
    let mut sizes = case.sizes.clone();
    while sizes.len() < rank {
        sizes.push([3, 2, 4, 1][sizes.len()]);
    }
    sizes
}

fn one(dims: Vec<usize>) -> Vec<Shape> {
    vec![dims.into()]
}

pub fn any(case: &Case) -> Vec<Shape> {
    one(case.sizes.clone())
}

pub fn pair(case: &Case) -> Vec<Shape> {
    (0..2).map(|k| case.thinner(k, &case.sizes)).collect()
}

pub fn triple(case: &Case) -> Vec<Shape> {
    (0..3).map(|k| case.thinner(k, &case.sizes)).collect()
}

/// Two of the same shape, not empty.
pub fn equal_pair(case: &Case) -> Vec<Shape> {
    let dims: Vec<usize> = case.sizes.iter().map(|&d| d.max(1)).collect();
    vec![dims.into(); 2]
}

/// A tensor of at least one axis.
pub fn line(case: &Case) -> Vec<Shape> {
    one(at_least(case, 1))
}

/// Few elements.
pub fn short_line(case: &Case) -> Vec<Shape> {
    one(case.sizes.iter().take(2).map(|&d| d.min(3)).collect())
}

pub fn matrix(case: &Case) -> Vec<Shape> {
    one(at_least(case, 2))
}

/// A matrix, not a batch.
pub fn plane(case: &Case) -> Vec<Shape> {
    one(matrix(case)[0][..2].to_vec())
}

pub fn short_vector(case: &Case) -> Vec<Shape> {
    one(vec![if case.large { 500 } else { at_least(case, 1)[0] }])
}

/// Few elements along the last axis, of which matrices are made.
pub fn narrow_line(case: &Case) -> Vec<Shape> {
    let mut dims = at_least(case, 1);
    let last = dims.len() - 1;
    dims[last] = dims[last].min(if case.large { 9 } else { 4 });
    one(dims)
}

pub fn square_matrix(case: &Case) -> Vec<Shape> {
    let n = if case.large { 520 } else { at_least(case, 1)[0].min(14) };
    one(vec![n, n])
}

pub fn filled(case: &Case) -> Vec<Shape> {
    one(case.sizes.iter().map(|&d| d.max(1)).collect())
}

/// The chosen axis is not empty.
pub fn filled_line(case: &Case) -> Vec<Shape> {
    let mut dims = at_least(case, 1);
    let axis = case.axis_of(dims.len());
    dims[axis] = dims[axis].max(1);
    one(dims)
}

/// The chosen axes are not empty.
pub fn reduced(case: &Case) -> Vec<Shape> {
    let mut dims = case.sizes.clone();
    case.axes_of(dims.len()).iter().for_each(|i| dims[i] = dims[i].max(1));
    one(dims)
}

/// The chosen axes have at least two elements.
pub fn reduced2(case: &Case) -> Vec<Shape> {
    let mut dims = at_least(case, 1);
    case.axes_of(dims.len()).iter().for_each(|i| dims[i] = dims[i].max(2));
    if !case.large {
        dims = limited(dims).iter().map(|&d| d.max(2)).collect();
    }
    one(dims)
}

fn with_last(case: &Case, least: usize, parameters: usize) -> Vec<Shape> {
    let mut dims = at_least(case, 1);
    let last = dims.len() - 1;
    dims[last] = dims[last].max(least);
    let parameter = Shape::from([dims[last]]);
    [&[dims.into()][..], &vec![parameter; parameters]].concat()
}

pub fn rows2(case: &Case) -> Vec<Shape> {
    with_last(case, 2, 0)
}
pub fn rows2_weight(case: &Case) -> Vec<Shape> {
    with_last(case, 2, 1)
}
pub fn rows2_weight_bias(case: &Case) -> Vec<Shape> {
    with_last(case, 2, 2)
}
pub fn rows_weight(case: &Case) -> Vec<Shape> {
    with_last(case, 0, 1)
}
pub fn rows_weight_bias(case: &Case) -> Vec<Shape> {
    with_last(case, 0, 2)
}
/// Matrices of at least two columns, not empty, as the last two axes.
pub fn matrices(case: &Case) -> Vec<Shape> {
    let mut dims = at_least(case, 2);
    let n = dims.len();
    (dims[n - 2], dims[n - 1]) = (dims[n - 2].max(1), dims[n - 1].max(2));
    one(dims)
}

/// The same with two parameters of their shape.
pub fn matrices_weight_bias(case: &Case) -> Vec<Shape> {
    let x = matrices(case)[0];
    let parameter = Shape::from(&x[x.rank() - 2..]);
    vec![x, parameter, parameter]
}

pub fn classes(case: &Case) -> Vec<Shape> {
    with_last(case, 1, 0)
}

/// An input of a convolution, and its taps.
pub fn convolution(case: &Case) -> Vec<Shape> {
    let mut x = at_least(case, 2);
    let (rank, taps) = (x.len(), 1 + case.below(6));
    x[rank - 2] += taps - 1;
    vec![x[..].into(), [taps, x[rank - 1]].into()]
}

/// The vectors q, k, a and b of a recurrence, one after the other; its values and its first state; decays.
pub fn recurrence(case: &Case) -> Vec<Shape> {
    let [l, dk, dv] = match case.large {
        true => [100, 40, 36],
        false => three_sizes(case),
    };
    let heads = if case.large { 24 } else { 1 + case.below(2) };
    let of = |rows: usize, width: usize| Shape::from([1, heads, rows, width]);
    let decay = if case.flag() { of(l, dk) } else { Shape::from([heads, 1, 1]) };
    vec![of(4 * l, dk), of(l + dk, dv), decay]
}

pub fn recurrence_without_decay(case: &Case) -> Vec<Shape> {
    recurrence(case)[..2].to_vec()
}

/// At least one token.
pub fn steps(case: &Case) -> Vec<Shape> {
    let mut sizes = at_least(case, 1);
    sizes[0] = sizes[0].max(1);
    recurrence(&Case { sizes, ..case.clone() })
}

fn three_sizes(case: &Case) -> [usize; 3] {
    if case.large {
        return [200, 190, 210];
    }
    let dims = at_least(case, 3);
    [dims[0].min(12), dims[1].min(9), dims[2].min(11)]
}

/// Inputs of a linear layer and its weight.
pub fn linear(case: &Case) -> Vec<Shape> {
    let [rows, width, classes] = three_sizes(case);
    // At least one class, since a target is a class.
    vec![[rows, width].into(), [classes.max(1), width].into()]
}

/// Inputs of a linear layer, its weight and its bias; with leading axes or without.
pub fn affine(case: &Case) -> Vec<Shape> {
    let [rows, width, outputs] = three_sizes(case);
    let x: Shape = match case.thin[0] % 3 {
        0 if !case.large => [width].into(),
        1 if !case.large => [2, rows, width].into(),
        _ => [rows, width].into(),
    };
    vec![x, [outputs, width].into(), [outputs].into()]
}

/// Inputs of a feed-forward network and its weights.
pub fn feed_forward(case: &Case) -> Vec<Shape> {
    let [rows, width, inner] = three_sizes(case);
    let outputs = if case.large { 70 } else { case.below(5) };
    vec![[rows, width].into(), [inner, width].into(), [outputs, inner].into()]
}

/// Operands of a matrix product: matrices, vectors, batches, in all combinations.
pub fn factors(case: &Case) -> Vec<Shape> {
    let [m, k, n] = three_sizes(case);
    let batch = if case.large { 4 } else { case.below(3) };
    let (a, b): (Vec<usize>, Vec<usize>) = match case.thin[0] % 8 {
        0 => (vec![m, k], vec![k, n]),
        1 => (vec![k], vec![k, n]),
        2 => (vec![m, k], vec![k]),
        3 => (vec![k], vec![k]),
        4 => (vec![batch, m, k], vec![batch, k, n]),
        5 => (vec![batch, m, k], vec![k, n]),
        6 => (vec![m, k], vec![batch, k, n]),
        _ => (vec![2, 1, m, k], vec![batch, k, n]),
    };
    vec![a.into(), b.into()]
}

pub fn square_factors(case: &Case) -> Vec<Shape> {
    let [n, ..] = three_sizes(case);
    vec![[n, n].into(), [n, n].into()]
}

pub fn plain_factors(case: &Case) -> Vec<Shape> {
    let [m, k, n] = three_sizes(case);
    vec![[m, k].into(), [k, n].into()]
}

pub fn batched_factors(case: &Case) -> Vec<Shape> {
    let [m, k, n] = three_sizes(case);
    vec![[3, m, k].into(), [3, k, n].into()]
}

/// Matrices in batches that broadcast together, of up to two axes.
pub fn factors_of_any_batch(case: &Case) -> Vec<Shape> {
    let [m, k, n] = three_sizes(case);
    let (a, b): (&[usize], &[usize]) = match case.thin[0] % 5 {
        _ if case.large => (&[2, 2], &[2]),
        0 => (&[], &[]),
        1 => (&[2], &[]),
        2 => (&[2, 1], &[3]),
        3 => (&[1], &[2, 3]),
        _ => (&[2], &[2]),
    };
    vec![[a, &[m, k]].concat().into(), [b, &[k, n]].concat().into()]
}

/// Two matrices whose axes have equal sizes, or 1.
pub fn pair_of_matrices(case: &Case) -> Vec<Shape> {
    let dims = &plane(case)[0];
    let whole = Case { short: [0; 3], ..case.clone() };
    (0..2).map(|k| whole.thinner(k, dims)).collect()
}

pub fn bilinear(case: &Case) -> Vec<Shape> {
    let [m, k, _] = three_sizes(case);
    vec![[m].into(), [m, k].into(), [k].into()]
}

pub fn vectors(case: &Case) -> Vec<Shape> {
    let n = at_least(case, 1).iter().product::<usize>();
    vec![[n].into(), [n].into()]
}

pub fn any_vectors(case: &Case) -> Vec<Shape> {
    if case.large {
        return vec![[500].into(), [601].into()];
    }
    let [m, k, _] = three_sizes(case);
    vec![[m].into(), [k].into()]
}

fn on_axis(case: &Case, dims: &[usize], size: usize) -> Shape {
    Shape::from(dims).with(case.axis_of(dims.len()), size).unwrap()
}

pub fn scatter(case: &Case) -> Vec<Shape> {
    let to = filled_line(case)[0];
    let mut from = to.to_vec();
    for (i, d) in from.iter_mut().enumerate() {
        *d -= usize::from(*d > 1 && case.thin[1] >> i & 1 == 1);
    }
    let size = case.up_to(2 * to[case.axis_of(to.rank())]);
    vec![to, on_axis(case, &from, size)]
}

/// A tensor, and values that broadcast to those at its indices.
pub fn assigned(case: &Case) -> Vec<Shape> {
    let x = line(case)[0];
    let view = Layout::contiguous(x).index("case", &case.indices(&x)).unwrap();
    vec![x, case.thinner(1, view.shape())]
}

/// A tensor, and values that broadcast to one of its slices.
pub fn with_slice(case: &Case) -> Vec<Shape> {
    let x = filled_line(case)[0];
    vec![x, case.thinner(1, &x.without(case.axis_of(x.rank())))]
}

/// A tensor, and one with every other of its elements.
pub fn with_gaps(case: &Case) -> Vec<Shape> {
    let part = line(case)[0];
    vec![case.doubled(&part), part]
}

pub fn line_and_number(case: &Case) -> Vec<Shape> {
    vec![line(case)[0], Shape::SCALAR]
}

pub fn index_addition(case: &Case) -> Vec<Shape> {
    let to = filled_line(case)[0];
    let size = case.up_to(2 * to[case.axis_of(to.rank())]);
    vec![to, on_axis(case, &to, size)]
}

pub fn table(case: &Case) -> Vec<Shape> {
    let dims = at_least(case, 2);
    one(vec![dims[0].max(1) * if case.large { 50 } else { 1 }, dims[dims.len() - 1]])
}

/// Equal shapes except along the chosen axis.
pub fn parts(case: &Case) -> Vec<Shape> {
    let dims = at_least(case, 1);
    let size = dims[case.axis_of(dims.len())];
    let part = |k: usize| on_axis(case, &dims, size + case.thin[k] as usize % 3);
    (0..3).map(part).collect()
}

pub fn equals(case: &Case) -> Vec<Shape> {
    let dims = case.sizes[..case.sizes.len().min(3)].to_vec();
    vec![dims.into(); 3]
}

/// The chosen axis has one element.
pub fn with_one(case: &Case) -> Vec<Shape> {
    let dims = at_least(case, 1);
    if case.large {
        let mut dims = dims;
        dims[0] *= dims[1];
        dims.swap_remove(1);
        dims.insert(case.axis_of(3), 1);
        return one(dims);
    }
    vec![on_axis(case, &dims, 1)]
}
