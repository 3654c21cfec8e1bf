//! Who may do what through which door.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use bellwether_serve::api::{Security, metrics_token};
use bellwether_serve::secret::Secret;
use serde_json::json;

use crate::client::{Answer, job, over_socket, raw};
use crate::fake::Server;

impl Server {
    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// A request by the socket, without a token.
    pub(crate) fn by_socket(&self, method: &str, path: &str, body: Option<&str>) -> Answer {
        let text = self.text(method, path, body).replace(&self.address().to_string(), "localhost");
        let authorization = format!("Authorization: Bearer {}\r\n", self.token);
        over_socket(&self.socket(), &text.replace(&authorization, ""))
    }

    fn by(&self, token: &str, method: &str, path: &str, body: Option<&str>) -> Answer {
        raw(self.address(), self.text_of(token, method, path, body).as_bytes())
    }

    fn code(&self) -> String {
        let answer = self.by_socket("POST", "/v1/codes", None);
        assert_eq!(answer.status, 201);
        let body = answer.json();
        assert_eq!(body["url"], format!("http://{}", self.address()));
        body["code"].as_str().unwrap().to_owned()
    }

    fn exchange(&self, code: &str) -> Answer {
        self.by("nothing", "POST", "/v1/sessions", Some(&json!({ "code": code }).to_string()))
    }
}

fn submission() -> String {
    json!({ "job": job("a") }).to_string()
}

#[test]
fn the_owner_comes_by_the_socket_without_a_token() {
    let server = Server::secured_by(Security::Sessions);
    assert_eq!(server.by_socket("POST", "/v1/jobs", Some(&submission())).status, 201);
    assert_eq!(server.by_socket("GET", "/metrics", None).status, 200);
    // A port was forwarded there: a page of any site could come that way.
    let text = server.text("GET", "/v1/cluster", None);
    for host in ["127.0.0.1:7070", "localhost:7070", "evil.example"] {
        let text = text.replace(&server.address().to_string(), host);
        let (what, place, hint) = over_socket(&server.socket(), &text).refused(403);
        assert_eq!((place.as_str(), hint.as_str()), ("header `Host`", "it answers as localhost"), "{what}");
    }
}

#[test]
fn the_token_is_not_taken_where_it_could_be_overheard() {
    let server = Server::secured_by(Security::Sessions);
    for path in ["/v1/jobs", "/v1/cluster", "/metrics"] {
        let (what, _, hint) = server.get(path).refused(401);
        assert!(what.contains("overheard") && hint.contains("bellwether dashboard"), "{what}: {hint}");
    }
    server.send("POST", "/v1/jobs", submission()).refused(401);
    server.send("POST", "/v1/codes", "").refused(401);
    assert_eq!(server.granted(), 0);
    let elsewhere = Server::start();
    assert_eq!(elsewhere.get("/v1/cluster").status, 200);
    assert_eq!(elsewhere.ask("POST", "/v1/codes").status, 201);
}

#[test]
fn a_code_opens_one_session_which_does_what_the_dashboard_does() {
    let server = Server::secured_by(Security::Sessions);
    server.fill(1);
    let code = server.code();
    let answer = server.exchange(&code);
    assert_eq!((answer.status, answer.header("cache-control")), (201, Some("no-store")));
    assert_eq!(answer.header("set-cookie"), None, "cookies go to every port of this machine");
    let session = answer.json()["session"].as_str().unwrap().to_owned();
    let (what, _, hint) = server.exchange(&code).refused(401);
    assert!(what.contains("used up") && hint.contains("bellwether dashboard"), "{what}");
    for wrong in ["", &session, &server.token, &code[1..]] {
        server.exchange(wrong).refused(401);
    }
    assert_eq!(server.by(&session, "GET", "/v1/jobs", None).status, 200);
    assert_eq!(server.by(&session, "POST", "/v1/jobs/x-0/suspend", None).status, 200);
    assert_eq!(server.by(&session, "GET", "/metrics", None).status, 200);
    // It starts no processes, and breeds no sessions.
    let (_, _, hint) = server.by(&session, "POST", "/v1/jobs", Some(&submission())).refused(403);
    assert!(hint.contains("bellwether submit"), "{hint}");
    server.by(&session, "POST", "/v1/codes", None).refused(403);
    assert_eq!(server.now().jobs.size(), 1);
    // To another process, on the same port or not, it is nothing.
    let other = Server::secured_by(Security::Sessions);
    other.by(&session, "GET", "/v1/jobs", None).refused(401);
    other.exchange(&server.code()).refused(401);
}

#[test]
fn where_others_say_what_trains_even_the_owner_only_looks() {
    let server = Server::changed_by(Security::Sessions, Some("ask them".into()));
    assert_eq!(server.by_socket("GET", "/v1/jobs", None).status, 200);
    assert!(!server.code().is_empty(), "a browser is let in");
    for (method, path, body) in [
        ("POST", "/v1/jobs", submission()),
        ("PUT", "/v1/policy", r#"{"policy": "fifo"}"#.to_owned()),
        ("PATCH", "/v1/jobs/a", r#"{"weight": 2}"#.to_owned()),
    ] {
        let (_, _, hint) = server.by_socket(method, path, Some(&body)).refused(403);
        assert_eq!(hint, "ask them", "{method} {path}");
    }
    assert_eq!(server.granted(), 0);
}

#[test]
fn the_token_for_metrics_opens_nothing_else() {
    for security in [Security::Sessions, Security::Elsewhere] {
        let server = Server::secured_by(security);
        let token = metrics_token(&Secret::parse(&server.token).unwrap());
        assert_eq!(server.by(&token, "GET", "/metrics", None).status, 200);
        let (what, _, hint) = server.by(&token, "GET", "/v1/cluster", None).refused(403);
        assert!(what.contains("metrics") && hint.contains("/metrics"), "{what}");
        server.by(&token, "GET", "/nothing", None).refused(403);
        server.by(&token, "POST", "/v1/jobs", Some(&submission())).refused(403);
    }
}

/// Set for the child of [`other_users_are_turned_away`].
const KNOCK_AT: &str = "BELLWETHER_KNOCK_AT";

#[test]
fn other_users_are_turned_away() {
    use std::io::{Read, Write};
    if let Some(path) = std::env::var_os(KNOCK_AT) {
        let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        let _ = stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        println!("heard {} bytes", heard.len());
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be somebody else");
        return;
    }
    let server = Server::secured_by(Security::Sessions);
    // As if its user had opened all doors to it.
    let program = server.folder.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [server.folder.path(), &program, &server.socket()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let knock = |user: u32| {
        let mut command = Command::new(&program);
        command.args(["doors::other_users_are_turned_away", "--exact", "--nocapture"]);
        let output = command.env(KNOCK_AT, server.socket()).uid(user).gid(user).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let stranger = knock(65_534);
    assert!(stranger.contains("heard 0 bytes"), "{stranger}");
    let root = knock(0);
    assert!(root.contains("heard ") && !root.contains("heard 0 bytes"), "{root}");
}
