//! Users with tokens of their own: each sees and steers the jobs of their queues, and no others.

use std::sync::Arc;

use bellwether_serve::api::Security;
use bellwether_serve::snapshot::{ActionState, DecisionState, Phase, Span};
use serde_json::{Value, json};

use crate::client::{Answer, job, raw};
use crate::fake::Server;

impl Server {
    /// Makes a user, and returns the token.
    fn user(&self, name: &str, role: &str, queues: Option<&[&str]>) -> String {
        let mut user = json!({ "name": name, "role": role });
        if let Some(queues) = queues {
            user["queues"] = json!(queues);
        }
        let answer = self.send("POST", "/v1/users", user);
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.json()["takes_tokens"], true);
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    fn of(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|body| body.to_string());
        raw(self.address(), self.text_of(token, method, path, body.as_deref()).as_bytes())
    }

    fn submit(&self, token: &str, name: &str, queue: &str) -> Answer {
        let submission = json!({ "job": job("a"), "name": name, "queue": queue, "key": "k" });
        self.of(token, "POST", "/v1/jobs", Some(submission))
    }

    /// Names of the jobs that the holder of this token sees.
    fn names(&self, token: &str) -> Vec<String> {
        let jobs = self.of(token, "GET", "/v1/jobs", None).json();
        let names =
            jobs["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned());
        let names: Vec<String> = names.collect();
        assert_eq!(jobs["total"], names.len());
        names
    }
}

#[test]
fn a_user_can_neither_read_nor_steer_the_jobs_of_another_queue() {
    let server = Server::start();
    let alice = server.user("alice", "submit", Some(&["vision"]));
    let bob = server.user("bob", "submit", Some(&["speech"]));
    // With one key for both: they do not find each other's jobs by it.
    assert_eq!(server.submit(&alice, "hers", "vision/big").status, 201);
    assert_eq!(server.submit(&bob, "his", "speech").status, 201);
    assert_eq!(server.submit(&alice, "hers", "vision/big").status, 200, "the same submission");
    let (what, place, hint) = server.submit(&alice, "other", "speech").refused(403);
    assert!(what.contains("alice") && place.contains("queue") && hint.contains("vision"), "{what}: {hint}");
    assert_eq!((server.names(&alice), server.names(&bob)), (vec!["hers".into()], vec!["his".into()]));
    assert_eq!(server.now().jobs["hers"].user.as_deref(), Some("alice"));

    let granted = server.granted();
    for (method, path, body) in [
        ("GET", "/v1/jobs/his", None),
        ("GET", "/v1/jobs/his/curve", None),
        ("GET", "/v1/jobs/his/logs", None),
        ("GET", "/v1/jobs/his/metrics", None),
        ("PATCH", "/v1/jobs/his", Some(json!({ "weight": 2 }))),
        ("POST", "/v1/jobs/his/scale", Some(json!({ "workers": 1 }))),
        ("POST", "/v1/jobs/his/suspend", None),
        ("POST", "/v1/jobs/his/resume", None),
        ("POST", "/v1/jobs/his/cancel", None),
        ("DELETE", "/v1/jobs/his", None),
    ] {
        let (what, _, hint) = server.of(&alice, method, path, body).refused(404);
        // As if it were not there, and its name is not told.
        assert_eq!(what, "there is no job `his`", "{method} {path}");
        assert!(!hint.contains("`his`"), "{hint}");
    }
    server.of(&alice, "GET", "/v1/jobs?after=his", None).refused(422);
    for (method, path, body) in [
        ("PUT", "/v1/policy", Some(json!({ "policy": "srtf" }))),
        ("PUT", "/v1/queues", Some(json!({ "queues": null }))),
        ("GET", "/v1/users", None),
        ("POST", "/v1/users", Some(json!({ "name": "eve", "role": "operate" }))),
        ("DELETE", "/v1/users/bob", None),
        ("GET", "/metrics", None),
    ] {
        server.of(&alice, method, path, body).refused(403);
    }
    assert_eq!(server.granted(), granted);
    assert_eq!(server.of(&bob, "POST", "/v1/jobs/his/cancel", None).status, 200);
}

#[test]
fn what_concerns_all_jobs_does_not_name_those_of_other_queues() {
    let server = Server::start();
    let alice = server.user("alice", "observe", Some(&["vision"]));
    server.fill(2);
    server.publish(|now| {
        Arc::make_mut(now.jobs.get_mut("x-0").unwrap()).queue = Some("vision".into());
        Arc::make_mut(now.jobs.get_mut("x-1").unwrap()).queue = Some("speech".into());
        let cluster = Arc::make_mut(&mut now.cluster);
        cluster.no_outlook = Some("job `x-1` runs where its speed is not known".into());
        Arc::make_mut(&mut cluster.nodes)[0].slots = vec![Some("x-0".into()), Some("x-1".into()), None];
        let action = |job: &str| ActionState {
            job: job.into(),
            from: 0,
            to: 1,
            refused: None,
            expected_examples_per_s: None,
            measured_examples_per_s: None,
            took_s: None,
        };
        now.decisions = Arc::new(vec![DecisionState {
            number: 1,
            time_s: 1.0,
            policy: "fifo".into(),
            reason: "2 jobs start".into(),
            actions: vec![action("x-0"), action("x-1")],
            deciding_s: 0.0,
        }]);
        let span = |job: &str, slot| Span { job: job.into(), node: 0, slot, start_s: 1.0, end_s: None };
        now.spans = Arc::new(vec![span("x-0", 0), span("x-1", 1)]);
    });
    for path in ["/v1/cluster", "/v1/decisions", "/v1/slots", "/v1/jobs"] {
        let text = server.of(&alice, "GET", path, None).json().to_string();
        assert!(text.contains("x-0") && !text.contains("x-1"), "{path}: {text}");
        assert!(server.get(path).json().to_string().contains("x-1"), "its owner sees all");
    }
    let cluster = server.of(&alice, "GET", "/v1/cluster", None).json();
    assert_eq!(cluster["no_outlook"], "the daemon's owner can see why");
    let slots = cluster["nodes"][0]["slots"].clone();
    assert_eq!(slots, json!(["x-0", "(a job of another queue)", null]));
    // The stream, its first event and what changes later.
    let mut events = server.events_of(&alice, "/v1/events");
    let (_, first) = events.next().unwrap();
    server.set("x-1", Phase::Running);
    server.set("x-0", Phase::Running);
    let (_, second) = events.find(|(_, event)| event["jobs"] != json!([])).unwrap();
    for event in [first, second] {
        let text = event.to_string();
        assert!(text.contains("x-0") && !text.contains("x-1"), "{text}");
    }
}

#[test]
fn a_session_does_what_its_user_may_and_ends_with_the_user() {
    let server = Server::start();
    let alice = server.user("alice", "observe", Some(&["vision"]));
    server.fill(1);
    let session = |token: &str| {
        let code = server.of(token, "POST", "/v1/codes", None);
        assert_eq!(code.status, 201);
        let body = json!({ "code": code.json()["code"] });
        let opened = server.of("nothing", "POST", "/v1/sessions", Some(body));
        opened.json()["session"].as_str().unwrap().to_owned()
    };
    let hers = session(&alice);
    assert!(server.names(&hers).is_empty());
    server.of(&hers, "PUT", "/v1/policy", Some(json!({ "policy": "srtf" }))).refused(403);
    server.of(&hers, "POST", "/v1/codes", None).refused(403);
    let owners = session(&server.token);
    assert_eq!(server.names(&owners), ["x-0"]);
    assert_eq!(server.ask("DELETE", "/v1/users/alice").status, 200);
    server.of(&hers, "GET", "/v1/jobs", None).refused(401);
    server.of(&alice, "GET", "/v1/jobs", None).refused(401);
    // Another one of that name is another user, and the old session is not hers to use either way.
    server.ask("DELETE", "/v1/users/alice").refused(404);
    assert_eq!(server.names(&owners), ["x-0"]);
}

#[test]
fn scripts_are_refused_to_users_who_may_not_run_them() {
    let server = Server::start();
    let alice = server.user("alice", "submit", None);
    let mut script = job("a");
    script["model"] = json!({
        "kind": "python", "script": "/tmp/train.py", "framework": "torch", "tensors": "0".repeat(64)
    });
    let answer = server.of(&alice, "POST", "/v1/jobs", Some(json!({ "job": script })));
    // Whatever else such a job file lacks: it is not accepted.
    assert!([403, 422].contains(&answer.status), "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(server.granted(), 0);
}

#[test]
fn an_operator_sees_all_and_chooses_but_lets_no_one_in() {
    let server = Server::start();
    let carol = server.user("carol", "operate", None);
    server.fill(2);
    assert_eq!(server.names(&carol).len(), 2);
    assert_eq!(server.of(&carol, "PUT", "/v1/policy", Some(json!({ "policy": "srtf" }))).status, 200);
    let queues = json!({ "queues": { "queues": [{ "name": "a", "guarantee": "50%" }] } });
    assert_eq!(server.of(&carol, "PUT", "/v1/queues", Some(queues)).status, 200);
    let now = server.of(&carol, "GET", "/v1/queues", None).json();
    assert_eq!(now["queues"]["queues"][0]["name"], "a");
    server.of(&carol, "POST", "/v1/users", Some(json!({ "name": "eve", "role": "observe" }))).refused(403);
    server.send("POST", "/v1/users", json!({ "name": "carol", "role": "observe" })).refused(409);
    for wrong in [
        json!({ "name": "a b", "role": "observe" }),
        json!({ "name": "a", "role": "king" }),
        json!({ "name": "a", "role": "operate", "queues": ["b"] }),
    ] {
        server.send("POST", "/v1/users", wrong).refused(422);
    }
}

#[test]
fn the_token_of_a_user_is_not_taken_where_it_could_be_overheard() {
    let server = Server::secured_by(Security::Sessions);
    let body = json!({ "name": "alice", "role": "submit" }).to_string();
    let answer = server.by_socket("POST", "/v1/users", Some(&body));
    assert_eq!((answer.status, &answer.json()["takes_tokens"]), (201, &json!(false)));
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    let (what, ..) = server.of(&token, "GET", "/v1/jobs", None).refused(401);
    assert!(what.contains("overheard"), "{what}");
}
