//! What the ranks of a run agree on: errors, and that they run the same.

use crate::ranks::Ranks;
use crate::stop::{Result, Stop};
use serde::{Deserialize, Serialize};

/// What a rank tells the others after each step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The exit code and the text of an error.
    pub error: Option<(u8, String)>,
    /// The exit code of a signal.
    pub signal: Option<u8>,
    /// The step could not be logged.
    pub log_failed: bool,
}

impl Ranks {
    /// The result of this rank if all ranks have one, else an error on all of them. An error that several
    /// ranks have is printed by the lowest of them.
    pub fn agree<X>(&self, result: Result<X>) -> Result<X> {
        let error = result.as_ref().err().map(|stop| (stop.code(), stop.text().to_string()));
        let all = self.share(&error);
        self.common_error(&all).map_or(result, Err)
    }

    /// The error that this rank ends with, given those of all.
    pub fn common_error(&self, all: &[Option<(u8, String)>]) -> Option<Stop> {
        let (code, _) = all.iter().flatten().next()?;
        let (before, from_here) = all.split_at(self.rank());
        let own = from_here[0].as_ref().filter(|own| !before.iter().flatten().any(|e| e == *own));
        Some(match own {
            Some((code, text)) if text.is_empty() => Stop::Reported(*code),
            Some((code, text)) if self.is_first() => Stop::new(*code, text.clone()),
            Some((code, text)) => Stop::new(*code, format!("rank {}: {text}", self.rank())),
            None => Stop::Reported(*code),
        })
    }

    /// Checks that all ranks have the same as rank 0.
    ///
    /// # Errors
    /// On all ranks; it names the first rank that differs, and in what.
    pub fn check_same(&self, mine: &[(&str, String)]) -> Result<()> {
        let mine: Vec<(String, String)> =
            mine.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        let all = self.share(&mine);
        for (rank, other) in all.iter().enumerate() {
            let differing = all[0].iter().zip(other).find(|(a, b)| a != b);
            if let Some(((name, first), (_, other))) = differing {
                let text = format!(
                    "rank {rank} differs from rank 0 in {name}:\n  rank 0: {first}\n  rank {rank}: {other}\nAll \
                     ranks must run the same program with the same flags and texts."
                );
                return Err(if self.is_first() { Stop::Usage(text) } else { Stop::Reported(2) });
            }
        }
        Ok(())
    }
}
