//! The node tried by itself, before the operator's tests use it: pods run, and nothing is left of a bench that was
//! killed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::client::{Client, JSON};
use super::{machine, node, processes};

/// How long a pod may take to be where it should be; on an idle machine it takes 2 seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the bench may take to come to the moment at which it is killed.
const START: Duration = Duration::from_secs(120);

/// How long a program may run that the bench had started when it was killed.
const SETTLE: Duration = Duration::from_secs(10);

const PODS: &str = "/api/v1/namespaces/default/pods";

/// The exit code of the pod that ends by itself.
const CODE: u64 = 3;

/// Runs two pods, one that goes on and one that ends, and reads what they wrote; a third runs our command.
pub(crate) fn run_pods(client: &Client) -> Result<()> {
    let since = Instant::now();
    let code = CODE.to_string();
    client.put("POST", PODS, JSON, &pod("stays", node::POD_IMAGE, &[]))?.granted()?;
    client.put("POST", PODS, JSON, &pod("ends", node::POD_IMAGE, &[&code]))?.granted()?;
    wait_for(client, "stays", |status| status["phase"] == "Running")?;
    println!("a pod runs after {:.1} s", since.elapsed().as_secs_f64());
    let has_ended =
        |status: &Value| status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == CODE;
    wait_for(client, "ends", |status| status["phase"] == "Failed" && has_ended(status))?;
    for name in ["stays", "ends"] {
        let log = client.get(&format!("{PODS}/{name}/log"))?;
        ensure!(
            log.status == 200 && log.text == "started\n",
            "the log of `{name}` is {}: {}",
            log.status,
            log.text
        );
    }
    if let Some((_, image)) = node::worker_image()? {
        client.put("POST", PODS, JSON, &pod("command", image, &["--version"]))?.granted()?;
        wait_for(client, "command", |status| status["phase"] == "Succeeded")?;
        let log = client.get(&format!("{PODS}/command/log"))?;
        ensure!(log.text.starts_with("bellwether "), "our command says: {}", log.text);
        client.delete(&format!("{PODS}/command"))?.granted()?;
    }
    for name in ["stays", "ends"] {
        client.delete(&format!("{PODS}/{name}"))?.granted()?;
        let is_gone = || client.get(&format!("{PODS}/{name}")).is_ok_and(|answer| answer.status == 404);
        ensure!(processes::wait_until(PATIENCE, is_gone), "the pod `{name}` does not go");
    }
    println!("pods start, write, end and go: ok");
    Ok(())
}

fn wait_for(client: &Client, name: &str, is_there: impl Fn(&Value) -> bool) -> Result<()> {
    let mut last = Value::Null;
    let has_come = processes::wait_until(PATIENCE, || {
        if let Ok(pod) = client.get(&format!("{PODS}/{name}")).and_then(|answer| answer.granted()) {
            last = pod["status"].clone();
        }
        is_there(&last)
    });
    ensure!(has_come, "the pod `{name}` does not come to where it should be: {last}");
    Ok(())
}

fn pod(name: &str, image: &str, arguments: &[&str]) -> Value {
    let requests = json!({ "cpu": "10m", "memory": "16Mi" });
    let container = json!({
        "name": "main",
        "image": image,
        "args": arguments,
        // There is no registry to ask.
        "imagePullPolicy": "Never",
        "resources": { "requests": requests },
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container] },
    })
}

/// Kills a bench at two moments of its start, and compares the machine before it with the machine after `down`.
pub(crate) fn survive_kills(folder: &Path, down: impl Fn() -> Result<()>) -> Result<()> {
    down()?;
    let before = machine::picture(folder)?;
    kill_when(folder, "it has written down what it will change", || machine::record(folder).exists())?;
    down()?;
    ensure_same(&before, folder)?;
    kill_when(folder, "its kubelet has changed the machine", machine::has_groups_of_kubelet)?;
    ensure!(
        machine::picture(folder)? != before,
        "a node has changed nothing: the comparison does not see it"
    );
    down()?;
    ensure_same(&before, folder)?;
    println!("a bench that was killed leaves nothing once `down` has run: ok");
    Ok(())
}

fn kill_when(folder: &Path, moment: &str, is_now: impl Fn() -> bool) -> Result<()> {
    let mut up = Command::new(std::env::current_exe()?);
    up.args(["kubernetes", "up", "--node"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = up.spawn().context("cannot start the bench again")?;
    let mut has_ended = false;
    let has_come = processes::wait_until(START, || {
        has_ended = child.try_wait().is_ok_and(|status| status.is_some());
        has_ended || is_now()
    });
    // On Unix, this is SIGKILL.
    child.kill()?;
    child.wait()?;
    // What it was doing by another program at that moment is done.
    std::thread::sleep(Duration::from_millis(300));
    if has_ended || !has_come {
        bail!("a bench in {} did not come to the moment at which {moment}", folder.display());
    }
    Ok(())
}

fn ensure_same(before: &str, folder: &Path) -> Result<()> {
    // A program that the bench had just started, as `curl`, outlives it for a moment.
    let mut after = machine::picture(folder)?;
    processes::wait_until(SETTLE, || {
        after = machine::picture(folder).unwrap_or_default();
        after == before
    });
    let missing = before.lines().filter(|line| !after.lines().any(|other| other == *line));
    let new = after.lines().filter(|line| !before.lines().any(|other| other == *line));
    let changes: Vec<String> =
        missing.map(|line| format!("- {line}")).chain(new.map(|line| format!("+ {line}"))).collect();
    ensure!(changes.is_empty(), "the machine is not as it was before the node:\n{}", changes.join("\n"));
    Ok(())
}
