//! From the custom resource to what the controller needs of it.

use std::collections::BTreeMap;

use bellwether_core::job::{CheckedJob, Job, WorkerRange};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::crd::{self, Checked, ElasticJob, FieldError, Work};
use crate::job::JobSpec;
use crate::observe::seconds;
use crate::reconcile::{Backend, Role, Terms};

/// Samples of a step of a script, as the engine counts them, where its author does not say how many they are.
const BATCH_SAMPLES: u64 = 64;

/// The job as its author describes it; `None` where another controller manages it.
///
/// # Errors
///
/// Returns what is wrong with it: the fields, what, and what to do.
pub fn of(job: &ElasticJob) -> Result<Option<JobSpec>, Vec<FieldError>> {
    let spec = &job.spec;
    if !spec.is_managed_here() {
        return Ok(None);
    }
    let checked = crd::check(job)?;
    supported(job, &checked)?;
    let elastic = &spec.elastic;
    let backend = if spec.is_native() { Backend::Native } else { Backend::Group };
    let min_workers = checked.workers.min;
    let training_samples = match &checked.work {
        Some(work) => work.all_samples(),
        None => spec.hints.training_samples,
    };
    let described = match checked.job.clone() {
        Some(job) => job,
        None => stand_in(job, &checked).map_err(|error| vec![error])?,
    };
    Ok(Some(JobSpec {
        namespace: job.namespace().unwrap_or_default(),
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        created_s: job.metadata.creation_timestamp.as_ref().map_or(0.0, |time| seconds(&time.0)),
        generation: job.metadata.generation.unwrap_or(0),
        backend,
        rendezvous: spec.rendezvous.backend.name().into(),
        port: spec.rendezvous.port,
        workers: checked.workers,
        weight: spec.weight,
        deadline_s: spec.deadline_seconds.map(|seconds| seconds as f64),
        is_suspended: spec.suspend,
        profile: spec.profile_ref.as_ref().map(|profile| (profile.name.clone(), profile.key.clone())),
        terms: Terms {
            backend,
            min_workers,
            grace_s: elastic.scale_down_grace_seconds,
            start_timeout_s: elastic.start_timeout_seconds,
            cooldown_s: match elastic.policy {
                // A number that someone chooses is wanted now.
                crd::Policy::Manual => 0,
                _ => elastic.scale_up_cooldown_seconds,
            },
            active_deadline_s: spec.active_deadline_seconds,
            total_steps: described.steps.unwrap_or(0),
            failure: spec.failure_policy.clone(),
        },
        ttl_s: spec.ttl_seconds_after_finished,
        templates: templates(job),
        volume: spec.checkpoint.as_ref().and_then(|checkpoint| {
            checkpoint.volume_claim.as_ref().map(|claim| (claim.clone(), checkpoint.path.clone()))
        }),
        environment_secret: spec
            .checkpoint
            .as_ref()
            .and_then(|checkpoint| checkpoint.secret_ref.as_ref())
            .map(|secret| secret.name.clone()),
        priority_class: spec.priority_class_name.clone(),
        pattern: checked.pattern.as_ref().map(|pattern| pattern.as_str().to_owned()),
        training_samples,
        step_samples: checked.work.as_ref().and_then(|work| work.batch_size),
        job: described,
    }))
}

/// What this version cannot do yet is refused in words, instead of being done otherwise.
fn supported(job: &ElasticJob, checked: &Checked) -> Result<(), Vec<FieldError>> {
    let spec = &job.spec;
    let not_yet = |field: &str, what: &str, hint: &str| Err(vec![FieldError::new(field, what).hint(hint)]);
    if checked.slots_per_pod > 1 {
        let what = "this version gives each pod one slot";
        return not_yet("spec.worker.slotsPerPod", what, "let each pod have one GPU, and the job more pods");
    }
    let chooses = spec.elastic.policy == crd::Policy::Manual;
    if !(checked.sizes.are_contiguous() || chooses) {
        let what = "this version's policies leave no sizes out between the smallest and the largest";
        let hint = "leave step and discreteSizes out, or choose the number yourself with policy: Manual";
        return not_yet("spec.elastic.discreteSizes", what, hint);
    }
    if !spec.elastic.preemptible {
        let what = "this version takes workers away from any job where its policy wants them elsewhere";
        return not_yet("spec.elastic.preemptible", what, "leave it out, and raise minReplicas");
    }
    if spec.checkpoint.as_ref().is_some_and(|checkpoint| !checkpoint.on_preempt) {
        let what = "this version lets no job go without a checkpoint";
        return not_yet("spec.checkpoint.onPreempt", what, "leave it out");
    }
    Ok(())
}

fn templates(job: &ElasticJob) -> BTreeMap<Role, Value> {
    let of_role = |role: &Option<crd::PodRole>| role.as_ref().and_then(|role| role.template.clone());
    let worker = job.spec.worker.template.clone();
    // Servers compute on the same data as the workers, and need what those need.
    let server = of_role(&job.spec.server).or_else(|| worker.clone());
    let all =
        [(Role::Worker, worker), (Role::Server, server), (Role::Coordinator, of_role(&job.spec.coordinator))];
    all.into_iter().filter_map(|(role, template)| Some((role, template?.0))).collect()
}

/// What the engine is told of a script: how much there is to do, in steps of its batch.
fn stand_in(job: &ElasticJob, checked: &Checked) -> Result<CheckedJob, FieldError> {
    // Also where someone has chosen fewer for now.
    let most = u64::from(checked.sizes.max() * checked.slots_per_pod);
    let work = checked.work.as_ref();
    let of_batch = work.and_then(|work| work.batch_size).or(job.spec.hints.max_global_batch);
    // Virtual nodes bound the workers, and divide the batch.
    let batch = of_batch.unwrap_or(BATCH_SAMPLES * most).max(1).next_multiple_of(most);
    let samples = work.and_then(Work::all_samples).unwrap_or(batch);
    let described = json!({
        "name": job.name_any(),
        "steps": samples.div_ceil(batch).max(1),
        "workers": WorkerRange { min: 1, max: most as u32 },
        "model": {"kind": "custom", "name": "script"},
        "data": {"kind": "custom"},
        "batch": {"size": batch, "virtual_nodes": most},
        "optimizer": {"kind": "sgd", "learning_rate": 0.1},
    });
    let wrong = |what: String| FieldError::new("spec.work", what);
    let job: Job = serde_json::from_value(described).map_err(|error| wrong(error.to_string()))?;
    job.check().map_err(|error| wrong(error.to_string()))
}
