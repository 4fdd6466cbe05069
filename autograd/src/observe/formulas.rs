//! The formulas of operations, as text.
//!
//! `x`, `z`, `w`, `b` are inputs, `y` is the result, `g` its gradient, and `dx` the gradient of `x`. `·`
//! between tensors is elementwise, and `A B` a matrix product. Formulas of pointwise operations are
//! printed from their code.

use retrograd_tensor::ops::pointwise::{self, ForEachOp, Pointwise};
use retrograd_tensor::ops::{activation, unary};
use std::sync::LazyLock;

/// The formula of an operation, and that of its vector-Jacobian product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formula {
    /// The result: `y = tanh(x)`.
    pub forward: &'static str,
    /// The gradients of the inputs, one in a line: `dx = g · (1 − y²)`. Gradients of inputs that were
    /// broadcast are also summed over these axes.
    pub backward: &'static str,
}

/// The formula of an operation of the library by its name; `None` for operations of other crates.
///
/// ```
/// use retrograd_autograd::observe::formula;
/// assert_eq!(formula("tanh").unwrap().backward, "dx = g · (1 − y²)");
/// assert!(formula("mine").is_none());
/// ```
pub fn formula(operation: &str) -> Option<Formula> {
    let mut pointwise = POINTWISE.0.iter().map(|(name, y, dx)| (*name, y.as_str(), dx.as_str()));
    let found = |(name, ..): &(&str, &str, &str)| *name == operation;
    let (_, forward, backward) =
        pointwise.find(found).or_else(|| FORMULAS.iter().copied().find(found))?;
    Some(Formula { forward, backward })
}

/// Names and formulas of the pointwise operations.
static POINTWISE: LazyLock<Printed> = LazyLock::new(|| {
    let mut printed = Printed(Vec::new());
    activation::for_each(&mut printed);
    unary::for_each(&mut printed);
    printed
});

struct Printed(Vec<(&'static str, String, String)>);

impl ForEachOp<f32> for Printed {
    fn op<P: Pointwise<f32>>(&mut self, op: P) {
        let pointwise::Formula { f, vjp } = pointwise::Formula::of(op);
        self.0.push((P::NAME, format!("y = {f}"), format!("dx = {vjp}")));
    }
}

/// Names, formulas, and formulas of gradients.
const FORMULAS: &[(&str, &str, &str)] = &[
    // Two operands.
    ("add", "y = x + z", "dx = g\ndz = g"),
    ("sub", "y = x − z", "dx = g\ndz = −g"),
    ("mul", "y = x · z", "dx = g · z\ndz = g · x"),
    ("div", "y = x / z", "dx = g / z\ndz = −g · x / z²"),
    ("pow", "y = x^z", "dx = g · z · x^(z − 1)\ndz = g · y · ln(x)"),
    (
        "maximum",
        "y = x if x > z else z",
        "dx = g where x > z, g/2 where equal\ndz = g where z > x, g/2 where equal",
    ),
    (
        "minimum",
        "y = x if x < z else z",
        "dx = g where x < z, g/2 where equal\ndz = g where z < x, g/2 where equal",
    ),
    ("remainder", "y = x − z · ⌊x / z⌋", "dx = g\ndz = −g · ⌊x / z⌋"),
    (
        "fmod",
        "y = x − z · (x / z without its fraction)",
        "dx = g\ndz = −g · (x / z without its fraction)",
    ),
    ("atan2", "y = angle of the point (z, x)", "dx = g · z / (x² + z²)\ndz = −g · x / (x² + z²)"),
    ("hypot", "y = √(x² + z²)", "dx = g · x / y\ndz = g · z / y"),
    // Sums and other reductions.
    ("sum", "y = Σ x, over the axes", "dx = g, for each element of the sum"),
    ("mean", "y = Σ x / n", "dx = g / n, for each element"),
    ("prod", "y = Π x, over the axis", "dx = g · the product of the others"),
    ("cumsum", "y_i = x_0 + … + x_i", "dx_i = g_i + … + g_n"),
    (
        "cumprod",
        "y_i = x_0 · … · x_i",
        "dx_i = Σ_{j ≥ i} g_j · the product of x_0 … x_j without x_i",
    ),
    ("sum_to", "y = Σ x, over the axes that broadcasting added", "dx = g, broadcast"),
    ("max", "y = max x, over the axis", "dx = g at the largest element, divided among equal ones"),
    ("min", "y = min x, over the axis", "dx = g at the smallest element, divided among equal ones"),
    ("amax", "y = max x, over the axes", "dx = g at the largest element, divided among equal ones"),
    (
        "amin",
        "y = min x, over the axes",
        "dx = g at the smallest element, divided among equal ones",
    ),
    ("norm", "y = √(Σ x²)", "dx = g · x / y"),
    ("vector_norm", "y = (Σ |x|^p)^(1/p)", "dx = g · sign(x) · |x|^(p − 1) / y^(p − 1)"),
    ("logsumexp", "y = ln Σ e^x, over the axis", "dx = g · e^(x − y)"),
    (
        "quantile",
        "y = x_(q), between two sorted elements",
        "dx = g at these elements, by their weights",
    ),
    // Rows.
    ("softmax", "y = e^x / Σ e^x, over the axis", "dx = y · (g − Σ g · y)"),
    ("log_softmax", "y = x − ln Σ e^x, over the axis", "dx = g − e^y · Σ g"),
    (
        "layer_norm",
        "y = n · w + b, n = (x − mean) / √(var + ε), over the last axis",
        "dx = (h − mean(h) − n · mean(h · n)) / √(var + ε), h = g · w\ndw = Σ g · n, over the rows\ndb = Σ g",
    ),
    (
        "rms_norm",
        "y = n · w, n = x / √(mean(x²) + ε), over the last axis",
        "dx = (h − n · mean(h · n)) / √(mean(x²) + ε), h = g · w\ndw = Σ g · n, over the rows",
    ),
    (
        "cross_entropy",
        "y = −ln softmax(x)[target], averaged over the targets",
        "dx = g · (softmax(x) − onehot(target)) / n",
    ),
    ("nll_loss", "y = −x[target], averaged over the targets", "dx = −g / n at the targets, else 0"),
    (
        "binary_cross_entropy",
        "y = −t · ln(x) − (1 − t) · ln(1 − x)",
        "dx = g · (x − t) / (x · (1 − x))",
    ),
    // Products.
    ("matmul", "y = x z", "dx = g zᵀ\ndz = xᵀ g"),
    ("linear", "y = x wᵀ + b + r", "dx = g w\ndw = gᵀ x\ndb = Σ g, over the rows\ndr = g"),
    (
        "linear_activation",
        "y = f(u), u = x wᵀ + b",
        "dx = h w, h = g · f'(u)\ndw = hᵀ x\ndb = Σ h, over the rows",
    ),
    (
        "feed_forward",
        "y = f(u) wᵀ + b + r, u = x vᵀ + a",
        "dx = h v, h = (g w) · f'(u)\ndv = hᵀ x\nda = Σ h\ndw = gᵀ f(u)\ndb = Σ g\ndr = g",
    ),
    (
        "linear_cross_entropy",
        "y = −ln softmax(x wᵀ)[target], averaged over the targets",
        "dx = h w, h = g · (softmax(x wᵀ) − onehot(target)) / n\ndw = hᵀ x",
    ),
    (
        "einsum",
        "y = Σ x · z, over the indices that y lacks",
        "dx = einsum(g, z)\ndz = einsum(g, x)",
    ),
    // Attention.
    (
        "attention",
        "y = p v, p = softmax(q kᵀ · scale + bias, masked)",
        "dv = pᵀ g\ndq = s k · scale, s = p · (g vᵀ − Σ g · y)\ndk = sᵀ q · scale",
    ),
    ("attention_scores", "y = q kᵀ, 0 where masked", "dq = g k\ndk = gᵀ q"),
    ("attention_mix", "y = p v, without masked elements", "dp = g vᵀ\ndv = pᵀ g"),
    (
        "additive_scores",
        "y = Σ w · tanh(q + k), over the last axis",
        "dq = Σ_k h, h = g · w · (1 − t²), t = tanh(q + k)\ndk = Σ_q h\ndw = Σ g · t",
    ),
    ("rope", "y = x, pairs of elements rotated by angles of the position", "dx = g, rotated back"),
    // Views and copies.
    ("reshape", "y = x in another shape", "dx = g in the shape of x"),
    ("permute", "y = x with its axes in another order", "dx = g with its axes in the order of x"),
    ("broadcast_to", "y = x, repeated along axes", "dx = Σ g, over these axes"),
    ("narrow", "y = x, a range of an axis", "dx = g in this range, else 0"),
    ("select", "y = x at one index of an axis", "dx = g at this index, else 0"),
    ("slice", "y = x, every n-th index of a range", "dx = g at these indices, else 0"),
    ("index", "y = x at ranges and indices", "dx = g at these places, else 0"),
    ("diagonal", "y_i = x_ii", "dx_ii = g_i, else 0"),
    ("unfold", "y = x, overlapping windows of an axis", "dx = Σ g, over the windows of an element"),
    ("as_strided", "y = x at strides", "dx = Σ g, where elements of y are the same element of x"),
    ("as_strided_adjoint", "y = Σ x, scattered to strides", "dx = g at these strides"),
    (
        "as_strided_scatter",
        "y = x with z at strides",
        "dx = g, 0 at these strides\ndz = g at these strides",
    ),
    ("flip", "y = x, reversed along axes", "dx = g, reversed along them"),
    ("roll", "y = x, rotated along an axis", "dx = g, rotated back"),
    ("pad", "y = x with a border of c", "dx = g without the border"),
    ("cat", "y = the inputs, one after the other", "dx_i = the part of g that is input i"),
    (
        "where",
        "y = x where the condition holds, else z",
        "dx = g where it holds, else 0\ndz = g where it does not, else 0",
    ),
    ("masked_fill", "y = c where the mask holds, else x", "dx = 0 where it holds, else g"),
    ("dropout", "y = x · m / (1 − p), m = 0 with probability p, else 1", "dx = g · m / (1 − p)"),
    // Indices.
    ("embedding", "y = w[i], a row for each index", "dw[i] = Σ g, over the places of i"),
    ("embedding_adjoint", "y[i] = Σ x, over the places of i", "dx = g[i]"),
    ("gather", "y = x[i], along an axis", "dx[i] += g"),
    ("index_select", "y = x[i], whole slices", "dx[i] += g"),
    ("index_add", "y = x, y[i] += z", "dx = g\ndz = g[i]"),
    ("scatter", "y = x, y[i] = z", "dx = g, 0 at i\ndz = g[i]"),
    ("scatter_add", "y = x, y[i] += z", "dx = g\ndz = g[i]"),
    ("scatter_prod", "y = x, y[i] ·= z", "dx = g · the factors\ndz = g[i] · the other factors"),
    (
        "scatter_amax",
        "y = x, y[i] = max(y[i], z)",
        "dx, dz = g at the largest, divided among equal ones",
    ),
    (
        "scatter_amin",
        "y = x, y[i] = min(y[i], z)",
        "dx, dz = g at the smallest, divided among equal ones",
    ),
    ("alias", "y = x", "dx = g"),
];
