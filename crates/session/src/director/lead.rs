//! A run whose workers wait for the verdict of a lead that is gone: it is stopped, so that another lead can go on.

use bellwether_core::record::Event;
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};

use crate::script::LeadWatch;

/// Stops a run that waits for a lead that is gone.
pub(crate) struct Bereaved(pub(crate) LeadWatch);

impl Director for Bereaved {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let (RunEvent::Tick, Some(step)) = (seen, now.awaited_verdict) else { return Vec::new() };
        if self.0.was_missed() || !self.0.is_gone() {
            return Vec::new();
        }
        self.0.miss();
        let message = format!(
            "the lead is gone, and the workers wait for its verdict after step {step}: the run stops with a checkpoint, and \
             `bellwether resume` goes on with another lead"
        );
        let by = "the loss of its lead".into();
        vec![DirectorCommand::Note(Event::Warning { message }), DirectorCommand::Stop { by }]
    }
}
