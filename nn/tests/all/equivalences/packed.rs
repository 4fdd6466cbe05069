//! Packed sequences, which equal separate ones.

use super::by;
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;

pub fn packed(t: &mut Table, with: &str, p: &Projections<f64>) {
    let x = [randn(&[11, 6], 4)];
    let packed = Packed::from_cu_seqlens(&[0, 4, 5, 11]);
    let m = PackedAttention::new(p.clone());
    t.case(with).same(
        "packed documents = separate runs",
        &x,
        |x| m.forward(&x[0], &packed, Mask::full(), &mut eval()),
        |x| {
            let runs: Vec<_> = packed
                .ranges()
                .into_iter()
                .map(|r| by(p, Mask::causal())(&[x[0].slice(0, r)]))
                .collect();
            Var::cat(&runs.iter().collect::<Vec<_>>(), 0)
        },
    );
    let shared = Packed::shared_prefix(4, &[3, 4]);
    t.case(with).same(
        "shared prefix = each branch after its prefix",
        &x,
        |x| m.forward(&x[0], &shared, Mask::full(), &mut eval()),
        |x| {
            let prefix = x[0].slice(0, 0..4);
            let mut runs = vec![by(p, Mask::causal())(std::slice::from_ref(&prefix))];
            for r in shared.ranges() {
                let all = Var::cat(&[&prefix, &x[0].slice(0, r)], 0);
                runs.push(by(p, Mask::causal())(&[all]).slice(0, 4..));
            }
            Var::cat(&runs.iter().collect::<Vec<_>>(), 0)
        },
    );
}
