//! The pairs of a query and a key that attend.

use serde::Serialize;

/// The mask of one head: for each query, the keys that it may attend to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairMask {
    keys: usize,
    /// Of each query, the visible keys as ranges `start..end`, in ascending order.
    rows: Vec<Vec<[u32; 2]>>,
    /// The classes of tiles, a line of `#` (full), `+` (partial) and `.` (empty) for each row of tiles.
    tiles: String,
    /// Queries and keys along the side of a tile.
    tile: usize,
}

impl PairMask {
    /// The mask with these dimensions, where `keep` tells whether a query attends to a key. `tiles` has a
    /// line for each row of tiles of `tile` queries by `tile` keys: `#` full, `+` partial, `.` empty.
    ///
    /// ```
    /// use retrograd::study::attention::PairMask;
    /// let causal = PairMask::new([3, 3], |query, key| key <= query, "+", 64);
    /// assert_eq!(causal.visible(1).collect::<Vec<_>>(), [0, 1]);
    /// ```
    pub fn new(
        [queries, keys]: [usize; 2],
        keep: impl Fn(usize, usize) -> bool,
        tiles: &str,
        tile: usize,
    ) -> PairMask {
        let row = |i: usize| {
            let mut runs: Vec<[u32; 2]> = Vec::new();
            for j in (0..keys).filter(|&j| keep(i, j)) {
                let j = j as u32;
                match runs.last_mut() {
                    Some(run) if run[1] == j => run[1] = j + 1,
                    _ => runs.push([j, j + 1]),
                }
            }
            runs
        };
        let rows = (0..queries).map(row).collect();
        PairMask { keys, rows, tiles: tiles.to_string(), tile }
    }

    /// The number of queries.
    pub fn queries(&self) -> usize {
        self.rows.len()
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// The keys that a query attends to, in ascending order.
    pub fn visible(&self, query: usize) -> impl Iterator<Item = usize> + '_ {
        self.rows[query].iter().flat_map(|&[start, end]| start as usize..end as usize)
    }

    /// The number of keys that a query attends to.
    pub(super) fn count(&self, query: usize) -> usize {
        self.rows[query].iter().map(|[start, end]| (end - start) as usize).sum()
    }
}

/// A [`PairMask`] in the data of a page.
#[derive(Serialize)]
pub(super) struct MaskData<'a> {
    queries: usize,
    keys: usize,
    /// Of each query, the number of ranges, followed by their starts and ends.
    runs: Vec<u32>,
    tiles: &'a str,
    tile: usize,
}

impl<'a> MaskData<'a> {
    pub fn of(mask: &'a PairMask) -> Self {
        let mut runs = Vec::new();
        for row in &mask.rows {
            runs.push(row.len() as u32);
            runs.extend(row.iter().flatten());
        }
        let PairMask { tiles, tile, keys, .. } = mask;
        MaskData { queries: mask.queries(), keys: *keys, runs, tiles, tile: *tile }
    }
}
