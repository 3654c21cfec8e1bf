//! Templates of pods, kept as they were written.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FieldError, GROUP};

/// A pod template. Pods are made of its JSON, so fields that this program does not know reach the API server too.
///
/// The schema leaves it open: a whole `PodTemplateSpec` would make the definition some 500 KB long, tie it to one
/// version of Kubernetes, and cut newer fields off. The API server checks the pods made of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Template(pub Value);

impl Template {
    /// The template as far as this program knows its fields. `field` names it in errors.
    ///
    /// # Errors
    ///
    /// A field of another type than Kubernetes', with its path.
    pub fn parse(&self, field: &str) -> Result<PodTemplateSpec, FieldError> {
        serde_path_to_error::deserialize(&self.0).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { field.to_owned() } else { format!("{field}.{path}") };
            FieldError::new(field, error.into_inner()).hint("it has to be what a pod template allows there")
        })
    }

    /// GPUs of the first container: its limits for resources such as `nvidia.com/gpu`. 0 where it names none.
    ///
    /// ```
    /// use bellwether_operator::crd::Template;
    /// use serde_json::json;
    /// let limits = json!({"nvidia.com/gpu": 2, "memory": "1Gi"});
    /// let template = Template(json!({"spec": {"containers": [{"resources": {"limits": limits}}]}}));
    /// assert_eq!(template.gpus(), 2);
    /// assert_eq!(Template::default().gpus(), 0);
    /// ```
    pub fn gpus(&self) -> u32 {
        let limits = self.0["spec"]["containers"][0]["resources"]["limits"].as_object();
        let gpus = limits.into_iter().flatten().filter(|(name, _)| name.ends_with("/gpu"));
        let count = |value: &Value| match value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        gpus.filter_map(|(_, value)| count(value)).filter_map(|count| u32::try_from(count).ok()).sum()
    }

    /// Whether pods can be made of it. `field` names it in errors.
    pub(super) fn check(&self, field: &str, needs_command: bool) -> Vec<FieldError> {
        let template = match self.parse(field) {
            Ok(template) => template,
            Err(error) => return vec![error],
        };
        let mut errors = Vec::new();
        let keys = template.metadata.iter().flat_map(|metadata| {
            let labels = metadata.labels.iter().flatten().map(|(key, _)| ("labels", key));
            labels.chain(metadata.annotations.iter().flatten().map(|(key, _)| ("annotations", key)))
        });
        for (kind, key) in keys.filter(|(_, key)| key.starts_with(GROUP)) {
            let field = format!("{field}.metadata.{kind}");
            let what = format!("`{key}` is one of the operator's own");
            errors.push(FieldError::new(field, what).hint("leave it out, or choose another prefix"));
        }
        if needs_command {
            let containers = template.spec.map(|spec| spec.containers).unwrap_or_default();
            let has_command =
                containers.first().is_some_and(|first| first.command.iter().flatten().next().is_some());
            if !has_command {
                let what = "the first container needs the command that trains";
                let hint = "write it out even where the image has one: it starts once all pods are there";
                let field = format!("{field}.spec.containers[0].command");
                errors.push(FieldError::new(field, what).hint(hint));
            }
        }
        errors
    }
}

impl JsonSchema for Template {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}
