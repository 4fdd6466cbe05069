//! Vectors of relative positions: products of queries with them are added to scores, and they are added to values.
//!
//! The products of the queries of a tile with the vectors of all distances in it are one matrix product. Row `i` of
//! the result, moved by `i` to the left, has a column for each key (the *relative shift* of Transformer-XL), so
//! memory is linear in the length. Huang et al. 2018 (arXiv 1809.04281).

use super::rule::TileRule;
use super::tile::{Tile, TileBuffer, add_product};
use super::{QUERIES, TILE, head};
use crate::kernels::Real;
use crate::matrix::{MatMut, MatRef};
use crate::tensor::Tensor;
use std::ops::Range;

/// The columns of a band: the distances in a tile.
const BAND: usize = QUERIES + TILE;

/// A matrix by query and distance.
struct Band<T>([T; QUERIES * BAND]);

impl<T: Real> Band<T> {
    /// The elements of a tile by query and distance; the others are 0.
    fn of(tile: &Tile, x: &TileBuffer<T>) -> Band<T> {
        let mut band = Band([T::ZERO; QUERIES * BAND]);
        for i in 0..tile.rows.len() {
            band.row(tile, i).copy_from_slice(&x.0[i * TILE..i * TILE + tile.cols.len()]);
        }
        band
    }

    /// The products `a · r` of queries with the vectors of the distances in a tile.
    fn products(tile: &Tile, a: MatRef<'_, T>, r: MatRef<'_, T>) -> Band<T> {
        let mut band = Band([T::ZERO; QUERIES * BAND]);
        let out = MatMut::new(&mut band.0, QUERIES, BAND);
        T::gemm(a, r.t(), false, out.into_part(0..tile.rows.len(), 0..r.rows));
        band
    }

    /// The elements of query `i` of a tile, by key.
    fn row(&mut self, tile: &Tile, i: usize) -> &mut [T] {
        let first = i * BAND + tile.rows.len() - 1 - i;
        &mut self.0[first..first + tile.cols.len()]
    }

    /// Adds the elements to those of a tile.
    fn add_to(&mut self, tile: &Tile, x: &mut TileBuffer<T>) {
        for i in 0..tile.rows.len() {
            let (from, into) = (self.row(tile, i), &mut x.0[i * TILE..]);
            for j in 0..from.len() {
                into[j] += from[j];
            }
        }
    }

    /// The elements as a matrix.
    fn matrix(&self, tile: &Tile) -> MatRef<'_, T> {
        let distances = tile.rows.len() + tile.cols.len() - 1;
        MatRef::new(&self.0, QUERIES, BAND).part(0..tile.rows.len(), 0..distances)
    }
}

/// The indices of the distances in a tile, for `lq` queries.
fn distances(tile: &Tile, lq: usize) -> Range<usize> {
    tile.cols.start + lq - tile.rows.end..tile.cols.end + lq - tile.rows.start - 1
}

/// The part of a gradient `[n, width]` that belongs to `rows`.
fn rows_of<T: Real>(x: &mut [T], rows: Range<usize>, width: usize) -> MatMut<'_, T> {
    let n = rows.len();
    MatMut::new(&mut x[rows.start * width..rows.end * width], n, width)
}

/// Adds `a_i · r_(j-i)` to the products of queries and keys, with vectors `a` `[B, H, Lq, D]` of queries and `r` `[B,
/// H, Lq + Lk - 1, D]` of distances, in the order of [`Per::Distance`](super::Per::Distance).
pub fn relative_products<'a, T: Real>(
    a: &'a Tensor<T>,
    r: &'a Tensor<T>,
) -> Box<dyn TileRule<T> + 'a> {
    Box::new(Products { a, r })
}

/// Adds the vectors `r` `[B, H, Lq + Lk - 1, Dv]` of distances to the values: `Σ_j w_ij (v_j + r_(j-i))`, for `lq`
/// queries.
pub fn relative_values<T: Real>(r: &Tensor<T>, lq: usize) -> Box<dyn TileRule<T> + '_> {
    Box::new(Values { r, lq })
}

struct Products<'a, T: Real> {
    a: &'a Tensor<T>,
    r: &'a Tensor<T>,
}

impl<T: Real> Products<'_, T> {
    fn operands(&self, tile: &Tile) -> (MatRef<'_, T>, MatRef<'_, T>, Range<usize>) {
        let band = distances(tile, self.a.size(-2));
        let a = head(self.a, tile.batch, tile.head, tile.rows.clone());
        (a, head(self.r, tile.batch, tile.head, band.clone()), band)
    }
}

impl<T: Real> TileRule<T> for Products<'_, T> {
    fn sizes(&self) -> Vec<usize> {
        [self.a, self.r].map(|x| x.size(-2) * x.size(-1)).to_vec()
    }

    fn is_product(&self) -> bool {
        true
    }

    fn scores(&self, tile: &Tile, s: &mut TileBuffer<T>, _: &mut [TileBuffer<T>], _: &mut [f64]) {
        let (a, r, _) = self.operands(tile);
        Band::products(tile, a, r).add_to(tile, s);
    }

    fn gradients(
        &self,
        tile: &Tile,
        g: &mut TileBuffer<T>,
        _: &[TileBuffer<T>],
        into: &mut [&mut [T]],
        _: &mut [f64],
    ) {
        let [da, dr] = into else { unreachable!("two operands") };
        let ((a, r, band), g) = (self.operands(tile), Band::of(tile, g));
        add_product(g.matrix(tile), r, true, rows_of(da, tile.rows.clone(), a.cols));
        add_product(g.matrix(tile).t(), a, tile.partial, rows_of(dr, band, a.cols));
    }
}

struct Values<'a, T: Real> {
    r: &'a Tensor<T>,
    lq: usize,
}

impl<T: Real> Values<'_, T> {
    fn operand(&self, tile: &Tile) -> MatRef<'_, T> {
        head(self.r, tile.batch, tile.head, distances(tile, self.lq))
    }
}

impl<T: Real> TileRule<T> for Values<'_, T> {
    fn sizes(&self) -> Vec<usize> {
        vec![self.r.size(-2) * self.r.size(-1)]
    }

    fn outputs(&self, tile: &Tile, p: &TileBuffer<T>, out: MatMut<'_, T>) {
        add_product(Band::of(tile, p).matrix(tile), self.operand(tile), true, out);
    }

    fn weight_gradients(&self, tile: &Tile, g: MatRef<'_, T>, dp: &mut TileBuffer<T>) {
        Band::products(tile, g, self.operand(tile)).add_to(tile, dp);
    }

    fn value_gradients(
        &self,
        tile: &Tile,
        p: &TileBuffer<T>,
        g: MatRef<'_, T>,
        into: &mut [&mut [T]],
    ) {
        let dr = rows_of(into[0], distances(tile, self.lq), g.cols);
        add_product(Band::of(tile, p).matrix(tile).t(), g, tile.partial, dr);
    }
}
