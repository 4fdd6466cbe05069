//! A rank that leaves early: the job ends with an error that names it.

use crate::launch::mpiexec;
use crate::program::{Ended, Place};
use retrograd::distributed::{Communicator, DataParallel, Mpi};
use retrograd::nn::Linear;
use retrograd::nn::optim::{Sgd, SgdConfig};
use retrograd::prelude::*;
use std::io::Write as _;
use std::sync::Arc;

const CASE: &str = "RETROGRAD_MPI_LEAVES";

/// One of the ranks that the next test starts.
#[test]
fn rank() {
    let Ok(case) = std::env::var(CASE) else { return };
    let mpi = Arc::new(Mpi::start().unwrap());
    let is = |what: &str| mpi.rank() == 1 && case == what;
    let model = Linear::<f32>::new(3, 2, &mut Rng::new(1));
    let bias = model.bias.as_ref().expect("a bias");
    let parallel = DataParallel::new(&model, mpi.clone());
    let make = |owned: &_| Ok(Box::new(Sgd::new(owned, SgdConfig::default())?) as _);
    let mut sgd = parallel.optimizer(make).unwrap();
    let steps = if is("step more") { 3 } else { 2 };
    for step in 0..steps {
        let loss = |_| model.weight.to_var().square().mean(..) + bias.to_var().sum(..);
        let (_, mut grads) = parallel.gradients(&[1; 4], loss);
        if step == 1 && is("nan") {
            grads.scale(f32::NAN);
        }
        assert!(step == 0 || !is("panic"), "no step");
        if step == 1 && is("leave") {
            return;
        }
        if let Err(error) = sgd.step(&grads) {
            // In one write: the other rank writes to the same pipe.
            let line = format!("rank {}: {error}\n", mpi.rank());
            std::io::stderr().write_all(line.as_bytes()).unwrap();
            return;
        }
        parallel.share_parameters();
    }
}

#[test]
fn a_rank_that_leaves_ends_the_job() {
    let place = Place::new();
    let cases = [
        ("all stay", ""),
        ("nan", "rank 0: rank 1: no step was taken: the gradient is not finite for bias"),
        ("leave", "waits in call 2 of step: rank 1 left after call 2 of gradients"),
        ("step more", "rank 1 waits in call 3 of gradients: rank"),
        ("panic", "error: rank 1 panicked in call 2 of gradients"),
    ];
    for (case, expected) in cases {
        let mut command = mpiexec(&place, &["-n", "2"]);
        command.arg(std::env::current_exe().unwrap()).env(CASE, case);
        let ended =
            Ended::of(command.args(["leave::rank", "--exact", "--nocapture"]).spawn().unwrap());
        assert!(ended.err.contains(expected), "{case}: {ended:?}");
        assert_eq!(ended.code == Some(0), ["all stay", "nan"].contains(&case), "{case}: {ended:?}");
    }
}
