//! From an observed recurrence to the data of the page.

use super::digest::doubles;
use crate::attention::{HeadMap, PairMask, StateParts};
use retrograd_autograd::Recurrence;
use retrograd_nn::attention::observe::StateCall;
use retrograd_tensor::Real;

/// The equivalent weights of the heads of the first sequence, and their states over time.
pub(super) fn digest_state<T: Real>(
    call: &StateCall<T>,
    tokens: Option<&[i64]>,
) -> (Vec<HeadMap>, StateParts) {
    let of = &call.recurrence;
    let [heads, length, rows] = [1, 2, 3].map(|axis| of.k.size(axis));
    let weights = doubles(&of.weights().value().select(0, 0));
    let mask = PairMask::new([length, length], |query, key| key <= query, "+", length.max(1));
    let maps = (0..heads).map(|h| {
        let weights = &weights[h * length * length..(h + 1) * length * length];
        let scale = weights.iter().fold(0.0f64, |most, w| most.max(w.abs()));
        let scale = if scale > 0.0 { scale } else { 1.0 };
        let mut map = HeadMap::signed(mask.clone(), tokens, scale);
        weights.chunks(length.max(1)).for_each(|row| map.push(row, None));
        map
    });
    let maps = maps.collect();

    let mut parts = StateParts { rows, norms: vec![Vec::new(); heads], ..StateParts::default() };
    let mut state = call.state.clone();
    for t in 0..length {
        let [_, next] = token(of, t).run(state.as_ref());
        let norms = doubles(&next.square().sum(-1).sqrt().value().select(0, 0));
        for (all, norms) in parts.norms.iter_mut().zip(norms.chunks(rows.max(1))) {
            all.extend(norms);
        }
        state = Some(next);
    }
    for norms in &mut parts.norms {
        let largest = norms.iter().fold(0.0f64, |most, norm| most.max(*norm));
        norms.iter_mut().for_each(|norm| *norm /= if largest > 0.0 { largest } else { 1.0 });
        parts.largest.push(largest);
    }
    if let Some(decay) = &of.decay {
        let decays = doubles(&decay.value().broadcast_to(of.k.shape()).select(0, 0));
        parts.decays = decays.chunks((length * rows).max(1)).map(<[f64]>::to_vec).collect();
    }
    (maps, parts)
}

/// The recurrence of one token.
fn token<T: Real>(of: &Recurrence<T>, t: usize) -> Recurrence<T> {
    let length = of.k.size(2);
    let at = |x: &retrograd_autograd::Var<T>| match x.rank() >= 2 && x.size(-2) == length {
        true => x.narrow(-2, t, 1),
        false => x.clone(),
    };
    Recurrence {
        q: at(&of.q),
        k: at(&of.k),
        v: at(&of.v),
        decay: of.decay.as_ref().map(at),
        low_rank: of.low_rank.as_ref().map(|x| x.each_ref().map(at)),
    }
}
