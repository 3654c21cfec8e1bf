//! The short way between two processes of one user on one machine: a Unix socket in a private folder.
//!
//! Every listener has one beside its port, in a folder named after the run and under the name of its address. A dialer
//! of that address looks there first; where nothing is found it dials over the network, so nothing depends on it.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use socket2::Socket;

use crate::private::{is_own, own_folder};

/// A listening socket in the private folder; its name goes with it.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) socket: UnixListener,
    path: PathBuf,
}

impl Drop for Local {
    fn drop(&mut self) {
        // The folder stays while others of the run have a socket in it.
        let _ = fs::remove_file(&self.path);
        let _ = self.path.parent().map(fs::remove_dir);
    }
}

impl Local {
    /// Listens beside `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if no private folder can be made here.
    pub(super) fn bind(job: u64, address: SocketAddr) -> io::Result<Local> {
        let root = root();
        own_folder(&root)?;
        let folder = root.join(folder(job));
        own_folder(&folder)?;
        let path = folder.join(name(address));
        // The previous owner of the address is gone, or the port would not be ours.
        let _ = fs::remove_file(&path);
        let socket = UnixListener::bind(&path)?;
        socket.set_nonblocking(true)?;
        Ok(Local { socket, path })
    }
}

/// The way to the listener of this address, if it is one of this user on this machine.
pub(super) fn connect(job: u64, address: SocketAddr) -> Option<Socket> {
    let root = root();
    // A folder that another user could have made leads nowhere that is trusted.
    is_own(&root).ok()?;
    let stream = UnixStream::connect(root.join(folder(job)).join(name(address))).ok()?;
    let stream = Socket::from(stream);
    is_ours(&stream).then_some(stream)
}

/// Whether the other end belongs to this user, as the system says.
pub(super) fn is_ours(stream: &Socket) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == geteuid())
}

/// Where this user's sockets lie: a folder that ends with the machine's uptime, if the system has one for the user.
fn root() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(path) => path.join("bellwether"),
        None => PathBuf::from(format!("/tmp/bellwether-{}", geteuid().as_raw())),
    }
}

/// The name of the run's folder there. An address means something within one network only: containers and network
/// namespaces of one machine may share the folder, and have addresses of their own.
fn folder(job: u64) -> String {
    let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let digits: String = network.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{job:016x}-{digits}")
}

/// The name that an address has there; short, since the path of a socket has a limit.
fn name(address: SocketAddr) -> String {
    address.to_string()
}
