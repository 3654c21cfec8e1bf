//! What the author of an `ElasticJob` writes. The comments on fields are what `kubectl explain` prints.

use std::ops::RangeInclusive;

use bellwether_core::job::WorkerRange;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::backend::{Backend, Hints, Rendezvous, Work};
use super::status::ElasticJobStatus;
use super::{MANAGER, Sizes, Template, embed};

/// What is trained, by which pods, and within which limits.
///
/// It is not in the category `all`: `kubectl delete all --all` empties many a namespace, and days of training are more
/// than most people mean by it.
// Columns share types.
#[expect(clippy::duplicated_attributes)]
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "train.bellwether.dev",
    version = "v1alpha1",
    kind = "ElasticJob",
    plural = "elasticjobs",
    shortname = "ej",
    category = "bellwether",
    namespaced,
    doc = "A training job whose number of workers changes while it runs.",
    status = "ElasticJobStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.elastic.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Workers",
        type_ = "string",
        json_path = ".status.workers",
        description = "Workers that are ready, that the job should have, and that it may have at most"
    ),
    printcolumn(
        name = "Progress%",
        type_ = "integer",
        json_path = ".status.training.progressPercent",
        description = "Committed steps in percent of all"
    ),
    printcolumn(
        name = "Throughput",
        type_ = "string",
        json_path = ".status.training.samplesPerSecond",
        description = "Measured samples per second"
    ),
    printcolumn(
        name = "Predicted",
        type_ = "string",
        json_path = ".status.training.predictedSamplesPerSecond",
        description = "Samples per second that were predicted for this number of workers"
    ),
    // A column of type `date` would print a time to come as `<invalid>`.
    printcolumn(
        name = "Ends",
        type_ = "string",
        json_path = ".status.training.expectedEnd",
        description = "When the job will be done if it keeps its workers"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Queue", type_ = "string", json_path = ".spec.queue", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.allocation.reason",
        description = "Why the job has the workers that it has",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct ElasticJobSpec {
    /// The job file as JSON: the model, the data, the batch, the optimizer, when checkpoints are written. Only for the
    /// backend `native`, which needs it. `bellwether schema job` prints its schema. Paths in it are absolute, and those
    /// of the pods. Without `name` it has the object's, and `spec.elastic` overrules its `workers`. It cannot be
    /// changed once the job was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embed::job")]
    pub job: Option<Value>,
    /// What there is to do, for backends other than `native`. It cannot be changed once the job was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// How the workers find each other, and what they run.
    pub rendezvous: Rendezvous,
    /// How many workers the job may have, and how their number changes.
    pub elastic: Elastic,
    /// The pods that train.
    pub worker: Worker,
    /// The pods of parameter servers, where the job has any. Without a template they are like the workers' pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<PodRole>,
    /// The pod that coordinates a native job and keeps its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<PodRole>,
    /// Where a native job's checkpoints are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// A profile that was measured before, by `bellwether profile`, so that speeds are known from the start. It cannot
    /// be changed once the job was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_ref: Option<ProfileRef>,
    /// What the scheduler may assume until it has measured.
    pub hints: Hints,
    /// Name of the `Queue` that the job waits in; `default` without it. It cannot be changed once the job was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub queue: Option<String>,
    /// The job's share against those of the jobs beside it.
    #[schemars(extend("minimum" = 0, "exclusiveMinimum" = true, "maximum" = 1_000_000))]
    pub weight: f64,
    /// Seconds from the job's creation within which it should be done. Policies may prefer the job for it; nothing ends
    /// the job when they have passed. It cannot be changed once the job was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub deadline_seconds: Option<u64>,
    /// Seconds for which the job may run, pauses left out, after which it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<u64>,
    /// Seconds after its end after which the job is deleted with its pods; it is kept without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<u64>,
    /// Whether the job waits, without pods and with its checkpoint, until this is false.
    pub suspend: bool,
    /// The controller that looks after the job. This operator leaves jobs alone where it is not its own name. It cannot
    /// be changed once the job was accepted.
    #[schemars(
        length(min = 3, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-a-zA-Z0-9._/]+$")
    )]
    pub managed_by: String,
    /// Priority class of the job's pods, where their template names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
    /// When the job has failed.
    pub failure_policy: FailurePolicy,
}

impl Default for ElasticJobSpec {
    fn default() -> Self {
        ElasticJobSpec {
            job: None,
            work: None,
            rendezvous: Rendezvous::default(),
            elastic: Elastic::default(),
            worker: Worker::default(),
            server: None,
            coordinator: None,
            checkpoint: None,
            profile_ref: None,
            hints: Hints::default(),
            queue: None,
            weight: 1.0,
            deadline_seconds: None,
            active_deadline_seconds: None,
            ttl_seconds_after_finished: None,
            suspend: false,
            managed_by: MANAGER.to_owned(),
            priority_class_name: None,
            failure_policy: FailurePolicy::default(),
        }
    }
}

impl ElasticJobSpec {
    /// Workers in a pod.
    pub(crate) fn slots_per_pod(&self) -> u32 {
        let by_gpus = || self.worker.template.as_ref().map_or(1, |template| template.gpus().clamp(1, 64));
        self.worker.slots_per_pod.unwrap_or_else(by_gpus).max(1)
    }

    /// Whether this operator looks after the job.
    pub fn is_managed_here(&self) -> bool {
        self.managed_by == MANAGER
    }

    /// Whether it is a native job.
    pub fn is_native(&self) -> bool {
        self.rendezvous.backend == Backend::Native
    }
}

/// Who decides how many workers a job has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Policy {
    /// The scheduler does.
    #[default]
    Auto,
    /// `replicas` does: a person, or an autoscaler.
    Manual,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// How many workers a job may have. The limits may be changed while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Elastic {
    /// Fewest worker pods with which the job trains; with fewer it waits and keeps its checkpoint. Without it the
    /// fewest workers of the job file, or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub min_replicas: Option<u32>,
    /// Most worker pods that the job may have. Without it the most workers of the job file, or as many as
    /// `minReplicas`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub max_replicas: Option<u32>,
    /// Worker pods that the job should have, where `policy` is `Manual`. `kubectl scale` and autoscalers set it. A
    /// number that is not an allowed size means the next smaller one that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub replicas: Option<u32>,
    /// Who decides how many workers the job has: `Auto` (the scheduler) or `Manual` (`replicas`).
    pub policy: Policy,
    /// Difference between two allowed sizes, from `minReplicas` on; 1 without it. Not together with `discreteSizes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4096))]
    pub step: Option<u32>,
    /// The allowed numbers of worker pods, rising, within the limits. All within the limits are allowed without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), inner(range(min = 1, max = 4096)))]
    pub discrete_sizes: Option<Vec<u32>>,
    /// Seconds for which the job keeps its number of workers before the scheduler may give it more; resizes cost no
    /// steps, so it need not wait.
    #[schemars(range(max = 86_400))]
    pub scale_up_cooldown_seconds: u32,
    /// Seconds that a pod has from the notice that it has to go until it is killed: to write a checkpoint and to leave.
    #[schemars(range(max = 86_400))]
    pub scale_down_grace_seconds: u32,
    /// Seconds within which `minReplicas` pods have to be ready; otherwise the job gives its nodes back and waits.
    #[schemars(range(min = 1, max = 86_400))]
    pub start_timeout_seconds: u32,
    /// Whether workers may be taken away from the job for the sake of others.
    pub preemptible: bool,
}

impl Default for Elastic {
    fn default() -> Self {
        Elastic {
            min_replicas: None,
            max_replicas: None,
            replicas: None,
            policy: Policy::Auto,
            step: None,
            discrete_sizes: None,
            scale_up_cooldown_seconds: 0,
            scale_down_grace_seconds: 120,
            start_timeout_seconds: 300,
            preemptible: true,
        }
    }
}

impl Elastic {
    /// The fewest and the most worker pods; where the object does not say them, as the job file does.
    pub(crate) fn bounds(&self, of_job: Option<WorkerRange>) -> (u32, u32) {
        let min = self.min_replicas.or(of_job.map(|of_job| of_job.min)).unwrap_or(1);
        (min, self.max_replicas.or(of_job.map(|of_job| of_job.max)).unwrap_or(min))
    }

    /// The allowed numbers of worker pods within these bounds.
    pub(crate) fn sizes(&self, of_job: Option<WorkerRange>) -> Sizes {
        let (min, max) = self.bounds(of_job);
        Sizes::new(min, max, self.step.unwrap_or(1), self.discrete_sizes.clone().unwrap_or_default())
    }

    /// The numbers of worker pods that the job may have now: all, or the one that someone chose.
    pub(crate) fn pods(&self, sizes: &Sizes) -> RangeInclusive<u32> {
        match (self.policy, self.replicas) {
            (Policy::Manual, Some(replicas)) => {
                let size = sizes.at_most(replicas).unwrap_or(sizes.min());
                size..=size
            }
            _ => sizes.min()..=sizes.max(),
        }
    }
}

/// The worker pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Worker {
    /// What the pods are like, as in a Deployment: labels, resources, tolerations, volumes and so on stay as they are.
    /// The first container trains. A native job needs no template, and no image: it gets Bellwether's. Other backends
    /// need one whose first container has a `command`. Changes are for pods that are created after them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// Workers in a pod, each of them a slot of its node. Without it the number of GPUs of the first container, or 1.
    /// It cannot be changed once the job was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub slots_per_pod: Option<u32>,
}

/// The pods of another role.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PodRole {
    /// What the pods are like, as for `worker`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
}

/// Where a native job's checkpoints are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Checkpoint {
    /// Name of a PersistentVolumeClaim of the same namespace for the folder of the job's run. Without one the folder
    /// lasts as long as the coordinator's pod; a worker that lives on brings it back. It cannot be changed once the job
    /// was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub volume_claim: Option<String>,
    /// Folder in that volume. It cannot be changed once the job was accepted.
    #[schemars(length(max = 1024), regex(pattern = r"^(/?[A-Za-z0-9_-][A-Za-z0-9._-]*)*/?$"))]
    pub path: String,
    /// An object store, as `s3://BUCKET/PREFIX`, or a folder that all worker pods share, as `file:///FOLDER`: each
    /// worker writes its part of the state there. It cannot be changed once the job was accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub url: Option<String>,
    /// A Secret of the same namespace whose keys become environment variables of the pods: what the object store asks
    /// for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Seconds between two checkpoints; without it what the job file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 31_536_000))]
    pub interval_seconds: Option<u32>,
    /// Whether a checkpoint is written before workers are taken away.
    pub on_preempt: bool,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Checkpoint {
            volume_claim: None,
            path: String::new(),
            url: None,
            secret_ref: None,
            interval_seconds: None,
            on_preempt: true,
        }
    }
}

/// A Secret of the job's namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A key of a ConfigMap of the job's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key that holds the profile as JSON.
    #[serde(default = "profile_key")]
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// The key of a ConfigMap that holds a profile, unless another one is named.
pub const PROFILE_KEY: &str = "profile.json";

fn profile_key() -> String {
    PROFILE_KEY.to_owned()
}

/// When a job has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailurePolicy {
    /// Crashes that are made good by another pod; the next one ends the job. Preemptions, resizes and lost nodes do not
    /// count.
    #[schemars(range(max = 10_000))]
    pub max_restarts: u32,
    /// What follows when a pod fails; the first rule that fits holds. Where none does, pods that were killed from
    /// outside or whose node is gone are replaced without being counted, and others are counted, also those that had
    /// too little memory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub rules: Vec<FailureRule>,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        FailurePolicy { max_restarts: 10, rules: Vec::new() }
    }
}

/// What follows when a pod fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureRule {
    /// The rule fits a first container that ended with one of these codes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), inner(range(min = 1, max = 255)))]
    pub on_exit_codes: Vec<u32>,
    /// The rule fits a pod whose node is gone, or that was evicted.
    pub node_gone: bool,
    /// What follows. A rule with neither of the above fits every failure.
    pub action: Action,
}

/// What follows when a pod fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// Another pod takes its place, and nothing is counted.
    Ignore,
    /// The job has failed.
    FailJob,
    /// Another pod takes its place, and a crash is counted.
    #[default]
    ReplacePod,
    /// A word that this version does not know.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl FailureRule {
    /// Whether it fits every failure.
    pub(super) fn fits_all(&self) -> bool {
        self.on_exit_codes.is_empty() && !self.node_gone
    }
}

impl FailurePolicy {
    /// What follows when a pod fails: with an exit code, if its first container ended with one, and whether its node is
    /// gone or it was evicted. `None` where no rule fits.
    ///
    /// ```
    /// use bellwether_operator::crd::{Action, FailurePolicy};
    /// let policy: FailurePolicy = serde_json::from_str(
    ///     r#"{"rules": [{"onExitCodes": [42], "action": "FailJob"}, {"nodeGone": true, "action": "Ignore"}]}"#,
    /// )?;
    /// assert_eq!(policy.rule(Some(42), false), Some(Action::FailJob));
    /// assert_eq!((policy.rule(None, true), policy.rule(Some(1), false)), (Some(Action::Ignore), None));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn rule(&self, exit_code: Option<i32>, is_node_gone: bool) -> Option<Action> {
        let code = exit_code.and_then(|code| u32::try_from(code).ok());
        let fits = |rule: &&FailureRule| {
            rule.fits_all()
                || (rule.node_gone && is_node_gone)
                || code.is_some_and(|code| rule.on_exit_codes.contains(&code))
        };
        self.rules.iter().find(fits).map(|rule| rule.action)
    }
}
