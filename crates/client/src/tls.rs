//! HTTPS to a daemon whose certificate is known, for the library that speaks HTTP over ports.

use std::io::{Read, Write};
use std::sync::Arc;

use bellwether_serve::tls::{Fingerprint, pinned};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, TcpConnector, Transport,
    TransportAdapter,
};
use ureq::{Agent, Error};

/// An agent that asks only a server with this certificate's fingerprint.
pub(crate) fn agent(config: Config, fingerprint: Fingerprint) -> Agent {
    let chain = ().chain(TcpConnector::default()).chain(Tls(pinned(fingerprint)));
    Agent::with_parts(config, chain, DefaultResolver::default())
}

/// Puts TLS over a connection.
#[derive(Debug)]
struct Tls(Arc<ClientConfig>);

impl<In: Transport> Connector<In> for Tls {
    type Out = Sealed;

    fn connect(&self, details: &ConnectionDetails, chained: Option<In>) -> Result<Option<Sealed>, Error> {
        let Some(transport) = chained else { return Err(Error::ConnectionFailed) };
        let host = details.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host).map_err(|_| Error::HostNotFound)?.to_owned();
        let mut connection = ClientConnection::new(self.0.clone(), name).map_err(std::io::Error::other)?;
        let mut socket = TransportAdapter::new(transport.boxed(), details.current_time.clone());
        socket.set_timeout(details.timeout);
        // Nothing of a request is sent before the other end has proven who it is.
        connection.complete_io(&mut socket)?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        let stream = StreamOwned::new(connection, socket);
        Ok(Some(Sealed { stream, buffers: LazyBuffers::new(input, output) }))
    }
}

/// An encrypted connection.
struct Sealed {
    stream: StreamOwned<ClientConnection, TransportAdapter>,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed")
    }
}

impl Transport for Sealed {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.sock.set_timeout(timeout);
        self.stream.write_all(&self.buffers.output()[..amount])?;
        Ok(self.stream.flush()?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.sock.set_timeout(timeout);
        let amount = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}
