//! The command's verbs with `--kubernetes`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::operator::{Jobs, bellwether, namespace, output};
use crate::support::wait_for;
use crate::{bench, on_server};

/// The command, as a user of a namespace types it.
pub(crate) struct User {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: &'static str,
}

impl User {
    /// Types a verb with its arguments.
    async fn types(&self, line: &str) -> Output {
        let mut command = Command::new(bellwether());
        command.args(line.split_whitespace()).args(["--kubernetes", "--namespace", self.namespace]);
        command.env("KUBECONFIG", &self.kubeconfig).env_remove("BELLWETHER_SERVER");
        output(command).await
    }

    /// The same, where it has to succeed; its answer in JSON.
    pub(crate) async fn asks(&self, line: &str) -> Value {
        let output = self.types(&format!("{line} --format json")).await;
        assert!(output.status.success(), "{line}: {}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    }

    /// The same, where it has to be refused; what it says then.
    async fn is_refused(&self, line: &str) -> String {
        let output = self.types(line).await;
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        said(&output)
    }

    /// Waits until a job is as it should be.
    async fn until(&self, job: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_for(&format!("{job}: {what}"), 60, async || {
            let job = self.asks(&format!("show {job}")).await;
            is_so(&job).then_some(job)
        })
        .await
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A job file for this many steps.
fn job_file(folder: &Path, steps: u64) -> String {
    let text = format!(
        "name = \"digits\"\nsteps = {steps}\nseed = 7\nworkers = \"1..2\"\n[data]\nkind = \"digits\"\n\
         [model]\nkind = \"mlp\"\nhidden = [32]\n[batch]\nsize = 64\nvirtual_nodes = 4\n\
         [optimizer]\nkind = \"adam\"\nlearning_rate = 0.003\n"
    );
    let file = folder.join(format!("digits-{steps}.toml"));
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn a_job_is_submitted_scaled_stopped_resumed_and_removed_from_the_command_line() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig.clone(), &["--policy", "fair"]).await;
        namespace(&bench.client, "client-walk").await;
        let user = User { kubeconfig, namespace: "client-walk" };
        let file = job_file(bench.folder.path(), 10_000_000);
        assert_eq!(user.asks("jobs").await, json!([]));
        let sent = user.asks(&format!("submit {file} --priority 2")).await;
        assert_eq!((&sent[0]["name"], &sent[0]["weight"]), (&json!("digits"), &json!(2.0)), "{sent}");
        let runs = |job: &Value| job["state"] == "running" && job["step"].as_u64() > Some(0);
        let job = user.until("digits", "steps", runs).await;
        assert_eq!((&job["min_workers"], &job["max_workers"]), (&json!(1), &json!(2)), "{job}");
        assert_eq!(job["total_steps"], 10_000_000, "{job}");
        let scaled = user.asks("scale digits --workers 1").await;
        assert_eq!((&scaled["min_workers"], &scaled["max_workers"]), (&json!(1), &json!(1)), "{scaled}");
        user.until("digits", "one worker", |job| job["workers"] == 1).await;
        // Nodes that are played have nothing that answers for the logs of their pods.
        let logs = user.types("logs digits").await;
        assert!(logs.status.success() || said(&logs).contains("pods/log"), "{}", said(&logs));
        user.asks("stop digits").await;
        user.until("digits", "a pause", |job| job["state"] == "suspended").await;
        assert_eq!(user.asks("jobs --state suspended").await[0]["name"], "digits");
        // It may be given another size meanwhile.
        user.asks("scale digits --workers 2").await;
        user.asks("resume digits").await;
        let job = user.until("digits", "steps after the pause", runs).await;
        assert_eq!((&job["min_workers"], &job["max_workers"]), (&json!(2), &json!(2)), "{job}");
        assert!(job["preemptions"].as_u64() > Some(0), "{job}");
        assert_eq!(user.asks("rm digits").await, json!({"removed": ["digits"]}));
        wait_for("its end", 60, async || {
            let jobs = user.asks("jobs").await;
            (jobs == json!([])).then_some(())
        })
        .await;
        assert!(user.is_refused("show digits").await.contains("has no such job"));
    });
}

#[test]
#[ignore = "among those of many minutes"]
fn a_job_is_followed_to_its_end_and_names_get_numbers() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig.clone(), &["--policy", "fair"]).await;
        namespace(&bench.client, "client-end").await;
        let user = User { kubeconfig, namespace: "client-end" };
        let file = job_file(bench.folder.path(), 300);
        user.asks(&format!("submit {file}")).await;
        let second = user.asks(&format!("submit {file}")).await;
        assert_eq!(second[0]["name"], "digits-2", "{second}");
        assert!(
            user.is_refused(&format!("submit {file} --name digits")).await.contains("choose another name")
        );
        let watched = user.types("watch digits").await;
        assert!(watched.status.success(), "{}", said(&watched));
        let job = user.asks("show digits").await;
        assert_eq!((&job["state"], &job["step"]), (&json!("finished"), &json!(300)), "{job}");
        assert!(job["digest"].is_string() && job["ended_s"].is_number(), "{job}");
        assert!(user.is_refused("stop digits").await.contains("the job is finished"));
        user.until("digits-2", "its end", |job| job["state"] == "finished").await;
        assert_eq!(user.asks("rm --all-ended").await, json!({"removed": ["digits", "digits-2"]}));
    });
}

#[test]
fn what_makes_no_sense_there_is_refused_with_what_to_do() {
    on_server(async |kubeconfig| {
        let client = crate::support::client(&kubeconfig).await;
        crate::operator::install(&client).await;
        namespace(&client, "client-wrong").await;
        let folder = tempfile::tempdir().unwrap();
        let user = User { kubeconfig, namespace: "client-wrong" };
        let file = job_file(folder.path(), 300);
        let relative = user.is_refused(&format!("submit {file} --set checkpoint.folder=here")).await;
        assert!(relative.contains("checkpoint.folder") && relative.contains("is relative"), "{relative}");
        let early = user.is_refused(&format!("submit {file} --profile-first")).await;
        assert!(early.contains("--profile-first"), "{early}");
        assert!(user.is_refused("queues").await.contains("kubectl edit"));
        assert!(user.is_refused("policy").await.contains("bellwether-operator run --policy"));
        assert!(user.is_refused("users").await.contains("Kubernetes"));
        let manifest = user.types(&format!("submit {file} --dry-run")).await;
        let manifest: Value = serde_json::from_slice(&manifest.stdout).unwrap();
        assert_eq!(
            (&manifest["kind"], &manifest["spec"]["elastic"]["maxReplicas"]),
            (&json!("ElasticJob"), &json!(2))
        );
        // Without an operator it waits.
        let sent = user.asks(&format!("submit {file}")).await;
        assert_eq!((&sent[0]["state"], &sent[0]["user"]), (&json!("queued"), &Value::Null), "{sent}");
        assert!(user.is_refused("cancel digits").await.contains("rm digits --kubernetes"));
        let jobs = Jobs::of(&client, "client-wrong");
        assert_eq!(jobs.api.get("digits").await.unwrap().spec.elastic.max_replicas, Some(2));
        // An operator of another test would take it up.
        user.asks("rm digits").await;
        let lost = User { kubeconfig: folder.path().join("none"), namespace: "client-wrong" };
        assert!(lost.is_refused("jobs").await.contains("kubeconfig"));
        let nowhere = folder.path().join("nowhere");
        let text = "{apiVersion: v1, kind: Config, current-context: x, users: [{name: x, user: {}}],\n\
            clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}],\n\
            contexts: [{name: x, context: {cluster: x, user: x}}]}\n";
        std::fs::write(&nowhere, text).unwrap();
        let silent = User { kubeconfig: nowhere, namespace: "client-wrong" };
        let silent = silent.is_refused("jobs").await;
        assert!(
            silent.contains("Kubernetes does not answer") && silent.contains("kubectl cluster-info"),
            "{silent}"
        );
    });
}
