//! The cluster under test, and a scene on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use crate::harness::{Live, Scene, is_alive, signal, wait_for};

/// Slurm has one queue, so the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A cluster, for as long as a test has its turn.
pub(crate) struct Cluster {
    configuration: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    /// The cluster that the variable names; `None` where there is none, which is said.
    pub(crate) fn find() -> Option<Cluster> {
        let Some(configuration) = std::env::var_os("BELLWETHER_TEST_SLURM_CONF") else {
            eprintln!("skipped: `cargo xtask slurm test` runs this on a Slurm of its own");
            return None;
        };
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let cluster = Cluster { configuration: configuration.into(), _turn: turn };
        // What a test that failed has left.
        for node in ["n1", "n2", "n3", "n4"] {
            signal(cluster.daemon(node), Signal::CONT);
        }
        if !is_alive(cluster.controller()) {
            cluster.start_controller();
        }
        cluster.say("scancel", &["--user=root"]);
        cluster.say("scontrol", &["update", "partitionname=low", "nodes=n[1-4]"]);
        cluster.say("scontrol", &["update", "nodename=n[1-4]", "state=resume"]);
        cluster.wait_until_idle();
        Some(cluster)
    }

    /// Its configuration, as `SLURM_CONF` names it.
    pub(crate) fn configuration(&self) -> &Path {
        &self.configuration
    }

    /// What one of Slurm's programs prints.
    pub(crate) fn say(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program).args(arguments).env("SLURM_CONF", &self.configuration).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Jobs in the queue that have not ended: number, state, name.
    pub(crate) fn queue(&self) -> Vec<(u64, String, String)> {
        let text = self.say("squeue", &["--noheader", "-O", "JobID:|,State:|,Name:|"]);
        let read = |line: &str| {
            let mut columns = line.split('|');
            let job = columns.next()?.parse().ok()?;
            Some((job, columns.next()?.to_owned(), columns.next()?.to_owned()))
        };
        text.lines().filter_map(read).filter(|(_, state, _)| state != "COMPLETING").collect()
    }

    /// Waits until no job is in the queue, and all nodes are free.
    pub(crate) fn wait_until_idle(&self) {
        let idle = || {
            let nodes = self.say("sinfo", &["-h", "-p", "low", "-t", "idle", "-o", "%D"]);
            (self.queue().is_empty() && nodes.trim() == "4").then_some(())
        };
        wait_for(|| format!("{:?}\n{}", self.queue(), self.say("sinfo", &[])), idle);
    }

    /// Submits a job of another user's making; its number.
    pub(crate) fn submit(&self, arguments: &[&str]) -> u64 {
        let text = self.say("sbatch", &[&["--parsable", "--output=/dev/null"], arguments].concat());
        text.trim().parse().unwrap_or_else(|_| panic!("sbatch says {text:?}"))
    }

    /// Starts the command where it finds the cluster.
    pub(crate) fn start<'s>(&self, scene: &'s Scene, arguments: &[&str]) -> Live<'s> {
        let mut command = scene.command(arguments);
        command.env("SLURM_CONF", &self.configuration);
        scene.start_command(command)
    }

    /// Trains `job.toml` with these workers as jobs of the partition `low`, each with a node to itself.
    pub(crate) fn train<'s>(&self, scene: &'s Scene, workers: &str, more: &[&str]) -> Live<'s> {
        let usual = ["run", "job.toml", "--format=json", "--on=slurm", "--workers", workers];
        let alone = ["--sbatch=--partition=low", "--sbatch=--exclusive"];
        self.start(scene, &[&usual[..], &alone, more].concat())
    }

    /// The process of the controller, or of the last one.
    fn controller(&self) -> u32 {
        self.process("slurmctld.pid")
    }

    /// The process of a node's daemon.
    fn daemon(&self, node: &str) -> u32 {
        self.process(&format!("slurmd-{node}.pid"))
    }

    fn process(&self, file: &str) -> u32 {
        let pid = std::fs::read_to_string(self.configuration.with_file_name(file));
        pid.expect("it has run").trim().parse().expect("the number of a process")
    }

    /// Stops Slurm's daemon on a node and a job there, as a power cut does for those who wait for them. Returns the
    /// processes, the daemon's first.
    pub(crate) fn freeze(&self, node: &str, job: u64) -> Vec<u32> {
        let mut still = vec![self.daemon(node)];
        let text = self.say("scontrol", &["listpids", &job.to_string(), node]);
        let of_job = text.lines().filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok());
        still.extend(of_job.filter(|process| is_alive(*process)));
        assert!(still.len() > 1, "job {job} has no process on {node}: {text:?}");
        still.iter().for_each(|process| signal(*process, Signal::STOP));
        still
    }

    /// The power is back: Slurm's daemon goes on, and what ran on the node is gone.
    pub(crate) fn thaw(&self, still: Vec<u32>) {
        still[1..].iter().for_each(|process| signal(*process, Signal::KILL));
        signal(still[0], Signal::CONT);
    }

    /// Kills the controller without a warning.
    pub(crate) fn kill_controller(&self) {
        signal(self.controller(), Signal::KILL);
    }

    pub(crate) fn start_controller(&self) {
        // A daemon keeps the streams that it is given.
        let status = Command::new("slurmctld")
            .arg("-f")
            .arg(&self.configuration)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        assert!(status.expect("slurmctld can be started").success());
    }
}
