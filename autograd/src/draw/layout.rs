//! The places of boxes in ranks, so that every edge leads downwards: the method of Sugiyama, Tagawa and
//! Toda, "Methods for Visual Understanding of Hierarchical System Structures" (1981).
//!
//! 1. The rank of a box is one more than the largest rank of the boxes that have an edge to it.
//! 2. An edge over several ranks gets a place in each rank between its ends, so that boxes leave room for it.
//! 3. Places in a rank are sorted by the mean place of their neighbours, rank by rank, down and up.
//! 4. Horizontal positions approach the mean of those of the neighbours.

/// The sizes of a picture.
pub(super) struct Sizes {
    /// Of each box.
    pub widths: Vec<f64>,
    /// Of every box.
    pub height: f64,
    /// Between neighbours in a rank.
    pub gap: f64,
    /// Between ranks.
    pub rank_gap: f64,
}

/// The places of boxes and edges.
pub(super) struct Layout {
    pub width: f64,
    pub height: f64,
    /// The centre of each box.
    pub boxes: Vec<(f64, f64)>,
    /// The points that each edge leads through, from the centre of its first box to that of its last.
    pub edges: Vec<Vec<(f64, f64)>>,
}

/// Room for an edge between boxes.
const EDGE_WIDTH: f64 = 12.0;
/// Edges of a graph that would need more places than this lead straight from box to box.
const MOST_PLACES: usize = 200_000;
const SORTINGS: usize = 8;
const SHIFTS: usize = 40;

/// A box in a rank, or an edge that passes the rank.
struct Place {
    rank: usize,
    width: f64,
    /// How much its neighbours follow it.
    weight: f64,
    x: f64,
    /// The position in its rank.
    order: f64,
    up: Vec<usize>,
    down: Vec<usize>,
}

/// Places boxes. Edges lead from lower to higher numbers of boxes.
pub(super) fn layout(sizes: &Sizes, edges: &[(usize, usize)]) -> Layout {
    let ranks = ranks(sizes.widths.len(), edges);
    let place = |rank, width, weight| Place {
        rank,
        width,
        weight,
        x: 0.0,
        order: 0.0,
        up: Vec::new(),
        down: Vec::new(),
    };
    let boxes = sizes.widths.iter().zip(&ranks);
    let mut places: Vec<Place> = boxes.map(|(&width, &rank)| place(rank, width, 1.0)).collect();
    let between = |&(from, to): &(usize, usize)| (ranks[to] - ranks[from]).saturating_sub(1);
    let has_room = edges.iter().map(between).sum::<usize>() <= MOST_PLACES;
    let mut lines: Vec<Vec<usize>> = Vec::with_capacity(edges.len());
    for &(from, to) in edges {
        let mut line = vec![from];
        if has_room {
            for rank in ranks[from] + 1..ranks[to] {
                line.push(places.len());
                places.push(place(rank, EDGE_WIDTH, 0.3));
            }
        }
        line.push(to);
        for pair in line.windows(2) {
            places[pair[0]].down.push(pair[1]);
            places[pair[1]].up.push(pair[0]);
        }
        lines.push(line);
    }
    let mut rows = vec![Vec::new(); ranks.iter().map(|r| r + 1).max().unwrap_or(0)];
    for (i, place) in places.iter().enumerate() {
        rows[place.rank].push(i);
    }
    sort(&mut places, &mut rows);
    shift(&mut places, &rows, sizes.gap);
    let left = places.iter().map(|p| p.x - p.width / 2.0).fold(f64::INFINITY, f64::min);
    let right = places.iter().map(|p| p.x + p.width / 2.0).fold(f64::NEG_INFINITY, f64::max);
    let step = sizes.height + sizes.rank_gap;
    let at = |i: usize| {
        let Place { x, rank, .. } = places[i];
        (x - left + sizes.gap, sizes.gap + sizes.height / 2.0 + rank as f64 * step)
    };
    Layout {
        width: (right - left).max(0.0) + 2.0 * sizes.gap,
        height: rows.len() as f64 * step - sizes.rank_gap * f64::from(u8::from(!rows.is_empty()))
            + 2.0 * sizes.gap,
        boxes: (0..ranks.len()).map(at).collect(),
        edges: lines.into_iter().map(|line| line.into_iter().map(at).collect()).collect(),
    }
}

/// The rank of each box. A box without inputs is right above the highest one that it has an edge to.
fn ranks(boxes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let (mut into, mut out_of) = (vec![Vec::new(); boxes], vec![Vec::new(); boxes]);
    for &(from, to) in edges {
        assert!(from < to, "layout: an edge from {from} to {to}");
        into[to].push(from);
        out_of[from].push(to);
    }
    let mut ranks = vec![0; boxes];
    for i in 0..boxes {
        ranks[i] = into[i].iter().map(|&from| ranks[from] + 1).max().unwrap_or(0);
    }
    for i in 0..boxes {
        if into[i].is_empty() {
            ranks[i] = out_of[i].iter().map(|&to| ranks[to] - 1).min().unwrap_or(0);
        }
    }
    ranks
}

/// Sorts the places of every rank by the mean position of their neighbours in the rank above, from the
/// top down, and below, from the bottom up.
fn sort(places: &mut [Place], rows: &mut [Vec<usize>]) {
    let number = |places: &mut [Place], row: &[usize]| {
        row.iter().enumerate().for_each(|(order, &i)| places[i].order = order as f64);
    };
    rows.iter().for_each(|row| number(places, row));
    for sorting in 0..SORTINGS {
        let down = sorting % 2 == 0;
        for r in 0..rows.len() {
            let row = if down {
                &mut rows[r]
            } else {
                let last = rows.len() - 1;
                &mut rows[last - r]
            };
            let mean = |i: usize| {
                let near = if down { &places[i].up } else { &places[i].down };
                match near.len() {
                    0 => places[i].order,
                    n => near.iter().map(|&k| places[k].order).sum::<f64>() / n as f64,
                }
            };
            let mut sorted: Vec<(f64, usize)> = row.iter().map(|&i| (mean(i), i)).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            *row = sorted.into_iter().map(|(_, i)| i).collect();
            number(places, row);
        }
    }
}

/// Moves places towards their neighbours, without changing the order in a rank.
fn shift(places: &mut [Place], rows: &[Vec<usize>], gap: f64) {
    for row in rows {
        let mut x = 0.0;
        for &i in row {
            places[i].x = x + places[i].width / 2.0;
            x += places[i].width + gap;
        }
        row.iter().for_each(|&i| places[i].x -= x / 2.0);
    }
    for shift in 0..SHIFTS {
        for r in 0..rows.len() {
            let row = if shift % 2 == 0 { &rows[r] } else { &rows[rows.len() - 1 - r] };
            // A leaf, which has nothing above it, follows the operation that uses it.
            let weight = |i: usize| if places[i].up.is_empty() { 1e-3 } else { places[i].weight };
            let wish = |i: usize| {
                let near = places[i].up.iter().chain(&places[i].down);
                let (mut sum, mut all) = (0.0, 0.0);
                for &k in near {
                    sum += weight(k) * places[k].x;
                    all += weight(k);
                }
                if all > 0.0 { sum / all } else { places[i].x }
            };
            let wishes: Vec<(f64, f64)> = row.iter().map(|&i| (wish(i), weight(i))).collect();
            let widths: Vec<f64> = row.iter().map(|&i| places[i].width).collect();
            let x = nearest(&wishes, &widths, gap);
            row.iter().zip(x).for_each(|(&i, x)| places[i].x = x);
        }
    }
}

/// Positions without overlaps that are nearest to the wishes, by the weighted sum of squares: isotonic
/// regression by pooling adjacent violators (Ayer et al. 1955).
fn nearest(wishes: &[(f64, f64)], widths: &[f64], gap: f64) -> Vec<f64> {
    // Relative to neighbours that touch each other, positions must not decrease.
    let mut touching = Vec::with_capacity(widths.len());
    let mut edge = 0.0;
    for width in widths {
        touching.push(edge + width / 2.0);
        edge += width + gap;
    }
    // Pools of neighbours at the same relative position: that position, their weight and number.
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (&(wish, weight), touching) in wishes.iter().zip(&touching) {
        let mut pool = (wish - touching, weight, 1);
        while let Some(&(x, w, n)) = pools.last()
            && x > pool.0
        {
            pools.pop();
            pool = ((x * w + pool.0 * pool.1) / (w + pool.1), w + pool.1, n + pool.2);
        }
        pools.push(pool);
    }
    let relative = pools.iter().flat_map(|&(x, _, n)| std::iter::repeat_n(x, n));
    relative.zip(touching).map(|(x, touching)| x + touching).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_do_not_overlap_and_edges_lead_downwards() {
        let mut state = 1u64;
        for boxes in [0, 1, 2, 5, 40, 200] {
            let mut below = |n: usize| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as usize % n
            };
            let mut edges = Vec::new();
            for to in 1..boxes {
                (0..1 + below(3)).for_each(|_| edges.push((below(to), to)));
            }
            let widths: Vec<f64> = (0..boxes).map(|_| 20.0 + below(100) as f64).collect();
            let sizes = Sizes { widths: widths.clone(), height: 30.0, gap: 10.0, rank_gap: 20.0 };
            let Layout { width, height, boxes: at, edges: lines } = layout(&sizes, &edges);
            for i in 0..boxes {
                let (x, y) = at[i];
                assert!(x - widths[i] / 2.0 >= 9.9 && x + widths[i] / 2.0 <= width - 9.9);
                assert!(y >= 25.0 && y <= height - 25.0);
                for j in 0..i {
                    let apart = (x - at[j].0).abs() - (widths[i] + widths[j]) / 2.0;
                    assert!(y != at[j].1 || apart >= 9.9, "{i} and {j} of {boxes}");
                }
            }
            for (line, (from, to)) in lines.iter().zip(&edges) {
                assert_eq!((line.first(), line.last()), (at.get(*from), at.get(*to)));
                assert!(line.windows(2).all(|pair| pair[0].1 < pair[1].1));
            }
        }
    }
}
