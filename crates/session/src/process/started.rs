//! A process that was started to lead a run, and what it says.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bellwether_runtime::run_dir::RunDir;
use rustix::process::{Pid, Signal, kill_process};

/// Bytes at the end of a log that are looked at.
const COMPLAINT_BYTES: u64 = 4096;

/// Lines of a log that are shown where none is marked as an error.
const COMPLAINT_LINES: usize = 3;

/// A process that was started to lead a run. Dropping it ends nothing.
#[derive(Debug)]
pub struct Started {
    child: Child,
    log: PathBuf,
    /// Where its part of the log begins.
    log_bytes: u64,
}

impl Started {
    /// Starts `command`. It reads nothing, and its errors go to the end of the file `log`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, of the log or of the program.
    pub fn new(command: &mut Command, log: &Path) -> Result<Started> {
        let file = open(log)?;
        let log_bytes = file.metadata()?.len();
        let child = command.stdin(Stdio::null()).stderr(file).spawn()?;
        Ok(Started { child, log: log.into(), log_bytes })
    }

    /// The same, and what it prints goes to the log, too.
    ///
    /// # Errors
    ///
    /// See [`new`](Started::new).
    pub fn logged(command: &mut Command, log: &Path) -> Result<Started> {
        Started::new(command.stdout(open(log)?), log)
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it leads `run`: the run's control plane is this process's.
    pub fn leads(&self, run: &RunDir) -> bool {
        run.endpoint().is_some_and(|endpoint| endpoint.process == self.id())
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn exit(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        // One that has ended is what is wanted.
        let _ = self.child.kill();
    }

    /// Ends it: it is interrupted, as by Ctrl-C, so that it ends what it has started, and killed if it does not leave
    /// within `patience`.
    pub fn end(&mut self, patience: Duration) {
        let runs = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if !runs(&mut self.child) {
            return;
        }
        if let Some(process) = i32::try_from(self.id()).ok().and_then(Pid::from_raw) {
            // One that is gone already needs no signal.
            let _ = kill_process(process, Signal::INT);
        }
        let since = Instant::now();
        while runs(&mut self.child) && since.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        // It was killed, or has ended.
        let _ = self.child.wait();
    }

    /// What it wrote to its log, the last `bytes` at most; empty if the log cannot be read.
    pub fn said(&self, bytes: u64) -> String {
        let read = || -> Result<Vec<u8>> {
            let file = File::open(&self.log)?;
            let length = file.metadata()?.len();
            let from = self.log_bytes.max(length.saturating_sub(bytes));
            let mut bytes = vec![0; usize::try_from(length.saturating_sub(from)).unwrap_or(0)];
            let read = file.read_at(&mut bytes, from)?;
            bytes.truncate(read);
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    /// What it complained of last, in one line; empty if it said nothing.
    pub fn complaint(&self) -> String {
        let text = self.said(COMPLAINT_BYTES);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let error = lines.iter().rposition(|line| line.starts_with("error: "));
        let told = &lines[error.unwrap_or(lines.len().saturating_sub(COMPLAINT_LINES))..];
        let told = told.join("; ");
        told.strip_prefix("error: ").unwrap_or(&told).to_string()
    }
}

fn open(log: &Path) -> Result<File> {
    File::options().create(true).append(true).mode(0o600).open(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(script: &str, log: &Path) -> String {
        let mut started = Started::new(Command::new("sh").args(["-c", script]), log).expect("a shell");
        started.child.wait().expect("it ends");
        started.complaint()
    }

    #[test]
    fn a_complaint_is_the_last_error_of_the_last_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("coordinator.log");
        assert_eq!(complaint("true", &log), "");
        let steps = "printf 'error: old\\nstep 1\\nstep 2\\nstep 3\\nstep 4\\n' >&2";
        assert_eq!(complaint(steps, &log), "old; step 1; step 2; step 3; step 4");
        assert_eq!(
            complaint("printf 'step 1\\nstep 2\\nstep 3\\nstep 4\\n' >&2", &log),
            "step 2; step 3; step 4"
        );
        let error = "printf 'step 1\\nerror: data.path: no such file\\n  hint: look for it\\n' >&2";
        assert_eq!(complaint(error, &log), "data.path: no such file; hint: look for it");
        assert_eq!(complaint("true", &log), "");
    }
}
