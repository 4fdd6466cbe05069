//! Chapter 15: Extending: an operation, an attention and a kernel of your own.
//!
//! The traits and constructors that the library's own operations are made of are public. This chapter
//! adds one of each kind in a program; `CONTRIBUTING.md` says what is needed in
//! addition for a part of the library: rows of test tables.
//!
//! # A pointwise operation
//!
//! A function of one number, elementwise, has a formula `f` and a vector-Jacobian product `vjp`. Both
//! are written on an [`Expr`](crate::tensor::formula::Expr), not on `f32`. So the same lines are
//! compiled for each instruction set, evaluated on dual numbers in tests, recorded on variables for
//! second derivatives, and printed as text. Here is the *squareplus*, `(x + √(x² + 4)) / 2`, a smooth
//! ReLU (Barron 2021, arXiv 2112.11687). With the output `y`, its derivative is `y / √(x² + 4)`.
//!
//! ```
//! use retrograd::autograd::check::{Check, gradcheck, gradgradcheck};
//! use retrograd::prelude::*;
//! use retrograd::tensor::Real;
//! use retrograd::tensor::cost::Cost;
//! use retrograd::tensor::formula::{Algebra, Expr};
//! use retrograd::tensor::ops::pointwise::{Pointwise, Saves, formulas};
//!
//! #[derive(Clone, Copy, Debug, Default)]
//! struct Squareplus;
//!
//! impl<T: Real> Pointwise<T> for Squareplus {
//!     const NAME: &'static str = "squareplus";
//!     const SAVES: Saves = Saves::Input; // vjp is given x
//!     const COST: Cost = Cost::CHEAP;
//!
//!     #[inline(always)]
//!     fn f<A: Algebra<T>>(self, x: Expr<T, A>) -> Expr<T, A> {
//!         0.5 * (x + (x * x + 4.0).sqrt())
//!     }
//!
//!     #[inline(always)]
//!     fn vjp<A: Algebra<T>>(self, x: Expr<T, A>, g: Expr<T, A>) -> Expr<T, A> {
//!         let root = (x * x + 4.0).sqrt();
//!         g * 0.5 * (x + root) / root
//!     }
//! }
//!
//! let x = [Var::leaf(Tensor::from([-3.0f64, 0.0, 1.5]))];
//! assert_eq!(x[0].map(Squareplus).value().to_vec()[1], 1.0);
//! assert!(gradcheck(|v| v[0].map(Squareplus), &x, &Check::precise()).is_ok());
//! assert!(gradgradcheck(|v| v[0].map(Squareplus), &x, &Check::default()).is_ok());
//! assert_eq!(formulas::<f64, Squareplus>()[0], "y = 0.5 · (x + √(x² + 4))");
//! ```
//!
//! # Any operation
//!
//! [`Var::from_op`](crate::autograd::Var::from_op) takes an operation, a value, the inputs,
//! and a closure that makes the rule. An [`Op`](crate::autograd::Op) has a name, names of inputs, and formulas, which
//! [pages](crate::study) show. Each input is saved by `save()` or not by `slot()`. `cx.input(&x)` is the saved
//! input as a variable. The rule names the input of each gradient, so a gradient that is not needed is
//! not computed.
//!
//! The example normalises rows to length 1, `y = x / ‖x‖`, with the rule `(g - y · Σ(g ∘ y)) / ‖x‖` of
//! [an exercise](super::chain_rule):
//!
//! ```
//! use retrograd::autograd::check::{Check, gradcheck, gradgradcheck};
//! use retrograd::autograd::{InputGrads, Op};
//! use retrograd::prelude::*;
//!
//! static UNIT_ROWS: Op = Op::new("unit_rows", &["x"])
//!     .formula("y = x / ‖x‖, by rows", "dx = (g − y · Σ g · y) / ‖x‖");
//!
//! fn unit_rows(x: &Var<f64>) -> Var<f64> {
//!     let value = x.value() / x.value().square().sum_keepdim(-1).sqrt();
//!     Var::from_op(&UNIT_ROWS, value, [x], |[x]| {
//!         let x = x.save();
//!         move |cx, g| {
//!             InputGrads::of(&x, || {
//!                 // Operations on variables, so a recorded pass can differentiate it.
//!                 let x = cx.input(&x);
//!                 let length = x.square().sum_keepdim(-1).sqrt();
//!                 let y = &x / &length;
//!                 (g - &y * (g * &y).sum_keepdim(-1)) / length
//!             })
//!         }
//!     })
//! }
//!
//! let x = [Var::leaf(Tensor::from([[3.0f64, 4.0], [1.0, -2.0]]))];
//! assert_eq!(unit_rows(&x[0]).value().i(0).to_vec(), [0.6, 0.8]);
//! assert!(gradcheck(|v| unit_rows(&v[0]), &x, &Check::precise()).is_ok());
//! assert!(gradgradcheck(|v| unit_rows(&v[0]), &x, &Check::default()).is_ok());
//! ```
//!
//! A rule may also capture tensors that are neither inputs nor results, such as a mask. Pass them through
//! [`observe::saved`](crate::autograd::observe::saved), as in `let mask = saved("mask", mask)`. Then a
//! [recording](crate::study::record::Recording) lists them by this name.
//!
//! Where the derivative is a kernel on tensors, [`Fused`](crate::autograd::Fused) is the trait: the
//! kernel, and a definition in ordinary operations, which a recorded pass differentiates.
//! [From closure to rule](super::rules) has a listing.
//!
//! # A module
//!
//! A module is a struct with [`Param`](crate::nn::Param)s and a `visit` that names each. From `visit`
//! follow the list of parameters, state dicts, checkpoints and optimisers. If it omits a parameter,
//! `check_module` says which:
//!
//! ```
//! use retrograd::nn::Param;
//! use retrograd::nn::testing::check_module;
//! use retrograd::prelude::*;
//!
//! /// `x · s + b`, with a scale and a shift for each feature.
//! struct Affine {
//!     scale: Param<f64>,
//!     shift: Param<f64>,
//! }
//!
//! impl Affine {
//!     fn new(width: usize) -> Affine {
//!         Affine {
//!             scale: Param::new(Tensor::ones([width])),
//!             shift: Param::new(Tensor::zeros([width])),
//!         }
//!     }
//!     fn forward(&self, x: &Var<f64>) -> Var<f64> {
//!         x * &self.scale.to_var() + &self.shift.to_var()
//!     }
//! }
//!
//! impl Module<f64> for Affine {
//!     fn visit(&self, v: &mut Visitor<'_, f64>) {
//!         v.param("scale", &self.scale);
//!         v.param("shift", &self.shift);
//!     }
//! }
//!
//! let x = Var::constant(Tensor::<f64>::randn([5, 3], &mut Rng::new(1)));
//! check_module(|| Affine::new(3), |m| m.forward(&x).square().sum(..));
//! ```
//!
//! # An attention
//!
//! A variant that changes scores or masks only is a [`Spec`](crate::nn::attention::Spec). This mask
//! lets each token see the tokens before it at distances that are powers of two, and itself:
//!
//! ```
//! use retrograd::nn::attention::{At, Mask, Spec, attend};
//! use retrograd::prelude::*;
//!
//! let powers = Mask::from_fn("powers of two", |At { query, key, .. }| {
//!     let distance = query - key as isize;
//!     distance == 0 || (distance > 0 && (distance as u64).is_power_of_two())
//! });
//! let mut rng = Rng::new(1);
//! let mut x = || Var::leaf(Tensor::<f64>::randn([9, 4], &mut rng));
//! let (q, k, v) = (x(), x(), x());
//! let y = attend(&q, &k, &v, &Spec::new().mask(powers));
//! let g = y.i(8).sum(..).backward();
//! let seen: Vec<bool> =
//!     g.get(&v).unwrap().sum(1).to_vec().iter().map(|&g| g != 0.0).collect();
//! // Distances 8, 4, 2, 1 and 0.
//! assert_eq!(seen, [true, false, false, false, true, false, true, true, true]);
//! ```
//!
//! A variant with parameters is a module. `Projections` has what most variants share, and `Incremental`
//! derives the forward pass and generation with a cache from one method. Here the scores are multiplied
//! by a learned temperature:
//!
//! ```
//! use retrograd::nn::Param;
//! use retrograd::nn::attention::{
//!     HeadSizes, Incremental, KvCache, Past, Projections, Spec, attend,
//! };
//! use retrograd::prelude::*;
//!
//! struct Tempered {
//!     projections: Projections<f64>,
//!     temperature: Param<f64>,
//! }
//!
//! impl Module<f64> for Tempered {
//!     fn visit(&self, v: &mut Visitor<'_, f64>) {
//!         self.projections.visit(v);
//!         v.param("temperature", &self.temperature);
//!     }
//! }
//!
//! impl Incremental<f64> for Tempered {
//!     fn run(
//!         &self,
//!         x: &Var<f64>,
//!         spec: &Spec<f64>,
//!         past: &mut Past<'_, f64>,
//!         pass: &mut Pass,
//!     ) -> Var<f64> {
//!         let [q, k, v] = self.projections.qkv(x, past, pass);
//!         let spec = self.projections.with_dropout(spec, pass);
//!         let heads = attend(&(q * &self.temperature.to_var()), &k, &v, &spec);
//!         self.projections.project_out(&heads, pass)
//!     }
//! }
//!
//! let mut rng = Rng::new(1);
//! let projections = Projections::new(HeadSizes::new(8, 2), &mut rng);
//! let layer =
//!     Tempered { projections, temperature: Param::new(Tensor::from([1.5])) };
//! let x = Var::constant(Tensor::<f64>::randn([1, 6, 8], &mut rng));
//! let (spec, pass) = (Spec::new().causal(), &mut Pass::eval());
//! let whole = layer.forward(&x, &spec, pass);
//! // In two parts, with a cache: the same numbers.
//! let mut cache = KvCache::new(6); // room for 6 tokens
//! let first = layer.forward_cached(&x.narrow(1, 0, 4), &spec, &mut cache);
//! let second = layer.forward_cached(&x.narrow(1, 4, 2), &spec, &mut cache);
//! let parts = Var::cat(&[&first, &second], 1);
//! assert!((&whole - &parts).value().abs().max(..).item() < 1e-14);
//! assert!(whole.square().sum(..).backward().get(&layer.temperature).is_some());
//!
//! // In a language model. The closure makes the layer; `GptConfig::projections` has the sizes, rotary
//! // positions, dropout and initialisation of the configuration, which determines the other parts.
//! let config =
//!     GptConfig { vocab: 10, context: 8, layers: 2, heads: 2, width: 8, ..GptConfig::default() };
//! let model = Gpt::<f64>::with_attention(config.clone(), &mut rng, |_, rng| {
//!     let projections = config.projections(rng);
//!     attention_layer(Tempered { projections, temperature: Param::new(Tensor::from([1.5])) })
//! });
//! let (model, tokens) = (model.unwrap(), Tensor::from([[1i64, 2, 3]]));
//! let grads = model.loss(&tokens, &tokens, &mut Pass::train(0)).backward();
//! assert_eq!(grads.len(), model.named_parameters().len());
//! ```
//!
//! The steps to a variant in the library, with its row of tests, are in `CONTRIBUTING.md`.
//!
//! # A kernel
//!
//! A kernel is a struct with its operands and a `run` that is generic over the vectors.
//! `#[inline(always)]` is not a matter of taste: `run` must be inlined into the function that is
//! compiled for the instruction set. This one computes the sum of absolute differences of two slices,
//! with four sums, so that additions do not wait for each other:
//!
//! ```
//! use retrograd::prelude::*;
//! use retrograd::tensor::Real;
//! use retrograd::tensor::settings::{level, with_level};
//! use retrograd::tensor::simd::{Kernel, Lanes, Level};
//!
//! struct Distance<'a>(&'a [f32], &'a [f32]);
//!
//! impl Kernel<f32> for Distance<'_> {
//!     type Out = f32;
//!     #[inline(always)]
//!     fn run<S: Lanes<f32>>(self, s: S) -> f32 {
//!         let Distance(x, y) = self;
//!         let mut sums = [s.splat(0.0); 4];
//!         let (x, y) = (x.chunks(4 * S::N), y.chunks(4 * S::N));
//!         for (x, y) in x.zip(y) {
//!             for (i, (x, y)) in x.chunks(S::N).zip(y.chunks(S::N)).enumerate() {
//!                 // The last vector may be a part: its other lanes are equal in both.
//!                 let (x, y) = (s.load_or(x, 0.0), s.load_or(y, 0.0));
//!                 sums[i] = s.add(sums[i], s.abs(s.sub(x, y)));
//!             }
//!         }
//!         s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
//!     }
//! }
//!
//! let mut rng = Rng::new(1);
//! let (x, y) = (
//!     Tensor::<f32>::randn([1003], &mut rng),
//!     Tensor::<f32>::randn([1003], &mut rng),
//! );
//! let distance = || f32::dispatch(level(), Distance(x.as_slice(), y.as_slice()));
//! let wanted = (&x - &y).abs().sum(..).item();
//! assert!((distance() - wanted).abs() < 1e-3);
//! // The portable version of the same source.
//! assert!((with_level(Level::Scalar, distance) - wanted).abs() < 1e-3);
//! ```
//!
//! Then measure it as in [the chapter before](super::measuring): against the first version, and against
//! the limit of the machine.
//!
//! # Exercises
//!
//! The solutions are tests in `tests/book/extending.rs`; `cargo test -p retrograd-tests --test book extending` runs them.
//!
//! 1. Write `Pointwise` for the Gaussian `exp(-x²)`. Why can it not save its output in place of its
//!    input? (`gaussian`)
//! 2. A custom operation that is the identity forward and multiplies the gradient by -1 backward
//!    (*gradient reversal*). (`gradient_reversal`)
//! 3. Straight-through rounding: `round` forward, identity backward. Why does `gradcheck` reject it?
//!    (`straight_through`)
//! 4. A mask for text in lines: a token sees the tokens of its own line. (`lines_mask`)
//! 5. Divide the work of `Distance` among threads with [`par::map`](crate::tensor::par::map), with the
//!    same bits for any number of threads. (`distance_in_parallel`)
//!
//! Previous: [Measuring](super::measuring).
