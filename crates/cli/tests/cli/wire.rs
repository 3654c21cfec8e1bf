//! What a listener on the wire learns: between the machines of a run, and on the loopback of a daemon with a browser.
//!
//! Machines are network namespaces. Making them takes root and the program `ip`; without, these tests say so and end.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bellwether_core::record::{Event, Summary};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};

use crate::harness::{PROGRAM, Scene, wait_for};
use crate::jobs;
use crate::links::told;
use crate::served::Served;
use crate::strangers::assert_no_secret;

/// Two machines with a cable between them; gone with this value.
struct Machines(String);

impl Machines {
    /// `None` where this process may not make any.
    fn new() -> Option<Machines> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let machines = Machines(format!("bw{}-{number}", std::process::id()));
        let (a, b) = (machines.name(1), machines.name(2));
        let steps = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add cable type veth peer name cable netns {b}"),
            format!("-n {a} addr add 10.77.0.1/24 dev cable"),
            format!("-n {b} addr add 10.77.0.2/24 dev cable"),
            format!("-n {a} link set cable up"),
            format!("-n {b} link set cable up"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
        ];
        let made = steps.iter().all(|step| ip(step));
        if !made {
            println!("skipped: making network namespaces takes root and the program `ip`");
        }
        made.then_some(machines)
    }

    /// The same with a slow cable, of a rate as `tc` writes it.
    fn slow(rate: &str) -> Option<Machines> {
        let machines = Machines::new()?;
        let shaped = format!("qdisc add dev cable root tbf rate {rate} burst 64kb limit 1mb");
        let is_slow = [1, 2].iter().all(|machine| {
            let words = format!("-n {} {shaped}", machines.name(*machine));
            quiet("tc", &words)
        });
        if !is_slow {
            println!("skipped: a slow cable takes the program `tc`");
        }
        is_slow.then_some(machines)
    }

    fn name(&self, machine: u32) -> String {
        format!("{}-{machine}", self.0)
    }

    /// `bellwether ARGUMENTS` on this machine.
    fn command(&self, machine: u32, scene: &Scene, arguments: &[&str]) -> Command {
        let here = scene.command(arguments);
        let mut there = Command::new("ip");
        there.args(["netns", "exec", &self.name(machine), PROGRAM]).args(arguments).stdin(Stdio::null());
        there.current_dir(here.get_current_dir().expect("scenes have folders"));
        for (key, value) in here.get_envs() {
            match value {
                Some(value) => there.env(key, value),
                None => there.env_remove(key),
            };
        }
        there
    }

    /// Bytes of all packets that it has sent over the cable.
    fn sent_bytes(&self, machine: u32) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").expect("Linux tells");
        let devices = self.on(machine, read);
        let cable = devices.lines().find_map(|line| line.trim().strip_prefix("cable:"));
        let sent = cable.and_then(|counts| counts.split_whitespace().nth(8)?.parse().ok());
        sent.expect("the cable is there")
    }

    /// Does this with a thread on the machine.
    fn on<T: Send>(&self, machine: u32, work: impl FnOnce() -> T + Send) -> T {
        let place = File::open(format!("/run/netns/{}", self.name(machine))).expect("the machine is there");
        let work = move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(place.as_fd(), kind).expect("root may enter it");
            work()
        };
        std::thread::scope(|scope| scope.spawn(work).join()).expect("it does not panic")
    }

    /// Keeps every packet of the first machine's networks, its loopback included.
    fn listen_in(&self) -> Heard {
        let every = Protocol::from(i32::from(3_u16.to_be()));
        let open = || Socket::new(Domain::PACKET, Type::RAW, Some(every)).expect("root may listen in");
        let mut socket = self.on(1, open);
        socket.set_recv_buffer_size(64 << 20).expect("a socket has a buffer");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket has a timeout");
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let (mut packet, mut bytes) = (vec![0; 1 << 17], Vec::new());
            loop {
                // What came before it was told to end is still heard.
                let last = told.load(Ordering::Relaxed);
                match socket.read(&mut packet) {
                    Ok(count) => bytes.extend(&packet[..count]),
                    Err(_) if last => return bytes,
                    Err(_) => {}
                }
            }
        });
        Heard { over, thread }
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in [1, 2] {
            ip(&format!("netns del {}", self.name(machine)));
        }
    }
}

fn ip(words: &str) -> bool {
    quiet("ip", words)
}

fn quiet(program: &str, words: &str) -> bool {
    let status =
        Command::new(program).args(words.split(' ')).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// What is heard while this lives.
struct Heard {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u8>>,
}

impl Heard {
    /// All that was heard.
    fn end(self) -> Vec<u8> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}

fn holds(heard: &[u8], word: &[u8]) -> bool {
    heard.windows(word.len()).any(|window| window == word)
}

/// How often the values of a checkpoint, two by two, stand in what was heard.
fn heard_values(checkpoint: &str, heard: &[u8]) -> usize {
    let file = std::fs::read(checkpoint).expect("the checkpoint is there");
    // The second half is values only; pairs that look like much else are left out.
    let telling = |pair: &[u8; 8]| pair.iter().collect::<BTreeSet<_>>().len() >= 6;
    let pairs = file[file.len() / 2..].as_chunks::<8>().0;
    let pairs: BTreeSet<[u8; 8]> = pairs.iter().copied().filter(telling).collect();
    assert!(pairs.len() > 1000, "{} pairs of values", pairs.len());
    heard.array_windows::<8>().filter(|window| pairs.contains(*window)).count()
}

/// Waits until one of three workers, which is alone on its machine, exchanges so with the others; or with one of them,
/// if these add up what they have first. Which it is depends on who came first.
fn are_linked_by(kind: &str, show: impl Fn() -> String) {
    let linked = || {
        let ways = told(&show());
        let remote = ways.values().filter(|other| *other == kind).count();
        matches!((ways.len(), remote), (6, 4) | (4, 2)).then_some(())
    };
    wait_for(|| format!("{kind}: {}", show()), linked);
}

/// A run with workers on both machines, linked by links of this kind, and steered from the second one; what was heard
/// of it.
fn run_on_two(machines: &Machines, scene: &Scene, more: &[&str], kind: &str) -> (Summary, Vec<u8>) {
    let heard = machines.listen_in();
    let run = ["run", "job.toml", "--format", "json", "--no-spawn", "--workers", "1..3", "--listen"];
    let run = [&run[..], &["10.77.0.1:0"], more].concat();
    let run = scene.start_command(machines.command(1, scene, &run));
    let address = scene.endpoint().control.to_string();
    let token = scene.run_folder().join("token").display().to_string();
    let worker = |machine: u32| {
        let listen = format!("10.77.0.{machine}:0");
        let join = ["worker", "--join", &address, "--token-file", &token, "--listen", &listen];
        scene.start_command(machines.command(machine, scene, &join))
    };
    // Gradients travel both ways, the state to the third one, the last checkpoint to the first machine.
    let begin = [worker(2), worker(1)];
    run.until("a step", |event| matches!(event, Event::Committed { .. }).then_some(()));
    let third = worker(2);
    run.until("a membership of three", |event| match event {
        Event::Membership { workers, .. } if workers.len() == 3 => Some(()),
        _ => None,
    });
    let from_afar = |verb: &[&str]| scene.start_command(machines.command(2, scene, verb));
    let watch = from_afar(&["watch", "job-1"]);
    are_linked_by(kind, || from_afar(&["show", "job-1", "--format", "json"]).end().stdout);
    for verb in
        [&["jobs"][..], &["scale", "job-1", "--workers", "3"], &["audit", "job-1"], &["stop", "job-1"]]
    {
        let ended = from_afar(verb).end();
        assert_eq!(ended.code, Some(0), "{verb:?}: {ended:?}");
    }
    let summary = run.summary();
    assert_eq!(watch.end().code, Some(0));
    drop((begin, third));
    assert_eq!(summary.outcome.word(), "stopped", "{summary:?}");
    (summary, heard.end())
}

/// Words of ours that would be read on a wire without encryption.
const WORDS: [&[u8]; 3] = [b"PRI * HTTP", b"BWf1", b"synthetic"];

#[test]
fn a_run_on_two_machines_shows_neither_token_nor_parameters() {
    let Some(machines) = Machines::new() else { return };
    let scene = jobs::patient().scene();
    let (summary, heard) = run_on_two(&machines, &scene, &[], "encrypted_tcp");
    assert!(heard.len() > 1 << 20, "{} bytes were heard", heard.len());
    assert!(holds(&heard, b"BWch"), "the greetings are in the clear");
    for word in WORDS {
        assert!(!holds(&heard, word), "{}", word.escape_ascii());
    }
    assert_no_secret(&scene.run_folder().join("token"), &heard);
    let checkpoint = summary.checkpoint.expect("a run that is stopped has its checkpoint");
    assert_eq!(heard_values(&checkpoint, &heard), 0, "pairs of values were heard");
}

/// A run with a worker on each machine, and the bytes that one sends the other in a step.
fn trained_on_two(machines: &Machines, steps: u64, more: &[&str]) -> (Summary, f64) {
    let scene = jobs::heavy().steps(steps).scene();
    let summary = trained_on(machines, &scene, &[1, 2], more);
    let traffic: Vec<_> =
        bellwether_runtime::metrics::read(&scene.run_folder()).flat_map(|step| step.traffic).collect();
    let sent: u64 = traffic.iter().map(|traffic| traffic.sent_bytes).sum();
    (summary, sent as f64 / traffic.len() as f64)
}

/// A run with workers on these machines, which join in this order.
fn trained_on(machines: &Machines, scene: &Scene, places: &[u32], more: &[&str]) -> Summary {
    let count = places.len().to_string();
    let run =
        ["run", "job.toml", "--format", "json", "--no-spawn", "--workers", &count, "--listen", "10.77.0.1:0"];
    let run = scene.start_command(machines.command(1, scene, &[&run[..], more].concat()));
    let address = scene.endpoint().control.to_string();
    let token = scene.run_folder().join("token").display().to_string();
    let workers = places.iter().map(|machine| {
        let listen = format!("10.77.0.{machine}:0");
        let join = ["worker", "--join", &address, "--token-file", &token, "--listen", &listen];
        let worker = scene.start_command(machines.command(*machine, scene, &join));
        // The first one is the coordinator's neighbour.
        run.until("a worker", |event| matches!(event, Event::WorkerAttached { .. }).then_some(()));
        worker
    });
    let workers: Vec<_> = workers.collect();
    let summary = run.summary();
    drop(workers);
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    summary
}

/// Machines add up what their workers have before it crosses the cable, in whatever order the workers came.
#[test]
fn two_workers_of_a_machine_send_no_more_than_one() {
    const STEPS: u64 = 24;
    let Some(machines) = Machines::new() else { return };
    let recipe = jobs::heavy().steps(STEPS);
    let vectors = |places: &[u32]| {
        let before = [1, 2].map(|machine| machines.sent_bytes(machine));
        let summary = trained_on(&machines, &recipe.scene(), places, &[]);
        assert_eq!(summary.params_digest, Some(recipe.digest()));
        let sent = [1, 2].map(|machine| machines.sent_bytes(machine) - before[machine as usize - 1]);
        // Of 8 MiB.
        sent.map(|sent| sent as f64 / (STEPS as f64 * f64::from(8 << 20)))
    };
    let (one, two) = (vectors(&[1, 2]), vectors(&[1, 2, 1, 2]));
    // Each sends the half that the other adds up, and the sum of its own half.
    for sent in [one, two].concat() {
        assert!((0.95..1.3).contains(&sent), "{one:?} with a worker each, {two:?} with two");
    }
}

/// The worker beside the coordinator has the state at once, and waits for the other's connection.
#[test]
fn a_worker_that_loads_over_a_slow_cable_is_waited_for() {
    let Some(machines) = Machines::slow("20mbit") else { return };
    let begun = jobs::heavy().steps(1).scene();
    let checkpoint = begun.train(&["--workers", "1"]).summary().checkpoint.expect("it left its state");
    // Parameters and momentum, 16 MiB, which take 6.7 s.
    let scene = jobs::heavy().steps(1).scene();
    let options = ["--set", &format!("initial_weights={checkpoint}")];
    let summary = trained_on(&machines, &scene, &[1, 2], &options);
    assert_eq!((&summary.workers[..], summary.crashes.len()), (&[2][..], 0), "{summary:?}");
    let journal = bellwether_runtime::journal::read(&scene.run_folder().join("journal.jsonl"));
    let first = journal.expect("a run has a journal").into_iter().find_map(|line| match line.event {
        Event::Membership { epoch, .. } => Some(epoch),
        _ => None,
    });
    assert_eq!(first, Some(1), "the first try to form failed");
}

#[test]
fn gradients_in_bfloat16_cross_a_cable_in_half_the_bytes_with_the_same_bits() {
    let Some(machines) = Machines::new() else { return };
    let recipe = jobs::heavy().steps(12);
    let bfloat16 = ["--set", "exchange.precision=bf16"];
    let alone = recipe.scene().train(&[&bfloat16[..], &["--workers", "1"]].concat()).summary().params_digest;
    let (in_whole, whole) = trained_on_two(&machines, 12, &[]);
    let (in_half, half) = trained_on_two(&machines, 12, &bfloat16);
    assert_eq!((in_whole.params_digest, in_half.params_digest), (Some(recipe.digest()), alone));
    assert!(whole > f64::from(8 << 20), "{whole} B");
    assert!((half / whole - 0.5).abs() < 0.01, "{half} B of {whole} B");
}

/// A page's requests, by hand.
fn browse(daemon: &Served<'_>, opened: &str) {
    let (address, code) = opened.trim().split_once("/#code=").expect("an address with a code");
    let host = address.strip_prefix("http://").expect("an address");
    let ask = |method: &str, path: &str, session: &str, body: &str| {
        let mut stream = TcpStream::connect(daemon.address()).expect("the daemon listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has a timeout");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {session}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).expect("it is there");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    };
    ask("GET", "/", "", "");
    let session = ask("POST", "/v1/sessions", "", &format!("{{\"code\":\"{code}\"}}"));
    let session: Value = serde_json::from_str(&session).expect("JSON");
    let session = session["session"].as_str().expect("a session");
    for path in ["/v1/jobs", "/v1/jobs/job", "/v1/jobs/job/curve", "/v1/cluster", "/v1/policy"] {
        ask("GET", path, session, "");
    }
}

#[test]
fn a_daemon_with_a_browser_shows_neither_tokens_nor_parameters() {
    let Some(machines) = Machines::new() else { return };
    let scene = jobs::patient().steps(40).scene();
    let heard = machines.listen_in();
    let serve = machines.command(1, &scene, &["serve", "--policy", "fifo", "--slots", "2"]);
    let daemon = Served::of(&scene, scene.start_command(serve));
    // As typed on the daemon's machine, each verb and the page.
    let here = |verb: &[&str]| scene.start_command(machines.command(1, &scene, verb)).end();
    let submit = ["submit", "job.toml", "--name", "job", "--max", "2", "--follow"];
    for verb in [&submit[..], &["jobs"], &["job", "job"], &["logs", "job"], &["policy", "srtf"]] {
        let ended = here(verb);
        assert_eq!(ended.code, Some(0), "{verb:?}: {ended:?}");
    }
    let opened = here(&["dashboard"]).stdout;
    machines.on(1, || browse(&daemon, &opened));
    assert_eq!(daemon.interrupt(), Some(0));
    let heard = heard.end();
    for word in [&b"POST /v1/sessions"[..], opened.trim().rsplit('=').next().expect("a code").as_bytes()] {
        assert!(holds(&heard, word), "a page is read as it is: {}", word.escape_ascii());
    }
    let folder = scene.path("state/bellwether");
    for token in [".serve/token", ".serve/metrics_token", "job/token"] {
        assert_no_secret(&folder.join(token), &heard);
    }
    let checkpoints = std::fs::read_dir(folder.join("job/checkpoints")).expect("the job left its result");
    for checkpoint in checkpoints.flatten() {
        assert_eq!(heard_values(&checkpoint.path().display().to_string(), &heard), 0);
    }
}

#[test]
fn without_encryption_the_same_listener_hears_all_but_the_token() {
    let Some(machines) = Machines::new() else { return };
    let scene = jobs::patient().scene();
    let (summary, heard) = run_on_two(&machines, &scene, &["--plain-transport", "the cable is short"], "tcp");
    for word in WORDS {
        assert!(holds(&heard, word), "{}", word.escape_ascii());
    }
    assert_no_secret(&scene.run_folder().join("token"), &heard);
    let checkpoint = summary.checkpoint.expect("a run that is stopped has its checkpoint");
    // Whether they are heard depends on which worker hands in the result; what is searched with finds them where they are.
    let file = std::fs::read(&checkpoint).expect("the checkpoint is there");
    assert!(heard_values(&checkpoint, &file) > 1000);
}
