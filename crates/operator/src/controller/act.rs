//! Carries out what was found to be due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::events::EventType;
use serde_json::{Value, json};

use super::{Context, Fault, count};
use crate::crd::ElasticJob;
use crate::job::{JobSpec, Kept};
use crate::manifest::{Template, secret_name};
use crate::reconcile::{Action, NewPod, News, Observed, Role};

/// Who writes what, as it stands in managed fields.
const SCHEDULER: &str = "bellwether-scheduler";
const CONTROLLER: &str = "bellwether-controller";

/// Does these things in this order; says whether the status was written, after which all has to be looked at again.
pub(super) async fn carry_out(
    job: &Arc<ElasticJob>,
    spec: &JobSpec,
    observed: &Observed,
    actions: &[Action],
    context: &Context,
) -> Result<bool, Fault> {
    let mut leavers = Leavers::new();
    let outcome = carry_out_each(job, spec, observed, actions, context, &mut leavers).await;
    // One event for all that leave for the same reason, and none for those that could not be told.
    for (why, pods) in leavers {
        context.event(job, EventType::Normal, "PodLeaves", &format!("{}: {why}", pods.join(", "))).await;
    }
    outcome
}

/// Pods that were told to go, by why.
type Leavers<'a> = BTreeMap<&'a str, Vec<&'a str>>;

async fn carry_out_each<'a>(
    job: &Arc<ElasticJob>,
    spec: &JobSpec,
    observed: &Observed,
    actions: &'a [Action],
    context: &Context,
    leavers: &mut Leavers<'a>,
) -> Result<bool, Fault> {
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &spec.namespace);
    for action in actions {
        match action {
            Action::Allocate(allocation, reason) => {
                let value = Kept::allocation(allocation, context.lease_transitions, reason);
                let resizes = observed.allocation.workers > 0 && allocation.workers > 0;
                let mut status = json!({"allocation": value});
                if resizes {
                    status["restarts"] = json!({"resize": resizes_of(job) + 1});
                }
                patch_status(job, spec, status, SCHEDULER, context).await?;
                count(&context.counters.allocations, 1);
                let (from, to) = (observed.allocation.workers, allocation.workers);
                let note =
                    format!("from {from} to {to} workers: {}", nonempty(reason, "the policy decided so"));
                context.event(job, EventType::Normal, "Allocated", &note).await;
                return Ok(true);
            }
            Action::Create(pod) => create(job, spec, pod, context).await?,
            Action::Delete { pod, grace_s, why } => {
                count(&context.counters.deletes, 1);
                delete(&pods, observed_uid(pod, spec, context), pod, *grace_s).await?;
                leavers.entry(why).or_default().push(pod);
            }
            Action::Count { pod, is_fault, was_coordinator, what } => {
                let uid = observed_uid(pod, spec, context);
                // What is seen may be behind: the pod may have been counted, and be on its way out.
                let is_new = uid
                    .as_ref()
                    .is_none_or(|uid| context.edit(&spec.uid, |known| known.counted.insert(uid.clone())));
                if is_new {
                    let status = json!({"restarts": one_more(job, *is_fault, *was_coordinator)});
                    patch_status(job, spec, status, CONTROLLER, context).await?;
                    let type_ = if *is_fault { EventType::Warning } else { EventType::Normal };
                    context.event(job, type_, "PodLost", what).await;
                }
                count(&context.counters.deletes, 1);
                delete(&pods, uid, pod, 0).await?;
                if is_new {
                    return Ok(true);
                }
            }
            Action::Replace { allocation, is_fault, what } => {
                let value = Kept::allocation(allocation, context.lease_transitions, what);
                let status = json!({"allocation": value, "restarts": one_more(job, *is_fault, false)});
                patch_status(job, spec, status, SCHEDULER, context).await?;
                count(&context.counters.allocations, 1);
                let type_ = if *is_fault { EventType::Warning } else { EventType::Normal };
                let note = format!("{what}: all pods start again from the script's own checkpoint");
                context.event(job, type_, "PodLost", &note).await;
                return Ok(true);
            }
            // The pods are told by what they ask for.
            Action::Stop => {}
            Action::Tell(news) => tell(spec, news, context),
        }
    }
    Ok(false)
}

/// The counts of what went wrong, with one more pod that was lost.
fn one_more(job: &ElasticJob, is_fault: bool, was_coordinator: bool) -> Value {
    let mut restarts = Kept::of(&value_of(job)).restarts;
    restarts.crash = restarts.crash.saturating_add(u32::from(is_fault));
    restarts.coordinator = restarts.coordinator.saturating_add(u32::from(was_coordinator));
    if is_fault {
        restarts.last_s = crate::observe::now_s();
    }
    Kept::restarts(&restarts)
}

fn nonempty<'t>(text: &'t str, other: &'t str) -> &'t str {
    if text.is_empty() { other } else { text }
}

fn value_of(job: &ElasticJob) -> Value {
    serde_json::to_value(&job.status).unwrap_or(Value::Null)
}

fn resizes_of(job: &ElasticJob) -> u64 {
    value_of(job)["restarts"]["resize"].as_u64().unwrap_or(0)
}

fn tell(spec: &JobSpec, news: &News, context: &Context) {
    let run = context.edit(&spec.uid, |known| known.run.clone());
    if let Some(run) = run {
        context.desk.tell(&run, news);
    }
}

/// Writes a part of the status, if nothing was written since the job was read.
pub(super) async fn patch_status(
    job: &Arc<ElasticJob>,
    spec: &JobSpec,
    status: Value,
    manager: &str,
    context: &Context,
) -> Result<(), Fault> {
    let place = (spec.namespace.clone(), spec.name.clone());
    patch_status_of(job, &place, &spec.uid, status, manager, context).await
}

/// The same, of a job whose specification may be wrong.
pub(super) async fn patch_status_of(
    job: &Arc<ElasticJob>,
    (namespace, name): &(String, String),
    uid: &str,
    status: Value,
    manager: &str,
    context: &Context,
) -> Result<(), Fault> {
    let patch = json!({"metadata": {"resourceVersion": job.resource_version()}, "status": status});
    let parameters = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    count(&context.counters.patches, 1);
    let written = context.api(namespace).patch_status(name, &parameters, &Patch::Merge(&patch)).await?;
    context.edit(uid, |known| known.written = Some(Arc::new(written)));
    Ok(())
}

/// The identifier of the job's pod with this name.
fn observed_uid(pod: &str, spec: &JobSpec, context: &Context) -> Option<String> {
    context.pods_of(&spec.uid).into_iter().find(|seen| seen.name_any() == pod).and_then(|seen| seen.uid())
}

/// Deletes just this pod, and no other that has its name by now.
async fn delete(api: &Api<Pod>, uid: Option<String>, name: &str, grace_s: u32) -> Result<(), Fault> {
    let preconditions = Preconditions { uid, resource_version: None };
    let parameters = DeleteParams::default().grace_period(grace_s).preconditions(preconditions);
    match api.delete(name, &parameters).await {
        // It is gone, or another has its name.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

async fn create(job: &ElasticJob, spec: &JobSpec, pod: &NewPod, context: &Context) -> Result<(), Fault> {
    let name = crate::manifest::pod_name(&spec.name, pod);
    let (run, is_under_way) = context
        .edit(&spec.uid, |known| (known.run.clone().unwrap_or_default(), known.created.contains_key(&name)));
    if is_under_way {
        return Ok(());
    }
    ensure_secret(spec, context).await?;
    let template = template(spec, &run, context);
    let manifest = template.pod(pod, &spec.namespace, spec.owner());
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let api: Api<DynamicObject> = Api::namespaced_with(context.client.clone(), &spec.namespace, &kind);
    let object: DynamicObject = serde_json::from_value(manifest).map_err(kube::Error::SerdeError)?;
    count(&context.counters.creates, 1);
    match api.create(&PostParams::default(), &object).await {
        // It was asked for before; or a job of the same name that was removed still has a pod of this name.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let there = api.get_opt(&name).await?;
            let is_ours = there.is_none_or(|pod| pod.labels().get(crate::labels::JOB_UID) == Some(&spec.uid));
            if is_ours { Ok(()) } else { Err(kube::Error::Api(status).into()) }
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 422) => {
            let message = status.message.clone();
            let is_new =
                context.edit(&spec.uid, |known| known.rejected.replace(message.clone()) != Some(message));
            if is_new {
                context.event(job, EventType::Warning, "TemplateRejected", &status.message).await;
            }
            Err(kube::Error::Api(status).into())
        }
        Err(error) => Err(error.into()),
        Ok(_) => {
            context.edit(&spec.uid, |known| {
                known.rejected = None;
                known.created.insert(name.clone(), Instant::now());
                if pod.role == Role::Coordinator {
                    // It may ask for something before it is seen.
                    known.leader = Some(name);
                }
            });
            Ok(())
        }
    }
}

fn template(spec: &JobSpec, run: &str, context: &Context) -> Template {
    Template {
        job: spec.name.clone(),
        uid: spec.uid.clone(),
        run: run.to_owned(),
        backend: spec.terms.backend,
        rendezvous: spec.rendezvous.clone(),
        image: context.image.clone(),
        operator_url: context.url.clone(),
        port: spec.port,
        workers: (spec.workers.min, spec.job.batch.virtual_nodes),
        grace_s: spec.terms.grace_s,
        templates: spec.templates.clone(),
        volume: spec.volume.clone(),
        pattern: spec.pattern.clone(),
        priority_class: spec.priority_class.clone(),
        environment_secret: spec.environment_secret.clone(),
        memory_bytes: context.edit(&spec.uid, |known| known.memory_bytes),
    }
}

/// The secret with the job's token and its job file, which only its own pods mount.
async fn ensure_secret(spec: &JobSpec, context: &Context) -> Result<(), Fault> {
    if context.edit(&spec.uid, |known| known.has_secret) {
        return Ok(());
    }
    let token = crate::exchange::token_of(&context.master, &spec.uid).to_text();
    let job = serde_json::to_string(&*spec.job).map_err(kube::Error::SerdeError)?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {
            "name": secret_name(&spec.name, &spec.uid), "namespace": spec.namespace, "ownerReferences": [spec.owner()],
            "labels": {crate::labels::JOB_UID: spec.uid, "app.kubernetes.io/managed-by": "bellwether-operator"},
        },
        "stringData": {"token": token, "job.json": job},
    });
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &spec.namespace);
    let secret: Secret = serde_json::from_value(secret).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &secret).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    context.edit(&spec.uid, |known| known.has_secret = true);
    Ok(())
}
