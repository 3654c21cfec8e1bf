//! Who knocks without the token, or with nonsense: is sent away, noted, and harms nobody.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bellwether_core::record::Event;

use crate::harness::{Live, Random, Scene};
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
    assert_eq!(formed.len(), 1, "no stranger makes the members form anew");
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
    wait_for_refusal(&run, "within 5 s");
    say(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut random = Random(1);
    for _ in 0..20 {
        let noise: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
        say(address, &noise);
    }
    // The right greeting, and then noise.
    say(address, &[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0xff; 400]].concat());
    wait_for_refusal(&run, "it does not speak the control protocol");
    let many: Vec<TcpStream> = (0..300).map(|_| connect(address)).collect();
    assert!(scene.call(&["jobs"]).stdout.contains("job-1"));
    wait_for_refusal(&run, "too many connections");
    drop((silent, many));
    unharmed(&scene, run, &recipe);
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
