//! The verbs that speak to a daemon, against one that is played: what they send, print and make of every answer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{Ended, Scene};
use crate::jobs;

/// The token of all daemons that are played.
const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// What was asked.
#[derive(Debug, Clone)]
struct Asked {
    /// Method and path with its query.
    what: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// What is answered: a status and a body; no status closes the connection instead.
type Answer = (u16, String);

/// A daemon that is played.
struct Played {
    /// Where it listens, if that is a port.
    address: Option<SocketAddr>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Played {
    /// Answers what `play` says of each request and the number of those before it.
    fn start(play: impl Fn(&Asked, usize) -> Answer + Send + 'static) -> Played {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let next = move || listener.accept().map(|(stream, _)| stream);
        Played { address: Some(address), ..Played::answering(next, play) }
    }

    /// The same in the scene's state directory.
    fn in_state(scene: &Scene, play: impl Fn(&Asked, usize) -> Answer + Send + 'static) -> Played {
        let listener = listen_in_state(scene);
        Played::answering(move || listener.accept().map(|(stream, _)| stream), play)
    }

    fn answering<S>(
        next: impl Fn() -> std::io::Result<S> + Send + 'static,
        play: impl Fn(&Asked, usize) -> Answer + Send + 'static,
    ) -> Played
    where
        for<'s> &'s S: Read + Write,
    {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&asked);
        std::thread::spawn(move || {
            while let Ok(stream) = next() {
                // A client may hang up at any time.
                let _ = answer(&stream, &all, &play);
            }
        });
        Played { address: None, asked }
    }

    /// Its port, as clients write it.
    fn url(&self) -> String {
        format!("http://{}", self.address.expect("it listens on a port"))
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no holder of this lock panics").clone()
    }

    /// Methods and paths of all requests.
    fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.what).collect()
    }
}

/// Listens as a daemon does, in place of one that was there.
fn listen_in_state(scene: &Scene) -> UnixListener {
    let folder = scene.path("state/bellwether/.serve");
    std::fs::create_dir_all(&folder).expect("the test's folder can be written");
    let socket = folder.join("socket");
    let _ = std::fs::remove_file(&socket);
    UnixListener::bind(socket).expect("the test's path is short")
}

fn answer<S>(
    mut stream: &S,
    all: &Mutex<Vec<Asked>>,
    play: &impl Fn(&Asked, usize) -> Answer,
) -> std::io::Result<()>
where
    for<'s> &'s S: Read + Write,
{
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let what = first.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let asked = Asked { what, headers, body: serde_json::from_slice(&body).unwrap_or_default() };
    let before = {
        let mut all = all.lock().expect("no holder of this lock panics");
        all.push(asked.clone());
        all.len() - 1
    };
    let (status, body) = play(&asked, before);
    match status {
        0 => Ok(()),
        // A stream that ends when the connection does.
        1 => write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{body}"
        ),
        status => write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    }
}

/// A job as a daemon tells of it, changed by `more`.
fn state(name: &str, more: Value) -> Value {
    let mut job = json!({
        "name": name, "state": "running", "why": "", "submitted_s": 1e9, "started_s": 1e9 + 5.0, "ended_s": null,
        "expected_end_s": null, "deadline_s": null, "weight": 1.0, "min_workers": 1, "max_workers": 4, "workers": 2,
        "target_workers": 3, "step": 40, "total_steps": 400, "loss": 0.25, "examples_per_s": 1000.0,
        "predicted_examples_per_s": 900.0, "predicted_low": 800.0, "predicted_high": 1000.0, "preemptions": 1,
        "failures": 0, "worker_s": 30.0, "digest": null, "run_dir": "/there"
    });
    let (Some(all), Some(more)) = (job.as_object_mut(), more.as_object()) else { return job };
    all.extend(more.clone());
    job
}

fn ok(body: &Value) -> Answer {
    (200, body.to_string())
}

fn refuse(status: u16, error: &str, place: &str, hint: &str) -> Answer {
    (status, json!({ "error": error, "place": place, "hint": hint }).to_string())
}

fn scene() -> Scene {
    jobs::momentum().scene()
}

fn value(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {ended:?}"))
}

/// Accepts whatever is submitted, under its own name or `job-N`.
fn accepting(asked: &Asked, before: usize) -> Answer {
    let name = asked.body["name"].as_str().map_or_else(|| format!("job-{}", before + 1), String::from);
    (
        201,
        state(&name, json!({ "state": "queued", "workers": 0, "loss": null, "examples_per_s": null }))
            .to_string(),
    )
}

#[test]
fn a_submission_says_all_that_was_asked_for() {
    let scene = scene();
    let daemon = Played::in_state(&scene, accepting);
    scene.write("data.csv", "1,2\n");
    let text = jobs::momentum().text().replace("kind = \"digits\"", "kind = \"csv\"\npath = \"data.csv\"");
    scene.write("other.toml", text);
    let flags = ["--priority", "2.5", "--deadline", "2h", "--max", "1", "--set", "seed=9", "--name", "mine"];
    let ended = scene.call(&[&["submit", "other.toml"][..], &flags].concat());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "mine is queued\n"), "{ended:?}");
    let asked = daemon.asked().remove(0);
    assert_eq!(asked.what, "POST /v1/jobs");
    // Whom the socket lets in needs no token.
    assert_eq!((asked.headers.get("authorization"), asked.headers["host"].as_str()), (None, "localhost"));
    assert_eq!(asked.headers["content-type"], "application/json");
    let body = asked.body;
    assert_eq!(
        (&body["priority"], &body["name"], &body["deadline"]),
        (&json!(2.5), &json!("mine"), &json!(7200.0))
    );
    // The job file says 2: the one that is given moves the other.
    assert_eq!(body["workers"], 1);
    assert_eq!(body["job"]["seed"], 9);
    assert_eq!(body["job"]["data"]["path"], json!(scene.path("data.csv")));
    assert!(body["key"].as_str().is_some_and(|key| key.len() == 64), "{body}");
}

#[test]
fn many_jobs_have_a_key_each() {
    let scene = scene();
    let daemon = Played::in_state(&scene, accepting);
    let ended = scene.call(&["submit", "job.toml", "job.toml", "--count", "3", "--format", "json"]);
    let names: Vec<Value> =
        value(&ended).as_array().expect("an array").iter().map(|job| job["name"].clone()).collect();
    assert_eq!(names, ["job-1", "job-2", "job-3", "job-4", "job-5", "job-6"]);
    let keys: std::collections::BTreeSet<String> =
        daemon.asked().iter().map(|asked| asked.body["key"].to_string()).collect();
    assert_eq!(keys.len(), 6);
    scene
        .call(&["submit", "job.toml", "--count", "2", "--name", "x"])
        .refused_with(&["--name", "leave it out"]);
}

#[test]
fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let scene = scene();
    let lost = |asked: &Asked, before| match before {
        0 => (0, String::new()),
        1 => refuse(503, "the daemon is shutting down", "serve", "try again when it is back"),
        _ => accepting(asked, before),
    };
    let daemon = Played::in_state(&scene, lost);
    let ended = scene.call(&["submit", "job.toml", "--name", "mine"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "mine is queued\n"), "{ended:?}");
    let keys: Vec<Value> = daemon.asked().iter().map(|asked| asked.body["key"].clone()).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn a_refusal_says_what_the_daemon_says() {
    let scene = scene();
    let refusing = |asked: &Asked, before| match before {
        0 => accepting(asked, before),
        _ => refuse(409, "`mine` is taken", "body, `name`", "choose another name"),
    };
    let daemon = Played::in_state(&scene, refusing);
    let ended = scene.call(&["submit", "job.toml", "--count", "3"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), "job-1 is queued\n"), "{ended:?}");
    ended.says(&[
        "1 job was accepted",
        "error: job.toml: name: `mine` is taken",
        "hint: choose another name",
    ]);
    assert_eq!(daemon.asked().len(), 2, "what was refused is not asked for again");
    // What is wrong here is not even sent.
    scene.call(&["submit", "job.toml", "nothing.toml"]).refused_with(&["nothing.toml", "cannot be read"]);
    scene.call(&["submit", "job.toml", "--set", "sed=1"]).refused_with(&["did you mean `seed`?"]);
    scene
        .call(&["submit", "job.toml", "--deadline", "2001-01-01T00:00:00Z"])
        .refused_with(&["--deadline", "past"]);
    scene.call(&["submit", "job.toml", "--min", "3", "--max", "2"]).refused_with(&["--min", "smaller"]);
    scene.call(&["submit", "job.toml", "--priority", "0"]).refused_with(&["--priority", "above 0"]);
    assert_eq!(daemon.asked().len(), 2);
}

#[test]
fn a_wrong_token_and_strangers_are_told_apart() {
    let scene = scene();
    let hint = "the token lies in the file `token`";
    let wrong =
        Played::start(move |_, _| refuse(401, "the token is not that of this daemon", "header", hint));
    let url = wrong.url();
    let connection = |scene: &Scene, url: &str, token: &str| {
        let text = json!({ "url": url, "token": token }).to_string();
        scene.write("connection.json", text).display().to_string()
    };
    let file = connection(&scene, &url, TOKEN);
    let call = |more: &[&str]| scene.call(&[&["policy", "--plain-http"][..], more].concat());
    call(&["--connection", &file]).refused_with(&[&url, "not that of this daemon", hint]);
    call(&["--server", &url]).refused_with(&["--connection", ".serve/connection.json"]);
    let before = wrong.asked().len();
    let plain = scene.call(&["policy", "--connection", &file]);
    plain.refused_with(&[&file, &url, "would reveal the token", "ssh -L", "--plain-http"]);
    assert_eq!(wrong.asked().len(), before);
    let secure = scene.call(&["policy", "--connection", &file, "--server", "https://127.0.0.1:1"]);
    secure.refused_with(&[&file, "has no fingerprint", "copy it again"]);
    connection(&scene, &url, "secret");
    call(&["--connection", &file]).refused_with(&[&file, "its token is malformed", "copy it again"]);
    scene.write("connection.json", TOKEN);
    call(&["--connection", &file]).refused_with(&["is not a connection file"]);
    call(&["--connection", "nothing"]).refused_with(&["nothing", "cannot be read"]);
    connection(&scene, "http://127.0.0.1:1", TOKEN);
    for body in ["<html>", "{}", "", "[]"] {
        let page = Played::start(move |_, _| (200, body.into()));
        let url = page.url();
        call(&["--server", &url, "--connection", &file]).refused_with(&["not a daemon of this version"]);
        let page = Played::start(move |_, _| (404, body.into()));
        let url = page.url();
        call(&["--server", &url, "--connection", &file]).refused_with(&["404", "is not a daemon"]);
    }
    // The same from the environment.
    let mut command = scene.command(&["policy", "--format", "json", "--plain-http"]);
    let right = Played::start(|_, _| ok(&json!({ "policy": "srtf" })));
    command.env("BELLWETHER_SERVER", format!("{}/", right.url())).env("BELLWETHER_CONNECTION", &file);
    assert_eq!(value(&scene.start_command(command).end()), json!({ "policy": "srtf" }));
}

#[test]
fn a_daemon_is_named_by_a_socket() {
    let scene = scene();
    let _daemon = Played::in_state(&scene, |_, _| ok(&json!({ "policy": "srtf" })));
    // Where `ssh -L` lets it appear.
    let other = scene.path("trainer.socket");
    let here = scene.path("state/bellwether/.serve/socket");
    std::fs::rename(here, &other).expect("the test's folder can be written");
    let server = format!("unix:{}", other.display());
    let asked = ["policy", "--format", "json", "--server", &server];
    assert_eq!(value(&scene.call(&asked)), json!({ "policy": "srtf" }));
    let file = format!("unix:{}", scene.path("job.toml").display());
    scene.call(&["policy", "--server", &file]).refused_with(&["no daemon answers", "it is not a socket"]);
}

#[test]
fn without_a_daemon_one_hears_how_to_start_one() {
    let scene = scene();
    for verb in [&["submit", "job.toml"][..], &["policy"]] {
        scene.call(verb).refused_with(&["no daemon answers", "bellwether serve --policy srtf --slots 4"]);
    }
    // What may concern a run by hand can do without one, also without one that died.
    for verb in
        [&["show", "x"][..], &["logs", "x"], &["stop", "x"], &["resume", "x"], &["cancel", "x"], &["rm", "x"]]
    {
        scene.call(verb).refused_with(&["there is no such job", "`bellwether jobs` lists all jobs"]);
    }
    assert_eq!(value(&scene.call(&["jobs", "--format", "json"])), json!([]));
    drop(listen_in_state(&scene));
    let ended = scene.call(&["jobs", "--format", "json"]);
    assert_eq!(value(&ended), json!([]));
    ended.says(&["no daemon answers", "these are the runs alone"]);
}

#[test]
fn a_daemon_that_is_being_restarted_is_waited_for() {
    let scene = scene();
    drop(listen_in_state(&scene));
    let live = scene.start(&["policy", "--format", "json"]);
    crate::harness::wait_for(|| "a note".into(), || live.stderr().contains("on its way back").then_some(()));
    let _daemon = Played::in_state(&scene, |_, _| ok(&json!({ "policy": "wfs" })));
    assert_eq!(value(&live.end()), json!({ "policy": "wfs" }));
}

fn listing(asked: &Asked, _: usize) -> Answer {
    let cluster = json!({
        "version": "0", "process": 1, "since_s": 0.0, "time_scale": 1.0, "policy": "srtf", "nodes": [],
        "slots": 4, "free": 1, "jobs": {}, "utilization": 0.5, "no_outlook": "its speed is not known"
    });
    let ended = json!({ "state": "finished", "ended_s": 1e9 + 60.0, "workers": 0, "target_workers": 0,
        "examples_per_s": null, "predicted_examples_per_s": null, "deadline_s": 1e9 + 30.0 });
    match asked.what.as_str() {
        "GET /v1/cluster" => ok(&cluster),
        "GET /v1/jobs?limit=1000" => ok(&json!({ "jobs": [state("a", json!({}))], "total": 2, "next": "a" })),
        "GET /v1/jobs?limit=1000&after=a" => {
            ok(&json!({ "jobs": [state("job-1", ended)], "total": 2, "next": null }))
        }
        _ => refuse(404, "there is no such path", "path", ""),
    }
}

#[test]
fn jobs_of_the_daemon_come_first_and_none_twice() {
    let scene = scene();
    for _ in 0..2 {
        let _ = scene.train(&["--steps", "3"]).summary();
    }
    let _daemon = Played::in_state(&scene, listing);
    let ended = scene.call(&["jobs"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(lines[0], "srtf decides on 4 slots, 1 of them free; 50 % were used so far");
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>().join(" ");
    assert!(
        words(lines[3]).starts_with("a running 2/3 (1..4) 40/400 0.2500 1000 (900, -10 %) – 1 "),
        "{ended:?}"
    );
    assert!(
        words(lines[4]).starts_with("job-1 finished 0/0 (1..4) 40/400 0.2500 – took 60 s, late 1 "),
        "{ended:?}"
    );
    // The run that is job-1 of the daemon is not told of twice.
    assert!(lines[5].starts_with("job-2 ") && lines.len() == 6, "{ended:?}");
    ended.says(&["cannot foresee when jobs start and end: its speed is not known"]);
    let all = value(&scene.call(&["jobs", "--format", "json"]));
    let told: Vec<_> =
        all.as_array().expect("an array").iter().map(|job| (&job["run"], &job["served"])).collect();
    let (yes, no) = (json!(true), json!(false));
    assert_eq!(told, [(&json!("a"), &yes), (&json!("job-1"), &yes), (&json!("job-2"), &no)]);
    assert!((all[0]["predicted_error"].as_f64().expect("a number") + 0.1).abs() < 1e-9);
    let finished = value(&scene.call(&["jobs", "--format", "json", "--state", "running"]));
    assert_eq!(finished.as_array().map(Vec::len), Some(1));
    scene.call(&["jobs", "--state", "runing"]).refused_with(&["runing", "running"]);
}

#[test]
fn a_followed_job_decides_the_exit_code() {
    for (end, code) in [("finished", 0), ("failed", 1), ("cancelled", 1)] {
        let scene = scene();
        let states = move |asked: &Asked, before: usize| match (asked.what.as_str(), before) {
            ("POST /v1/jobs", _) => accepting(asked, before),
            (_, 1) => ok(&state("job-1", json!({ "state": "queued", "why": "no slot is free" }))),
            (_, 2) => ok(&state("job-1", json!({ "state": "running" }))),
            // The daemon dies and comes back.
            (_, 3) => (0, String::new()),
            _ => ok(&state(
                "job-1",
                json!({ "state": end, "ended_s": 1e9 + 60.0, "digest": "abc", "why": "so" }),
            )),
        };
        let _daemon = Played::in_state(&scene, states);
        let ended = scene.call(&["submit", "job.toml", "--follow"]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        ended.says(&["job-1  queued", "no slot is free", "job-1  running  step 40/400  loss 0.2500"]);
        assert!(ended.stdout.contains(&format!("{end}: so")) && ended.stdout.contains("abc"), "{ended:?}");
        let ended = scene.call(&["watch", "job-1"]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stdout.starts_with(&format!("job-1  {end}  step 40/400")), "{ended:?}");
    }
}

#[test]
fn a_job_is_told_of_with_the_decisions_about_it() {
    let scene = scene();
    let action = |job: &str| json!({ "job": job, "from": 1, "to": 3, "expected_examples_per_s": 900.0, "took_s": 0.5 });
    let decision = move |number: u64, job: &str| {
        json!({ "number": number, "time_s": 1e9, "policy": "srtf", "reason": format!("reason {number}"),
                "actions": [action(job)], "deciding_s": 0.0 })
    };
    let play = move |asked: &Asked, _: usize| match asked.what.as_str() {
        "GET /v1/jobs/a%2Fb" => {
            refuse(404, "there is no job `a/b`", "path, `{name}`", "GET /v1/jobs lists all")
        }
        "GET /v1/jobs/a" => ok(&state("a", json!({ "deadline_s": 1e9 + 60.0 }))),
        _ => ok(&json!({ "decisions": [decision(1, "a"), decision(2, "b"), decision(3, "a")] })),
    };
    let _daemon = Played::in_state(&scene, play);
    let ended = scene.call(&["job", "a"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for words in [
        "running",
        "40/400 (10 %)",
        "900, 95 % within 800 to 1000, error -10.0 %",
        "missed, ",
        "once",
        "/there",
    ] {
        assert!(ended.stdout.contains(words), "`{words}` is not in {}", ended.stdout);
    }
    assert!(
        ended.stdout.contains("srtf: 1 → 3 workers (took 0.5 s, 900 examples/s expected): reason 3"),
        "{ended:?}"
    );
    assert!(!ended.stdout.contains("reason 2"), "{ended:?}");
    let all = value(&scene.call(&["job", "a", "--format", "json"]));
    assert_eq!((&all["name"], all["decisions"].as_array().map(Vec::len)), (&json!("a"), Some(2)));
    scene
        .call(&["job", "a/b"])
        .refused_with(&["error: a/b: there is no job", "`bellwether jobs` lists all jobs"]);
}

#[test]
fn jobs_are_suspended_resumed_and_cancelled() {
    let scene = scene();
    let play = |asked: &Asked, _: usize| match asked.what.as_str() {
        "POST /v1/jobs/b/suspend" => refuse(409, "the job has finished", "b", "submit it again"),
        "POST /v1/jobs/c/suspend" => refuse(404, "there is no job `c`", "path", "GET /v1/jobs lists all"),
        _ => ok(&state("a", json!({ "state": "stopping", "why": "its user wants it to wait" }))),
    };
    let daemon = Played::in_state(&scene, play);
    let ended = scene.call(&["suspend", "b", "c", "a"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), "a is stopping\n"));
    ended.says(&["error: b: the job has finished", "hint: submit it again", "error: c: there is no job"]);
    assert_eq!(value(&scene.call(&["resume", "a", "--format", "json"]))[0]["name"], "a");
    assert_eq!(value(&scene.call(&["cancel", "a", "--format", "json"]))[0]["state"], "stopping");
    assert_eq!(daemon.paths()[3..], ["POST /v1/jobs/a/resume", "POST /v1/jobs/a/cancel"]);
}

#[test]
fn the_policy_is_shown_and_changed() {
    let scene = scene();
    let play = |asked: &Asked, _: usize| match asked.body["policy"].as_str() {
        Some("nosuch") => refuse(422, "there is no policy `nosuch`", "policy", "did you mean `srtf`?"),
        Some(policy) => ok(&json!({ "policy": policy })),
        None => ok(&json!({ "policy": "fifo" })),
    };
    let daemon = Played::in_state(&scene, play);
    let shown = scene.call(&["policy"]).stdout;
    assert!(shown.starts_with("fifo: ") && shown.contains("bad when "), "{shown}");
    assert_eq!(
        value(&scene.call(&["policy", "las2d:3600", "--format", "json"])),
        json!({ "policy": "las2d:3600" })
    );
    scene.call(&["policy", "nosuch"]).refused_with(&["there is no policy", "did you mean `srtf`?"]);
    assert_eq!(daemon.paths(), ["GET /v1/policy", "PUT /v1/policy", "PUT /v1/policy"]);
}

#[test]
fn a_served_job_is_scaled_and_stopped() {
    let scene = scene();
    let play = |asked: &Asked, _: usize| match asked.what.as_str() {
        "POST /v1/jobs/a/suspend" => ok(&state("a", json!({ "state": "stopping" }))),
        "PATCH /v1/jobs/a" => ok(&state("a", json!({ "min_workers": 2, "max_workers": 3 }))),
        "GET /v1/jobs/a" => ok(&state("a", json!({}))),
        _ => refuse(404, "there is no such job", "path", ""),
    };
    let daemon = Played::in_state(&scene, play);
    let ended = scene.call(&["scale", "a", "--workers", "2..3", "--priority", "4"]);
    assert_eq!(ended.stdout, "a may have 2..3 workers, priority 1; the policy gives it 3\n", "{ended:?}");
    assert_eq!(daemon.asked()[1].body, json!({ "workers": "2..3", "weight": 4.0 }));
    assert_eq!(scene.call(&["stop", "a"]).stdout, "a is stopping\n");
    // What it does not serve is a run by hand, or nothing.
    scene.call(&["scale", "b", "--workers", "2"]).refused_with(&["there is no such job"]);
    scene.call(&["stop", "b"]).refused_with(&["there is no such job"]);
    let _ = scene.train(&["--steps", "3"]).summary();
    scene.call(&["scale", "job", "--workers", "1..2"]).refused_with(&["--workers", "only a daemon"]);
}

#[test]
fn logs_are_shown_and_followed_over_a_restart() {
    let scene = scene();
    let play = |asked: &Asked, before: usize| {
        let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
        let log = |line: &str| event("log", json!({ "file": "worker-1.log", "line": line }));
        let line = json!({ "time_s": 3661.0, "event": "ended", "step": 3, "outcome": "finished" });
        let ended = event("journal", json!({ "sentence": null, "line": line }));
        let end = event("end", json!({ "state": "finished", "why": "" }));
        match (asked.what.as_str(), before) {
            ("GET /v1/jobs/a/logs?follow=false&lines=5", _) => {
                (1, format!(": hello\n\n{}{ended}{end}", log("one")))
            }
            ("GET /v1/jobs/a/logs?follow=true&lines=1000", _) => (1, log("two") + "event: log\ndata: {\"fi"),
            ("GET /v1/jobs/a/logs?follow=true&lines=0", _) => (1, log("three") + &end),
            ("GET /v1/jobs/cut/logs?follow=false&lines=1000", _) => (1, log("four")),
            _ => refuse(404, "there is no such job", "path", "GET /v1/jobs lists all"),
        }
    };
    let daemon = Played::in_state(&scene, play);
    let ended = scene.call(&["logs", "a", "--lines", "5"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "worker-1.log: one\n01:01:01Z ended: outcome finished, step 3\n")
    );
    let ended = scene.call(&["logs", "a", "--follow"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(0), "worker-1.log: two\nworker-1.log: three\n"),
        "{ended:?}"
    );
    ended.says(&["the connection broke"]);
    let ended = scene.call(&["logs", "a", "--lines", "5", "--format", "json"]);
    let lines: Vec<Value> =
        ended.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.iter().map(|line| &line["event"]).collect::<Vec<_>>(), ["log", "journal", "end"]);
    let ended = scene.call(&["logs", "cut"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    ended.says(&["the logs break off"]);
    scene.call(&["logs", "x"]).refused_with(&["error: x: there is no such job", "`bellwether jobs`"]);
    assert!(daemon.asked().iter().all(|asked| !asked.headers.contains_key("authorization")));
}
