//! The positions of queries relative to keys.

/// Where queries stand among the keys, if there are not as many of both.
///
/// The position of query `i` is `i + offset`; masks and position biases speak of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Query 0 stands at key 0: offset 0.
    TopLeft,
    /// The last query stands at the last key: offset `Lk - Lq`. What a cache needs.
    #[default]
    BottomRight,
    /// Query 0 stands at this key.
    Offset(isize),
}

impl Align {
    /// The position of query 0.
    pub fn offset(self, lq: usize, lk: usize) -> isize {
        match self {
            Align::TopLeft => 0,
            Align::BottomRight => lk as isize - lq as isize,
            Align::Offset(n) => n,
        }
    }
}
