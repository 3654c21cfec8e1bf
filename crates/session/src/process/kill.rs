//! Ends the processes of a run that do not end by themselves.

use std::fs;
use std::path::Path;

use bellwether_runtime::run_dir::{RunDir, words_of_process};
use rustix::process::{Pid, Signal, kill_process};

/// Kills the process with this number if it has the lock of `run` open, as only a coordinator of it has.
pub(super) fn coordinator(run: &RunDir, process: u32) {
    let Ok(lock) = fs::canonicalize(run.lock_file()) else { return };
    let opened = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    if opened.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == lock) {
        kill(process);
    }
}

/// Kills all workers of `run` on this machine.
pub(super) fn workers(run: &RunDir) {
    let Ok(path) = std::path::absolute(&run.path) else { return };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let token = RunDir::at(&path).token_file();
    numbers.filter(|process| is_worker(*process, &token)).for_each(kill);
}

/// Whether the process is a worker that holds this token.
fn is_worker(process: u32, token: &Path) -> bool {
    let words = words_of_process(process);
    words.get(1).is_some_and(|word| word == "worker")
        && words.windows(2).any(|pair| pair[0] == "--token-file" && Path::new(&pair[1]) == token)
}

fn kill(process: u32) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // One that is gone already needs no signal.
        let _ = kill_process(process, Signal::KILL);
    }
}
