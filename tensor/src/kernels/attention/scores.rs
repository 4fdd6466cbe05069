//! The scores of a tile: products of queries and keys, scale, softcap, bias and rules, with their derivatives.

use super::rule::TileRule;
use super::tile::{Tile, TileBuffer};
use super::{At, AttentionOptions, TILE, pieces};
use crate::kernels::Real;
use crate::matrix::MatRef;
use crate::settings;
use crate::simd::{Kernel, Lanes};
use std::ops::Range;

impl<T: Real> AttentionOptions<'_, T> {
    /// Writes the scores of a tile, up to a factor that is returned, and into `derivatives` their
    /// derivatives with respect to `q · k`, unless these are equal to the factor. The scores of
    /// masked pairs are unspecified. Keys `k` are columns.
    pub(super) fn scores(
        &self,
        tile: &Tile,
        q: MatRef<'_, T>,
        k: MatRef<'_, T>,
        s: &mut TileBuffer<T>,
        derivatives: Option<&mut TileBuffer<T>>,
        of_rules: &mut OfRules<T>,
    ) -> T {
        s.set_product(q, k);
        for rule in self.rules.iter().filter(|rule| rule.is_product()) {
            rule.scores(tile, s, &mut [], &mut []);
        }
        if self.softcap.is_none() && self.bias.is_none() && !self.has_formulas() {
            return self.scale;
        }
        let (scale, cap) = (self.scale, self.softcap);
        T::dispatch(settings::level(), Cap { tile, s: &mut s.0, derivatives, scale, cap });
        if let Some(bias) = self.bias {
            for (i, row) in tile.rows.clone().zip(s.0.chunks_exact_mut(TILE)) {
                let (batch, head) = (tile.batch, tile.head);
                let query = i as isize + self.offset;
                let at = At { batch, head, query, key: tile.cols.start };
                bias(at, &mut row[..tile.cols.len()]);
            }
        }
        for (i, rule) in self.rules.iter().enumerate().filter(|(_, rule)| !rule.is_product()) {
            let carry = &mut of_rules.carry[i][rule.carry() * of_rules.first..];
            let carry = &mut carry[..rule.carry() * tile.rows.len()];
            match of_rules.is_scan {
                false => rule.scores(tile, s, &mut of_rules.buffers[i], carry),
                true if rule.carry() == 0 => rule.scores(tile, s, &mut [], carry),
                true => {
                    rule.scan(tile, s, carry);
                    break;
                }
            }
        }
        T::ONE
    }

    /// Whether a rule is a formula of scores.
    pub(super) fn has_formulas(&self) -> bool {
        self.rules.iter().any(|rule| rule.buffers() > 0)
    }
}

/// `c · tanh(scale · s / c)`, or `scale · s` without a cap, and its derivative with respect to `s`.
struct Cap<'a, T: Real> {
    tile: &'a Tile,
    s: &'a mut [T],
    derivatives: Option<&'a mut TileBuffer<T>>,
    scale: T,
    cap: Option<T>,
}

impl<T: Real> Kernel<T> for Cap<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(mut self, s: S) {
        let (width, scale, one) = (self.tile.width::<T, S>(), s.splat(self.scale), s.splat(T::ONE));
        for i in 0..self.tile.rows.len() {
            for at in (i * TILE..i * TILE + width).step_by(S::N) {
                let mut x = s.mul(s.load(&self.s[at..]), scale);
                let mut derivative = scale;
                if let Some(c) = self.cap {
                    let (c, of_c) = (s.splat(c), s.splat(T::ONE / c));
                    let t = s.tanh(s.mul(x, of_c));
                    x = s.mul(t, c);
                    derivative = s.mul(scale, s.sub(one, s.mul(t, t)));
                }
                s.store(x, &mut self.s[at..]);
                if let Some(derivatives) = &mut self.derivatives {
                    s.store(derivative, &mut derivatives.0[at..]);
                }
            }
        }
    }
}

/// What a task keeps for the rules.
pub(super) struct OfRules<T> {
    /// Buffers for the derivatives of each rule; none in the forward pass.
    pub buffers: Vec<Vec<TileBuffer<T>>>,
    /// What each rule carries for each query of the task. At most one rule does.
    pub carry: Vec<Vec<f64>>,
    /// The index of the first query of the tile among those of the task.
    pub first: usize,
    /// Whether the tiles are only scanned.
    pub is_scan: bool,
}

impl<T: Real> OfRules<T> {
    pub fn new(rules: &[Box<dyn TileRule<T> + '_>], queries: usize, derivatives: bool) -> Self {
        let (mut buffers, mut carry) = (Vec::new(), Vec::new());
        for rule in rules {
            let n = if derivatives { rule.buffers() } else { 0 };
            buffers.push(std::iter::repeat_with(TileBuffer::new).take(n).collect());
            carry.push(vec![0.0; queries * rule.carry()]);
        }
        let carrying = carry.iter().filter(|carry: &&Vec<f64>| !carry.is_empty()).count();
        assert!(carrying <= 1, "attention: {carrying} rules that carry sums");
        OfRules { buffers, carry, first: 0, is_scan: false }
    }

    /// The keys of all tiles in order: once, or for rules that carry values a second time after a scan.
    pub fn sweeps(&self, lk: usize) -> impl Iterator<Item = (bool, Range<usize>)> + use<T> {
        let scans = self.carry.iter().any(|carry| !carry.is_empty());
        let tiles = move |is_scan| pieces(0..lk, TILE).map(move |cols| (is_scan, cols));
        [true, false].into_iter().skip(usize::from(!scans)).flat_map(tiles)
    }

    /// Replaces the gradients `g` of the scores of a tile by those of the products, if a rule is a formula, and adds
    /// to those of the operands of each rule. `derivatives` are those of the scores before the rules, of which
    /// those with a softcap have one each.
    pub fn gradients(
        &mut self,
        options: &AttentionOptions<'_, T>,
        tile: &Tile,
        derivatives: Option<&TileBuffer<T>>,
        g: &mut TileBuffer<T>,
        into: &mut [Vec<&mut [T]>],
    ) {
        for (r, rule) in options.rules.iter().enumerate().rev().filter(|(_, r)| !r.is_product()) {
            let carry = &mut self.carry[r][self.first * rule.carry()..];
            let carry = &mut carry[..tile.rows.len() * rule.carry()];
            rule.gradients(tile, g, &self.buffers[r], &mut into[r], carry);
        }
        for i in 0..if options.has_formulas() { tile.rows.len() } else { 0 } {
            let row = i * TILE..i * TILE + tile.cols.len();
            let g = &mut g.0[row.clone()];
            match derivatives {
                None => g.iter_mut().for_each(|g| *g *= options.scale),
                // A gradient of 0 stays 0, even if the derivative is not finite.
                Some(derivatives) => {
                    for (g, &derivative) in g.iter_mut().zip(&derivatives.0[row]) {
                        *g = if *g == T::ZERO { T::ZERO } else { *g * derivative };
                    }
                }
            }
        }
        for (rule, into) in options.rules.iter().zip(into).filter(|(rule, _)| rule.is_product()) {
            rule.gradients(tile, g, &[], into, &mut []);
        }
    }
}
