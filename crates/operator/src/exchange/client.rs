//! A pod's side.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwether_runtime::channel::Token;
use bellwether_runtime::run_dir::RunFile;
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::DeserializeOwned;
use ureq::Agent;
use ureq::http::Request;

use super::sign::{self, Key, Signature};
use super::wish::{Report, Wish};
use super::{CHUNK_BYTES, Have, LONGEST_POLL, is_uid};

/// Time to connect.
const CONNECT: Duration = Duration::from_secs(3);

/// Time for a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the operator did not do, or say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// It does not answer, or what answers is not the operator; it may be well again soon.
    #[error("the operator does not answer: {0}")]
    Unreachable(String),
    /// Another pod leads the run.
    #[error("another pod leads the run")]
    Replaced,
    /// It has no room for more of a file.
    #[error("the operator has no room for more of it")]
    Full,
    /// It cannot make sense of the request.
    #[error("the operator refuses the request: {0}")]
    Refused(String),
}

/// What became of bytes that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// The operator has them, and this many in all.
    Here(u64),
    /// It has this many bytes, and the next ones are to begin there.
    Elsewhere(u64),
    /// Where it has bytes already, they are others.
    Differs,
}

/// Asks the operator on behalf of a pod. All calls wait for an answer.
pub struct Client {
    agent: Agent,
    /// Without a slash at its end.
    url: String,
    uid: String,
    pod: String,
    key: Key,
    /// Random, so that no two processes begin their requests alike.
    word: u64,
    requests: AtomicU64,
}

struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Client {
    /// For this pod of the job with this uid, whose operator is at `url`.
    ///
    /// # Errors
    ///
    /// A uid or a pod's name that cannot be one, or a system without randomness.
    pub fn new(url: &str, uid: &str, pod: &str, token: &Token) -> Result<Client, ClientError> {
        let is_name = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_uid(uid) || !is_name(pod) {
            return Err(ClientError::Refused("the job's uid or the pod's name cannot be one".into()));
        }
        let mut word = [0; 8];
        let filled = SystemRandom::new().fill(&mut word);
        filled.map_err(|_| ClientError::Refused("the system has no randomness to give".into()))?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The operator is next door, and its answers are for its own URL.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT))
            .user_agent("bellwether")
            .build();
        Ok(Client {
            agent: Agent::new_with_config(config),
            url: url.trim_end_matches('/').into(),
            uid: uid.into(),
            pod: pod.into(),
            key: Key::of(token),
            word: u64::from_le_bytes(word),
            requests: AtomicU64::new(0),
        })
    }

    /// Sends bytes of a file that begin at `offset`: whole lines, where it is made of lines.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub fn send(&self, file: RunFile, offset: u64, bytes: &[u8]) -> Result<Sent, ClientError> {
        let answer = self.ask("POST", &format!("files/{file}?offset={offset}"), Some(bytes), PATIENCE)?;
        let have = |answer: &Answer| json::<Have>(&answer.body);
        match answer.status {
            200 => Ok(Sent::Here(have(&answer)?.have)),
            409 => match have(&answer)? {
                Have { differs: true, .. } => Ok(Sent::Differs),
                Have { have, .. } => Ok(Sent::Elsewhere(have)),
            },
            _ => Err(refused(&answer)),
        }
    }

    /// The bytes of a file from `offset` on that the operator has, some at a time; none where they end.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub fn fetch(&self, file: RunFile, offset: u64) -> Result<Vec<u8>, ClientError> {
        let answer = self.ask("GET", &format!("files/{file}?offset={offset}"), None, PATIENCE)?;
        if answer.status == 200 { Ok(answer.body) } else { Err(refused(&answer)) }
    }

    /// Waits for another wish than the one with this version; `None` if none came for a while.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub fn wish(&self, known: u64) -> Result<Option<Wish>, ClientError> {
        let answer = self.ask("GET", &format!("wish?known={known}"), None, LONGEST_POLL + PATIENCE)?;
        match answer.status {
            200 => json(&answer.body).map(Some),
            204 => Ok(None),
            _ => Err(refused(&answer)),
        }
    }

    /// Reports how fast a script is.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub fn report(&self, report: &Report) -> Result<(), ClientError> {
        let body = serde_json::to_vec(report).map_err(|error| ClientError::Refused(error.to_string()))?;
        let answer = self.ask("POST", "report", Some(&body), PATIENCE)?;
        if answer.status == 200 { Ok(()) } else { Err(refused(&answer)) }
    }

    /// Sends a request, and takes an answer that the operator has signed.
    fn ask(
        &self,
        method: &str,
        what: &str,
        body: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Answer, ClientError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let and = if what.contains('?') { '&' } else { '?' };
        let path = format!("/v1/jobs/{}/{what}{and}n={:016x}-{number}", self.uid, self.word);
        let signed = sign::Request { method, path: &path, pod: &self.pod, body: body.unwrap_or_default() };
        let signature = self.key.request(&signed);
        let way = |error: ureq::Error| ClientError::Unreachable(error.to_string());
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header(sign::SIGNATURE, signature.to_string())
            .header(sign::POD, &self.pod);
        let wrong = |error: ureq::http::Error| ClientError::Refused(error.to_string());
        let mut response = match body {
            Some(body) => {
                let request = request.body(body).map_err(wrong)?;
                self.agent.run(self.agent.configure_request(request).timeout_global(Some(patience)).build())
            }
            None => {
                let request = request.body(()).map_err(wrong)?;
                self.agent.run(self.agent.configure_request(request).timeout_global(Some(patience)).build())
            }
        }
        .map_err(way)?;
        let status = response.status().as_u16();
        let header = response.headers().get(sign::SIGNATURE).and_then(|value| value.to_str().ok());
        let said = header.map(str::to_owned);
        let body =
            response.body_mut().with_config().limit(CHUNK_BYTES as u64 + 1).read_to_vec().map_err(way)?;
        self.signed(&signature, status, said.as_deref(), body)
    }

    /// An answer, if the operator has signed it.
    fn signed(
        &self,
        request: &Signature,
        status: u16,
        said: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Answer, ClientError> {
        let is_signed = said.is_some_and(|said| self.key.accepts_answer(status, request, &body, said));
        if is_signed {
            return Ok(Answer { status, body });
        }
        // One that does not know the job, or the token, cannot sign: it may know them soon.
        let said = String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
        Err(ClientError::Unreachable(format!("an answer with status {status} is not signed by it: {said:?}")))
    }
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| ClientError::Refused(format!("its answer: {error}")))
}

fn refused(answer: &Answer) -> ClientError {
    match answer.status {
        410 => ClientError::Replaced,
        507 => ClientError::Full,
        // Its disk, or its end.
        500.. => ClientError::Unreachable(format!("it answers with status {}", answer.status)),
        status => {
            let why = String::from_utf8_lossy(&answer.body).into_owned();
            ClientError::Refused(format!("status {status}: {why}"))
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url).field("uid", &self.uid).finish_non_exhaustive()
    }
}
