//! Contextual positions: a key's position is the sum of gates from it up to the query, and the score of a position is
//! interpolated between those of whole numbers. Golovneva et al. 2024 (arXiv 2405.18719).

use super::TILE;
use super::rule::TileRule;
use super::tile::{Tile, TileBuffer};
use crate::kernels::Real;
use crate::settings;
use crate::simd::{Kernel, Lanes};
use crate::tensor::Tensor;

/// Adds to each score `s_ij` the value at position `p_ij = Σ σ(s_it)`, over the visible keys `t ≥ j`, of the scores
/// `by_position` `[B, H, Lq, n]` of the query at positions `0` to `n - 1`: interpolated linearly, and at most that of
/// `n - 1`.
pub fn contextual_positions<'a, T: Real>(by_position: &'a Tensor<T>) -> Box<dyn TileRule<T> + 'a> {
    Box::new(Contextual(by_position))
}

struct Contextual<'a, T: Real>(&'a Tensor<T>);

/// What is carried from tile to tile for each query: the sum of all gates, the sum of those before the tile, and the
/// sum of the gradients of positions before it.
const CARRY: usize = 3;

impl<T: Real> Contextual<'_, T> {
    /// The scores of query `i` of a tile by position.
    fn row(&self, tile: &Tile, i: usize) -> &[T] {
        let (strides, n) = (self.0.layout().strides(), self.0.size(-1));
        let at = [tile.batch, tile.head, tile.rows.start + i];
        let at: isize = at.iter().zip(strides).map(|(&at, stride)| at as isize * stride).sum();
        let first = (self.0.layout().offset() as isize + at) as usize;
        &self.0.data()[first..first + n]
    }
}

/// The whole number below a position, and what is above it.
fn parts<T: Real>(position: T, n: usize) -> (usize, T) {
    let below = (position.to_f64() as usize).min(n - 1);
    (below, position - T::from_f64(below as f64))
}

impl<T: Real> TileRule<T> for Contextual<'_, T> {
    fn sizes(&self) -> Vec<usize> {
        vec![self.0.size(-2) * self.0.size(-1)]
    }

    fn buffers(&self) -> usize {
        3
    }

    fn carry(&self) -> usize {
        CARRY
    }

    fn scan(&self, tile: &Tile, s: &TileBuffer<T>, carry: &mut [f64]) {
        let mut gates = TileBuffer::new();
        T::dispatch(settings::level(), Gates { tile, s, gates: &mut gates });
        for (row, carry) in gates.0.chunks(TILE).zip(carry.chunks_mut(CARRY)) {
            for &gate in &row[..tile.cols.len()] {
                carry[0] += gate.to_f64();
            }
        }
    }

    fn scores(
        &self,
        tile: &Tile,
        s: &mut TileBuffer<T>,
        derivatives: &mut [TileBuffer<T>],
        carry: &mut [f64],
    ) {
        let mut gates = TileBuffer::new();
        T::dispatch(settings::level(), Gates { tile, s, gates: &mut gates });
        let n = self.0.size(-1);
        let last = (n - 1) as f64;
        for (i, carry) in carry.chunks_mut(CARRY).enumerate() {
            let values = self.row(tile, i);
            for at in i * TILE..i * TILE + tile.cols.len() {
                let position = carry[0] - carry[1];
                carry[1] += gates.0[at].to_f64();
                // Rounding may leave less than 0. A NaN stays one.
                let inside = !(position <= 0.0 || position >= last);
                let position = T::from_f64(position.clamp(0.0, last));
                let (below, above) = parts(position, n);
                let slope = if below + 1 < n { values[below + 1] - values[below] } else { T::ZERO };
                s.0[at] += values[below] + above * slope;
                if let [positions, slopes, of_gates] = derivatives {
                    positions.0[at] = position;
                    slopes.0[at] = if inside { slope } else { T::ZERO };
                    of_gates.0[at] = gates.0[at] * (T::ONE - gates.0[at]);
                }
            }
        }
    }

    fn gradients(
        &self,
        tile: &Tile,
        g: &mut TileBuffer<T>,
        derivatives: &[TileBuffer<T>],
        into: &mut [&mut [T]],
        carry: &mut [f64],
    ) {
        let [positions, slopes, of_gates] = derivatives else { unreachable!("three buffers") };
        let n = self.0.size(-1);
        for (i, carry) in carry.chunks_mut(CARRY).enumerate() {
            let into = &mut into[0][(tile.rows.start + i) * n..][..n];
            for at in i * TILE..i * TILE + tile.cols.len() {
                let gradient = g.0[at];
                if gradient != T::ZERO {
                    let (below, above) = parts(positions.0[at], n);
                    into[below] += gradient * (T::ONE - above);
                    if below + 1 < n {
                        into[below + 1] += gradient * above;
                    }
                    carry[2] += (gradient * slopes.0[at]).to_f64();
                }
                // The gate of a masked pair is 0, and so is its derivative.
                if of_gates.0[at] != T::ZERO {
                    g.0[at] += T::from_f64(carry[2]) * of_gates.0[at];
                }
            }
        }
    }
}

/// `σ(s)` of the visible pairs of a tile, 0 of the others.
struct Gates<'a, T: Real> {
    tile: &'a Tile,
    s: &'a TileBuffer<T>,
    gates: &'a mut TileBuffer<T>,
}

impl<T: Real> Kernel<T> for Gates<'_, T> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let zero = s.splat(T::ZERO);
        for i in 0..self.tile.rows.len() {
            for j in (0..self.tile.width::<T, S>()).step_by(S::N) {
                let visible = s.mask_from_bits(self.tile.visible[i] >> j);
                let gate = s.sigmoid(s.load(&self.s.0[i * TILE + j..]));
                s.store(s.select(visible, gate, zero), &mut self.gates.0[i * TILE + j..]);
            }
        }
    }
}
