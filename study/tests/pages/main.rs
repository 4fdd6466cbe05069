//! Pages in a browser, one module per kind. They are one program, so that they share the browser and are tested at
//! the same time.

mod attention;
mod attention_of_models;
mod kit;
mod runs;
mod steps;
