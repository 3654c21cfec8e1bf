//! Queues: what each is guaranteed, what it may borrow, and whose jobs may wait in it.

use std::collections::BTreeMap;

use bellwether_core::InputError;
use bellwether_core::parse::did_you_mean;
use bellwether_core::queue::{DEFAULT_QUEUE, Measure, Quantity, QueueEntry, QueueTree, QueuesFile};
use bellwether_core::units::Seconds;
use kube::{CustomResource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::Condition;
use super::{ElasticJob, FieldError};

/// After this time a device-second that a queue had counts half, as in a file of queues that does not say it.
const HALF_LIFE_S: f64 = 86_400.0;

/// The key that means every type of device.
const ALL: &str = "all";

/// A queue of jobs, with a share of the cluster.
// Columns share types.
#[expect(clippy::duplicated_attributes)]
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "train.bellwether.dev",
    version = "v1alpha1",
    kind = "Queue",
    plural = "queues",
    shortname = "ejq",
    category = "bellwether",
    doc = "A queue of elastic jobs, with a guaranteed share of the cluster. It may borrow what others do not use.",
    status = "QueueStatus",
    derive = "PartialEq",
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parent"),
    printcolumn(name = "Weight", type_ = "number", json_path = ".spec.weight"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status"
    ),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.running"),
    printcolumn(name = "Waiting", type_ = "integer", json_path = ".status.waiting"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSpec {
    /// Name of the queue above it; directly below the cluster without it. It cannot be changed: jobs wait in the queue
    /// by its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub parent: Option<String>,
    /// Its part of the surplus, against those of the queues beside it.
    #[schemars(extend("minimum" = 0, "exclusiveMinimum" = true, "maximum" = 1_000_000))]
    pub weight: f64,
    /// What it has as soon as its jobs can use it, by type of device: a number of devices, or a percentage of the
    /// cluster's (or of what the queue above it is guaranteed), as `v100: 8` or `v100: 50%`. The key `all` means every
    /// type, and stands alone. Nothing without it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "devices")]
    pub guaranteed: BTreeMap<String, Value>,
    /// The most that its jobs may hold with what they borrow, in the same form; percentages are of the whole cluster.
    /// Not limited without it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "devices")]
    pub limit: BTreeMap<String, Value>,
    /// Namespaces whose jobs may wait in it and in the queues below it; all without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63)))]
    pub namespaces: Option<Vec<String>>,
}

impl Default for QueueSpec {
    fn default() -> Self {
        QueueSpec {
            parent: None,
            weight: 1.0,
            guaranteed: BTreeMap::new(),
            limit: BTreeMap::new(),
            namespaces: None,
        }
    }
}

/// What is known of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueStatus {
    /// Generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Jobs that hold slots, in it and in the queues below it.
    pub running: u32,
    /// Jobs that wait for slots, in it and in the queues below it.
    pub waiting: u32,
    /// Slots that its jobs hold, by type of device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, u32>,
    /// What holds of the queue: `Accepted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

fn devices(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "x-kubernetes-int-or-string": true },
    })
}

/// What is wrong with a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueFault {
    /// Name of the queue; absent where the fault lies in several at once.
    pub queue: Option<String>,
    /// What, and where in it.
    pub error: FieldError,
}

/// Puts `Queue` objects together to what the engine divides its slots by. Queues are named there by their place, as
/// `research/vision`; [`queue_of`] finds the place of a job's queue.
///
/// # Errors
///
/// The first queue that cannot be: one below a queue that is not there or below itself, an amount that cannot be read,
/// and what [`QueueTree::new`] refuses. The queues that were used before should stay in use then.
pub fn file(queues: &[Queue]) -> Result<QueuesFile, QueueFault> {
    let mut entries = Vec::with_capacity(queues.len());
    for queue in queues {
        let fault = |error| QueueFault { queue: Some(queue.name_any()), error };
        let name = place(queues, queue).map_err(fault)?;
        let guarantee = quantity(&queue.spec.guaranteed, "spec.guaranteed").map_err(fault)?;
        let limit = quantity(&queue.spec.limit, "spec.limit").map_err(fault)?;
        let guarantee = guarantee.unwrap_or_default();
        entries.push(QueueEntry { name, guarantee, limit, weight: queue.spec.weight });
    }
    // The order in which a cache lists objects must not reach decisions.
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let file = QueuesFile { half_life: Seconds::new(HALF_LIFE_S), queues: entries };
    QueueTree::new(&file, "queues").map_err(|error| fault_of(queues, error))?;
    Ok(file)
}

/// An error of the tree, at the queue that it speaks of.
fn fault_of(queues: &[Queue], error: InputError) -> QueueFault {
    let quoted = error.place.split('`').nth(1);
    let named = quoted.map(|path| path.rsplit_once('/').map_or(path, |(_, last)| last).to_owned());
    let queue = named.filter(|name| queues.iter().any(|queue| queue.name_any() == *name));
    let InputError { what, hint, .. } = error;
    QueueFault { queue, error: FieldError { field: "spec".into(), what, hint } }
}

/// The name of a queue with those above it, as the engine writes it.
fn place(queues: &[Queue], queue: &Queue) -> Result<String, FieldError> {
    let mut path = vec![queue.name_any()];
    let mut at = queue;
    while let Some(parent) = &at.spec.parent {
        let wrong = |what: String| FieldError::new("spec.parent", what);
        let Some(above) = queues.iter().find(|queue| queue.name_any() == *parent) else {
            let what = format!("there is no queue `{parent}`");
            return Err(wrong(what).hint("create it, or leave `parent` out"));
        };
        if path.contains(parent) {
            path.reverse();
            let what = format!("the queue is below itself: {parent}/{}", path.join("/"));
            return Err(wrong(what).hint("let one of these queues have another parent, or none"));
        }
        path.push(parent.clone());
        at = above;
    }
    if path.len() > 1 && path[0] == DEFAULT_QUEUE {
        let what = "jobs that name no queue are in `default`, which has no parent";
        return Err(
            FieldError::new("spec.parent", what).hint("leave `parent` out, or give the queue another name")
        );
    }
    path.reverse();
    Ok(path.join("/"))
}

fn quantity(by_type: &BTreeMap<String, Value>, field: &str) -> Result<Option<Quantity>, FieldError> {
    let measure = |(name, value): (&String, &Value)| {
        let read: Result<Measure, _> = serde_json::from_value(value.clone());
        let wrong = |_| {
            let expected = "write a number of devices such as 8, or a percentage such as 50%";
            FieldError::new(format!("{field}.{name}"), format!("{value} is not an amount")).hint(expected)
        };
        Ok((name.clone(), read.map_err(wrong)?))
    };
    let mut measures = by_type.iter().map(measure).collect::<Result<BTreeMap<String, Measure>, _>>()?;
    let Some(of_all) = measures.remove(ALL) else {
        return Ok(Some(measures).filter(|measures| !measures.is_empty()).map(Quantity::ByType));
    };
    if let Some(other) = measures.keys().next() {
        let what = format!("`{ALL}` means every type of device, and `{other}` stands beside it");
        return Err(FieldError::new(field, what).hint(format!("keep `{ALL}`, or name each type")));
    }
    Ok(Some(Quantity::Each(of_all)))
}

/// The queue that a job waits in, by its place as in [`file()`]. A job that names none is in `default`.
///
/// # Errors
///
/// A queue that is not there, that has queues below it, or in which jobs of this namespace may not wait. The last reads
/// as the first, so that the names of others' queues do not leave their namespaces.
pub fn queue_of(job: &ElasticJob, queues: &[Queue]) -> Result<String, FieldError> {
    let namespace = job.namespace().unwrap_or_default();
    let wanted = job.spec.queue.as_deref().unwrap_or(DEFAULT_QUEUE);
    let found = queues.iter().find(|queue| queue.name_any() == wanted);
    if found.is_none() && wanted == DEFAULT_QUEUE {
        return Ok(DEFAULT_QUEUE.to_owned());
    }
    let Some(queue) = found.filter(|queue| is_open(queues, queue, &namespace)) else {
        let what = format!("there is no queue `{wanted}` for jobs of the namespace `{namespace}`");
        let open = queues.iter().filter(|queue| is_leaf(queues, queue) && is_open(queues, queue, &namespace));
        let mut open: Vec<String> = open.map(ResourceExt::name_any).collect();
        open.sort_unstable();
        let names: Vec<&str> = open.iter().map(String::as_str).collect();
        let hint = if names.is_empty() { String::new() } else { did_you_mean(wanted, &names) };
        return Err(FieldError::new("spec.queue", what).hint(hint));
    };
    if !is_leaf(queues, queue) {
        let what = format!("`{wanted}` has queues below it, and jobs wait in those");
        return Err(FieldError::new("spec.queue", what));
    }
    place(queues, queue).map_err(|error| FieldError { field: "spec.queue".into(), ..error })
}

fn is_leaf(queues: &[Queue], queue: &Queue) -> bool {
    let name = queue.name_any();
    queues.iter().all(|other| other.spec.parent.as_ref() != Some(&name))
}

/// Whether jobs of a namespace may wait in a queue: it and those above it have to allow it, because what its jobs hold
/// counts for all of them.
fn is_open(queues: &[Queue], queue: &Queue, namespace: &str) -> bool {
    let mut at = Some(queue);
    // A circle ends too.
    for _ in 0..=queues.len() {
        let Some(queue) = at else { return true };
        let allowed = queue.spec.namespaces.as_ref();
        if allowed.is_some_and(|allowed| allowed.iter().all(|name| name != namespace)) {
            return false;
        }
        at = queue
            .spec
            .parent
            .as_ref()
            .and_then(|parent| queues.iter().find(|queue| queue.name_any() == *parent));
    }
    false
}
