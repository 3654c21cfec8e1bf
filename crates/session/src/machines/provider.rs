//! The providers by name.

use bellwether_core::InputError;
use bellwether_core::ParseError;
use bellwether_core::machines::Provider;
use bellwether_core::plan::Plan;

use super::here::Here;
use super::kubernetes::{self, Kubernetes};
use super::skypilot::SkyPilot;
use super::slurm::SlurmMachines;
use super::ways::Ways;

/// Who gives machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// This machine: each machine is a group of processes, in a network namespace of its own where the catalogue says
    /// so.
    Here,
    /// Slurm: each machine is a job.
    Slurm,
    /// Kubernetes: each machine is a pod, for which the cluster's autoscaler finds or makes a node.
    Kubernetes,
    /// Clouds, by SkyPilot: each machine is a cluster of one node.
    SkyPilot,
}

impl ProviderKind {
    /// All of them.
    pub const ALL: [ProviderKind; 4] =
        [ProviderKind::Here, ProviderKind::Slurm, ProviderKind::Kubernetes, ProviderKind::SkyPilot];

    /// Its name, as an option says it and a lease keeps it.
    pub fn name(self) -> &'static str {
        match self {
            ProviderKind::Here => "here",
            ProviderKind::Slurm => "slurm",
            ProviderKind::Kubernetes => "kubernetes",
            ProviderKind::SkyPilot => "skypilot",
        }
    }

    /// The provider of this name.
    ///
    /// # Errors
    ///
    /// Returns an error for another name, with the nearest.
    pub fn named(name: &str) -> Result<ProviderKind, ParseError> {
        let found = ProviderKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| ParseError::one_of("provider", name, ProviderKind::ALL.map(ProviderKind::name)))
    }

    /// Whether its machines see the files of this one: the run's folder, and the program.
    pub fn shares_files(self) -> bool {
        matches!(self, ProviderKind::Here | ProviderKind::Slurm)
    }

    /// Whether its machines do not find a coordinator that listens where it usually does.
    pub fn needs_address(self) -> bool {
        matches!(self, ProviderKind::Kubernetes | ProviderKind::SkyPilot)
    }

    /// Where it would give machines now, as a lease keeps it; empty where there is one place only.
    pub fn place(self) -> String {
        if self == ProviderKind::Kubernetes { kubernetes::place() } else { String::new() }
    }

    /// The provider for a plan, in a [place](ProviderKind::place).
    pub fn open(self, plan: &Plan, place: &str) -> Box<dyn Provider> {
        let kinds = plan.basis.iter().flat_map(|basis| &basis.kinds);
        let ways: Ways = kinds.map(|kind| (kind.machine.clone(), kind.obtain.clone())).collect();
        match self {
            ProviderKind::Here => Box::new(Here::new(ways)),
            ProviderKind::Slurm => Box::new(SlurmMachines::new(ways)),
            ProviderKind::Kubernetes => Box::new(Kubernetes::new(ways, place)),
            ProviderKind::SkyPilot => Box::new(SkyPilot::new(ways)),
        }
    }

    /// Refuses a plan whose machines it cannot be asked for.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first such machine.
    pub fn check(self, plan: &Plan) -> Result<(), InputError> {
        if self != ProviderKind::SkyPilot {
            return Ok(());
        }
        let chosen = plan.chosen().map_or(&[][..], |chosen| &chosen.machines);
        for group in chosen {
            if plan.kind(&group.machine).is_none_or(|kind| kind.obtain.skypilot.is_empty()) {
                let what = format!("nothing says which of SkyPilot's resources `{}` is", group.machine);
                return Err(InputError::new("--provision skypilot", what).hint(
                    "write for example obtain.skypilot = { infra = \"gcp/us-east1\", accelerators = \"K80:1\" } under \
                     its [[machine]] in the catalogue, and plan again",
                ));
            }
        }
        Ok(())
    }
}
