//! Every status, and that nothing changes after a refusal.

use serde_json::{Value, json};

use crate::client::{job, raw};
use crate::fake::{PANICKING, Server, UNDESCRIBABLE};
use bellwether_serve::api::{Doors, Security, Sessions};
use bellwether_serve::snapshot::Phase;

fn submit(server: &Server, body: &Value) -> crate::client::Answer {
    server.send("POST", "/v1/jobs", body)
}

#[test]
fn a_job_is_submitted_once_and_seen() {
    let server = Server::start();
    let body = json!({
        "job": job("digits"), "name": "first", "workers": { "min": 1, "max": 3 }, "priority": 2.5,
        "deadline": "2h", "key": "abc"
    });
    let answer = submit(&server, &body);
    assert_eq!((answer.status, answer.header("location")), (201, Some("/v1/jobs/first")));
    let state = answer.json();
    assert_eq!((&state["weight"], &state["max_workers"]), (&json!(2.5), &json!(3)));
    assert_eq!(state["deadline_s"], json!(1e9 + 7200.0));
    assert_eq!(server.get("/v1/jobs/first").json(), state);
    assert_eq!((submit(&server, &body).status, server.now().jobs.size()), (200, 1));
    // The key may be in a header, and the job in TOML.
    let toml = "name = 'digits'\nsteps = 10\nworkers = 1\nmodel = { kind = 'mlp', hidden = [8] }\n\
                data = { kind = 'digits' }\nbatch = { size = 64, virtual_nodes = 4 }\n\
                optimizer = { kind = 'sgd', learning_rate = 0.1 }\n";
    let body = json!({ "job_toml": toml, "workers": 2, "deadline": 60 }).to_string();
    let text = server.text("POST", "/v1/jobs", Some(&body));
    let text = text.replace("\r\nHost:", "\r\nIdempotency-Key: k\r\nHost:");
    let answers = [raw(server.address(), text.as_bytes()), raw(server.address(), text.as_bytes())];
    assert_eq!(answers.map(|answer| answer.status), [201, 200]);
    assert_eq!(server.now().order.len(), 2);
}

#[test]
fn a_bad_submission_says_what_to_do_and_changes_nothing() {
    let server = Server::start();
    assert_eq!(submit(&server, &json!({ "job": job("a"), "name": "taken" })).status, 201);
    let with = |key: &str, value: Value| {
        let mut job = job("a");
        job[key] = value;
        json!({ "job": job })
    };
    let of = |samples: u64| with("data", json!({ "kind": "indices", "samples": samples }));
    let file = json!({ "kind": "csv", "path": "data.csv" });
    let mut relative = with("data", file);
    relative["job"]["model"] = json!({ "kind": "mlp", "hidden": [8] });
    let cases: [(Value, u16, &str, &str); 20] = [
        (json!({}), 422, "body", "job_toml"),
        (json!({ "job": job("a"), "job_toml": "" }), 422, "body", "job_toml"),
        (json!([]), 422, "body", ""),
        (json!({ "job": job("a"), "name": "taken" }), 409, "job", "something else"),
        (json!({ "job": job("a"), "name": "../escape" }), 422, "body, `name`", "letters"),
        (json!({ "job": job("a"), "name": "" }), 422, "body, `name`", "letters"),
        (json!({ "job": job("a"), "workers": "5..6" }), 422, "job", "something else"),
        (json!({ "job": job("a"), "workers": "3..1" }), 422, "body, `workers`", ""),
        (
            json!({ "job": job("a"), "workers": { "min": 1, "mx": 2 } }),
            422,
            "body, `workers.mx`",
            "did you mean `max`",
        ),
        (json!({ "job": job("a"), "workers": 0 }), 422, "body, `workers`", ""),
        (json!({ "job": job("a"), "priority": 0 }), 422, "body, `priority`", ""),
        (json!({ "job": job("a"), "deadline": "-1h" }), 422, "body, `deadline`", ""),
        (json!({ "job": job("a"), "deadline": 0 }), 422, "body, `deadline`", ""),
        (json!({ "job": job("a"), "key": "" }), 422, "body, `key`", ""),
        (json!({ "jbo": job("a") }), 422, "body, `jbo`", "did you mean `job`"),
        (with("sed", json!(1)), 422, "body, `job.sed`", "did you mean `seed`"),
        (with("batch", json!({ "size": "64", "virtual_nodes": 4 })), 422, "body, `job.batch.size`", ""),
        (with("batch", json!({ "size": 65, "virtual_nodes": 4 })), 422, "body, `job.batch.size`", "68"),
        (relative, 422, "body, `job`", "bellwether submit"),
        (of(UNDESCRIBABLE), 422, "data", "put it there"),
    ];
    let before = (server.granted(), server.now().version);
    for (body, status, place, hint) in cases {
        let (error, said_place, said_hint) = submit(&server, &body).refused(status);
        assert_eq!(said_place, place, "{body}: {error}");
        assert!(said_hint.contains(hint), "{body}: {error}: {said_hint}");
    }
    let (_, place, hint) = submit(&server, &json!({ "job_toml": "nam = 'x'" })).refused(422);
    assert_eq!((place.as_str(), hint.contains("`name`")), ("body, `job_toml`, line 1", true));
    // What breaks is ours, and the server lives.
    submit(&server, &of(PANICKING)).refused(503);
    assert_eq!((server.granted(), server.now().version), before);
}

#[test]
fn a_body_that_is_none_is_refused() {
    let server = Server::start();
    let (_, place, _) = server.send("POST", "/v1/jobs", "{\"job\": ").refused(400);
    assert_eq!(place, "body, line 1 column 8");
    server.send("POST", "/v1/jobs", "").refused(400);
    server.send("POST", "/v1/jobs", "{} {}").refused(400);
    server.send("POST", "/v1/jobs", "[".repeat(100_000)).refused(422);
    server.send("POST", "/v1/jobs", "{\"a\":".repeat(100_000)).refused(422);
    // A list does not serve as an object, even if it has the right values in the right order.
    server.send("PUT", "/v1/policy", "[\"fifo\"]").refused(422);
    server.ask("POST", "/v1/jobs").refused(415);
    let text = server.text("POST", "/v1/jobs", Some("{}"));
    raw(server.address(), text.replace("application/json", "text/plain").as_bytes()).refused(415);
    let media = "application/json; charset=utf-8";
    raw(server.address(), text.replace("application/json", media).as_bytes()).refused(422);
    // Its own claim is enough.
    let claim = text.replace("Content-Length: 2", "Content-Length: 104857600");
    let answer = raw(server.address(), claim.as_bytes());
    assert!(answer.refused(413).2.contains("job file"));
    assert_eq!(server.granted(), 0);
}

#[test]
fn the_limits_of_a_job_change_only_as_they_may() {
    let server = Server::start();
    server.fill(2);
    let patch = |body: Value| server.send("PATCH", "/v1/jobs/x-0", body);
    let scale = |body: Value| server.send("POST", "/v1/jobs/x-0/scale", body);
    let limits = || {
        let job = &server.now().jobs["x-0"];
        (job.min_workers, job.max_workers, job.weight)
    };
    assert_eq!((patch(json!({ "workers": "2..4", "weight": 3 })).status, limits()), (200, (2, 4, 3.0)));
    assert_eq!((patch(json!({ "weight": 0.5 })).status, limits()), (200, (2, 4, 0.5)));
    assert_eq!((scale(json!({ "workers": 3 })).status, limits()), (200, (3, 3, 0.5)));
    assert_eq!((scale(json!({ "workers": { "min": 1, "max": 2 } })).status, limits()), (200, (1, 2, 0.5)));
    patch(json!({})).refused(422);
    patch(json!({ "weight": -1 })).refused(422);
    patch(json!({ "workers": "9" })).refused(422);
    scale(json!({ "workers": 4_294_967_296_u64 })).refused(422);
    scale(json!({})).refused(422);
    server.send("PATCH", "/v1/jobs/x-9", json!({ "weight": 1 })).refused(404);
    server.set("x-0", Phase::Finished);
    patch(json!({ "weight": 1 })).refused(409);
    assert_eq!(limits(), (1, 2, 0.5));
}

#[test]
fn a_job_waits_goes_on_and_ends() {
    let server = Server::start();
    server.fill(3);
    let act = |method: &str, path: &str| server.ask(method, path);
    act("POST", "/v1/jobs/x-0/resume").refused(409);
    assert_eq!(act("POST", "/v1/jobs/x-0/suspend").json()["state"], "suspended");
    assert_eq!(act("POST", "/v1/jobs/x-0/resume").json()["state"], "queued");
    assert_eq!(act("POST", "/v1/jobs/x-0/cancel").json()["state"], "cancelled");
    assert_eq!(act("DELETE", "/v1/jobs/x-1").json()["state"], "cancelled");
    act("DELETE", "/v1/jobs/x-1").refused(409);
    for path in ["suspend", "resume", "cancel", "scale"] {
        let (error, _, hint) =
            server.send("POST", &format!("/v1/jobs/x-33/{path}"), "{\"workers\":1}").refused(404);
        assert!(error.contains("`x-33`") && hint.contains("did you mean"), "{error} {hint}");
    }
    assert_eq!(server.granted(), 4);
}

#[test]
fn an_unknown_job_is_no_path_on_disk() {
    let server = Server::start();
    std::fs::write(
        server.folder.path().join("metrics.jsonl"),
        "{\"step\":1,\"duration_s\":1,\"compute_s\":1,\"workers\":1}\n",
    )
    .unwrap();
    for name in ["unknown", "..", "%2e%2e", "..%2f..", "%00", "%ff", &"x".repeat(5000), "a%2Fb", "ä", "."] {
        for part in ["", "/curve", "/logs", "/metrics"] {
            server.get(&format!("/v1/jobs/{name}{part}")).refused(404);
        }
    }
}

#[test]
fn who_is_not_let_in_learns_nothing() {
    let server = Server::start();
    let text = server.text("GET", "/v1/cluster", None);
    let bearer = format!("Bearer {}", server.token);
    let with = |authorization: &str| raw(server.address(), text.replace(&bearer, authorization).as_bytes());
    assert_eq!(with(&bearer).status, 200);
    assert_eq!(with(&bearer.replace("Bearer", "bearer")).status, 200);
    for wrong in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer 5a",
        "Basic 5a",
        &server.token,
        &format!("{bearer}0"),
        &bearer.to_uppercase(),
    ] {
        let answer = with(wrong);
        let (_, place, hint) = answer.refused(401);
        assert!(place.contains("Authorization") && hint.contains("token"), "{wrong}");
        assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
    }
    let twice = text.replace("\r\nHost", &format!("\r\nAuthorization: {bearer}\r\nHost"));
    raw(server.address(), twice.as_bytes()).refused(401);
    // Nor does it learn which paths or jobs there are.
    for path in ["/v1/jobs", "/v1/jobs/x", "/nothing", "/metrics", "/v1/events"] {
        let text = server.text("GET", path, None).replace(&bearer, "");
        raw(server.address(), text.as_bytes()).refused(401);
    }
    for path in ["/", "/dashboard/dashboard.css", "/health", "/openapi.json", "/?x=1"] {
        let text = server.text("GET", path, None).replace(&format!("Authorization: {bearer}\r\n"), "");
        assert_eq!(raw(server.address(), text.as_bytes()).status, 200, "{path}");
    }
}

#[test]
fn a_page_of_another_site_cannot_reach_it() {
    let server = Server::start();
    let host = server.address().to_string();
    let with = |name: &str| {
        let text = server.text("GET", "/health", None).replace(&format!("Host: {host}"), name);
        raw(server.address(), text.as_bytes())
    };
    let port = server.address().port();
    for right in
        [format!("Host: localhost:{port}"), format!("Host: LOCALHOST:{port}"), format!("Host: [::1]:{port}")]
    {
        assert_eq!(with(&right).status, 200, "{right}");
    }
    let two = format!("Host: {host}\r\nHost: evil.example:{port}");
    for wrong in [
        "Host: evil.example",
        &format!("Host: evil.example:{port}"),
        "Host: localhost:1",
        "Host:",
        "X: y",
        &two,
    ] {
        with(wrong).refused(403);
    }
    let text = server.text("GET", "/health", None).replace("GET /health", "GET http://evil.example/health");
    raw(server.address(), text.as_bytes()).refused(403);
    // And no answer lets one read it.
    let answer = raw(server.address(), server.text("OPTIONS", "/v1/jobs", None).as_bytes());
    answer.refused(405);
    assert!(answer.headers.iter().all(|(name, _)| !name.to_lowercase().starts_with("access-control")));
}

#[test]
fn what_is_not_there_is_said() {
    let server = Server::start();
    let (_, _, hint) = server.get("/v1/job").refused(404);
    assert!(hint.contains("`/v1/jobs`"), "{hint}");
    server.get("/v1/jobs/").refused(404);
    server.get(&format!("/{}", "x".repeat(10_000))).refused(404);
    for (method, path, allowed) in [
        ("PUT", "/v1/jobs", "GET,HEAD,POST"),
        ("DELETE", "/", "GET,HEAD"),
        ("TRACE", "/v1/jobs/a/scale", "POST"),
    ] {
        let answer = server.ask(method, path);
        answer.refused(405);
        let mut allow: Vec<&str> = answer.header("allow").unwrap().split(',').collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed);
    }
    for path in [
        "?limt=3",
        "?limit=0",
        "?limit=1001",
        "?limit=-1",
        "?limit=1&limit=2",
        "?state=lost",
        "?after=x",
        "?order=up",
    ] {
        let (_, place, _) = server.get(&format!("/v1/jobs{path}")).refused(422);
        assert!(place.starts_with("query"), "{path}: {place}");
    }
    server.get("/v1/slots?since=NaN").refused(422);
    server.get("/v1/cluster?x").refused(422);
}

#[test]
fn an_engine_that_is_gone_is_said() {
    let mut server = Server::start();
    let serving = server.serving.take();
    drop(serving);
    // A desk without an engine.
    let (requests, asked) = tokio::sync::mpsc::unbounded_channel();
    drop(asked);
    let (_sender, snapshots) = tokio::sync::watch::channel(server.now());
    let options = bellwether_serve::api::ApiOptions {
        users: std::sync::Arc::default(),
        token: bellwether_serve::secret::Secret::parse(&server.token).unwrap(),
        sessions: std::sync::Arc::new(Sessions::default()),
        describe: std::sync::Arc::new(|_| {
            Ok(bellwether_serve::ledger::Task { training_samples: 1, bytes: 1 })
        }),
        registry: bellwether_sched::registry::Registry::built_in(),
        changed_by: None,
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let engine = bellwether_serve::request::EngineHandle { requests, snapshots };
    server.serving = Some(
        bellwether_serve::api::serve(
            Doors { socket: None, web: listener, security: Security::Elsewhere },
            engine,
            options,
        )
        .unwrap(),
    );
    server.get("/health").refused(503);
    submit(&server, &json!({ "job": job("a") })).refused(503);
    server.send("PUT", "/v1/policy", json!({ "policy": "fifo" })).refused(503);
    assert_eq!(server.get("/v1/cluster").status, 200);
}
