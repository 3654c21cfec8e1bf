//! Handshakes between honest peers, what travels after them, and every kind of peer that must be sent away.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use socket2::Socket;

use super::cipher::Direction;
use super::handshake::{Door, Status, status};
use super::record::{Opener, RECORD_BYTES_MAX, RECORDS_PER_WRITE, Sealer};
use super::*;

const CIPHERS: [Cipher; 3] = [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305, Cipher::Unencrypted];

fn token(digit: &str) -> Token {
    Token::parse(&digit.repeat(64)).unwrap()
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn hello(worker: u64) -> Hello {
    Hello { kind: ConnectionKind::Mesh, worker, epoch: 4, to: None }
}

/// Gathers what a listener reports.
fn reports() -> (OnRefusal, mpsc::Receiver<Refusal>) {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let report = move |refusal| {
        let _ = sender.lock().unwrap().send(refusal);
    };
    (Arc::new(report), receiver)
}

/// A listener that is reached over TCP only, and what it reports.
fn listen(token: &Token) -> (Listener, mpsc::Receiver<Refusal>) {
    let (report, refusals) = reports();
    (Listener::bind_remote(local(), token, report).unwrap(), refusals)
}

fn next_reason(refusals: &mpsc::Receiver<Refusal>) -> RefusalReason {
    refusals.recv_timeout(Duration::from_secs(20)).unwrap().reason
}

/// Both ends of a connection of this worker.
fn connect(listener: &Listener, token: &Token, worker: u64) -> (Stream, Stream) {
    let ours = dial(listener.local_addr(), &hello(worker), token, soon()).unwrap();
    (ours, listener.inbox().take(ConnectionKind::Mesh, 4, worker, soon()).unwrap())
}

/// An honest worker gets through.
fn assert_open(listener: &Listener, token: &Token, worker: u64) {
    let (mut ours, mut theirs) = connect(listener, token, worker);
    let mut bytes = [0; 4];
    for _ in 0..3 {
        ours.write_all(b"ping").unwrap();
        theirs.read_exact(&mut bytes).unwrap();
        theirs.write_all(&bytes).unwrap();
        ours.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"ping");
    }
}

/// What a man in the middle sees of a connection, and what he does to it: `meddle` is given each chunk towards the
/// listener (true) or the dialer, with the number of bytes that went this way before.
fn in_the_middle(
    to: SocketAddr,
    meddle: impl Fn(bool, usize, &mut Vec<u8>) + Send + Sync + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let socket = TcpListener::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (all, meddle) = (Arc::clone(&seen), Arc::new(meddle));
    std::thread::spawn(move || {
        let (dialer, _) = socket.accept().unwrap();
        let listener = TcpStream::connect(to).unwrap();
        let ways = [(true, dialer.try_clone(), listener.try_clone()), (false, Ok(listener), Ok(dialer))];
        for (there, from, to) in ways {
            let (mut from, mut to) = (from.unwrap(), to.unwrap());
            let (all, meddle) = (Arc::clone(&all), Arc::clone(&meddle));
            std::thread::spawn(move || {
                let mut before = 0;
                let mut chunk = vec![0; 1 << 16];
                while let Ok(count @ 1..) = from.read(&mut chunk) {
                    let mut bytes = chunk[..count].to_vec();
                    meddle(there, before, &mut bytes);
                    before += count;
                    if there {
                        all.lock().unwrap().extend(&bytes);
                    }
                    if to.write_all(&bytes).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    });
    (address, seen)
}

#[test]
fn a_holder_of_the_token_gets_through_with_every_cipher_and_over_both_kinds_of_sockets() {
    for cipher in CIPHERS {
        let token = token("9").with_cipher(cipher);
        let (listener, refusals) = listen(&token);
        assert_open(&listener, &token, 1);
        let (ours, theirs) = connect(&listener, &token, 2);
        assert!(format!("{ours:?}{theirs:?}").contains(if cipher == Cipher::Unencrypted {
            "plain"
        } else {
            "encrypted"
        }));
        let (report, _) = reports();
        let beside = Listener::bind(local(), &token, report).unwrap();
        assert_open(&beside, &token, 3);
        let (ours, theirs) = connect(&beside, &token, 4);
        assert!(ours.is_local() && theirs.is_local() && format!("{ours:?}{theirs:?}").contains("plain"));
        assert!(refusals.try_recv().is_err());
    }
}

#[test]
fn what_is_written_in_any_pieces_is_read_in_any_pieces_both_ways_at_once() {
    for cipher in CIPHERS {
        let token = token("8").with_cipher(cipher);
        let (listener, _refusals) = listen(&token);
        let (ours, theirs) = connect(&listener, &token, 1);
        let whole: Vec<u8> = (0..600_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let speak = |mut stream: Stream, whole: Vec<u8>, seed: usize| {
            move || {
                let (mut sent, mut number) = (0, seed);
                while sent < whole.len() {
                    number = number * 7919 % 200_003;
                    let end = whole.len().min(sent + 1 + number);
                    let (left, right) = whole[sent..end].split_at((end - sent) / 3);
                    let slices = [io::IoSlice::new(left), io::IoSlice::new(right)];
                    sent += stream.write_vectored(&slices).unwrap();
                }
                stream.shutdown(Shutdown::Write).unwrap();
            }
        };
        let hear = |mut stream: Stream, seed: usize| {
            move || {
                let (mut heard, mut number) = (Vec::<u8>::new(), seed);
                loop {
                    number = number * 7919 % 150_001;
                    let (mut left, mut right) = (vec![0; 1 + number / 2], vec![0; number % 50]);
                    let mut slices = [io::IoSliceMut::new(&mut left), io::IoSliceMut::new(&mut right)];
                    let count = stream.read_vectored(&mut slices).unwrap();
                    if count == 0 {
                        return heard;
                    }
                    left.extend(right);
                    heard.extend(&left[..count]);
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(speak(ours.clone(), whole.clone(), 1));
            scope.spawn(speak(theirs.clone(), whole.clone(), 2));
            let [here, there] = [scope.spawn(hear(ours, 3)), scope.spawn(hear(theirs, 5))];
            assert!(here.join().unwrap() == whole && there.join().unwrap() == whole, "{cipher:?}");
        });
    }
}

#[test]
fn a_full_socket_takes_back_nothing_and_a_drained_one_says_so() {
    let token = token("7").with_cipher(Cipher::Aes256Gcm);
    let (listener, _refusals) = listen(&token);
    let (mut ours, mut theirs) = connect(&listener, &token, 1);
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    assert_eq!(theirs.read(&mut [0; 10]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let whole: Vec<u8> = (0..20_000_000_u32).map(|i| (i / 7) as u8).collect();
    let (mut sent, mut heard, mut refused) = (0, 0, 0);
    let mut room = vec![0; 300_000];
    while heard < whole.len() {
        while sent < whole.len() {
            match ours.write(&whole[sent..]) {
                Ok(count) => sent += count,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    refused += 1;
                    break;
                }
            }
        }
        loop {
            match theirs.read(&mut room) {
                Ok(count) => {
                    assert!(room[..count] == whole[heard..heard + count]);
                    heard += count;
                    if count < room.len() {
                        // Less than was asked for: nothing is left, here or in the socket.
                        break;
                    }
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
    }
    assert!(sent == whole.len() && refused > 0, "the socket was full {refused} times");
}

#[test]
fn tasks_read_and_write_it_too() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let token = token("c").with_cipher(Cipher::Aes256Gcm);
    let (listener, _refusals) = listen(&token);
    let (ours, theirs) = connect(&listener, &token, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let whole: Vec<u8> = (0..5_000_000_u32).map(|i| (i / 3) as u8).collect();
    runtime.block_on(async move {
        let (mut ours, mut theirs) = (AsyncStream::new(ours).unwrap(), AsyncStream::new(theirs).unwrap());
        let echo = tokio::spawn(async move {
            let mut heard = vec![0; 5_000_000];
            theirs.read_exact(&mut heard).await.unwrap();
            theirs.write_all(&heard).await.unwrap();
            theirs.shutdown().await.unwrap();
        });
        ours.write_all(&whole).await.unwrap();
        ours.flush().await.unwrap();
        let mut back = Vec::new();
        ours.read_to_end(&mut back).await.unwrap();
        assert!(back == whole);
        echo.await.unwrap();
    });
}

#[test]
fn another_token_cipher_kind_or_process_is_refused_by_name() {
    let right = token("1");
    let (listener, refusals) = listen(&right);
    let address = listener.local_addr();
    let error = dial(address, &hello(1), &token("2"), soon()).unwrap_err();
    assert!(matches!(error, DialError::OtherJob { .. }), "{error}");
    assert_eq!(next_reason(&refusals), RefusalReason::OtherJob(token("2").job_tag()));
    for cipher in [Cipher::Aes256Gcm, Cipher::Unencrypted] {
        let error = dial(address, &hello(1), &right.clone().with_cipher(cipher), soon()).unwrap_err();
        assert!(matches!(error, DialError::OtherCipher { .. }), "{error}");
        assert_eq!(next_reason(&refusals), RefusalReason::OtherCipher);
    }
    let control = Hello { kind: ConnectionKind::Control, ..hello(1) };
    assert!(dial(address, &control, &right, Instant::now() + Duration::from_millis(50)).is_err());
    assert_eq!(next_reason(&refusals), RefusalReason::UnknownKind(6));
    listener.set_number(7);
    let lost = Hello { to: Some(3), ..hello(1) };
    assert!(dial(address, &lost, &right, Instant::now() + Duration::from_millis(50)).is_err());
    // A dialer that is sent away without a proof tries again until its time is over.
    while next_reason(&refusals) != RefusalReason::OtherWorker(3) {}
    assert!(dial(address, &Hello { to: Some(7), ..hello(1) }, &right, soon()).is_ok());
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"BWch\x63\x00\x01\x00").unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, status(Status::OtherVersion));
    while next_reason(&refusals) != RefusalReason::OtherVersion(0x63) {}
    assert_open(&listener, &right, 2);
}

#[test]
fn what_was_recorded_cannot_be_played_back() {
    let token = token("3").with_cipher(Cipher::Aes256Gcm);
    let (listener, refusals) = listen(&token);
    let (middle, seen) = in_the_middle(listener.local_addr(), |_, _, _| {});
    let mut ours = dial(middle, &hello(1), &token, soon()).unwrap();
    ours.write_all(b"the secret of the day").unwrap();
    let mut theirs = listener.inbox().take(ConnectionKind::Mesh, 4, 1, soon()).unwrap();
    theirs.read_exact(&mut [0; 21]).unwrap();
    let said = seen.lock().unwrap().clone();
    assert!(said.len() > 88 + 18 + 21 && !said.windows(10).any(|window| b"the secret".starts_with(window)));
    for length in [88, 88 + 18, said.len()] {
        let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
        stream.write_all(&said[..length]).unwrap();
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let _ = stream.read_to_end(&mut answer);
        drop(stream);
        let reason = next_reason(&refusals);
        let expected = if length == 88 { RefusalReason::HungUp } else { RefusalReason::WrongToken };
        assert_eq!(reason, expected, "{length} bytes");
    }
    assert!(listener.inbox().is_empty());
    assert_open(&listener, &token, 2);
}

#[test]
fn a_byte_changed_on_its_way_is_noticed_wherever_it_is() {
    let token = token("4").with_cipher(Cipher::ChaCha20Poly1305);
    let (listener, _refusals) = listen(&token);
    let attempt = |there: bool, at: usize| {
        let (middle, _) = in_the_middle(listener.local_addr(), move |way, before, bytes| {
            if way == there && (before..before + bytes.len()).contains(&at) {
                bytes[at - before] ^= 1;
            }
        });
        let deadline = Instant::now() + Duration::from_millis(300);
        let mut stream = dial(middle, &hello(1), &token, deadline).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream.write_all(b"ping").ok()?;
        let mut theirs = listener.inbox().take(ConnectionKind::Mesh, 4, 1, deadline).ok()?;
        theirs.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut bytes = [0; 4];
        theirs.read_exact(&mut bytes).ok()?;
        theirs.write_all(&bytes).ok()?;
        stream.read_exact(&mut bytes).ok()?;
        Some(bytes)
    };
    assert_eq!(attempt(true, 10_000), Some(*b"ping"));
    // Magic, version, kind, cipher, job; key, hello, tag; the first record; the second one's length, contents and tag.
    for at in [0, 4, 6, 7, 8, 15, 16, 48, 60, 87, 88, 90, 105, 106, 108, 112, 127] {
        assert_eq!(attempt(true, at), None, "byte {at} towards the listener");
    }
    for at in [0, 4, 6, 8, 40, 55, 56, 58, 62, 77] {
        assert_eq!(attempt(false, at), None, "byte {at} towards the dialer");
    }
}

/// What a listener makes of these bytes.
fn admit(bytes: &[u8]) -> Result<Hello, RefusalReason> {
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(bytes).unwrap();
    here.shutdown(Shutdown::Write).unwrap();
    let token = token("5");
    let deadline = Instant::now() + Duration::from_secs(5);
    let proved = || {};
    let door = Door { token: &token, kinds: &ConnectionKind::DATA, number: None, deadline, proved: &proved };
    door.admit(Socket::from(there)).map(|(hello, _)| hello)
}

/// What an honest dialer says first.
fn first_words() -> Vec<u8> {
    let socket = TcpListener::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let dialing =
        std::thread::spawn(move || dial(address, &hello(1), &token("5"), soon()).map(|_| ()).unwrap_err());
    let mut bytes = vec![0; 88];
    socket.accept().unwrap().0.read_exact(&mut bytes).unwrap();
    drop(socket);
    dialing.join().unwrap();
    bytes
}

#[test]
fn cut_and_changed_first_words_are_refused_without_harm() {
    let words = first_words();
    assert_eq!(admit(&words), Err(RefusalReason::HungUp), "all but the confirmation is right");
    for length in 0..words.len() {
        assert!(admit(&words[..length]).is_err());
    }
    let mut changed = words.clone();
    for at in 0..words.len() {
        changed[at] ^= 1 << (at % 8);
        assert!(admit(&[&changed[..], &[0; 18]].concat()).is_err());
        changed[at] = words[at];
    }
}

#[test]
fn garbage_and_early_ends_do_no_harm() {
    let token = token("6");
    let (listener, refusals) = listen(&token);
    for length in [1usize, 7, 8, 15, 16, 88, 300, 5000] {
        let mut stream = TcpStream::connect(listener.local_addr()).unwrap();
        let bytes: Vec<u8> = (0..length).map(|i| (i * 37 + length) as u8).collect();
        let _ = stream.write_all(&bytes);
        drop(stream);
        let expected = if length < 8 { RefusalReason::HungUp } else { RefusalReason::NotOurProtocol };
        assert_eq!(next_reason(&refusals), expected, "{length} bytes");
    }
    assert_open(&listener, &token, 3);
}

#[test]
fn a_listener_of_another_protocol_is_recognised() {
    let socket = TcpListener::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let answers: [&[u8]; 3] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"BWch\x63\x00\x00\x00",
        &[&status(Status::Welcome)[..], &[7; 48]].concat(),
    ];
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = socket.accept().unwrap();
            stream.read_exact(&mut [0; 88]).unwrap();
            stream.write_all(&answer).unwrap();
        }
    });
    for version in [None, Some(0x63)] {
        match dial(address, &hello(1), &token("6"), soon()).unwrap_err() {
            DialError::OtherProtocol { version: found, .. } => assert_eq!(found, version),
            other => panic!("{other}"),
        }
    }
    let error = dial(address, &hello(1), &token("6"), soon()).unwrap_err();
    assert!(matches!(error, DialError::WrongToken { .. }), "who only pretends to welcome: {error}");
}

#[test]
fn an_absent_peer_is_reported_at_once_and_a_silent_one_at_the_deadline() {
    let socket = TcpListener::bind(local()).unwrap();
    let address = socket.local_addr().unwrap();
    let begin = Instant::now();
    let error = dial(address, &hello(1), &token("6"), begin + Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, DialError::TimedOut { .. }), "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(90));
    drop(socket);
    let error = dial(address, &hello(1), &token("6"), soon()).unwrap_err();
    assert!(matches!(error, DialError::Connect { .. }), "{error}");
}

#[test]
fn silent_dialers_are_cut_off_in_total_and_displaced_by_those_that_speak() {
    let token = token("a");
    let (listener, refusals) = listen(&token);
    let address = listener.local_addr();
    let words = [&b"BWch\x03\x00\x01\x01"[..], &token.job_tag().to_le_bytes(), &[0; 40]].concat();
    let dripping = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        for byte in &words {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    assert_eq!(next_reason(&refusals), RefusalReason::TimedOut);
    dripping.join().unwrap();
    // More than there are places, and all of them stay.
    let _silent: Vec<TcpStream> =
        (0..2 * HANDSHAKES_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
    for _ in 0..HANDSHAKES_MAX {
        assert_eq!(
            next_reason(&refusals),
            RefusalReason::Busy,
            "each newer one takes the place of an older one"
        );
    }
    let begin = Instant::now();
    assert_open(&listener, &token, 6);
    assert!(begin.elapsed() < HANDSHAKE_DEADLINE / 2, "the silent ones delay no other");
}

#[test]
fn connections_are_found_by_kind_epoch_and_worker() {
    let token = token("b");
    let (listener, refusals) = listen(&token);
    let state = Hello { kind: ConnectionKind::State, ..hello(5) };
    let old = Hello { epoch: 3, ..hello(5) };
    let _streams: Vec<Stream> = [hello(5), hello(6), state, old]
        .iter()
        .map(|hello| dial(listener.local_addr(), hello, &token, soon()).unwrap())
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
fn states_wait_in_the_order_in_which_they_were_sent_and_none_takes_anothers_place() {
    let token = token("c");
    let (listener, _refusals) = listen(&token);
    let inbox = listener.inbox();
    let send = |kind, byte: u8| {
        let hello = Hello { kind, ..hello(5) };
        let mut stream = dial(listener.local_addr(), &hello, &token, soon()).unwrap();
        io::Write::write_all(&mut stream, &[byte]).unwrap();
        stream
    };
    let read = |mut stream: Stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        byte[0]
    };
    let wait_for = |count| {
        while inbox.len() < count {
            std::thread::yield_now();
        }
    };
    let mut sent = Vec::new();
    for byte in 1..=3 {
        sent.push(send(ConnectionKind::State, byte));
        wait_for(usize::from(byte));
    }
    let next = || read(inbox.take_any(ConnectionKind::State, soon()).unwrap().1);
    assert_eq!([next(), next()], [1, 2]);
    sent.push(send(ConnectionKind::State, 4));
    wait_for(2);
    // Who asks for one worker's stream wants the one that it dialed last.
    assert_eq!(read(inbox.take(ConnectionKind::State, 4, 5, soon()).unwrap()), 4);
    assert!(inbox.is_empty());
}

fn directions() -> (Direction, Direction) {
    (Direction::new(Cipher::Aes256Gcm, &[1; 32]), Direction::new(Cipher::Aes256Gcm, &[1; 32]))
}

/// Gives the opener as many bytes as it has room for; says what it made of all.
fn open_all(opener: &mut Opener, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut opened = Vec::new();
    loop {
        loop {
            let plain = opener.plain()?;
            let count = plain.len();
            if count == 0 {
                break;
            }
            opened.extend(plain);
            opener.take(count);
        }
        if bytes.is_empty() {
            return Ok(opened);
        }
        let room = opener.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        opener.filled(count);
        bytes = &bytes[count..];
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn records_changed_cut_or_out_of_order_are_never_taken_for_another(
        lengths in proptest::collection::vec(0usize..3000, 1..6),
        flip in any::<usize>(), swap in any::<bool>(), noise in proptest::collection::vec(any::<u8>(), 0..200)
    ) {
        let (send, receive) = directions();
        let (mut sealer, mut opener) = (Sealer::new(send), Opener::new(receive));
        let mut records: Vec<Vec<u8>> = Vec::new();
        let mut whole = Vec::new();
        for (index, length) in lengths.iter().enumerate() {
            let bytes = vec![index as u8 + 1; *length];
            prop_assert_eq!(sealer.seal(&[io::IoSlice::new(&bytes)]), *length);
            records.push(sealer.unsent().to_vec());
            sealer.advance(length + 18);
            whole.extend(bytes);
        }
        if swap && records.len() > 1 {
            records.swap(0, 1);
        } else if flip % 3 > 0 {
            let record = flip % records.len();
            let at = flip / 7 % records[record].len();
            records[record][at] ^= 1 << (flip % 8);
        }
        let sent = [records.concat(), noise].concat();
        let mut opened = Vec::new();
        for chunk in sent.chunks(1 + flip % 500) {
            match open_all(&mut opener, chunk) {
                Ok(more) => opened.extend(more),
                Err(_) => break,
            }
        }
        prop_assert!(whole.starts_with(&opened), "what is taken is what was sent, up to the damage");
    }
}

#[test]
fn the_longest_record_passes_and_a_claim_takes_no_memory() {
    let (send, receive) = directions();
    let (mut sealer, mut opener) = (Sealer::new(send), Opener::new(receive));
    let held = RECORDS_PER_WRITE * RECORD_BYTES_MAX;
    let long: Vec<u8> = (0..held + 70_000).map(|place| (place / 7) as u8).collect();
    let (front, back) = long.split_at(100_000);
    assert_eq!(sealer.seal(&[front, &[], back].map(io::IoSlice::new)), held);
    let records = sealer.unsent().to_vec();
    assert_eq!(records.len(), RECORDS_PER_WRITE << 16);
    let room = opener.room().len();
    let opened = records.chunks(50_000).flat_map(|chunk| open_all(&mut opener, chunk).unwrap());
    assert!(opened.collect::<Vec<_>>() == long[..held]);
    assert!(open_all(&mut opener, &[0xff, 0xff]).is_err(), "longer than a record may be");
    let mut opener = Opener::new(directions().1);
    assert!(open_all(&mut opener, &[0xff, 0xfe, 1, 2, 3]).is_ok_and(|opened| opened.is_empty()));
    assert!(opener.room().len() <= room, "the room is the same whatever is claimed");
}
