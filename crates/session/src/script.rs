//! Jobs that a Python script declares: the script as a command, what it says, and the process that leads its run.
//!
//! ```text
//!  this process ── starts ──► the lead = PYTHON SCRIPT ARGUMENTS: says what the job is, and then follows the run
//!       └── coordinator ── starts ──► workers = the same command in another role: they compute
//! ```
//!
//! The lead does what has to happen once: it evaluates, prints and saves. It computes no gradient, and training does
//! not depend on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::{Job, Model};
use bellwether_runtime::run_dir::WORKER_VARIABLE;
use bellwether_runtime::workload::Workload;

mod declaration;
pub(crate) mod fork;
mod lead;

pub use declaration::Declaration;
pub use lead::{Lead, LeadWatch, Output};

use declaration::Declared;

/// A script with its arguments and the interpreter that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The script's file.
    pub path: PathBuf,
    /// What it finds in `sys.argv` after its name.
    pub arguments: Vec<String>,
    /// The interpreter.
    pub python: PathBuf,
    /// Variables that its processes start with, beside those of this one.
    pub environment: BTreeMap<String, String>,
}

impl Script {
    /// The script in this file, by the interpreter that is asked for, or else by the one of the environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is not there, or no interpreter is found.
    pub fn new(path: &Path, arguments: Vec<String>, python: Option<&Path>) -> Result<Script, InputError> {
        let place = path.display().to_string();
        if !path.is_file() {
            let hint = "`bellwether run SCRIPT.py` takes the path of a Python script";
            return Err(InputError::new(place, "there is no such file").hint(hint));
        }
        let path = std::path::absolute(path).map_err(|e| InputError::new(place, e))?;
        let python = match python {
            Some(python) => python.to_path_buf(),
            None => interpreter()?,
        };
        Ok(Script { path, arguments, python, environment: BTreeMap::new() })
    }

    /// The same, started with these variables beside those of this process.
    #[must_use]
    pub fn variables(self, environment: BTreeMap<String, String>) -> Script {
        Script { environment, ..self }
    }

    /// The script of a job, if one trains it.
    ///
    /// # Errors
    ///
    /// See [`new`](Script::new).
    pub fn of(job: &Job) -> Result<Option<Script>, InputError> {
        match &job.model {
            Model::Python { script, arguments, python, environment, .. } => {
                let found = Script::new(script, arguments.clone(), python.as_deref())?;
                Ok(Some(found.variables(environment.clone())))
            }
            _ => Ok(None),
        }
    }

    /// The command line of each of its processes.
    pub fn command_line(&self) -> Vec<OsString> {
        let words = [self.python.clone().into(), self.path.clone().into()];
        words.into_iter().chain(self.arguments.iter().map(OsString::from)).collect()
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn command(&self) -> Command {
        let mut words = self.command_line().into_iter();
        let mut command = Command::new(words.next().expect("a command line begins with the interpreter"));
        command.args(words);
        prepare(&mut command);
        command.envs(&self.environment);
        command
    }
}

/// Makes what decides bits the same in every process of a script, before it imports anything. What the user has set
/// stays.
pub fn prepare(command: &mut Command) {
    let variables = [
        // The order of sets of strings would differ from process to process.
        ("PYTHONHASHSEED", "0"),
        ("PYTHONUNBUFFERED", "1"),
        // JAX on several processor threads gives other results from call to call (jax#39741).
        ("NPROC", "1"),
        // The threads of NumPy's library decide bits too, and a process that has some cannot be forked whole.
        ("OPENBLAS_NUM_THREADS", "1"),
        ("TF_CPP_MIN_LOG_LEVEL", "2"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ];
    for (name, value) in variables {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    if let Ok(own) = std::env::current_exe() {
        command.env("BELLWETHER_COMMAND", own);
    }
}

/// The interpreter of the environment: the one that this program was installed beside, that of the active environment,
/// or the system's.
fn interpreter() -> Result<PathBuf, InputError> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("python")));
    let active = std::env::var_os("VIRTUAL_ENV").map(|folder| PathBuf::from(folder).join("bin/python"));
    let search = std::env::var_os("PATH").unwrap_or_default();
    let system = std::env::split_paths(&search).map(|folder| folder.join("python3"));
    let tried = beside.into_iter().chain(active).chain(system);
    tried.into_iter().find(|python| python.is_file()).ok_or_else(|| {
        InputError::new(
            "python",
            "no Python interpreter is found beside this program, in $VIRTUAL_ENV or on $PATH",
        )
        .hint("name one with --python, for example --python venv/bin/python")
    })
}

/// What a worker that runs a script is told of the run it joins.
#[derive(Debug, Clone, serde::Serialize)]
pub struct WorkerOptions {
    /// The coordinator's control plane, `host:port`.
    pub join: String,
    /// The file that says where it is, for a job of a cluster.
    pub ticket: Option<PathBuf>,
    /// File with the run's token.
    pub token_file: PathBuf,
    /// The worker's number; 0 asks the coordinator for one.
    pub worker: u64,
    /// Where its data plane listens.
    pub listen: String,
    /// How long it waits when the coordinator is gone.
    pub orphan_timeout_s: f64,
    /// Who may say that the machine will be taken away, as `--notices` names them.
    pub notices: Vec<String>,
    /// Time between two questions to each of them.
    pub notice_interval_s: f64,
    /// Whether it applies the model instead of training it.
    pub infer: bool,
}

impl WorkerOptions {
    /// The variable that holds these.
    fn variable(&self) -> (&'static str, String) {
        (WORKER_VARIABLE, serde_json::json!(self).to_string())
    }

    /// What makes a process of a script a worker.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        // Habits of launchers: one device each; how many processes there are is not the script's to know.
        [("BELLWETHER_ROLE", "worker".into()), self.variable(), ("LOCAL_RANK", "0".into())]
    }

    /// By these the process is recognised that forks the workers of a run: it may be any of them.
    fn of_fork_server(token_file: &Path) -> WorkerOptions {
        let token_file = token_file.to_path_buf();
        WorkerOptions {
            join: String::new(),
            ticket: None,
            token_file,
            worker: 0,
            listen: String::new(),
            orphan_timeout_s: 0.0,
            notices: Vec::new(),
            notice_interval_s: 0.0,
            infer: false,
        }
    }
}

/// What a script declared, as it is handed to those who start its workers.
#[derive(Debug, Clone)]
pub struct Trained(Arc<Declaration>);

impl Trained {
    /// What this declaration describes.
    pub fn new(declaration: Declaration) -> Trained {
        Trained(Arc::new(declaration))
    }

    /// What it said.
    pub fn declaration(&self) -> &Declaration {
        &self.0
    }

    /// The workload as far as it is known here: its layout and its numbers of samples. Its workers compute.
    pub fn workload(&self) -> Box<dyn Workload> {
        Box::new(Declared::new(&self.0))
    }

    /// The command line of its workers.
    pub fn command_line(&self) -> Vec<OsString> {
        self.0.script().command_line()
    }

    /// The variables that its workers start with, beside those of this process.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.0.environment()
    }

    /// What its processes have imported, for those from which workers are forked.
    pub fn modules(&self) -> &[String] {
        &self.0.modules
    }

    /// Whether its workers compute on GPUs.
    pub(crate) fn uses_gpus(&self) -> bool {
        let model = self.0.job.get("model");
        model.and_then(|model| model.get("device")?.as_str()).is_some_and(|device| device != "cpu")
    }

    /// The file of the initial weights, where there is one.
    pub fn initial_weights(&self) -> Option<PathBuf> {
        self.0.initial.clone()
    }
}
