//! Kubernetes as a provider: a machine is a pod, known by its labels. Where no node has room for it, the cluster's
//! autoscaler sees that it waits, and makes one of the kind that its labels ask for.
//!
//! `kubectl` is the client, with the user's own configuration and context.

use bellwether_core::machines::{
    Machine, Notice, Obtain, Offer, Phase, Provider, ProviderError, Request, Tag,
};
use bellwether_core::plan::Market;
use serde_json::{Value, json};

use super::ways::{Ways, way};
use crate::programs::{Call, ProgramError};

const NAME: &str = "Kubernetes";

/// The labels of a pod: its lease, and its tag.
const LEASE_LABEL: &str = "train.bellwether.dev/lease";
const TAG_LABEL: &str = "train.bellwether.dev/machine";

/// The image of pods where the catalogue names none.
const IMAGE: &str = "bellwether:latest";

/// Seconds that a worker may take to leave once others delete its pod, as where its node is drained.
const GRACE_S: u32 = 30;

/// The same where we delete it: its workers have left, or have no coordinator any more.
const RELEASED: &str = "--grace-period=5";

/// How long a request to the server may take. `kubectl` goes on when its caller is killed: what it may yet create has
/// to be there before a machine counts as settled.
const REQUEST_TIMEOUT: &str = "--request-timeout=15s";

/// What stands between the two words of a place.
const BETWEEN: &str = " of ";

/// What of a created object is printed.
const UID: &str = "jsonpath={.metadata.uid}";

/// What `kubectl` says where the server has decided against a request.
const REFUSALS: [&str; 7] = [
    "(Forbidden)",
    "(Invalid)",
    " is invalid:",
    "(BadRequest)",
    "(NotFound)",
    "(Unauthorized)",
    "denied the request",
];

/// Characters of a container's last words that are told.
const LAST_WORDS_MAX: usize = 300;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Kubernetes {
    ways: Ways,
    /// The options that say which cluster, and which namespace of it.
    place: Vec<String>,
}

impl Kubernetes {
    /// In the place of a lease; where that is empty, in that of the user's configuration.
    pub(super) fn new(ways: Ways, place: &str) -> Kubernetes {
        let options = |(namespace, context): (&str, &str)| {
            vec![format!("--namespace={namespace}"), format!("--context={context}")]
        };
        Kubernetes { ways, place: place.split_once(BETWEEN).map(options).unwrap_or_default() }
    }

    fn kubectl<'a>(&'a self, words: impl IntoIterator<Item = &'a str>) -> Call {
        let place = self.place.iter().map(String::as_str);
        Call::new("kubectl", [REQUEST_TIMEOUT].into_iter().chain(place).chain(words))
    }

    /// Creates an object; what `kubectl` prints of it.
    fn create(&self, object: &Value, more: &[&str]) -> Result<String, ProgramError> {
        // The server checks it, too: the client would fetch the schema of all kinds for that.
        let words = ["create", "--validate=false", "-f", "-"];
        self.kubectl(words.into_iter().chain(more.iter().copied())).reading(object.to_string()).answer()
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
        let made = match self.create(&pod_of(request, way), &["-o", UID]) {
            // It was asked for before.
            Err(error) if is_there(&error) => self.kubectl(["get", "pod", &name, "-o", UID]).answer(),
            made => made,
        };
        let uid = made.map_err(|error| of_kubectl(&error))?;
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '-';
        if uid.is_empty() || !uid.chars().all(is_part) {
            return Err(unanswered("`kubectl` does not print the uid of the pod that it created".into()));
        }
        match self.create(&secret_of(request, &uid), &[]) {
            Ok(_) => Ok(()),
            Err(error) if is_there(&error) => Ok(()),
            Err(error) => {
                let error = of_kubectl(&error);
                if matches!(error, ProviderError::Refused { .. }) {
                    // The pod alone would wait for ever. Where it cannot be removed, it is not known to be refused.
                    self.release(&request.tag)?;
                }
                Err(error)
            }
        }
    }

    fn list(&mut self, lease: &str) -> Result<Vec<Machine>, ProviderError> {
        let selector = format!("{LEASE_LABEL}={lease}");
        let text = self.kubectl(["get", "pods", "-l", &selector, "-o", "json"]).answer();
        let machines = pods(&text.map_err(|error| unanswered(plain(&error)))?).map_err(unanswered)?;
        for machine in machines.iter().filter(|machine| matches!(machine.phase, Phase::Ended { .. })) {
            // What is over costs nothing, but its objects would stay for ever. The next look tries again.
            let _ = self.release(&machine.tag);
        }
        Ok(machines.into_iter().filter(|machine| machine.tag.lease == lease).collect())
    }

    fn release(&mut self, tag: &Tag) -> Result<(), ProviderError> {
        let name = Kubernetes::name_of(tag);
        let words = ["delete", "pod,secret", &name, "--ignore-not-found", "--wait=false", RELEASED];
        let asked = self.kubectl(words).answer();
        asked.map(drop).map_err(|error| unanswered(plain(&error)))
    }
}

/// The namespace and the context that `kubectl` would use now, as `train of gke_project_zone_cluster`: users switch
/// between clusters while a run goes on. Empty where it has no context, as in a pod of the cluster itself.
pub(super) fn place() -> String {
    let Ok(context) = Call::new("kubectl", ["config", "current-context"]).answer() else {
        return String::new();
    };
    let words = ["config", "view", "--minify", "--output", "jsonpath={..namespace}"];
    let namespace = Call::new("kubectl", words).answer().unwrap_or_default();
    let namespace = if namespace.trim().is_empty() { "default" } else { namespace.trim() };
    format!("{namespace}{BETWEEN}{}", context.trim())
}

/// The pod of a machine.
fn pod_of(request: &Request, way: &Obtain) -> Value {
    let name = Kubernetes::name_of(&request.tag);
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
        // The pod goes once it is over: what it said last is to be told before.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels_of(&request.tag) },
        "spec": {
            "restartPolicy": "Never",
            // A worker asks nothing of the cluster.
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": GRACE_S,
            "nodeSelector": way.labels_of(request.pool.market),
            "tolerations": tolerations,
            "containers": [container],
        },
    })
}

/// The variables of a machine's pod. They belong to the pod, so that the cluster removes them with it, also where
/// others delete it; the container does not start before they are there.
fn secret_of(request: &Request, pod_uid: &str) -> Value {
    let name = Kubernetes::name_of(&request.tag);
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod_uid });
    let metadata = json!({ "name": name, "labels": labels_of(&request.tag), "ownerReferences": [owner] });
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": request.secrets })
}

fn labels_of(tag: &Tag) -> Value {
    json!({ LEASE_LABEL: tag.lease, TAG_LABEL: tag.to_string() })
}

fn is_there(error: &ProgramError) -> bool {
    matches!(error, ProgramError::Refused { why, .. } if why.contains("(AlreadyExists)"))
}

fn unanswered(why: String) -> ProviderError {
    ProviderError::Unanswered { provider: NAME, why }
}

/// What a failure of `kubectl` says. Only an answer of the server is a refusal: a connection that breaks, or a server
/// that is starting or overloaded, may have made the pod.
fn of_kubectl(error: &ProgramError) -> ProviderError {
    let is_refusal = match error {
        ProgramError::Missing { .. } => true,
        ProgramError::Refused { why, .. } => REFUSALS.iter().any(|words| why.contains(words)),
        ProgramError::Late { .. } | ProgramError::Unreachable { .. } | ProgramError::Garbled { .. } => false,
    };
    let why = plain(error);
    match is_refusal {
        true => ProviderError::Refused { provider: NAME, why },
        false => unanswered(why),
    }
}

/// What is to be told of a failure: without the lines of `kubectl`'s own log, which have a date in front
/// (`E1130 19:29:14.86 12841 memcache.go:265] …`).
fn plain(error: &ProgramError) -> String {
    let kept = |why: &str| {
        let is_log = |line: &&str| {
            let mut characters = line.chars();
            characters.next().is_some_and(|level| "EWIF".contains(level))
                && characters.take(4).filter(char::is_ascii_digit).count() == 4
        };
        let lines: Vec<&str> = why.split("; ").filter(|line| !is_log(line)).collect();
        if lines.is_empty() { why.to_owned() } else { lines.join("; ") }
    };
    match error {
        ProgramError::Refused { program, why } => {
            ProgramError::Refused { program, why: kept(why) }.to_string()
        }
        ProgramError::Unreachable { program, why } => {
            ProgramError::Unreachable { program, why: kept(why) }.to_string()
        }
        other => other.to_string(),
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
                None => joined([text(&container["reason"]), text(&container["message"])]),
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
            let container = &status["containerStatuses"][0]["state"]["terminated"];
            let code = container["exitCode"].as_i64().filter(|code| *code != 0);
            let code = code.map_or_else(String::new, |code| format!("exit code {code}"));
            let how = format!("its pod has {}", end.to_lowercase());
            let said = text(&container["message"]);
            let words =
                joined([how, text(&status["reason"]), text(&status["message"]), code, last_words(&said)]);
            Ok(Phase::Ended { how: words })
        }
        Some(other) => Err(format!("a pod has the phase `{}`", other.escape_debug())),
    }
}

/// Those of the parts that say something.
fn joined<const N: usize>(parts: [String; N]) -> String {
    let said: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    said.join(": ")
}

/// The last line of what a container has said, no longer than makes sense in a sentence.
fn last_words(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(LAST_WORDS_MAX).collect()
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
