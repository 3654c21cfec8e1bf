//! Hands jobs to the engine, and tells it what their authors change.

use std::time::Duration;

use bellwether_core::job::WorkerRange;
use bellwether_core::profile::Profile;
use bellwether_serve::engine::Running;
use bellwether_serve::ledger::Task;
use bellwether_serve::request::{Refusal, RefusalKind, Reply, Request, Submission};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use super::status::Reason;
use super::{Context, Fault};
use crate::crd::{self, ElasticJob, FieldError};
use crate::job::{JobSpec, Kept};
use crate::observe::now_s;

/// How long until a job is offered again that the engine cannot take now.
const OFFER_AGAIN: Duration = Duration::from_secs(10);

/// What the engine was asked last of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    workers: WorkerRange,
    weight: f64,
    is_suspended: bool,
}

/// Sees to it that the engine knows the job as its author wants it now. Answers with when to try again what it refused.
pub(super) async fn sync(
    job: &ElasticJob,
    spec: &JobSpec,
    uid: &str,
    context: &Context,
) -> Result<Option<Duration>, Fault> {
    let wanted = Asked { workers: spec.workers, weight: spec.weight, is_suspended: spec.is_suspended };
    let (run, asked) = context.edit(uid, |known| (known.run.clone(), known.asked.clone()));
    let outcome = match (run, asked) {
        (Some(_), Some(asked)) if asked == wanted => return Ok(None),
        (Some(run), asked) => change(&run, asked, &wanted, context).await,
        // One that waits is offered when it is resumed.
        (None, _) if spec.is_suspended => {
            context.edit(uid, |known| known.refused = Some((Reason::Suspended, String::new())));
            return Ok(None);
        }
        (None, _) => match submit(job, spec, uid, context).await? {
            // An operator before this one submitted it, maybe as its author wanted it then.
            Ok((run, false)) => change(&run, None, &wanted, context).await,
            submitted => submitted.map(|_| ()),
        },
    };
    Ok(match outcome {
        Ok(()) => {
            context.edit(uid, |known| (known.asked, known.refused) = (Some(wanted), None));
            None
        }
        Err((reason, why, again)) => {
            context.edit(uid, |known| known.refused = Some((reason, why)));
            again
        }
    })
}

type Refused = (Reason, String, Option<Duration>);

/// The job as it is submitted, under this name.
async fn submission(
    job: &ElasticJob,
    spec: &JobSpec,
    name: String,
    context: &Context,
) -> Result<Result<Submission, Refused>, Fault> {
    let profile = match profile(spec, context).await? {
        Ok(profile) => profile,
        Err(why) => return Ok(Err((Reason::ReferenceMissing, why, Some(OFFER_AGAIN)))),
    };
    let memory_bytes = profile.as_ref().and_then(|profile| profile.peak_resident_bytes);
    context.edit(&spec.uid, |known| known.memory_bytes = memory_bytes);
    let queue = match queue(job, context) {
        Ok(queue) => queue,
        Err(error) => return Ok(Err((Reason::QueueMissing, error.to_string(), Some(OFFER_AGAIN)))),
    };
    let task = match task(spec, context).await {
        Ok(task) => task,
        Err(why) => return Ok(Err((Reason::InvalidSpec, why, None))),
    };
    let left_s = spec.deadline_s.map(|deadline_s| (spec.created_s + deadline_s - now_s()).max(1.0));
    Ok(Ok(Submission {
        job: spec.job.clone(),
        name: Some(name),
        workers: Some(spec.workers),
        weight: spec.weight,
        deadline_s: left_s,
        task,
        profile,
        rates: Vec::new(),
        protocols: Vec::new(),
        servers: None,
        profile_first: false,
        key: Some(spec.uid.clone()),
        queue,
        user: Some(spec.namespace.clone()),
        provision: None,
    }))
}

/// A job that trains already, for an engine that has lost its ledger; `None` of one that it cannot accept now.
pub(super) async fn running(
    job: &ElasticJob,
    spec: &JobSpec,
    kept: &Kept,
    context: &Context,
) -> Result<Option<Running>, Fault> {
    let name = kept.run.clone().unwrap_or_else(|| format!("{}.{}", spec.namespace, spec.name));
    let submission = submission(job, spec, name, context).await?;
    let (places, now) = (kept.allocation.places.clone(), kept.allocation.workers);
    Ok(submission.ok().map(|mut submission| {
        // It may have been given other limits since; the engine hears of those next.
        let WorkerRange { min, max } = spec.workers;
        submission.workers = Some(WorkerRange { min: min.min(now), max: max.max(now) });
        Running { submission, places }
    }))
}

/// Submits the job. Answers with the name of its run, and whether it was not submitted before.
async fn submit(
    job: &ElasticJob,
    spec: &JobSpec,
    uid: &str,
    context: &Context,
) -> Result<Result<(String, bool), Refused>, Fault> {
    let name = format!("{}.{}", spec.namespace, spec.name);
    let mut submission = match submission(job, spec, name.clone(), context).await? {
        Ok(submission) => submission,
        Err(refused) => return Ok(Err(refused)),
    };
    let mut answer = context.engine.ask(Request::Submit(Box::new(submission.clone()))).await;
    if matches!(&answer, Err(Refusal { kind: RefusalKind::Conflict, .. })) {
        // An earlier job of this name is in the ledger.
        let name = format!("{name}.{}", uid.get(..8).unwrap_or(uid));
        submission.name = Some(name);
        answer = context.engine.ask(Request::Submit(Box::new(submission))).await;
    }
    Ok(match answer {
        Ok(Reply::Job { job, created }) => {
            context.edit(uid, |known| known.run = Some(job.name.clone()));
            Ok((job.name.clone(), created))
        }
        Ok(_) => Err((Reason::InvalidSpec, "the engine answered something else".into(), None)),
        Err(refusal) => Err(refused(&refusal)),
    })
}

/// The job's queue, as the engine knows it; `None` where nothing divides the slots.
fn queue(job: &ElasticJob, context: &Context) -> Result<Option<String>, FieldError> {
    let queues = crate::queues::all(&context.queues);
    let queue = crd::queue_of(job, &queues)?;
    Ok(Some(queue).filter(|_| !queues.is_empty()))
}

fn refused(refusal: &Refusal) -> Refused {
    let why = refusal.error.to_string();
    match (refusal.kind, refusal.error.place.as_str()) {
        // Nodes may join.
        (RefusalKind::Invalid, "workers" | "sync.servers") => {
            (Reason::WaitingForCapacity, why, Some(OFFER_AGAIN))
        }
        (RefusalKind::Invalid, "queue") => (Reason::QueueMissing, why, Some(OFFER_AGAIN)),
        (RefusalKind::Invalid, _) => (Reason::InvalidSpec, why, None),
        _ => (Reason::WaitingForCapacity, why, Some(OFFER_AGAIN)),
    }
}

async fn change(run: &str, asked: Option<Asked>, wanted: &Asked, context: &Context) -> Result<(), Refused> {
    let ask = async |request| match context.engine.ask(request).await {
        Ok(_) => Ok(()),
        // It is over: nothing is left to change.
        Err(refusal) if refusal.kind == RefusalKind::Conflict => Ok(()),
        Err(refusal) => Err(refused(&refusal)),
    };
    let suspends = |asked: &Asked| asked.is_suspended != wanted.is_suspended;
    if asked.as_ref().is_none_or(suspends) {
        let job = run.to_owned();
        ask(match wanted.is_suspended {
            true => Request::Suspend { job, by: "`spec.suspend`".into() },
            false => Request::Resume { job },
        })
        .await?;
    }
    let (job, workers, weight) = (run.to_owned(), Some(wanted.workers), Some(wanted.weight));
    ask(Request::Limit { job, workers, weight }).await
}

async fn profile(spec: &JobSpec, context: &Context) -> Result<Result<Option<Box<Profile>>, String>, Fault> {
    let Some((name, key)) = &spec.profile else { return Ok(Ok(None)) };
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &spec.namespace);
    let Some(map) = maps.get_opt(name).await? else {
        return Ok(Err(format!("there is no ConfigMap `{name}` with a profile")));
    };
    let text = map.data.as_ref().and_then(|data| data.get(key));
    Ok(match text.map(|text| serde_json::from_str::<Profile>(text)) {
        Some(Ok(profile)) => Ok(Some(Box::new(profile))),
        Some(Err(error)) => Err(format!("{key} of the ConfigMap `{name}` is not a profile: {error}")),
        None => Err(format!("the ConfigMap `{name}` has no key `{key}`")),
    })
}

/// The size of the job's task.
async fn task(spec: &JobSpec, context: &Context) -> Result<Task, String> {
    if let Some(training_samples) = spec.training_samples {
        return Ok(Task { training_samples, bytes: 0 });
    }
    let (describe, job) = (context.describe.clone(), (*spec.job).clone());
    let described = tokio::task::spawn_blocking(move || describe(&job)).await;
    described.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
