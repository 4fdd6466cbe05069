//! The example `next_token` as its users meet it: from the outside; and what holds of all examples.

mod careless;
mod printing;
mod program;
mod resume;
mod whole;

// Files of the example that have unit tests of their own.
#[allow(dead_code)]
#[path = "../../examples/next_token/corpus.rs"]
mod corpus;
#[path = "../../examples/common/output.rs"]
mod output;
#[allow(dead_code)]
#[path = "../../examples/next_token/stop.rs"]
mod stop;
#[path = "../../examples/next_token/tales.rs"]
mod tales;
