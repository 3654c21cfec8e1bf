//! `--export`: what was chosen, in the words of whoever carries it out.

use std::path::{Path, PathBuf};

use bellwether_answers::plan::{VirtualNodes, Work};
use bellwether_core::InputError;
use bellwether_core::plan::{Candidate, Kind, Machines, Plan};
use clap::{Args, ValueEnum};

use super::{PlanArguments, kubernetes, skypilot, slurm};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct ExportArguments {
    /// Print what carries the plan out in place of the plan: objects for `kubectl create -f -`, a script for `sbatch`, or
    /// a task for `sky launch`
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

/// The machines of a choice that are all alike, with what is known of them.
///
/// # Errors
///
/// Machines of several kinds, or rented in several ways.
pub(super) fn alike<'a>(
    target: &str,
    plan: &'a Plan,
    chosen: &'a Candidate,
) -> Result<(&'a Machines, &'a Kind), InputError> {
    let wrong = |what: String, hint: &str| InputError::new(format!("--export {target}"), what).hint(hint);
    let [machines] = &chosen.machines[..] else {
        let what = format!("the choice is {}, and one {target} job has machines of one kind", chosen.words());
        return Err(wrong(
            what,
            "`bellwether run JOB.toml --plan PLAN.json --provision` takes machines of several; or plan without --transient",
        ));
    };
    let kind = plan.kind(&machines.machine);
    let kind = kind.ok_or_else(|| wrong("the plan does not know its machines".into(), "plan again"))?;
    Ok((machines, kind))
}

/// The words of `bellwether run` for a job as it was planned.
pub(super) fn run_words(arguments: &PlanArguments, job: &Path, chosen: &Candidate) -> Vec<String> {
    let mut words = vec!["bellwether".to_owned(), "run".to_owned(), job.display().to_string()];
    let mut say = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    say("--workers", format!("1..{}", chosen.workers));
    let Work { steps, epochs, .. } = arguments.work.work();
    if let Some(steps) = steps {
        say("--steps", steps.to_string());
    }
    if let Some(epochs) = epochs {
        say("--set", format!("epochs={epochs}"));
    }
    if let Some(batch) = arguments.batch {
        say("--set", format!("batch.size={batch}"));
    }
    if let Some(VirtualNodes::Number(nodes)) = arguments.virtual_nodes {
        say("--set", format!("batch.virtual_nodes={nodes}"));
    }
    if let Some(way) = &chosen.way {
        say("--set", format!("sync.policy=\"{}\"", way.policy));
        if way.servers > 0 {
            say("--set", format!("sync.servers={}", way.servers));
        }
    }
    words
}

/// Words as a shell reads them.
pub(super) fn quoted(words: &[String]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte);
    let quote = |word: &String| match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
