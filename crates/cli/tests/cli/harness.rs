//! What the tests share: a folder with a job and its runs, the command in it, and a look at its journal.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bellwether_core::record::{Event, Summary};
use bellwether_runtime::coordinator::Endpoint;
use bellwether_runtime::journal;
pub(crate) use bellwether_testkit::Random;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Nothing in these tests takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bellwether");

/// A folder with a job file `job.toml` and a state directory; the end of it is the end of its processes.
pub(crate) struct Scene {
    folder: TempDir,
    commands: AtomicU32,
}

/// A command that runs.
pub(crate) struct Live<'s> {
    scene: &'s Scene,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// A command that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit code; none after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Waits until `check` gives something.
///
/// # Panics
///
/// After [`PATIENCE`], with what `what` says.
pub(crate) fn wait_for<T>(what: impl Fn() -> String, mut check: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain: {}", what());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process; one that is gone already does not mind.
pub(crate) fn signal(process: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether a process runs (one that ended and was not waited for does not).
pub(crate) fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

impl Scene {
    pub(crate) fn new(job: &str) -> Scene {
        let scene =
            Scene { folder: TempDir::new().expect("a folder for the test"), commands: AtomicU32::new(0) };
        scene.write("job.toml", job);
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("the test's folder can be written");
        path
    }

    /// `bellwether ARGUMENTS`, with this scene's state directory and its folder as working directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env_remove("BELLWETHER_STATE_DIR")
            .env_remove("RAYON_NUM_THREADS")
            .env_remove("COLUMNS");
        command
    }

    /// Starts a command with both streams in files.
    pub(crate) fn start_command(&self, mut command: Command) -> Live<'_> {
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let (stdout, stderr) =
            (self.path(&format!("{number}.stdout")), self.path(&format!("{number}.stderr")));
        let file = |path: &Path| File::create(path).expect("the test's folder can be written");
        command.stdout(file(&stdout)).stderr(file(&stderr));
        let child = command.spawn().expect("the program can be started");
        Live { scene: self, child, stdout, stderr }
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Live<'_> {
        self.start_command(self.command(arguments))
    }

    /// Runs a verb to its end.
    pub(crate) fn call(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end()
    }

    /// Starts `run job.toml --format json MORE`.
    pub(crate) fn train(&self, more: &[&str]) -> Live<'_> {
        self.start(&[&["run", "job.toml", "--format", "json"], more].concat())
    }

    /// Starts `run --resume job-1 --format json MORE`.
    pub(crate) fn resume(&self, more: &[&str]) -> Live<'_> {
        self.start(&[&["run", "--resume", "job-1", "--format", "json"], more].concat())
    }

    /// The folder of the job's first run.
    pub(crate) fn run_folder(&self) -> PathBuf {
        self.path("state/bellwether/job-1")
    }

    /// All that the journal of the first run says.
    pub(crate) fn events(&self) -> Vec<Event> {
        let lines = journal::read(&self.run_folder().join("journal.jsonl")).unwrap_or_default();
        lines.into_iter().map(|line| line.event).collect()
    }

    /// The events for which `pick` gives something.
    pub(crate) fn picked<T>(&self, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
        self.events().iter().filter_map(pick).collect()
    }

    /// Committed steps so far.
    pub(crate) fn step(&self) -> u64 {
        let committed = self.picked(|event| match event {
            Event::Committed { last, .. } => Some(last + 1),
            Event::RolledBack { to } => Some(*to),
            _ => None,
        });
        committed.last().copied().unwrap_or(0)
    }

    /// Number and process of the living workers, as the journal names them, by number.
    pub(crate) fn workers(&self) -> Vec<(u64, u32)> {
        let attached = self.picked(|event| match event {
            Event::WorkerAttached { worker, process, .. } => Some((*worker, *process)),
            _ => None,
        });
        let mut living: Vec<(u64, u32)> = attached.into_iter().filter(|(_, p)| self.owns(*p)).collect();
        living.sort_unstable();
        living.dedup();
        living
    }

    /// Whether the process is alive and one of this scene's: its command line names our folder.
    pub(crate) fn owns(&self, process: u32) -> bool {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let folder = self.folder.path().to_string_lossy().into_owned();
        is_alive(process) && String::from_utf8_lossy(&line).contains(&folder)
    }

    /// Kills a worker without a warning.
    pub(crate) fn kill_worker(&self, process: u32) {
        if self.owns(process) {
            signal(process, Signal::KILL);
        }
    }

    /// Where the first run's coordinator listens.
    pub(crate) fn endpoint(&self) -> Endpoint {
        let path = self.run_folder().join("endpoint.json");
        wait_for(|| format!("no {}", path.display()), || serde_json::from_slice(&fs::read(&path).ok()?).ok())
    }

    /// A run with these keys is refused, with a message that has all of `words`.
    #[track_caller]
    pub(crate) fn refuses(&self, sets: &[&str], words: &[&str]) {
        let options: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
        self.call(&[&["run", "job.toml"][..], &options].concat()).refused_with(words);
    }

    /// Proves the exactly-once ledger.
    pub(crate) fn audit(&self) {
        let audit = self.call(&["audit", "job-1"]);
        assert_eq!(audit.code, Some(0), "{}", audit.stderr);
    }

    /// What a failed test should show.
    fn story(&self) -> String {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let mut logs: Vec<PathBuf> = fs::read_dir(self.run_folder())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "log" || e == "jsonl"))
            .filter(|path| !path.ends_with("metrics.jsonl"))
            .collect();
        logs.sort();
        logs.into_iter().map(|path| format!("--- {}\n{}", path.display(), read(path.clone()))).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = std::io::Write::write_all(&mut std::io::stderr(), self.story().as_bytes());
        }
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().into_string().ok()?.parse().ok());
        numbers.filter(|process| self.owns(*process)).for_each(|process| signal(process, Signal::KILL));
    }
}

impl Live<'_> {
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on stderr so far.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    pub(crate) fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.child.id(), which);
    }

    pub(crate) fn try_end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until the first run has committed `step` steps; false when it ended before.
    pub(crate) fn reach(&mut self, step: u64) -> bool {
        let scene = self.scene;
        wait_for(
            || {
                format!(
                    "step {step} of\n{}{}",
                    scene.story(),
                    fs::read_to_string(&self.stderr).unwrap_or_default()
                )
            },
            || {
                let ended = self.child.try_wait().expect("a child can be waited for").is_some();
                if scene.step() >= step { Some(true) } else { ended.then_some(false) }
            },
        )
    }

    /// Waits until the journal of the first run has an event for which `pick` gives something.
    pub(crate) fn until<T>(&self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let scene = self.scene;
        wait_for(|| format!("{what} in\n{}{}", scene.story(), self.stderr()), || scene.picked(&pick).pop())
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let scene = self.scene;
        let status = wait_for(
            || {
                format!(
                    "an end of\n{}{}",
                    scene.story(),
                    fs::read_to_string(&self.stderr).unwrap_or_default()
                )
            },
            || self.child.try_wait().expect("a child can be waited for"),
        );
        Ended { code: status.code(), stdout: self.stdout(), stderr: self.stderr() }
    }

    /// Waits for its end and reads the summary.
    pub(crate) fn summary(self) -> Summary {
        let ended = self.end();
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("no summary ({error}): {ended:?}"))
    }

    /// Kills it without a warning; its workers live on.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Ended {
    /// It was bad input: exit code 2, nothing on stdout, and a message with all of `words`.
    #[track_caller]
    pub(crate) fn refused_with(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self.says(words);
    }

    /// Its message has all of `words`.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) {
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
    }
}
