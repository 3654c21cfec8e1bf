//! Questions to a daemon over HTTP, asked again while it is being restarted.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::queue::QueuesFile;
use bellwether_serve::api::admission::{Admitted, UserList};
use bellwether_serve::api::body::{Limits, Policy, Queues, Submit};
use bellwether_serve::api::entry::Code;
use bellwether_serve::api::users::User;
use bellwether_serve::snapshot::{ClusterState, DecisionState, ErrorBody, JobState};
use bellwether_serve::tls::distrust;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::request::Builder;
use ureq::http::{Method, Request, Response};
use ureq::{Agent, Body};

use crate::{ClientError, Endpoint, Events, socket};

/// How long a daemon that does not answer may be on its way back, unless another time is set.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time without an answer after which the caller hears of it.
const SILENCE: Duration = Duration::from_secs(1);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Time without a byte of a stream; the daemon sends some every 15 s.
const STREAM_SILENCE: Duration = Duration::from_secs(45);

/// More bytes than any answer has.
const BODY_BYTES: u64 = 64 << 20;

/// A daemon, which may not be running at the moment.
pub struct Client {
    endpoint: Endpoint,
    agent: Agent,
    patience: Duration,
    on_wait: Box<dyn Fn(&str) + Send>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).field("patience", &self.patience).finish()
    }
}

/// What a user can do with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It leaves a checkpoint and waits until it is resumed.
    Suspend,
    /// It goes on.
    Resume,
    /// It ends for good.
    Cancel,
}

impl Client {
    /// A client of the daemon at `endpoint`. It connects when something is asked.
    pub fn new(endpoint: Endpoint) -> Client {
        let agent = endpoint.agent();
        Client { endpoint, agent, patience: PATIENCE, on_wait: Box::new(|_| {}) }
    }

    /// Sets how long the client waits for a daemon that does not answer; 5 s otherwise.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Client {
        Client { patience, ..self }
    }

    /// Sets what is called, with a sentence, once a request has waited for a second.
    #[must_use]
    pub fn on_wait(self, on_wait: impl Fn(&str) + Send + 'static) -> Client {
        Client { on_wait: Box::new(on_wait), ..self }
    }

    /// Where the daemon is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A job.
    ///
    /// # Errors
    ///
    /// No daemon; a daemon that does not know the job (status 404).
    pub fn job(&self, name: &str) -> Result<JobState, ClientError> {
        self.of_job(&Method::GET, name, "", None::<&()>)
    }

    /// All jobs, in the order of submission.
    ///
    /// # Errors
    ///
    /// No daemon, or none of this version.
    pub fn jobs(&self) -> Result<Vec<JobState>, ClientError> {
        let (mut jobs, mut after) = (Vec::new(), None::<String>);
        loop {
            let from = after.map_or(String::new(), |name| format!("&after={}", segment(&name)));
            let page: Page = self.get(&format!("/v1/jobs?limit=1000{from}"))?;
            jobs.extend(page.jobs);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(jobs),
            }
        }
    }

    /// Gives the daemon a job. With `submission.key` it is accepted once, however often it is sent; a request is sent
    /// again while the daemon is being restarted, so a key should be set.
    ///
    /// # Errors
    ///
    /// No daemon; a job that the daemon refuses (status 422, or 409 if the name is taken).
    pub fn submit(&self, submission: &Submit) -> Result<JobState, ClientError> {
        self.send(&Method::POST, "/v1/jobs", Some(submission))
    }

    /// The object that a submission to a cluster of Kubernetes would create. Only the program that stands before such a
    /// cluster answers this.
    ///
    /// # Errors
    ///
    /// Those of [`submit`](Client::submit).
    pub fn manifest(&self, submission: &Submit) -> Result<Value, ClientError> {
        self.send(&Method::POST, "/v1/manifests", Some(submission))
    }

    /// Deletes a job's object from a cluster of Kubernetes, and returns the job as it was. A daemon forgets no job, and
    /// does not answer this.
    ///
    /// # Errors
    ///
    /// Those of [`job`](Client::job).
    pub fn remove(&self, name: &str) -> Result<JobState, ClientError> {
        self.of_job(&Method::DELETE, name, "", None::<&()>)
    }

    /// Suspends, resumes or cancels a job.
    ///
    /// # Errors
    ///
    /// Those of [`job`](Client::job); a job in whose state that cannot be done (status 409).
    pub fn act(&self, act: Act, name: &str) -> Result<JobState, ClientError> {
        let rest = match act {
            Act::Suspend => "/suspend",
            Act::Resume => "/resume",
            Act::Cancel => "/cancel",
        };
        self.of_job(&Method::POST, name, rest, None::<&()>)
    }

    /// Changes the number of workers that a job may have, or its priority.
    ///
    /// # Errors
    ///
    /// Those of [`job`](Client::job); limits that the daemon refuses (status 422).
    pub fn limit(&self, name: &str, limits: &Limits) -> Result<JobState, ClientError> {
        self.of_job(&Method::PATCH, name, "", Some(limits))
    }

    /// A stream of what happens in a job's run and of what its processes write: the last `lines` lines, then those
    /// that follow until the job ends if `follow` is set.
    ///
    /// # Errors
    ///
    /// Those of [`job`](Client::job).
    pub fn logs(&self, name: &str, follow: bool, lines: u32) -> Result<Events, ClientError> {
        let path = format!("/v1/jobs/{}/logs?follow={follow}&lines={lines}", segment(name));
        let response = self.retry(|| {
            let request = self.agent.configure_request(self.request(&Method::GET, &path).body(())?);
            self.agent.run(request.timeout_global(None).timeout_per_read(Some(STREAM_SILENCE)).build())
        })?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(Events::new(response.into_body().into_reader()));
        }
        // What cannot be read of a refusal is left out of it.
        let bytes = read(response).unwrap_or_default();
        Err(about(self.refused(status, &bytes), name))
    }

    /// The slots, and the policy that decides about them.
    ///
    /// # Errors
    ///
    /// No daemon, or none of this version.
    pub fn cluster(&self) -> Result<ClusterState, ClientError> {
        self.get("/v1/cluster")
    }

    /// The last `limit` decisions, the oldest first.
    ///
    /// # Errors
    ///
    /// No daemon, or none of this version.
    pub fn decisions(&self, limit: u32) -> Result<Vec<DecisionState>, ClientError> {
        let Decisions { decisions } = self.get(&format!("/v1/decisions?limit={limit}"))?;
        Ok(decisions)
    }

    /// The policy that decides, with its options.
    ///
    /// # Errors
    ///
    /// No daemon, or none of this version.
    pub fn policy(&self) -> Result<String, ClientError> {
        let Policy { policy } = self.get("/v1/policy")?;
        Ok(policy)
    }

    /// Lets another policy decide from now on; returns its name with its options.
    ///
    /// # Errors
    ///
    /// No daemon; a policy that the daemon does not know (status 422).
    pub fn set_policy(&self, policy: &str) -> Result<String, ClientError> {
        let body = Policy { policy: policy.to_owned() };
        let Policy { policy } = self.send(&Method::PUT, "/v1/policy", Some(&body))?;
        Ok(policy)
    }

    /// The queues that divide the slots, as they were described; `None` where none do.
    ///
    /// # Errors
    ///
    /// No daemon, or none of this version.
    pub fn queues(&self) -> Result<Option<QueuesFile>, ClientError> {
        let Queues { queues } = self.get("/v1/queues")?;
        Ok(queues)
    }

    /// Lets these queues divide the slots from now on, or none.
    ///
    /// # Errors
    ///
    /// No daemon; queues that cannot be those of its slots, or in which a job that has not ended has no place (status
    /// 422).
    pub fn divide(&self, queues: Option<&QueuesFile>) -> Result<(), ClientError> {
        let body = Queues { queues: queues.cloned() };
        self.send::<Queues>(&Method::PUT, "/v1/queues", Some(&body)).map(drop)
    }

    /// Those who have a token of their own.
    ///
    /// # Errors
    ///
    /// No daemon; a client that is not its owner (status 403).
    pub fn users(&self) -> Result<Vec<User>, ClientError> {
        let UserList { users } = self.get("/v1/users")?;
        Ok(users)
    }

    /// Makes a user; the token in the answer is not told again.
    ///
    /// # Errors
    ///
    /// No daemon; a client that is not its owner (status 403); a user that cannot be (status 422), or that there is
    /// already (status 409).
    pub fn add_user(&self, user: &User) -> Result<Admitted, ClientError> {
        self.send(&Method::POST, "/v1/users", Some(user))
    }

    /// Takes a user's token back; the user's sessions end with it.
    ///
    /// # Errors
    ///
    /// No daemon; a client that is not its owner (status 403); no such user (status 404).
    pub fn remove_user(&self, name: &str) -> Result<Vec<User>, ClientError> {
        let UserList { users } =
            self.send(&Method::DELETE, &format!("/v1/users/{}", segment(name)), None::<&()>)?;
        Ok(users)
    }

    /// A code that opens the daemon's dashboard in a browser, once.
    ///
    /// # Errors
    ///
    /// No daemon, or none of this version.
    pub fn dashboard_code(&self) -> Result<Code, ClientError> {
        self.send(&Method::POST, "/v1/codes", None::<&()>)
    }

    /// A request to it.
    fn request(&self, method: &Method, path: &str) -> Builder {
        let request = Request::builder().method(method);
        match &self.endpoint {
            Endpoint::Address(address) => {
                let uri = format!("{}{path}", address.url);
                request.uri(uri).header("Authorization", &address.bearer.0)
            }
            _ => request.uri(format!("{}{path}", socket::URL)),
        }
    }

    /// Asks, and asks again while the daemon may be on its way back. Every request may be sent twice.
    fn ask(&self, method: &Method, path: &str, body: Option<&str>) -> Result<(u16, Vec<u8>), ClientError> {
        self.retry(|| {
            let mut request = self.request(method, path).header("Accept", "application/json");
            if body.is_some() {
                request = request.header("Content-Type", "application/json");
            }
            let sent = if *method == Method::GET {
                self.agent.run(request.body(())?)
            } else {
                self.agent.run(request.body(body.unwrap_or_default().as_bytes().to_vec())?)
            };
            let response = sent?;
            Ok((response.status().as_u16(), read(response)?))
        })
    }

    /// Tries until there is an answer that is not «later», or patience is at its end.
    fn retry<T: Answered>(&self, attempt: impl Fn() -> Result<T, ureq::Error>) -> Result<T, ClientError> {
        let (began, mut told) = (Instant::now(), false);
        loop {
            let answer = attempt();
            if let Err(ureq::Error::Io(error)) = &answer
                && let Some(why) = distrust(error)
            {
                return Err(ClientError::Distrusted { place: self.endpoint.to_string(), why });
            }
            let is_gone = answer.as_ref().is_err_and(is_absent) && began.elapsed() < PAUSE;
            let answer = answer.map_err(|error| self.said(&error));
            let is_last = began.elapsed() >= self.patience;
            let why = match answer {
                Ok(answer) if answer.is_final() || is_last => return Ok(answer),
                Ok(_) => "it is busy or about to end".to_owned(),
                // Where none has been there is none to wait for.
                Err(why) if is_gone || is_last => {
                    return Err(ClientError::Silent { place: self.endpoint.to_string(), why });
                }
                Err(why) => why,
            };
            if !told && began.elapsed() >= SILENCE {
                told = true;
                (self.on_wait)(&format!(
                    "no daemon answers at {} ({why}); it may be on its way back, waiting up to {} s",
                    self.endpoint,
                    self.patience.as_secs()
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The answer to a question, read as JSON.
    fn send<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let other = |error: serde_json::Error| ClientError::OtherVersion {
            place: self.endpoint.to_string(),
            why: error.to_string(),
        };
        let body = body.map(serde_json::to_string).transpose().map_err(other)?;
        let (status, bytes) = self.ask(method, path, body.as_deref())?;
        if !(200..300).contains(&status) {
            return Err(self.refused(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(other)
    }

    /// What is to be read at `path`.
    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.send(&Method::GET, path, None::<&()>)
    }

    /// Something that is done with a job, answered with the job.
    fn of_job(
        &self,
        method: &Method,
        name: &str,
        rest: &str,
        body: Option<&impl Serialize>,
    ) -> Result<JobState, ClientError> {
        let path = format!("/v1/jobs/{}{rest}", segment(name));
        self.send(method, &path, body).map_err(|error| about(error, name))
    }

    /// Why a request went wrong, without the words of the library around it.
    fn said(&self, error: &ureq::Error) -> String {
        match (error, &self.endpoint) {
            (error, Endpoint::StateDir(_)) if is_absent(error) => {
                "none is at work in this state directory".into()
            }
            (ureq::Error::Io(error), Endpoint::StateDir(_))
                if error.kind() == ErrorKind::ConnectionRefused =>
            {
                "the one that was here has died".into()
            }
            (ureq::Error::Io(error), _) if error.kind() == ErrorKind::ConnectionRefused => {
                "the connection is refused".into()
            }
            (error, _) => error.to_string(),
        }
    }

    /// A refusal in the words of the daemon.
    fn refused(&self, status: u16, bytes: &[u8]) -> ClientError {
        let Ok(ErrorBody { error, place, hint }) = serde_json::from_slice(bytes) else {
            return ClientError::NotADaemon { place: self.endpoint.to_string(), status };
        };
        let place = if status == 401 { self.endpoint.to_string() } else { place };
        ClientError::Refused { status, error: InputError::new(place, error).hint(hint) }
    }
}

/// Jobs of one answer.
#[derive(Debug, Deserialize)]
struct Page {
    jobs: Vec<JobState>,
    next: Option<String>,
}

/// The last decisions.
#[derive(Debug, Deserialize)]
struct Decisions {
    decisions: Vec<DecisionState>,
}

/// Something that may be worth asking again for.
trait Answered {
    /// Whether it is not «later».
    fn is_final(&self) -> bool;
}

impl Answered for (u16, Vec<u8>) {
    fn is_final(&self) -> bool {
        self.0 != 503
    }
}

impl Answered for Response<Body> {
    fn is_final(&self) -> bool {
        self.status() != 503
    }
}

/// The API speaks of paths; a caller has the name of a job.
fn about(error: ClientError, name: &str) -> ClientError {
    match error {
        ClientError::Refused { status: 404, error } => {
            ClientError::Refused { status: 404, error: InputError { place: name.into(), ..error } }
        }
        error => error,
    }
}

/// Reads a body that is not too long.
fn read(response: Response<Body>) -> Result<Vec<u8>, ureq::Error> {
    let mut bytes = Vec::new();
    response.into_body().into_reader().take(BODY_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether there is nothing that could answer: no daemon has been there, or it ended as it should.
fn is_absent(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Io(error) if error.kind() == ErrorKind::NotFound)
}

/// A name as a part of a path: any bytes, whatever they mean there.
fn segment(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_within_its_part_of_the_path() {
        assert_eq!(segment("digits-1.x"), "digits-1.x");
        assert_eq!(segment("../a b?é"), "..%2Fa%20b%3F%C3%A9");
    }
}
