//! Tools that watch a computation, and pages that show what a program does.
//!
//! | question | tool |
//! |---|---|
//! | what happened in a forward and a backward pass | [`record`](mod@record), [`XRay`] |
//! | where a NaN or an infinity began | [`find_nonfinite`](record::find_nonfinite) |
//! | what a model costs | [`Summarize::summary`] |
//! | which kernels ran, and how fast | [`trace`](mod@trace) |
//! | how the time changes with the number of cores | [`regions`], [`scaling`] |
//! | what heads attend to | [`AttentionExplorer`], [`attention`] |
//! | how a run of training went | [`RunPage`] |
//! | the conditions of a measurement, and whether other processes disturb it | [`conditions`], [`load`] |
//!
//! All of them subscribe to the events of [`retrograd_tensor::observe`]. [`from_env`] does so for environment
//! variables.
//!
//! The page of a run is made from plain numbers, which are reduced while they arrive (`run/envelope.rs`): when a
//! series has 2000 points, neighbours are joined, so memory and the file are bounded, and no extreme is lost.
//! Verdicts are computed in Rust (`run/verdict.rs`), so their rules have tests without a browser. Central differences
//! run a closure again with one element of a parameter changed (`xray/differences.rs`), if its loss has the same
//! bits each time. The attention explorer keeps the operands of calls of the attention engine (`explorer/tap.rs`)
//! and computes the weights afterwards, block by block of queries.
//!
//! A [`Page`] is data and the script that draws it: an HTML file that contains everything it needs. It opens from
//! disk in any current browser, without a server and without a network, and can be sent by mail. All pages share
//! the styles of `assets/kit.css` and the functions of `assets/kit.js`: charts, tables, trees, tooltips, light and
//! dark colours, the state of the page in its address, and a test of itself. `assets/search.js` adds the search.
#![forbid(unsafe_code)]

pub mod attention;
mod base64;
pub mod conditions;
pub mod deviation;
mod environment;
mod explorer;
pub mod load;
mod locked;
mod number;
mod page;
pub mod record;
pub mod regions;
mod run;
pub mod scaling;
mod summary;
pub mod trace;
mod xray;

pub use environment::from_env;
pub use explorer::{AttentionExplorer, ExplorerText};
pub use number::grouped;
pub use page::Page;
pub use run::{Baselines, HeadLook, RunLook, RunPage, RunStatus, RunStep, compare_runs};
pub use summary::{Summarize, Summary, SummaryRow};
pub use xray::{RecordedStep, XRay};

/// Parts that only the tests of this crate use.
#[doc(hidden)]
pub mod internals {
    pub use crate::xray::elements::{
        ELEMENTS, Operation, chosen, chosen_places, factor, gradients, number,
    };
}
