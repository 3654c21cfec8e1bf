//! The custom resources.
#![allow(missing_docs)]
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

fn any(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "train.bellwether.dev",
    version = "v1alpha1",
    kind = "ElasticJob",
    namespaced,
    status = "ElasticJobStatus",
    shortname = "ej"
)]
#[serde(rename_all = "camelCase")]
pub struct ElasticJobSpec {
    #[schemars(schema_with = "any")]
    #[serde(default)]
    pub job: Value,
    #[serde(default)]
    pub suspend: bool,
    pub queue: Option<String>,
    pub elastic: Option<Elastic>,
    pub worker: Option<PodSet>,
    pub checkpoint: Option<CheckpointSpec>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Elastic {
    pub min_replicas: Option<u32>,
    pub max_replicas: Option<u32>,
    pub replicas: Option<u32>,
    pub policy: Option<String>,
    pub scale_down_grace_seconds: Option<u32>,
    pub start_timeout_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    #[schemars(schema_with = "any")]
    #[serde(default)]
    pub template: Value,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointSpec {
    pub volume_claim: Option<String>,
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(schema_with = "any")]
pub struct ElasticJobStatus(#[schemars(schema_with = "any")] pub Value);

pub fn crds(_rules: bool) -> String {
    serde_json::to_string_pretty(&ElasticJob::crd()).expect("plain data")
}
