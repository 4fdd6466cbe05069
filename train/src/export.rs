//! Models for other programs: `export`.

use crate::checkpoints::Which;
use crate::flags::ModelFlags;
use crate::output::{note, say};
use crate::run::Run;
use crate::stop::{OrFailed, Result, failed, usage};
use clap::{Args, ValueEnum};
use indicatif::HumanCount;
use retrograd::nn::checkpoint::write_atomically;
use retrograd::nn::pretrained::{Export as To, PretrainedError, WeightType};
use retrograd::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Write a model for another program, and check what was written
///
/// Reads every file again and compares all weights. --verify also runs the other program.
#[derive(Args, Debug)]
pub struct Export {
    /// The run, or a model of another program
    run: PathBuf,

    /// The file or folder to write; it must not exist
    out: PathBuf,

    /// For whom
    #[arg(long, value_enum, value_name = "TARGET")]
    to: Target,

    /// The weights: f32, f16, bf16, or q8_0 (blocks of 8-bit integers; not for hf)
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: WeightType,

    /// Run the other program on prompts, and compare logits and 200 greedy tokens with those of this one
    ///
    /// Needs a python3 with onnxruntime; or torch and transformers; or xllamacpp, which has llama.cpp.
    #[arg(long)]
    verify: bool,

    /// The checkpoint of the run: last, best, or the step of one that was kept
    #[arg(long, value_name = "NAME", default_value = "last")]
    checkpoint: Which,
}

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// A folder of Hugging Face's transformers, with the tokenizer and a model card
    Hf,
    /// A file of llama.cpp, with the tokenizer
    Gguf,
    /// A graph of ONNX, with a cache of keys and values as inputs and outputs
    Onnx,
}

/// The greedy tokens that are compared.
const TOKENS: usize = 200;
/// The tokens of a prompt, at most.
const PROMPT: usize = 8;
/// The largest difference of log-probabilities, relative to the largest of them, that is no error.
const TOLERANCE: f64 = 1e-4;
/// The same if the other program rounds activations, too.
const ROUNDED_TOLERANCE: f64 = 0.05;

/// Writes a model and checks it.
pub fn export(args: &Export) -> Result<()> {
    let Export { out, dtype, .. } = args;
    if out.symlink_metadata().is_ok() {
        return usage(format!("{} exists: it is not replaced", out.display()));
    }
    let model =
        ModelFlags { out: Some(args.run.clone()), checkpoint: args.checkpoint, tokenizer: None };
    let run = Run::of_folder(&model)?;
    let name =
        args.run.file_name().map_or_else(|| "retrograd".into(), |name| name.to_string_lossy());
    let to = To { weights: *dtype, tokenizer: Some(&run.tokenizer), name: &name };
    let write = || {
        match args.to {
            Target::Hf => to.hugging_face(&run.model, out)?,
            Target::Gguf => to.gguf(&run.model, out)?,
            Target::Onnx => to.onnx(&run.model, out)?,
        }
        if args.to == Target::Hf {
            let card = out.join("README.md");
            write_atomically(&card, card_of(&run, *dtype).as_bytes())
                .map_err(|e| PretrainedError::Io(card, e))?;
        }
        to.verify(&run.model, out)
    };
    if let Err(e) = write() {
        // It did not exist.
        let _ = if out.is_dir() { fs::remove_dir_all(out) } else { fs::remove_file(out) };
        return failed(format!("cannot export: {e}"));
    }
    let parameters = HumanCount(run.model.num_parameters() as u64);
    say!("{}: {parameters} parameters in {dtype}, read again with the same bits", out.display());
    if args.verify {
        compare(args, &run)?;
    }
    Ok(())
}

/// The model card of a run.
fn card_of(run: &Run, weights: WeightType) -> String {
    let c = run.model.config();
    let mut rows = vec![
        ("weights", weights.to_string()),
        ("tokenizer", format!("{} of {} tokens", run.tokenizer.kind(), run.tokenizer.vocab_size())),
        (
            "layers, heads, width, context",
            format!("{}, {}, {}, {}", c.layers, c.heads, c.width, c.context),
        ),
    ];
    if let Some(source) = &run.source {
        // Not where it was: a card is for others.
        let file = source.file.as_ref().and_then(|file| file.file_name());
        let text =
            file.map_or("generated tales".into(), |name| name.to_string_lossy().into_owned());
        let flags = run.recipe.flags().into_iter().filter(|(name, _)| name != "tokenizer");
        let flags: String = flags.map(|(name, value)| format!(" --{name} {value}")).collect();
        rows.push(("training text", text));
        rows.push(("recipe", format!("`train{flags}`, of which {} steps were taken", run.step)));
        rows.push(("program", format!("retrograd {}", env!("CARGO_PKG_VERSION"))));
    }
    if let Some(best) = run.best {
        let loss = format!("{:.4} nats per token after step {}", best.val_loss, best.step);
        rows.push(("lowest held-out loss during training", loss));
    }
    let rows: String = rows.iter().map(|(name, text)| format!("| {name} | {text} |\n")).collect();
    // A text that its vocabulary has.
    let prompt = prompts(run).into_iter().find_map(|prompt| prompt.text).unwrap_or_default();
    format!(
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\n---\n\n\
         # A language model of {} parameters\n\n| | |\n|---|---|\n{rows}\n\
         ```python\n\
         from transformers import AutoModelForCausalLM, AutoTokenizer\n\n\
         tokenizer = AutoTokenizer.from_pretrained(\".\")\n\
         model = AutoModelForCausalLM.from_pretrained(\".\")\n\
         tokens = model.generate(**tokenizer({prompt:?}, return_tensors=\"pt\"), max_new_tokens=20)\n\
         print(tokenizer.decode(tokens[0]))\n\
         ```\n",
        HumanCount(run.model.num_parameters() as u64),
    )
}

/// A prompt for the other program.
#[derive(Serialize)]
struct Prompt {
    tokens: Vec<i64>,
    /// Their text, if it has these tokens.
    text: Option<String>,
    /// The number of tokens to append.
    count: usize,
}

/// What the other program appended.
#[derive(Deserialize)]
struct Continued {
    tokens: Vec<i64>,
    /// Logits, or log-probabilities, of each of them.
    logits: Vec<Vec<f64>>,
    /// Whether its tokenizer reads and writes the text of the prompt as this one, if it has one.
    agrees: Option<bool>,
    seconds: f64,
}

#[derive(Deserialize)]
struct Reply {
    program: String,
    results: Vec<Continued>,
}

/// Prompts that the model samples, for [`TOKENS`] tokens in all.
fn prompts(run: &Run) -> Vec<Prompt> {
    let (context, vocab) = (run.model.config().context, run.model.config().vocab);
    let length = PROMPT.min(context / 2).max(1);
    let (mut rng, mut left) = (Rng::new(1), TOKENS);
    let mut all = Vec::new();
    while left > 0 && context > length {
        let first = vec![(all.len() % vocab) as i64];
        let sampled = run.model.generate(&first, Sampler::default(), &mut rng);
        let tokens: Vec<i64> = first.iter().copied().chain(sampled).take(length).collect();
        let text = run.tokenizer.decode(&tokens);
        // Bytes may be parts of characters.
        let is_read = run.tokenizer.encode(&text).is_ok_and(|read| read == tokens);
        let text = is_read.then_some(text);
        let count = left.min(context - length);
        left -= count;
        all.push(Prompt { tokens, text, count });
    }
    all
}

/// Runs the other program, and compares what it computes.
fn compare(args: &Export, run: &Run) -> Result<()> {
    let prompts = prompts(run);
    if prompts.is_empty() {
        return usage("--verify needs a context of two tokens");
    }
    let Reply { program, results } = ask(args, run, &prompts)?;
    // With the weights that were written, which have been compared.
    let rounded = match args.dtype {
        WeightType::F32 => None,
        _ => {
            Some(Gpt::<f32>::from_pretrained(&args.out).or_failed("cannot read what was written")?)
        }
    };
    let (model, vocab) = (rounded.as_ref().unwrap_or(&run.model), run.model.config().vocab);
    let (mut most, mut largest, mut same, mut reads) = (0.0f64, 0.0f64, 0, None);
    let (mut theirs, mut ours, mut total) = (0.0, 0.0, 0);
    for (i, prompt) in prompts.iter().enumerate() {
        let is_whole = |reply: &&Continued| {
            let n = reply.tokens.len();
            n <= prompt.count && reply.logits.len() == n
        };
        let Some(Continued { tokens, logits, agrees, seconds }) = results.get(i).filter(is_whole)
        else {
            return failed(format!("{program} has not continued every prompt"));
        };
        if tokens.is_empty() {
            continue;
        }
        total += tokens.len();
        let input = [&prompt.tokens[..], &tokens[..tokens.len() - 1]].concat();
        let input = Tensor::from_vec(input, [1, prompt.tokens.len() + tokens.len() - 1]);
        let own = no_grad(|| model.forward(&input, &mut Pass::eval())).value().log_softmax(-1);
        for (i, (token, row)) in tokens.iter().zip(logits).enumerate() {
            let own = own.select(0, 0).select(0, prompt.tokens.len() - 1 + i);
            same += usize::from(own.argmax(0).item() == *token);
            let mut row = row.clone();
            row.resize(vocab, f64::NAN);
            let sum = row.iter().map(|x| x.exp()).sum::<f64>().ln();
            for (a, b) in own.to_vec().into_iter().map(f64::from).zip(&row) {
                let difference = (a - (b - sum)).abs();
                most = if difference.is_nan() { f64::INFINITY } else { most.max(difference) };
                largest = largest.max(a.abs());
            }
        }
        if let Some(agrees) = agrees {
            reads = Some(reads.unwrap_or(true) && *agrees);
        }
        theirs += seconds;
        let (start, mut rng) = (Instant::now(), Rng::new(1));
        model
            .generate(&prompt.tokens, Sampler::greedy(), &mut rng)
            .take(tokens.len())
            .for_each(drop);
        ours += start.elapsed().as_secs_f64();
    }
    if total == 0 {
        return failed(format!("{program} has continued no prompt"));
    }
    let relative = most / largest;
    let tokenizer = match reads {
        None => "",
        Some(true) => "; its tokenizer agrees",
        Some(false) => "; its tokenizer differs",
    };
    say!(
        "{program}: log-probabilities differ by at most {most:.1e}, {relative:.1e} of the largest; {same} of \
         {total} greedy tokens agree{tokenizer}"
    );
    let rates = [theirs, ours].map(|seconds| total as f64 / seconds);
    note!("Greedy tokens per second: {:.0} there with one thread, {:.0} here", rates[0], rates[1]);
    // llama.cpp also rounds what it multiplies by weights of other types than f32.
    let is_exact = args.to != Target::Gguf || args.dtype == WeightType::F32;
    let is_same = match is_exact {
        true => relative <= TOLERANCE && same == total,
        false => relative <= ROUNDED_TOLERANCE,
    };
    match is_same && reads != Some(false) {
        true => Ok(()),
        false => failed(format!("{program} computes something else")),
    }
}

/// Asks the other program to continue prompts.
fn ask(args: &Export, run: &Run, prompts: &[Prompt]) -> Result<Reply> {
    const BEFORE: &str = "cannot run python3";
    let script = match args.to {
        Target::Hf => include_str!("export/hf.py"),
        Target::Gguf => include_str!("export/gguf.py"),
        Target::Onnx => include_str!("export/onnx.py"),
    };
    let script = format!("{script}\n\n{}", include_str!("export/main.py"));
    let path = fs::canonicalize(&args.out).or_failed("cannot find what was written")?;
    let task = json!({ "path": path, "prompts": prompts, "vocab": run.model.config().vocab });
    let mut child = Command::new("python3")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .or_failed(BEFORE)?;
    let mut input = child.stdin.take().expect("it is piped");
    // If it has ended, its status says why.
    let _ = input.write_all(task.to_string().as_bytes());
    drop(input);
    let output = child.wait_with_output().or_failed(BEFORE)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.trim_end().lines().last().unwrap_or("it gave no reason").to_string();
        return failed(format!("the other program failed: {last}"));
    }
    serde_json::from_slice(&output.stdout).or_failed("python3 printed something else")
}
