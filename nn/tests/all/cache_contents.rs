//! Contents, capacity and truncation of caches.

use retrograd_nn::attention::KvCache;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

/// All operations in random order, compared with a list of the held tokens.
#[test]
fn caches_equal_lists_of_tokens() {
    for limit in [None, Some((0, 3)), Some((2, 3)), Some((1, 0)), Some((0, 0))] {
        let mut rng = Rng::new(3);
        let mut below = |n: usize| (rng.key().uniform(0) * n as f64) as usize;
        let (mut cache, most) = match limit {
            None => (KvCache::<f64>::new(12), 12),
            Some((first, last)) => (KvCache::streaming(first, last), first + last),
        };
        let rows = |tokens: &[usize], width: usize| {
            let at = |i: &[usize]| (1000 * i[0] + 10 * width * tokens[i[2]] + i[3]) as f64;
            Tensor::from_fn([2, 1, tokens.len(), width], at)
        };
        let (mut held, mut seen, mut next, mut given) = (Vec::<usize>::new(), 0, 0, Vec::new());
        for step in 0..400 {
            match below(9) {
                0 | 1 if held.len() == seen => {
                    seen = below(seen + 1);
                    held.truncate(seen);
                    cache.truncate(seen);
                }
                2 if below(4) == 0 => {
                    cache.clear();
                    (held, seen) = (Vec::new(), 0);
                }
                // A copy does not share what is appended later.
                3 if limit.is_some() || seen < 12 => {
                    let copy = cache.clone();
                    cache.append(&rows(&[999], 1), &rows(&[999], 2));
                    cache = copy;
                }
                _ => {
                    let new = below(4).min(if limit.is_none() { 12 - seen } else { 4 });
                    if let Some((first, last)) = limit.filter(|_| held.len() > most) {
                        held.drain(first..held.len() - last);
                    }
                    held.extend(next..next + new);
                    let new: Vec<usize> = (next..next + new).collect();
                    (seen, next) = (seen + new.len(), next + new.len());
                    let got = cache.append(&rows(&new, 1), &rows(&new, 2));
                    given.push((got, (rows(&held, 1), rows(&held, 2))));
                }
            }
            // What was given out stays.
            let (got, want) = given.iter().rev().take(5).cloned().unzip::<_, _, Vec<_>, Vec<_>>();
            assert_eq!(got, want, "{limit:?}, step {step}");
            let len = held.len().min(most);
            assert_eq!((cache.position(), cache.len()), (seen, len), "{limit:?}, step {step}");
            assert_eq!((cache.is_empty(), cache.bytes()), (len == 0, len * 2 * 3 * 8));
            assert_eq!(cache.remaining(), limit.is_none().then(|| 12 - seen));
        }
    }
}
