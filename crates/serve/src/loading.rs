//! Learns the size of a job's task in a process of its own, which has a limit of memory and of time.
//!
//! Clients name data, and the path of a file can be that of anything: larger than all memory, or on a file system that
//! does not answer. What goes wrong there ends with the process that tried, and the daemon goes on.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::units::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::ledger::Task;
use crate::snapshot::ErrorBody;

/// Most bytes of an answer that are read.
const ANSWER_BYTES: u64 = 1 << 20;

/// The longest pause between two looks at whether the process has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What loading a job's data may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadLimits {
    /// Bytes of memory; no file may be larger.
    pub memory: Bytes,
    /// How long it may take.
    pub patience: Duration,
}

impl Default for LoadLimits {
    fn default() -> LoadLimits {
        LoadLimits { memory: Bytes(8 << 30), patience: Duration::from_secs(60) }
    }
}

/// Learns the size of a job's task; may take as long as its data take to load.
pub type Describe = Arc<dyn Fn(&Job) -> Result<Task, InputError> + Send + Sync>;

/// What the process answers: the size of the task, or what is wrong with it.
pub type Answer = Result<Task, ErrorBody>;

/// Learns the size of tasks with `PROGRAM describe --memory SIZE`, which gets a job as JSON on its standard input and
/// writes an [`Answer`] as JSON to its standard output.
pub fn in_process(program: PathBuf, limits: LoadLimits) -> Describe {
    Arc::new(move |job| {
        load(&program, limits, job).unwrap_or_else(|error| {
            let error = InputError::new("serve", format!("its data cannot be looked at: {error}"));
            Err(error.hint("try again later"))
        })
    })
}

/// Files in memory instead of pipes: neither end ever waits for the other.
fn load(program: &Path, limits: LoadLimits, job: &Job) -> io::Result<Result<Task, InputError>> {
    let file = |name| memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
    let (mut question, mut answer) = (file("job")?, file("task")?);
    serde_json::to_writer(&question, job)?;
    question.rewind()?;
    let mut command = Command::new(program);
    command.args(["describe", "--memory", &format!("{}B", limits.memory.0)]);
    let child = command.stdin(question).stdout(answer.try_clone()?).stderr(Stdio::null()).spawn()?;
    let Some(status) = wait(child, limits.patience)? else {
        let what = format!("the data are not loaded after {} s", limits.patience.as_secs_f64());
        let hint = "does the file system answer? `bellwether serve --load-timeout TIME` allows more";
        return Ok(Err(InputError::new("data", what).hint(hint)));
    };
    answer.rewind()?;
    let mut text = Vec::new();
    answer.take(ANSWER_BYTES).read_to_end(&mut text)?;
    Ok(match serde_json::from_slice::<Answer>(&text) {
        Ok(answer) => {
            answer.map_err(|ErrorBody { error, place, hint }| InputError::new(place, error).hint(hint))
        }
        Err(_) => Err(unanswered(status, limits)),
    })
}

/// A process that gets no memory cannot report it.
fn unanswered(status: ExitStatus, limits: LoadLimits) -> InputError {
    let memory = limits.memory;
    let what =
        format!("the task cannot be built in {memory} of memory: the process that tried ended ({status})");
    InputError::new("job", what)
        .hint("use less data or a smaller model; `bellwether serve --load-memory SIZE` allows more")
}

/// Waits for its end, and ends it when patience is at its own; `None` then.
fn wait(mut child: Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let (since, mut pause) = (Instant::now(), Duration::from_millis(1));
    while since.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    }
    child.kill()?;
    // One that waits for a dead file system does not even die at once.
    std::thread::spawn(move || child.wait());
    Ok(None)
}
