//! A control plane of Kubernetes on this machine, for tests: its own certificates, its own ports, its own etcd.
//!
//! Everything lies in one folder; nothing of the machine's own configuration is read or written. The servers are built
//! from Debian's sources, since no package holds them.

mod build;
mod certificates;
mod client;
mod control_plane;
mod image;
mod machine;
mod node;
mod patches;
mod processes;
mod recipe;
mod smoke;
mod source;
mod stages;

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use build::Programs;
use client::Client;
use control_plane::Pace;
pub(crate) use stages::{HINT, run_api_stages};

/// The variable in which tests find the file with which clients find a cluster; `KUBECONFIG` may be a cluster of the
/// user's that no test should touch.
const VARIABLE: &str = "BELLWETHER_TEST_KUBECONFIG";

/// How long a build may take: thrice what it takes on two processors that have other work.
const BUILD: Duration = Duration::from_secs(20 * 60);

/// What a cluster is for.
#[derive(Clone, Copy)]
enum Kind {
    /// The tests bring nodes of their own, which run nothing.
    ControlPlane(Pace),
    WithNode,
}

/// A cluster that goes down when it is dropped.
pub(crate) struct Cluster {
    folder: PathBuf,
    client: Client,
    /// Held for as long as this bench uses the folder.
    _lock: File,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = down(&self.folder) {
            println!("{error:#}");
        }
    }
}

impl Cluster {
    /// A cluster in the folder for tests, in place of one that may be there.
    fn start(programs: &Programs, kind: Kind) -> Result<Cluster> {
        let folder = folder();
        let lock = lock(&folder)?;
        let client = up(&folder, programs, kind)?;
        Ok(Cluster { folder, client, _lock: lock })
    }

    /// The variable in which tests find it.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (VARIABLE, control_plane::kubeconfig(&self.folder, "admin"))
    }
}

/// `cargo xtask kubernetes up|test|down`; `all` are also the stages of many minutes, `node` one that runs pods, and
/// `patient` a control plane that takes no node for lost because the machine is busy.
pub(crate) fn run(verb: &str, all: bool, (node, patient): (bool, bool)) -> Result<bool> {
    let folder = folder();
    match verb {
        "up" => {
            if node {
                need_node()?;
            }
            let programs = Programs::find_or_build(node, Instant::now() + BUILD)?;
            let _lock = lock(&folder)?;
            let start = Instant::now();
            let pace = if patient { Pace::Patient } else { Pace::Quick };
            up(&folder, &programs, if node { Kind::WithNode } else { Kind::ControlPlane(pace) })?;
            println!("a control plane is up after {:.1} s; this finds it:", start.elapsed().as_secs_f64());
            println!("export KUBECONFIG={}", control_plane::kubeconfig(&folder, "admin").display());
            Ok(true)
        }
        "down" => {
            let _lock = lock(&folder)?;
            down(&folder)?;
            Ok(true)
        }
        "test" => stages::run(all),
        other => bail!("cannot understand `kubernetes {other}`: it is up, test or down"),
    }
}

/// What a node needs, or why there can be none.
fn need_node() -> Result<()> {
    match machine::objection() {
        Some(why) => bail!("no node can run here: {why}"),
        None => node::need(),
    }
}

fn folder() -> PathBuf {
    std::env::temp_dir().join("bellwether-kubernetes")
}

/// Keeps other benches off the folder; a cluster that is up without one is ended by the next.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.with_extension("lock");
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => bail!("another `cargo xtask kubernetes` uses {} now", folder.display()),
    }
}

fn up(folder: &Path, programs: &Programs, kind: Kind) -> Result<Client> {
    down(folder)?;
    // It holds keys.
    let made = DirBuilder::new().mode(0o700).create(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))?;
    certificates::make(folder, (machine::NODE, machine::ADDRESS))?;
    let started = match kind {
        Kind::ControlPlane(pace) => control_plane::start(folder, programs, pace, "127.0.0.1"),
        Kind::WithNode => up_with_node(folder, programs),
    };
    // Its logs stay.
    started.inspect_err(|_| {
        let _ = end(folder);
    })
}

/// Pods reach the API server at the node's address.
fn up_with_node(folder: &Path, programs: &Programs) -> Result<Client> {
    machine::change(folder)?;
    let client = control_plane::start(folder, programs, Pace::Quick, machine::ADDRESS)?;
    node::start(folder, programs, &client)?;
    Ok(client)
}

/// Ends what was started in this folder, and puts back what a node changed.
fn end(folder: &Path) -> Result<()> {
    // The API server takes its time where its address has gone before it.
    processes::end_all(folder);
    machine::restore(folder)
}

/// Ends what was started in this folder, and removes it.
fn down(folder: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(folder) else { return Ok(()) };
    // What is written there is believed: which processes to end, which settings to put back.
    if found.uid() != fs::metadata("/proc/self")?.uid() {
        bail!("{} is another user's; set TMPDIR to a folder of yours", folder.display());
    }
    end(folder)?;
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
