//! Kubernetes as a provider: a machine is a pod, known by its labels. Where no node has room for it, the cluster's
//! autoscaler sees that it waits, and makes one of the kind that its labels ask for.
//!
//! `kubectl` is the client, with the user's own configuration and context.

use bellwether_core::machines::{Machine, Notice, Offer, Phase, Provider, ProviderError, Request, Tag};
use bellwether_core::plan::Market;
use serde_json::{Value, json};

use super::ways::{Ways, of_program, way};
use crate::programs::{Call, ProgramError};

const NAME: &str = "Kubernetes";

/// The labels of a pod: its lease, and its tag.
const LEASE_LABEL: &str = "train.bellwether.dev/lease";
const TAG_LABEL: &str = "train.bellwether.dev/machine";

/// The image of pods where the catalogue names none.
const IMAGE: &str = "bellwether:latest";

/// Seconds that a worker may take to leave once its pod is deleted.
const GRACE_S: u32 = 30;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Kubernetes {
    ways: Ways,
}

impl Kubernetes {
    pub(super) fn new(ways: Ways) -> Kubernetes {
        Kubernetes { ways }
    }

    fn name_of(tag: &Tag) -> String {
        format!("bellwether-{tag}")
    }
}

impl Provider for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn settle_s(&self) -> f64 {
        // As long as `kubectl` may take.
        35.0
    }

    fn offers(&mut self) -> Result<Vec<Offer>, ProviderError> {
        Ok(Vec::new())
    }

    fn request(&mut self, request: &Request) -> Result<(), ProviderError> {
        let way = way(&self.ways, &request.pool, NAME)?;
        let name = Kubernetes::name_of(&request.tag);
        let labels = json!({ LEASE_LABEL: request.tag.lease, TAG_LABEL: request.tag.to_string() });
        let metadata = json!({ "name": name, "labels": labels });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": request.secrets,
        });
        // Nodes that may be taken away keep other pods off by a taint that is named like their label.
        let spot = Some(&way.kubernetes_transient).filter(|_| request.pool.market == Market::Transient);
        let tolerations: Vec<Value> =
            spot.into_iter().flatten().map(|(key, _)| json!({ "key": key, "operator": "Exists" })).collect();
        let resources = json!({ "limits": way.kubernetes_resources, "requests": way.kubernetes_resources });
        let container = json!({
            "name": "worker",
            "image": way.image.as_deref().unwrap_or(IMAGE),
            "command": ["sh", "-c", request.script],
            "envFrom": [{ "secretRef": { "name": name } }],
            "resources": resources,
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": GRACE_S,
                "nodeSelector": way.labels_of(request.pool.market),
                "tolerations": tolerations,
                "containers": [container],
            },
        });
        for object in [secret, pod] {
            let made = Call::new("kubectl", ["create", "-f", "-"]).reading(object.to_string()).answer();
            match made {
                // It was asked for before.
                Err(ProgramError::Refused { why, .. }) if why.contains("AlreadyExists") => {}
                Err(error) => {
                    // The secret alone would stay.
                    let _ = self.release(&request.tag);
                    return Err(of_program(NAME, &error));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn list(&mut self, lease: &str) -> Result<Vec<Machine>, ProviderError> {
        let unanswered = |why: String| ProviderError::Unanswered { provider: NAME, why };
        let selector = format!("{LEASE_LABEL}={lease}");
        let text = Call::new("kubectl", ["get", "pods", "-l", &selector, "-o", "json"]).answer();
        let machines = pods(&text.map_err(|error| unanswered(error.to_string()))?).map_err(unanswered)?;
        for machine in machines.iter().filter(|machine| matches!(machine.phase, Phase::Ended { .. })) {
            // What is over costs nothing, but its objects would stay for ever. The next look tries again.
            let _ = self.release(&machine.tag);
        }
        Ok(machines.into_iter().filter(|machine| machine.tag.lease == lease).collect())
    }

    fn release(&mut self, tag: &Tag) -> Result<(), ProviderError> {
        let name = Kubernetes::name_of(tag);
        let words = ["delete", "pod,secret", &name, "--ignore-not-found", "--wait=false"];
        let asked = Call::new("kubectl", words).answer();
        asked.map(drop).map_err(|error| ProviderError::Unanswered { provider: NAME, why: error.to_string() })
    }
}

/// The machines among the pods in an answer of `kubectl get pods -o json`.
///
/// # Errors
///
/// Says what is wrong with the answer. Nothing in it is to be believed then.
pub fn pods(text: &str) -> Result<Vec<Machine>, String> {
    let list: Value = serde_json::from_str(text).map_err(|error| format!("its list is not JSON: {error}"))?;
    let items = list["items"].as_array().ok_or("its list has no items")?;
    let mut machines = Vec::new();
    for item in items {
        let label = item["metadata"]["labels"][TAG_LABEL].as_str();
        let Some(tag) = label.and_then(|label| label.parse::<Tag>().ok()) else { continue };
        machines.push(Machine { tag, phase: phase(item)? });
    }
    Ok(machines)
}

fn phase(pod: &Value) -> Result<Phase, String> {
    let status = &pod["status"];
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let condition = |kind: &str| conditions.iter().find(|condition| condition["type"] == kind);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match status["phase"].as_str() {
        Some("Pending") | None => {
            let container = &status["containerStatuses"][0]["state"]["waiting"];
            let reason = match condition("PodScheduled").filter(|condition| condition["status"] == "False") {
                Some(condition) => text(&condition["message"]),
                None => text(&container["reason"]),
            };
            Ok(Phase::Waits { reason })
        }
        Some("Running" | "Unknown") => {
            let disrupted = condition("DisruptionTarget").filter(|condition| condition["status"] == "True");
            let is_deleted = !pod["metadata"]["deletionTimestamp"].is_null();
            let why = match disrupted {
                Some(condition) => Some(text(&condition["message"])),
                None => is_deleted.then(|| "its pod is deleted".to_owned()),
            };
            let notice = why.map(|why| Notice { left_s: 0.0, why });
            Ok(Phase::Runs { place: text(&pod["spec"]["nodeName"]), notice })
        }
        Some(end @ ("Succeeded" | "Failed")) => {
            let reason = text(&status["reason"]);
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            Ok(Phase::Ended { how: format!("its pod has {}{reason}", end.to_lowercase()) })
        }
        Some(other) => Err(format!("a pod has the phase `{}`", other.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(tag: &str, rest: &Value) -> Value {
        let mut pod = json!({ "metadata": { "labels": { TAG_LABEL: tag } } });
        for (key, value) in rest.as_object().into_iter().flatten() {
            pod[key] = value.clone();
        }
        pod
    }

    #[test]
    fn pods_are_read_without_trust() {
        let unscheduled = json!([{ "type": "PodScheduled", "status": "False", "message": "0/2 nodes" }]);
        let disrupted = json!([{ "type": "DisruptionTarget", "status": "True", "message": "preempted" }]);
        let list = json!({ "items": [
            pod("a1-1", &json!({ "status": { "phase": "Pending", "conditions": unscheduled } })),
            pod("a1-2", &json!({ "spec": { "nodeName": "n1" }, "status": { "phase": "Running" } })),
            pod("a1-3", &json!({ "status": { "phase": "Running", "conditions": disrupted } })),
            pod("a1-4", &json!({ "status": { "phase": "Failed", "reason": "Evicted" } })),
            pod("not a tag", &json!({ "status": { "phase": "Running" } })),
        ] });
        let machines = pods(&list.to_string()).unwrap();
        assert_eq!(machines.len(), 4);
        assert_eq!(machines[0].phase, Phase::Waits { reason: "0/2 nodes".into() });
        assert_eq!(machines[1].phase, Phase::Runs { place: "n1".into(), notice: None });
        let Phase::Runs { notice: Some(notice), .. } = &machines[2].phase else {
            panic!("{:?}", machines[2])
        };
        assert_eq!((notice.left_s, notice.why.as_str()), (0.0, "preempted"));
        assert_eq!(machines[3].phase, Phase::Ended { how: "its pod has failed: Evicted".into() });
        let strange = json!({ "items": [pod("a1-1", &json!({ "status": { "phase": "Dancing" } }))] });
        for garbage in ["", "[]", "{}", "null", &strange.to_string()] {
            assert!(pods(garbage).is_err(), "{garbage}");
        }
    }
}
