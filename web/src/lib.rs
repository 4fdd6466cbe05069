//! The engine of a page: requests and answers are JSON, which pass through the memory of a module of WebAssembly.
//!
//! A request is an object with one entry, see [`Request`]. An answer begins with a byte that says what follows: `j`
//! JSON, `h` a page, `b` bytes of a file, `e` a sentence that says what is wrong.

// Fields have the names of what the page asks for.
#![allow(missing_docs)]

mod expression;
mod session;

pub use expression::{Program, xray};
pub use session::{Change, Moved, Recipe, Session};

use retrograd::prelude::*;
use retrograd::tensor::machine::Peak;
use serde::Deserialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

/// What a page may ask.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Makes a model.
    Start(Recipe),
    /// Takes so many steps.
    Train { steps: usize },
    /// The loss of held-out text, a sample, and the weights of all heads.
    Look { prompt: String, count: usize, temperature: f64 },
    /// The page of the next step.
    Xray {},
    /// The page of the attention explorer.
    Explorer {},
    /// Parameters, and the tokens of the next step.
    Inputs {},
    /// An element of a parameter.
    Weight { parameter: String, at: usize },
    /// How a change moves the gradients.
    Compare(Change),
    /// The weights as a file.
    Weights {},
    /// The speed of matrix products, and of the multiply-adds of a loop without memory: GFLOP/s.
    Speed {},
    /// The page of an expression, forward and backward; to second order if it is asked.
    Expression { text: String, second: bool },
}

/// What is answered.
pub enum Answer {
    Json(Value),
    Html(String),
    Bytes(Vec<u8>),
}

/// Answers a request.
pub fn answer(session: &mut Option<Session>, request: Request) -> Result<Answer, String> {
    let none = || "there is no model yet".to_string();
    let json = |value| Ok(Answer::Json(value));
    match request {
        Request::Start(recipe) => {
            let new = session.insert(Session::new(recipe)?);
            json(json!({
                "parameters": new.model().num_parameters(),
                "vocab": new.model().config().vocab,
                "uniform": new.uniform_loss(),
            }))
        }
        Request::Train { steps } => {
            let session = session.as_mut().ok_or_else(none)?;
            let losses = (0..steps).map(|_| session.train()).collect::<Result<Vec<_>, _>>()?;
            json(json!({ "step": session.step(), "losses": losses }))
        }
        Request::Look { prompt, count, temperature } => {
            let session = session.as_ref().ok_or_else(none)?;
            let (labels, heads) = session.heads();
            let (sample, why) = match session.sample(&prompt, count, temperature) {
                Ok(sample) => (sample, None),
                Err(why) => (String::new(), Some(why)),
            };
            json(
                json!({ "step": session.step(), "held_out": session.held_out(), "sample": sample, "why": why, "labels": labels, "heads": heads }),
            )
        }
        Request::Xray {} => Ok(Answer::Html(session.as_ref().ok_or_else(none)?.xray())),
        Request::Explorer {} => Ok(Answer::Html(session.as_ref().ok_or_else(none)?.explorer())),
        Request::Inputs {} => {
            let session = session.as_ref().ok_or_else(none)?;
            json(json!({ "parameters": session.parameters(), "tokens": session.tokens() }))
        }
        Request::Weight { parameter, at } => {
            json(json!(session.as_ref().ok_or_else(none)?.weight(&parameter, at)?))
        }
        Request::Compare(change) => {
            let (before, after, moved) = session.as_ref().ok_or_else(none)?.compare(&change)?;
            json(json!({ "before": before, "after": after, "moved": moved }))
        }
        Request::Weights {} => Ok(Answer::Bytes(session.as_ref().ok_or_else(none)?.weights()?)),
        Request::Speed {} => {
            let [a, b] = [1, 2].map(|seed| Tensor::<f32>::randn([384, 384], &mut Rng::new(seed)));
            let product = || {
                let began = Instant::now();
                (0..8).for_each(|_| drop(black_box(a.matmul(&b))));
                8.0 * 2.0 * 384f64.powi(3) / began.elapsed().as_secs_f64() / 1e9
            };
            let pairs = (0..9).map(|_| (product(), Peak::measure().gflops.one));
            let (product, peak): (Vec<f64>, Vec<f64>) = pairs.unzip();
            json(json!({ "product": product, "peak": peak }))
        }
        Request::Expression { text, second } => Ok(Answer::Html(xray(&text, second)?)),
    }
}

/// What the functions of the module share.
#[derive(Default)]
struct Memory {
    request: Vec<u8>,
    answer: Vec<u8>,
    session: Option<Session>,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::default();
}

/// The address of so many bytes, to which a request is to be written.
#[unsafe(no_mangle)]
pub extern "C" fn request(length: usize) -> *mut u8 {
    MEMORY.with_borrow_mut(|memory| {
        memory.request = vec![0; length];
        memory.request.as_mut_ptr()
    })
}

/// Answers the request; returns the number of bytes of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn respond() -> usize {
    MEMORY.with_borrow_mut(|memory| {
        let request = serde_json::from_slice(&memory.request);
        let request = request.map_err(|e| format!("the request is wrong: {e}"));
        let answer = request.and_then(|request| answer(&mut memory.session, request));
        let (kind, bytes) = match answer {
            Ok(Answer::Json(value)) => (b'j', value.to_string().into_bytes()),
            Ok(Answer::Html(text)) => (b'h', text.into_bytes()),
            Ok(Answer::Bytes(bytes)) => (b'b', bytes),
            Err(why) => (b'e', why.into_bytes()),
        };
        memory.answer = [&[kind][..], &bytes].concat();
        memory.request = Vec::new();
        memory.answer.len()
    })
}

/// The address of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn response() -> *const u8 {
    MEMORY.with_borrow(|memory| memory.answer.as_ptr())
}
