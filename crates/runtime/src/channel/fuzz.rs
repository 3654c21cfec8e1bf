//! What the channel makes of arbitrary bytes, without a network: for the benchmark that throws bytes at decoders.

use std::io::{IoSlice, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::cipher::{Cipher, Direction};
use super::dialing::Call;
use super::handshake::{ConnectionKind, Door, Hello, header, noise, rest};
use super::record::{Opener, Sealer};
use super::{Stream, Token};

/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(10);

const HELLO: Hello = Hello { kind: ConnectionKind::Mesh, worker: 1, epoch: 2, to: Some(3) };

fn direction() -> Direction {
    Direction::new(Cipher::Aes256Gcm, &[7; 32])
}

/// One end of a connection from whose other end these bytes came, and then no more.
fn heard(bytes: &[u8]) -> Option<(Socket, Socket)> {
    let (here, there) = Socket::pair(Domain::UNIX, Type::STREAM, None).ok()?;
    (&there).write_all(bytes).ok()?;
    there.shutdown(Shutdown::Write).ok()?;
    Some((here, there))
}

/// The first bytes of an honest dialer; what comes then depends on the listener.
///
/// # Panics
///
/// When the system has no randomness to give.
pub fn hello(token: &Token) -> Vec<u8> {
    let header = header(HELLO.kind as u8, token.cipher(), token.job_tag());
    let mut message = [0; 256];
    let written = noise(token, &header, true).write_message(&rest(&HELLO), &mut message);
    [&header[..], &message[..written.expect("the message fits")]].concat()
}

/// The first bytes of an honest dialer of the same machine: all that it says.
pub fn local_hello(token: &Token) -> Vec<u8> {
    [&header(HELLO.kind as u8, token.cipher(), token.job_tag())[..], &rest(&HELLO)].concat()
}

/// Whether a listener admits a dialer who says this, over the network or over a Unix socket.
pub fn is_admitted(token: &Token, local: bool, bytes: &[u8]) -> bool {
    let Some((here, _there)) = heard(bytes) else { return false };
    let deadline = Instant::now() + PATIENCE;
    let door = Door { token, kinds: &ConnectionKind::DATA, number: Some(3), deadline, proved: &|| () };
    match local {
        true => door.admit_local(here).is_ok(),
        false => door.admit(here).is_ok(),
    }
}

/// Whether a dialer believes a listener who answers this.
pub fn is_believed(token: &Token, bytes: &[u8]) -> bool {
    let Some((here, _there)) = heard(bytes) else { return false };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let call = Call { address, hello: &HELLO, token, deadline: Instant::now() + PATIENCE };
    call.greet(here).is_ok_and(|stream: Stream| stream.is_local())
}

/// These bytes as records, as [`opened`] reads them.
pub fn sealed(records: &[&[u8]]) -> Vec<u8> {
    let mut sealer = Sealer::new(direction());
    let mut all = Vec::new();
    for record in records {
        sealer.seal(&[IoSlice::new(record)]);
        all.extend_from_slice(sealer.unsent());
        sealer.advance(sealer.unsent().len());
    }
    all
}

/// How many bytes are read from records that come in two pieces; reading stops at the first invalid record.
pub fn opened(bytes: &[u8]) -> usize {
    let mut opener = Opener::new(direction());
    let (first, second) = bytes.split_at(bytes.len() / 3);
    let mut total = 0;
    for mut piece in [first, second] {
        while !piece.is_empty() {
            let room = opener.room();
            let count = room.len().min(piece.len());
            room[..count].copy_from_slice(&piece[..count]);
            opener.filled(count);
            piece = &piece[count..];
            loop {
                let Ok(plain) = opener.plain() else { return total };
                let length = plain.len();
                if length == 0 {
                    break;
                }
                opener.take(length);
                total += length;
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_is_read() {
        let token = Token::random().expect("randomness");
        assert!(is_admitted(&token, true, &local_hello(&token)));
        // The third message is missing.
        assert!(!is_admitted(&token, false, &hello(&token)));
        assert!(!is_believed(&token, &hello(&token)));
        assert_eq!(opened(&sealed(&[b"abc", b"", &[1; 70]])), 73);
    }
}
