//! The backward pass of tiled attention, which recomputes the weights.

use super::rule::TileRule;
use super::scores::OfRules;
use super::tile::{TileBuffer, TileCounts, TileGradients, add_product, row_dots};
use super::transposed::TransposedTile;
use super::{AttentionOptions, QUERIES, Sizes, bytes, head, pieces};
use crate::cost::Cost;
use crate::kernels::Real;
use crate::matrix::MatMut;
use crate::observe::{self, KernelCall};
use crate::par;
use crate::shape::Shape;
use crate::storage::filled;
use crate::tensor::Tensor;

/// The gradients of [`forward`](super::forward()).
pub struct Vjp<T: Real> {
    /// With respect to the queries.
    pub dq: Tensor<T>,
    /// With respect to the keys.
    pub dk: Tensor<T>,
    /// With respect to the values.
    pub dv: Tensor<T>,
    /// With respect to the sinks `[H]`, if there are any.
    pub dsink: Option<Tensor<T>>,
    /// With respect to the operands of the rules, `[B, H, n]` each.
    pub operands: Vec<Tensor<T>>,
}

/// The cotangents of the results of [`forward`](super::forward()): of the output, and of the
/// log-sum-exp if it is used.
pub type Cotangents<'a, T> = (&'a Tensor<T>, Option<&'a Tensor<T>>);

/// The VJP of [`forward`](super::forward()), from its operands and results. With weights `P` and `D
/// = Σ g · out` per query, minus the cotangent of its log-sum-exp (whose derivatives with respect
/// to the scores are the weights): `dV = Pᵀ g`, `dS = P ∘ (g Vᵀ - D)`, `dQ = dS K`, `dK = dSᵀ Q`,
/// with dropout applied to `P` in `dV` and to `g Vᵀ`. The memory layout of gradients is `[B, L, H,
/// D]`.
#[inline(never)]
pub fn backward<T: Real>(
    (q, k, v): (&Tensor<T>, &Tensor<T>, &Tensor<T>),
    (out, lse): (&Tensor<T>, &Tensor<T>),
    g: Cotangents<'_, T>,
    options: &AttentionOptions<'_, T>,
) -> Vjp<T> {
    let call = observe::begin();
    let s = Sizes::of(q, k, v);
    let mut backward = AttentionBackward::new((q, k, v), (out, lse), g, options);
    backward.counts = call.as_ref().map(|_| TileCounts::default());
    let shape = |l: usize, heads: usize, width: usize| Shape::from([s.batch, l, heads, width]);
    let of_keys = shape(s.lk, s.key_heads, s.dk);
    let mut operands = backward.zeros();
    let mut dv = None;
    let (dq, dk) =
        Tensor::build2("attention_vjp", shape(s.lq, s.heads, s.dk), of_keys, |dq, dk| {
            let of_values = shape(s.lk, s.key_heads, s.dv);
            dv = Some(Tensor::build("attention_vjp", of_values, |dv| {
                backward.write(
                    MatMut::new(dq, s.batch * s.lq, s.heads * s.dk),
                    MatMut::new(dk, s.batch * s.lk, s.key_heads * s.dk),
                    MatMut::new(dv, s.batch * s.lk, s.key_heads * s.dv),
                    &mut operands,
                );
            }));
        });
    let dv = dv.expect("built with the others");
    let [dq, dk, dv] = [dq, dk, dv].map(|x: Tensor<T>| x.transpose(1, 2));
    let dsink = backward.dsink();
    observe::end(call, || backward.describe(out, bytes(&[&dq, &dk, &dv])));
    let shape = |x: &Vec<T>| [s.batch, s.heads, x.len() / (s.batch * s.heads).max(1)];
    let operands = operands.into_iter().map(|x| (shape(&x), x));
    let operands = operands.map(|(shape, x)| Tensor::from_vec(x, shape)).collect();
    Vjp { dq, dk, dv, dsink, operands }
}

/// [`backward`] for operands that are parts of one packed tensor `[B, L, (H + 2 Hk) D]`: the
/// gradients with respect to that tensor and to the sinks. There are no rules.
#[inline(never)]
pub fn backward_packed<T: Real>(
    (q, k, v): (&Tensor<T>, &Tensor<T>, &Tensor<T>),
    (out, lse): (&Tensor<T>, &Tensor<T>),
    g: Cotangents<'_, T>,
    options: &AttentionOptions<'_, T>,
) -> (Tensor<T>, Option<Tensor<T>>) {
    let call = observe::begin();
    let s = Sizes::of(q, k, v);
    let mut backward = AttentionBackward::new((q, k, v), (out, lse), g, options);
    backward.counts = call.as_ref().map(|_| TileCounts::default());
    let (queries, keys) = (s.heads * s.dk, s.key_heads * s.dk);
    let width = queries + keys + s.key_heads * s.dv;
    let grad = Tensor::build("attention_vjp", Shape::from([s.batch, s.lq, width]), |all| {
        let (dq, rest) = MatMut::new(all, s.batch * s.lq, width).split_cols(queries);
        let (dk, dv) = rest.split_cols(keys);
        backward.write(dq, dk, dv, &mut []);
    });
    let dsink = backward.dsink();
    observe::end(call, || backward.describe(out, bytes(&[&grad])));
    (grad, dsink)
}

/// For each rule, the gradients of its operands that belong to query head `i` of a group.
fn of_head<'a, T: Real>(
    rules: &[Box<dyn TileRule<T> + '_>],
    of_rules: &'a mut [&mut [T]],
    group: usize,
    i: usize,
) -> Vec<Vec<&'a mut [T]>> {
    let mut all = of_rules.iter_mut().map(|x| {
        let n = x.len() / group;
        &mut x[i * n..(i + 1) * n]
    });
    rules.iter().map(|rule| all.by_ref().take(rule.sizes().len()).collect()).collect()
}

/// The operands of the backward pass.
struct AttentionBackward<'a, T: Real> {
    q: &'a Tensor<T>,
    k: &'a Tensor<T>,
    v: &'a Tensor<T>,
    g: Tensor<T>,
    options: &'a AttentionOptions<'a, T>,
    sizes: Sizes,
    /// `[B, H, Lq]`
    lse: Tensor<T>,
    /// `D` of each query, `[B, H, Lq]`
    dots: Tensor<T>,
    /// For the report, if there will be one.
    counts: Option<TileCounts>,
}

impl<'a, T: Real> AttentionBackward<'a, T> {
    fn new(
        (q, k, v): (&'a Tensor<T>, &'a Tensor<T>, &'a Tensor<T>),
        (out, lse): (&Tensor<T>, &Tensor<T>),
        (g, of_lse): Cotangents<'_, T>,
        options: &'a AttentionOptions<'a, T>,
    ) -> Self {
        let sizes = Sizes::of(q, k, v);
        let in_rows = |x: &Tensor<T>| match x.layout().strides()[3] {
            1 => x.clone(),
            _ => x.contiguous(),
        };
        let (g, out) = (in_rows(g), in_rows(out));
        let dots = Tensor::build("attention_vjp", *lse.shape(), |dots| {
            par::fill(dots, sizes.lq.max(1), Cost::sum_of(sizes.dv), |first, dots| {
                let i = first / sizes.lq;
                let (b, h) = (i / sizes.heads, i % sizes.heads);
                let (g, out) = (head(&g, b, h, 0..sizes.lq), head(&out, b, h, 0..sizes.lq));
                row_dots(g, out, dots);
                // A query without visible keys has no gradient, even if its cotangent is
                // non-finite.
                for (i, dot) in dots.iter_mut().enumerate().filter(|(_, dot)| dot.is_nan()) {
                    if out.row(i).iter().all(|&x| x == T::ZERO) {
                        *dot = T::ZERO;
                    }
                }
            });
        });
        let dots = match of_lse {
            Some(of_lse) => dots.sub(of_lse),
            None => dots,
        };
        let lse = lse.contiguous();
        AttentionBackward { q, k, v, g, options, sizes, lse, dots, counts: None }
    }

    /// The report: five products, the scores again, and with the cotangents those of the weights and of
    /// queries, keys and values.
    #[cold]
    fn describe(&self, out: &Tensor<T>, written: u64) -> KernelCall {
        let counts = self.counts.as_ref().expect("counted if it is reported");
        KernelCall {
            read: bytes(&[self.q, self.k, self.v, &self.g, out, &self.lse]),
            written,
            ..counts.describe::<T>("attention_vjp", &self.sizes, (3, 2))
        }
    }

    /// The gradients of the operands of the rules, before any is added.
    fn zeros(&self) -> Vec<Vec<T>> {
        let sizes = self.options.rules.iter().flat_map(|rule| rule.sizes());
        let heads = self.sizes.batch * self.sizes.heads;
        sizes.map(|n| filled("attention_vjp", heads * n, T::ZERO)).collect()
    }

    /// Writes the gradients of queries `[B·Lq, H·Dk]`, keys `[B·Lk, Hk·Dk]` and values
    /// `[B·Lk, Hk·Dv]`, and adds to those of the operands of rules, with one task per sequence and key head.
    fn write(
        &self,
        dq: MatMut<'_, T>,
        dk: MatMut<'_, T>,
        dv: MatMut<'_, T>,
        of_rules: &mut [Vec<T>],
    ) {
        let Sizes { batch, key_heads, group, lq, lk, .. } = self.sizes;
        let [dq, dk, dv] = [dq, dk, dv].map(|x| x.grid(batch, key_heads));
        let mut operands: Vec<Vec<&mut [T]>> = dq.iter().map(|_| Vec::new()).collect();
        for x in of_rules {
            let (part, mut rest) = (x.len() / operands.len().max(1), &mut x[..]);
            for all in &mut operands {
                let (mine, others) = rest.split_at_mut(part);
                all.push(mine);
                rest = others;
            }
        }
        let tasks: Vec<_> = dq.into_iter().zip(dk).zip(dv).zip(operands).zip(0..).collect();
        par::each(tasks, group * lq * lk, self.sizes.cost(3), |((((dq, dk), dv), of_rules), i)| {
            self.key_head(i / key_heads, i % key_heads, dq, dk, dv, of_rules);
        });
    }

    /// The gradients of one key head, and of all query heads that use it.
    fn key_head(
        &self,
        b: usize,
        kh: usize,
        mut dq: MatMut<'_, T>,
        mut dk: MatMut<'_, T>,
        mut dv: MatMut<'_, T>,
        mut of_rules: Vec<&mut [T]>,
    ) {
        let AttentionBackward { q, k, v, ref g, options, ref sizes, ref lse, ref dots, ref counts } =
            *self;
        let counts = counts.as_ref();
        let (lse, dots) = (lse.as_slice(), dots.as_slice());
        let (mut s, mut dp) = (TileBuffer::new(), TileBuffer::new());
        let mut derivatives = options.softcap.is_some().then(TileBuffer::new);
        let mut z = options.dropout.is_some().then(TileBuffer::new);
        let mut rules = OfRules::new(options.rules, sizes.group * sizes.lq, true);
        // The derivatives of formulas come between those of the weights and of the products.
        let has_formulas = options.has_formulas();
        let (mut transposed_keys, mut transposed_values) =
            (TransposedTile::new(sizes.dk), TransposedTile::new(sizes.dv));
        dq.fill(T::ZERO);
        dk.fill(T::ZERO);
        dv.fill(T::ZERO);
        for (is_scan, cols) in rules.sweeps(sizes.lk) {
            rules.is_scan = is_scan;
            let mut done = false;
            for (i, rows) in
                (0..sizes.group).flat_map(|i| pieces(0..sizes.lq, QUERIES).map(move |r| (i, r)))
            {
                let h = kh * sizes.group + i;
                let Some(tile) = options.tile((b, h), rows.clone(), cols.clone()) else {
                    TileCounts::skip(counts.filter(|_| !is_scan));
                    continue;
                };
                if !std::mem::replace(&mut done, true) {
                    transposed_keys.transpose_from(head(k, b, kh, cols.clone()));
                    transposed_values.transpose_from(head(v, b, kh, cols.clone()));
                }
                let of_queries = |x| head(x, b, h, rows.clone());
                let (queries, keys) = (of_queries(q), head(k, b, kh, tile.cols.clone()));
                let whole = tile.whole_cols(cols.start);
                let transposed_keys = transposed_keys.columns(whole.clone());
                rules.first = i * sizes.lq + rows.start;
                let derivative = derivatives.as_mut();
                let factor =
                    options.scores(&tile, queries, transposed_keys, &mut s, derivative, &mut rules);
                if is_scan {
                    continue;
                }
                TileCounts::add(counts, &tile);
                let first = (b * sizes.heads + h) * sizes.lq;
                let here = first + rows.start..first + rows.end;
                dp.set_product(of_queries(g), transposed_values.columns(whole));
                for rule in options.rules {
                    rule.weight_gradients(&tile, of_queries(g), &mut dp);
                }
                let gradients = TileGradients {
                    tile: &tile,
                    factor,
                    derivative: if has_formulas { T::ONE } else { options.scale },
                    lse: &lse[here.clone()],
                    dots: &dots[here],
                    derivatives: derivatives.as_ref().filter(|_| !has_formulas),
                    dropout: options.dropout_factors(sizes, &tile, z.as_mut()),
                    s: &mut s,
                    dp: &mut dp,
                };
                gradients.compute();
                let mut into = of_head(options.rules, &mut of_rules, sizes.group, i);
                rules.gradients(options, &tile, derivatives.as_ref(), &mut dp, &mut into);
                for (rule, into) in options.rules.iter().zip(&mut into) {
                    rule.value_gradients(&tile, &s, of_queries(g), into);
                }
                let (p, ds) = (s.of(&tile), dp.of(&tile));
                let cols = tile.cols.clone();
                let into_queries = dq.part(rows.clone(), i * sizes.dk..(i + 1) * sizes.dk);
                add_product(ds, keys, tile.partial, into_queries);
                let into_keys = dk.part(cols.clone(), 0..sizes.dk);
                add_product(ds.t(), queries, tile.partial, into_keys);
                add_product(p.t(), of_queries(g), tile.partial, dv.part(cols, 0..sizes.dv));
            }
        }
    }

    /// The gradients of the sinks: the weight of a sink is `p = e^(sink - lse)`, and its value is
    /// 0, so `dSink = -Σ p · D`.
    fn dsink(&self) -> Option<Tensor<T>> {
        let sink = Tensor::from_vec(self.options.sink?.to_vec(), [1, self.sizes.heads, 1]);
        let without_keys = self.lse.eq(T::NEG_INFINITY);
        let p = sink.sub(&self.lse.masked_fill(&without_keys, T::INFINITY)).exp();
        Some(p.mul(&self.dots.masked_fill(&without_keys, T::ZERO)).sum([0, 2]).neg())
    }
}
