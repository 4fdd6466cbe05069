//! Longformer: dilated sliding windows and global tokens.

use crate::attention::engine::{Mask, Spec, attend};
use crate::attention::parts::incremental::Past;
use crate::attention::parts::projections::{HeadSizes, Projections};
use crate::linear::Linear;
use crate::module::{Call, visits};
use crate::param::Param;
use crate::pass::Pass;
use retrograd_autograd::Var;
use retrograd_tensor::error::{ErrorKind, assert};
use retrograd_tensor::{Real, Tensor};

/// Self-attention in sliding windows, dilated per head, with global tokens `G`.
///
/// ```text
/// p not in G:  attends to j = p + d_h · t for |t| <= w, and to every j in G
/// p in G:      attends to every j, with separate projections to q, k, v
/// ```
///
/// and of these only `j <= p` if causal. `[L, width]` or `[B, L, width]` to the same; the work
/// is `O(L (w + |G|) width)` without dilation, where masked tiles are skipped.
///
/// With `w >= L` or all tokens global it is full self-attention (by the global projections in
/// the latter case); with `w >= L` and no global token, dilation 1 and causal, causal
/// self-attention.
///
/// Parameters: as [`Projections`], and `q_global`, `k_global`, `v_global`, of the shapes
/// of `q_proj`, `k_proj` and `v_proj` and equal to them initially. Beltagy, Peters, Cohan 2020
/// (arXiv 2004.05150).
#[derive(Clone, Debug)]
pub struct LongformerAttention<T: Real = f32> {
    /// The projections of tokens that are not global, and the output projection.
    pub projections: Projections<T>,
    /// The projection to queries of global tokens.
    pub q_global: Linear<T>,
    /// The projection to keys for global tokens.
    pub k_global: Linear<T>,
    /// The projection to values for global tokens.
    pub v_global: Linear<T>,
    /// `w`: keys on each side.
    pub window: usize,
    causal: bool,
    dilation: Vec<usize>,
}

impl<T: Real> LongformerAttention<T> {
    /// A layer with a dilation for each head, and `window` keys on each side.
    ///
    /// # Panics
    /// If there are not as many dilations as heads, or a dilation is 0.
    #[track_caller]
    pub fn new(projections: Projections<T>, dilation: &[usize], window: usize) -> Self {
        let heads = projections.sizes().heads;
        assert(dilation.len() == heads, "Longformer", ErrorKind::Mismatch, || {
            format!("{} dilations for {heads} heads", dilation.len())
        });
        assert(!dilation.contains(&0), "Longformer", ErrorKind::Value, || {
            format!("a dilation of 0 in {dilation:?}")
        });
        projections.reject_qk_norm("Longformer", "the global projections have none");
        let fresh = |param: &Param<T>| Param::new(param.value());
        let copy = |of: &Linear<T>| Linear {
            weight: fresh(&of.weight),
            bias: of.bias.as_ref().map(fresh),
        };
        LongformerAttention {
            q_global: copy(&projections.q_proj),
            k_global: copy(&projections.k_proj),
            v_global: copy(&projections.v_proj),
            projections,
            window,
            causal: false,
            dilation: dilation.to_vec(),
        }
    }

    /// Makes the attention causal, for global tokens, too.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// The mask of the windows and the global tokens.
    ///
    /// ```
    /// use retrograd::nn::attention::{Align, HeadSizes, LongformerAttention, Projections};
    /// use retrograd::prelude::*;
    /// let mut rng = Rng::new(1);
    /// let projections = Projections::<f64>::new(HeadSizes::new(8, 2), &mut rng);
    /// let attention = LongformerAttention::new(projections, &[1, 1], 1);
    /// let keep = attention.mask(&[0]).tensor([1, 2, 4, 4], Align::TopLeft);
    /// assert_eq!(keep.select(1, 0).select(1, 3).to_vec(), [true, false, true, true]); // 0 is global
    /// ```
    pub fn mask(&self, global: &[usize]) -> Mask {
        let window = |&d: &usize| {
            let reach = d.saturating_mul(self.window);
            match d {
                1 => Mask::window(reach, reach),
                d => Mask::window(reach, reach) & Mask::dilated(d),
            }
        };
        let mut mask = match self.dilation.iter().all(|d| *d == self.dilation[0]) {
            true => window(&self.dilation[0]),
            false => Mask::by_head(self.dilation.iter().map(window).collect()),
        };
        if !global.is_empty() {
            mask = mask | Mask::global(global);
        }
        if self.causal { Mask::causal() & mask } else { mask }
    }

    /// The output for `x`, with global tokens at these positions of every sequence; `spec` may
    /// restrict the attention further.
    ///
    /// # Panics
    /// If the shapes do not match, or a global position is not below the length.
    #[track_caller]
    pub fn forward(
        &self,
        x: &Var<T>,
        global: &[usize],
        spec: impl Into<Spec<T>>,
        pass: &mut Pass,
    ) -> Var<T> {
        let call = Call::start(self);
        let length = x.size(-2);
        let far = global.iter().find(|&&g| g >= length);
        assert(far.is_none(), "Longformer", ErrorKind::Index, || {
            format!("global token {} in a sequence of {length}", far.expect("checked"))
        });
        let p = &self.projections;
        let spec = p.with_dropout(spec, pass);
        let [q, k, v] = p.qkv(x, &mut Past::none(), pass);
        // Each of the two calls masks the queries of the other, and skips their tiles.
        let rows = Mask::queries(global);
        let local = spec.clone().mask(self.mask(global) & !rows.clone());
        let mut heads = attend(&q, &k, &v, &local);
        if !global.is_empty() {
            let HeadSizes { heads: hq, key_heads: hk, .. } = p.sizes();
            let q = p.rotate(&p.project(&self.q_global, hq, x, pass), 0);
            let k = p.rotate(&p.project(&self.k_global, hk, x, pass), 0);
            let v = p.project(&self.v_global, hk, x, pass);
            let rows = if self.causal { rows & Mask::causal() } else { rows };
            let is_global = Tensor::from_fn([length, 1], |i| global.contains(&i[0]));
            heads = Var::where_(&is_global, &attend(&q, &k, &v, &spec.mask(rows)), &heads);
        }
        call.end(p.project_out(&heads, pass))
    }
}

visits!(LongformerAttention: all projections, module q_global, module k_global, module v_global);
