//! The corpora of the fuzz targets, read again. In a process of its own, because its memory is counted.
#![cfg(unix)]

#[path = "../fuzz/src/checks.rs"]
mod checks;

use checks::{TARGETS, run, stretched};
use std::fs;

#[test]
fn every_input_of_the_corpora_passes_its_check() {
    let corpora = retrograd_support::path("fuzz/corpus");
    assert_eq!(fs::read_dir(&corpora).unwrap().count(), TARGETS.len());
    for target in TARGETS {
        for file in fs::read_dir(corpora.join(target.0)).unwrap() {
            let file = file.unwrap().path();
            println!("{}", file.display());
            let data = fs::read(file).unwrap();
            run(target, &data);
            run(target, &stretched(&data));
        }
    }
}
