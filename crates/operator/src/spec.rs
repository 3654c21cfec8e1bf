//! From the custom resource to what the controller needs of it.

use std::collections::BTreeMap;

use bellwether_core::job::{Job, WorkerRange};
use kube::ResourceExt;

use crate::crd::ElasticJob;
use crate::job::JobSpec;
use crate::observe::seconds;
use crate::reconcile::{Backend, Role, Terms};

/// The job as its author describes it; `None` where another controller manages it.
///
/// # Errors
///
/// Returns what is wrong with it: the field, what, and what to do.
pub fn of(job: &ElasticJob) -> Result<Option<JobSpec>, String> {
    let spec = &job.spec;
    let elastic = spec.elastic.clone().unwrap_or_default();
    let described: Job =
        serde_json::from_value(spec.job.clone()).map_err(|error| format!("spec.job: {error}"))?;
    let checked = described.check().map_err(|error| format!("spec.job.{error}"))?;
    let of_job = checked.workers;
    let mut workers = WorkerRange {
        min: elastic.min_replicas.unwrap_or(of_job.min),
        max: elastic.max_replicas.unwrap_or(of_job.max),
    };
    if elastic.policy.as_deref() == Some("Manual")
        && let Some(replicas) = elastic.replicas
    {
        workers = WorkerRange { min: replicas, max: replicas };
    }
    let mut templates = BTreeMap::new();
    if let Some(worker) = &spec.worker {
        templates.insert(Role::Worker, worker.template.clone());
    }
    let checkpoint = spec.checkpoint.clone().unwrap_or_default();
    let volume = checkpoint.volume_claim.map(|claim| (claim, checkpoint.path.unwrap_or_default()));
    Ok(Some(JobSpec {
        namespace: job.namespace().unwrap_or_default(),
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        created_s: job.metadata.creation_timestamp.as_ref().map_or(0.0, |time| seconds(&time.0)),
        generation: job.metadata.generation.unwrap_or(0),
        backend: Backend::Native,
        rendezvous: "native".into(),
        port: 29500,
        job: checked,
        training_samples: None,
        workers,
        weight: 1.0,
        deadline_s: None,
        queue: spec.queue.clone(),
        is_suspended: spec.suspend,
        profile: None,
        terms: Terms {
            backend: Backend::Native,
            min_workers: workers.min,
            grace_s: elastic.scale_down_grace_seconds.unwrap_or(120),
            start_timeout_s: elastic.start_timeout_seconds.unwrap_or(300),
            max_restarts: 10,
        },
        ttl_s: None,
        templates,
        volume,
        environment_secret: None,
        priority_class: None,
        pattern: None,
    }))
}
