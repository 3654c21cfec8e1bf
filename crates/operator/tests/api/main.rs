//! The operator on a server of Kubernetes, with nodes that are played: pods are processes of this machine.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that fails says where")]

#[path = "../support/mod.rs"]
mod support;

mod client;
mod cluster;
mod dashboard;
mod faults;
mod plan;
mod provision;
mod scripts;
mod security;
mod train;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use kube::Client;
use support::kubelet::Kubelet;
use support::operator::{self, Operator, bellwether};

/// A cluster of four nodes with two processors each, and an operator.
struct Bench {
    client: Client,
    kubelet: Kubelet,
    operator: Operator,
    folder: tempfile::TempDir,
}

impl Drop for Bench {
    /// A test that fails shows what the operator and the pods said.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let tail =
            |text: &str| text.lines().rev().take(20).map(|line| format!("    {line}\n")).collect::<String>();
        eprintln!("the operator, last line first:\n{}", tail(&self.operator.log()));
        let ledger = std::fs::read_to_string(self.operator.state().join("ledger.jsonl")).unwrap_or_default();
        let short = |line: &str| format!("    {}\n", line.chars().take(1000).collect::<String>());
        let tells =
            |line: &&str| !line.contains(r#""entry":"learnt""#) && !line.contains(r#""entry":"moment""#);
        let ledger: String = ledger.lines().rev().filter(tells).take(40).map(short).collect();
        eprintln!("the ledger, last line first:\n{ledger}");
        for pod in std::fs::read_dir(self.folder.path().join("nodes")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(pod.path().join("log")).unwrap_or_default();
            eprintln!("a pod, last line first:\n{}", tail(&text));
        }
    }
}

async fn bench(kubeconfig: PathBuf, arguments: &[&str]) -> Bench {
    let client = support::client(&kubeconfig).await;
    operator::install(&client).await;
    let folder = tempfile::tempdir().unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_bellwether-operator"));
    let programs = [("/usr/bin/bellwether-operator", program), ("/usr/bin/bellwether", bellwether())];
    let kubelet = Kubelet::start(client.clone(), &folder.path().join("nodes"), &programs);
    for node in 0..4 {
        kubelet.add_node(&format!("node-{node}"), 2).await;
    }
    let kubeconfig = operator::authorise(&client, &kubeconfig, folder.path()).await;
    let operator = Operator::start(&kubeconfig, &folder.path().join("operator"), arguments);
    Bench { client, kubelet, operator, folder }
}

/// One operator looks after all jobs of a cluster: tests wait for each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test where there is a server.
fn on_server(test: impl AsyncFnOnce(PathBuf)) {
    let Some(kubeconfig) = support::kubeconfig() else { return };
    // Those that failed leave nothing behind that the next one minds.
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test(kubeconfig));
}
