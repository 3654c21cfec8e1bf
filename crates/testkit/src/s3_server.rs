//! A stand-in for an object store that speaks S3, on loopback: whole objects, lists in pages, and faults when asked.
//!
//! It proves what a client says and how it takes the answers. It checks that requests are signed by a known key and
//! that bodies are announced, not the signature itself; and it says nothing about the speed of a store.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// The key that the server knows.
pub const KEY_ID: &str = "AKIATESTKEYOFTHETESTS";

/// The secret to it, which no file, argument or line may hold.
pub const SECRET: &str = "hush-hush-secret-of-the-tests";

/// Objects on a page of a list, so that lists have several.
const PAGE: usize = 7;

/// What the server does with the next requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Says that it is too busy.
    Busy,
    /// Ends the connection in the middle of its answer.
    Cut,
    /// Takes a request and hangs up.
    HangUp,
}

#[derive(Debug, Default)]
struct State {
    /// By `bucket/key`.
    objects: BTreeMap<String, Vec<u8>>,
    /// The next requests end so, one after another.
    faults: Vec<Fault>,
    /// All requests end so.
    always: Option<Fault>,
    denies: bool,
    requests: Vec<String>,
}

/// A server with one bucket, `bucket`.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// Starts one on a free port of loopback.
    ///
    /// # Panics
    ///
    /// When loopback has no free port.
    pub fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || while let Some(true) = serve(&stream, &state) {});
            }
        });
        Server { address, state }
    }

    /// What a client needs in its environment.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_ACCESS_KEY_ID", KEY_ID.into()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.into()),
        ]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// The keys of all objects of the bucket.
    pub fn keys(&self) -> Vec<String> {
        self.state().objects.keys().filter_map(|key| key.strip_prefix("bucket/").map(String::from)).collect()
    }

    /// Changes an object, if it is there.
    pub fn change(&self, key: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(object) = self.state().objects.get_mut(&format!("bucket/{key}")) {
            change(object);
        }
    }

    /// The next requests end so, one after another.
    pub fn fail_next(&self, faults: &[Fault]) {
        self.state().faults.extend_from_slice(faults);
    }

    /// Whether all requests end so from now on.
    pub fn fail_always(&self, fault: Option<Fault>) {
        self.state().always = fault;
    }

    /// Whether all requests are denied from now on.
    pub fn deny(&self, denies: bool) {
        self.state().denies = denies;
    }

    /// Method and target of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }
}

/// A request without its headers that do not matter.
struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    is_signed: bool,
    is_conditional: bool,
    body: Vec<u8>,
}

/// Answers one request; false or nothing where the connection ends.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<bool> {
    let request = read(stream)?;
    let mut state = state.lock().expect("no holder of this lock panics");
    state.requests.push(format!("{} {}", request.method, request.path));
    let fault = if state.faults.is_empty() { state.always } else { Some(state.faults.remove(0)) };
    let (status, body) = match fault {
        Some(Fault::HangUp) => return None,
        Some(Fault::Busy) => ("503 Slow Down", error("SlowDown")),
        Some(Fault::Cut) | None => answer(&mut state, &request),
    };
    drop(state);
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut stream = stream;
    stream.write_all(head.as_bytes()).ok()?;
    if fault == Some(Fault::Cut) {
        stream.write_all(&body[..body.len() / 2]).ok()?;
        return None;
    }
    stream.write_all(&body).ok()?;
    Some(true)
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let mut words = first.split_whitespace();
    let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
    let (mut length, mut is_signed, mut is_conditional, mut has_digest) = (0usize, false, false, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "authorization" => {
                let by_key = format!("AWS4-HMAC-SHA256 Credential={KEY_ID}/");
                is_signed = value.starts_with(&by_key) && value.contains("Signature=");
            }
            "x-amz-content-sha256" => has_digest = value.len() == 64,
            "if-none-match" => is_conditional = value == "*",
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    Some(Request {
        method,
        path: decode(path.trim_start_matches('/')),
        query: query.map(|(key, value)| (decode(key), decode(value))).collect(),
        is_signed: is_signed && has_digest,
        is_conditional,
        body,
    })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|digit| (digit as char).to_digit(16)).unwrap_or(0) as u8;
        bytes.push(if byte == b'%' { digit() * 16 + digit() } else { byte });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn error(code: &str) -> Vec<u8> {
    format!("<Error><Code>{code}</Code><Message>the key was {SECRET}</Message></Error>").into_bytes()
}

fn answer(state: &mut State, request: &Request) -> (&'static str, Vec<u8>) {
    if !request.is_signed {
        return ("403 Forbidden", error("InvalidAccessKeyId"));
    }
    if state.denies {
        return ("403 Forbidden", error("AccessDenied"));
    }
    let (bucket, key) = request.path.split_once('/').unwrap_or((&request.path, ""));
    if bucket != "bucket" {
        return ("404 Not Found", error("NoSuchBucket"));
    }
    match (request.method.as_str(), key) {
        ("GET", "") => ("200 OK", list(state, &request.query).into_bytes()),
        ("GET", _) => match state.objects.get(&request.path) {
            Some(object) => ("200 OK", object.clone()),
            None => ("404 Not Found", error("NoSuchKey")),
        },
        ("PUT", _) if request.is_conditional && state.objects.contains_key(&request.path) => {
            ("412 Precondition Failed", error("PreconditionFailed"))
        }
        ("PUT", _) => {
            state.objects.insert(request.path.clone(), request.body.clone());
            ("200 OK", Vec::new())
        }
        ("DELETE", _) => {
            state.objects.remove(&request.path);
            ("204 No Content", Vec::new())
        }
        _ => ("405 Method Not Allowed", error("MethodNotAllowed")),
    }
}

/// A page of the objects below a prefix, or of the folders right below it.
fn list(state: &State, query: &BTreeMap<String, String>) -> String {
    let of = |key: &str| query.get(key).map_or("", String::as_str);
    let (prefix, after) = (of("prefix"), of("continuation-token"));
    let mut found: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for (key, object) in &state.objects {
        let Some(key) = key.strip_prefix("bucket/").filter(|key| key.starts_with(prefix)) else { continue };
        match key[prefix.len()..].split_once('/').filter(|_| of("delimiter") == "/") {
            Some((folder, _)) => drop(found.insert(format!("{prefix}{folder}/"), None)),
            None => drop(found.insert(key.into(), Some(object.len()))),
        }
    }
    let mut rest = found.iter().filter(|(key, _)| key.as_str() > after);
    let page: Vec<_> = rest.by_ref().take(PAGE).collect();
    let mut text = String::from("<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name>");
    for (key, bytes) in &page {
        text += &match bytes {
            Some(bytes) => format!("<Contents><Key>{key}</Key><Size>{bytes}</Size></Contents>"),
            None => format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"),
        };
    }
    let is_cut = rest.next().is_some();
    if let Some((last, _)) = page.last().filter(|_| is_cut) {
        text += &format!("<NextContinuationToken>{last}</NextContinuationToken>");
    }
    text + &format!("<IsTruncated>{is_cut}</IsTruncated></ListBucketResult>")
}
