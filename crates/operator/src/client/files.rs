//! What an object refers to: a profile, and a script that the image of its pods need not have.

use std::collections::BTreeMap;
use std::path::Path;

use bellwether_core::job::{Job, Model};
use bellwether_core::profile::Profile;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use serde_json::json;

use super::failure::Failure;
use crate::crd::{self, PROFILE_KEY, Template};

/// Where pods find the script.
const FOLDER: &str = "/var/run/bellwether-script";
const VOLUME: &str = "script";

/// Most bytes of a script, a little below what an object of Kubernetes may hold.
const SCRIPT_MAX: usize = 1_000_000;

/// A profile as an object of the cluster. Its name follows from what it says, so that jobs share it and one that is
/// sent twice is there once.
pub(super) fn of_profile(profile: &Profile, namespace: &str) -> Result<ConfigMap, Failure> {
    let said =
        serde_json::to_value(profile).map_err(|error| Failure::invalid("profile", error.to_string()))?;
    let name = format!("bellwether-profile-{}", crd::digest(&said));
    Ok(config_map(name, namespace, (PROFILE_KEY.to_owned(), said.to_string())))
}

/// A script as an object of the cluster; the job is told where its pods find it. Its name follows from its text.
pub(super) fn of_script(text: String, job: &mut Job, namespace: &str) -> Result<ConfigMap, Failure> {
    let Model::Python { script, .. } = &mut job.model else {
        return Err(Failure::invalid("pods.script", "the job's model is not a script"));
    };
    if text.len() > SCRIPT_MAX {
        let what =
            format!("the script has {} bytes, and an object of Kubernetes holds {SCRIPT_MAX}", text.len());
        let hint = "put it into the image, and say where: --set model.script=/path/in/image.py";
        return Err(Failure::invalid("model.script", what).hint(hint));
    }
    // Letters that a key of such an object may have.
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let file = script.file_name().unwrap_or_default().to_string_lossy();
    let file: String = file.chars().map(|letter| if is_allowed(letter) { letter } else { '_' }).collect();
    *script = Path::new(FOLDER).join(&file);
    let name = format!("bellwether-script-{}", crd::digest(&json!([file, text])));
    Ok(config_map(name, namespace, (file, text)))
}

/// An object that holds a file.
fn config_map(name: String, namespace: &str, file: (String, String)) -> ConfigMap {
    let metadata =
        ObjectMeta { name: Some(name), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    let data = Some(BTreeMap::from([file]));
    ConfigMap { metadata, data, immutable: Some(true), ..ConfigMap::default() }
}

/// The template of all pods of the job, where they need one.
pub(super) fn template(image: Option<String>, script: Option<&ConfigMap>) -> Option<Template> {
    if image.is_none() && script.is_none() {
        return None;
    }
    let mut container = json!({"name": "main"});
    if let Some(image) = image {
        container["image"] = json!(image);
    }
    let mut spec = json!({});
    if let Some(name) = script.and_then(|script| script.metadata.name.as_deref()) {
        container["volumeMounts"] = json!([{"name": VOLUME, "mountPath": FOLDER, "readOnly": true}]);
        spec["volumes"] = json!([{"name": VOLUME, "configMap": {"name": name}}]);
    }
    spec["containers"] = json!([container]);
    Some(Template(json!({ "spec": spec })))
}
