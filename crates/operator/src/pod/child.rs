//! Processes that a pod's program has started, and how they end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus};

use super::signals;

/// Processes of one kind.
#[derive(Debug)]
pub(super) struct Children {
    running: Vec<Child>,
    /// The code of the first that failed.
    code: u8,
}

impl Children {
    pub(super) fn new(running: Vec<Child>) -> Children {
        Children { running, code: 0 }
    }

    /// Passes on that they should end.
    pub(super) fn terminate(&self) {
        self.running.iter().for_each(|child| signals::terminate(child.id()));
    }

    /// The exit code, once all have ended: that of the first that failed.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitCode>> {
        let mut still = Vec::with_capacity(self.running.len());
        for mut child in std::mem::take(&mut self.running) {
            match child.try_wait()? {
                Some(status) if self.code == 0 => self.code = code_of(status),
                Some(_) => {}
                None => still.push(child),
            }
        }
        self.running = still;
        Ok(self.running.is_empty().then(|| ExitCode::from(self.code)))
    }
}

/// The exit code as a shell tells it: of a process that a signal ended, 128 and its number.
pub(super) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_first_failure_is_the_code() {
        let start = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let mut children =
            Children::new(vec![start("exit 0"), start("exit 7"), start("kill -TERM $$; sleep 9")]);
        let code = loop {
            match children.ended().unwrap() {
                Some(code) => break code,
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        assert!(code != ExitCode::SUCCESS && [7, 143].contains(&children.code), "{}", children.code);
        let killed = start("kill -KILL $$").wait().unwrap();
        assert_eq!(code_of(killed), 137);
    }
}
