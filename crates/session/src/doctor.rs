//! Whether a machine can train, as far as that can be found out in a moment: what is there and what to do.
//!
//! Each check tells what it found. None of them changes anything but for a file that is written and removed again.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// Free memory below which the smallest job may fail, and below which a larger one may.
const MEMORY_LEAST: u64 = 128 << 20;
const MEMORY_LITTLE: u64 = 1 << 30;

/// Free space below which no checkpoint can be written, and below which it soon cannot.
const DISK_LEAST: u64 = 64 << 20;
const DISK_LITTLE: u64 = 2 << 30;

/// Open files below which a run of many workers fails.
const FILES_LITTLE: u64 = 512;

/// Bytes that the path of a socket may have, with the zero at its end.
const SOCKET_BYTES: usize = 108;

/// The longest name of a socket of a run or a daemon, below the state directory.
const SOCKET_NAME: &str = "/.serve/socket";

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Good,
    /// A run works, but slower or not for long.
    Warning,
    /// A run would fail.
    Bad,
}

/// What one check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How it stands.
    pub state: State,
    /// What is there.
    pub found: String,
    /// What to do about it; empty where all is well.
    pub advice: String,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, state: State::Good, found: found.into(), advice: String::new() }
    }

    fn but(self, state: State, advice: impl Into<String>) -> Finding {
        Finding { state, advice: advice.into(), ..self }
    }
}

/// Looks at this machine, with `state_dir` as the folder of the runs.
pub fn examine(state_dir: &Path) -> Vec<Finding> {
    let cores = available_parallelism().map_or(1, |cores| cores.get());
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    vec![
        count_cores(cores),
        load(&read("/proc/loadavg"), cores),
        memory(&read("/proc/meminfo"), read("/sys/fs/cgroup/memory.max").trim().parse().ok()),
        folder(state_dir),
        disk(state_dir),
        sockets(state_dir),
        loopback(),
        open_files(getrlimit(Resource::Nofile).current),
    ]
}

fn count_cores(cores: usize) -> Finding {
    match cores {
        1 => Finding::good("cores", "1")
            .but(State::Warning, "workers would share it: train with `--workers 1`"),
        cores => Finding::good("cores", cores.to_string()),
    }
}

/// The load average of the last minute beside the cores.
fn load(text: &str, cores: usize) -> Finding {
    let Some(load) = text.split(' ').next().and_then(|load| load.parse::<f64>().ok()) else {
        return Finding::good("load", "not told by this system");
    };
    let found = Finding::good("load", format!("{load:.2} of {cores}"));
    if load < 0.75 * cores as f64 {
        return found;
    }
    found.but(
        State::Warning,
        "other programs use the processors: training is slower, and predictions are off, until they end",
    )
}

/// What is free, of what this process may have.
fn memory(text: &str, limit_bytes: Option<u64>) -> Finding {
    let available = text.lines().find_map(|line| {
        let kib: u64 = line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    });
    let Some(free) = available.map(|bytes| bytes.min(limit_bytes.unwrap_or(u64::MAX))) else {
        return Finding::good("memory", "not told by this system");
    };
    let found = Finding::good("memory", format!("{} free", size(free)));
    let advice = "end other programs, or use fewer workers: each holds the data, the model and its gradients";
    match free {
        0..MEMORY_LEAST => found.but(State::Bad, advice),
        MEMORY_LEAST..MEMORY_LITTLE => found.but(State::Warning, advice),
        _ => found,
    }
}

/// Whether runs can be kept.
fn folder(state_dir: &Path) -> Finding {
    let found = Finding::good("state directory", state_dir.display().to_string());
    let advice = "pass --state-dir DIR, or set BELLWETHER_STATE_DIR, to a folder that you may write to";
    let Some(nearest) = nearest(state_dir) else { return found.but(State::Bad, advice) };
    if !nearest.is_dir() {
        let what = format!("{} is not a folder", nearest.display());
        return Finding { found: what, ..found.but(State::Bad, advice) };
    }
    // Permissions do not tell all: a file system may be read-only or full.
    let trial = nearest.join(format!(".bellwether-doctor-{}", std::process::id()));
    let written = fs::File::create_new(&trial).and_then(|mut file| file.write_all(b"x"));
    let _ = fs::remove_file(&trial);
    match written {
        Ok(()) => found,
        Err(error) => {
            let what = format!("{}: {error}", nearest.display());
            Finding { found: what, ..found.but(State::Bad, advice) }
        }
    }
}

/// The folder itself, or the nearest above it that is there.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|path| access(*path, Access::EXISTS).is_ok()).map(Path::to_path_buf)
}

/// Room for checkpoints.
fn disk(state_dir: &Path) -> Finding {
    let Some(room) = nearest(state_dir).and_then(|path| statvfs(&path).ok()) else {
        return Finding::good("disk", "not told by this system");
    };
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let found = Finding::good("disk", format!("{} free", size(free)));
    let advice =
        "make room, or pass --state-dir DIR on another disk: checkpoints and journals are kept there";
    match free {
        0..DISK_LEAST => found.but(State::Bad, advice),
        DISK_LEAST..DISK_LITTLE => found.but(State::Warning, advice),
        _ => found,
    }
}

/// Whether the daemon's socket fits into an address.
fn sockets(state_dir: &Path) -> Finding {
    let bytes = state_dir.as_os_str().len() + SOCKET_NAME.len() + 1;
    let found = Finding::good("socket path", format!("{bytes} of {SOCKET_BYTES} bytes"));
    if bytes <= SOCKET_BYTES {
        return found;
    }
    found.but(State::Warning, "`bellwether serve` needs a shorter path: pass --state-dir DIR")
}

/// Whether processes of this machine can speak to each other.
fn loopback() -> Finding {
    let talk = || -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut here = TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(2))?;
        let (mut there, _) = listener.accept()?;
        here.write_all(b"x")?;
        there.set_read_timeout(Some(Duration::from_secs(2)))?;
        there.read_exact(&mut [0])
    };
    match talk() {
        Ok(()) => Finding::good("loopback", "127.0.0.1 answers"),
        Err(error) => Finding::good("loopback", format!("127.0.0.1: {error}")).but(
            State::Bad,
            "workers reach the coordinator at 127.0.0.1: allow that in the firewall or sandbox, or bring `lo` up",
        ),
    }
}

fn open_files(limit: Option<u64>) -> Finding {
    match limit {
        Some(limit) if limit < FILES_LITTLE => Finding::good("open files", limit.to_string()).but(
            State::Warning,
            format!("raise the limit for runs of many workers: `ulimit -n {FILES_LITTLE}` or more"),
        ),
        Some(limit) => Finding::good("open files", limit.to_string()),
        None => Finding::good("open files", "no limit"),
    }
}

/// Bytes in whole MiB, or in GiB with a tenth.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_ones_own_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("runs/below");
        for what in ["state directory", "loopback"] {
            let findings = examine(&below);
            let finding = findings.iter().find(|finding| finding.what == what).unwrap();
            assert_eq!((finding.state, finding.advice.as_str()), (State::Good, ""), "{finding:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn what_would_stop_a_run_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let bad = super::folder(&file);
        assert_eq!(bad.state, State::Bad);
        assert!(bad.found.ends_with("file is not a folder") && bad.advice.contains("--state-dir"), "{bad:?}");
        assert_eq!(memory("MemTotal: 1 kB\nMemAvailable:     1024 kB\n", None).state, State::Bad);
    }

    #[test]
    fn what_makes_it_slow_is_a_warning() {
        assert_eq!(count_cores(1).state, State::Warning);
        assert_eq!(load("3.10 2.00 1.00 1/200 77", 4).state, State::Warning);
        assert_eq!(load("0.50 2.00 1.00 1/200 77", 4).state, State::Good);
        assert_eq!(memory("MemAvailable: 8000000 kB", Some(512 << 20)).state, State::Warning);
        assert_eq!(memory("MemAvailable: 8000000 kB", None).found, "7.6 GiB free");
        assert_eq!(open_files(Some(64)).state, State::Warning);
        assert_eq!(sockets(Path::new(&"x".repeat(100))).state, State::Warning);
    }
}
