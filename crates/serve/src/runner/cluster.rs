//! The nodes of a Slurm partition: as slots when a ledger begins, and watched from then on.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_session::slurm::{NodeState, SlurmNode, nodes_of};

use super::{NodeSeen, Report};
use crate::machine::{DeviceType, Machine, MachineNode, SlurmJobs};

/// Time between two looks at the nodes.
const LOOK: Duration = Duration::from_secs(5);

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// The slots of a partition: one for each GPU of a node that has some, else one for this many processors.
///
/// # Errors
///
/// A partition that is not there, or has no nodes.
pub fn machine(jobs: SlurmJobs, processors_per_slot: u32) -> Result<Machine, InputError> {
    let wrong = |what: String| {
        InputError::new("--partition", what)
            .hint("`sinfo` lists the partitions of the cluster and their nodes")
    };
    let nodes = nodes_of(Some(&jobs.partition)).map_err(|error| wrong(error.to_string()))?;
    if nodes.is_empty() {
        return Err(wrong(format!("the partition `{}` has no nodes", jobs.partition)));
    }
    let mut machine = Machine::slots(0);
    (machine.device_types, machine.nodes) = (Vec::new(), Vec::new());
    let has_gpus = nodes.iter().any(|node| gpus(node).is_some());
    for node in &nodes {
        let (name, devices) =
            gpus(node).unwrap_or_else(|| ("cpu".into(), node.processors / processors_per_slot.max(1)));
        let memory_bytes = (!has_gpus && devices > 0).then(|| node.memory_mib * MIB / u64::from(devices));
        let known = machine.device_types.iter().position(|kind| kind.name == name);
        let device_type = known.unwrap_or_else(|| {
            machine.device_types.push(DeviceType { name, speed: 1.0, memory_bytes });
            machine.device_types.len() - 1
        }) as u16;
        machine.nodes.push(MachineNode { name: node.name.clone(), device_type, devices });
    }
    if machine.nodes.iter().all(|node| node.devices == 0) {
        let what = format!("no node of `{}` has {processors_per_slot} processors", jobs.partition);
        return Err(InputError::new("--processors-per-slot", what).hint("choose fewer"));
    }
    let mut jobs = jobs;
    // Each worker's job takes what its slot is, unless the user's own options say otherwise.
    let own = match has_gpus {
        true => "--gres=gpu:1".to_owned(),
        false => format!("--cpus-per-task={processors_per_slot}"),
    };
    jobs.options.splice(0..0, [format!("--partition={}", jobs.partition), own]);
    machine.slurm = Some(jobs);
    Ok(machine)
}

/// GPUs of a node: their type, and how many there are.
fn gpus(node: &SlurmNode) -> Option<(String, u32)> {
    let (kind, count) = node
        .resources
        .iter()
        .find(|(kind, count)| *count > 0 && (kind == "gpu" || kind.starts_with("gpu:")))?;
    Some((kind.strip_prefix("gpu:").unwrap_or(kind).to_owned(), *count))
}

/// Watches the nodes of a partition until it is dropped.
#[derive(Debug)]
pub struct NodeWatch {
    /// Nothing is sent: its end is the sign.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl NodeWatch {
    /// Tells how the nodes are, at first and whenever that changes.
    ///
    /// # Errors
    ///
    /// Returns the system's error, where it gives no thread.
    pub fn start(partition: String, tell: impl Fn(Report) + Send + 'static) -> std::io::Result<NodeWatch> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("nodes".into()).spawn(move || {
            let mut known: BTreeMap<String, Option<String>> = BTreeMap::new();
            loop {
                // A controller that does not answer says nothing of its nodes.
                if let Ok(nodes) = nodes_of(Some(&partition)) {
                    let news = news(&mut known, &nodes);
                    if !news.is_empty() {
                        tell(Report::Nodes(news));
                    }
                }
                if stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(NodeWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for NodeWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It panics nowhere; if it did, nodes would stay as they were.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Nodes that are otherwise than they were known to be. One that is not named any more has left the partition.
fn news(known: &mut BTreeMap<String, Option<String>>, nodes: &[SlurmNode]) -> Vec<NodeSeen> {
    let why = |node: &SlurmNode| {
        let word = match node.state {
            NodeState::Open => return None,
            NodeState::Drains => "it is drained",
            NodeState::Down => "it is down",
        };
        Some(if node.reason.is_empty() { word.into() } else { format!("{word}: {}", node.reason) })
    };
    let mut now: BTreeMap<String, Option<String>> =
        nodes.iter().map(|node| (node.name.clone(), why(node))).collect();
    for name in known.keys() {
        now.entry(name.clone()).or_insert_with(|| Some("it is not in the partition any more".into()));
    }
    let changed = now.iter().filter(|(name, down)| known.get(*name) != Some(*down));
    let news = changed.map(|(name, down)| NodeSeen { name: name.clone(), down: down.clone() }).collect();
    *known = now;
    news
}

#[cfg(test)]
mod tests {
    use bellwether_session::slurm::nodes;

    use super::*;

    #[test]
    fn only_what_changes_is_told() {
        let read = |text: &str| nodes(text).expect("it is as sinfo writes it");
        let mut known = BTreeMap::new();
        let first = news(
            &mut known,
            &read("n1|low|idle|2|9|(null)|(null)|none\nn2|low|mixed|2|9|(null)|(null)|none\n"),
        );
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|node| node.down.is_none()));
        let drained = read("n1|low|draining|2|9|(null)|(null)|disk\nn2|low|idle|2|9|(null)|(null)|none\n");
        let told = news(&mut known, &drained);
        assert_eq!(told, [NodeSeen { name: "n1".into(), down: Some("it is drained: disk".into()) }]);
        assert_eq!(news(&mut known, &drained), []);
        let told = news(&mut known, &read("n2|low|idle|2|9|(null)|(null)|none\n"));
        assert_eq!(told[0].down.as_deref(), Some("it is not in the partition any more"));
    }

    #[test]
    fn gpus_are_slots_before_processors_are() {
        let nodes = nodes(
            "n1|low|idle|8|9|craynetwork:1,gpu:a100:4|(null)|none\nn2|low|idle|8|9|gpu:2|(null)|none\n",
        );
        let nodes = nodes.expect("it is as sinfo writes it");
        assert_eq!(gpus(&nodes[0]), Some(("a100".into(), 4)));
        assert_eq!(gpus(&nodes[1]), Some(("gpu".into(), 2)));
    }
}
