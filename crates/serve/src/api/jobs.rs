//! What concerns jobs: submission, the list, one job, and what may be done with it.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bellwether_core::InputError;
use bellwether_core::job::{Job, Model};
use bellwether_core::queue::DEFAULT_QUEUE;
use schemars::JsonSchema;
use serde::Serialize;

use super::access::Caller;
use super::body::{self, Limits, Scale, Submit};
use super::call::query::Query;
use super::call::{Call, blocking, json};
use super::curve;
use super::failure::{Failure, echo};
use super::users::{Role, User};
use crate::request::{Reply, Request, Submission};
use crate::snapshot::{JobState, Phase, Snapshot};

/// Most bytes of a client's own word for a submission.
const KEY_BYTES: usize = 200;

/// Some of the jobs.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Jobs<'s> {
    /// They, in the order that was asked for.
    jobs: Vec<&'s JobState>,
    /// How many there are in all, in the state that was asked for.
    total: u64,
    /// The name to give as `after` for those that follow; absent when these were the last.
    next: Option<&'s str>,
}

pub(super) async fn list(call: Call) -> Result<Response, Failure> {
    json(StatusCode::OK, &select(&call.api.engine.now(), &call.query, &call.caller)?)
}

fn select<'s>(snapshot: &'s Snapshot, query: &Query, caller: &Caller) -> Result<Jobs<'s>, Failure> {
    let state =
        query.text("state").and_then(|state| Phase::ALL.into_iter().find(|phase| phase.name() == state));
    let after = query.text("after").map(|after| {
        let is_seen = |name: &String| snapshot.jobs.get(name).is_some_and(|job| caller.sees(job));
        snapshot.order.iter().position(|name| name == after && is_seen(name)).ok_or_else(|| {
            let what = format!("there is no job `{}`", echo(after));
            Failure::invalid("query, `after`", what).hint("take the name from `next` of the answer before")
        })
    });
    let (after, newest) = (after.transpose()?, query.text("order") == Some("newest"));
    let limit = query.whole("limit");
    let is_asked = |job: &&Arc<JobState>| state.is_none_or(|state| job.state == state) && caller.sees(job);
    let count = snapshot.order.len();
    let places = match (newest, after) {
        (false, after) => after.map_or(0, |after| after + 1)..count,
        (true, after) => 0..after.unwrap_or(count),
    };
    let at = |place: usize| snapshot.jobs.get(&snapshot.order[place]);
    let place_of = |step: usize| if newest { places.end - 1 - step } else { places.start + step };
    let following = (0..places.len()).filter_map(|step| at(place_of(step))).filter(is_asked);
    // One more than asked for tells whether there are more.
    let mut jobs: Vec<&JobState> = following.take(limit + 1).map(|job| &**job).collect();
    let more = jobs.len() > limit;
    jobs.truncate(limit);
    let next = jobs.last().filter(|_| more).map(|job| job.name.as_str());
    // How many jobs are in each state is known; of those that only some callers see, it is counted.
    let total = match state {
        _ if caller.is_limited() => snapshot.jobs.values().filter(is_asked).count() as u64,
        Some(state) => snapshot.cluster.jobs.get(&state).copied().unwrap_or(0),
        None => count as u64,
    };
    Ok(Jobs { jobs, total, next })
}

pub(super) async fn get(call: Call) -> Result<Response, Failure> {
    let snapshot = call.api.engine.now();
    json(StatusCode::OK, &**call.job(&snapshot)?)
}

pub(super) async fn submit(call: Call) -> Result<Response, Failure> {
    let (bytes, header_key) = (call.body.clone(), key_of_header(&call)?);
    // Reading a megabyte of a client's TOML may take a while.
    let mut wanted = blocking(move || read(&bytes, header_key)).await??;
    if let Some(user) = call.caller.user() {
        admit(&mut wanted, user)?;
    }
    wanted.task = call.api.describer.task(&wanted.job).await?;
    let (job, created) = call.ask_for_job(Request::Submit(Box::new(wanted))).await?;
    let mut response = json(if created { StatusCode::CREATED } else { StatusCode::OK }, &*job)?;
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/jobs/{}", job.name)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// What a user submits, if that user may.
fn admit(wanted: &mut Submission, user: &User) -> Result<(), Failure> {
    let queue = wanted.queue.as_deref();
    if !user.sees(queue) {
        let what =
            format!("user {} submits no jobs to queue `{}`", user.name, queue.unwrap_or(DEFAULT_QUEUE));
        let failure = Failure::new(StatusCode::FORBIDDEN, "body, `queue`", what);
        let theirs = user.queues.as_deref().unwrap_or_default().join(", ");
        return Err(failure.hint(format!("name one of the user's, or one below: {theirs}")));
    }
    if matches!(wanted.job.model, Model::Python { .. }) && !user.scripts {
        let what = format!("user {} may not submit scripts, which run as the daemon's user", user.name);
        let failure = Failure::new(StatusCode::FORBIDDEN, "body, `job.model`", what);
        return Err(failure.hint("the daemon's owner allows it: `bellwether users add --scripts`"));
    }
    if wanted.provision.is_some() && !(user.role == Role::Operate && user.scripts) {
        let what = format!("user {} may not have machines obtained", user.name);
        let failure = Failure::new(StatusCode::FORBIDDEN, "body, `provision`", what);
        return Err(failure.hint(
            "the daemon's owner pays for them, and a plan says what starts there: it needs the role `operate` and \
             `bellwether users add --scripts`",
        ));
    }
    // Users do not find each other's jobs by guessing their words.
    wanted.key = wanted.key.take().map(|key| format!("{}: {key}", user.name));
    wanted.user = Some(user.name.clone());
    Ok(())
}

/// The submission in a body, its task not yet known.
fn read(bytes: &[u8], header_key: Option<String>) -> Result<Submission, Failure> {
    let body: Submit = body::read(bytes)?;
    if body.pods.is_some() {
        let failure = Failure::invalid("body, `pods`", "a daemon starts processes, and no pods");
        return Err(failure.hint("leave it out, or submit the job to Kubernetes"));
    }
    let Submit {
        job, job_toml, name, workers, priority, deadline, profile, rates, profile_first, key, ..
    } = body;
    let job = match (job, job_toml) {
        (Some(job), None) => {
            let located =
                |error: InputError| InputError { place: format!("body, `job.{}`", error.place), ..error };
            job.check().map_err(located)?
        }
        (None, Some(text)) => bellwether_core::parse::job(&text, "body, `job_toml`", &[])?,
        _ => {
            let failure = Failure::invalid("body", "exactly one of `job` and `job_toml` is needed");
            return Err(failure.hint("give the job file as JSON in `job`, or its text in `job_toml`"));
        }
    };
    if let Some(path) = Job::clone(&job).paths_mut().into_iter().find(|path| !path.is_absolute()) {
        let what = format!("the path `{}` is not absolute", echo(&path.to_string_lossy()));
        let hint = "the daemon works in another folder than you; `bellwether submit` makes paths absolute";
        return Err(Failure::invalid("body, `job`", what).hint(hint));
    }
    if let Some(name) = &name {
        let named = job.clone().edit(|job| job.name.clone_from(name));
        named.map_err(|error| InputError { place: "body, `name`".into(), ..error })?;
    }
    let key = match (key, header_key) {
        (Some(body), Some(header)) if body != header => {
            let what = "the body and the header `Idempotency-Key` have different keys";
            return Err(Failure::invalid("body, `key`", what).hint("give one of them"));
        }
        (body, header) => body.or(header),
    };
    if let Some(key) = &key {
        check_key("body, `key`", key)?;
    }
    let weight = weight("priority", priority)?.unwrap_or(1.0);
    if let Some(profile) = &profile {
        let place =
            |error: InputError| InputError { place: format!("body, `profile.{}`", error.place), ..error };
        profile.check().map_err(place)?;
    }
    if [profile.is_some(), !rates.is_empty(), profile_first].into_iter().filter(|told| *told).count() > 1 {
        let what = "only one of `profile`, `rates` and `profile_first` says how fast the job is";
        return Err(Failure::invalid("body", what).hint("leave the others out"));
    }
    Ok(Submission {
        job,
        name,
        workers: workers.map(|workers| workers.0),
        weight,
        deadline_s: deadline.map(|deadline| deadline.0),
        task: crate::ledger::Task { training_samples: 0, bytes: 0 },
        profile,
        rates,
        protocols: body.protocols,
        servers: body.servers.map(|servers| servers.0),
        profile_first,
        key,
        queue: body.queue,
        user: None,
        provision: body.provision,
    })
}

fn key_of_header(call: &Call) -> Result<Option<String>, Failure> {
    let place = "header `Idempotency-Key`";
    let Some(value) = call.headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().map_err(|_| Failure::invalid(place, "it is not plain text"))?;
    check_key(place, key)?;
    Ok(Some(key.to_owned()))
}

fn check_key(place: &str, key: &str) -> Result<(), Failure> {
    if (1..=KEY_BYTES).contains(&key.len()) {
        return Ok(());
    }
    let what = format!("a key has 1 to {KEY_BYTES} bytes, this one has {}", key.len());
    Err(Failure::invalid(place, what).hint("a random number in text is a good one"))
}

fn weight(key: &str, weight: Option<f64>) -> Result<Option<f64>, Failure> {
    match weight {
        Some(weight) if !(weight.is_finite() && weight > 0.0) => {
            Err(Failure::invalid(format!("body, `{key}`"), format!("{weight} is not above 0")))
        }
        weight => Ok(weight),
    }
}

/// Asks the engine about the job in the path, if there is one.
async fn change(call: &Call, request: impl FnOnce(String) -> Request) -> Result<Response, Failure> {
    let name = call.job(&call.api.engine.now())?.name.clone();
    let (job, _): (Arc<JobState>, bool) = call.ask_for_job(request(name)).await?;
    json(StatusCode::OK, &*job)
}

pub(super) async fn limit(call: Call) -> Result<Response, Failure> {
    let Limits { workers, weight: asked } = body::read(&call.body)?;
    let weight = weight("weight", asked)?;
    if workers.is_none() && weight.is_none() {
        return Err(Failure::invalid("body", "nothing is to change").hint("give `workers`, `weight` or both"));
    }
    let workers = workers.map(|workers| workers.0);
    change(&call, |job| Request::Limit { job, workers, weight }).await
}

pub(super) async fn scale(call: Call) -> Result<Response, Failure> {
    let Scale { workers } = body::read(&call.body)?;
    change(&call, |job| Request::Limit { job, workers: Some(workers.0), weight: None }).await
}

pub(super) async fn suspend(call: Call) -> Result<Response, Failure> {
    let by = call.caller.words();
    change(&call, |job| Request::Suspend { job, by }).await
}

pub(super) async fn resume(call: Call) -> Result<Response, Failure> {
    change(&call, |job| Request::Resume { job }).await
}

pub(super) async fn cancel(call: Call) -> Result<Response, Failure> {
    change(&call, |job| Request::Cancel { job }).await
}

pub(super) async fn configuration(call: Call) -> Result<Response, Failure> {
    let job = call.job(&call.api.engine.now())?.name.clone();
    match call.ask(Request::Describe { job }).await? {
        Reply::Description(job) => json(StatusCode::OK, &*job),
        _ => Err(Failure::unavailable("the engine answered another question")),
    }
}

pub(super) async fn curve(call: Call) -> Result<Response, Failure> {
    let folder = call.job(&call.api.engine.now())?.run_dir.clone();
    let points = call.query.whole("points");
    let curve = call.read(move || curve::read(&folder, points)).await?;
    json(StatusCode::OK, &curve)
}
