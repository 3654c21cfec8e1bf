//! Requests that are too much: bodies of 100 MB, malformed HTTP heads, connections by the hundred.

use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{connect, head, job, raw, read};
use crate::fake::{SLOW, Server};

/// Lets this process have as many files as it may: each connection is two of them.
fn many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

/// Bytes of this process's memory.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_body_of_100_mb_is_refused_and_the_sender_hears_why() {
    let server = Server::start();
    let before = resident_bytes();
    let text =
        server.text("POST", "/v1/jobs", Some("")).replace("Content-Length: 0", "Content-Length: 104857600");
    let mut stream = connect(server.address());
    stream.write_all(text.as_bytes()).unwrap();
    // It sends on whatever it hears, as many clients do.
    let mut sender = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let block = vec![b' '; 1 << 20];
        (0..100).take_while(|_| sender.write_all(&block).is_ok()).count()
    });
    let answer = read(&mut BufReader::new(&stream));
    assert!(answer.refused(413).0.contains("1 MiB"));
    assert_eq!(answer.header("connection"), Some("close"));
    sending.join().unwrap();
    assert!(resident_bytes() < before + (40 << 20), "it was kept");
    assert_eq!(server.granted(), 0);
}

#[test]
fn who_sends_all_before_it_reads_is_not_cut_off() {
    let server = Server::start();
    let body = " ".repeat(8 << 20);
    let mut stream = connect(server.address());
    stream.write_all(server.text("POST", "/v1/jobs", Some(&body)).as_bytes()).unwrap();
    read(&mut BufReader::new(&stream)).refused(413);
}

#[test]
fn a_body_without_a_length_is_cut_at_the_limit() {
    let server = Server::start();
    let text =
        server.text("POST", "/v1/jobs", Some("")).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let chunk = |bytes: &str| format!("{:x}\r\n{bytes}\r\n", bytes.len());
    let mut stream = connect(server.address());
    stream.write_all(text.as_bytes()).unwrap();
    let block = chunk(&" ".repeat(1 << 16));
    let blocks = (0..1600).take_while(|_| stream.write_all(block.as_bytes()).is_ok()).count();
    read(&mut BufReader::new(&stream)).refused(413);
    // Up to the limit, chunks are as good as a length.
    assert!(blocks >= 16, "{blocks}");
    let body = json!({ "job": job("a"), "key": "k" }).to_string();
    let whole = text + &chunk(&body[..10]) + &chunk(&body[10..]) + "0\r\n\r\n";
    assert_eq!(raw(server.address(), whole.as_bytes()).status, 201);
    let padded = " ".repeat((1 << 20) - body.len()) + &body;
    assert_eq!(server.send("POST", "/v1/jobs", &padded).status, 200);
    server.send("POST", "/v1/jobs", format!(" {padded}")).refused(413);
}

#[test]
fn what_is_no_http_is_refused() {
    let server = Server::start();
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1_000_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: x\r\n".repeat(200));
    let twice =
        server.text("POST", "/v1/jobs", Some("{}")).replace("Length: 2", "Length: 2\r\nContent-Length: 3");
    let negative = server.text("POST", "/v1/jobs", Some("{}")).replace("Length: 2", "Length: -2");
    for noise in [
        "nonsense\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n\r\n",
        "GET /\u{0} HTTP/1.1\r\n\r\n",
        &long,
        &many,
        &twice,
        &negative,
    ] {
        let mut stream = connect(server.address());
        let _ = stream.write_all(noise.as_bytes());
        let (status, _) = head(&mut BufReader::new(stream));
        assert!([400, 414, 431].contains(&status), "{status}: {:.40}", noise);
    }
    // A chunk that is none, and a client that leaves in the middle.
    let text =
        server.text("POST", "/v1/jobs", Some("")).replace("Content-Length: 0", "Transfer-Encoding: chunked");
    raw(server.address(), (text + "zz\r\n").as_bytes()).refused(400);
    let text = server.text("POST", "/v1/jobs", Some("{\"job\": {}}"));
    let mut stream = connect(server.address());
    stream.write_all(&text.as_bytes()[..text.len() - 5]).unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!((server.get("/health").status, server.granted()), (200, 0));
}

#[test]
fn several_requests_on_one_connection() {
    let server = Server::start();
    let mut stream = connect(server.address());
    let text = server.text("GET", "/v1/cluster", None).replace("Connection: close\r\n", "");
    stream.write_all(text.repeat(20).as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    assert!((0..20).all(|_| read(&mut reader).status == 200));
}

#[test]
fn submissions_that_take_for_ever_are_in_no_ones_way() {
    let server = Server::start();
    server.fill(1);
    let run = server.run("x-0");
    std::fs::write(run.join("journal.jsonl"), "").unwrap();
    let mut slow = job("slow");
    slow["data"]["samples"] = json!(SLOW);
    for seed in 0..12 {
        // Each is another task, and its sender does not wait for the answer.
        slow["batch"]["size"] = json!(64 + 4 * seed);
        let mut stream = connect(server.address());
        let text = server.text("POST", "/v1/jobs", Some(&json!({ "job": slow }).to_string()));
        stream.write_all(text.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    // All threads of the API are busy if every one of these has one.
    assert_eq!(server.get("/v1/jobs/x-0/curve").status, 200);
    assert_eq!(server.gate.waiting(), (2, 2));
    server.gate.open();
    assert_eq!(server.send("POST", "/v1/jobs", json!({ "job": job("a") })).status, 201);
}

#[test]
fn three_hundred_connections_at_a_time() {
    many_files();
    let server = Server::start();
    server.fill(10);
    // Some say nothing, some begin and do not go on, some follow: all the others are served.
    let mut idle: Vec<_> = (0..100).map(|_| connect(server.address())).collect();
    for stream in &mut idle[..50] {
        stream.write_all(b"GET /v1/jobs HTTP/1.1\r\nHost:").unwrap();
    }
    let mut streams: Vec<_> = (0..50).map(|_| server.events("/v1/events")).collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..150 {
            let server = &server;
            scope.spawn(move || {
                let body = json!({ "job": job("a"), "name": format!("job-{number}") });
                assert_eq!(server.send("POST", "/v1/jobs", body).status, 201);
                assert_eq!(server.get(&format!("/v1/jobs/job-{number}")).status, 200);
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(server.now().jobs.size(), 160);
    for stream in &mut streams {
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 160 {
            let data = stream.next().unwrap().1;
            let names =
                data["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned());
            seen.extend(names);
        }
    }
    drop(idle);
}

#[test]
fn places_that_are_held_for_nothing_keep_no_client_out() {
    many_files();
    let server = Server::start();
    // They came before all others and are known.
    let mut followed = server.events("/v1/events");
    followed.next().unwrap();
    let mut known = connect(server.address());
    let request = server.text("GET", "/v1/cluster", None).replace("Connection: close\r\n", "");
    known.write_all(request.as_bytes()).unwrap();
    assert_eq!(read(&mut BufReader::new(&known)).status, 200);
    let mut idle: Vec<_> = (0..430).map(|_| connect(server.address())).collect();
    idle.last_mut().unwrap().write_all(b"GET /health HTTP/1.1\r\nHost:").unwrap();
    assert_eq!(server.get("/health").status, 200);
    // The first clients have left; none waited until its time was over.
    let began = Instant::now();
    assert_eq!(idle[0].read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let last = idle.last_mut().unwrap();
    last.write_all(format!(" {}\r\n\r\n", server.address()).as_bytes()).unwrap();
    assert_eq!(read(&mut BufReader::new(&*last)).status, 200, "who came last is still there");
    known.write_all(request.as_bytes()).unwrap();
    assert_eq!(read(&mut BufReader::new(&known)).status, 200);
    server.fill(1);
    assert_eq!(followed.next().unwrap().1["jobs"][0]["name"], "x-0");
}

#[test]
fn a_client_that_sends_no_request_is_let_go_when_the_server_stops() {
    let mut server = Server::start();
    let mut stream = connect(server.address());
    let began = Instant::now();
    server.serving = None;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
}
