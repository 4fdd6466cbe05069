//! Tiny tensors, for measuring per-operation overhead.

use super::{Pass, Work, digest, operands, timed};
use retrograd::prelude::*;

/// `tiny add fwd`, one tracked addition of 16 numbers; `tiny chain PASS`, a thousand of them, each
/// of the result before; `tiny mlp PASS`, layers 10 → 24 → 24 → 10 with biases, 1114 parameters.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["tiny", name, pass] = words else { return None };
    let pass = Pass::named(pass)?;
    match *name {
        "add" => tracked(pass, vec![vec![16], vec![16]], |x| &x[0] + &x[1]),
        "chain" => tracked(pass, vec![vec![16], vec![16]], |x| {
            (1..1000).fold(&x[0] + &x[1], |y, _| &y + &x[1])
        }),
        "mlp" => {
            let layers = [(10, 24), (24, 24), (24, 10)];
            let layers = layers.iter().flat_map(|&(i, o)| [vec![o, i], vec![o]]);
            let shapes = [vec![1, 10]].into_iter().chain(layers).collect();
            tracked(pass, shapes, |x| {
                let linear = |x: &Var, w: &[Var]| x.matmul(&w[0].t()) + &w[1];
                let h = linear(&x[0], &x[1..3]).relu();
                let h = linear(&h, &x[3..5]).relu();
                linear(&h, &x[5..7])
            })
        }
        _ => None,
    }
}

/// As [`Work::pass`], but that the forward pass is recorded, too.
fn tracked(pass: Pass, shapes: Vec<Vec<usize>>, f: fn(&[Var]) -> Var) -> Option<Work> {
    if pass == Pass::Both {
        return Work::pass(pass, (0.0, 0.0), shapes, f);
    }
    Work::new(0.0, 0.0, move || {
        let inputs = operands(Pass::Both, &shapes);
        timed(move || f(&inputs), |y| digest(y.value()))
    })
}
