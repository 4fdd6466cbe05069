//! From observed calls of attention to the data of the page.

use super::tap::{Observed, Seen};
use crate::attention::{AddedPart, AddedTo, HeadMap, PairMask, ScoreNormalizer, ScoreParts};
use retrograd_nn::attention::Normalizer;
use retrograd_nn::attention::observe::AttentionRows;
use retrograd_tensor::cost::Cost;
use retrograd_tensor::kernels::attention::TILE;
use retrograd_tensor::{Real, Tensor, par};

/// Elements of scores that are computed at once.
const BLOCK: usize = 1 << 20;
/// The largest number of queries or keys of which all rows are kept for scores.
const ALL_ROWS: usize = 512;

/// The heads of one call and its score parts, for the first sequence, block by block of queries: no matrix of all
/// scores is held. `tokens` are given if queries and keys have the same tokens.
pub(super) fn digest<T: Real>(
    seen: &Seen<T>,
    observed: &Observed<T>,
    tokens: Option<&[i64]>,
    gradient: Option<&Tensor<T>>,
    pair: Option<(usize, usize)>,
) -> (Vec<HeadMap>, ScoreParts) {
    let call = &seen.call;
    let [_, heads, lq, lk] = call.sizes();
    let mask_of = |head: usize| {
        let keep = |query: usize, key: usize| call.keeps(head, query, key);
        PairMask::new([lq, lk], keep, &call.tiles(head), TILE)
    };
    let by_head = call.masks_by_head();
    let first = (heads > 0).then(|| mask_of(0));
    let masks = (0..heads).map(|h| match (&first, by_head && h > 0) {
        (Some(first), false) => first.clone(),
        _ => mask_of(h),
    });
    let mut maps: Vec<HeadMap> = masks.map(|mask| HeadMap::new(mask, tokens)).collect();

    let kept = |n: usize, chosen: Option<usize>| -> Vec<usize> {
        match n.max(lq.max(lk)) <= ALL_ROWS {
            true => (0..n).collect(),
            false => chosen.into_iter().filter(|&i| i < n).collect(),
        }
    };
    let (queries, keys) = (kept(lq, pair.map(|p| p.0)), kept(lk, pair.map(|p| p.1)));
    let mut scores = operands(seen, observed, &queries, &keys);
    let step = (BLOCK / (heads * lk).max(1)).clamp(1, lq.max(1));
    for start in (0..lq).step_by(step) {
        let n = step.min(lq - start);
        let rows = call.rows(start, n);
        let weights = doubles(&rows.weights);
        let gradient = gradient.map(|g| doubles(&g.narrow(0, 0, 1).narrow(2, start, n)));
        let row = |h: usize, i: usize| (h * n + i) * lk..(h * n + i + 1) * lk;
        let push = |(h, map): (usize, &mut HeadMap)| {
            for i in 0..n {
                map.push(&weights[row(h, i)], gradient.as_ref().map(|g| &g[row(h, i)]));
            }
        };
        par::each(maps.iter_mut().enumerate().collect(), n * lk, Cost::SCALAR, push);
        let block = start..start + n;
        if queries.iter().any(|i| block.contains(i)) {
            let logits = doubles(&rows.scores);
            for h in 0..heads {
                for &i in queries.iter().filter(|i| block.contains(i)) {
                    let (s, w) = (&logits[row(h, i - start)], &weights[row(h, i - start)]);
                    scores.constants[h].push(constant(call.normalizer(), s, w));
                    if let Some(thresholds) = &mut scores.thresholds {
                        thresholds[h].push(threshold(s, w));
                    }
                }
            }
            for (part, values) in added(&rows, &logits).into_iter().enumerate() {
                if scores.added.len() == part {
                    let (name, to, _) = &values;
                    let values = vec![Vec::new(); heads];
                    scores.added.push(AddedPart { name: name.clone(), to: *to, values });
                }
                for h in 0..heads {
                    for &i in queries.iter().filter(|i| block.contains(i)) {
                        let r = &values.2[row(h, i - start)];
                        let at =
                            keys.iter().map(|&j| if r[j].is_finite() { r[j] as f32 } else { 0.0 });
                        scores.added[part].values[h].extend(at);
                    }
                }
            }
        }
    }
    (maps, scores)
}

/// The last query, or the one from whose row the last token was generated after a prompt; and of the other keys
/// the one with the largest weights in all heads together.
pub(super) fn default_pair<T: Real>(
    seen: &Seen<T>,
    is_self: bool,
    prompt: Option<usize>,
) -> Option<(usize, usize)> {
    let [_, _, lq, _] = seen.call.sizes();
    let last = lq.checked_sub(1)?;
    let query = last - usize::from(prompt.is_some_and(|prompt| last >= prompt.max(1)));
    let weights = seen.call.rows(query, 1).weights;
    let sums = doubles(&weights.select(1, 0).sum(0));
    let others = (0..sums.len()).filter(|&j| !is_self || j != query);
    let key =
        others.max_by(|&a, &b| sums[a].total_cmp(&sums[b])).or((!sums.is_empty()).then_some(0))?;
    Some((query, key))
}

pub(super) fn doubles<T: Real>(x: &Tensor<T>) -> Vec<f64> {
    x.to_vec().into_iter().map(|x| x.to_f64()).collect()
}

/// What is added to the products and to the scores, `[H, n, lk]` each. `logits` are the scores after all
/// of it.
fn added<T: Real>(rows: &AttentionRows<T>, logits: &[f64]) -> Vec<(String, AddedTo, Vec<f64>)> {
    let mut parts = Vec::new();
    if let Some(products) = &rows.products {
        parts.push(("added by the variant".to_string(), AddedTo::Product, doubles(products)));
    }
    for (name, values) in &rows.biases {
        parts.push((name.clone(), AddedTo::Score, doubles(values)));
    }
    if let Some(before) = &rows.unmixed {
        let before = doubles(before);
        let difference = logits.iter().zip(before).map(|(after, before)| after - before).collect();
        parts.push(("mixture with other heads".into(), AddedTo::Score, difference));
    }
    parts
}

/// Queries and keys of a call, with what is the same for all pairs.
fn operands<T: Real>(
    seen: &Seen<T>,
    observed: &Observed<T>,
    queries: &[usize],
    keys: &[usize],
) -> ScoreParts {
    let call = &seen.call;
    let rows = |x: &Tensor<T>, at: &[usize]| -> Vec<Vec<f32>> {
        let index = Tensor::from_vec(at.iter().map(|&i| i as i64).collect(), [at.len()]);
        let x = x.select(0, 0).index_select(1, &index);
        let head = |h: usize| x.select(0, h).to_vec().iter().map(|x| x.to_f64() as f32).collect();
        (0..x.size(0)).map(head).collect()
    };
    let [q, k] = call.mapped_operands();
    let before = |x: &Tensor<T>| {
        let mut all = observed.rotations.iter();
        let found = all.find(|[_, after]| after.shares_storage(x) && after.numel() == x.numel());
        found.map(|[before, _]| before.reshape(x.shape()))
    };
    let [rotated_q, rotated_k] = call.operands().map(before);
    let rotated = rotated_q.zip(rotated_k);
    let [_, heads, _, lk] = call.sizes();
    ScoreParts {
        queries: queries.to_vec(),
        keys: keys.to_vec(),
        width: q.size(-1),
        q: rows(&q, queries),
        k: rows(&k, keys),
        before: rotated.map(|(q, k)| [rows(&q, queries), rows(&k, keys)]),
        scale: call.scale(),
        softcap: call.softcap(),
        added: Vec::new(),
        normalizer: match call.normalizer() {
            Normalizer::Softmax => ScoreNormalizer::Softmax,
            Normalizer::Sigmoid { bias } => {
                let bias = bias.unwrap_or(-(lk.max(1) as f64).ln());
                ScoreNormalizer::Sigmoid { bias }
            }
            Normalizer::Sparsemax => ScoreNormalizer::Sparsemax,
            Normalizer::Entmax15 => ScoreNormalizer::Entmax15,
            Normalizer::TopK(k) => ScoreNormalizer::TopK { k },
            Normalizer::Linear => ScoreNormalizer::Linear,
        },
        constants: vec![Vec::new(); heads],
        thresholds: matches!(call.normalizer(), Normalizer::TopK(_))
            .then(|| vec![Vec::new(); heads]),
        sinks: call.sinks(),
    }
}

/// The constant of a row in the formula of the normaliser, from its largest weight.
fn constant(normalizer: Normalizer, scores: &[f64], weights: &[f64]) -> f64 {
    let most = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]));
    let Some((s, w)) = most.map(|j| (scores[j], weights[j])).filter(|(_, w)| *w > 0.0) else {
        return f64::NAN;
    };
    match normalizer {
        Normalizer::Softmax | Normalizer::TopK(_) => s - w.ln(),
        Normalizer::Sigmoid { .. } => 0.0,
        Normalizer::Sparsemax => s - w,
        Normalizer::Entmax15 => s / 2.0 - w.sqrt(),
        Normalizer::Linear => s / w,
    }
}

/// The mean of the smallest score with a weight and the largest one without: scores on the page are rounded
/// in another way. `-∞` if no score was dropped.
fn threshold(scores: &[f64], weights: &[f64]) -> f64 {
    let of = |kept: bool| {
        let pairs = scores.iter().zip(weights).filter(move |(_, w)| (**w > 0.0) == kept);
        pairs.map(|(s, _)| *s)
    };
    let (least, most) =
        (of(true).fold(f64::INFINITY, f64::min), of(false).fold(f64::NEG_INFINITY, f64::max));
    if most.is_finite() { (least + most) / 2.0 } else { f64::NEG_INFINITY }
}

/// The score parts of several calls as one layer's; `None` if they differ in more than the
/// numbers.
pub(super) fn joined(parts: Vec<ScoreParts>) -> Option<ScoreParts> {
    let mut parts = parts.into_iter();
    let mut all = parts.next()?;
    for next in parts {
        let names = |p: &ScoreParts| -> Vec<(String, AddedTo)> {
            p.added.iter().map(|a| (a.name.clone(), a.to)).collect()
        };
        let agree = all.width == next.width
            && (all.scale, all.softcap) == (next.scale, next.softcap)
            && all.normalizer == next.normalizer
            && all.before.is_some() == next.before.is_some()
            && all.sinks.is_some() == next.sinks.is_some()
            && all.q.len() * next.k.len() == next.q.len() * all.k.len()
            && names(&all) == names(&next);
        if !agree {
            return None;
        }
        all.q.extend(next.q);
        all.k.extend(next.k);
        for (before, more) in all.before.iter_mut().zip(next.before) {
            for (before, more) in before.iter_mut().zip(more) {
                before.extend(more);
            }
        }
        for (part, more) in all.added.iter_mut().zip(next.added) {
            part.values.extend(more.values);
        }
        all.constants.extend(next.constants);
        if let (Some(thresholds), Some(more)) = (&mut all.thresholds, next.thresholds) {
            thresholds.extend(more);
        }
        if let (Some(sinks), Some(more)) = (&mut all.sinks, next.sinks) {
            sinks.extend(more);
        }
    }
    Some(all)
}
