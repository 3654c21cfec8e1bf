//! From the custom resource to what the controller needs of it.

use std::collections::BTreeMap;

use kube::ResourceExt;

use crate::crd::{self, ElasticJob, FieldError};
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
    if !spec.is_managed_here() {
        return Ok(None);
    }
    let checked = crd::check(job).map_err(|errors| FieldError::message(&errors))?;
    let Some(described) = checked.job else {
        return Err(format!(
            "spec.rendezvous.backend: `{}` is not there yet",
            spec.rendezvous.backend.name()
        ));
    };
    let roles = [
        (Role::Worker, spec.worker.template.as_ref()),
        (Role::Server, spec.server.as_ref().and_then(|role| role.template.as_ref())),
        (Role::Coordinator, spec.coordinator.as_ref().and_then(|role| role.template.as_ref())),
    ];
    let templates: BTreeMap<_, _> =
        roles.into_iter().filter_map(|(role, template)| Some((role, template?.0.clone()))).collect();
    let checkpoint = spec.checkpoint.clone().unwrap_or_default();
    Ok(Some(JobSpec {
        namespace: job.namespace().unwrap_or_default(),
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        created_s: job.metadata.creation_timestamp.as_ref().map_or(0.0, |time| seconds(&time.0)),
        generation: job.metadata.generation.unwrap_or(0),
        backend: Backend::Native,
        rendezvous: spec.rendezvous.backend.name().into(),
        port: spec.rendezvous.port,
        job: described,
        training_samples: spec.hints.training_samples,
        workers: checked.workers,
        weight: spec.weight,
        deadline_s: spec.deadline_seconds.map(|seconds| seconds as f64),
        queue: spec.queue.clone(),
        is_suspended: spec.suspend,
        profile: spec.profile_ref.clone().map(|profile| (profile.name, profile.key)),
        terms: Terms {
            backend: Backend::Native,
            min_workers: checked.workers.min,
            grace_s: spec.elastic.scale_down_grace_seconds,
            start_timeout_s: spec.elastic.start_timeout_seconds,
            max_restarts: spec.failure_policy.max_restarts,
        },
        ttl_s: spec.ttl_seconds_after_finished,
        templates,
        volume: checkpoint.volume_claim.map(|claim| (claim, checkpoint.path)),
        environment_secret: checkpoint.secret_ref.map(|secret| secret.name),
        priority_class: spec.priority_class_name.clone(),
        pattern: spec.rendezvous.throughput.clone().map(|throughput| throughput.pattern),
    }))
}
