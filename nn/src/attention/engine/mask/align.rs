//! The positions of queries relative to keys.

/// The positions of queries relative to keys, where their numbers differ.
///
/// The position of query `i` is `i + offset`; masks and position biases are functions of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Query 0 has the position of key 0: offset 0. PyTorch's `is_causal=True` and
    /// `causal_upper_left`.
    TopLeft,
    /// The last query has the position of the last key: offset `Lk - Lq`. Used with a cache, and as
    /// the default of masks and biases that are not causal. PyTorch's `causal_lower_right`.
    #[default]
    BottomRight,
    /// Query 0 has this position.
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
