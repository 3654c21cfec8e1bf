//! Which protocol a step is done under, as the journal says.

use bellwether_core::prediction::Protocol;
use bellwether_core::record::Event;

/// The first step of each phase, and its protocol.
#[derive(Debug, Default)]
pub(crate) struct Phases(Vec<(u64, Protocol)>);

impl Phases {
    /// Those that are planned before the journal says anything.
    pub(crate) fn planned(phases: Vec<(u64, Protocol)>) -> Phases {
        Phases(phases)
    }

    /// Takes in a line of the journal. A phase that begins voids those that were to begin there or later.
    pub(crate) fn note(&mut self, event: &Event) {
        if let Event::Protocol { step, protocol, .. } = event {
            self.0.retain(|(first, _)| first < step);
            self.0.push((*step, *protocol));
        }
    }

    /// The protocol of a step: all wait for all where nothing is known.
    pub(crate) fn at(&self, step: u64) -> Protocol {
        let phase = self.0.iter().rev().find(|(first, _)| *first <= step);
        phase.map_or(Protocol::Bsp, |(_, protocol)| *protocol)
    }
}
