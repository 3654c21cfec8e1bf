//! The seam to whatever foresees when jobs start and end: the daemon asks, and shows what it hears.
//!
//! The daemon knows no simulator. What asks and what answers speak of a [`Present`].

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::outlook::{Expected, Present};
use bellwether_core::policy::Policy;
use bellwether_core::queue::QueueTree;
use bellwether_sched::queues::History;
use bellwether_sched::registry::Registry;

use crate::belief::Belief;

/// What foresees when jobs start and end.
pub trait Outlook: Send {
    /// When each job of the question's view may start and end. It is asked on a thread of its own, and may take a
    /// while.
    ///
    /// # Errors
    ///
    /// Returns why nothing can be foreseen.
    fn look(&mut self, question: &Question) -> Result<BTreeMap<JobId, Expected>, String>;
}

/// What is asked: the daemon's jobs, what is believed of them, and who decides.
#[derive(Debug)]
pub struct Question {
    /// The jobs, on the daemon's clock.
    pub present: Present,
    /// What is believed of their speeds. It learns nothing more.
    pub belief: Belief,
    /// Who decides.
    pub deciding: Deciding,
}

/// What makes the policy that decides, as it is before it was asked anything.
#[derive(Debug, Clone)]
pub struct Deciding {
    pub(crate) policy: String,
    /// The queues that divide the slots, with what each had of late.
    pub(crate) queues: Option<(QueueTree, History)>,
}

impl Deciding {
    /// A fresh one: one in each queue, where there are queues.
    ///
    /// # Errors
    ///
    /// A policy that is not there.
    pub fn fresh(&self, registry: &Registry) -> Result<Box<dyn Policy + Send>, InputError> {
        let Some((tree, history)) = &self.queues else { return Ok(registry.parse(&self.policy)?.1) };
        let (_, policy) = registry.parse_with_queues(&self.policy, tree)?;
        Ok(Box::new(policy.with_history(history.clone())))
    }
}
