//! Measures a link between two processes: latency by echoes, bandwidth by bulk both ways at once, as a
//! collective uses it. Two processes of one machine first measure the memory that they share, through which their
//! collectives go, and then the socket, for all else.
//!
//! The side that dials asks; the other serves. After `ECHOES` echoes of a few bytes both send as fast
//! as they can for `BULK`, and each takes the rate at which bytes arrive. The first part of that time is left
//! out: a shaped link lets a burst through before it is as slow as it says.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use bellwether_core::profile::Network;

use crate::channel::Stream;

mod memory;

/// Small messages that go to and fro.
const ECHOES: usize = 50;

/// Time for which both sides send.
const BULK: Duration = Duration::from_millis(800);

/// The part that does not count.
const SETTLING: Duration = Duration::from_millis(200);

/// A peer that neither sends nor takes for this long is gone.
const PATIENCE: Duration = Duration::from_secs(20);

/// Length of an echo, and of the rate that ends the served bytes.
const WORD: usize = 8;

/// Bytes of one write.
const BLOCK: usize = 256 << 10;

/// Measures the link behind `stream`, whose other end is [`serve`]d: the socket, and the memory that both share, if
/// there is any.
///
/// # Errors
///
/// Returns the connection's error, or one if too little arrives to tell a rate.
pub fn measure(mut stream: Stream) -> io::Result<(Network, Option<Network>)> {
    let shared_memory = stream.take_lane().map(|lane| memory::measure(lane, &stream)).transpose()?;
    prepare(&stream)?;
    let mut round_trips_s = Vec::with_capacity(ECHOES);
    for number in 0..ECHOES {
        let began = Instant::now();
        let mut word = (number as u64).to_le_bytes();
        stream.write_all(&word)?;
        stream.read_exact(&mut word)?;
        round_trips_s.push(began.elapsed().as_secs_f64());
    }
    round_trips_s.sort_by(f64::total_cmp);
    let sender = send_on_a_thread(&stream, |stream| {
        send(stream)?;
        stream.shutdown(Shutdown::Write)
    })?;
    let (here_bytes_per_s, last) = receive(&mut stream)?;
    sender.join().map_err(|_| io::Error::other("the sending thread panicked"))??;
    let there_bytes_per_s = f64::from_le_bytes(last);
    let bandwidth_bytes_per_s = here_bytes_per_s.min(there_bytes_per_s);
    if !(bandwidth_bytes_per_s.is_finite() && bandwidth_bytes_per_s > 0.0) {
        return Err(io::Error::other("too few bytes arrived to tell the bandwidth"));
    }
    let network = Network { bandwidth_bytes_per_s, latency_s: round_trips_s[ECHOES / 2] / 2.0 };
    Ok((network, shared_memory))
}

/// Answers one [`measure`].
///
/// # Errors
///
/// Returns the connection's error.
pub fn serve(mut stream: Stream) -> io::Result<()> {
    stream.take_lane().map(|lane| memory::serve(lane, &stream)).transpose()?;
    prepare(&stream)?;
    for _ in 0..ECHOES {
        let mut word = [0; WORD];
        stream.read_exact(&mut word)?;
        stream.write_all(&word)?;
    }
    let sender = send_on_a_thread(&stream, send)?;
    let (bytes_per_s, _) = receive(&mut stream)?;
    sender.join().map_err(|_| io::Error::other("the sending thread panicked"))??;
    stream.write_all(&bytes_per_s.to_le_bytes())?;
    stream.shutdown(Shutdown::Write)
}

fn prepare(stream: &Stream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

type Sender = std::thread::JoinHandle<io::Result<()>>;

fn send_on_a_thread(
    stream: &Stream,
    body: impl FnOnce(&mut Stream) -> io::Result<()> + Send + 'static,
) -> io::Result<Sender> {
    let mut stream = stream.clone();
    std::thread::Builder::new().name("probe".into()).spawn(move || body(&mut stream))
}

fn send(stream: &mut Stream) -> io::Result<()> {
    let (began, block) = (Instant::now(), vec![0x5a; BLOCK]);
    while began.elapsed() < BULK {
        stream.write_all(&block)?;
    }
    Ok(())
}

/// Takes all that comes; returns the rate in bytes per second, NaN when too little came, and the last bytes.
fn receive(stream: &mut Stream) -> io::Result<(f64, [u8; WORD])> {
    let (began, mut block, mut last) = (Instant::now(), vec![0; BLOCK], [0; WORD]);
    // Time and bytes at the first read that counts, and at the last one.
    let (mut first, mut newest, mut total) = (None, None, 0u64);
    loop {
        let count = stream.read(&mut block)?;
        if count == 0 {
            break;
        }
        total += count as u64;
        let tail = &block[..count][count.saturating_sub(WORD)..];
        last.rotate_left(tail.len());
        last[WORD - tail.len()..].copy_from_slice(tail);
        let at = began.elapsed();
        if (SETTLING..BULK).contains(&at) {
            first.get_or_insert((at, total));
            newest = Some((at, total));
        }
    }
    let rate = match (first, newest) {
        (Some((from, before)), Some((to, after))) if to > from => {
            (after - before) as f64 / (to - from).as_secs_f64()
        }
        _ => f64::NAN,
    };
    Ok((rate, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_link_of_this_machine_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || serve(Stream::unprotected(listener.accept().unwrap().0)));
        let (network, shared_memory) =
            measure(Stream::unprotected(TcpStream::connect(address).unwrap())).unwrap();
        server.join().unwrap().unwrap();
        assert_eq!(shared_memory, None);
        // A wrong unit would be off by a million; a machine that does something else meanwhile is off by a hundred.
        assert!((1e5..1e12).contains(&network.bandwidth_bytes_per_s), "{network:?}");
        assert!((1e-7..1.0).contains(&network.latency_s), "{network:?}");
    }

    #[test]
    fn memory_that_is_shared_is_measured_beside_the_socket() {
        let (here, there) = Stream::pair_with_lane(256 << 10);
        let server = std::thread::spawn(move || serve(there));
        let (socket, shared_memory) = measure(here).unwrap();
        server.join().unwrap().unwrap();
        let shared_memory = shared_memory.unwrap();
        for network in [socket, shared_memory] {
            assert!((1e5..1e12).contains(&network.bandwidth_bytes_per_s), "{network:?}");
            assert!((1e-9..1.0).contains(&network.latency_s), "{network:?}");
        }
        assert_ne!(socket, shared_memory);
    }

    #[test]
    fn a_peer_that_dies_while_the_memory_is_measured_is_an_error() {
        let (here, there) = Stream::pair_with_lane(4096);
        let lane = there.take_lane().unwrap();
        let begin = Instant::now();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop((lane, there));
        });
        assert!(measure(here).is_err());
        assert!(begin.elapsed() < PATIENCE / 2, "its socket says so");
    }

    #[test]
    fn a_peer_that_hangs_up_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
        assert!(measure(Stream::unprotected(TcpStream::connect(address).unwrap())).is_err());
        server.join().unwrap();
    }
}
