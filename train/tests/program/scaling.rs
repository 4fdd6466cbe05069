//! The prediction of `scaling`.

use crate::program::{Place, USAGE};

/// The numbers of the rows under a heading, up to an empty line.
fn table(text: &str, heading: &str) -> Vec<Vec<f64>> {
    let rows = text.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    let rows = rows.take_while(|line| !line.is_empty());
    rows.map(|row| row.split_whitespace().map(|x| x.parse().unwrap()).collect()).collect()
}

#[test]
fn scaling_predicts_the_step_for_more_cores_and_writes_nothing() {
    let place = Place::new();
    let text = place.ok("scaling --preset tiny --batch 32 --threads 2");
    let predicted = table(&text, "cores ");
    let cores: Vec<f64> = predicted.iter().map(|row| row[0]).collect();
    assert_eq!(cores, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], "{text}");
    assert_eq!(predicted[0][2], 1.0, "{text}");
    for row in &predicted {
        let [cores, ms, speedup, most] = row[..] else { panic!("{text}") };
        assert!(ms > 0.0 && speedup > 0.0 && most <= cores, "{text}");
        assert!(speedup <= most + 0.01, "{text}");
    }
    let measured = table(&text, "threads ");
    assert_eq!(measured.iter().map(|row| row[0]).collect::<Vec<_>>(), [1.0, 2.0], "{text}");
    assert!(text.contains("On 64 cores") && text.contains("> shards > "), "{text}");
    // The cores wait for a part while it runs.
    for line in text.lines().filter(|line| line.contains("> shards > ")) {
        let number = |word: &str| word.trim_end_matches('%').parse::<f64>().unwrap();
        let [idle, time] = [0, 1].map(|i| number(line.split_whitespace().nth(i).unwrap()));
        assert!(idle <= time + 0.1 && time <= 100.0, "{text}");
    }
    assert!(!place.exists("out"));
    // It has no flags of runs.
    place.fails("scaling --out run", USAGE, &["unexpected argument '--out'"]);
}
