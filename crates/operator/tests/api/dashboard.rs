//! What the operator shows to those who may enter its pod.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::cluster::condition;
use crate::support::job::digits;
use crate::support::operator::{Jobs, bellwether, namespace, output};
use crate::{bench, on_server};

/// Types a verb in the operator's pod.
async fn types(runs: &std::path::Path, line: &str) -> Output {
    let mut command = Command::new(bellwether());
    command.args(line.split_whitespace()).env("BELLWETHER_STATE_DIR", runs).env_remove("BELLWETHER_SERVER");
    output(command).await
}

async fn asks(runs: &std::path::Path, line: &str) -> Value {
    let output = types(runs, &format!("{line} --format json")).await;
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The first line of the answer to a request without a session.
fn answer(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_dashboard_shows_what_trains_and_a_job_that_runs_too_long_has_failed() {
    on_server(async |kubeconfig| {
        let bench = bench(kubeconfig, &["--policy", "fair"]).await;
        namespace(&bench.client, "dashboard").await;
        let jobs = Jobs::of(&bench.client, "dashboard");
        let job = json!({"job": digits(10_000_000), "activeDeadlineSeconds": 6});
        jobs.create("digits", job).await;
        jobs.until("digits", "it runs", 60, |status| status["phase"] == "Running").await;
        let runs: PathBuf = bench.operator.state().join("runs");
        let seen = asks(&runs, "jobs").await;
        assert_eq!((&seen[0]["name"], &seen[0]["state"]), (&json!("dashboard.digits"), &json!("running")));
        // What would change something says where that is done.
        for line in ["stop dashboard.digits", "policy fifo", "scale dashboard.digits --workers 2"] {
            let refused = types(&runs, line).await;
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && said.contains("kubectl edit elasticjob"), "{line}: {said}");
        }
        let opened = asks(&runs, "dashboard").await;
        let url = opened["address"].as_str().unwrap();
        let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap();
        assert!(address.starts_with("127.0.0.1:"), "{url}");
        assert!(answer(address, "/").contains(" 200 "), "the page is there: {}", answer(address, "/"));
        assert!(answer(address, "/v1/jobs").contains(" 401 "), "but not what it shows");
        let status = jobs.until("digits", "its end", 60, |status| status["phase"] == "Failed").await;
        let failed = condition(&status, "Failed");
        assert!(failed["message"].as_str().unwrap().contains("activeDeadlineSeconds"), "{failed}");
    });
}
