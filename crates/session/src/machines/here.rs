//! This machine as a provider: a machine is a group of processes, known by a variable in its environment.
//!
//! It is for tests and demonstrations. With `obtain.here = ["ip", "netns", "exec", "n1"]` in the catalogue the
//! processes of a kind of machine are in a network namespace, whose link may be shaped.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellwether_core::machines::{Machine, Offer, Phase, Provider, ProviderError, Request, Tag};
use rustix::process::{Pid, Signal, kill_process};

use super::ways::{Ways, way};

/// The variable that holds the tag of a machine.
pub(crate) const TAG_VARIABLE: &str = "BELLWETHER_MACHINE";

const NAME: &str = "here";

/// How long processes that were asked to go may take before they are killed.
const PATIENCE: Duration = Duration::from_secs(3);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Here {
    ways: Ways,
    /// Those that this process started.
    children: BTreeMap<Tag, Child>,
    /// Machines that were asked to go, and when.
    asked: BTreeMap<Tag, Instant>,
}

impl Here {
    pub(super) fn new(ways: Ways) -> Here {
        Here { ways, children: BTreeMap::new(), asked: BTreeMap::new() }
    }
}

impl Provider for Here {
    fn name(&self) -> &'static str {
        NAME
    }

    fn settle_s(&self) -> f64 {
        // A process is there once it was started.
        1.0
    }

    fn offers(&mut self) -> Result<Vec<Offer>, ProviderError> {
        Ok(Vec::new())
    }

    fn request(&mut self, request: &Request) -> Result<(), ProviderError> {
        let refused = |why: String| ProviderError::Refused { provider: NAME, why };
        let launcher = &way(&self.ways, &request.pool, NAME)?.here;
        let is_there = self.children.contains_key(&request.tag)
            || processes(&request.tag.lease).iter().any(|(tag, _)| *tag == request.tag);
        if is_there {
            return Ok(());
        }
        let mut words = launcher.iter().map(String::as_str).chain(["sh", "-c", &request.script]);
        let program = words.next().unwrap_or("sh").to_owned();
        let mut command = Command::new(&program);
        command.args(words).envs(&request.secrets).env(TAG_VARIABLE, request.tag.to_string());
        // A group of its own, which outlives us.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child =
            command.spawn().map_err(|error| refused(format!("`{program}` cannot be started: {error}")))?;
        self.children.insert(request.tag.clone(), child);
        Ok(())
    }

    fn list(&mut self, lease: &str) -> Result<Vec<Machine>, ProviderError> {
        let mut ended: BTreeMap<Tag, String> = BTreeMap::new();
        for (tag, child) in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                ended.insert(tag.clone(), format!("its process ended ({status})"));
            }
        }
        let mut machines: BTreeMap<Tag, Phase> = BTreeMap::new();
        for (tag, process) in processes(lease) {
            let place = || format!("process {}", process.as_raw_nonzero());
            machines.entry(tag).or_insert_with(|| Phase::Runs { place: place(), notice: None });
        }
        for (tag, how) in ended {
            // Its process is reaped; others of the machine may go on.
            self.children.remove(&tag);
            machines.entry(tag).or_insert(Phase::Ended { how });
        }
        Ok(machines.into_iter().map(|(tag, phase)| Machine { tag, phase }).collect())
    }

    fn release(&mut self, tag: &Tag) -> Result<(), ProviderError> {
        let first = *self.asked.entry(tag.clone()).or_insert_with(Instant::now);
        let signal = if first.elapsed() < PATIENCE { Signal::TERM } else { Signal::KILL };
        for (_, process) in processes(&tag.lease).into_iter().filter(|(other, _)| other == tag) {
            // One that has just ended needs no signal.
            let _ = kill_process(process, signal);
        }
        Ok(())
    }
}

/// The processes of this user in whose environment a tag of the lease stands.
fn processes(lease: &str) -> Vec<(Tag, Pid)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(process) = number.and_then(Pid::from_raw) else { continue };
        // Those of other users, and those that have ended, have none.
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        let tag = environment.split(|byte| *byte == 0).find_map(|variable| {
            let text = std::str::from_utf8(variable).ok()?;
            text.strip_prefix(TAG_VARIABLE)?.strip_prefix('=')?.parse::<Tag>().ok()
        });
        found.extend(tag.filter(|tag| tag.lease == lease).map(|tag| (tag, process)));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

#[cfg(test)]
mod tests {
    use bellwether_core::machines::{Obtain, Pool};
    use bellwether_core::plan::Market;

    use super::*;

    #[test]
    fn machines_are_found_by_another_process_and_released() {
        let ways = || Ways::from([("box".to_owned(), Obtain::default())]);
        let mut here = Here::new(ways());
        let lease = format!("test{}", std::process::id());
        let tag = Tag { lease: lease.clone(), number: 1 };
        let pool = Pool { machine: "box".into(), market: Market::OnDemand };
        let script = "trap '' TERM; sleep 300 & wait; sleep 300".to_owned();
        let request = Request { tag: tag.clone(), pool, script, secrets: BTreeMap::new() };
        here.request(&request).unwrap();
        here.request(&request).unwrap();
        // Another one that knows nothing of it finds it by its tag.
        let mut other = Here::new(ways());
        let there = other.list(&lease).unwrap();
        assert_eq!(there.iter().map(|machine| &machine.tag).collect::<Vec<_>>(), [&tag]);
        assert!(other.list("another").unwrap().is_empty());
        let until = Instant::now() + Duration::from_secs(20);
        while !other.list(&lease).unwrap().is_empty() && Instant::now() < until {
            other.release(&tag).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(other.list(&lease).unwrap().is_empty());
        other.release(&tag).unwrap();
        let last = here.list(&lease).unwrap();
        assert!(matches!(&last[..], [Machine { phase: Phase::Ended { .. }, .. }]), "{last:?}");
        let unknown = Pool { machine: "other".into(), market: Market::OnDemand };
        let refused = here.request(&Request { pool: unknown, ..request });
        assert!(refused.is_err_and(|error| error.to_string().contains("`other`")));
    }
}
