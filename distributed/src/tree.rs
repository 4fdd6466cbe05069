//! The order in which the shards of several ranks are added.
//!
//! [`pairwise_sum`](retrograd_autograd::pairwise_sum) adds shards in a binary tree. A rank has a range of
//! shards; it adds those whose sums are nodes of the tree, and sends these nodes. Whoever receives the nodes
//! of all ranks completes the tree. So the order of additions, and with it every bit, is the same for any
//! number of ranks.

use std::collections::BTreeMap;
use std::ops::Range;

/// A node of the tree: the sum of the shards `index · 2^level .. (index + 1) · 2^level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// The base-2 logarithm of the number of shards.
    pub level: u32,
    /// The number of the node among the nodes of its level.
    pub index: usize,
}

impl Node {
    /// The shards below it.
    pub fn shards(self) -> Range<usize> {
        self.index << self.level..(self.index + 1) << self.level
    }
}

/// The shards of a rank. The numbers of two ranks differ by at most 1.
pub fn shards_of(rank: usize, ranks: usize, shards: usize) -> Range<usize> {
    shards * rank / ranks..shards * (rank + 1) / ranks
}

/// The fewest nodes that make up a range of shards, in order.
pub fn nodes(range: Range<usize>) -> Vec<Node> {
    let (mut at, mut nodes) = (range.start, Vec::new());
    while at < range.end {
        // The highest node that begins here and does not go beyond the end.
        let fits = usize::BITS - 1 - (range.end - at).leading_zeros();
        let level = if at == 0 { fits } else { at.trailing_zeros().min(fits) };
        nodes.push(Node { level, index: at >> level });
        at += 1 << level;
    }
    nodes
}

/// The sum of all shards, given nodes that cover them.
pub fn total<X>(
    shards: usize,
    mut nodes: BTreeMap<Node, Option<X>>,
    mut add: impl FnMut(X, X) -> X,
) -> Option<X> {
    let top = usize::BITS - shards.saturating_sub(1).leading_zeros();
    for level in 0..top {
        let here: Vec<Node> = nodes.keys().filter(|n| n.level == level).copied().collect();
        for pair in here.chunk_by(|a, b| a.index / 2 == b.index / 2) {
            let mut values = pair.iter().map(|node| nodes.remove(node).expect("listed"));
            let (a, b) = (values.next().flatten(), values.next().flatten());
            let sum = match (a, b) {
                (Some(a), Some(b)) => Some(add(a, b)),
                (a, b) => a.or(b),
            };
            nodes.insert(Node { level: level + 1, index: pair[0].index / 2 }, sum);
        }
    }
    debug_assert!(nodes.len() <= 1, "the nodes cover the shards");
    nodes.into_values().next().flatten()
}
