//! `--export kubernetes`: what was chosen, as the objects by which a cluster trains it.

use std::path::Path;

use bellwether_answers::plan::{VirtualNodes, Work};
use bellwether_client::Client;
use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, WorkerRange};
use bellwether_core::plan::{Candidate, Plan};
use bellwether_serve::api::body::{Deadline, Pods, Submit, Workers};
use serde_json::Value;

use super::PlanArguments;
use crate::failure::Failure;
use crate::job::ScriptArguments;
use crate::{files, job, kubernetes};

/// The objects, written by the program that knows them.
pub(super) fn manifest(
    arguments: &PlanArguments,
    path: &Path,
    plan: &Plan,
    chosen: &Candidate,
) -> Result<Value, Failure> {
    let (job, script) = planned(arguments, path, plan, chosen)?;
    let pods = Pods { image: arguments.export.image.clone(), script };
    let deadline_s = plan.constraints.deadline_s;
    let submission = Submit {
        workers: Some(Workers(WorkerRange { min: job.workers.min.min(chosen.workers), max: chosen.workers })),
        job: Some((*job).clone()),
        deadline: deadline_s.map(Deadline),
        profile: Some(Box::new(files::profile_to_send(&arguments.profile)?)),
        pods: Some(pods).filter(|pods| *pods != Pods::default()),
        ..Submit::default()
    };
    let cluster = Client::new(kubernetes::endpoint(arguments.export.namespace.as_deref())?);
    Ok(cluster.manifest(&submission)?)
}

/// The job file, with what the plan is about: its length, its batch, and who waits for whom.
fn planned(
    arguments: &PlanArguments,
    path: &Path,
    plan: &Plan,
    chosen: &Candidate,
) -> Result<(CheckedJob, Option<String>), Failure> {
    let mut changes: Vec<(String, String)> = Vec::new();
    let mut set = |key: &str, value: String| changes.push((key.to_owned(), value));
    if let Some(batch) = arguments.batch {
        set("batch.size", batch.to_string());
    }
    if let Some(VirtualNodes::Number(nodes)) = arguments.virtual_nodes {
        set("batch.virtual_nodes", nodes.to_string());
    }
    if let Some(way) = &chosen.way {
        set("sync.policy", way.policy.to_string());
        if way.servers > 0 {
            set("sync.servers", way.servers.to_string());
        }
    }
    let place = path.display().to_string();
    let asked = ScriptArguments { python: arguments.export.python.clone(), ..ScriptArguments::default() };
    let (mut job, script) = job::for_pods(path, &asked, &changes)?;
    let Work { steps, epochs, .. } = arguments.work.work();
    if steps.is_some() || epochs.is_some() {
        job = job.edit(|job| (job.steps, job.epochs) = (steps, epochs))?;
    }
    if job.name != plan.job {
        let what = format!("its job is `{}`, and the profile is one of `{}`", job.name, plan.job);
        let hint =
            "give the job file that was profiled, or profile this one: `bellwether profile JOB.toml -o FILE`";
        return Err(InputError::new(place, what).hint(hint).into());
    }
    Ok((job, script))
}
