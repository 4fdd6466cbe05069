//! Contents, capacity and truncation of caches.

use retrograd_nn::attention::KvCache;
use retrograd_tensor::Tensor;

#[test]
fn caches_append_drop_and_truncate() {
    let rows =
        |from: usize, n: usize| Tensor::from_fn([2, 1, n, 1], |i| (10 * i[0] + from + i[2]) as f64);
    let held = |cache: &mut KvCache<f64>| {
        let none = Tensor::zeros([2, 1, 0, 1]);
        cache.append(&none, &none).0.select(0, 1).to_vec()
    };
    let mut cache = KvCache::new(8);
    assert!(cache.is_empty());
    let first = cache.append(&rows(0, 3), &rows(0, 3)).0;
    cache.append(&rows(3, 4), &rows(3, 4));
    assert_eq!(first.select(0, 1).to_vec(), [10.0, 11.0, 12.0], "what was given out stays");
    assert_eq!((cache.len(), cache.remaining()), (7, Some(1)));
    cache.truncate(2);
    cache.append(&rows(5, 1), &rows(5, 1));
    assert_eq!(held(&mut cache), [10.0, 11.0, 15.0]);
    assert_eq!(first.select(0, 1).to_vec(), [10.0, 11.0, 12.0], "what was given out stays");
    cache.clear();
    assert_eq!((cache.len(), cache.position(), cache.remaining()), (0, 0, Some(8)));

    let mut cache = KvCache::streaming(1, 2);
    cache.append(&rows(0, 2), &rows(0, 2));
    let (k, _) = cache.append(&rows(2, 4), &rows(2, 4));
    assert_eq!(
        k.select(0, 0).to_vec(),
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        "new queries attend to all held keys"
    );
    assert_eq!((cache.len(), cache.position(), cache.remaining()), (3, 6, None));
    assert_eq!(held(&mut cache), [10.0, 14.0, 15.0]);
    for i in 6..40 {
        cache.append(&rows(i, 1), &rows(i, 1));
    }
    assert_eq!(held(&mut cache), [10.0, 48.0, 49.0]);
    let mut none = KvCache::sliding(0);
    none.append(&rows(0, 2), &rows(0, 2));
    assert_eq!(held(&mut none), [0.0; 0]);
}
