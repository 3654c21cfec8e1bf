//! Streams: the state as it changes, logs, steps, curves, lists and numbers.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_sched::registry::Registry;
use bellwether_serve::snapshot::Phase;
use serde_json::{Value, json};

use crate::fake::{Server, decision, job, span};

fn names(data: &Value) -> Vec<&str> {
    data["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect()
}

#[test]
fn events_tell_only_what_changed() {
    let server = Server::start();
    server.fill(80);
    for number in 0..60 {
        server.set(&format!("x-{number}"), Phase::Finished);
    }
    server.publish(|now| {
        now.decisions = Arc::new(vec![decision(1), decision(2)]);
        now.spans = Arc::new(vec![span("x-70", 0, 1.0, None)]);
    });
    let mut events = server.events("/v1/events");
    let (name, first) = events.next().unwrap();
    assert_eq!(name, "state");
    // The oldest ten that ended are left out.
    let expected: Vec<String> = (10..80).map(|number| format!("x-{number}")).collect();
    assert_eq!(names(&first), expected);
    assert_eq!(
        (first["decisions"].as_array().unwrap().len(), first["spans"].as_array().unwrap().len()),
        (2, 1)
    );
    assert_eq!(first["cluster"]["policy"], "fifo");
    server.publish(|now| {
        Arc::make_mut(now.jobs.get_mut("x-3").unwrap()).step = 7;
        let decisions = Arc::make_mut(&mut now.decisions);
        decisions[1].reason = "it is known better".into();
        decisions.push(decision(3));
        now.spans = Arc::new(vec![span("x-70", 0, 1.0, Some(2.0)), span("x-71", 0, 2.0, None)]);
    });
    let second = events.next().unwrap().1;
    assert_eq!(names(&second), ["x-3"]);
    assert!(second["version"].as_u64() > first["version"].as_u64());
    let numbers: Vec<&Value> =
        second["decisions"].as_array().unwrap().iter().map(|one| &one["number"]).collect();
    assert_eq!(numbers, [2, 3]);
    assert_eq!(second["spans"].as_array().unwrap().len(), 2);
    server.publish(|_| {});
    let third = events.next().unwrap().1;
    assert!(names(&third).is_empty() && third["decisions"] == json!([]) && third["spans"] == json!([]));
}

#[test]
fn events_are_few_and_the_last_one_is_right() {
    let server = Server::start();
    server.fill(1);
    let mut events = server.events("/v1/events");
    let began = Instant::now();
    for step in 1..=500 {
        server.publish(|now| Arc::make_mut(now.jobs.get_mut("x-0").unwrap()).step = step);
        std::thread::sleep(Duration::from_millis(2));
    }
    let (mut count, mut step) = (0, 0);
    while step < 500 {
        let data = events.next().unwrap().1;
        count += 1;
        step = data["jobs"][0]["step"].as_u64().unwrap();
    }
    let most = 2.0 + began.elapsed().as_secs_f64() * 5.0;
    assert!(f64::from(count) <= most, "{count} events, at most {most}");
}

#[test]
fn a_reader_that_does_not_read_costs_nothing_and_catches_up() {
    let server = Server::start();
    server.fill(1000);
    let mut slow = server.events("/v1/events");
    for step in 1..=30 {
        server.publish(|now| {
            for name in &now.order {
                let mut job = (*now.jobs[name]).clone();
                job.step = step;
                now.jobs.insert_mut(name.clone(), Arc::new(job));
            }
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.get("/v1/cluster").status, 200);
    let mut read = 0;
    loop {
        let data = slow.next().unwrap().1;
        read += 1;
        if data["jobs"][0]["step"] == 30 {
            break;
        }
    }
    assert!(read < 15, "{read} events were kept for it");
}

fn append(path: &Path, text: &str) {
    File::options().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

const STARTED: &str = "{\"time_s\":1.5,\"event\":\"warning\",\"message\":\"mind this\"}\n";

#[test]
fn logs_are_followed_until_the_job_ends() {
    let server = Server::start();
    server.fill(2);
    let run = server.run("x-1");
    append(&run.join("journal.jsonl"), &STARTED.repeat(3));
    append(
        &run.join("journal.jsonl"),
        &"{\"time_s\":2,\"event\":\"committed\",\"first\":1,\"last\":1}\n".repeat(9),
    );
    append(&run.join("worker-1.log"), "a\nb\nc\nd");
    append(&run.join("token"), "a secret\n");
    append(&run.join("secret.log"), "a secret\n");
    let at_once: Vec<_> = server.events("/v1/jobs/x-1/logs?lines=2").collect();
    let kinds: Vec<&str> = at_once.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kinds, ["journal", "journal", "log", "log", "end"]);
    assert_eq!(at_once[0].1["sentence"], "warning: mind this");
    assert_eq!(at_once[0].1["line"]["message"], "mind this");
    assert_eq!(at_once[3].1, json!({ "file": "worker-1.log", "line": "c" }));
    assert_eq!(at_once[4].1["state"], "queued");

    let mut follow = server.events("/v1/jobs/x-1/logs?follow=true&lines=1");
    assert_eq!([follow.next().unwrap().0, follow.next().unwrap().0], ["journal", "log"]);
    append(&run.join("worker-1.log"), "!\n");
    assert_eq!(follow.next().unwrap().1["line"], "d!");
    append(&run.join("coordinator.log"), "hello\n");
    assert_eq!(follow.next().unwrap().1["file"], "coordinator.log");
    append(&run.join("journal.jsonl"), STARTED);
    server.set("x-1", Phase::Failed);
    let rest: Vec<_> = follow.collect();
    assert_eq!(rest.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["journal", "end"]);
    assert_eq!(rest[1].1["state"], "failed");
}

fn step(step: u64) -> String {
    format!("{{\"step\":{step},\"loss\":1.5,\"duration_s\":0.5,\"compute_s\":0.4,\"workers\":2}}\n")
}

#[test]
fn steps_are_streamed_and_put_together() {
    let server = Server::start();
    server.fill(2);
    assert_eq!(server.get("/v1/jobs/x-1/curve").json(), json!({ "points": [], "evaluations": [] }));
    let run = server.run("x-1");
    let mut follow = server.events("/v1/jobs/x-1/metrics?follow=true&lines=5000");
    let all: String = (0..5000).map(step).collect();
    append(&run.join("metrics.jsonl"), &all);
    let mut job = crate::client::job("x");
    job["batch"]["size"] = json!(128);
    std::fs::write(run.join("job.json"), job.to_string()).unwrap();
    for expected in 0..5000 {
        let (name, data) = follow.next().unwrap();
        assert_eq!((name.as_str(), &data["step"], &data["workers"]), ("step", &json!(expected), &json!(2)));
    }
    let points = server.get("/v1/jobs/x-1/curve?points=50").json();
    let points = points["points"].as_array().unwrap();
    assert!((25..=50).contains(&points.len()));
    let last = json!({ "step": 4999, "time_s": null, "loss": 1.5, "examples_per_s": 256.0, "workers": 2 });
    assert_eq!(points.last(), Some(&last));
    server.set("x-1", Phase::Finished);
    assert_eq!(follow.next().unwrap().0, "end");
    assert!(follow.next().is_none());
    server.get("/v1/jobs/x-1/curve?points=0").refused(422);
}

#[test]
fn a_server_that_stops_ends_its_streams() {
    let mut server = Server::start();
    server.fill(1);
    let mut streams = [server.events("/v1/events"), server.events("/v1/jobs/x-0/logs?follow=true")];
    streams[0].next().unwrap();
    let began = Instant::now();
    server.serving = None;
    assert!(streams.iter_mut().all(|stream| stream.next().is_none()));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_list_goes_on_where_it_ended() {
    let server = Server::start();
    server.fill(250);
    for number in [3, 5, 8] {
        server.set(&format!("x-{number}"), Phase::Running);
    }
    for order in ["oldest", "newest"] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/v1/jobs?limit=60&order={order}{after}")).json();
            assert_eq!(page["total"], 250);
            seen.extend(names(&page).iter().map(|name| (*name).to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (250, 250));
        assert_eq!(seen[0], if order == "oldest" { "x-0" } else { "x-249" });
    }
    let running = server.get("/v1/jobs?state=running&limit=2").json();
    assert_eq!(
        (names(&running), &running["total"], &running["next"]),
        (vec!["x-3", "x-5"], &json!(3), &json!("x-5"))
    );
    assert_eq!(names(&server.get("/v1/jobs?state=running&after=x-5").json()), ["x-8"]);
    assert_eq!(server.get("/v1/jobs").json()["jobs"].as_array().unwrap().len(), 100);
}

#[test]
fn the_cluster_answers() {
    let server = Server::start();
    assert_eq!(server.get("/v1/cluster").json()["slots"], 4);
    assert_eq!(server.get("/v1/policy").json(), json!({ "policy": "fifo" }));
    let chosen = server.send("PUT", "/v1/policy", json!({ "policy": "las:3250" }));
    assert_eq!((chosen.status, server.get("/v1/policy").json()), (200, json!({ "policy": "las:3250" })));
    let (_, _, hint) = server.send("PUT", "/v1/policy", json!({ "policy": "fivo" })).refused(422);
    assert!(hint.contains("`fifo`"), "{hint}");
    let policies = server.get("/v1/policies").json();
    assert_eq!(policies["policies"].as_array().unwrap().len(), Registry::built_in().iter().count());
    server.publish(|now| {
        now.decisions = Arc::new((1..=150).map(decision).collect());
        now.spans = Arc::new(vec![
            span("a", 0, 1.0, Some(2.0)),
            span("b", 0, 2.0, Some(5.0)),
            span("c", 0, 5.0, None),
        ]);
    });
    let last = server.get("/v1/decisions?limit=2").json();
    assert_eq!(
        (&last["decisions"][0]["number"], &last["decisions"][1]["number"]),
        (&json!(149), &json!(150))
    );
    assert_eq!(server.get("/v1/slots").json()["spans"].as_array().unwrap().len(), 3);
    assert_eq!(server.get("/v1/slots?since=3.5").json()["spans"][0]["job"], "b");
}

#[test]
fn prometheus_reads_every_line() {
    let server = Server::start();
    server.publish(|now| {
        let mut one = job("quoted\"job\\", Path::new("/"));
        (one.state, one.workers, one.step) = (Phase::Running, 2, 40);
        now.jobs.insert_mut(one.name.clone(), Arc::new(one));
        Arc::make_mut(&mut now.cluster).jobs.insert(Phase::Running, 1);
    });
    server.get("/v1/cluster");
    server.get("/nowhere");
    let answer = server.get("/metrics");
    assert!(answer.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    let text = String::from_utf8(answer.body).unwrap();
    for line in [
        "bellwether_jobs{state=\"running\"} 1",
        "bellwether_jobs{state=\"queued\"} 0",
        "bellwether_slots 4",
        "bellwether_slots_held 0",
        "bellwether_job_step{job=\"quoted\\\"job\\\\\"} 40",
        "bellwether_http_requests_total{method=\"GET\",route=\"/v1/cluster\",status=\"200\"} 1",
        "bellwether_http_requests_total{method=\"\",route=\"\",status=\"404\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
    }
    let mut families = BTreeSet::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap();
            assert!(families.insert(family), "{family} twice");
        } else if !line.starts_with("# HELP ") {
            assert!(line.starts_with(family), "{line} is not of {family}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
}
