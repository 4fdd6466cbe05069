//! A description of a spec as text, with a map of its mask.

use super::mask::{Align, Mask, Sizes};
use super::spec::{Normalizer, Path, Sink, Spec};
use retrograd_tensor::Real;
use retrograd_tensor::error::{OrPanic, ShapeError};
use retrograd_tensor::kernels::attention::{At, Class, TILE, TileMask};
use std::fmt::Write;

impl<T: Real> Spec<T> {
    /// The parts of the spec in words, and a map of the mask.
    ///
    /// For short sequences the map has a row for each query and a column for each key, `#` where
    /// the pair attends and `.` where it does not. For longer ones a character is one tile of 64
    /// queries by 64 keys, or several: `#` full, `+` partial, `.` empty. If the mask depends on the
    /// head or the sequence, there are up to four different maps. For a mask from a function, which
    /// may depend on both, the map shows the first head of the first sequence. Below each map
    /// are the numbers of full, partial and empty tiles, and the percentage of tiles that the path
    /// computes. It is an upper bound, because the kernel classifies tiles of 32 queries.
    ///
    /// ```
    /// use retrograd::nn::attention::Spec;
    /// let text = Spec::<f32>::new().causal().explain(256, 256);
    /// assert!(text.contains("keys up to the query"));
    /// assert!(text.contains("+...\n  #+..\n  ##+.\n  ###+"));
    /// ```
    ///
    /// # Panics
    /// If the mask does not fit these lengths.
    #[track_caller]
    pub fn explain(&self, lq: usize, lk: usize) -> String {
        let (batch, heads) = self.mask.counts();
        let batch = self.starts.as_ref().map_or(batch, |starts| batch.max(starts.len()));
        let sizes = Sizes { batch, heads, lq, lk };
        let offset = match &self.starts {
            Some(starts) => starts.iter().copied().max().unwrap_or(0),
            None => self.offset(lq, lk),
        };
        let mut out = String::new();
        let mut line = |text: String| writeln!(out, "{text}").expect("strings can be written to");
        match self.scale {
            Some(scale) => line(format!("scores      {scale} q·k")),
            None => line("scores      q·k / √Dk".into()),
        }
        if let Some(c) = self.softcap {
            line(format!("softcap     {c} tanh(s / {c})"));
        }
        for bias in &self.biases {
            line(format!("bias        {bias:?}"));
        }
        for rule in &self.rules {
            line(format!("rule        {rule:?}"));
        }
        if self.score_mix.is_some() {
            line("heads       scores are mixed".into());
        }
        line(format!("mask        {:?}", self.mask));
        match &self.starts {
            Some(starts) => line(format!("positions   query 0 at keys {starts:?}, by sequence")),
            None => {
                let align = self.align.unwrap_or_default();
                let why = match align {
                    Align::TopLeft => " (the first query at the first key)",
                    Align::BottomRight => " (the last query at the last key)",
                    Align::Offset(_) => "",
                };
                line(format!("positions   query 0 at key {offset}{why}"));
            }
        }
        line(match self.normalizer {
            Normalizer::Softmax => "weights     softmax".into(),
            Normalizer::Sigmoid { bias: None } => "weights     sigmoid, bias -ln(keys)".into(),
            Normalizer::Sigmoid { bias: Some(bias) } => format!("weights     sigmoid, bias {bias}"),
            Normalizer::Sparsemax => "weights     sparsemax".into(),
            Normalizer::Entmax15 => "weights     entmax 1.5".into(),
            Normalizer::TopK(k) => format!("weights     softmax of the {k} largest scores"),
            Normalizer::Linear => "weights     linear, without an exponential".into(),
        });
        match &self.sink {
            Sink::None => {}
            Sink::Zero => line("sink        a logit of 0".into()),
            Sink::Learned(x) => line(format!("sink        {} learned logits", x.value().numel())),
        }
        if let Some((p, _)) = self.dropout {
            line(format!("dropout     {p} of the weights"));
        }
        if self.weight_mix.is_some() {
            line("heads       weights are mixed".into());
        }
        let skips = match (self.path, self.needs_composed()) {
            (Path::Tiled, Some(why)) => {
                line(format!("path        none: the tiled path is required, but {why}"));
                false
            }
            (_, Some(why)) => {
                line(format!("path        composed: {why}"));
                false
            }
            (Path::Composed, None) => {
                line("path        composed, as required".into());
                false
            }
            (_, None) => {
                line(format!("path        tiled, {TILE} keys at a time"));
                true
            }
        };
        let resolved = self.mask.resolved(sizes, None, offset);
        let mut mask = resolved.map_err(|e| ShapeError { op: "explain", ..e }).or_panic();
        if let Some(starts) = &self.starts {
            mask = mask.shifted(&starts.iter().map(|start| start - offset).collect());
        }
        let (by_batch, by_head) = mask.depends();
        let unsaid = (by_batch && batch == 1, by_head && heads == 1);

        let mut shown: Vec<(String, String)> = Vec::new();
        for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
            if shown.len() == MAPS {
                break;
            }
            let map = map(&mask, (b, h), offset, sizes, skips);
            if shown.iter().all(|(_, other)| *other != map) {
                let of = match (batch, heads) {
                    (1, 1) if unsaid != (false, false) => {
                        " of sequence 0, head 0; other heads and sequences may differ".into()
                    }
                    (1, 1) => String::new(),
                    (1, _) => format!(" of head {h}"),
                    (_, 1) => format!(" of sequence {b}"),
                    _ => format!(" of sequence {b}, head {h}"),
                };
                shown.push((of, map));
            }
        }
        for (of, map) in shown {
            write!(out, "map{of}\n{map}").expect("strings can be written to");
        }
        out
    }
}

/// The classes of the tiles of one sequence and head: a line for each row of tiles, with `#` for a full
/// tile, `+` for a partial one and `.` for an empty one.
pub(crate) fn tiles(mask: &Mask, (b, h): (usize, usize), offset: isize, sizes: Sizes) -> String {
    let Sizes { lq, lk, .. } = sizes;
    let mut text = String::new();
    draw((lq.div_ceil(TILE), lk.div_ceil(TILE)), 1, tile(mask, (b, h), offset, sizes), &mut text);
    text.replace(' ', "")
}

/// The class of a tile, by its row and column.
fn tile(
    mask: &Mask,
    (b, h): (usize, usize),
    offset: isize,
    Sizes { lq, lk, .. }: Sizes,
) -> impl Fn(usize, usize) -> Class {
    move |i, j| {
        let (q, k) = (i * TILE..((i + 1) * TILE).min(lq), j * TILE..((j + 1) * TILE).min(lk));
        mask.class(b, h, q.start as isize + offset..q.end as isize + offset, k)
    }
}

/// The largest number of maps.
const MAPS: usize = 4;
/// The largest number of characters along a side of a map.
const SIDE: usize = 48;

/// The map of one sequence and head, followed by its counts.
fn map(mask: &Mask, (b, h): (usize, usize), offset: isize, sizes: Sizes, skips: bool) -> String {
    let Sizes { lq, lk, .. } = sizes;
    let class = tile(mask, (b, h), offset, sizes);
    let attend = |i: usize, j: usize| {
        let query = i as isize + offset;
        if mask.keep(At { batch: b, head: h, query, key: j }) { Class::Full } else { Class::Empty }
    };
    let tiles = (lq.div_ceil(TILE), lk.div_ceil(TILE));
    let longest = lq.max(lk);
    let mut text = String::new();
    if longest <= SIDE {
        let [masked, _, attend] = draw((lq, lk), 1, attend, &mut text);
        let all = masked + attend;
        let percent = 100 * attend / all.max(1);
        writeln!(text, "  {attend} of {all} pairs attend: {percent} %")
            .expect("strings can be written to");
    }
    let mut large = String::new();
    let [empty, partial, full] =
        draw(tiles, longest.div_ceil(TILE * SIDE).max(1), class, &mut large);
    if longest > SIDE {
        text = large;
    }
    let percent = 100 * (full + partial) / (full + partial + empty).max(1);
    let words = match skips {
        true => format!("{empty} skipped tiles of {TILE}: {percent} % computed"),
        false => format!("{empty} empty tiles of {TILE}: 100 % computed"),
    };
    writeln!(text, "  {full} full, {partial} partial and {words}").expect("a string");
    text
}

/// Appends a map of a matrix of classes to `text`, with one character per `per_char` by `per_char`
/// classes; returns the number of elements of each class.
fn draw(
    (rows, cols): (usize, usize),
    per_char: usize,
    class: impl Fn(usize, usize) -> Class,
    text: &mut String,
) -> [usize; 3] {
    let mut counts = [0; 3];
    for i in (0..rows).step_by(per_char) {
        text.push_str("  ");
        for j in (0..cols).step_by(per_char) {
            let mut here = [0; 3];
            for i in i..(i + per_char).min(rows) {
                for j in j..(j + per_char).min(cols) {
                    here[class(i, j) as usize] += 1;
                }
            }
            (0..3).for_each(|c| counts[c] += here[c]);
            let all = here.iter().sum::<usize>();
            let c = [Class::Empty, Class::Full].into_iter().find(|c| here[*c as usize] == all);
            text.push(match c {
                Some(Class::Empty) => '.',
                Some(_) => '#',
                None => '+',
            });
        }
        text.push('\n');
    }
    counts
}
