//! The processes of a run, found by what they were started with, and what can be done to them.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::net::{Shutdown, SocketAddrUnix, getpeername, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};

/// What a process is in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Coordinator,
    Worker,
    Server,
}

/// The living processes of the run in `folder`, oldest numbers first; one that ended and was not waited for is none.
pub(super) fn living(folder: &Path) -> Vec<(u32, Role)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut living: Vec<(u32, Role)> =
        numbers.filter_map(|process| Some((process, role(process, folder)?))).collect();
    living.sort_unstable_by_key(|(process, _)| *process);
    living
}

fn role(process: u32, folder: &Path) -> Option<Role> {
    let line = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let role = match line.split('\0').nth(1)? {
        "run" => Role::Coordinator,
        "worker" => Role::Worker,
        "server" => Role::Server,
        _ => return None,
    };
    let ours = line.contains(&*folder.to_string_lossy());
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let over = status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']));
    (ours && !over).then_some(role)
}

/// Those of one role.
pub(super) fn of(folder: &Path, role: Role) -> Vec<u32> {
    living(folder).into_iter().filter(|(_, found)| *found == role).map(|(process, _)| process).collect()
}

/// Sends a signal; a process that is gone already does not mind.
pub(super) fn signal(process: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// Breaks all that a process has open to this address, as an administrator could; how many connections that were.
pub(super) fn break_connections(process: u32, to: SocketAddr) -> usize {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return 0 };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return 0 };
    let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let copy = |number| pidfd_getfd(handle.as_fd(), number, PidfdGetfdFlags::empty()).ok();
    // The short way between processes of one machine bears the name of the address.
    let named = |unix: &SocketAddrUnix| {
        unix.path_bytes().is_some_and(|path| path.ends_with(format!("/{to}").as_bytes()))
    };
    let leads_there = |socket: &OwnedFd| match getpeername(socket) {
        Ok(Some(address)) => {
            SocketAddrUnix::try_from(address.clone()).is_ok_and(|unix| named(&unix))
                || SocketAddr::try_from(address).is_ok_and(|address| address == to)
        }
        _ => false,
    };
    let sockets = numbers.filter_map(copy).filter(leads_there);
    sockets.filter(|socket| shutdown(socket, Shutdown::Both).is_ok()).count()
}
