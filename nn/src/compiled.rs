//! The modules of this crate that programs use most, compiled for `f32` in this crate, so that
//! programs link them, and for `f64` in builds of tests; see [`retrograd_autograd::compiled`]. These
//! functions are never called.

use crate::activation::Activation;
use crate::attention::{Buckets, Rule, Spec, attend, attend_all, attend_packed, attend_with_lse};
use crate::gpt::{Gpt, GptConfig, Sampler};
use crate::module::{Layer, Module};
use crate::optim::{Adam, AdamConfig, AdamW, Muon, Optimizer, Sgd};
use crate::pass::Pass;
use crate::state::StateDict;
use retrograd_autograd::{Gradients, Var};
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Integer, Real, Tensor};
use std::hint::black_box;

/// All of them.
#[doc(hidden)]
#[inline(never)]
pub fn modules() {
    modules_on::<f32>();
    #[cfg(debug_assertions)]
    modules_on::<f64>();
    // Their kernels are those of this crate.
    black_box(rules::<f32> as fn(_) -> _);
    black_box(rules::<f64> as fn(_) -> _);
}

fn modules_on<T: Real>() {
    black_box(layers::<T> as fn(_, _));
    black_box(Gpt::<T>::new as fn(GptConfig, _) -> _);
    black_box(gpt::<T, i64> as fn(_, _));
    black_box(optimisers::<T> as fn(_, _));
}

fn rules<T: Real>(x: &Var<T>) -> impl Sized {
    let y = || x.clone();
    let buckets = Buckets { count: 2, max_distance: 2, bidirectional: true };
    let of_heads = [Rule::buckets(y(), buckets), Rule::slopes(y()), Rule::temperature(y())];
    (of_heads, Rule::forget(x), Rule::gaussian(y(), y()))
}

fn layers<T: Real>(x: &Var<T>, spec: &Spec<T>) {
    let _ = [attend(x, x, x, spec), attend_packed(x, 1, 1, spec)];
    let _ = (attend_all(x, x, x, spec), attend_with_lse(x, x, x, spec));
    let _ = Activation::Gelu.forward(x, &mut Pass::eval());
    let _ = Sampler::default().draw(x.value(), &mut Rng::new(0));
}

fn gpt<T: Real, I: Integer>(model: &Gpt<T>, tokens: &Tensor<I>) {
    let mut pass = Pass::eval();
    let _ = [model.forward(tokens, &mut pass), model.loss(tokens, tokens, &mut pass)];
    let _ = model.forward_cached(tokens, &mut model.cache());
    let _ = (model.loss_and_gradients(tokens, tokens, &mut pass), model.attention_maps(tokens));
    let _ = model.generate(&[], Sampler::default(), &mut Rng::new(0)).next();
    let _ = (model.state_dict(), model.load_state_dict(&StateDict::new()));
}

fn optimisers<T: Real>(model: &Gpt<T>, grads: &Gradients<T>) {
    let config = AdamConfig::default();
    let _ = Adam::new(model, config).map(|mut adam| adam.step(grads));
    let _ = AdamW::new(model, config).map(|mut adam| adam.step(grads));
    let _ = Sgd::new(model, Default::default()).map(|mut sgd| sgd.step(grads));
    let _ = Muon::new(model, Default::default()).map(|mut muon| muon.step(grads));
}
