//! The process of a script that declares its job and follows the run.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bellwether_core::InputError;
use bellwether_runtime::run_dir::RunDir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};

use super::{Declaration, Script};
use crate::error::at;
use crate::scratch::Scratch;

/// Most bytes of a declaration: the names of a very large model.
const DECLARATION_MAX: u64 = 64 << 20;

/// Where what a script prints goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// To this program's output.
    Output,
    /// To this program's errors: its output is data.
    Errors,
}

/// Tells whether the process of a lead lives, and whether a run missed it.
#[derive(Debug, Clone)]
pub struct LeadWatch {
    /// `None` where the system does not tell: then it counts as alive.
    process: Option<Arc<OwnedFd>>,
    was_missed: Arc<AtomicBool>,
}

impl LeadWatch {
    fn of(process: Option<Pid>) -> LeadWatch {
        let process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        LeadWatch { process: process.map(Arc::new), was_missed: Arc::default() }
    }

    /// Whether its process has ended.
    pub fn is_gone(&self) -> bool {
        self.process.as_deref().is_some_and(has_ended)
    }

    /// Whether the run was stopped because its workers waited for it in vain.
    pub fn was_missed(&self) -> bool {
        self.was_missed.load(Ordering::Relaxed)
    }

    pub(crate) fn miss(&self) {
        self.was_missed.store(true, Ordering::Relaxed);
    }
}

/// Whether a process has ended, also one that was not waited for yet.
pub(super) fn has_ended(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|n| n > 0)
}

/// The process that leads a script's run. Dropping it ends nothing.
#[derive(Debug)]
pub struct Lead {
    /// `None`: the lead has started this process.
    child: Option<Child>,
    /// Where the lead waits for the run's folder.
    tell: Option<File>,
    /// Its initial weights lie here until it is dropped.
    _folder: Option<Scratch>,
    name: String,
    watch: LeadWatch,
}

impl Lead {
    /// Asks a script what its job is, in a process that ends thereupon.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be started, or declares no job; what it says of that is where its output goes.
    pub fn declare(script: &Script, weights: bool) -> Result<(Lead, Declaration), InputError> {
        let (mut lead, declaration) = Lead::begin(script, "declare", Output::Errors, weights)?;
        if let Some(mut child) = lead.child.take() {
            // It has said what was to be said.
            let _ = child.wait();
        }
        Ok((lead, declaration))
    }

    /// Starts a script as the lead of a run that is about to begin, and waits for its declaration.
    ///
    /// # Errors
    ///
    /// See [`declare`](Lead::declare).
    pub fn start(script: &Script, output: Output) -> Result<(Lead, Declaration), InputError> {
        Lead::begin(script, "lead", output, true)
    }

    /// Takes the declaration of a lead that has started this process, from the pipe `from`; it waits at the pipe `to`.
    ///
    /// # Errors
    ///
    /// Returns an error if these are not open, or nothing is declared.
    pub fn of_pipes(from: u32, to: u32) -> Result<(Lead, Declaration), InputError> {
        let open = |number: u32, write: bool| {
            let path = format!("/dev/fd/{number}");
            File::options().read(!write).write(write).open(&path).map_err(|error| at("--led-by", error))
        };
        let (from, tell) = (open(from, false)?, open(to, true)?);
        let name = "the script".to_string();
        let line = line(from).map_err(|error| at("--led-by", error))?;
        let declaration = Declaration::read(&line, &name)?;
        let watch = LeadWatch::of(getppid());
        let lead = Lead { child: None, tell: Some(tell), _folder: None, name, watch };
        Ok((lead, declaration))
    }

    fn begin(
        script: &Script,
        role: &str,
        output: Output,
        weights: bool,
    ) -> Result<(Lead, Declaration), InputError> {
        let name = script.name();
        let system = |error: io::Error| at(&name, format!("it cannot be started: {error}"));
        let folder = weights.then(|| Scratch::new("lead")).transpose()?;
        let (declared, declare) = io::pipe().map_err(system)?;
        let (follow, tell) = io::pipe().map_err(system)?;
        fcntl_setfd(&declare, FdFlags::empty()).map_err(|error| system(error.into()))?;
        fcntl_setfd(&follow, FdFlags::empty()).map_err(|error| system(error.into()))?;
        let told = serde_json::json!({
            "declare_fd": declare.as_raw_fd(),
            "follow_fd": follow.as_raw_fd(),
            "initial_file": folder.as_ref().map(|folder| folder.0.join("initial.f32")),
        });
        let mut command = script.command();
        command.env("BELLWETHER_ROLE", role).env("BELLWETHER_LEAD", told.to_string()).stdin(Stdio::null());
        if output == Output::Errors {
            command.stdout(io::stderr());
        }
        let child = command.spawn().map_err(|error| not_started(script, &error))?;
        drop((declare, follow));
        let tell = File::from(std::os::fd::OwnedFd::from(tell));
        let watch = LeadWatch::of(i32::try_from(child.id()).ok().and_then(Pid::from_raw));
        let name_of = name.clone();
        let mut lead = Lead { child: Some(child), tell: Some(tell), _folder: folder, name: name_of, watch };
        let line = line(declared).map_err(system)?;
        if line.is_empty() {
            return Err(lead.undeclared());
        }
        Ok((lead, Declaration::read(&line, &name)?))
    }

    /// The script ended without a declaration.
    fn undeclared(&mut self) -> InputError {
        let ended = self.child.as_mut().and_then(|child| child.wait().ok());
        let what = match ended.and_then(|ended| ended.code()) {
            Some(0) => "it ended without declaring a job".to_string(),
            Some(code) => {
                let what = format!("it failed before it declared a job (exit code {code})");
                return InputError::new(&self.name, what).hint("what it said stands above");
            }
            None => "it was killed before it declared a job".to_string(),
        };
        let hint = "a script declares its job where it calls bellwether: run.epochs(…), run.steps(…), fit(…) or train(…)";
        InputError::new(&self.name, what).hint(hint)
    }

    /// Tells whether its process lives.
    pub fn watch(&self) -> LeadWatch {
        self.watch.clone()
    }

    /// Tells the lead that the run has begun, and where it is.
    pub fn follow(&mut self, run: &RunDir) {
        let Some(mut tell) = self.tell.take() else { return };
        let path = std::path::absolute(&run.path).unwrap_or_else(|_| run.path.clone());
        let line = format!("{}\n", serde_json::json!({ "run": path }));
        // A lead that has ended follows nothing.
        let _ = tell.write_all(line.as_bytes());
    }

    /// Waits until the script has done what is left to do after the run.
    ///
    /// # Errors
    ///
    /// Returns an error if it fails; it has said why.
    pub fn wait(mut self) -> Result<(), InputError> {
        self.tell = None;
        let Some(child) = &mut self.child else { return Ok(()) };
        let ended = child.wait().map_err(|error| at(&self.name, error))?;
        if ended.success() {
            return Ok(());
        }
        let what =
            format!("it failed beside or after the training ({ended}); the trained parameters are kept");
        Err(InputError::new(&self.name, what).hint("what it said stands above"))
    }
}

/// One line, without its end; what was written of it if its writer is gone.
fn line(from: impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(from.take(DECLARATION_MAX)).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn not_started(script: &Script, error: &io::Error) -> InputError {
    let python = script.python.display();
    InputError::new("python", format!("`{python}` cannot be started: {error}"))
        .hint("name an interpreter with --python, for example --python venv/bin/python")
}
