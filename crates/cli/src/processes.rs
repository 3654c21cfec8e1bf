//! Workers and parameter servers as processes of this same program.

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use bellwether_runtime::coordinator::Spawn;
use bellwether_runtime::membership::WorkerId;

use crate::failure::Failure;
use crate::runs::RunDir;

/// Workers are processes of this same program, in a process group of their own: they outlive us. `more` gives further
/// arguments of each.
pub(crate) fn spawner(
    run: &RunDir,
    more: impl Fn(WorkerId) -> Vec<String> + 'static,
) -> Result<Spawn, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::at("this program", e))?;
    let run = run.clone();
    Ok(Box::new(move |worker, address| {
        let log = run.worker_log(worker)?;
        Command::new(&program)
            .arg("worker")
            .args(["--join", &address.to_string()])
            // Workers on other machines must reach these as they reach the coordinator.
            .args(["--listen", &SocketAddr::new(address.ip(), 0).to_string()])
            .arg("--token-file")
            .arg(run.token_file())
            .args(["--worker-id", &worker.to_string()])
            .args(more(worker))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
    }))
}

/// Parameter servers are processes of this same program, like workers.
pub(crate) fn server_spawner(run: &RunDir) -> Result<Spawn, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::at("this program", e))?;
    let run = run.clone();
    Ok(Box::new(move |server, address| {
        let log = run.server_log(server)?;
        Command::new(&program)
            .arg("server")
            .args(["--join", &address.to_string()])
            .args(["--listen", &SocketAddr::new(address.ip(), 0).to_string()])
            .arg("--token-file")
            .arg(run.token_file())
            .args(["--server-id", &server.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .process_group(0)
            .spawn()
    }))
}
