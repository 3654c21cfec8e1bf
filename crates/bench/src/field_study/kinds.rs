//! The kinds of jobs of the study: job files, and classes of a generator of traces.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::folder::Folder;

/// A kind of jobs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    device: Device,
    pub(super) virtual_nodes: u32,
    /// Samples of a synchronous step.
    pub(super) batch: u32,
    /// The most workers that help it, or that this machine has cores for.
    pub(super) most: u32,
    /// Workers that its owner asks for.
    asked: u32,
}

/// What computes the gradients.
#[derive(Debug, Clone, Copy)]
enum Device {
    /// Sleeps this long per virtual node, with this deviation of the logarithm; then all exchange the parameters.
    Sleeping { node_ms: f64, spread: f64, parameters: &'static str, asynchronous: bool },
    /// A real network on the digits.
    Computing,
}

const fn sleeping(node_ms: f64, spread: f64, parameters: &'static str) -> Device {
    Device::Sleeping { node_ms, spread, parameters, asynchronous: false }
}

/// All kinds: some gain from every worker, some from a few, some from none.
pub(super) const KINDS: [Kind; 9] = [
    Kind {
        name: "wide",
        device: sleeping(8.0, 0.05, "64KiB"),
        virtual_nodes: 24,
        batch: 48,
        most: 8,
        asked: 4,
    },
    Kind {
        name: "jitter",
        device: sleeping(5.0, 0.4, "256KiB"),
        virtual_nodes: 24,
        batch: 24,
        most: 8,
        asked: 4,
    },
    Kind {
        name: "coarse",
        device: sleeping(30.0, 0.1, "256KiB"),
        virtual_nodes: 4,
        batch: 16,
        most: 4,
        asked: 4,
    },
    Kind {
        name: "narrow",
        device: sleeping(40.0, 0.1, "64KiB"),
        virtual_nodes: 2,
        batch: 16,
        most: 2,
        asked: 2,
    },
    Kind {
        name: "brief",
        device: sleeping(2.0, 0.1, "64KiB"),
        virtual_nodes: 8,
        batch: 8,
        most: 8,
        asked: 2,
    },
    Kind {
        name: "heavy",
        device: sleeping(10.0, 0.05, "4MiB"),
        virtual_nodes: 8,
        batch: 32,
        most: 8,
        asked: 4,
    },
    Kind {
        name: "exchange",
        device: sleeping(2.0, 0.05, "8MiB"),
        virtual_nodes: 8,
        batch: 64,
        most: 8,
        asked: 2,
    },
    Kind {
        name: "async",
        device: Device::Sleeping { node_ms: 20.0, spread: 0.1, parameters: "256KiB", asynchronous: true },
        virtual_nodes: 8,
        batch: 64,
        most: 7,
        asked: 3,
    },
    Kind { name: "digits", device: Device::Computing, virtual_nodes: 8, batch: 64, most: 2, asked: 2 },
];

impl Kind {
    pub(super) fn asynchronous(&self) -> bool {
        matches!(self.device, Device::Sleeping { asynchronous: true, .. })
    }

    /// Slots that its parameter server holds beside its workers.
    fn servers(&self) -> u32 {
        u32::from(self.asynchronous())
    }

    /// Slots that its owner asks for.
    pub(super) fn asked_slots(&self) -> u32 {
        self.asked + self.servers()
    }

    /// Writes its job file.
    pub(super) fn write(&self, folder: &Folder) -> Result<PathBuf, Failure> {
        folder.write(&format!("{}.toml", self.name), self.text())
    }

    fn text(&self) -> String {
        let Kind { name, virtual_nodes, batch, .. } = self;
        let head = format!("name = \"{name}\"\nseed = 1\nsteps = 1000000\n");
        let cut = format!("[batch]\nsize = {batch}\nvirtual_nodes = {virtual_nodes}\n");
        let rule = "[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
        match self.device {
            Device::Computing => format!(
                "{head}[model]\nkind = \"mlp\"\nhidden = [256, 128]\n[data]\nkind = \"digits\"\n{cut}{rule}"
            ),
            Device::Sleeping { node_ms, spread, parameters, asynchronous } => {
                let sync = if asynchronous { "[sync]\npolicy = \"asp\"\n" } else { "" };
                format!(
                    "{head}[model]\nkind = \"synthetic\"\nstep_time = \"{node_ms}ms\"\nspread = {spread}\n\
                     parameters = \"{parameters}\"\n[data]\nkind = \"indices\"\nsamples = 100000\n{cut}{rule}{sync}"
                )
            }
        }
    }

    /// Its class in a generator file, with this mean work in samples.
    fn class(&self, work: f64) -> String {
        let (name, servers) = (self.name, self.servers());
        let (asked, least, most) = (self.asked_slots(), 1 + servers, self.most + servers);
        // An asynchronous update has the samples of one virtual node.
        let (batch, protocol) = if self.asynchronous() {
            (self.batch / self.virtual_nodes, "protocol = \"asp\"\nservers = \"1\"\n")
        } else {
            (self.batch, "")
        };
        format!(
            "\n[[class]]\nmodel = \"{name}\"\ngpus = {asked}\nmin_gpu = {least}\nmax_gpu = {most}\nbatch = {batch}\n\
             {protocol}work = {{ kind = \"lognormal\", mean = {work:.0}, variation = 1 }}\n"
        )
    }
}

/// Jobs that arrive by chance, equally many of each kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) jobs: u32,
    pub(super) slots: u32,
    /// Slot-seconds of jobs with one worker that arrive in a second, as a share of the slots.
    pub(super) load: f64,
    /// How long a job takes with one worker, on average.
    pub(super) mean_s: f64,
}

impl Workload {
    /// Writes the generator file. `alone` has the samples per second of each kind with one worker.
    pub(super) fn write(&self, path: &Path, alone: &[f64]) -> Result<(), Failure> {
        let slots: u32 = KINDS.iter().map(|kind| 1 + kind.servers()).sum();
        let slot_s = self.mean_s * f64::from(slots) / KINDS.len() as f64;
        let per_hour = self.load * f64::from(self.slots) / slot_s * 3600.0;
        let mut text =
            format!("jobs = {}\n[arrivals]\nkind = \"poisson\"\nper_hour = {per_hour:.3}\n", self.jobs);
        for (kind, speed) in KINDS.iter().zip(alone) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", kind.class(speed * self.mean_s));
        }
        std::fs::write(path, text).map_err(|e| Failure::at(path.display().to_string(), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_a_job() {
        for kind in KINDS {
            let job = bellwether_core::parse::job(&kind.text(), kind.name, &[]).unwrap();
            assert_eq!((job.batch.virtual_nodes, job.name.as_str()), (kind.virtual_nodes, kind.name));
            assert!(kind.asked <= kind.most && kind.most <= kind.virtual_nodes);
        }
    }
}
