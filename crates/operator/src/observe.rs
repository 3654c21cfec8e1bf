//! From a pod, as Kubernetes tells of it, to what decisions depend on.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use crate::labels;
use crate::reconcile::{Exit, Final, Life, PodSeen, Role};

/// The longest last word of a run that is read; Kubernetes cuts messages at the same length.
const WORD_BYTES_MAX: usize = 4096;

/// What is seen of a pod of ours; `None` where its labels are not what the operator writes.
pub fn seen(pod: &Pod) -> Option<PodSeen> {
    let label = |key| labels::label(pod, key);
    let role = Role::of_label(label(labels::ROLE)?)?;
    let (rank, generation) = (label(labels::RANK)?.parse().ok()?, label(labels::ALLOCATION)?.parse().ok()?);
    let status = pod.status.clone().unwrap_or_default();
    let is_disrupted = holds(&status, "DisruptionTarget");
    let name = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(labels::CONTAINER));
    let container = main_container(&status, name);
    let exit = exit(&status, container, is_disrupted, role);
    Some(PodSeen {
        name: pod.metadata.name.clone()?,
        role,
        rank,
        generation,
        node: node(pod),
        life: life(&status, exit.is_some()),
        is_deleting: pod.metadata.deletion_timestamp.is_some(),
        is_disrupted,
        exit,
        waits_for: waits_for(&status, container),
        address: status.pod_ip.as_deref().and_then(|address| address.parse().ok()),
        created_s: pod.metadata.creation_timestamp.as_ref().map_or(0.0, |time| seconds(&time.0)),
    })
}

/// Now, in seconds since the Unix epoch.
pub fn now_s() -> f64 {
    seconds(&k8s_openapi::jiff::Timestamp::now())
}

/// Seconds since the Unix epoch.
pub fn seconds(time: &k8s_openapi::jiff::Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}

/// Where it is, or has to be.
fn node(pod: &Pod) -> String {
    let placed = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let wanted = || pod.metadata.annotations.as_ref()?.get(labels::NODE).cloned();
    placed.or_else(wanted).unwrap_or_default()
}

fn holds(status: &PodStatus, condition: &str) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions.into_iter().any(|seen| seen.type_ == condition && seen.status == "True")
}

/// The container that does the pod's work: servers tell of several in an order of their own.
fn main_container<'s>(status: &'s PodStatus, name: Option<&String>) -> Option<&'s ContainerStatus> {
    let mut containers = status.container_statuses.iter().flatten();
    containers.clone().find(|container| Some(&container.name) == name).or_else(|| containers.next())
}

fn life(status: &PodStatus, has_ended: bool) -> Life {
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => Life::Ended,
        // A container beside it may run for ever.
        _ if has_ended => Life::Ended,
        Some("Running") => Life::Running { ready: holds(status, "Ready") },
        _ => Life::Pending,
    }
}

fn exit(
    status: &PodStatus,
    container: Option<&ContainerStatus>,
    is_disrupted: bool,
    role: Role,
) -> Option<Exit> {
    let state = container.and_then(|container| container.state.as_ref());
    let terminated = state.and_then(|state| state.terminated.as_ref());
    let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    if terminated.is_none() && !is_over {
        return None;
    }
    let pod_reason = status.reason.clone().unwrap_or_default();
    // What Kubernetes itself does to a pod is not the job's fault.
    let by_kubernetes = ["Evicted", "NodeLost", "Preempting", "NodeShutdown", "Terminated", "Shutdown"];
    let is_disrupted = is_disrupted || by_kubernetes.contains(&pod_reason.as_str());
    let mut exit = Exit { reason: pod_reason, is_disrupted, ..Exit::default() };
    if let Some(terminated) = terminated {
        exit.code = Some(terminated.exit_code);
        if exit.reason.is_empty() {
            exit.reason =
                terminated.reason.clone().filter(|reason| reason != "Completed").unwrap_or_default();
        }
        exit.at_s = terminated.finished_at.as_ref().map_or(0.0, |time| seconds(&time.0));
        let speaks = role != Role::Server;
        exit.word = terminated.message.as_deref().filter(|_| speaks).and_then(word);
    } else if status.phase.as_deref() == Some("Succeeded") {
        exit.code = Some(0);
    }
    Some(exit)
}

/// The last word of a run, if this is one: a pod can say anything.
fn word(message: &str) -> Option<Final> {
    if message.len() > WORD_BYTES_MAX {
        return None;
    }
    let word = serde_json::from_str::<Final>(message.trim()).ok();
    word.filter(|word| word.unix_s.is_finite() && word.unix_s > 0.0)
}

fn waits_for(status: &PodStatus, container: Option<&ContainerStatus>) -> Option<String> {
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unscheduled {
        return condition.message.clone().or_else(|| condition.reason.clone());
    }
    // One that brings our programs may wait for its image, too.
    let before = status.init_container_statuses.iter().flatten();
    before.chain(container).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone()?;
        // On the usual way to a start.
        if matches!(reason.as_str(), "ContainerCreating" | "PodInitializing") {
            return None;
        }
        Some(match &waiting.message {
            Some(message) => format!("{reason}: {message}"),
            None => reason,
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(status: Value) -> PodSeen {
        let labels = json!({
            labels::JOB_UID: "u", labels::ROLE: "coordinator", labels::RANK: "0", labels::ALLOCATION: "3",
        });
        let metadata = json!({"name": "p", "labels": labels, "annotations": {labels::NODE: "n1"}});
        let pod = json!({"metadata": metadata, "spec": {"containers": []}, "status": status});
        let pod: Pod = serde_json::from_value(pod).expect("it is a pod");
        seen(&pod).expect("it is ours")
    }

    fn terminated(phase: &str, terminated: Value) -> PodSeen {
        let container = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": terminated}});
        pod(json!({"phase": phase, "containerStatuses": [container]}))
    }

    #[test]
    fn a_pod_is_where_it_has_to_be_until_it_is_placed() {
        let seen = pod(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]}));
        assert_eq!((seen.node.as_str(), seen.generation, seen.life), ("n1", 3, Life::Pending));
        assert_eq!(seen.waits_for.as_deref(), Some("0/3 nodes are available"));
    }

    #[test]
    fn a_pod_whose_image_is_missing_says_so_whichever_container_wants_it() {
        let waits = |reason: &str| {
            json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": "no such image"}}})
        };
        let (stuck, usual) = (waits("ErrImagePull"), waits("PodInitializing"));
        for (before, main) in [(vec![], &stuck), (vec![&stuck], &usual), (vec![&usual], &stuck)] {
            let status =
                json!({"phase": "Pending", "initContainerStatuses": before, "containerStatuses": [main]});
            assert_eq!(pod(status).waits_for.as_deref(), Some("ErrImagePull: no such image"));
        }
        assert_eq!(pod(json!({"phase": "Pending", "containerStatuses": [usual]})).waits_for, None);
    }

    #[test]
    fn the_last_word_of_a_coordinator_is_read_and_anything_else_is_not() {
        let said = |message: &str| {
            let ended = terminated("Succeeded", json!({"exitCode": 0, "message": message}));
            ended.exit.and_then(|exit| exit.word).map(|word| word.outcome)
        };
        let word = r#"{"outcome":"finished","step":7,"unix_s":1.5,"more":1}"#;
        assert_eq!(said(word).as_deref(), Some("finished"));
        for other in ["", "panicked", "{}", r#"{"outcome":"finished","unix_s":-1}"#, &word.repeat(99)] {
            assert_eq!(said(other), None, "{other}");
        }
    }

    #[test]
    fn who_is_to_blame_for_an_end() {
        let fault = |phase, state: Value| terminated(phase, state).exit.map(|exit| exit.is_fault());
        assert_eq!(fault("Failed", json!({"exitCode": 1})), Some(true));
        assert_eq!(fault("Failed", json!({"exitCode": 137})), Some(false), "killed from outside");
        assert_eq!(fault("Failed", json!({"exitCode": 137, "reason": "OOMKilled"})), Some(true));
        assert_eq!(fault("Succeeded", json!({"exitCode": 0, "reason": "Completed"})), Some(false));
        assert_eq!(
            pod(json!({"phase": "Failed", "reason": "Evicted"})).exit.map(|exit| exit.is_fault()),
            Some(false)
        );
        // Its sidecar still runs.
        assert_eq!(terminated("Running", json!({"exitCode": 1})).life, Life::Ended);
        assert_eq!(pod(json!({"phase": "Running"})).exit, None);
    }
}
