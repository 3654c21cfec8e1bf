//! Handshakes between honest peers, and every kind of peer that must be sent away.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use super::*;

const JOB: u64 = 77;
const TOKEN: [u8; 32] = [9; 32];

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn hello(worker: u64) -> Hello {
    Hello { kind: ConnectionKind::Mesh, job: JOB, worker, epoch: 4 }
}

/// A listener, and what it reports.
fn listen() -> (Listener, mpsc::Receiver<Refusal>) {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let report = move |refusal| {
        let _ = sender.lock().unwrap().send(refusal);
    };
    (Listener::bind(local(), JOB, TOKEN, Arc::new(report)).unwrap(), receiver)
}

fn next_reason(refusals: &mpsc::Receiver<Refusal>) -> RefusalReason {
    refusals.recv_timeout(Duration::from_secs(10)).unwrap().reason
}

/// An honest worker gets through.
fn assert_open(listener: &Listener, worker: u64) {
    let mut ours = dial(listener.local_addr(), &hello(worker), &TOKEN, soon()).unwrap();
    let mut theirs = listener.inbox().take(ConnectionKind::Mesh, 4, worker, soon()).unwrap();
    ours.write_all(b"ping").unwrap();
    let mut bytes = [0; 4];
    theirs.read_exact(&mut bytes).unwrap();
    theirs.write_all(&bytes).unwrap();
    ours.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"ping");
}

#[test]
fn connections_are_found_by_kind_epoch_and_worker() {
    let (listener, refusals) = listen();
    let state = Hello { kind: ConnectionKind::State, ..hello(5) };
    let old = Hello { epoch: 3, ..hello(5) };
    let _streams: Vec<TcpStream> = [hello(5), hello(6), state, old]
        .iter()
        .map(|hello| dial(listener.local_addr(), hello, &TOKEN, soon()).unwrap())
        .collect();
    let inbox = listener.inbox();
    let (arrival, _) = inbox.take_any(ConnectionKind::State, soon()).unwrap();
    assert_eq!(arrival, Arrival { epoch: 4, worker: 5 });
    assert!(inbox.take(ConnectionKind::Mesh, 4, 5, soon()).is_ok());
    assert!(inbox.take(ConnectionKind::Mesh, 4, 6, soon()).is_ok());
    let again = inbox.take(ConnectionKind::Mesh, 4, 6, Instant::now());
    assert_eq!(again.unwrap_err(), InboxError::TimedOut);
    while inbox.is_empty() {
        std::thread::yield_now();
    }
    inbox.discard_below(ConnectionKind::Mesh, 4);
    assert!(inbox.is_empty() && refusals.try_recv().is_err());
    let waiting = std::thread::spawn(move || inbox.take(ConnectionKind::Mesh, 9, 9, soon()).unwrap_err());
    std::thread::sleep(Duration::from_millis(20));
    drop(listener);
    assert_eq!(waiting.join().unwrap(), InboxError::Closed);
}

#[test]
fn a_mesh_keeps_connections_by_worker() {
    let (listener, _refusals) = listen();
    let mut mesh = Mesh::new();
    for worker in [8, 3] {
        mesh.insert(worker, dial(listener.local_addr(), &hello(worker), &TOKEN, soon()).unwrap()).unwrap();
    }
    assert_eq!(mesh.workers().collect::<Vec<_>>(), [3, 8]);
    assert!(mesh.get(3).unwrap().nodelay().unwrap());
    assert!(mesh.remove(3).is_some() && mesh.get(3).is_none() && mesh.len() == 1);
    mesh.clear();
    assert!(mesh.is_empty());
}

#[test]
fn another_token_fails_on_both_sides() {
    let (listener, refusals) = listen();
    let error = dial(listener.local_addr(), &hello(1), &[8; 32], soon()).unwrap_err();
    assert!(matches!(error, DialError::WrongToken { .. }), "{error}");
    assert_eq!(next_reason(&refusals), RefusalReason::HungUp);
    // A dialer that does not care whether the listener is genuine.
    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    let mut bytes = [0; 56];
    let mut hello_bytes = *b"BWdp\x01\x00\x01\x00########workerid--epoch-a nonce, 16 bytes";
    hello_bytes[8..16].copy_from_slice(&JOB.to_le_bytes());
    stream.write_all(&hello_bytes[..48]).unwrap();
    stream.read_exact(&mut bytes).unwrap();
    // Not even by sending the listener's own proof back.
    stream.write_all(&bytes[24..56]).unwrap();
    assert_eq!(next_reason(&refusals), RefusalReason::WrongToken);
    assert_eq!(stream.read(&mut bytes).unwrap_or(0), 0);
    assert!(listener.inbox().is_empty());
    assert_open(&listener, 1);
}

#[test]
fn other_versions_jobs_and_kinds_are_refused_by_name() {
    let (listener, refusals) = listen();
    let other_job = Hello { job: 1, ..hello(1) };
    let error = dial(listener.local_addr(), &other_job, &TOKEN, soon()).unwrap_err();
    assert!(matches!(error, DialError::OtherJob { .. }), "{error}");
    assert_eq!(next_reason(&refusals), RefusalReason::OtherJob(1));

    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    stream.write_all(b"BWdp\x63\x00\x01\x00").unwrap();
    assert_eq!(next_reason(&refusals), RefusalReason::OtherVersion(0x63));
    let mut answer = [0; 56];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[6], handshake::Status::OtherVersion as u8);

    let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
    let mut bytes = [0; 48];
    bytes[..8].copy_from_slice(b"BWdp\x01\x00\x09\x00");
    stream.write_all(&bytes).unwrap();
    assert_eq!(next_reason(&refusals), RefusalReason::UnknownKind(9));
    assert_open(&listener, 2);
}

#[test]
fn a_listener_of_another_protocol_is_recognised() {
    let socket = TcpListener::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let answers: [&[u8]; 2] = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"BWdp\x63\x00\x00\x00"];
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = socket.accept().unwrap();
            stream.read_exact(&mut [0; 48]).unwrap();
            stream.write_all(answer).unwrap();
        }
    });
    for version in [None, Some(0x63)] {
        match dial(address, &hello(1), &TOKEN, soon()).unwrap_err() {
            DialError::OtherProtocol { version: found, .. } => assert_eq!(found, version),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn nobody_there_is_told_at_once_and_silence_at_the_deadline() {
    let socket = TcpListener::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let begin = Instant::now();
    let error = dial(address, &hello(1), &TOKEN, begin + Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, DialError::TimedOut { .. }), "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(90));
    drop(socket);
    let error = dial(address, &hello(1), &TOKEN, soon()).unwrap_err();
    assert!(matches!(error, DialError::Connect { .. }), "{error}");
}

#[test]
fn garbage_and_early_ends_harm_nobody() {
    let (listener, refusals) = listen();
    for length in [1usize, 7, 8, 47, 48, 300, 5000] {
        let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
        let bytes: Vec<u8> = (0..length).map(|i| (i * 37 + length) as u8).collect();
        let _ = stream.write_all(&bytes);
        drop(stream);
        let reason = next_reason(&refusals);
        let expected = if length < 8 { RefusalReason::HungUp } else { RefusalReason::NotOurProtocol };
        assert_eq!(reason, expected, "{length} bytes");
    }
    assert_open(&listener, 3);
}

#[test]
fn a_slow_dialer_is_cut_off_in_total_and_others_pass_meanwhile() {
    let (listener, refusals) = listen();
    let begin = Instant::now();
    let address = listener.local_addr();
    let _silent = TcpStream::connect(address).unwrap();
    let dripping = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        for byte in b"BWdp\x01\x00\x01\x00".iter().chain([0u8; 39].iter()) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    assert_open(&listener, 4);
    assert!(begin.elapsed() < Duration::from_secs(4));
    for _ in 0..2 {
        assert_eq!(next_reason(&refusals), RefusalReason::TimedOut);
    }
    assert!(begin.elapsed() < HANDSHAKE_DEADLINE + Duration::from_secs(3));
    dripping.join().unwrap();
}

#[test]
fn a_flood_is_bounded_and_honest_dialers_get_through_after_it() {
    let (listener, refusals) = listen();
    let address = listener.local_addr();
    let mut silent: Vec<TcpStream> =
        (0..HANDSHAKES_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    // Wait until the listener has seen them all: one more is sent away.
    let mut stream = TcpStream::connect(address).unwrap();
    let mut answer = [0; 56];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[6], handshake::Status::Busy as u8);
    assert_eq!(next_reason(&refusals), RefusalReason::Busy);
    let honest = std::thread::spawn(move || dial(address, &hello(6), &TOKEN, soon()));
    std::thread::sleep(Duration::from_millis(100));
    silent.truncate(HANDSHAKES_MAX / 2);
    assert!(honest.join().unwrap().is_ok());
    assert!(listener.inbox().take(ConnectionKind::Mesh, 4, 6, soon()).is_ok());
}
