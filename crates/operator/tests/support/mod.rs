//! What tests on a server of Kubernetes share.

#![allow(dead_code, clippy::unwrap_used, clippy::print_stderr, reason = "each test uses a part of it")]

pub(crate) mod autoscaler;
pub(crate) mod job;
pub(crate) mod kubelet;
pub(crate) mod operator;
pub(crate) mod played;
pub(crate) mod proxy;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// The variable with the path of a kubeconfig of a server for tests.
pub(crate) const VARIABLE: &str = "BELLWETHER_TEST_KUBECONFIG";

/// Where the server for tests is, if there is one; says that the test is skipped otherwise.
pub(crate) fn kubeconfig() -> Option<PathBuf> {
    let found = std::env::var_os(VARIABLE).map(PathBuf::from);
    if found.is_none() {
        eprintln!("skipped: {VARIABLE} names no server; `cargo xtask kubernetes test` starts one");
    }
    found
}

/// A client of the server.
pub(crate) async fn client(kubeconfig: &PathBuf) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// What Linux says of a process in `/proc/PID/stat`: its state, its parent, and so on.
pub(crate) fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in brackets, may hold blanks.
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Waits until `check` gives something.
pub(crate) async fn wait_for<T>(what: &str, patience_s: u64, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(patience_s);
    loop {
        if let Some(found) = check().await {
            return found;
        }
        assert!(Instant::now() < until, "{what} did not come within {patience_s} s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
