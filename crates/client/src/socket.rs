//! HTTP over a Unix socket, for the library that speaks HTTP over ports.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bellwether_serve::local;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

/// The name of a daemon at its socket.
pub(crate) const URL: &str = "http://localhost";

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// An agent that asks the process listening at `path`.
pub(crate) fn agent(config: Config, path: PathBuf) -> Agent {
    Agent::with_parts(config, Socket(path), NoNames)
}

/// Connects to a socket, whatever the address says.
#[derive(Debug)]
struct Socket(PathBuf);

impl Connector for Socket {
    type Out = Pipe;

    fn connect(&self, details: &ConnectionDetails, _: Option<()>) -> Result<Option<Pipe>, Error> {
        let stream = local::connect(&self.0, CONNECT)?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Pipe { stream, buffers: LazyBuffers::new(input, output) }))
    }
}

/// Looks no name up.
#[derive(Debug)]
struct NoNames;

impl Resolver for NoNames {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from(([127, 0, 0, 1], 80)));
        Ok(addresses)
    }
}

/// A connection.
#[derive(Debug)]
struct Pipe {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for Pipe {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(limit(timeout)?)?;
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(|error| failed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(limit(timeout)?)?;
        let amount = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                amount => break amount.map_err(|error| failed(error, timeout))?,
            }
        };
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// A new one costs next to nothing.
    fn is_open(&mut self) -> bool {
        false
    }
}

/// The time that is left, if it has an end.
fn limit(timeout: NextTimeout) -> Result<Option<Duration>, Error> {
    if timeout.after.is_zero() {
        return Err(Error::Timeout(timeout.reason));
    }
    Ok(timeout.not_zero().map(|left| *left))
}

fn failed(error: std::io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}
