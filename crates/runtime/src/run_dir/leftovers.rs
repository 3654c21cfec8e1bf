//! Workers and servers that an earlier coordinator of a run started, and that are still there.
//!
//! They are not children of this process. One that stands still does not hear that the run is over, and one that looks
//! for a coordinator would go on looking: the journal has their numbers.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::words::words_of_process;
use crate::journal::RunHistory;
use crate::membership::WorkerId;

/// Processes by the number of their worker or server.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(BTreeMap<WorkerId, u32>);

/// One of them that still runs.
pub(crate) struct Leftover(OwnedFd);

impl Leftovers {
    /// Those that the journal names.
    pub(crate) fn of(history: &RunHistory) -> Leftovers {
        Leftovers(history.processes().collect())
    }

    /// Those that still run.
    pub(crate) fn alive(&self, folder: &Path) -> Vec<Leftover> {
        let alive = |(number, process): (&WorkerId, &u32)| {
            let pid = Pid::from_raw(i32::try_from(*process).ok()?)?;
            // Whatever is found out from here on is of this process, and so is the signal.
            let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            is_of_run(*process, *number, folder).then_some(Leftover(handle))
        };
        self.0.iter().filter_map(alive).collect()
    }
}

impl Leftover {
    /// Ends it, even if it stands still.
    pub(crate) fn kill(&self) {
        // One that has ended meanwhile is what is wanted.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }

    /// Asks it to end, which one that stands still does not hear.
    pub(super) fn ask(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::TERM);
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&self) -> bool {
        // The handle can be read once it has.
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&Timespec::default()))
            .is_ok_and(|ready| ready > 0)
    }
}

/// A worker that was forked from another process shows that one's words, which name no worker: 0.
fn is_number(word: &str, number: WorkerId) -> bool {
    word.parse().is_ok_and(|said: WorkerId| said == number || said == 0)
}

/// Whether a process calls itself by this number and has a file of this run's folder: its number may be another's by
/// now.
fn is_of_run(process: u32, number: WorkerId, folder: &Path) -> bool {
    let arguments = words_of_process(process);
    let named = arguments.windows(2).any(|pair| {
        ["--worker-id", "--server-id"].contains(&pair[0].as_str()) && is_number(&pair[1], number)
    });
    let folder = std::fs::canonicalize(folder).ok();
    let working = PathBuf::from(format!("/proc/{process}/cwd"));
    let within = |argument: &String| {
        let path = std::fs::canonicalize(working.join(argument)).ok();
        path.zip(folder.as_ref()).is_some_and(|(path, folder)| path.starts_with(folder))
    };
    named && arguments.iter().any(within)
}

#[cfg(test)]
mod tests {
    use bellwether_core::record::{Event as Journaled, Line};

    use super::*;

    #[test]
    fn only_started_workers_with_the_runs_folder_in_their_command_line_are_leftovers() {
        let folder = tempfile::tempdir().expect("a folder");
        let token = folder.path().join("token");
        std::fs::write(&token, "x").expect("a file");
        let sleeper = |number: &str, path: &Path| {
            let script = std::process::Command::new("sh")
                .args(["-c", "read line", "--worker-id", number, "--token-file"])
                .arg(path)
                .stdin(std::process::Stdio::piped())
                .spawn();
            let script = script.expect("a shell");
            // Its words are those of this process until it runs the shell, and none for a moment.
            while !words_of_process(script.id()).contains(&"read line".to_string()) {
                std::thread::yield_now();
            }
            script
        };
        let mut children =
            [sleeper("3", &token), sleeper("4", &token), sleeper("5", Path::new("/etc/passwd"))];
        let line = |event| Line { time_s: 0.0, event };
        let attached = |worker, process| Journaled::WorkerAttached {
            worker,
            process,
            address: String::new(),
            held_step: None,
        };
        let [started, by_hand, stranger] = [children[0].id(), children[1].id(), children[2].id()];
        let lines = [
            line(Journaled::WorkerStarted { worker: 3 }),
            line(attached(3, started)),
            line(attached(4, by_hand)),
            line(Journaled::WorkerStarted { worker: 5 }),
            line(attached(5, stranger)),
            line(Journaled::WorkerStarted { worker: 6 }),
        ];
        let leftovers = Leftovers::of(&lines.iter().collect());
        assert_eq!(leftovers.0, BTreeMap::from([(3, started), (5, stranger)]));
        let alive = leftovers.alive(folder.path());
        assert_eq!(alive.len(), 1);
        alive[0].kill();
        assert!(!children[0].wait().expect("it ends").success());
        for child in &mut children[1..] {
            assert!(child.try_wait().expect("a child").is_none(), "it is not ours to end");
            child.kill().expect("a child");
            child.wait().expect("a child");
        }
    }
}
