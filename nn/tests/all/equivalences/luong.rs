//! Additive and Luong's attention.

use super::Vars;
use crate::common::*;
use retrograd_autograd::Var;
use retrograd_nn::attention::*;
use retrograd_tensor::Tensor;
use retrograd_tensor::random::Rng;

pub fn additive_and_luong(t: &mut Table) {
    let r = &mut Rng::new(6);
    // Hidden values of several tiles.
    let x = [randn(&[2, 21, 3], 1), randn(&[2, 90, 4], 2)];
    let seen = Mask::lengths(&[90, 17]);
    let additive = AdditiveAttention::new(3, 4, 80, r);
    let literal = |x: Vars<'_>| {
        let q = x[0].matmul(&additive.query.weight.to_var().t()).unsqueeze(2);
        let k = x[1].matmul(&additive.key.weight.to_var().t())
            + additive.key.bias.as_ref().unwrap().to_var();
        let s = (q + k.unsqueeze(1)).tanh().matmul(&additive.v.to_var().unsqueeze(-1)).squeeze(-1);
        let keep = Tensor::from_fn([2, 1, 90], |i| i[0] == 0 || i[2] < 17);
        s.masked_softmax(-1, &keep).matmul(&x[1])
    };
    let ours = |x: Vars<'_>| additive.forward(&x[0], &x[1], &x[1], seen.clone(), &mut eval());
    t.same("additive, in tiles = its formula at once", &x, ours, literal);

    additive.key.bias.as_ref().unwrap().set(Tensor::zeros([80]));
    let w = Tensor::cat(&[&additive.query.weight.value(), &additive.key.weight.value()], 1);
    let concat = LuongAttention::new(LuongConcat::new(3, 4, 80, r), 3, 4, r);
    concat.score.weight.set(w);
    concat.score.v.set(additive.v.value());
    t.same(
        "Luong concat = additive, W = [W U]",
        &x,
        |x| concat.context(&x[0], &x[1], seen.clone()),
        ours,
    );
    t.same(
        "Luong concat = vᵀ tanh(W [h_t; h_s])",
        &x,
        |x| concat.context(&x[0], &x[1], Mask::full()),
        |x| {
            let t = x[0].unsqueeze(2).broadcast_to([2, 21, 90, 3]);
            let s = x[1].unsqueeze(1).broadcast_to([2, 21, 90, 4]);
            let hidden = Var::cat(&[&t, &s], -1).matmul(&concat.score.weight.to_var().t()).tanh();
            let scores = hidden.matmul(&concat.score.v.to_var().unsqueeze(-1)).squeeze(-1);
            scores.softmax(-1).matmul(&x[1])
        },
    );

    let x = [randn(&[2, 5, 4], 1), randn(&[2, 150, 4], 2)];
    let dot = LuongAttention::new(LuongDot, 4, 4, r);
    let general = LuongAttention::new(LuongGeneral::new(4, 4, r), 4, 4, r);
    general.score.weight.set(Tensor::eye(4));
    let of_dot = |x: Vars<'_>| dot.context(&x[0], &x[1], Mask::full());
    t.same(
        "Luong general, W = 1 = dot",
        &x,
        |x| general.context(&x[0], &x[1], Mask::full()),
        of_dot,
    );
    for path in [Path::Tiled, Path::Composed] {
        t.same(&format!("Luong dot = scaled dot product, scale 1, {path:?}"), &x, of_dot, |x| {
            let [t, s] = [&x[0], &x[1]].map(|x| x.unsqueeze(1));
            attend(&t, &s, &s, &Spec::new().scale(1.0).path(path)).squeeze(1)
        });
    }
    let location = LuongAttention::new(LuongLocation::new(4, 200, r), 4, 4, r);
    t.same(
        "Luong location = softmax(W h_t), cut",
        &x,
        |x| location.context(&x[0], &x[1], Mask::full()),
        |x| {
            let scores = x[0].matmul(&location.score.weight.to_var().t()).slice(-1, 0..150);
            scores.softmax(-1).matmul(&x[1])
        },
    );
}

pub fn local(t: &mut Table) {
    let r = &mut Rng::new(6);
    let x = [randn(&[2, 5, 4], 1), randn(&[2, 150, 4], 2)];
    let general = LuongAttention::new(LuongGeneral::new(4, 4, r), 4, 4, r);
    general.score.weight.set(Tensor::eye(4));
    let far = LuongLocalM::new(general.clone(), 150);
    let global = |x: Vars<'_>| general.forward(&x[0], &x[1], Mask::full(), &mut eval());
    t.same(
        "Luong local-m, D >= L = global",
        &x,
        |x| far.forward(&x[0], &x[1], Mask::full(), &mut eval()),
        global,
    );
    t.same("Luong output = tanh(W_c [c; h_t])", &x, global, |x| {
        let both = Var::cat(&[&general.context(&x[0], &x[1], Mask::full()), &x[0]], -1);
        both.matmul(&general.combine.weight.to_var().t()).tanh()
    });
    let p = LuongLocalP::new(general.clone(), 4, 6, r);
    t.same(
        "Luong local-p = its formula",
        &x,
        |x| p.forward(&x[0], &x[1], &[150, 40], &mut eval()),
        |x| {
            let hidden = x[0].matmul(&p.position.weight.to_var().t()).tanh();
            let share = hidden.matmul(&p.v_p.to_var().unsqueeze(-1)).sigmoid();
            let lengths = Var::constant(Tensor::from_vec(vec![150.0, 40.0], [2, 1, 1]));
            let center = share * lengths;
            let at = Var::constant(Tensor::from_fn([150], |i| i[0] as f64));
            let away = at - center;
            let near = away.value().abs().le(6.0);
            let inside = Tensor::from_fn([2, 1, 150], |i| i[0] == 0 || i[2] < 40);
            let weights = x[0].matmul(&x[1].t()).masked_softmax(-1, &near.and(&inside));
            let bell = (away.square() / -18.0).exp();
            let both = Var::cat(&[&(weights * bell).matmul(&x[1]), &x[0]], -1);
            both.matmul(&general.combine.weight.to_var().t()).tanh()
        },
    );
}
