//! A client that can also misbehave: plain sockets and bytes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::fake::Server;

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error that it is, with this status.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> (String, String, String) {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        let body = self.json();
        let text =
            |key: &str| body[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {body}")).to_owned();
        assert!(!text("error").is_empty() && !text("place").is_empty(), "{body}");
        (text("error"), text("place"), text("hint"))
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes as they are, and reads the answer.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = connect(address);
    // A server that refuses early need not read all.
    let _ = stream.write_all(bytes);
    read(&mut BufReader::new(stream))
}

/// The same over a Unix socket.
pub(crate) fn over_socket(path: &Path, text: &str) -> Answer {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    read(&mut BufReader::new(stream))
}

/// Reads one answer.
pub(crate) fn read(reader: &mut impl BufRead) -> Answer {
    let (status, headers) = head(reader);
    let mut answer = Answer { status, headers, body: Vec::new() };
    let number = |text: &str| text.trim().parse::<usize>().unwrap();
    if answer.header("transfer-encoding").is_some() {
        while let Some(chunk) = chunk(reader) {
            answer.body.extend(chunk);
        }
    } else {
        answer.body = vec![0; answer.header("content-length").map_or(0, number)];
        reader.read_exact(&mut answer.body).unwrap();
    }
    answer
}

/// Status and headers.
pub(crate) fn head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {line:?}")).parse().unwrap();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => return (status, headers),
        }
    }
}

/// The next chunk of a chunked body; `None` at its end.
fn chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|_| panic!("{line:?}"));
    let mut chunk = vec![0; length + 2];
    reader.read_exact(&mut chunk).unwrap();
    chunk.truncate(length);
    (length > 0).then_some(chunk)
}

impl Server {
    /// The text of a request with this server's name and token.
    pub(crate) fn text(&self, method: &str, path: &str, body: Option<&str>) -> String {
        self.text_of(&self.token, method, path, body)
    }

    /// The same with another token.
    pub(crate) fn text_of(&self, token: &str, method: &str, path: &str, body: Option<&str>) -> String {
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n",
            self.address(),
        );
        if let Some(body) = body {
            text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        text + "\r\n" + body.unwrap_or("")
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        raw(self.address(), self.text("GET", path, None).as_bytes())
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: impl ToString) -> Answer {
        raw(self.address(), self.text(method, path, Some(&body.to_string())).as_bytes())
    }

    /// A request without a body.
    pub(crate) fn ask(&self, method: &str, path: &str) -> Answer {
        raw(self.address(), self.text(method, path, None).as_bytes())
    }

    pub(crate) fn events(&self, path: &str) -> Events {
        self.events_of(&self.token, path)
    }

    /// The same with another token.
    pub(crate) fn events_of(&self, token: &str, path: &str) -> Events {
        let mut stream = connect(self.address());
        stream.write_all(self.text_of(token, "GET", path, None).as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let (status, headers) = head(&mut reader);
        assert_eq!(status, 200);
        assert!(headers.contains(&("content-type".into(), "text/event-stream".into())), "{headers:?}");
        Events { reader, text: String::new() }
    }
}

/// Server-sent events.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    text: String,
}

impl Iterator for Events {
    type Item = (String, Value);

    fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                let found = field("data").map(|data| {
                    (field("event").unwrap_or("").to_owned(), serde_json::from_str(data).unwrap())
                });
                self.text = rest.to_owned();
                if found.is_some() {
                    return found;
                }
            }
            let chunk = chunk(&mut self.reader)?;
            self.text += std::str::from_utf8(&chunk).unwrap();
        }
    }
}

/// A job file that is right.
pub(crate) fn job(name: &str) -> Value {
    serde_json::json!({
        "name": name,
        "steps": 100,
        "workers": "1..2",
        "model": { "kind": "synthetic", "step_time": "1ms", "parameters": "4KiB" },
        "data": { "kind": "indices", "samples": 1000 },
        "batch": { "size": 64, "virtual_nodes": 4 },
        "optimizer": { "kind": "sgd", "learning_rate": 0.1 }
    })
}
