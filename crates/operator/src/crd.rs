//! The custom resources.
#![allow(missing_docs)]
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "train.bellwether.dev",
    version = "v1alpha1",
    kind = "ElasticJob",
    namespaced,
    status = "ElasticJobStatus"
)]
pub struct ElasticJobSpec {
    pub job: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ElasticJobStatus {
    #[serde(flatten)]
    pub all: std::collections::BTreeMap<String, serde_json::Value>,
}

pub fn checked(_job: &ElasticJob) -> Result<Option<crate::job::JobSpec>, String> {
    Ok(None)
}
