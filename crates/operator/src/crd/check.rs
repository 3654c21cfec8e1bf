//! What is wrong with a job, and what an operator has to know of one with which nothing is.

use std::path::{Path, PathBuf};

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, CheckpointUrl, Job, WorkerRange};
use bellwether_core::parse::advice;
use bellwether_core::units::Seconds;
use regex::Regex;
use serde_json::{Value, json};

use super::backend::{Throughput, Work};
use super::job::{Checkpoint, Elastic, ElasticJob, Policy};
use super::rules::RULES;
use super::sizes::Sizes;
use super::{FieldError, conform, fixed};

/// A job with which nothing is wrong.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What a native job trains: its job file with the object's name, limits and place for checkpoints. `None` for
    /// other backends.
    pub job: Option<CheckedJob>,
    /// What there is to do for other backends than `native`.
    pub work: Option<Work>,
    /// Numbers of worker pods that it may have.
    pub sizes: Sizes,
    /// Workers in a pod.
    pub slots_per_pod: u32,
    /// Numbers of workers that it may have now: those of its sizes, or of the replicas that someone chose.
    pub workers: WorkerRange,
    /// What finds the speed in a script's output.
    pub pattern: Option<Regex>,
}

/// Checks a job: by its schema, by the rules that CEL has too, and by what only a program can tell.
///
/// # Errors
///
/// All that is wrong with it, each with the field. Of a job file it is the first thing.
pub fn check(job: &ElasticJob) -> Result<Checked, Vec<FieldError>> {
    let mut errors = conform::check(job);
    errors.extend(fixed::check(job));
    for rule in RULES.iter().filter(|rule| !(rule.holds)(job)) {
        errors.push(FieldError::new(rule.field, rule.message).hint(rule.hint));
    }
    for (field, role) in [
        ("spec.worker.template", job.spec.worker.template.as_ref()),
        ("spec.server.template", job.spec.server.as_ref().and_then(|role| role.template.as_ref())),
        ("spec.coordinator.template", job.spec.coordinator.as_ref().and_then(|role| role.template.as_ref())),
    ] {
        let needs_command = field == "spec.worker.template" && !job.spec.is_native();
        errors.extend(role.into_iter().flat_map(|template| template.check(field, needs_command)));
    }
    let pattern = job.spec.rendezvous.throughput.as_ref().map(|throughput| pattern(throughput, job));
    let pattern = pattern.transpose().map_err(|error| errors.push(error));
    // What follows relies on what was checked so far.
    if !errors.is_empty() {
        return Err(errors);
    }
    rest(job, pattern.unwrap_or_default()).map_err(|error| vec![error])
}

fn rest(job: &ElasticJob, pattern: Option<Regex>) -> Result<Checked, FieldError> {
    let described = job.spec.job.as_ref().map(|value| read_job(job, value)).transpose()?;
    let says_workers = job.spec.job.as_ref().is_some_and(|value| !value["workers"].is_null());
    let of_job = described.as_ref().filter(|_| says_workers).map(|described| described.workers);
    let sizes = sizes(&job.spec.elastic, of_job)?;
    let slots_per_pod = job.spec.slots_per_pod();
    let pods = job.spec.elastic.pods(&sizes);
    let of_pods = |pods: u32| pods.saturating_mul(slots_per_pod);
    let mut workers = WorkerRange { min: of_pods(*pods.start()), max: of_pods(*pods.end()) };
    let batch = described.as_ref().map(|described| described.batch.size);
    let batch = batch.or_else(|| job.spec.work.as_ref()?.batch_size);
    if let (Some(batch), Some(least)) = (batch, job.spec.hints.min_local_batch) {
        let worth = u32::try_from(batch / least.max(1)).unwrap_or(u32::MAX);
        workers.max = workers.max.min(worth).max(workers.min);
    }
    let widest = WorkerRange { min: of_pods(sizes.min()), max: of_pods(sizes.max()) };
    let checked =
        described.map(|described| finished(described, widest, job.spec.checkpoint.as_ref())).transpose()?;
    Ok(Checked { job: checked, work: job.spec.work.clone(), sizes, slots_per_pod, workers, pattern })
}

fn pattern(throughput: &Throughput, job: &ElasticJob) -> Result<Regex, FieldError> {
    let regex = throughput.compile()?;
    let has_batch = job.spec.work.as_ref().is_some_and(|work| work.batch_size.is_some());
    if Throughput::counts_steps(&regex) && !has_batch {
        let what = "the pattern counts steps, and how many samples a step takes is not said";
        return Err(FieldError::new("spec.work.batchSize", what).hint("write spec.work.batchSize"));
    }
    Ok(regex)
}

/// The sizes that a job may have, by its object and else by the workers of its job file.
fn sizes(elastic: &Elastic, of_job: Option<WorkerRange>) -> Result<Sizes, FieldError> {
    let (min, max) = elastic.bounds(of_job);
    let hint = "write minReplicas and maxReplicas, or change the workers of the job file";
    let wrong =
        |field: &str, what: String| Err(FieldError::new(format!("spec.elastic.{field}"), what).hint(hint));
    if min > max {
        return wrong("minReplicas", format!("at least {min} workers and at most {max}"));
    }
    let mut discrete = elastic.discrete_sizes.iter().flatten();
    if let Some(size) = discrete.find(|size| !(min..=max).contains(size)) {
        return wrong("discreteSizes", format!("{size} is not within {min}..{max}"));
    }
    let manual = elastic.replicas.filter(|_| elastic.policy == Policy::Manual);
    if let Some(replicas) = manual.filter(|replicas| !(min..=max).contains(replicas)) {
        return wrong("replicas", format!("{replicas} is not within {min}..{max}"));
    }
    Ok(elastic.sizes(of_job))
}

/// The job file of an object.
fn read_job(object: &ElasticJob, value: &Value) -> Result<Job, FieldError> {
    let mut value = value.clone();
    if value["name"].is_null() && value.is_object() {
        value["name"] = json!(object.metadata.name.clone().unwrap_or_default());
    }
    let mut job: Job =
        serde_path_to_error::deserialize(&value).map_err(|error| unreadable(&error, &value))?;
    let relative = |path: &&mut PathBuf| path.is_relative();
    if let Some(path) = job.paths_mut().iter().find(|path| relative(path)) {
        let field = find(&value, &path.to_string_lossy(), "spec.job").unwrap_or_else(|| "spec.job".into());
        let what = format!("`{}` is relative, and there is no folder of a job file", path.display());
        return Err(FieldError::new(field, what).hint("write where the pods find it, as /data/train.csv"));
    }
    Ok(job)
}

fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>, value: &Value) -> FieldError {
    let path = error.path().to_string();
    let field = if path == "." { "spec.job".to_owned() } else { format!("spec.job.{path}") };
    let message = error.inner().to_string();
    let Some((what, hint)) = advice(&message) else { return FieldError::new(field, message) };
    // In tables with a `kind` the place ends at the table; the word itself is found again.
    let word = message.split('`').nth(1).unwrap_or_default();
    let at = path.split('.').filter(|part| !part.is_empty()).try_fold(value, |value, part| value.get(part));
    let field = if at.unwrap_or(value).get(word).is_some() && !field.ends_with(&format!(".{word}")) {
        format!("{field}.{word}")
    } else {
        field
    };
    FieldError::new(field, what).hint(hint)
}

/// Where a text stands in a value.
fn find(value: &Value, text: &str, path: &str) -> Option<String> {
    match value {
        Value::String(found) => {
            let found = found.strip_prefix("file://").unwrap_or(found);
            (Path::new(found) == Path::new(text)).then(|| path.to_owned())
        }
        Value::Array(values) => values
            .iter()
            .enumerate()
            .find_map(|(index, value)| find(value, text, &format!("{path}[{index}]"))),
        Value::Object(object) => {
            object.iter().find_map(|(key, value)| find(value, text, &format!("{path}.{key}")))
        }
        _ => None,
    }
}

/// The job as it is trained, with what the object says beside it.
fn finished(
    mut job: Job,
    workers: WorkerRange,
    checkpoint: Option<&Checkpoint>,
) -> Result<CheckedJob, FieldError> {
    job.workers = workers;
    if let Some(url) = checkpoint.and_then(|checkpoint| checkpoint.url.as_ref()) {
        let field = "spec.checkpoint.url";
        if job.checkpoint.url.is_some() {
            let what = "the job file has a checkpoint.url too";
            return Err(FieldError::new(field, what).hint("leave one of them out"));
        }
        let url: CheckpointUrl = url.parse().map_err(|error| FieldError::new(field, error))?;
        if url.folder().is_some_and(Path::is_relative) {
            let what = "a relative folder, and pods share none";
            return Err(FieldError::new(field, what)
                .hint("write file:///FOLDER, where all worker pods have a volume"));
        }
        job.checkpoint.url = Some(url);
    }
    if let Some(seconds) = checkpoint.and_then(|checkpoint| checkpoint.interval_seconds) {
        job.checkpoint.every = Seconds::new(f64::from(seconds));
    }
    let of_object = checkpoint.is_some_and(|checkpoint| checkpoint.url.is_some());
    job.check().map_err(|error| match error.place.as_str() {
        // The object's words, where the object has overruled the job file's.
        "workers" => at("spec.elastic.maxReplicas", error),
        "checkpoint.url" if of_object => at("spec.checkpoint.url", error),
        _ => FieldError::below("spec.job", error),
    })
}

fn at(field: &str, error: InputError) -> FieldError {
    FieldError { field: field.into(), what: error.what, hint: error.hint }
}

/// Reads a job from its JSON, for callers that hold an object of any form.
///
/// # Errors
///
/// The first field that has another type than it should, where the schema would have refused the object.
pub fn read(value: &Value) -> Result<ElasticJob, FieldError> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| FieldError::new(error.path().to_string(), error.into_inner()))
}
