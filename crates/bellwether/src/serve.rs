//! The daemon: many jobs share one machine under any policy of a registry, one's own included.

pub use bellwether_serve::daemon::{Daemon, DaemonError, Endpoint, Options, Protection, Stopper};
pub use bellwether_serve::engine::EngineError;
pub use bellwether_serve::loading::LoadLimits;
pub use bellwether_serve::machine::{DeviceType, Machine, MachineNode, SlurmJobs};
pub use bellwether_serve::outlook::{Deciding, Outlook, Question};

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::cluster::JobId;
use bellwether_core::outlook::Expected;
use bellwether_core::policy::Fault;
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::outlook::{Briefly, WORLDS, look};
use bellwether_sim::world::World;

/// A look takes about this at most, on one processor: of many jobs under a policy that thinks for long, what comes next
/// is foreseen, and of the others that they start after it.
const LOOK: Duration = Duration::from_secs(2);

/// Foresees when jobs start and end, by simulating the daemon's policy forward from where its jobs are.
#[derive(Debug, Clone, Default)]
pub struct Simulated {
    /// The policies that the daemon knows.
    pub registry: Registry,
}

impl Outlook for Simulated {
    fn look(&mut self, question: &Question) -> Result<BTreeMap<JobId, Expected>, String> {
        let Question { present, belief, deciding } = question;
        let broken = |error: InputError| Fault::World(error.to_string());
        let see = |world: &mut World<'_>| {
            let mut policy = deciding.fresh(&self.registry).map_err(broken)?;
            let begun = Instant::now();
            let is_over = || begun.elapsed() > LOOK / WORLDS;
            drive(policy.as_mut(), &mut Briefly { world, is_over }, belief)
        };
        look(present, belief, WORLDS, see).map_err(|fault| fault.to_string())
    }
}

/// The machine that a daemon shares as if it were this cluster. Speeds are relative to the fastest: no slot can be
/// made faster than this machine is.
pub fn machine_of(cluster: &Cluster) -> Machine {
    let view = &cluster.view;
    let speed = |name: &String| cluster.device_speeds.get(name).copied().unwrap_or(1.0);
    let fastest = view.device_types.iter().map(speed).fold(f64::MIN_POSITIVE, f64::max);
    let kind = |name: &String| DeviceType {
        name: name.clone(),
        speed: speed(name) / fastest,
        memory_bytes: cluster.device_memory.get(name).copied(),
    };
    Machine {
        device_types: view.device_types.iter().map(kind).collect(),
        nodes: view
            .nodes
            .iter()
            .map(|node| MachineNode {
                name: String::new(),
                device_type: node.device_type,
                devices: node.devices,
            })
            .collect(),
        link: view.link,
        local_link: view.local_link,
        restart_s: view.restart_s,
        slurm: None,
        pods: false,
    }
}
