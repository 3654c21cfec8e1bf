//! The custom resources: `ElasticJob` is a training job, and `Queue` divides the cluster among jobs.
//!
//! The Rust types are the source. The schema that an API server gets follows from them ([`definitions`]), and so do its
//! defaults, because both sides read the same `Default`. What a type cannot say is a rule: each is written once in CEL
//! for servers since 1.25 and once in Rust ([`check`]), side by side in one table. Servers before 1.25 ignore CEL, so
//! Rust decides.
//!
//! # What an operator must not trip over
//!
//! One object that cannot be read breaks the list of all of them. Hence everything that the schema accepts can be read
//! ([`job::ElasticJobSpec`]): the job file and the pod templates are kept as they were written, words that this version
//! does not know become `Unknown`, numbers have bounds. [`check()`] then says what is wrong, with the field.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

mod backend;
mod check;
mod conform;
mod embed;
mod fault;
mod fixed;
mod job;
mod queue;
mod rules;
mod schema;
mod sizes;
mod status;
mod template;

pub(crate) use backend::pattern;
pub use backend::{Backend, Hints, Rendezvous, Throughput, Work};
pub use check::{Checked, check, read};
pub use fault::FieldError;
pub use fixed::{check_update, digest, fixed};
pub use job::{
    Action, Checkpoint, Elastic, ElasticJob, ElasticJobSpec, FailurePolicy, FailureRule, PROFILE_KEY,
    PodRole, Policy, ProfileRef, SecretRef, Worker,
};
pub use queue::{Queue, QueueFault, QueueSpec, QueueStatus, file, queue_of};
pub use rules::{RULES, Rule};
pub use sizes::Sizes;
pub use status::{
    Allocation, Condition, ElasticJobStatus, Interval, NodeSlots, Outlook, Phase, Restarts, Training,
};
pub use template::Template;

/// The API group of the custom resources.
pub const GROUP: &str = "train.bellwether.dev";

/// The version of the group.
pub const VERSION: &str = "v1alpha1";

/// `spec.managedBy` of the jobs that this operator looks after.
pub const MANAGER: &str = "train.bellwether.dev/controller";

/// The definitions of both resources as an API server wants them. Without `rules` they have no
/// `x-kubernetes-validations`: servers before 1.25 drop these keys from what is posted, and refuse them when the
/// definition is applied server-side.
///
/// `ElasticJob::crd()` alone lacks the rules, the limits on names and on numbers.
///
/// # Panics
///
/// Panics if a definition cannot be written as JSON and read again, which the tests rule out.
pub fn definitions(rules: bool) -> Vec<CustomResourceDefinition> {
    let finished = |definition: CustomResourceDefinition| {
        let mut value = serde_json::to_value(definition).expect("a definition is plain data");
        schema::finish(&mut value);
        if !rules {
            schema::without_rules(&mut value);
        }
        serde_json::from_value(value).expect("it was a definition")
    };
    [ElasticJob::crd(), Queue::crd()].map(finished).into()
}

/// The definitions of both resources as YAML, to be given to `kubectl create -f -` or `kubectl apply -f -`; see
/// [`definitions`].
///
/// # Panics
///
/// Panics if a definition cannot be written, which the tests rule out.
pub fn crds(rules: bool) -> String {
    let documents = definitions(rules).into_iter().map(|definition| {
        // Sorted keys make differences small.
        let value = serde_json::to_value(definition).expect("a definition is plain data");
        serde_saphyr::to_string(&value).expect("JSON is YAML")
    });
    documents.map(|document| format!("---\n{document}")).collect()
}

/// The schema of the version of a definition.
fn schema_of(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}
