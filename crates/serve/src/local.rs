//! The daemon's Unix socket: the way in for clients of its own user on its own machine, without any secret.
//!
//! It lies in the daemon's private folder, and only processes of the same user, or root's, are let in. When the daemon
//! is dead its file stays and refuses, and no other process can listen there: a port can be taken over, this cannot.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_runtime::private;
use rustix::fs::{Mode, OFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Bytes of a socket's path, with the zero at its end: what the system has room for.
const PATH_BYTES: usize = 108;

/// Whether a process of this user may steer a daemon of ours: its own user, and root, from whom nothing is hidden.
pub fn may_steer(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Does something with a path to the same file that a socket's address has room for.
fn shortened<T>(path: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() < PATH_BYTES {
        return work(path);
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    work(&PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}

/// Listens at `path`, in place of a daemon that died.
///
/// # Errors
///
/// Returns an error if the file system has no sockets, or nothing may be written there.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    // It takes the old one's place in one step, private from the first moment on.
    let part = path.with_extension("part");
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = shortened(&part, |part| UnixListener::bind(part))?;
    private::restrict(&part)?;
    fs::rename(&part, path)?;
    Ok(listener)
}

/// Connects to the socket at `path`, within `patience`.
///
/// # Errors
///
/// Returns an error if no process listens there ([`NotFound`](io::ErrorKind::NotFound),
/// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused)), or the file belongs to another user
/// ([`PermissionDenied`](io::ErrorKind::PermissionDenied)).
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let about = fs::symlink_metadata(path)?;
    if !about.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a socket"));
    }
    let me = rustix::process::geteuid().as_raw();
    if me != 0 && about.uid() != me {
        let what = format!("the socket belongs to user {}, not to you", about.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    shortened(path, |path| {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // A daemon that stands still accepts no client.
        set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(UnixStream::from(socket))
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_folder_of_any_depth_has_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a-folder-with-a-long-name/".repeat(20));
        fs::create_dir_all(&deep).unwrap();
        for path in [folder.path().join("socket"), deep.join("socket")] {
            let listener = listen(&path).unwrap();
            let mut client = connect(&path, Duration::from_secs(1)).unwrap();
            client.write_all(b"hello").unwrap();
            let mut heard = [0; 5];
            listener.accept().unwrap().0.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"hello");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            // What a dead daemon leaves refuses, and the next one takes its place.
            drop(listener);
            let refused = connect(&path, Duration::from_secs(1)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
            let _again = listen(&path).unwrap();
            assert!(connect(&path, Duration::from_secs(1)).is_ok());
        }
        let nothing = connect(&deep.join("nothing"), Duration::from_secs(1)).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::NotFound);
        fs::write(deep.join("file"), "").unwrap();
        assert!(connect(&deep.join("file"), Duration::from_secs(1)).is_err());
    }

    #[test]
    fn who_stands_still_is_not_waited_for_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = listen(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let mut held = Vec::new();
        let full = loop {
            match connect(&path, Duration::from_millis(50)) {
                Ok(stream) => held.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock, "after {}", held.len());
    }
}
