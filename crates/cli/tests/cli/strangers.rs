//! A process that knocks without the token, or with nonsense, is sent away and noted, and does no harm.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether_core::record::Event;

use crate::harness::{Live, Random, Scene, is_alive, wait_for};
use crate::jobs::{self, Recipe};

fn refusals(scene: &Scene) -> Vec<String> {
    scene.picked(|event| match event {
        Event::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

fn wait_for_refusal(run: &Live<'_>, word: &str) {
    run.until(&format!("a refusal with `{word}`"), |event| match event {
        Event::Refused { reason, .. } if reason.contains(word) => Some(()),
        _ => None,
    });
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has a timeout");
    stream
}

/// Says something and waits until the other side hangs up.
fn say(address: SocketAddr, bytes: &[u8]) {
    let mut stream = connect(address);
    // The other side may hang up before it has heard all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{address} does not hang up on nonsense");
    }
}

/// Where the workers' data planes listen.
fn data_planes(scene: &Scene) -> Vec<SocketAddr> {
    scene.picked(|event| match event {
        Event::WorkerAttached { address, .. } => address.parse().ok(),
        _ => None,
    })
}

#[track_caller]
fn unharmed(scene: &Scene, run: Live<'_>, recipe: &Recipe) {
    let summary = run.summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!(summary.crashes, []);
    let formed = scene.picked(|event| matches!(event, Event::Membership { .. }).then_some(()));
    assert_eq!(formed.len(), 1, "no stranger makes the members form again");
}

#[test]
fn a_worker_with_a_wrong_token_is_refused() {
    let recipe = jobs::patient();
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(1));
    let address = scene.endpoint().control.to_string();
    scene.write("wrong", "ab".repeat(32));
    let worker = scene.call(&["worker", "--join", &address, "--token-file", "wrong"]);
    worker.refused_with(&[&address, "refused", "token", "--token-file"]);
    wait_for_refusal(&run, "its token is not this run's");
    std::fs::write(scene.path("token"), "ab".repeat(32)).expect("it can be written");
    unharmed(&scene, run, &recipe);
}

#[test]
fn nonsense_on_the_control_plane_is_refused() {
    let recipe = jobs::patient();
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(1));
    let address = scene.endpoint().control;
    // The journal keeps the first refusals of a crowd only: the patient one comes first.
    let silent = connect(address);
    wait_for_refusal(&run, "in time");
    say(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut random = Random(1);
    for _ in 0..20 {
        let noise: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
        say(address, &noise);
    }
    // What a coordinator without a secure channel spoke.
    say(address, &[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0xff; 400]].concat());
    wait_for_refusal(&run, "speaks another protocol");
    let many: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    assert!(scene.call(&["jobs"]).stdout.contains("job-1"));
    wait_for_refusal(&run, "too many handshakes");
    drop((silent, many));
    unharmed(&scene, run, &recipe);
}

/// Listens where a process was that died, and keeps all that it is told.
struct Impostor {
    heard: Arc<Mutex<Vec<u8>>>,
    calls: Arc<AtomicU32>,
}

impl Impostor {
    fn at(address: SocketAddr) -> Impostor {
        let socket = wait_for(|| format!("a free {address}"), || std::net::TcpListener::bind(address).ok());
        let (heard, calls) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU32::new(0)));
        let (all, count) = (Arc::clone(&heard), Arc::clone(&calls));
        std::thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let all = Arc::clone(&all);
                std::thread::spawn(move || listen_in(stream, &all));
            }
        });
        Impostor { heard, calls }
    }

    /// How often it was called.
    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// Encourages the caller to say more, as a server of HTTP/2 does, and as a listener of ours that means another run.
fn listen_in(mut stream: TcpStream, all: &Mutex<Vec<u8>>) {
    stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket has a timeout");
    let mut bytes = [0; 4096];
    let mut answers = [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], &b"BWch\x02\0\x02\0"[..]].into_iter();
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        all.lock().expect("no listener panics").extend(&bytes[..count]);
        let answer = if bytes[..count].starts_with(b"PRI") { answers.next() } else { answers.next_back() };
        let _ = stream.write_all(answer.unwrap_or_default());
    }
}

/// The bits of these bytes, as text.
fn bits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:08b}")).collect()
}

/// Hexadecimal digits as HTTP/2 compresses them (RFC 7541, appendix B), as text.
fn huffman(digits: &str) -> String {
    const CODES: [&str; 16] = [
        "00000", "00001", "00010", "011001", "011010", "011011", "011100", "011101", "011110", "011111",
        "00011", "100011", "00100", "100100", "00101", "100101",
    ];
    digits.chars().map(|digit| CODES[digit.to_digit(16).expect("a hexadecimal digit") as usize]).collect()
}

/// Neither the secret in this file nor a part of it, as it is, as digits, or as HTTP/2 compresses these. The parts are so
/// long that none is found by chance in megabytes of ciphertext.
pub(crate) fn assert_no_secret(file: &Path, heard: &[u8]) {
    let text = std::fs::read_to_string(file).expect("there is a secret");
    let digits = text.split_whitespace().next().expect("it begins with the secret");
    let secret: Vec<u8> =
        (0..32).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("digits")).collect();
    let all = bits(heard);
    for at in (0..32).step_by(8) {
        let part = &secret[at..at + 8];
        assert!(!heard.windows(8).any(|window| window == part), "bytes {at}.. of {}", file.display());
    }
    for at in (0..64).step_by(16) {
        let part = &digits[at..at + 16];
        assert!(
            !heard.windows(16).any(|window| window == part.as_bytes()),
            "digits {at}.. of {}",
            file.display()
        );
        assert!(!all.contains(&huffman(part)), "digits {at}.. of {}, compressed", file.display());
    }
}

#[test]
fn a_process_that_takes_the_port_of_a_dead_coordinator_learns_nothing() {
    let recipe = jobs::patient().steps(60);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(1));
    let endpoint = scene.endpoint();
    run.kill();
    let impostors = [Impostor::at(endpoint.control), Impostor::at(endpoint.data)];
    for verb in
        [&["scale", "job-1", "--workers", "3"][..], &["watch", "job-1"], &["jobs"], &["audit", "job-1"]]
    {
        scene.call(verb);
    }
    let before = impostors[0].calls();
    assert!(before >= 2, "the verbs called {before} times");
    // Two orphaned workers, who are told again and again that the run has another token.
    wait_for(|| "a call of an orphaned worker".into(), || (impostors[0].calls() > before + 10).then_some(()));
    assert!(scene.workers().iter().all(|(_, process)| is_alive(*process)), "they keep the state and wait");
    // Its coordinator is gone, so this ends the workers.
    assert_eq!(scene.call(&["stop", "job-1"]).code, Some(0));
    for impostor in &impostors {
        assert_no_secret(
            &scene.run_folder().join("token"),
            &impostor.heard.lock().expect("no listener panics"),
        );
    }
    // The true coordinator comes back elsewhere; nothing is lost but the steps since the last checkpoint.
    let resumed = scene.resume(&["--listen", "127.0.0.1:0"]).summary();
    assert_eq!(resumed.params_digest, Some(recipe.digest()), "{resumed:?}");
}

#[test]
fn nonsense_on_the_data_plane_is_refused() {
    let recipe = jobs::heavy().steps(150);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(1));
    let mut random = Random(2);
    let places = [&data_planes(&scene)[..], &[scene.endpoint().data]].concat();
    assert_eq!(places.len(), 3, "{places:?}");
    for place in places {
        let silent = connect(place);
        // Frames that claim to be longer than any memory.
        say(place, &[&[0xff; 7][..], &[0x7f], &[0; 500]].concat());
        say(place, &(1_u64 << 63).to_le_bytes().repeat(50));
        say(place, &(1_u64 << 63).to_be_bytes().repeat(50));
        for _ in 0..20 {
            let noise: Vec<u8> = (0..1 + random.below(400)).map(|_| random.below(256) as u8).collect();
            say(place, &noise);
        }
        let many: Vec<TcpStream> = (0..100).map(|_| connect(place)).collect();
        drop((silent, many));
    }
    assert!(
        refusals(&scene).iter().any(|reason| reason.starts_with("on the data plane")),
        "{:?}",
        refusals(&scene)
    );
    unharmed(&scene, run, &recipe);
}
