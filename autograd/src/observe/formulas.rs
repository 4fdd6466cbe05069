//! The formulas of operations, as text.
//!
//! `x`, `z`, `w`, `b` are inputs, `y` is the result, `g` its gradient, and `dx` the gradient of `x`. `·`
//! between tensors is elementwise, and `A B` a matrix product. Formulas of pointwise operations are
//! expressions that a test evaluates and compares with the kernels: `e^(x)`, `|x|`, `√(x)`, `x²`, and
//! `a if x > 0 else b`.

use crate::operation::Formula;

/// The formula of a pointwise operation of the library by its name.
pub(crate) fn formula(operation: &str) -> Option<Formula> {
    let place = FORMULAS.iter().position(|(name, ..)| *name == operation)?;
    let (_, forward, backward) = FORMULAS[place];
    Some(Formula { forward: forward.into(), backward: backward.into() })
}

/// Names, formulas, and formulas of gradients.
const FORMULAS: &[(&str, &str, &str)] = &[
    // One number.
    ("neg", "y = −x", "dx = −g"),
    ("abs", "y = |x|", "dx = g · sign(x)"),
    ("sign", "y = sign(x)", "dx = 0"),
    ("floor", "y = ⌊x⌋", "dx = 0"),
    ("ceil", "y = ⌈x⌉", "dx = 0"),
    ("round", "y = x to the nearest integer, ties to even", "dx = 0"),
    ("trunc", "y = x without its fraction", "dx = 0"),
    ("square", "y = x²", "dx = g · 2 · x"),
    (
        "huber",
        "y = x²/2 if |x| ≤ delta else delta · (|x| − delta/2)",
        "dx = g · x if |x| ≤ delta else g · delta · sign(x)",
    ),
    ("sqrt", "y = √(x)", "dx = g / (2 · y)"),
    ("rsqrt", "y = 1 / √(x)", "dx = −g · y · y² / 2"),
    ("recip", "y = 1 / x", "dx = −g · y²"),
    ("exp", "y = e^(x)", "dx = g · y"),
    ("expm1", "y = e^(x) − 1", "dx = g · (y + 1)"),
    ("ln", "y = ln(x)", "dx = g / x"),
    ("log1p", "y = ln(1 + x)", "dx = g / (1 + x)"),
    ("sin", "y = sin(x)", "dx = g · cos(x)"),
    ("cos", "y = cos(x)", "dx = −g · sin(x)"),
    ("erf", "y = erf(x)", "dx = g · 2 / √(π) · e^(−x²)"),
    ("powf", "y = x^p", "dx = g · p · x^(p − 1)"),
    ("add_scalar", "y = x + c", "dx = g"),
    ("mul_scalar", "y = x · c", "dx = g · c"),
    ("clamp", "y = x between lo and hi", "dx = g where lo ≤ x ≤ hi, else 0"),
    (
        "nan_to_num",
        "y = x, or another number where x is not finite",
        "dx = g where x is finite, else 0",
    ),
    // Activations.
    ("relu", "y = x if x > 0 else 0", "dx = g if y > 0 else 0"),
    ("relu_squared", "y = x² if x > 0 else 0", "dx = g · 2 · x if x > 0 else 0"),
    ("leaky_relu", "y = x if x > 0 else slope · x", "dx = g if x > 0 else g · slope"),
    ("elu", "y = x if x > 0 else alpha · (e^(x) − 1)", "dx = g if x > 0 else g · alpha · e^(x)"),
    ("sigmoid", "y = σ(x)", "dx = g · y · (1 − y)"),
    ("tanh", "y = tanh(x)", "dx = g · (1 − y²)"),
    ("silu", "y = x · σ(x)", "dx = g · σ(x) · (1 + x · (1 − σ(x)))"),
    ("softsign", "y = x / (1 + |x|)", "dx = g / (1 + |x|)²"),
    (
        "hardswish",
        "y = x · min(max(x + 3, 0), 6) / 6",
        "dx = 0 if x ≤ −3 else g if x ≥ 3 else g · (2 · x + 3) / 6",
    ),
    ("softplus", "y = ln(1 + e^(x))", "dx = g · σ(x)"),
    (
        "mish",
        "y = x · tanh(ln(1 + e^(x)))",
        "dx = g · (t + x · (1 − t²) · σ(x)), t = tanh(ln(1 + e^x))",
    ),
    (
        "gelu",
        "y = x · (1 + erf(x / √(2))) / 2",
        "dx = g · ((1 + erf(x / √(2))) / 2 + x · e^(−x² / 2) / √(2 · π))",
    ),
    (
        "gelu_tanh",
        "y = x · (1 + tanh(√(2 / π) · (x + 0.044715 · x · x²))) / 2",
        "dx = g · y', the derivative of the formula above",
    ),
];
