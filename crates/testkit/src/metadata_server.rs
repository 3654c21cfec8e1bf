//! A stand-in for the metadata servers of two clouds, on loopback: as documented, or hostile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How the server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Play {
    /// Google Compute Engine, as documented.
    Gce,
    /// Amazon EC2 with version 2 of its metadata service, as documented.
    Ec2,
    /// The same after a headline that says that all is well, and bytes without end.
    EndlessBody,
    /// Headers without end.
    EndlessHeaders,
    /// The length of a body that no memory holds, and little of it.
    HugeClaim,
    /// A byte now and then.
    Drip,
    /// Nothing.
    Silence,
    /// The end of the connection.
    Close,
    /// Bytes that are not HTTP.
    Noise,
    /// A page, with status 200.
    Page,
    /// Somewhere else.
    Redirect,
    /// A status that says that it is too busy.
    Busy,
}

/// All that is not as documented.
pub const HOSTILE: [Play; 10] = [
    Play::EndlessBody,
    Play::EndlessHeaders,
    Play::HugeClaim,
    Play::Drip,
    Play::Silence,
    Play::Close,
    Play::Noise,
    Play::Page,
    Play::Redirect,
    Play::Busy,
];

/// What is the same for all connections.
#[derive(Debug)]
struct State {
    play: Play,
    /// The body that announces the end of the server.
    announced: Option<String>,
    /// Changes whenever the value does.
    version: u64,
    /// The token that is valid, if one is.
    token: Option<String>,
    tokens: u64,
    /// First line of every request.
    requests: Vec<String>,
    /// Bytes that an endless answer got rid of.
    poured: usize,
}

/// A server that plays.
#[derive(Debug)]
pub struct StandIn {
    address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl StandIn {
    /// Starts one on a free port of loopback.
    ///
    /// # Panics
    ///
    /// When loopback has no free port.
    pub fn start(play: Play) -> StandIn {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = State {
            play,
            announced: None,
            version: 7,
            token: None,
            tokens: 0,
            requests: Vec::new(),
            poured: 0,
        };
        let shared = Arc::new((Mutex::new(state), Condvar::new()));
        let connections = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&connections);
                // A client may hang up at any time.
                std::thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
        StandIn { address, shared }
    }

    /// Where it listens, as a client names it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().expect("no holder of this lock panics")
    }

    /// Announces the end: `TRUE` for Compute Engine, the item `instance-action` for EC2.
    pub fn announce(&self, body: &str) {
        let mut state = self.state();
        state.announced = Some(body.into());
        state.version += 1;
        self.shared.1.notify_all();
    }

    /// Behaves otherwise from now on.
    pub fn play(&self, play: Play) {
        self.state().play = play;
    }

    /// From now on a new token is needed.
    pub fn expire(&self) {
        self.state().token = None;
    }

    /// Tokens given so far.
    pub fn tokens(&self) -> u64 {
        self.state().tokens
    }

    /// First lines of the requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Bytes that endless answers got rid of so far.
    pub fn poured(&self) -> usize {
        self.state().poured
    }
}

/// What somebody asked for.
struct Request {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(String, String)>,
}

impl Request {
    fn read(stream: &TcpStream) -> std::io::Result<(String, Request)> {
        let mut lines = BufReader::new(stream.take(16 << 10)).lines();
        let mut line = || lines.next().unwrap_or(Ok(String::new()));
        let first = line()?;
        let mut words = first.split(' ').map(String::from);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pair = |text: &str, separator| {
            let (key, value) = text.split_once(separator).unwrap_or((text, ""));
            (key.trim().to_lowercase(), value.trim().to_string())
        };
        let query = query.split('&').map(|text| pair(text, '=')).collect();
        let path = path.to_string();
        let mut headers = Vec::new();
        loop {
            let header = line()?;
            if header.is_empty() {
                return Ok((first, Request { method, path, query, headers }));
            }
            headers.push(pair(&header, ':'));
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn asked(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn serve(stream: &TcpStream, shared: &(Mutex<State>, Condvar)) -> std::io::Result<()> {
    let (first, request) = Request::read(stream)?;
    let play = {
        let mut state = shared.0.lock().expect("no holder of this lock panics");
        state.requests.push(first);
        state.play
    };
    match play {
        Play::Gce => gce(stream, &request, shared),
        Play::Ec2 => ec2(stream, &request, shared),
        hostile => be_hostile(stream, hostile, shared),
    }
}

fn answer(mut stream: &TcpStream, status: &str, headers: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

fn gce(stream: &TcpStream, request: &Request, shared: &(Mutex<State>, Condvar)) -> std::io::Result<()> {
    if request.header("metadata-flavor") != Some("Google") || request.header("x-forwarded-for").is_some() {
        return answer(stream, "403 Forbidden", "", "Missing Metadata-Flavor:Google header");
    }
    if (request.method.as_str(), request.path.as_str()) != ("GET", "/computeMetadata/v1/instance/preempted") {
        return answer(stream, "404 Not Found", "", "");
    }
    let mut state = shared.0.lock().expect("no holder of this lock panics");
    if request.asked("wait_for_change") == Some("true") {
        let seen = request.asked("last_etag").map_or_else(|| tag(state.version), String::from);
        let patience = request.asked("timeout_sec").and_then(|s| s.parse().ok()).unwrap_or(3600);
        let until = Instant::now() + Duration::from_secs(patience);
        while tag(state.version) == seen && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            state = shared.1.wait_timeout(state, left).expect("no holder of this lock panics").0;
        }
    }
    let headers = format!("Metadata-Flavor: Google\r\nETag: {}\r\n", tag(state.version));
    let value = state.announced.clone().unwrap_or_else(|| "FALSE".into());
    drop(state);
    answer(stream, "200 OK", &headers, &value)
}

fn tag(version: u64) -> String {
    format!("{version:016x}")
}

fn ec2(stream: &TcpStream, request: &Request, shared: &(Mutex<State>, Condvar)) -> std::io::Result<()> {
    let mut state = shared.0.lock().expect("no holder of this lock panics");
    match (request.method.as_str(), request.path.as_str()) {
        ("PUT", "/latest/api/token") => {
            let lifetime = request.header("x-aws-ec2-metadata-token-ttl-seconds");
            if request.header("x-forwarded-for").is_some() {
                return answer(stream, "403 Forbidden", "", "");
            }
            if !lifetime.and_then(|s| s.parse().ok()).is_some_and(|s| (1..=21_600).contains(&s)) {
                return answer(stream, "400 Bad Request", "", "");
            }
            state.tokens += 1;
            let token = format!("AQAEAL{}==", state.tokens);
            state.token = Some(token.clone());
            answer(stream, "200 OK", "", &token)
        }
        ("GET", _) if state.token.is_none() => answer(stream, "401 Unauthorized", "", ""),
        ("GET", _) if request.header("x-aws-ec2-metadata-token") != state.token.as_deref() => {
            answer(stream, "401 Unauthorized", "", "")
        }
        ("GET", "/latest/meta-data/spot/instance-action") => match &state.announced {
            Some(action) => answer(stream, "200 OK", "Content-Type: application/json\r\n", action),
            None => answer(stream, "404 Not Found", "Content-Type: text/html\r\n", "<h1>404</h1>"),
        },
        ("GET", _) => answer(stream, "404 Not Found", "", ""),
        _ => answer(stream, "405 Method Not Allowed", "", ""),
    }
}

fn be_hostile(mut stream: &TcpStream, play: Play, shared: &(Mutex<State>, Condvar)) -> std::io::Result<()> {
    let block = [b'x'; 4096];
    let pour = |mut stream: &TcpStream, bytes: &[u8]| -> std::io::Result<()> {
        stream.write_all(bytes)?;
        shared.0.lock().expect("no holder of this lock panics").poured += bytes.len();
        Ok(())
    };
    match play {
        Play::EndlessBody => {
            write!(stream, "HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                pour(stream, &block)?;
            }
        }
        Play::EndlessHeaders => {
            write!(stream, "HTTP/1.1 200 OK\r\n")?;
            let header = format!("X-Header: {}\r\n", "y".repeat(1000));
            loop {
                pour(stream, header.as_bytes())?;
            }
        }
        Play::HugeClaim => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nTRUE")?;
            hold(stream)
        }
        Play::Drip => {
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n".iter().chain(&block) {
                stream.write_all(&[*byte])?;
                std::thread::sleep(Duration::from_millis(300));
            }
            Ok(())
        }
        Play::Silence => hold(stream),
        Play::Noise => stream.write_all(&[0xff, 0, 13, 10, 0x1b].repeat(50)),
        Play::Page => answer(stream, "200 OK", "ETag: &x=1 y\r\n", "<html>Sign in to this network</html>"),
        Play::Redirect => answer(stream, "302 Found", "Location: /elsewhere\r\n", ""),
        Play::Busy => answer(stream, "503 Service Unavailable", "", ""),
        Play::Close | Play::Gce | Play::Ec2 => Ok(()),
    }
}

/// Keeps the connection until the other side ends it.
fn hold(mut stream: &TcpStream) -> std::io::Result<()> {
    std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
}
