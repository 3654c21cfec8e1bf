//! The nodes of a Slurm partition: as slots when a ledger begins, and watched from then on.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_runtime::run_dir::random_key;
use bellwether_session::slurm::{NodeState, ProgramError, SlurmNode, held_by, nodes_of};

use super::{NodeSeen, Report, SlotsSeen};
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
        let (kind, devices) = slots(node, processors_per_slot, has_gpus);
        let device_type = machine.type_of(&kind);
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
    jobs.processors_per_slot = processors_per_slot;
    let key = random_key().map_err(|error| InputError::new("--on slurm", error.to_string()))?;
    jobs.key = format!("{key}-");
    machine.slurm = Some(jobs);
    Ok(machine)
}

/// The slots of a node: their type, and how many there are.
fn slots(node: &SlurmNode, processors_per_slot: u32, has_gpus: bool) -> (DeviceType, u32) {
    let (name, devices) =
        gpus(node).unwrap_or_else(|| ("cpu".into(), node.processors / processors_per_slot.max(1)));
    let memory_bytes = (!has_gpus && devices > 0).then(|| node.memory_mib * MIB / u64::from(devices));
    (DeviceType { name, speed: 1.0, memory_bytes }, devices)
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
    pub fn start(jobs: SlurmJobs, tell: impl Fn(Report) + Send + 'static) -> std::io::Result<NodeWatch> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("nodes".into()).spawn(move || {
            let mut known = Known::default();
            loop {
                // A controller that does not answer says nothing of its nodes.
                if let Ok(seen) = seen(&jobs) {
                    let news = known.news(seen);
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

/// The nodes of the partition now.
fn seen(jobs: &SlurmJobs) -> Result<Vec<NodeSeen>, ProgramError> {
    let nodes = nodes_of(Some(&jobs.partition))?;
    let own = if jobs.key.is_empty() { None } else { Some(held_by(&jobs.key)?) };
    Ok(told(&nodes, jobs.processors_per_slot, own.as_ref()))
}

/// What is told of nodes, of whose processors our own jobs hold some; nothing is known of others' where that of our own
/// is not.
fn told(nodes: &[SlurmNode], processors_per_slot: u32, own: Option<&BTreeMap<String, u32>>) -> Vec<NodeSeen> {
    let has_gpus = nodes.iter().any(|node| gpus(node).is_some());
    let seen = |node: &SlurmNode| {
        let word = match node.state {
            NodeState::Open => None,
            NodeState::Drains => Some("it is drained"),
            NodeState::Down => Some("it is down"),
        };
        let down = word.map(|word| match node.reason.as_str() {
            "" => word.into(),
            reason => format!("{word}: {reason}"),
        });
        let (device_type, devices) = slots(node, processors_per_slot, has_gpus);
        // Which GPUs others hold `sinfo` does not tell in these columns.
        let others = own
            .filter(|_| !has_gpus)
            .map_or(0, |own| node.held_processors.saturating_sub(own.get(&node.name).copied().unwrap_or(0)));
        let taken = others.div_ceil(processors_per_slot.max(1)).min(devices);
        NodeSeen { name: node.name.clone(), down, slots: SlotsSeen { device_type, devices, taken } }
    };
    nodes.iter().map(seen).collect()
}

/// What was told of nodes.
#[derive(Debug, Default)]
struct Known {
    told: BTreeMap<String, NodeSeen>,
    /// How many slots of each node others held by the last look. Nodes and jobs are two questions, and a job may begin
    /// between them: what is told was seen twice.
    taken: BTreeMap<String, u32>,
}

impl Known {
    /// Nodes that are otherwise than they were known to be. One that is not named any more has left the partition.
    fn news(&mut self, seen: Vec<NodeSeen>) -> Vec<NodeSeen> {
        let mut now: BTreeMap<String, NodeSeen> = BTreeMap::new();
        for mut node in seen {
            let taken = node.slots.taken;
            let before = self.taken.insert(node.name.clone(), taken);
            if before != Some(taken) {
                node.slots.taken = self.told.get(&node.name).map_or(0, |told| told.slots.taken);
            }
            now.insert(node.name.clone(), node);
        }
        for (name, told) in &self.told {
            let gone =
                || NodeSeen { down: Some("it is not in the partition any more".into()), ..told.clone() };
            now.entry(name.clone()).or_insert_with(gone);
        }
        let changed = now.values().filter(|node| self.told.get(&node.name) != Some(*node));
        let news = changed.cloned().collect();
        self.told = now;
        news
    }
}

#[cfg(test)]
mod tests {
    use bellwether_session::slurm::nodes;

    use super::*;

    fn look(text: &str, own: &[(&str, u32)]) -> Vec<NodeSeen> {
        let own = own.iter().map(|(node, count)| ((*node).to_owned(), *count)).collect();
        told(&nodes(text).expect("it is as sinfo writes it"), 2, Some(&own))
    }

    #[test]
    fn only_what_changes_is_told() {
        let mut known = Known::default();
        let first = known.news(look(
            "n1|low|idle|2|9|(null)|0/2/0/2|(null)|none\nn2|low|mixed|2|9|(null)|0/2/0/2|(null)|none\n",
            &[],
        ));
        assert_eq!(first.len(), 2);
        assert!(first.iter().all(|node| node.down.is_none() && node.slots.devices == 1));
        let drained = || {
            let text = "n1|low|draining|2|9|(null)|0/2/0/2|(null)|disk\nn2|low|idle|2|9|(null)|0/2/0/2|(null)|none\n";
            look(text, &[])
        };
        let told = known.news(drained());
        assert_eq!((told.len(), told[0].down.as_deref()), (1, Some("it is drained: disk")));
        assert_eq!(known.news(drained()), []);
        let told = known.news(look("n2|low|idle|2|9|(null)|0/2/0/2|(null)|none\n", &[]));
        assert_eq!(told[0].down.as_deref(), Some("it is not in the partition any more"));
        let told = known.news(look(
            "n2|low|idle|2|9|(null)|0/2/0/2|(null)|none\nn9|low|idle|4|9|(null)|0/4/0/4|(null)|none\n",
            &[],
        ));
        assert_eq!((told.len(), told[0].name.as_str(), told[0].slots.devices), (1, "n9", 2));
    }

    #[test]
    fn what_others_hold_is_told_once_it_was_seen_twice() {
        let mut known = Known::default();
        let busy = || look("n1|low|mixed|8|9|(null)|5/3/0/8|(null)|none\n", &[("n1", 2)]);
        let free = || look("n1|low|mixed|8|9|(null)|2/6/0/8|(null)|none\n", &[("n1", 2)]);
        let taken = |news: Vec<NodeSeen>| news.iter().map(|node| node.slots.taken).collect::<Vec<_>>();
        assert_eq!(taken(known.news(free())), [0]);
        assert!(known.news(busy()).is_empty());
        assert_eq!(taken(known.news(busy())), [2], "three processors of others are parts of two slots");
        assert!(known.news(free()).is_empty());
        assert!(known.news(busy()).is_empty());
        assert!(known.news(free()).is_empty());
        assert_eq!(taken(known.news(free())), [0]);
    }

    #[test]
    fn gpus_are_slots_before_processors_are() {
        let nodes = nodes(
            "n1|low|idle|8|9|craynetwork:1,gpu:a100:4|0/8/0/8|(null)|none\nn2|low|idle|8|9|gpu:2|0/8/0/8|(null)|none\n",
        );
        let nodes = nodes.expect("it is as sinfo writes it");
        assert_eq!(gpus(&nodes[0]), Some(("a100".into(), 4)));
        assert_eq!(gpus(&nodes[1]), Some(("gpu".into(), 2)));
    }
}
