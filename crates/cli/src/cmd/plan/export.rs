//! `--export`: what was chosen, in the words of the system that carries it out.

use std::path::{Path, PathBuf};

use bellwether_core::plan::{Candidate, Plan};
use clap::{Args, ValueEnum};

use super::{PlanArguments, kubernetes, skypilot, slurm};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// Print what carries the plan out in place of the plan: objects for `kubectl create -f -`, a script for
    /// `sbatch`, or a task for `sky launch`
    #[arg(long, value_enum, requires = "job", conflicts_with = "format")]
    export: Option<Target>,
    /// The job file or the script of the profile, for --export
    #[arg(long, value_name = "JOB.toml|SCRIPT.py", requires = "export")]
    job: Option<PathBuf>,
    /// Image of the pods or machines, which holds what a script imports [default: the operator's own, SkyPilot's own]
    #[arg(long, value_name = "IMAGE", requires = "export")]
    pub(super) image: Option<String>,
    /// The interpreter that runs a script here, to say what its job is [default: as for `submit`]
    #[arg(long, value_name = "PYTHON", requires = "export")]
    pub(super) python: Option<PathBuf>,
    /// Namespace of the objects [default: that of the kubeconfig's context]
    #[arg(long, value_name = "NAMESPACE", requires = "export")]
    pub(super) namespace: Option<String>,
}

impl ExportArguments {
    /// The job file of what is to be exported, and where to; clap takes neither without the other.
    pub(super) fn wanted(&self) -> Option<(Target, &Path)> {
        self.export.zip(self.job.as_deref())
    }
}

/// Where a plan is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Target {
    /// A cluster with Bellwether's operator
    Kubernetes,
    /// A cluster with Slurm
    Slurm,
    /// Clouds, by SkyPilot
    Skypilot,
}

/// The text that carries the choice out.
pub(super) fn text(
    target: Target,
    arguments: &PlanArguments,
    job: &Path,
    plan: &Plan,
    chosen: &Candidate,
) -> Result<String, Failure> {
    match target {
        Target::Kubernetes => Ok(format!("{:#}", kubernetes::manifest(arguments, job, plan, chosen)?)),
        Target::Slurm => Ok(slurm::script(arguments, job, plan, chosen)?),
        Target::Skypilot => Ok(skypilot::task(arguments, job, plan, chosen)?),
    }
}
