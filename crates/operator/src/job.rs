//! A job as the controller needs it: its specification, checked, and what its status keeps.

use std::collections::BTreeMap;

use bellwether_core::job::{CheckedJob, WorkerRange};
use serde_json::{Value, json};

use crate::reconcile::{Allocation, Backend, Restarts, Role, Terms};

/// What a job's author asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identifier.
    pub uid: String,
    /// When it was created, in seconds since the Unix epoch.
    pub created_s: f64,
    /// Grows with every change of the specification.
    pub generation: i64,
    /// How its pods work together.
    pub backend: Backend,
    /// `native`, `torchrun` or `tensorflow`.
    pub rendezvous: String,
    /// The port of the coordinator, or of a group's first pod.
    pub port: u16,
    /// What is trained, as the engine knows it.
    pub job: CheckedJob,
    /// Samples of an epoch, or of a script's whole work, where the author says how many there are.
    pub training_samples: Option<u64>,
    /// Samples of a script's own step, where its author says it.
    pub step_samples: Option<u64>,
    /// Numbers of workers that it may have now.
    pub workers: WorkerRange,
    /// Its share against those of others.
    pub weight: f64,
    /// Seconds from its creation within which it should be done.
    pub deadline_s: Option<f64>,
    /// Whether it has to wait.
    pub is_suspended: bool,
    /// The name and the key of a ConfigMap with its profile.
    pub profile: Option<(String, String)>,
    /// What [`crate::reconcile`] has to know.
    pub terms: Terms,
    /// Seconds after its end after which it is removed.
    pub ttl_s: Option<u64>,
    /// The user's templates of pods.
    pub templates: BTreeMap<Role, Value>,
    /// The claim for the run's folder, and the path in it.
    pub volume: Option<(String, String)>,
    /// The secret with what the object store asks for.
    pub environment_secret: Option<String>,
    /// The priority class of its pods.
    pub priority_class: Option<String>,
    /// What finds a group's throughput in its output.
    pub pattern: Option<String>,
}

impl JobSpec {
    /// The reference by which Kubernetes removes the job's objects with it.
    pub fn owner(&self) -> Value {
        json!({
            "apiVersion": format!("{}/v1alpha1", crate::labels::GROUP), "kind": "ElasticJob", "name": self.name,
            "uid": self.uid, "controller": true, "blockOwnerDeletion": true,
        })
    }
}

/// What a job's status keeps for the next operator.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// What was decided last.
    pub allocation: Allocation,
    /// With which transition of the Lease.
    pub lease_transitions: u64,
    /// How often something went wrong.
    pub restarts: Restarts,
    /// Whether the job has ended.
    pub is_over: bool,
    /// When it ended, in seconds since the Unix epoch.
    pub ended_s: Option<f64>,
    /// Name of its run.
    pub run: Option<String>,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn small(value: &Value) -> u32 {
    u32::try_from(number(value)).unwrap_or(u32::MAX)
}

/// A time as it stands in objects; 0 where it is none.
fn time_s(value: &Value) -> f64 {
    let time = value.as_str().and_then(|text| text.parse::<k8s_openapi::jiff::Timestamp>().ok());
    time.map_or(0.0, |time| crate::observe::seconds(&time))
}

/// A time as it stands in objects.
pub fn time(unix_s: f64) -> Option<String> {
    let milliseconds = (unix_s * 1e3) as i64;
    let time = k8s_openapi::jiff::Timestamp::from_millisecond(milliseconds).ok()?;
    (unix_s > 0.0).then(|| time.to_string())
}

/// Whether a status says all of this already; what is null may be missing.
pub fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Null => whole.is_null(),
        Value::Object(part) => part.iter().all(|(key, value)| contains(&whole[key], value)),
        _ => whole == part,
    }
}

impl Kept {
    /// Reads a status: anything may be missing.
    pub fn of(status: &Value) -> Kept {
        let allocation = &status["allocation"];
        let nodes = allocation["nodes"].as_array().into_iter().flatten();
        let places =
            nodes.filter_map(|node| Some((node["node"].as_str()?.to_owned(), small(&node["slots"]))));
        let restarts = &status["restarts"];
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ends = |condition: &Value| {
            matches!(condition["type"].as_str(), Some("Complete" | "Failed")) && condition["status"] == "True"
        };
        let end = conditions.find(|condition| ends(condition));
        Kept {
            allocation: Allocation {
                generation: number(&allocation["generation"]),
                workers: small(&allocation["replicas"]),
                servers: small(&allocation["servers"]),
                places: places.collect(),
                since_s: time_s(&allocation["since"]),
                ran_s: number(&allocation["ranSeconds"]),
            },
            lease_transitions: number(&allocation["leaseTransitions"]),
            restarts: Restarts {
                crash: small(&restarts["crash"]),
                coordinator: small(&restarts["coordinator"]),
                last_s: time_s(&restarts["last"]),
            },
            is_over: end.is_some(),
            ended_s: end
                .map(|condition| time_s(&condition["lastTransitionTime"]))
                .filter(|time_s| *time_s > 0.0),
            run: status["run"].as_str().map(Into::into),
        }
    }

    /// How an allocation stands in a status.
    pub fn allocation(allocation: &Allocation, lease_transitions: u64, reason: &str) -> Value {
        let Allocation { generation, workers, servers, places, since_s, ran_s } = allocation;
        let nodes: Vec<Value> =
            places.iter().map(|(node, slots)| json!({"node": node, "slots": slots})).collect();
        json!({
            "generation": generation, "replicas": workers, "servers": servers,
            "nodes": nodes, "since": time(*since_s), "ranSeconds": ran_s, "reason": reason,
            "leaseTransitions": lease_transitions,
        })
    }

    /// How restarts stand in a status.
    pub fn restarts(Restarts { crash, coordinator, last_s }: &Restarts) -> Value {
        json!({"crash": crash, "coordinator": coordinator, "last": time(*last_s)})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_again_what_was_written() {
        let places = BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]);
        let allocation =
            Allocation { generation: 7, workers: 2, servers: 1, places, since_s: 1.5e9, ran_s: 60 };
        let restarts = Restarts { crash: 1, coordinator: 2, last_s: 1.5e9 + 0.25 };
        let status = json!({
            "allocation": Kept::allocation(&allocation, 4, "why"), "restarts": Kept::restarts(&restarts),
            "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": time(2e9)}], "run": "a.b",
        });
        let run = Some("a.b".to_owned());
        assert_eq!(
            Kept::of(&status),
            Kept { allocation, lease_transitions: 4, restarts, is_over: true, ended_s: Some(2e9), run }
        );
        for other in [json!(null), json!({"allocation": 3, "restarts": {"crash": -1, "last": "soon"}})] {
            assert_eq!(Kept::of(&other), Kept::default());
        }
    }
}
