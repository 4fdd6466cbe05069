//! Pages that show what a program does: HTML files that contain everything they need.
//!
//! A [`Page`] is data and the script that draws it. It opens from disk in any current browser, without a
//! server and without a network, and can be sent by mail. All pages share the styles and functions of
//! `assets/kit.css` and `assets/kit.js`: charts, tables, trees, tooltips, light and dark colours, the
//! state of the page in its address, and a test of itself.
#![forbid(unsafe_code)]

pub mod attention;
mod base64;
mod number;
mod page;
pub mod replacing;
mod run;
mod xray;

pub use number::grouped;
pub use page::Page;
pub use run::{Baselines, HeadLook, RunLook, RunPage, RunStatus, RunStep, compare_runs};
pub use xray::{RecordedStep, XRay, record_if_requested};
