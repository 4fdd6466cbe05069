//! The example `next_token` as its users meet it: from the outside.

mod careless;
mod program;
mod resume;
mod whole;

// Files of the example that have unit tests of their own.
#[allow(dead_code)]
#[path = "../../examples/next_token/corpus.rs"]
mod corpus;
#[allow(dead_code)]
#[path = "../../examples/next_token/stop.rs"]
mod stop;
#[path = "../../examples/next_token/tales.rs"]
mod tales;
