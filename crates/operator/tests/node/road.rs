//! The whole road of a model of a user's own: a script of PyTorch's is profiled, predicted and planned, waits in a
//! queue of a real cluster, is resized and struck there, and its weights are taken elsewhere.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::python::{BARE_IMAGE, Python, add};
use crate::support::job::prices;
use crate::support::operator::{Jobs, bellwether, namespace, queue};
use crate::{Bench, bench, claim, kill, kill_operators, on_node, runs, succeeded};

const NAMESPACE: &str = "node-torch";
const EPOCHS: u32 = 400;

/// What a user does with the weights: no word of ours is in it.
const INFERENCE: &str = r#"
import sys
import numpy as np, torch
from safetensors.torch import load_file
from torch import nn
weights, data = sys.argv[1:]
digits = torch.from_numpy(np.loadtxt(data, delimiter=",", dtype=np.float32))
images, labels = digits[1438:, :64].reshape(-1, 1, 8, 8) / 16, digits[1438:, 64].long()
model = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
)
model.load_state_dict(load_file(weights))
model.eval()
with torch.no_grad():
    print((model(images).argmax(1) == labels).float().mean().item())
"#;

/// The example for PyTorch, with its data and what it saves in the folder that its pods share.
fn script(folder: &Path) -> std::path::PathBuf {
    let data = folder.join("digits.csv.gz");
    std::fs::write(&data, include_bytes!("../../../../data/digits/digits.csv.gz")).unwrap();
    let mut text = include_str!("../../../../examples/python/torch_digits.py").to_owned();
    for (before, after) in [
        ("Path(__file__).parents[2] / \"data/digits/digits.csv.gz\"", format!("Path({data:?})")),
        ("run.epochs(5)", format!("run.epochs({EPOCHS})")),
        ("T_max=5 * 23", format!("T_max={EPOCHS} * 23")),
        ("\"model.pt\"", format!("{:?}", folder.join("model.pt"))),
    ] {
        assert!(text.contains(before), "{before}");
        text = text.replace(before, &after);
    }
    let script = folder.join("train.py");
    std::fs::write(&script, text).unwrap();
    script
}

/// Types a verb.
fn typed(python: &Python, verb: &[&str], more: impl FnOnce(&mut Command) -> &mut Command) -> Vec<u8> {
    let mut command = Command::new(bellwether());
    command.args(verb).current_dir(&python.folder);
    let output = more(&mut command).output().unwrap();
    assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The objects by which the cluster trains the script as it was planned: what holds the profile and the script, and
/// the specification of the job.
fn planned(python: &Python, kubeconfig: &Path) -> (Vec<Value>, Value) {
    let (script, profile) = (script(&python.folder), python.folder.join("profile.json"));
    let prices = prices(&python.folder);
    typed(
        python,
        &["profile", "--steps", "20", "--state-dir", "profiled", "-o", "profile.json"],
        |command| command.arg("--python").arg(&python.program).arg(&script),
    );
    let predicted =
        typed(python, &["predict", "--workers", "1..2", "--format", "json"], |command| command.arg(&profile));
    let predicted: Value = serde_json::from_slice(&predicted).unwrap();
    assert_eq!(predicted.as_array().map(Vec::len), Some(2), "{predicted}");
    let epochs = EPOCHS.to_string();
    let plan = ["plan", "--epochs", &epochs, "--samples", "1438", "--deadline", "2h", "--max-workers", "2"];
    let export = ["--export", "kubernetes", "--image", BARE_IMAGE, "--namespace", NAMESPACE];
    let objects = typed(python, &[&plan[..], &export].concat(), |command| {
        command.arg(&profile).arg("--catalog").arg(&prices).arg("--job").arg(&script);
        command.arg("--python").arg(&python.program).env("KUBECONFIG", kubeconfig)
    });
    let objects: Value = serde_json::from_slice(&objects).unwrap();
    let mut objects = objects["items"].as_array().unwrap().clone();
    let job = objects.pop().unwrap();
    (objects, job["spec"].clone())
}

/// Creates what was planned: with a queue, a claim, and the folders that hold Python.
async fn submitted(bench: &Bench, python: &Python, (files, mut spec): (Vec<Value>, Value)) -> Jobs {
    let maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), NAMESPACE);
    assert_eq!(files.len(), 2, "the profile and the script");
    for file in files {
        maps.create(&PostParams::default(), &serde_json::from_value(file).unwrap()).await.unwrap();
    }
    queue(&bench.client, "road", json!({"limit": {"all": 4}})).await;
    assert_eq!(spec["deadlineSeconds"], 7200, "{spec}");
    spec["queue"] = json!("road");
    spec["elastic"] = json!({"minReplicas": 1, "maxReplicas": 4, "policy": "Manual", "replicas": 2,
        "scaleDownGraceSeconds": 20});
    spec["checkpoint"] = json!({"volumeClaim": "runs", "path": "digits"});
    let path = json!({"name": "PYTHONPATH", "value": std::env::var("PYTHONPATH").unwrap()});
    let interpreter = json!({"name": "VIRTUAL_ENV", "value": python.program.ancestors().nth(2).unwrap()});
    for role in ["coordinator", "worker"] {
        let template = &mut spec[role]["template"];
        python.mount(template);
        add(&mut template["spec"]["containers"][0]["env"], vec![path.clone(), interpreter.clone()]);
    }
    let jobs = Jobs::of(&bench.client, NAMESPACE);
    jobs.create("digits", spec).await;
    jobs
}

/// The digest of the same script on this machine, undisturbed.
fn undisturbed(python: &Python) -> String {
    let script = python.folder.join("train.py");
    let verb = ["run", "--workers", "1", "--format", "json", "--state-dir", "alone"];
    let printed = typed(python, &verb, |command| command.arg("--python").arg(&python.program).arg(&script));
    let result: Value = serde_json::from_slice(&printed).unwrap();
    result["params_digest"].as_str().unwrap().to_owned()
}

/// Takes the weights from the run's folder on the claim, and asks plain PyTorch for digits that the job never saw.
fn accuracy(python: &Python, claim: &Path, run: &str) -> f64 {
    let weights = python.folder.join("weights.safetensors");
    typed(python, &["export", run], |command| {
        command.arg("-o").arg(&weights).arg("--state-dir").arg(claim.join("digits"))
    });
    let mut command = Command::new(&python.program);
    command.args(["-c", INFERENCE]).arg(&weights).arg(python.folder.join("digits.csv.gz"));
    let output = command.env_remove("PYTHONPATH").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn a_script_of_pytorch_goes_the_whole_road_is_struck_and_keeps_its_bits() {
    on_node(async |kubeconfig, image| {
        let mut bench = bench(&kubeconfig, &image).await;
        let Some(mut python) = Python::find("torch", bench.folder.path()) else { return };
        let Ok(package) = std::env::var("PYTHONPATH") else {
            return eprintln!(
                "skipped: PYTHONPATH names no package; `cargo xtask kubernetes --all test` makes one"
            );
        };
        // It is made of links.
        let said = python.says(
            "import os, bellwether as b, bellwether._native as n; \
             print(*(os.path.dirname(os.path.realpath(m.__file__)) for m in (b, n)), sep='\\n')",
        );
        python.bring(said.lines().chain([package.as_str()]).map(Into::into));
        namespace(&bench.client, NAMESPACE).await;
        let folder = bench.folder.path().join("claim");
        claim(&bench.client, NAMESPACE, &folder).await;
        let jobs = submitted(&bench, &python, planned(&python, &kubeconfig)).await;
        let status = jobs.until("digits", "steps of two workers", 180, runs).await;
        let run = status["run"].as_str().unwrap().to_owned();
        bench.operator.until_members(&run, 2).await;
        jobs.scale("digits", 4).await;
        bench.operator.until_members(&run, 4).await;
        for role in ["worker", "coordinator"] {
            let after = kill(&bench, &jobs, &run, role).await;
            eprintln!(
                "a pod of PyTorch's ({role}) was killed: the next step after {:.2} s",
                after.as_secs_f64()
            );
            bench.operator.until_members(&run, 4).await;
        }
        kill_operators(&mut bench).await;
        jobs.scale("digits", 1).await;
        bench.operator.until_members(&run, 1).await;
        let status = jobs.until("digits", "its end", 400, succeeded).await;
        assert_eq!(status["training"]["digest"], undisturbed(&python).as_str(), "{status}");
        let rolled_back = bench.operator.events(&run).iter().any(|event| event["event"] == "rolled_back");
        assert!(!rolled_back, "no step was rolled back");
        bench.operator.audit(&run);
        let accuracy = accuracy(&python, &folder, &run);
        eprintln!("its weights know {:.1} % of the digits that it did not see", 100.0 * accuracy);
        assert!(accuracy > 0.95, "{accuracy}");
    });
}
