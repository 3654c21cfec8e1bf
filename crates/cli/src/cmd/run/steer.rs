//! Who steers a run: everything that happens is shown to each in turn.

use bellwether_runtime::coordinator::{Director, DirectorCommand, Now, Seen};

/// Several directors as one.
pub(super) struct Steering(pub(super) Vec<Box<dyn Director>>);

impl Director for Steering {
    fn direct(&mut self, seen: Seen<'_>, now: &Now<'_>) -> Vec<DirectorCommand> {
        self.0.iter_mut().flat_map(|director| director.direct(seen, now)).collect()
    }
}
