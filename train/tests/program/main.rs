//! Tests that run `retrograd` as a program, and tests of properties of all programs.

mod blame;
mod clock;
mod commands;
mod complete_run;
mod continued;
mod diff;
mod export;
mod folder_gone;
mod grid;
mod hugging_face;
mod invalid_usage;
mod library;
mod memory;
mod observe;
mod page;
mod parts;
mod printing;
mod program;
mod replay;
mod resume;
mod scaling;
mod signals;
mod special_files;
mod tokenizers;
mod trace;
mod versus;
