//! The objects that the operator creates for a job: pods, and the secret with its token.
//!
//! A pod is the user's template, as it stands, with what a worker needs to find its coordinator added to it. Nothing
//! that the user wrote is changed but what would break the job: pods are never restarted in place, and get no access
//! to Kubernetes' API.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::labels;
use crate::reconcile::{Backend, NewPod, Role};

/// Where a pod finds the job's token and its job file.
pub const SECRETS: &str = "/var/run/bellwether";
/// Where a coordinator keeps the run's folder, and a worker where its coordinator is.
pub const STATE: &str = "/var/lib/bellwether";
/// Where a pod of a user's image finds the operator's program.
const TOOLS: &str = "/bellwether";
/// Where programs keep what is for a moment.
const TEMPORARY: &str = "/tmp";
/// The operator's program in its own image.
const PROGRAM: &str = "/usr/bin/bellwether-operator";
/// Volumes that are added.
const SECRETS_VOLUME: &str = "bellwether-secrets";
const STATE_VOLUME: &str = "bellwether-state";
const TOOLS_VOLUME: &str = "bellwether-tools";
const TEMPORARY_VOLUME: &str = "bellwether-temporary";
/// The longest part of a job's name in the names of its objects.
const NAME_MAX: usize = 40;

/// What all pods of a job have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Name of the job.
    pub job: String,
    /// Its identifier.
    pub uid: String,
    /// Name of its run.
    pub run: String,
    /// How its pods work together.
    pub backend: Backend,
    /// `native`, `torchrun` or `tensorflow`.
    pub rendezvous: String,
    /// The image with Bellwether's programs.
    pub image: String,
    /// Where pods reach the operator.
    pub operator_url: String,
    /// The port of the coordinator, or of the first pod of a group.
    pub port: u16,
    /// Fewest and most workers.
    pub workers: (u32, u32),
    /// Seconds from the notice to the end of a pod.
    pub grace_s: u32,
    /// The user's templates, by what pods do; a role without one gets the image.
    pub templates: BTreeMap<Role, Value>,
    /// The claim on which the coordinator keeps the run's folder, and the path in it.
    pub volume: Option<(String, String)>,
    /// What finds a group's throughput in its output.
    pub pattern: Option<String>,
    /// The priority class of pods whose template names none.
    pub priority_class: Option<String>,
    /// The secret with what the object store of the checkpoints asks for, as environment variables.
    pub environment_secret: Option<String>,
    /// Bytes of memory that a worker was measured to need.
    pub memory_bytes: Option<u64>,
}

/// The beginning of the names of a job's objects.
pub fn prefix(job: &str) -> &str {
    job.get(..NAME_MAX).unwrap_or(job).trim_end_matches('-')
}

/// The name of a pod: the same for the same thing asked twice.
pub fn pod_name(job: &str, pod: &NewPod) -> String {
    let (prefix, generation, rank) = (prefix(job), pod.generation, pod.rank);
    match pod.role {
        Role::Worker => format!("{prefix}-{generation}-{rank}"),
        Role::Server => format!("{prefix}-{generation}-server-{rank}"),
        Role::Coordinator => format!("{prefix}-{generation}-lead-{rank}"),
    }
}

/// The name of the secret with a job's token: another one for another job of the same name.
pub fn secret_name(job: &str, uid: &str) -> String {
    format!("{}-bellwether-{}", prefix(job), uid.get(..8).unwrap_or(uid))
}

fn object<'v>(value: &'v mut Value, key: &str) -> &'v mut Map<String, Value> {
    if !value[key].is_object() {
        value[key] = json!({});
    }
    value[key].as_object_mut().expect("it was made an object")
}

fn list<'v>(value: &'v mut Value, key: &str) -> &'v mut Vec<Value> {
    if !value[key].is_array() {
        value[key] = json!([]);
    }
    value[key].as_array_mut().expect("it was made a list")
}

/// Sets what the user has not set.
fn default(value: &mut Value, key: &str, to: Value) {
    if value[key].is_null() {
        value[key] = to;
    }
}

impl Template {
    /// The manifest of a pod.
    pub fn pod(&self, new: &NewPod, namespace: &str, owner: Value) -> Value {
        let template = self.templates.get(&new.role).cloned().unwrap_or_else(|| json!({}));
        let (metadata, spec) = (&template["metadata"], &template["spec"]);
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        if !pod["spec"].is_object() {
            pod["spec"] = json!({});
        }
        self.name(&mut pod, new, namespace, owner);
        let spec = &mut pod["spec"];
        spec["restartPolicy"] = json!("Never");
        spec["automountServiceAccountToken"] = json!(false);
        default(spec, "terminationGracePeriodSeconds", json!(self.grace_s));
        if let Some(class) = &self.priority_class {
            default(spec, "priorityClassName", json!(class));
        }
        if let Some(node) = &new.node {
            pin(spec, node);
        }
        self.volumes(spec, new.role);
        let is_own_image = self.container(spec, new);
        if is_own_image {
            add_temporary_folder(spec);
        } else {
            self.inject(spec);
        }
        pod
    }

    fn name(&self, pod: &mut Value, new: &NewPod, namespace: &str, owner: Value) {
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(pod_name(&self.job, new));
        metadata["namespace"] = json!(namespace);
        metadata["ownerReferences"] = json!([owner]);
        let role = new.role.label();
        let labels = object(metadata, "labels");
        for (key, value) in [
            (labels::JOB, self.job.clone()),
            (labels::JOB_UID, self.uid.clone()),
            (labels::ALLOCATION, new.generation.to_string()),
            (labels::RANK, new.rank.to_string()),
            (labels::ROLE, role.to_owned()),
            ("app.kubernetes.io/managed-by", "bellwether-operator".to_owned()),
        ] {
            labels.insert(key.into(), json!(value));
        }
        for (key, value) in [
            ("app.kubernetes.io/name", "bellwether"),
            ("app.kubernetes.io/instance", &self.job),
            ("app.kubernetes.io/component", role),
        ] {
            labels.entry(key).or_insert_with(|| json!(value));
        }
        let container = pod["spec"]["containers"][0]["name"].as_str().unwrap_or(role).to_owned();
        let annotations = object(&mut pod["metadata"], "annotations");
        if let Some(node) = &new.node {
            annotations.insert(labels::NODE.into(), json!(node));
        }
        // By which `kubectl logs` knows it, too.
        annotations.entry(labels::CONTAINER).or_insert_with(|| json!(container));
    }

    fn volumes(&self, spec: &mut Value, role: Role) {
        let secret = secret_name(&self.job, &self.uid);
        // Workers keep there where their coordinator is.
        let state = match self.volume.as_ref().filter(|_| role == Role::Coordinator) {
            Some((claim, _)) => json!({"name": STATE_VOLUME, "persistentVolumeClaim": {"claimName": claim}}),
            None => json!({"name": STATE_VOLUME, "emptyDir": {}}),
        };
        // The files are root's, and only containers that mount the secret see them: any user of this one may read it.
        let secret = json!({"name": SECRETS_VOLUME, "secret": {"secretName": secret, "defaultMode": 0o444}});
        list(spec, "volumes").extend([secret, state]);
    }

    /// Fills the first container in; says whether it is of the operator's own image.
    fn container(&self, spec: &mut Value, new: &NewPod) -> bool {
        let containers = list(spec, "containers");
        if containers.is_empty() {
            containers.push(json!({}));
        }
        let container = &mut containers[0];
        default(container, "name", json!(new.role.label()));
        let is_own_image = container["image"].is_null() || container["image"] == json!(self.image);
        default(container, "image", json!(self.image));
        default(container, "terminationMessagePolicy", json!("FallbackToLogsOnError"));
        let variables = self.variables(new);
        list(container, "env").extend(variables);
        if let (Some(secret), true) = (&self.environment_secret, new.role != Role::Server) {
            list(container, "envFrom").push(json!({"secretRef": {"name": secret}}));
        }
        let mut mounts = vec![json!({"name": SECRETS_VOLUME, "mountPath": SECRETS, "readOnly": true})];
        let mut state = json!({"name": STATE_VOLUME, "mountPath": STATE});
        let claim = self.volume.as_ref().filter(|_| new.role == Role::Coordinator);
        if let Some((_, path)) = claim.filter(|(_, path)| !path.is_empty()) {
            state["subPath"] = json!(path.trim_matches('/'));
        }
        mounts.push(state);
        if !is_own_image {
            mounts.push(json!({"name": TOOLS_VOLUME, "mountPath": TOOLS}));
        }
        list(container, "volumeMounts").extend(mounts);
        self.resources(container, new.role);
        let words = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let own: Vec<Value> = [words(&container["command"]), words(&container["args"])].concat();
        container["command"] = json!(self.command(new.role, is_own_image));
        container["args"] = match self.backend {
            // What a native job's workers run is in its job file.
            Backend::Native => json!([]),
            Backend::Group => json!([vec![json!("--")], own].concat()),
        };
        is_own_image
    }

    fn command(&self, role: Role, is_own_image: bool) -> Vec<String> {
        let program = if is_own_image { PROGRAM.to_owned() } else { format!("{TOOLS}/bellwether-operator") };
        let what = match (self.backend, role) {
            (Backend::Group, _) => "group",
            (Backend::Native, role) => role.label(),
        };
        let mut words = vec![program, "pod".into(), what.into()];
        if self.backend == Backend::Group {
            words.push(format!("--backend={}", self.rendezvous));
            words.extend(self.pattern.iter().map(|pattern| format!("--pattern={pattern}")));
        }
        words
    }

    fn variables(&self, new: &NewPod) -> Vec<Value> {
        let given = |name: &str, value: String| json!({"name": name, "value": value});
        let field =
            |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
        let (min, max) = self.workers;
        vec![
            given("BELLWETHER_OPERATOR_URL", self.operator_url.clone()),
            given("BELLWETHER_JOB_UID", self.uid.clone()),
            given("BELLWETHER_RUN", self.run.clone()),
            given("BELLWETHER_SECRETS", SECRETS.into()),
            given("BELLWETHER_STATE", STATE.into()),
            given("BELLWETHER_PORT", self.port.to_string()),
            given("BELLWETHER_WORKERS", format!("{min}..{max}")),
            given("BELLWETHER_GRACE_S", self.grace_s.to_string()),
            given("BELLWETHER_GENERATION", new.generation.to_string()),
            given("BELLWETHER_RANK", new.rank.to_string()),
            field("BELLWETHER_POD", "metadata.name"),
            field("BELLWETHER_POD_IP", "status.podIP"),
        ]
    }

    fn resources(&self, container: &mut Value, role: Role) {
        let resources = object(container, "resources");
        if role == Role::Coordinator && resources.is_empty() {
            resources.insert("requests".into(), json!({"cpu": "50m", "memory": "64Mi"}));
        }
        let Some(bytes) = self.memory_bytes.filter(|_| role == Role::Worker) else { return };
        let has = |part: &str| resources.get(part).is_some_and(|part| !part["memory"].is_null());
        if !has("requests") && !has("limits") {
            let requests = resources.entry("requests").or_insert_with(|| json!({}));
            requests["memory"] = json!(bytes.to_string());
        }
    }

    /// Brings the operator's program into a pod of a user's image.
    fn inject(&self, spec: &mut Value) {
        list(spec, "volumes").push(json!({"name": TOOLS_VOLUME, "emptyDir": {}}));
        let init = json!({
            "name": "bellwether-tools",
            "image": self.image,
            "command": [PROGRAM, "pod", "install", TOOLS],
            "volumeMounts": [{"name": TOOLS_VOLUME, "mountPath": TOOLS}],
            // What a namespace with the standard `restricted` asks of each container.
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        });
        list(spec, "initContainers").push(init);
    }
}

/// The operator's image has no folder that its user may write to. The user's template may bring one.
fn add_temporary_folder(spec: &mut Value) {
    let mounts = list(&mut spec["containers"][0], "volumeMounts");
    if mounts.iter().any(|mount| mount["mountPath"] == TEMPORARY) {
        return;
    }
    mounts.push(json!({"name": TEMPORARY_VOLUME, "mountPath": TEMPORARY}));
    list(spec, "volumes").push(json!({"name": TEMPORARY_VOLUME, "emptyDir": {}}));
}

/// Adds to every term of the user's node affinity that the pod has to be on this node.
fn pin(spec: &mut Value, node: &str) {
    let wish = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let affinity = object(spec, "affinity");
    let node_affinity = affinity.entry("nodeAffinity").or_insert_with(|| json!({}));
    let required = object(node_affinity, "requiredDuringSchedulingIgnoredDuringExecution");
    let terms = required.entry("nodeSelectorTerms").or_insert_with(|| json!([]));
    let terms = match terms.as_array_mut() {
        Some(terms) if !terms.is_empty() => terms,
        _ => {
            *terms = json!([{}]);
            terms.as_array_mut().expect("it was made a list")
        }
    };
    for term in terms {
        list(term, "matchFields").push(wish.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Template {
        Template {
            job: "digits".into(),
            uid: "u-1".into(),
            run: "default.digits".into(),
            backend: Backend::Native,
            rendezvous: "native".into(),
            image: "bellwether:1".into(),
            operator_url: "http://operator:8080".into(),
            port: 29500,
            workers: (1, 4),
            grace_s: 30,
            templates: BTreeMap::new(),
            volume: None,
            pattern: None,
            priority_class: None,
            environment_secret: None,
            memory_bytes: None,
        }
    }

    fn worker(node: Option<&str>) -> NewPod {
        NewPod { role: Role::Worker, rank: 2, generation: 7, node: node.map(Into::into) }
    }

    #[test]
    fn a_job_without_templates_gets_pods_of_the_operators_image() {
        let pod = template().pod(&worker(Some("n1")), "default", json!({"uid": "u-1"}));
        assert_eq!(pod["metadata"]["name"], "digits-7-2");
        assert_eq!(pod["spec"]["containers"][0]["image"], "bellwether:1");
        assert_eq!(pod["spec"]["containers"][0]["command"], json!([PROGRAM, "pod", "worker"]));
        assert_eq!(pod["spec"]["initContainers"], Value::Null);
        let temporary = json!({"name": TEMPORARY_VOLUME, "emptyDir": {}});
        assert!(pod["spec"]["volumes"].as_array().unwrap().contains(&temporary), "a folder to write to");
        let terms =
            &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(terms["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["n1"]));
    }

    #[test]
    fn what_the_user_wrote_stays() {
        let term = |name: &str| json!({"matchExpressions": [{"key": name, "operator": "Exists"}]});
        let own = json!({
            "metadata": {"labels": {"team": "a"}, "annotations": {"x": "y"}},
            "spec": {
                "serviceAccountName": "trainer",
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    {"nodeSelectorTerms": [term("a"), term("b")]}}},
                "containers": [{"name": "main", "image": "user:1", "env": [{"name": "A", "value": "1"}],
                    "resources": {"limits": {"nvidia.com/gpu": 1}}}, {"name": "side", "image": "side:1"}],
                "volumes": [{"name": "data", "emptyDir": {}}],
                "unknownToUs": {"kept": true},
            },
        });
        let mut template = template();
        template.templates.insert(Role::Worker, own.clone());
        template.memory_bytes = Some(1 << 30);
        let pod = template.pod(&worker(Some("n1")), "default", json!({}));
        assert_eq!(pod["metadata"]["labels"]["team"], "a");
        assert_eq!(pod["metadata"]["annotations"]["x"], "y");
        for key in ["serviceAccountName", "tolerations", "unknownToUs"] {
            assert_eq!(pod["spec"][key], own["spec"][key], "{key}");
        }
        assert_eq!(pod["spec"]["containers"][1], own["spec"]["containers"][1]);
        assert_eq!(pod["spec"]["containers"][0]["env"][0], json!({"name": "A", "value": "1"}));
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(resources["limits"], json!({"nvidia.com/gpu": 1}));
        assert_eq!(resources["requests"]["memory"], "1073741824", "as it was measured");
        let terms =
            &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            let found = &terms["nodeSelectorTerms"][index];
            assert_eq!(found["matchExpressions"], term(name)["matchExpressions"]);
            assert_eq!(found["matchFields"][0]["values"], json!(["n1"]), "in each term");
        }
        assert_eq!(pod["spec"]["initContainers"][0]["image"], "bellwether:1", "the program comes in");
    }

    #[test]
    fn names_of_objects_stay_within_bounds() {
        let job = "a".repeat(39) + "-" + &"b".repeat(12);
        let name =
            pod_name(&job, &NewPod { role: Role::Coordinator, rank: 9, generation: u64::MAX, node: None });
        assert!(name.len() <= 40 + 1 + 20 + 7 && !name.contains("--"), "{name}");
    }
}
