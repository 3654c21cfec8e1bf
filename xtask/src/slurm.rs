//! A Slurm of four nodes on this machine, for tests: its own controller, its own key, its own ports.
//!
//! Slurm lets several `slurmd` run on one host, each as a node of its own. Everything lies in one folder, which other
//! users may enter, because the programs want it so; nothing of the machine's own configuration is read or written.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::debian::{install, is_root, runs};
use crate::{python, tree};

/// Debian's packages.
const PACKAGES: [&str; 4] = ["slurmctld", "slurmd", "slurm-client", "munge"];

/// Nodes, and processors that each says it has.
const NODES: u32 = 4;
const PROCESSORS: u32 = 4;

/// How long the nodes may take to be there.
const PATIENCE: Duration = Duration::from_secs(30);

/// The variable in which tests find the configuration; `SLURM_CONF` may be a cluster of the user's.
const VARIABLE: &str = "BELLWETHER_TEST_SLURM_CONF";

/// A cluster that goes down when it is dropped.
pub(crate) struct Cluster(PathBuf);

impl Drop for Cluster {
    fn drop(&mut self) {
        down(&self.0);
    }
}

impl Cluster {
    /// The variable in which tests find its configuration.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        (VARIABLE, self.0.join("slurm.conf"))
    }
}

/// `cargo xtask slurm up|test|down`.
pub(crate) fn run(verb: &str, all: bool) -> Result<bool> {
    let folder = folder();
    match verb {
        "up" => {
            need()?;
            down(&folder);
            up(&folder)?;
            println!("four nodes are up; `export SLURM_CONF={}/slurm.conf` finds them", folder.display());
            Ok(true)
        }
        "down" => {
            down(&folder);
            Ok(true)
        }
        "test" => {
            need()?;
            let cluster = start()?;
            let mut test = tree::cargo();
            test.args(["test", "--release", "--workspace", "--test", "slurm", "--", "--test-threads=1"]);
            test.args(all.then_some("--include-ignored")).envs([cluster.variable()]);
            if all {
                test.envs(python::torch_variables()?);
            }
            let status = test.current_dir(tree::root()?).status().context("cannot start `cargo test`")?;
            let variables = vec![cluster.variable()];
            let scripts = python::Choice { file: Some("slurm"), variables, ..python::Choice::default() };
            Ok(python::run(&scripts)? && status.success())
        }
        other => bail!("cannot understand `slurm {other}`: it is up, test or down"),
    }
}

/// All tests on Slurm, those of many minutes too, where there can be one.
pub(crate) fn long() -> Result<bool> {
    match need() {
        Ok(()) => run("test", true),
        Err(error) => {
            println!("the long tests on Slurm are skipped: {error:#}");
            Ok(true)
        }
    }
}

/// A cluster for the tests, if there can be one; says what is missing.
pub(crate) fn find_or_install() -> Option<Cluster> {
    match need().and_then(|()| start()) {
        Ok(cluster) => Some(cluster),
        Err(error) => {
            println!("the tests on Slurm are skipped: {error:#}");
            None
        }
    }
}

fn folder() -> PathBuf {
    std::env::temp_dir().join("bellwether-slurm")
}

fn start() -> Result<Cluster> {
    let cluster = Cluster(folder());
    down(&cluster.0);
    up(&cluster.0)?;
    Ok(cluster)
}

/// Slurm's programs, if need be after installing them.
fn need() -> Result<()> {
    // `sbatch` says nothing, not even its version, where it finds no configuration.
    let is_there = || ["slurmctld", "slurmd", "munged"].iter().all(|program| runs(program, &["-V"]));
    if !(is_there() || install("Slurm", &PACKAGES) && is_there()) {
        bail!(
            "Slurm's programs are not there (Debian and Ubuntu: `apt-get install --no-install-recommends {}`)",
            PACKAGES.join(" ")
        );
    }
    if !is_root() {
        bail!("only root can run a Slurm that starts jobs of its users");
    }
    Ok(())
}

fn up(folder: &Path) -> Result<()> {
    for part in ["", "state", "log", "spool", "munge"] {
        let path = folder.join(part);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    let munge = folder.join("munge");
    let mut key = [0; 1024];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    fs::write(munge.join("key"), key)?;
    fs::set_permissions(munge.join("key"), Permissions::from_mode(0o400))?;
    let at = |name: &str, file: &str| format!("--{name}={}", munge.join(file).display());
    let options = [at("key-file", "key"), at("socket", "socket"), at("pid-file", "pid")];
    said(Command::new("munged").args(options).args([at("log-file", "log"), at("seed-file", "seed")]))?;
    let configuration = folder.join("slurm.conf");
    fs::write(&configuration, configured(folder)?)?;
    said(Command::new("slurmctld").arg("-f").arg(&configuration))?;
    for node in 1..=NODES {
        fs::create_dir_all(folder.join(format!("spool/n{node}")))?;
        said(Command::new("slurmd").arg("-f").arg(&configuration).args(["-N", &format!("n{node}")]))?;
    }
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let idle = Command::new("sinfo")
            .args(["-h", "-p", "low", "-t", "idle", "-o", "%D"])
            .env("SLURM_CONF", &configuration)
            .output()?;
        if String::from_utf8_lossy(&idle.stdout).trim() == NODES.to_string() {
            return try_job(&configuration);
        }
        sleep(Duration::from_millis(100));
    }
    bail!("the nodes did not come up; {}/log tells why", folder.display())
}

/// Runs a task on each node: where this machine does not let Slurm start processes, it is better known at once.
fn try_job(configuration: &Path) -> Result<()> {
    let count = NODES.to_string();
    let mut job = Command::new("timeout");
    job.args(["20", "srun", "--partition=low", "--nodes", &count, "--ntasks", &count, "true"]);
    said(job.env("SLURM_CONF", configuration)).context("the nodes are up, and run no job")
}

/// Its configuration: short periods, so that tests need not wait for what clusters do in minutes.
fn configured(folder: &Path) -> Result<String> {
    let output = Command::new("hostname").arg("-s").output().context("cannot start hostname")?;
    let host = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let folder = folder.display();
    let ports = free_ports(NODES as usize + 1)?;
    let mut text = format!(
        "ClusterName=bellwether-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdSpoolDir={folder}/spool/%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
KillWait=5
MinJobAge=60
SlurmdParameters=config_overrides
",
        ports[0]
    );
    for (node, port) in (1..).zip(&ports[1..]) {
        let _ = writeln!(
            text,
            "NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={PROCESSORS} RealMemory=1000"
        );
    }
    text.push_str(
        "PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=20 MaxTime=INFINITE OverTimeLimit=0 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
",
    );
    Ok(text)
}

/// Ports that no program has now.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// Ends what was started in this folder, by the processes' own files, and removes it.
fn down(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let pids: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "pid")).collect();
    for file in pids.iter().chain([&folder.join("munge/pid")]) {
        let Ok(text) = fs::read_to_string(file) else { continue };
        let pid = text.trim().to_owned();
        // A number may be another's by now.
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if !String::from_utf8_lossy(&words).contains(&*folder.to_string_lossy()) {
            continue;
        }
        let _ = Command::new("kill").arg(&pid).stderr(Stdio::null()).status();
        let since = Instant::now();
        while Path::new(&format!("/proc/{pid}")).exists() && since.elapsed() < Duration::from_secs(5) {
            sleep(Duration::from_millis(20));
        }
        let _ = Command::new("kill").args(["-9", &pid]).stderr(Stdio::null()).status();
    }
    let _ = fs::remove_dir_all(folder);
}

/// Runs a program; where it fails, what it said.
fn said(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Daemons keep the pipes of who started them open, so what they say goes to a file.
    let log = std::env::temp_dir().join(format!("bellwether-slurm-said-{}", std::process::id()));
    let file = fs::File::create(&log)?;
    let status = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).status();
    let text = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(&log);
    let status = status.with_context(|| format!("cannot start {name}"))?;
    if !status.success() {
        bail!("{name} failed: {}", text.trim());
    }
    Ok(())
}
