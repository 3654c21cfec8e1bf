//! A ledger that has become long is compacted: the state that follows from it takes its place.

use bellwether_core::policy::Fault;

use super::Engine;
use crate::clock::Clock;
use crate::runner::JobRunner;

impl<C: JobRunner, T: Clock> Engine<C, T> {
    /// Compacts the ledger if it has become long. A ledger that cannot be compacted, as on a disk without room for
    /// both, stays as it is.
    pub(super) fn compact_if_due(&mut self) -> Result<(), Fault> {
        if !self.file.is_due() {
            return Ok(());
        }
        let compacted = self.state.compacted().and_then(|bytes| self.file.compact(&bytes));
        match &compacted {
            // Until then a crash of the machine may bring the longer ledger back.
            Ok(_) => self.file.sync().map_err(|error| self.unwritten(&error))?,
            Err(_) => self.file.postpone(),
        }
        self.compaction = Some(compacted.map_err(|error| error.to_string()));
        Ok(())
    }
}
