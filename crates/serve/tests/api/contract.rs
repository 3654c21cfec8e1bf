//! The OpenAPI document against the server: requests that are made from the document, right ones, damaged ones and
//! noise.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bellwether_serve::snapshot::Phase;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::client::{Answer, raw};
use crate::fake::Server;
use crate::schema::{Dice, check, invent, mutate};

/// An operation of the document.
struct Operation<'d> {
    path: &'d str,
    method: String,
    about: &'d Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().iter();
            methods.map(move |(method, about)| Operation { path, method: method.to_uppercase(), about })
        })
        .collect()
}

/// A server with jobs, and its document.
fn server() -> (Server, Value) {
    let server = Server::start();
    server.fill(5);
    // A user of a job's name, so that a path with it leads somewhere.
    let user = serde_json::json!({ "name": "x-4", "role": "observe" });
    assert_eq!(server.send("POST", "/v1/users", user).status, 201);
    let run = server.run("x-0");
    std::fs::write(
        run.join("metrics.jsonl"),
        "{\"step\":1,\"loss\":null,\"duration_s\":0.5,\"compute_s\":0.4,\"workers\":1}\n",
    )
    .unwrap();
    std::fs::write(run.join("journal.jsonl"), "{\"time_s\":1,\"event\":\"rolled_back\",\"to\":3}\n").unwrap();
    std::fs::write(run.join("worker-1.log"), "a line\n").unwrap();
    let document = server.get("/openapi.json").json();
    (server, document)
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() })
}

/// The path and the headers of a request, from the document.
fn address(operation: &Operation, dice: &mut Dice) -> (String, String) {
    let files = ["index.html", "jobs.js", "icon.svg", "nothing"];
    let names = ["x-0", "x-0", "x-1", "x-4", "unknown", "%00", "..", "%F0%9F%92%A9"];
    let mut path =
        operation.path.replace("{name}", names[dice.below(8)]).replace("{file}", files[dice.below(4)]);
    let mut headers = String::new();
    let mut separator = '?';
    for parameter in operation.about["parameters"].as_array().into_iter().flatten() {
        let mut value = invent(&Value::Null, &parameter["schema"], dice);
        if dice.one_in(6) {
            mutate(&mut value, dice);
        }
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let name = parameter["name"].as_str().unwrap();
        // A stream that follows a job that waits never ends.
        if name == "follow" || dice.one_in(3) {
            continue;
        }
        match parameter["in"].as_str().unwrap() {
            "query" => {
                let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
                let _ = write!(path, "{separator}{name}={encoded}");
                separator = '&';
            }
            "header" => {
                let printable: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
                let _ = write!(headers, "{name}: {printable}\r\n");
            }
            _ => {}
        }
    }
    (path, headers)
}

/// What the document does not say of an answer, if anything.
fn judge(document: &Value, operation: &Operation, answer: &Answer) -> Result<(), String> {
    let documented = &operation.about["responses"][answer.status.to_string()];
    if documented.is_null() {
        return Err(format!("status {} is not documented", answer.status));
    }
    let media = answer.header("content-type").ok_or("no content type")?;
    let content = &documented["content"];
    let Some(content) = content.get(media).or(content.get("*/*")) else {
        return Err(format!("{media} is not documented"));
    };
    if media == "application/json" {
        let body = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
        return check(document, &content["schema"], &body);
    }
    let text = std::str::from_utf8(&answer.body).map_err(|error| error.to_string())?;
    for event in text.split("\n\n").filter(|_| media == "text/event-stream") {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let (Some(name), Some(data)) = (field("event: "), field("data: ")) else { continue };
        let data = serde_json::from_str(data).map_err(|error| error.to_string())?;
        let schema = content["x-events"].get(name).ok_or(format!("{name} is not documented"))?;
        check(document, schema, &data)?;
    }
    Ok(())
}

/// Sends a request, and judges the answer.
fn try_out(
    server: &Server,
    document: &Value,
    operation: &Operation,
    path: &str,
    headers: &str,
    body: Option<&[u8]>,
) {
    if operation.path == "/v1/events" && path == operation.path {
        let (name, data) = server.events(path).next().unwrap();
        let schema = &operation.about["responses"]["200"]["content"]["text/event-stream"]["x-events"][name];
        assert_eq!(check(document, schema, &data), Ok(()));
        return;
    }
    let mut request = server.text(&operation.method, path, None);
    request.truncate(request.len() - 2);
    request += headers;
    if let Some(body) = body {
        let _ = write!(request, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    let mut request = (request + "\r\n").into_bytes();
    request.extend(body.unwrap_or(&[]));
    let answer = raw(server.address(), &request);
    if let Err(what) = judge(document, operation, &answer) {
        let (request, body) = (String::from_utf8_lossy(&request), String::from_utf8_lossy(&answer.body));
        panic!("{what}\n{request}\nwas answered with {} {body}", answer.status);
    }
    if answer.status >= 400 && answer.status != 404 {
        answer.refused(answer.status);
    }
}

#[test]
fn the_document_is_whole() {
    let (server, document) = server();
    assert_eq!(document["openapi"], "3.1.0");
    let operations = operations(&document);
    let names: BTreeSet<&str> =
        operations.iter().filter_map(|one| one.about["operationId"].as_str()).collect();
    assert_eq!(names.len(), operations.len());
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let target = part.split('"').next().unwrap();
        assert!(document.pointer(target).is_some(), "{target} leads nowhere");
    }
    // What is documented is there: no path is unknown, no method is not possible.
    for operation in &operations {
        let path = operation.path.replace("{name}", "x-4").replace("{file}", "jobs.js");
        if operation.path != "/v1/events" {
            let status = server.send(&operation.method, &path, "{}").status;
            assert!(![404, 405].contains(&status), "{} {path}: {status}", operation.method);
        }
    }
    // And as a client would generate it, without a word of ours in between.
    let submit = &document["paths"]["/v1/jobs"]["post"];
    let schema = &submit["requestBody"]["content"]["application/json"]["schema"];
    let body = json!({ "job": crate::client::job("x"), "workers": { "min": 1, "max": 2 }, "deadline": "2h" });
    assert_eq!(check(&document, schema, &body), Ok(()));
    assert!(check(&document, schema, &json!({ "jbo": 1 })).is_err());
}

#[test]
fn every_answer_is_as_documented() {
    let (server, document) = server();
    let operations = operations(&document);
    let before = std::time::Instant::now();
    let mut runner = runner(120);
    let accepted = std::cell::Cell::new(0);
    let result = runner.run(&any::<u64>(), |seed| {
        let mut dice = Dice::new(seed);
        for name in ["x-0", "x-1", "x-4"] {
            server.set(name, Phase::Queued);
        }
        for operation in &operations {
            let (path, headers) = address(operation, &mut dice);
            let schema = &operation.about["requestBody"]["content"]["application/json"]["schema"];
            let body = (!schema.is_null()).then(|| {
                let mut body = invent(&document, schema, &mut dice);
                if operation.path == "/v1/jobs" && dice.one_in(2) {
                    // Random job files are hardly ever right.
                    body["job"] = crate::client::job("x");
                    body.as_object_mut().unwrap().remove("job_toml");
                }
                for _ in 0..dice.below(3) {
                    mutate(&mut body, &mut dice);
                }
                body.to_string()
            });
            let granted = server.granted();
            try_out(&server, &document, operation, &path, &headers, body.as_deref().map(str::as_bytes));
            accepted.set(accepted.get() + server.granted() - granted);
        }
        Ok(())
    });
    result.unwrap();
    assert!(accepted.get() > 50, "only {} requests were granted: the test tries too little", accepted.get());
    assert!(before.elapsed().as_secs() < 60);
}

#[test]
fn noise_is_refused_as_documented() {
    let (server, document) = server();
    let operations = operations(&document);
    let mut runner = runner(150);
    let noise = (any::<u64>(), prop::collection::vec(any::<u8>(), 0..300));
    let result = runner.run(&noise, |(seed, bytes)| {
        let mut dice = Dice::new(seed);
        let operation = dice.of(&operations);
        let path = operation.path.replace("{name}", "unknown").replace("{file}", "nothing");
        let before = server.granted();
        if path != "/v1/events" {
            try_out(&server, &document, operation, &path, "", Some(&bytes));
        }
        // A path and a method of no operation.
        let words = ["v1", "jobs", "x-0", "curve", "", "policy", "%2e", "health", "a%ffb"];
        let path: String = (0..=dice.below(5)).map(|_| format!("/{}", dice.of(&words))).collect();
        let method = *dice.of(&["PUT", "DELETE", "PATCH", "OPTIONS", "BREW"]);
        let answer = server.ask(method, &path);
        prop_assert!(
            [200, 404, 405, 409, 415, 422].contains(&answer.status),
            "{method} {path}: {}",
            answer.status
        );
        if answer.status != 200 {
            answer.refused(answer.status);
        }
        prop_assert!(server.granted() <= before + 1);
        Ok(())
    });
    result.unwrap();
    assert_eq!(server.get("/health").status, 200);
}
