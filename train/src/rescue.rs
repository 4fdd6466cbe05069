//! Early ends of a run, and where it is saved if its folder was removed.

use crate::cli::{COMMAND, quoted};
use crate::folder::Folder;
use crate::log::Log;
use crate::run::Run;
use crate::stop::{Result, Stop, failed};
use retrograd::nn::StateDict;

/// `stop`, if the folder is still there. Otherwise the run is saved in another one, with the state of the
/// optimiser.
pub fn rescue(
    run: &Run,
    optimizer: &StateDict,
    folder: &Folder,
    log: &mut Log,
    stop: Stop,
) -> Result<()> {
    let Err(gone) = folder.check() else { return Err(stop) };
    let mut said = gone.text().to_string();
    for fallback in folder.fallbacks() {
        let saved = fallback.and_then(|other| {
            run.save(&other, optimizer)?;
            log.move_to(&other)?;
            Ok(other)
        });
        match saved {
            Ok(other) => return failed(format!("{said}. {}", stopped(run, &other))),
            Err(why) => said = format!("{said}; {}", why.text()),
        }
    }
    failed(said)
}

/// The end by a signal, whose exit code is the conventional one.
pub fn interrupted(run: &Run, folder: &Folder, code: u8) -> Stop {
    Stop::Interrupted(stopped(run, folder), code)
}

/// Where a run stopped, and how to continue it.
pub fn stopped(run: &Run, folder: &Folder) -> String {
    let name = folder.name();
    format!(
        "Stopped after step {} of {}, saved in {name}. To resume:\n    {COMMAND} -- --resume --out {}",
        run.step,
        run.recipe.steps,
        quoted(&name)
    )
}
