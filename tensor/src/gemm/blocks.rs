//! A product cut into blocks that fit the caches.

use super::finish::Then;
use super::pack;
use super::tile::{Place, tile};
use crate::matrix::{MatMut, MatRef};
use crate::simd::{F32_LANES, Kernel, Lanes, prefetch};
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

/// Whether rows of `a` are read where they lie, in a product of `n` columns: if they lie in order,
/// or if columns do that are close together; less close if they are read twice only.
pub fn rows_in_place<T>(a: &MatRef<'_, T>, n: usize) -> bool {
    let distance = a.col_stride.unsigned_abs();
    let close = distance <= if n <= 128 { 768 } else { 128 };
    a.col_stride == 1 || a.row_stride == 1 && close
}

/// Whether columns of `b` are read where they lie, as far as they fill vectors: if rows lie in
/// order, and all of them stay in the first cache, or lie close together and are met by a few
/// rows only, or are read no more often than they would be copied.
fn columns_in_place<const NV: usize>(a: &MatRef<'_, f32>, b: &MatRef<'_, f32>) -> bool {
    let short = b.rows <= SHORT && stay_cached(b.rows, b.row_stride);
    let few = a.rows <= TILE || a.rows <= FEW * NV && b.row_stride <= CLOSE;
    b.col_stride == 1 && b.row_stride >= 0 && (few || short)
}

/// Rows of a product that are few, for each vector of a panel.
const FEW: usize = 128;
/// The distance of rows that lie close together.
const CLOSE: isize = 512;

/// Terms of a sum that is short.
const SHORT: usize = 64;

/// Whether `n` cache lines at this distance find places in the first cache: lines a page apart
/// compete for the same ones.
fn stay_cached(n: usize, stride: isize) -> bool {
    const PAGE: usize = 1024;
    let places = PAGE >> stride.unsigned_abs().trailing_zeros().min(PAGE.trailing_zeros());
    n <= 8 * places
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
                    let left = match rows_in_place {
                        true => Left::InPlace(a),
                        false => {
                            pack::rows(s, a, rows);
                            Left::Packed { data: rows, rows: a.rows, k: a.cols }
                        }
                    };
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

/// `0..n` in panels of at most `NV` vectors. None but the only one is a single vector, if it can
/// be helped: a tile that narrow has too few sums under way to keep the units busy.
fn panels<const NV: usize>(n: usize) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = (n - start).div_ceil(F32_LANES);
        let vectors = if NV > 2 && left == NV + 1 { NV - 1 } else { left.min(NV) };
        let end = n.min(start + vectors * F32_LANES);
        let panel = start..end;
        start = end;
        (!panel.is_empty()).then_some(panel)
    })
}

/// Rows of the left matrix.
enum Left<'a> {
    InPlace(MatRef<'a, f32>),
    Packed { data: &'a [f32], rows: usize, k: usize },
}

impl Left<'_> {
    /// Rows, and terms of the sum.
    fn size(&self) -> (usize, usize) {
        match self {
            Left::InPlace(a) => (a.rows, a.cols),
            Left::Packed { rows, k, .. } => (*rows, *k),
        }
    }

    /// Asks for `height` rows from row `i` on, if rows lie in order.
    #[inline(always)]
    fn fetch(&self, i: usize, height: usize) {
        if let Left::InPlace(a) = self {
            for i in i..i + height {
                for x in a.row(i).chunks(F32_LANES) {
                    prefetch(x.as_ptr());
                }
            }
        }
    }

    /// `height` rows from row `i` on, and the distances between their rows and columns.
    fn tile(&self, i: usize, height: usize) -> (&[f32], isize, isize) {
        match self {
            Left::InPlace(a) => {
                let a = a.part(i..i + height, 0..a.cols);
                assert!(a.is_inside());
                (&a.data[a.offset..], a.row_stride, a.col_stride)
            }
            Left::Packed { data, rows, k } => {
                let (panel, in_panel) = (i / pack::HEIGHT, i % pack::HEIGHT);
                let step = pack::HEIGHT.min(rows - panel * pack::HEIGHT);
                (&data[panel * pack::panel_step(*k)..][in_panel..step * k], 1, step as isize)
            }
        }
    }
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

/// Columns of the right matrix.
struct Right<'a> {
    b: MatRef<'a, f32>,
    /// Whether panels that fill their vectors are read where they lie.
    in_place: bool,
    /// The others.
    packed: &'a [f32],
}

impl<'a> Right<'a> {
    #[inline(always)]
    fn new<S: Lanes<f32>, const NV: usize>(
        s: S,
        b: MatRef<'a, f32>,
        in_place: bool,
        room: &'a mut [f32],
    ) -> Right<'a> {
        let is_whole = |cols: &Range<usize>| cols.len() == NV * F32_LANES;
        let whole = match b.col_stride {
            1 if !in_place => panels::<NV>(b.cols).take_while(is_whole).count(),
            _ => 0,
        };
        let whole = whole * NV * F32_LANES;
        pack::whole_panels::<S, NV>(s, b.part(0..b.rows, 0..whole), room);
        let right = |packed| Right { b, in_place, packed };
        for cols in panels::<NV>(b.cols).filter(|cols| cols.start >= whole) {
            if let Some(at) = right(&[]).place(&cols) {
                pack::columns(s, b.part(0..b.rows, cols), &mut room[at..]);
            }
        }
        right(room)
    }

    /// Where a panel begins in what is packed, if it is.
    fn place(&self, cols: &Range<usize>) -> Option<usize> {
        match self.in_place {
            true if cols.len().is_multiple_of(F32_LANES) => None,
            true => Some(0), // the last one alone
            false => Some(cols.start * self.b.rows),
        }
    }

    fn panel(&self, cols: Range<usize>) -> Panel<'_> {
        let step = cols.len().next_multiple_of(F32_LANES);
        if let Some(at) = self.place(&cols) {
            return Panel { data: &self.packed[at..][..self.b.rows * step], step };
        }
        let b = self.b.part(0..self.b.rows, cols);
        Panel { data: &b.data[b.offset..], step: b.row_stride as usize }
    }
}

/// A panel of columns: row `p` begins at `p * step`.
struct Panel<'a> {
    data: &'a [f32],
    step: usize,
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
