//! A candidate's cluster as a cluster file: what is simulated here is what `simulate --cluster` reads.

use std::fmt::Write;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::prediction::Link;
use bellwether_sched::capacity::Part;
use bellwether_sched::plan::{Catalogue, Machine};
use bellwether_sim::cluster::Cluster;

use crate::simulate::read_beside;

/// What the clusters of all candidates have in common.
#[derive(Debug, Clone)]
pub(super) struct Writer<'a> {
    pub(super) catalogue: &'a Catalogue,
    /// The catalogue's file.
    pub(super) path: &'a Path,
    pub(super) restart_s: Option<f64>,
    pub(super) checkpoint_s: Option<f64>,
    pub(super) shared_links: bool,
}

impl Writer<'_> {
    /// The cluster of these machines.
    pub(super) fn cluster(&self, parts: &[Part]) -> Result<Cluster, InputError> {
        let place = self.path.display().to_string();
        let read = |name: &str| read_beside(self.path, "the catalogue", name);
        Cluster::from_files(&self.text(parts), &place, &read)
    }

    /// Its text.
    pub(super) fn text(&self, parts: &[Part]) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for (key, seconds) in [("restart", self.restart_s), ("checkpoint", self.checkpoint_s)] {
            if let Some(seconds) = seconds {
                let _ = writeln!(text, "{key} = \"{seconds}s\"");
            }
        }
        if self.shared_links {
            text.push_str("shared_links = true\n");
        }
        for part in parts {
            let machine = &self.catalogue.machines[part.kind];
            if part.on_demand > 0 {
                let _ = writeln!(text, "\n{}", self.group(machine, part.on_demand));
            }
            if part.transient > 0 {
                let _ = writeln!(text, "\n{}{}", self.group(machine, part.transient), lives(machine));
            }
        }
        self.network(parts, &mut text);
        text
    }

    /// Some machines of a kind. A device has one speed, whichever kind the catalogue says it with.
    fn group(&self, machine: &Machine, count: u32) -> String {
        let device = quoted(&machine.device);
        let mut text =
            format!("[[nodes]]\ncount = {count}\ndevices = {}\ndevice = {device}", machine.devices);
        let same = self.catalogue.machines.iter().filter(|other| other.device == machine.device);
        if let Some(speed) = same.filter_map(|other| other.speed).next() {
            let _ = write!(text, "\nspeed = {speed:?}");
        }
        if let Some(bytes) = machine.memory_bytes {
            let _ = write!(text, "\nmemory = \"{bytes}B\"");
        }
        text
    }

    fn network(&self, parts: &[Part], text: &mut String) {
        let Some(link) = self.link(parts) else { return };
        let Link { bandwidth_bytes_per_s, latency_s } = link;
        let _ = writeln!(
            text,
            "\n[network]\nbandwidth = \"{bandwidth_bytes_per_s}B/s\"\nlatency = \"{latency_s}s\""
        );
        if let Some(Link { bandwidth_bytes_per_s, latency_s }) = self.catalogue.local_link {
            let _ = writeln!(
                text,
                "local_bandwidth = \"{bandwidth_bytes_per_s}B/s\"\nlocal_latency = \"{latency_s}s\""
            );
        }
    }

    /// The slowest link of its machines: a cluster has one for all.
    fn link(&self, parts: &[Part]) -> Option<Link> {
        let of = |part: &Part| self.catalogue.machines[part.kind].link.or(self.catalogue.link);
        let links = parts.iter().filter_map(of);
        links.min_by(|a, b| a.bandwidth_bytes_per_s.total_cmp(&b.bandwidth_bytes_per_s))
    }
}

/// Seconds from the end of a transient machine until another one works in its place.
pub(super) fn replacement_s(machine: &Machine) -> f64 {
    machine.provision_s + machine.join_s
}

/// A string of TOML: those of JSON are some.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// How long the transient machines of a kind live.
fn lives(machine: &Machine) -> String {
    let words = machine.transient.as_ref().map_or("never", |transient| transient.words.as_str());
    let (name, words) = (quoted(&machine.name), quoted(words));
    let replacement_s = replacement_s(machine);
    format!("\nname = {name}\nlifetimes = {words}\nreplacement = \"{replacement_s}s\"")
}
