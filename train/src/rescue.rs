//! Where a run is saved if its folder was removed.

use crate::log::Log;
use crate::session::Session;
use crate::stop::{Result, Stop, failed};
use retrograd::nn::checkpoint::Checkpoint;

/// `stop`, if the folder is still there. Otherwise the run is saved in another one.
pub fn rescue(session: &Session<'_>, file: &Checkpoint, log: &mut Log, stop: Stop) -> Result<()> {
    let Err(gone) = session.folder.check() else { return Err(stop) };
    let mut said = gone.text;
    for fallback in session.folder.fallbacks() {
        let saved = fallback.and_then(|other| {
            session.save(&other, file.clone())?;
            log.move_to(&other)?;
            Ok(other)
        });
        match saved {
            Ok(other) => return failed(format!("{said}. {}", session.stopped(&other))),
            Err(why) => said = format!("{said}; {}", why.text),
        }
    }
    failed(said)
}
