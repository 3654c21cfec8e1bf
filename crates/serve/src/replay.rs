//! A ledger, read once more line by line: what its daemons saw and did, and whether their policies decide so again.

mod decisions;
mod recorded;

use std::io;
use std::path::Path;

use bellwether_sched::registry::Registry;

use crate::ledger;
use crate::state::RESTORING;
pub use decisions::{Compared, Difference};
pub use recorded::{Compacted, Given, Recorded, given};

/// Reads a ledger to its end; `None` where it is empty. With the policies that the daemon knew, a fresh one is asked at
/// every moment at which the daemon's was.
///
/// # Errors
///
/// Returns the file system's error, or one with the number of a line that cannot be.
pub fn read(path: &Path, registry: Option<&Registry>) -> io::Result<Option<(Recorded, Option<Compared>)>> {
    let mut recorded = None::<Recorded>;
    let mut compared = registry.map(|registry| (Compared::default(), registry));
    ledger::read(path, |line| {
        let Some(recorded) = &mut recorded else {
            recorded = Some(Recorded::open(&line)?);
            return Ok(());
        };
        if let Some((compared, _)) = &mut compared {
            compared.before(&line, recorded);
        }
        recorded.take_in(&line)?;
        compared.as_mut().map_or(Ok(()), |(compared, registry)| compared.after(&line, recorded, registry))
    })?;
    if recorded.as_ref().is_some_and(|recorded| recorded.state.is_restoring) {
        return Err(io::Error::other(RESTORING));
    }
    Ok(recorded.map(|recorded| (recorded, compared.map(|(compared, _)| compared))))
}
