//! Questions to a daemon over its Unix socket: JSON over HTTP, each over a connection of its own.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bellwether_serve::daemon::socket_file;
use bellwether_serve::local;
use bellwether_serve::snapshot::JobState;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

/// How long a daemon that does not answer may be on its way back.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for a connection, and time without a byte of an answer.
const SILENCE: Duration = Duration::from_secs(60);

/// A client of the daemon of a state directory.
pub(super) struct Client {
    socket: PathBuf,
}

/// Jobs of one answer.
#[derive(Deserialize)]
struct Page {
    jobs: Vec<JobState>,
    next: Option<String>,
}

impl Client {
    pub(super) fn new(state_dir: &Path) -> Client {
        Client { socket: socket_file(state_dir) }
    }

    /// What is to be read at `path`.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask("GET", path, String::new())
    }

    /// The answer to what is sent to `path`.
    pub(super) fn post<T: DeserializeOwned>(&self, path: &str, body: Option<&Value>) -> Result<T, Failure> {
        self.ask("POST", path, body.map(Value::to_string).unwrap_or_default())
    }

    /// All jobs, in the order of submission.
    pub(super) fn jobs(&self) -> Result<Vec<JobState>, Failure> {
        let (mut jobs, mut after) = (Vec::new(), String::new());
        loop {
            let page: Page = self.get(&format!("/v1/jobs?limit=1000{after}"))?;
            jobs.extend(page.jobs);
            match page.next {
                Some(name) => after = format!("&after={name}"),
                None => return Ok(jobs),
            }
        }
    }

    /// Asks, and asks again while the daemon is busy or on its way back. Whatever is asked may be asked twice.
    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: String) -> Result<T, Failure> {
        let failed = |why: String| Failure::at(format!("{method} {path}"), why);
        let began = Instant::now();
        let (status, answer) = loop {
            match self.ask_once(method, path, &body) {
                Ok((503, _)) | Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                answer => break answer.map_err(|e| failed(e.to_string()))?,
            }
        };
        if !(200..300).contains(&status) {
            return Err(failed(format!("HTTP status {status}: {}", String::from_utf8_lossy(&answer))));
        }
        serde_json::from_slice(&answer).map_err(|e| failed(e.to_string()))
    }

    /// Status and body of the answer. In this version of HTTP it ends with the connection.
    fn ask_once(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, Vec<u8>)> {
        let mut stream = local::connect(&self.socket, SILENCE)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + body).as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        split(&answer).ok_or_else(|| io::Error::other("the answer is cut off or none in HTTP"))
    }
}

/// The status and the body of an answer.
fn split(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let (head, body) = (std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]);
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status_and_a_body() {
        let answer = b"HTTP/1.0 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(split(answer), Some((201, b"{}".to_vec())));
        assert_eq!(split(&answer[..30]), None);
    }
}
