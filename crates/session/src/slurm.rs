//! Workers and servers as Slurm's jobs, one each: submitted, watched, cancelled, and found again after any crash.
//!
//! Slurm starts the processes, on nodes of its choice and under its limits; what joins whom is the run's own affair. So
//! nothing here knows of steps: a job that begins is a worker like any other, and one that ends is a worker that was
//! lost. What Slurm tells in advance (a time limit, a preemption, a node that is drained) the
//! director (`crate::director`) turns into a change of workers between two steps.
//!
//! The coordinator talks to Slurm through its programs (`sbatch`, `squeue`, `scancel`, `scontrol`, `sinfo`), on a
//! thread of its own: a controller that does not answer costs training nothing. The folder of the run has to lie where
//! the nodes find it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_runtime::coordinator::{self, Director};
use bellwether_runtime::run_dir::{ClusterJobs, RunDir};

use crate::director::slurm::SlurmDirector;
use crate::error::RunError;
use crate::program::Program;
use crate::programs::Call;
pub use crate::programs::ProgramError;
pub use allocation::Allocation;
pub use answers::{
    JobStage, JobState, NodeState, OLDEST_VERSION, QueuedJob, SlurmNode, nodes, queue, record, submitted,
    time, version,
};
use board::{Post, Role};
use clerk::{Clerk, Script};
use desk::Desk;

mod allocation;
pub(crate) mod answers;
pub(crate) mod board;
pub(crate) mod clerk;
pub(crate) mod desk;
mod ticket;

/// How long a controller that is away is waited for where nothing can be done without it.
const AWAY_PATIENCE: Duration = Duration::from_secs(60);

/// How jobs are submitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Submit {
    /// Options of `sbatch`, passed on untouched, after our own: they win.
    pub options: Vec<String>,
    /// The beginning of each job's script: `#SBATCH` lines, passed on untouched, and commands that prepare the job.
    pub script: String,
}

/// The desk of the run that was started last.
type Known = Option<(RunDir, Weak<Desk>)>;

/// Starts workers and servers as jobs of Slurm's.
#[derive(Debug, Clone)]
pub struct Slurm {
    submit: Submit,
    desk: Arc<Mutex<Known>>,
}

impl Slurm {
    /// Submits jobs like this.
    pub fn new(submit: Submit) -> Slurm {
        Slurm { submit, desk: Arc::default() }
    }

    /// Submits jobs as the run's earlier coordinators did; `None` for a run whose workers are not Slurm's jobs.
    ///
    /// # Errors
    ///
    /// Returns an error if the run's file on this cannot be read.
    pub fn of(run: &RunDir) -> Result<Option<Slurm>, RunError> {
        let kept = run.cluster_jobs()?;
        Ok(kept.map(|ClusterJobs { options, script, .. }| Slurm::new(Submit { options, script })))
    }

    /// Finds out whether Slurm is there, old enough or not, and would take such jobs.
    ///
    /// # Errors
    ///
    /// Returns what is missing, or what Slurm has against the options.
    pub fn check(&self) -> Result<(), InputError> {
        let wrong = |what: String, hint: &str| InputError::new("--on slurm", what).hint(hint);
        let text = Call::new("sbatch", ["--version"]).answer().map_err(|error| {
            wrong(error.to_string(), "run it where `sbatch` works, as on a login node of the cluster")
        })?;
        let found = version(&text)
            .map_err(|what| wrong(what, "this does not seem to be Slurm's `sbatch`: look at PATH"))?;
        if found < OLDEST_VERSION {
            let (major, minor) = found;
            let what = format!("Slurm {major}.{minor:02} is too old: its `squeue` tells too little");
            return Err(wrong(what, "20.11 or later is needed"));
        }
        let mut arguments: Vec<OsString> = vec!["--test-only".into()];
        arguments.extend(self.submit.options.iter().map(Into::into));
        let script = format!("{}true\n", self.head(None));
        match Call::new("sbatch", arguments).reading(script).answer() {
            Ok(_) => Ok(()),
            Err(ProgramError::Refused { why, .. }) => {
                let what = format!("Slurm would not take a worker's job: {why}");
                Err(wrong(what, "change --sbatch or --sbatch-script; `sbatch --test-only` tries them alone"))
            }
            Err(error) => Err(wrong(error.to_string(), "`sinfo` shows whether the cluster answers")),
        }
    }

    /// An address of this machine that the nodes of the cluster reach.
    ///
    /// # Errors
    ///
    /// Returns an error if Slurm tells no address of a node, or none of this machine's leads there.
    pub fn own_address(&self) -> Result<SocketAddr, InputError> {
        let wrong = |what: String| {
            InputError::new("--on slurm", what)
                .hint("name an address of this machine that the nodes reach with --listen ADDRESS:0")
        };
        let since = Instant::now();
        let text = loop {
            match Call::new("scontrol", ["--oneliner", "show", "node"]).answer() {
                Ok(text) => break text,
                Err(error) if error.is_passing() && since.elapsed() < AWAY_PATIENCE => {
                    std::thread::sleep(Duration::from_secs(1));
                }
                Err(error) => return Err(wrong(error.to_string())),
            }
        };
        let nodes = text.split_whitespace().filter_map(|word| word.strip_prefix("NodeAddr="));
        let address = nodes.take(16).find_map(|node| route_to((node, 1)).ok());
        let address = address.ok_or_else(|| wrong("no address of a node is known here".into()))?;
        Ok(SocketAddr::new(address, 0))
    }

    /// Submits the jobs of `run` with a key that begins with `key`.
    ///
    /// # Errors
    ///
    /// As the file system says.
    pub(crate) fn keep(&self, run: &RunDir, key: &str) -> Result<(), RunError> {
        let Submit { options, script } = self.submit.clone();
        run.keep_cluster_jobs(key, options, script)?;
        Ok(())
    }

    /// The desk of a run: one for its workers and servers.
    fn desk(&self, run: &RunDir, program: &Program) -> Result<Arc<Desk>, RunError> {
        let mut known = self.desk.lock().expect("no holder of this lock panics");
        let same = known.as_ref().filter(|(of, _)| of == run);
        if let Some(desk) = same.and_then(|(_, desk)| desk.upgrade()) {
            return Ok(desk);
        }
        let Submit { options, script } = self.submit.clone();
        let kept = run.keep_cluster_jobs("", options, script)?;
        let desk = Desk::open(|shared| {
            let script = self.script(run.clone(), program.clone());
            Clerk::new(shared, &kept.key, run.clone(), script)
        });
        let desk = Arc::new(desk.map_err(|e| crate::error::at("--on slurm", e))?);
        *known = Some((run.clone(), Arc::downgrade(&desk)));
        Ok(desk)
    }

    fn script(&self, run: RunDir, program: Program) -> Script {
        let slurm = self.clone();
        let environment = program.environment();
        let text = move |role: Role, post: &Post, ticket: &Path| {
            let log = match role {
                Role::Worker => run.worker_log_file(post.number),
                Role::Server => run.server_log_file(post.number),
            };
            let name = job_name(&run, role);
            let mut text = slurm.head(Some((&name, &log)));
            text.push_str("exec");
            for word in program.ticket_words(role.word(), &run, ticket, post.number) {
                // Only text can be in a script.
                let _ = write!(text, " {}", quoted(&word.to_string_lossy()));
            }
            text.push('\n');
            text
        };
        let options = self.submit.options.iter().map(Into::into).collect();
        Script { options, text: Box::new(text), environment }
    }

    /// The beginning of a job's script, with what is so unless the user says otherwise.
    fn head(&self, named: Option<(&str, &Path)>) -> String {
        let mut lines = self.submit.script.lines().peekable();
        let shell = lines.next_if(|line| line.starts_with("#!")).unwrap_or("#!/bin/sh");
        let mut text = format!("{shell}\n#SBATCH --nodes=1 --ntasks=1 --no-requeue\n");
        if let Some((name, log)) = named {
            let log = log.display();
            let _ = writeln!(text, "#SBATCH --job-name={}", quoted(name));
            let _ = writeln!(text, "#SBATCH --output={} --open-mode=append", quoted(&log.to_string()));
        } else {
            text.push_str("#SBATCH --output=/dev/null\n");
        }
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    pub(crate) fn workers(&self, run: &RunDir, program: &Program) -> Result<coordinator::Spawn, RunError> {
        self.spawn(Role::Worker, run, program)
    }

    pub(crate) fn servers(&self, run: &RunDir, program: &Program) -> Result<coordinator::Spawn, RunError> {
        self.spawn(Role::Server, run, program)
    }

    fn spawn(&self, role: Role, run: &RunDir, program: &Program) -> Result<coordinator::Spawn, RunError> {
        let desk = self.desk(run, program)?;
        Ok(Box::new(move |number, address| Ok(Box::new(desk.ask(role, number, address)))))
    }

    /// Watches the workers of `run` for what Slurm has in mind for them.
    pub(crate) fn director(&self, run: &RunDir, program: &Program) -> Result<Box<dyn Director>, RunError> {
        let desk = self.desk(run, program)?;
        Ok(Box::new(SlurmDirector::new(desk)))
    }
}

/// The nodes of a partition, or of all.
///
/// # Errors
///
/// What keeps Slurm from telling them.
pub fn nodes_of(partition: Option<&str>) -> Result<Vec<SlurmNode>, ProgramError> {
    clerk::nodes_of(partition)
}

/// Processors by node that are held by this user's jobs whose comments begin with this key of a daemon's.
///
/// # Errors
///
/// What keeps Slurm from telling.
pub fn held_by(key: &str) -> Result<BTreeMap<String, u32>, ProgramError> {
    let mut held = BTreeMap::new();
    // A key of a run begins with that of its daemon.
    for job in clerk::jobs_of(clerk::mark(key).trim_end())? {
        if matches!(job.state.stage(), JobStage::Runs | JobStage::Leaves) {
            *held.entry(job.nodes).or_insert(0) += job.processors;
        }
    }
    Ok(held)
}

/// Ends the jobs of a run whose coordinator is gone and comes no more.
///
/// # Errors
///
/// What keeps Slurm from ending them; they end by themselves when they have waited for a coordinator for long enough.
pub fn end_jobs(run: &RunDir) -> Result<(), ProgramError> {
    // Another run may have the same name.
    let Ok(Some(kept)) = run.cluster_jobs() else { return Ok(()) };
    let jobs: Vec<u64> = clerk::jobs_of(&clerk::mark(&kept.key))?.iter().map(|job| job.job).collect();
    if jobs.is_empty() { Ok(()) } else { clerk::cancel(&jobs, &[]) }
}

fn job_name(run: &RunDir, role: Role) -> String {
    format!("bellwether-{}-{}", run.name, role.word())
}

/// The address of this machine from which a packet to `there` would come. Nothing is sent.
///
/// # Errors
///
/// Returns the operating system's error: a name that is not known, a network that cannot be reached.
pub fn route_to(there: impl ToSocketAddrs) -> std::io::Result<IpAddr> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for there in there.to_socket_addrs()? {
        let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let here = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(there)?;
            socket.local_addr()
        });
        match here {
            Ok(here) => return Ok(here.ip()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether this is an address of this machine.
pub fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// A word of a shell's.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_says_comes_after_what_we_say() {
        let script = "#!/bin/bash\n#SBATCH --job-name=mine\nmodule load cuda\n".to_owned();
        let slurm = Slurm::new(Submit { script, ..Submit::default() });
        let head = slurm.head(Some(("bellwether-a", Path::new("/runs/it's/worker-1.log"))));
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!(
            lines,
            [
                "#!/bin/bash",
                "#SBATCH --nodes=1 --ntasks=1 --no-requeue",
                "#SBATCH --job-name='bellwether-a'",
                "#SBATCH --output='/runs/it'\\''s/worker-1.log' --open-mode=append",
                "#SBATCH --job-name=mine",
                "module load cuda",
            ]
        );
    }

    #[test]
    fn this_machine_reaches_itself_by_loopback() {
        assert_eq!(route_to(("127.0.0.1", 9)).ok(), Some(IpAddr::from([127, 0, 0, 1])));
        assert!(route_to(("no-such-host.invalid", 9)).is_err());
        // No machine has an address that is set aside for documents.
        assert!(is_own(IpAddr::from([127, 0, 0, 1])) && !is_own(IpAddr::from([192, 0, 2, 1])));
    }
}
