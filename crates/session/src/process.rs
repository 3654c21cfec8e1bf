//! A run that is led by a process of its own: its command line, its start, whether it lives, and how it is controlled
//! and ended.
//!
//! Whether a process leads a run is asked of the lock in the run's folder and of nothing else, so that a process that
//! was started by another program, which may be dead by now, is found too.

use std::fs::File;
use std::io::Result;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use bellwether_runtime::control::client::{ClientError, Control};
use bellwether_runtime::run_dir::RunDir;

use crate::slurm;

mod kill;
mod resume;
mod started;

pub use resume::Resume;
pub use started::Started;

/// How the process of a run is tied to the one that starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// It goes on when the other one ends, and no Ctrl-C reaches it. Its result is in the run's summary, all else that
    /// it says in the coordinator's log.
    Outlives,
    /// Ctrl-C reaches both. It shows no progress; its errors are in the run's [`said_file`](RunDir::said_file).
    Shares,
}

/// Whether a process leads a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// One does.
    Led,
    /// One does, but not the one that was started here, which has ended.
    LedByAnother,
    /// None does.
    Gone,
}

/// The process that leads a run, whether it was started here or found. Dropping it ends nothing.
#[derive(Debug)]
pub struct RunProcess {
    run: RunDir,
    /// The last one that was started here.
    own: Option<Started>,
}

impl RunProcess {
    /// That of this run, if there is one.
    pub fn of(run: RunDir) -> RunProcess {
        RunProcess { run, own: None }
    }

    /// The run.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Starts one as a process of `program`, which reads the arguments of `how`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error: of the files in the run's folder, or of the program.
    pub fn start(&mut self, program: &Path, how: &Resume, tie: Tie) -> Result<()> {
        let mut command = Command::new(program);
        command.args(how.arguments()?);
        let log = match tie {
            Tie::Outlives => {
                // Empty until the very last line: a reader that finds no whole JSON value in it does not find an old
                // one either.
                let summary = File::options().create(true).append(true).open(self.run.summary_file())?;
                summary.set_len(0)?;
                command.stdout(summary).process_group(0);
                self.run.coordinator_log()
            }
            Tie::Shares => {
                command.stdout(Stdio::null()).env("BELLWETHER_NO_PROGRESS", "1");
                File::create(self.run.said_file())?;
                self.run.said_file()
            }
        };
        self.own = Some(Started::new(&mut command, &log)?);
        Ok(())
    }

    /// The process that was started here last.
    pub fn own(&mut self) -> Option<&mut Started> {
        self.own.as_mut()
    }

    /// Forgets the process that was started here, once it has ended. Says whether none is left here.
    pub fn forget_ended(&mut self) -> bool {
        let runs = self.own.as_mut().is_some_and(|own| matches!(own.exit(), Ok(None)));
        if !runs {
            self.own = None;
        }
        !runs
    }

    /// Finds out whether a process leads the run.
    pub fn look(&mut self) -> Life {
        if self.own.as_mut().is_some_and(|own| matches!(own.exit(), Ok(None))) {
            return Life::Led;
        }
        match self.run.is_alive() {
            // Another one was faster.
            Ok(true) if self.own.take().is_some() => Life::LedByAnother,
            Ok(true) => Life::Led,
            Ok(false) | Err(_) => Life::Gone,
        }
    }

    /// The control plane of the process with this number, as the run's journal has it.
    ///
    /// # Errors
    ///
    /// Returns an error if that process does not listen (yet), or does not answer.
    pub fn control(&self, process: Option<u32>) -> std::result::Result<Control, ClientError> {
        let unreachable = |why: &str| ClientError::Unreachable {
            address: self.run.path.display().to_string(),
            why: why.into(),
        };
        let endpoint = self.run.endpoint().filter(|endpoint| Some(endpoint.process) == process);
        let endpoint = endpoint.ok_or_else(|| unreachable("it does not listen yet"))?;
        let token = self.run.token().map_err(|_| unreachable("its token cannot be read"))?;
        Control::connect(&endpoint.control.to_string(), &token)
    }

    /// Kills the process that leads the run, and all workers of the run on this machine. `process` is its number, as
    /// the run's journal has it.
    pub fn kill(&mut self, process: Option<u32>) {
        if let Some(own) = &mut self.own {
            own.kill();
        }
        if let Some(process) = process {
            kill::coordinator(&self.run, process);
        }
        kill::workers(&self.run);
        if matches!(self.run.cluster_jobs(), Ok(Some(_))) {
            // Slurm may take its time, and jobs that are left end by themselves.
            let run = self.run.clone();
            std::thread::spawn(move || slurm::end_jobs(&run));
        }
    }

    /// Why the process is gone that leads the run no longer, and did not say so in the journal.
    pub fn why_gone(&mut self) -> String {
        let log = self.run.coordinator_log();
        let log = log.display();
        let Some(own) = &mut self.own else {
            return format!("its coordinator is gone without a word; {log} may tell more");
        };
        let complaint = own.complaint();
        match own.exit() {
            Ok(Some(exit)) if exit.code().is_some() && !complaint.is_empty() => complaint,
            Ok(Some(exit)) => format!("its coordinator ended without a word ({exit}); {log} may tell more"),
            _ => format!("its coordinator is gone without a word; {log} may tell more"),
        }
    }
}
