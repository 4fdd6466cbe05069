//! Invalid inputs, which panic with a message that names them; empty inputs; and masked NaN.

mod caches;
mod classic;
mod empty;
mod modern;
mod multi_head;
mod numbers;
mod parts;
