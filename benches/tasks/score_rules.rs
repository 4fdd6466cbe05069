//! Attention whose scores follow a rule.

use super::{Pass, Work, numbers};
use retrograd::nn::attention::{Buckets, Path, Rule, Spec, attend};
use retrograd::prelude::Var;

const RULES: [&str; 10] = [
    "none",
    "softcap",
    "buckets",
    "slopes",
    "temperature",
    "forget",
    "gaussian",
    "shaw",
    "transformer-xl",
    "cope",
];

/// `score fwd|fwd+bwd RULE BATCH HEADS LENGTH SIZE tiled|composed`: causal attention with gradients of the operands
/// of the rule, by the tiled path or by matrices of all scores.
pub fn work(words: &[&str]) -> Option<Work> {
    let ["score", pass, rule, b, h, l, d, path] = words else { return None };
    let (pass, [b, h, l, d]) = (Pass::named(pass)?, numbers(&[b, h, l, d])?);
    let rule = *RULES.iter().find(|name| *name == rule)?;
    let path = match *path {
        "tiled" => Path::Tiled,
        "composed" => Path::Composed,
        _ => return None,
    };
    let of_rule = match rule {
        "none" | "softcap" => vec![],
        "buckets" => vec![vec![h, 32]],
        "slopes" | "temperature" => vec![vec![h]],
        "forget" => vec![vec![b, h, l]],
        "gaussian" => vec![vec![b, h, l], vec![b, h, l]],
        "shaw" => vec![vec![33, d], vec![33, d]],
        "transformer-xl" => vec![vec![h, l, d]],
        _ => vec![vec![d, 64]],
    };
    let shapes: Vec<_> = std::iter::repeat_n(vec![b, h, l, d], 3).chain(of_rule).collect();
    let flops = pass.pick(4.0, 14.0) * (b * h * l * (l + 1) / 2 * d) as f64;
    Work::pass(pass, (flops, 0.0), shapes, move |x| {
        let (q, k, v) = (&x[0], &x[1], &x[2]);
        let spec = Spec::new().causal().path(path);
        let spec = if rule == "softcap" { spec.softcap(30.0) } else { spec };
        let spec = rules(rule, q, &x[3..]).into_iter().fold(spec, Spec::rule);
        attend(q, k, v, &spec)
    })
}

fn rules(rule: &str, q: &Var, x: &[Var]) -> Vec<Rule> {
    let clipped = |distance: isize| (distance.clamp(-16, 16) + 16) as usize;
    match rule {
        "buckets" => {
            let buckets = Buckets { count: 32, max_distance: 128, bidirectional: false };
            vec![Rule::buckets(x[0].clone(), buckets)]
        }
        "slopes" => vec![Rule::slopes(x[0].clone())],
        "temperature" => vec![Rule::temperature(x[0].clone())],
        "forget" => vec![Rule::forget(&x[0].log_sigmoid())],
        "gaussian" => vec![Rule::gaussian(x[0].clone() * 64.0, x[1].exp() * 32.0)],
        "shaw" => vec![
            Rule::relative_products(q.clone(), x[0].clone(), clipped),
            Rule::relative_values(x[1].clone(), clipped),
        ],
        "transformer-xl" => {
            let last = x[0].size(-2) - 1;
            let index = move |away: isize| last.saturating_add_signed(away).min(last);
            vec![Rule::relative_products(q.clone(), x[0].clone(), index)]
        }
        "cope" => vec![Rule::contextual(q.matmul(&x[0]))],
        _ => vec![],
    }
}
