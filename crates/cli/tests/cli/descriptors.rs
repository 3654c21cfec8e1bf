//! Strangers who hold connections and say nothing: a process of a run keeps descriptors for what it must do itself.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellwether_core::record::Event;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::harness::{Live, PROGRAM, Scene, wait_for};
use crate::jobs;

/// Connections that are open at a time, of all strangers together.
const STRANGERS: usize = 1100;

/// Opens connections to these addresses, says nothing or half of a greeting, and opens others for those that are closed.
struct Flood {
    over: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn of(addresses: Vec<SocketAddr>) -> Flood {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).expect("what is allowed may be had");
        let flood = Flood { over: Arc::default(), opened: Arc::default(), thread: None };
        let (over, opened) = (Arc::clone(&flood.over), Arc::clone(&flood.opened));
        let thread = std::thread::spawn(move || {
            let mut held: Vec<TcpStream> = Vec::new();
            let mut addresses = addresses.iter().cycle();
            while !over.load(Ordering::Relaxed) {
                held.retain(|mut stream| !matches!(stream.read(&mut [0; 64]), Ok(0)));
                while held.len() < STRANGERS {
                    let address = addresses.next().expect("there are some");
                    let Ok(mut stream) = TcpStream::connect_timeout(address, Duration::from_secs(1)) else {
                        break;
                    };
                    stream.set_nonblocking(true).expect("a socket can be told not to wait");
                    if held.len().is_multiple_of(2) {
                        let _ = stream.write(b"BWch\x02\0");
                    }
                    held.push(stream);
                    opened.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Flood { thread: Some(thread), ..flood }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it ends once");
        thread.join().expect("it does not panic");
    }
}

/// `bellwether ARGUMENTS`, which may have this many descriptors.
fn limited(scene: &Scene, descriptors: u32, arguments: &[&str]) -> Command {
    let usual = scene.command(arguments);
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, PROGRAM]).args(arguments).stdin(Stdio::null());
    command.current_dir(usual.get_current_dir().expect("scenes have folders"));
    for (key, value) in usual.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    command
}

/// Waits until this many workers have come.
fn attached(run: &Live<'_>, number: u64) {
    run.until(&format!("worker {number}"), |event| match event {
        Event::WorkerAttached { worker, .. } if *worker >= number => Some(()),
        _ => None,
    });
}

/// Strangers at the coordinator and at a worker, from before the second worker comes until after the last step.
fn flooded(descriptors: u32) {
    let recipe = jobs::patient().steps(400);
    let scene = recipe.scene();
    let settings = ["--set", "checkpoint.every_steps=20", "--set", "checkpoint.keep=50"];
    let run = ["run", "job.toml", "--format", "json", "--workers", "2"];
    let mut run = scene.start_command(limited(&scene, descriptors, &[&run[..], &settings].concat()));
    assert!(run.reach(1));
    let endpoint = scene.endpoint();
    let worker = run.until("a worker", |event| match event {
        Event::WorkerAttached { address, .. } => address.parse().ok(),
        _ => None,
    });
    let flood = Flood::of(vec![endpoint.control, endpoint.data, worker]);
    wait_for(|| "a flood".into(), || (flood.opened() >= 2 * STRANGERS).then_some(()));
    // A worker dies, and is replaced.
    let (_, process) = scene.workers()[1];
    scene.kill_worker(process);
    attached(&run, 3);
    // Somebody comes over the network, as from another machine.
    let (address, token) = (endpoint.control.to_string(), scene.run_folder().join("token"));
    let token = token.display().to_string();
    let mut join = scene.command(&["worker", "--join", &address, "--token-file", &token]);
    join.env("XDG_RUNTIME_DIR", scene.path("nothing"));
    let began = Instant::now();
    let more = scene.start_command(join);
    attached(&run, 4);
    println!("with {descriptors} descriptors a worker was let in after {:?}", began.elapsed());
    assert_eq!(scene.call(&["jobs"]).code, Some(0));
    let summary = run.summary();
    flood.end();
    drop(more);
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    let mut kept = scene.picked(|event| match event {
        Event::Checkpointed { step, .. } => Some(*step),
        _ => None,
    });
    // One that a change of the membership interrupted may be written twice.
    kept.dedup();
    let due: Vec<u64> = (1..=20).map(|number| 20 * number).collect();
    assert_eq!(kept, due, "every checkpoint is there");
    let failed = scene.picked(|event| match event {
        Event::CheckpointFailed { .. } => Some(event.clone()),
        _ => None,
    });
    assert_eq!(failed, []);
    scene.audit();
}

#[test]
fn strangers_who_hold_connections_cost_neither_checkpoints_nor_workers() {
    // A coordinator often has this number, and handshakes alone would take them all.
    for descriptors in [1024, 160] {
        flooded(descriptors);
    }
}
