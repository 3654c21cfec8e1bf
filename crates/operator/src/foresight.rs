//! When jobs start and end: the engine's policy, simulated forward.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::outlook::Expected;
use bellwether_core::policy::Fault;
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_serve::outlook::{Outlook, Question};
use bellwether_sim::outlook::{Briefly, WORLDS, look};
use bellwether_sim::world::World;

/// A look takes about this at most, on one processor.
const LOOK: Duration = Duration::from_secs(2);

/// Simulates the engine's policy forward from where its jobs are.
pub struct Foresight {
    /// The policies that the engine knows.
    pub registry: Registry,
}

impl Outlook for Foresight {
    fn look(&mut self, question: &Question) -> Result<BTreeMap<JobId, Expected>, String> {
        let Question { present, belief, deciding } = question;
        let broken = |error: InputError| Fault::World(error.to_string());
        let see = |world: &mut World<'_>| {
            let mut policy = deciding.fresh(&self.registry).map_err(broken)?;
            let begun = Instant::now();
            drive(
                policy.as_mut(),
                &mut Briefly { world, is_over: || begun.elapsed() > LOOK / WORLDS },
                belief,
            )
        };
        look(present, belief, WORLDS, see).map_err(|fault| fault.to_string())
    }
}
