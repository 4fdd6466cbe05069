//! A product cut into blocks that fit the caches.

use super::finish::Then;
use super::operands::{Left, Panel, Right, columns_in_place, panels, rows_in_place};
use super::pack;
use super::tile::{Place, tile};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES, Kernel, Lanes};
use std::ops::Range;

/// The longest chain of multiply-adds.
const DEPTH: usize = 512;
/// Rows that are gone through for every panel: a block of `HEIGHT` by [`DEPTH`] and a few panels
/// stay in the second cache.
const HEIGHT: usize = 120;
/// The same of rows that are packed: many at once, since it is columns that lie in order then.
const PACKED_HEIGHT: usize = 480;
/// Columns that are packed at once.
pub const WIDTH: usize = 512;
/// Rows of a tile.
pub const TILE: usize = 6;

/// Terms of a sum of `k` in a block; the last one may have fewer.
pub fn depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1)
}

/// Elements of room that [`Blocks`] needs at most.
pub(super) const ROOM: usize = COLUMNS_ROOM + pack::rows_room(DEPTH, PACKED_HEIGHT);
const COLUMNS_ROOM: usize = pack::columns_room(DEPTH, WIDTH);

/// `out = a · b`, or `out += a · b`, with tiles of [`TILE`] rows and at most `NV` vectors.
pub(super) struct Blocks<'a, const NV: usize> {
    pub a: MatRef<'a, f32>,
    pub b: MatRef<'a, f32>,
    pub add: bool,
    pub out: MatMut<'a, f32>,
    pub then: Option<Then<'a, f32>>,
    /// [`ROOM`] elements.
    pub room: &'a mut [f32],
}

impl<const NV: usize> Kernel<f32> for Blocks<'_, NV> {
    type Out = ();

    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let Blocks { a, b, add, mut out, mut then, room } = self;
        let (k, depth) = (a.cols, depth(a.cols));
        let (columns, rows) = room.split_at_mut(COLUMNS_ROOM);
        let in_place = columns_in_place::<NV>(&a, &b);
        let rows_in_place = rows_in_place(&a, b.cols);
        let height = if rows_in_place { HEIGHT } else { PACKED_HEIGHT };
        let fetch = Fetch::new(&a, b.cols, depth);
        for right in ranges(b.cols, WIDTH) {
            for sum in ranges(k, depth) {
                let b = b.part(sum.clone(), right.clone());
                let columns = Right::new::<S, NV>(s, b, in_place, columns);
                for down in ranges(a.rows, height) {
                    let a = a.part(down.clone(), sum.clone());
                    let left = Left::new(s, a, rows_in_place, rows);
                    let mut out = out.part(down.clone(), right.clone());
                    for cols in panels::<NV>(b.cols) {
                        let panel = columns.panel(cols.clone());
                        let fetch = Fetch { a: fetch.a && cols.start == 0, ..fetch };
                        let out = out.part(0..down.len(), cols);
                        tiles::<S, NV>(s, &left, panel, add || sum.start > 0, fetch, out);
                    }
                    // Not panel by panel: what is read beside the product comes from far away,
                    // and long rows of it are fetched ahead.
                    if sum.end == k
                        && let Some(then) = &mut then
                    {
                        then.part(down, right.clone()).run(out);
                    }
                }
            }
        }
    }
}

/// `0..n` in ranges of `step`.
pub(super) fn ranges(n: usize, step: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(step).map(move |i| i..(i + step).min(n))
}

/// What is to be fetched before it is needed: what is too large to be in the second cache, unless
/// there is so little work for each number that asking takes longer.
#[derive(Clone, Copy)]
struct Fetch {
    /// Rows of `a`, where they lie.
    a: bool,
    out: bool,
}

impl Fetch {
    fn new(a: &MatRef<'_, f32>, cols: usize, depth: usize) -> Fetch {
        const LARGE: usize = 1 << 17;
        const WORK: usize = 256;
        const ONCE: usize = 64;
        Fetch {
            a: a.col_stride == 1 && a.rows * a.cols >= if cols <= ONCE { LARGE / 4 } else { LARGE },
            out: a.rows * cols >= LARGE && depth >= WORK,
        }
    }
}

/// All tiles of a block of rows and a panel.
#[inline(always)]
fn tiles<S: Lanes<f32>, const NV: usize>(
    s: S,
    left: &Left<'_>,
    panel: Panel<'_>,
    add: bool,
    fetch: Fetch,
    mut out: MatMut<'_, f32>,
) {
    let (rows, k) = left.size();
    let cols = out.cols();
    let vectors = cols.div_ceil(F32_LANES);
    assert!(panel.data.len() >= (k - 1) * panel.step + vectors * F32_LANES && vectors <= NV);
    for i in (0..rows).step_by(TILE) {
        let height = TILE.min(rows - i);
        let (a, row, col) = left.tile(i, height);
        if fetch.a && i + TILE < rows {
            left.fetch(i + TILE, TILE.min(rows - i - TILE));
        }
        let mut c = out.part(i..i + height, 0..cols);
        let at = Place {
            k,
            a: a.as_ptr(),
            row,
            col,
            b: panel.data.as_ptr(),
            step: panel.step,
            c_row: c.row_stride(),
            c: c.as_mut_ptr(),
            cols,
            add,
            fetch: fetch.out,
        };
        macro_rules! by_height {
            ($vectors:literal) => {
                match height {
                    1 => tile::<S, 1, $vectors>(s, at),
                    2 => tile::<S, 2, $vectors>(s, at),
                    3 => tile::<S, 3, $vectors>(s, at),
                    4 => tile::<S, 4, $vectors>(s, at),
                    5 => tile::<S, 5, $vectors>(s, at),
                    _ => tile::<S, TILE, $vectors>(s, at),
                }
            };
        }
        // SAFETY: 1. `left` has these rows: it checked that they are inside, or they are packed,
        // `height <= pack::HEIGHT` of them in a panel, as tiles divide panels; 2. the assertion
        // above; 3. `c` is this part of the product, borrowed exclusively; 4. `vectors` is as
        // small as it can be. Heights and vectors are those of the function called.
        unsafe {
            match vectors {
                1 => by_height!(1),
                2 if NV > 1 => by_height!(2),
                3 if NV > 1 => by_height!(3),
                4 if NV > 1 => by_height!(4),
                _ => unreachable!("a panel has 1 to {NV} vectors"),
            }
        }
    }
}
