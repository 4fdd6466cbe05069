//! The state of a recurrence over time.

use crate::base64::encode;
use serde::{Serialize, Serializer};

/// The states of the heads of a layer, token by token: of each row of a state, which belongs to a channel of the
/// keys, its norm and its decay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StateParts {
    /// The number of rows of a state.
    pub rows: usize,
    /// For each head, the norms of the rows after each token, by token and row: as shares of [`StateParts::largest`].
    #[serde(serialize_with = "shares")]
    pub norms: Vec<Vec<f64>>,
    /// For each head, the largest norm of a row.
    pub largest: Vec<f64>,
    /// For each head, the decays of the rows by each token; none without decays.
    #[serde(serialize_with = "shares")]
    pub decays: Vec<Vec<f64>>,
}

/// Numbers from 0 to 1 as bytes, `round(255 x)`.
fn shares<S: Serializer>(heads: &[Vec<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    let byte = |x: &f64| (255.0 * x.clamp(0.0, 1.0)).round() as u8;
    let text = |head: &Vec<f64>| encode(&head.iter().map(byte).collect::<Vec<_>>());
    serializer.collect_seq(heads.iter().map(text))
}
