//! Starts a coordinator, reads what it complains of, and ends what does not end by itself.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Result;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bellwether_runtime::run_dir::RunDir;
use rustix::process::{Pid, Signal, kill_process};

use crate::runner::Wanted;

/// Bytes at the end of a coordinator's log that are looked at.
const COMPLAINT_BYTES: u64 = 4096;

/// Lines of a log that are shown where none is marked as an error.
const COMPLAINT_LINES: usize = 3;

/// A coordinator that was started.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) child: Child,
    /// Where its part of the log begins.
    pub(super) log_bytes: u64,
}

/// Starts a coordinator in a process group of its own, which no Ctrl-C reaches and which lives on without us.
pub(super) fn launch(program: &Path, wanted: &Wanted) -> Result<Launched> {
    let path = std::path::absolute(&wanted.run)?;
    let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    let run = RunDir::at(&path);
    let log = File::options().create(true).append(true).open(run.coordinator_log())?;
    let log_bytes = log.metadata()?.len();
    // Empty until the very last line: a reader that finds no whole JSON value in it does not find an old one either.
    let summary = File::options().create(true).append(true).open(run.summary_file())?;
    summary.set_len(0)?;
    let mut resume = OsString::from("--resume=");
    resume.push(name);
    let mut command = Command::new(program);
    command.arg("run").arg(resume).arg("--state-dir").arg(folder);
    command.arg("--workers").arg(wanted.workers.to_string()).args(["--format", "json", "--served"]);
    if wanted.speed < 1.0 {
        command.arg(format!("--speed={}", wanted.speed));
    }
    if let Some(address) = lost_address(&run) {
        command.arg("--listen").arg(SocketAddr::new(address.ip(), 0).to_string());
    }
    let child = command.stdin(Stdio::null()).stdout(summary).stderr(log).process_group(0).spawn()?;
    Ok(Launched { child, log_bytes })
}

/// Where the coordinator that died listened, if another process listens there now: its workers will never find another
/// coordinator, and end.
fn lost_address(run: &RunDir) -> Option<SocketAddr> {
    let address = run.endpoint()?.control;
    let taken = TcpListener::bind(address).is_err_and(|e| e.kind() == std::io::ErrorKind::AddrInUse);
    if taken {
        kill_workers(&run.path);
    }
    taken.then_some(address)
}

/// What a coordinator complained of in the log of `run` from `log_bytes` on, in one line; empty where it said nothing.
pub(super) fn complaint(run: &Path, log_bytes: u64) -> String {
    let read = || -> Result<Vec<u8>> {
        let file = File::open(RunDir::at(run).coordinator_log())?;
        let length = file.metadata()?.len();
        let from = log_bytes.max(length.saturating_sub(COMPLAINT_BYTES));
        let mut bytes = vec![0; usize::try_from(length.saturating_sub(from)).unwrap_or(0)];
        let read = file.read_at(&mut bytes, from)?;
        bytes.truncate(read);
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = lines.iter().rposition(|line| line.starts_with("error: "));
    let told = &lines[error.unwrap_or(lines.len().saturating_sub(COMPLAINT_LINES))..];
    let told = told.join("; ");
    told.strip_prefix("error: ").unwrap_or(&told).to_string()
}

/// Kills the process with this number if it has the lock of `run` open, as only a coordinator of it has.
pub(super) fn kill_coordinator(run: &Path, process: u32) {
    let Ok(lock) = fs::canonicalize(RunDir::at(run).lock_file()) else { return };
    let opened = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    if opened.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == lock) {
        kill(process);
    }
}

/// Kills all workers of `run` on this machine.
pub(super) fn kill_workers(run: &Path) {
    let Ok(run) = std::path::absolute(run) else { return };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let token = RunDir::at(run).token_file();
    numbers.filter(|process| is_worker(*process, &token)).for_each(kill);
}

/// Whether the process is a worker that holds this token.
fn is_worker(process: u32, token: &PathBuf) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<&OsStr> = line.split(|byte| *byte == 0).map(OsStr::from_bytes).collect();
    words.get(1) == Some(&OsStr::new("worker"))
        && words.windows(2).any(|pair| pair[0] == "--token-file" && Path::new(pair[1]) == token)
}

fn kill(process: u32) {
    if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // One that is gone already needs no signal.
        let _ = kill_process(process, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_the_last_error_of_the_last_start() {
        let folder = tempfile::tempdir().unwrap();
        let say = |text: &str| fs::write(folder.path().join("coordinator.log"), text).unwrap();
        assert_eq!(complaint(folder.path(), 0), "");
        say("error: old\nstep 1\nstep 2\nstep 3\nstep 4\n");
        assert_eq!(complaint(folder.path(), 11), "step 2; step 3; step 4");
        say("step 1\nerror: data.path: no such file\n  hint: look for it\n");
        assert_eq!(complaint(folder.path(), 0), "data.path: no such file; hint: look for it");
        assert_eq!(complaint(folder.path(), 1000), "");
    }
}
