//! Whole runs divided among ranks.

use crate::launch::run;
use crate::program::Place;

#[test]
fn ranks_share_the_runs_of_a_grid() {
    let place = Place::new();
    let recipe = "--preset tiny --steps 5";
    let out = run(&place, 2, &format!("grid seed=1,2,3 lr=1e-3,1e9 --out grid {recipe}")).ok();
    assert_eq!(out.matches("failed: stopped at step").count(), 3, "{out}");
    assert_eq!(out.matches("lr=1e-3").count(), 3, "one table: {out}");
    place.ok(&format!("train --seed 2 --lr 1e-3 --out alone {recipe}"));
    assert!(place.checkpoint("grid/seed=2,lr=1e-3") == place.checkpoint("alone"));
}
