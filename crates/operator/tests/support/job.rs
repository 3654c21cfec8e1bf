//! The job that tests train, and what an undisturbed run makes of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::operator::bellwether;

/// The digits, for this many steps.
pub(crate) fn digits(steps: u64) -> Value {
    json!({
        "name": "digits", "steps": steps, "seed": 7,
        "data": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [32]},
        "batch": {"size": 64, "virtual_nodes": 4},
        "optimizer": {"kind": "adam", "learning_rate": 0.003},
    })
}

/// A job file of the same job, in this folder.
pub(crate) fn file(folder: &Path, job: &Value) -> PathBuf {
    let mut toml = String::new();
    for (key, value) in job.as_object().unwrap() {
        if !value.is_object() {
            toml += &format!("{key} = {value}\n");
        }
    }
    for (table, entries) in job.as_object().unwrap() {
        let Some(entries) = entries.as_object() else { continue };
        toml += &format!("[{table}]\n");
        for (key, value) in entries {
            toml += &format!("{key} = {value}\n");
        }
    }
    let file = folder.join("job.toml");
    std::fs::write(&file, toml).unwrap();
    file
}

/// A catalogue with one machine, for plans.
pub(crate) fn prices(folder: &Path) -> PathBuf {
    let text = r#"
[network]
bandwidth = "10Gbit/s"
latency = "50us"

[[machine]]
device = "cpu"
region = "here"
speed = 1.0
price = "$0.10/h"
"#;
    let file = folder.join("prices.toml");
    std::fs::write(&file, text).unwrap();
    file
}

/// The digest of the same job on this machine, undisturbed.
pub(crate) fn undisturbed(folder: &Path, job: &Value) -> String {
    let file = file(folder, job);
    let mut command = Command::new(bellwether());
    command.args(["run", "--workers", "1", "--format", "json", "--state-dir"]).arg(folder.join("alone"));
    let output = command.arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    result["params_digest"].as_str().unwrap().to_owned()
}

pub(crate) fn step(status: &Value) -> u64 {
    status["training"]["step"].as_u64().unwrap_or(0)
}
