//! By which doors a daemon is reached, and what a process hears that takes the place of a dead one.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Scene, wait_for};
use crate::jobs;
use crate::served::Served;

/// Somebody who took a port, and hears what is sent there.
struct Listener {
    heard: Arc<Mutex<Vec<u8>>>,
    connections: Arc<Mutex<usize>>,
}

impl Listener {
    fn at(address: SocketAddr) -> Listener {
        let port = wait_for(|| format!("a free {address}"), || TcpListener::bind(address).ok());
        let listener = Listener { heard: Arc::default(), connections: Arc::default() };
        let (heard, connections) = (Arc::clone(&listener.heard), Arc::clone(&listener.connections));
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = port.accept() {
                *connections.lock().expect("no holder of this lock panics") += 1;
                let heard = Arc::clone(&heard);
                std::thread::spawn(move || {
                    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
                    let mut bytes = [0; 4096];
                    while let Ok(count) = stream.read(&mut bytes) {
                        let mut heard = heard.lock().expect("no holder of this lock panics");
                        heard.extend(&bytes[..count]);
                        if count == 0 {
                            break;
                        }
                    }
                });
            }
        });
        listener
    }

    fn connections(&self) -> usize {
        *self.connections.lock().expect("no holder of this lock panics")
    }
}

/// Every verb that asks a daemon.
const VERBS: [&[&str]; 12] = [
    &["dashboard"],
    &["submit", "job.toml"],
    &["jobs"],
    &["job", "digits-1"],
    &["logs", "digits-1"],
    &["suspend", "digits-1"],
    &["resume", "digits-1"],
    &["cancel", "digits-1"],
    &["policy", "srtf"],
    &["scale", "digits-1", "--workers", "1..2"],
    &["watch", "digits-1"],
    &["stop", "digits-1"],
];

#[test]
fn what_a_daemon_prints_opens_nothing() {
    let scene: Scene = jobs::momentum().scene();
    let daemon = Served::start(&scene, &["--policy", "fifo", "--slots", "1"]);
    let text =
        wait_for(|| "no word".into(), || Some(daemon.stdout()).filter(|text| text.contains("dashboard")));
    assert!(text.contains("`bellwether dashboard` prints an address"), "{text}");
    let secret = |text: &str| text.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() >= 32);
    assert!(!secret(&text), "{text}");
    let ended = scene.call(&["dashboard"]);
    let address = format!("http://{}/#code=", daemon.address());
    assert!(ended.stdout.starts_with(&address) && secret(&ended.stdout), "{ended:?}");
    ended.says(&["once, within 120 s"]);
    assert_ne!(scene.call(&["dashboard"]).stdout, ended.stdout);
    // Only its user reads what lies in its folder.
    for name in ["token", "metrics_token", "socket"] {
        let path = scene.path("state/bellwether/.serve").join(name);
        let mode = std::fs::metadata(path).map(|about| about.permissions().mode() & 0o777);
        assert_eq!(mode.ok(), Some(0o600), "{name}");
    }
}

#[test]
fn a_process_that_takes_the_port_of_a_dead_daemon_is_told_nothing() {
    let scene: Scene = jobs::momentum().scene();
    let daemon = Served::start(&scene, &["--policy", "fifo", "--slots", "1"]);
    let address = daemon.address();
    assert_eq!(scene.call(&["policy", "--format", "json"]).stdout, "{\"policy\":\"fifo\"}\n");
    daemon.kill();
    assert!(scene.path("state/bellwether/.serve/endpoint.json").exists(), "it had no time to tidy up");
    let listener = Listener::at(address);
    let asked: Vec<_> = VERBS.iter().map(|verb| (verb, scene.start(verb))).collect();
    for (verb, live) in asked {
        let ended = live.end();
        // `jobs` can do without a daemon.
        let code = if verb[0] == "jobs" { 0 } else { 2 };
        assert_eq!(ended.code, Some(code), "{verb:?}: {ended:?}");
        ended.says(&["no daemon answers", "has died"]);
    }
    assert_eq!(listener.connections(), 0, "{:?}", listener.heard.lock().map(|heard| heard.len()));
}

/// Copies all that goes through it in both directions, and keeps it.
fn relay_to(address: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let port = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let own = port.local_addr().expect("a bound socket has an address");
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let all = Arc::clone(&kept);
    std::thread::spawn(move || {
        while let Ok((client, _)) = port.accept() {
            let Ok(server) = TcpStream::connect(address) else { continue };
            let both = (client.try_clone(), server.try_clone());
            let (Ok(client_too), Ok(server_too)) = both else { continue };
            for (mut from, mut to) in [(client, server), (server_too, client_too)] {
                let kept = Arc::clone(&all);
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        kept.lock().expect("no holder of this lock panics").extend(&bytes[..count]);
                        let _ = to.write_all(&bytes[..count]);
                    }
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (own, kept)
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|part| part == word.as_bytes())
}

#[test]
fn from_elsewhere_a_daemon_is_known_by_its_certificate() {
    let scene: Scene = jobs::momentum().scene();
    let daemon = Served::start(&scene, &["--policy", "fifo", "--slots", "2", "--https"]);
    let address = daemon.address();
    let file = scene.path("state/bellwether/.serve/connection.json");
    let told: Value = serde_json::from_slice(&std::fs::read(&file).expect("it is there")).expect("JSON");
    assert_eq!(told["url"], format!("https://{address}"));
    let (token, pin) = (told["token"].as_str().expect("text"), told["fingerprint"].as_str().expect("text"));
    let said =
        wait_for(|| "no word".into(), || Some(daemon.stdout()).filter(|text| text.contains("dashboard")));
    assert!(said.contains(pin) && said.contains("connection.json") && !said.contains(token), "{said}");
    // All that crosses the network, of every kind of answer.
    let (relay, kept) = relay_to(address);
    let (url, copy) = (format!("https://{relay}"), file.display().to_string());
    let ask = |verb: &[&str]| scene.call(&[verb, &["--server", &url, "--connection", &copy]].concat());
    let submitted = ask(&["submit", "job.toml", "--name", "mine", "--follow"]);
    assert_eq!(submitted.code, Some(0), "{submitted:?}");
    assert_eq!(ask(&["policy", "srtf", "--format", "json"]).stdout, "{\"policy\":\"srtf\"}\n");
    for verb in [&["jobs"][..], &["logs", "mine"], &["job", "mine"], &["dashboard"]] {
        let ended = ask(verb);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert!(ask(&["dashboard"]).stdout.starts_with(&format!("{url}/#code=")));
    let kept = kept.lock().expect("no holder of this lock panics").clone();
    assert!(kept.len() > 1000);
    for word in [token, "Bearer", "/v1/", "mine", "HTTP/1.1"] {
        assert!(!holds(&kept, word), "`{word}` can be overheard");
    }
    // Who answers in its place with another certificate is told nothing.
    daemon.kill();
    let other: Scene = jobs::momentum().scene();
    let at = address.to_string();
    drop(wait_for(|| format!("a free {address}"), || TcpListener::bind(address).ok()));
    let stranger = Served::start(&other, &["--policy", "fifo", "--slots", "2", "--https", "--listen", &at]);
    let refused = scene.call(&["policy", "--connection", &copy]);
    refused.refused_with(&["not the one that was pinned", "sha256:", "copy `.serve/connection.json`"]);
    drop(stranger);
}

#[test]
fn a_process_that_takes_the_port_of_a_daemon_elsewhere_hears_no_token() {
    let scene: Scene = jobs::momentum().scene();
    let daemon = Served::start(&scene, &["--policy", "fifo", "--slots", "1", "--https"]);
    let address = daemon.address();
    let folder = scene.path("state/bellwether/.serve");
    let copy = folder.join("connection.json").display().to_string();
    daemon.kill();
    let listener = Listener::at(address);
    let asked: Vec<_> =
        VERBS.iter().map(|verb| scene.start(&[*verb, &["--connection", &copy]].concat())).collect();
    for live in asked {
        assert_eq!(live.end().code, Some(2));
    }
    assert!(listener.connections() > 0);
    let token = std::fs::read_to_string(folder.join("token")).expect("it is there");
    let heard = listener.heard.lock().expect("no holder of this lock panics");
    assert!(!heard.is_empty() && !holds(&heard, token.trim()) && !holds(&heard, "Bearer"));
    // What was heard is the beginning of a handshake.
    assert_eq!(heard[..2], [22, 3]);
}

#[test]
fn certificates_that_cannot_be_used_are_refused() {
    let scene: Scene = jobs::momentum().scene();
    let serve =
        |more: &[&str]| scene.call(&[&["serve", "--policy", "fifo", "--slots", "1"][..], more].concat());
    serve(&["--certificate", "job.toml", "--key", "job.toml"]).refused_with(&[
        "job.toml",
        "no certificate",
        "PEM",
    ]);
    serve(&["--certificate", "nothing", "--key", "job.toml"]).refused_with(&["nothing", "No such file"]);
    serve(&["--certificate", "job.toml"]).refused_with(&["--key"]);
    serve(&["--https", "--plain-http"]).refused_with(&["--https", "--plain-http"]);
}
