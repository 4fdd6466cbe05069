//! The loss of a [`Gpt`] and its gradients, with ignored targets and in shards.

use crate::common::*;
use retrograd_autograd::Gradients;
use retrograd_nn::*;
use retrograd_support::panics_here;
use retrograd_tensor::random::Rng;
use retrograd_tensor::{Real, Tensor, with_threads};

const VOCAB: i64 = 11;

fn model<T: Real>() -> Gpt<T> {
    gpt(GptConfig { vocab: VOCAB as usize, context: 100, width: 16, ..config() }, 1)
}

/// Tokens and targets of a batch of sequences.
fn batch(batch: usize, length: usize) -> [Tensor<i64>; 2] {
    let rng = &mut Rng::new(7);
    [(); 2].map(|()| Tensor::randint(0, VOCAB, [batch, length], rng))
}

/// The targets for which `counts` (a sequence and a position in it) is true; elsewhere `ignored`.
fn only(targets: &Tensor<i64>, ignored: i64, counts: impl Fn(usize, usize) -> bool) -> Tensor<i64> {
    let keep = |i: &[usize]| if counts(i[0], i[1]) { targets.at(i) } else { ignored };
    Tensor::from_fn(targets.shape(), keep)
}

/// The largest difference between two sets of gradients, which must have the same members.
fn difference(a: &Gradients<f64>, b: &Gradients<f64>) -> f64 {
    let ids = |g: &Gradients<f64>| g.iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(ids(a), ids(b));
    let pairs = a.iter().zip(b.iter());
    pairs.map(|((_, a), (_, b))| (a - b).abs().max(..).item()).fold(0.0, f64::max)
}

/// Shards are weighted by their numbers of targets that are not ignored, in any distribution over the
/// sequences. The number of threads changes no bit.
#[test]
fn ignored_targets_are_excluded_from_every_shard() {
    let model = model::<f64>();
    let check = |name: &str, [tokens, targets]: [Tensor<i64>; 2]| {
        let whole = model.loss(&tokens, &targets, &mut Pass::eval());
        let [(loss, gradients), (again, same)] = [2, 3].map(|threads| {
            let run = || model.loss_and_gradients(&tokens, &targets, &mut Pass::eval());
            with_threads(threads, run)
        });
        assert!((loss - whole.item()).abs() < 1e-13, "{name}: {loss}, not {}", whole.item());
        assert!(loss.to_bits() == again.to_bits() && gradients.iter().eq(same.iter()), "{name}");
        let difference = difference(&gradients, &whole.backward());
        assert!(difference < 1e-14, "{name}: gradients differ by {difference}");
        loss
    };
    let [tokens, all] = batch(8, 100);
    let with = |counts: &dyn Fn(usize, usize) -> bool| [tokens.clone(), only(&all, -100, counts)];
    check("all", with(&|_, _| true));
    check("half of the sequences", with(&|row, _| row < 4));
    check("every other sequence", with(&|row, _| row % 2 == 0));
    check("sequences of different lengths", with(&|row, at| at < 100 >> row));
    check("one target", with(&|row, at| (row, at) == (5, 40)));
    assert_eq!(check("none", with(&|_, _| false)), 0.0);
    check("one short sequence", batch(1, 5));
    // An odd number of sequences in four shards.
    let [tokens, all] = batch(17, 96);
    check("odd", [tokens, only(&all, -100, |row, at| at % (row + 1) == 0)]);
}

/// Each shard has its own dropout mask: eight times the same sequence have another loss than one.
#[test]
fn shards_have_dropout_masks_of_their_own() {
    let config = GptConfig { context: 96, dropout: 0.5, ..config() };
    let model = Gpt::<f64>::new(config, &mut Rng::new(1)).unwrap();
    let tokens = Tensor::<i64>::ones([1, 96]);
    let loss = |x: &Tensor<i64>| model.loss_and_gradients(x, x, &mut Pass::train(3)).0;
    assert_ne!(loss(&tokens.broadcast_to([8, 96])), loss(&tokens));
}

#[test]
fn the_ignored_target_can_be_chosen() {
    let [tokens, all] = batch(8, 100);
    let counts = |row: usize, at: usize| at < 100 >> row;
    let run = |model: Gpt<f64>, targets: &Tensor<i64>| {
        let whole = model.loss(&tokens, targets, &mut Pass::eval()).item();
        let (loss, gradients) = model.loss_and_gradients(&tokens, targets, &mut Pass::eval());
        assert!((loss - whole).abs() < 1e-13);
        (loss, gradients.norm())
    };
    assert_eq!(model::<f64>().ignore_index(), Some(-100));
    let want = run(model(), &only(&all, -100, counts));
    let ignoring = |target| model::<f64>().with_ignore_index(target);
    assert_eq!(ignoring(Some(-1)).ignore_index(), Some(-1));
    assert_eq!(run(ignoring(Some(-1)), &only(&all, -1, counts)), want);
    // It may be a valid token, such as a padding token.
    let without_3 = |row, at| all.at(&[row, at]) != 3;
    let want = run(model(), &only(&all, -100, without_3));
    assert_eq!(run(ignoring(Some(3)), &all), want);
    assert_ne!(run(ignoring(None), &all), want);
    assert_eq!(run(ignoring(None), &all), run(model(), &all));
    // A clone has the same setting.
    assert_eq!(ignoring(Some(-1)).clone().ignore_index(), Some(-1));
}

#[test]
fn invalid_batches_are_errors() {
    let model = model::<f32>();
    let [tokens, targets] = batch(8, 100);
    let run = |model: &Gpt, tokens: &Tensor<i64>, targets: &Tensor<i64>| {
        panic_text(|| model.loss_and_gradients(tokens, targets, &mut Pass::eval()))
    };
    let padded = only(&targets, -1, |row, at| (row, at) != (7, 2));
    let want = "gpt: target -1 at position 702 is outside 0..11, and the ignored target \
                (ignore_index) is -100 (hint: Gpt::with_ignore_index sets it)";
    assert_eq!(run(&model, &tokens, &padded), want);
    assert_eq!(panic_text(|| model.loss(&tokens, &padded, &mut Pass::eval())), want);
    let all = model.clone().with_ignore_index(None);
    let text = run(&all, &tokens, &padded);
    assert!(text.contains("the ignored target (ignore_index) is none"), "{text}");

    let wrong = only(&tokens, 11, |row, at| (row, at) != (3, 5));
    assert_eq!(run(&model, &wrong, &targets), "gpt: token 11 at position 305 is outside 0..11");
    let long = Tensor::zeros([8, 101]);
    let want = "gpt: a sequence of 101 tokens is longer than the context of 100";
    assert_eq!(run(&model, &long, &long), want);
    let text = run(&model, &tokens, &targets.narrow(0, 0, 7));
    assert!(text.contains("[8, 100] and [7, 100]"), "{text}");
}

/// Panics have the line of the call, although shards are computed by other threads.
#[test]
fn invalid_batches_are_reported_at_the_line_of_the_caller() {
    let model = model::<f32>();
    let [tokens, targets] = batch(8, 100);
    let wrong = only(&targets, -1, |row, _| row > 0);
    with_threads(3, || {
        let said = "gpt: token -1 at position 0 is outside";
        panics_here! {
            model.loss_and_gradients(&tokens, &wrong, &mut Pass::eval()) => "target";
            model.loss_and_gradients(&wrong, &targets, &mut Pass::eval()) => said;
            model.attention_maps(&wrong) => said;
            model.forward_cached(&wrong, &mut model.cache()) => said;
        }
    });
}

/// Without targets the loss is 0, with gradients of 0.
#[test]
fn the_loss_of_no_targets_is_0() {
    for vocab in [7, 9000] {
        let model = Gpt::<f32>::new(GptConfig { vocab, ..config() }, &mut Rng::new(1)).unwrap();
        for shape in [[0, 4], [2, 0], [2, 4]] {
            let (tokens, targets) = (Tensor::zeros(shape), Tensor::full(shape, -100i64));
            let (loss, gradients) = model.loss_and_gradients(&tokens, &targets, &mut Pass::eval());
            let alone = model.loss(&tokens, &targets, &mut Pass::eval()).item();
            assert_eq!(
                (loss.to_bits(), alone.to_bits(), gradients.norm()),
                (0, 0, 0.0),
                "{shape:?}"
            );
        }
    }
}
