//! A daemon and how to reach it: found, asked over HTTP, and asked again while it is being restarted.
//!
//! A daemon of this machine is asked over its Unix socket: what is sent there reaches nobody else, also after its death.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_serve::daemon::socket_file;
use bellwether_serve::snapshot::{ErrorBody, JobState};
use bellwether_serve::tls::distrust;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::request::Builder;
use ureq::http::{Method, Request, Response};
use ureq::{Agent, Body};

use super::args::DaemonArguments;
use super::events::Events;
use super::place::Place;
use super::socket;
use crate::failure::Failure;
use crate::printer::Printer;

/// How long a daemon that does not answer may be on its way back.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for verbs that can do without one.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// Time after which a user hears what is waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Time without a byte of a stream; the daemon sends some every 15 s.
const STREAM_SILENCE: Duration = Duration::from_secs(45);

/// More bytes than any answer has.
const BODY_BYTES: u64 = 64 << 20;

/// A daemon, which may not live at the moment.
#[derive(Debug)]
pub(crate) struct Daemon {
    place: Place,
    agent: Agent,
    patience: Duration,
    printer: Printer,
}

/// Why there is no answer that helps.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No daemon answered.
    Silent(InputError),
    /// A daemon said no, with this status.
    Refused(u16, InputError),
    /// What was heard is no answer of a daemon.
    Strange(InputError),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Silent(error) | Trouble::Refused(_, error) | Trouble::Strange(error) => error.into(),
        }
    }
}

impl Daemon {
    /// The daemon that the user means.
    pub(super) fn find(arguments: &DaemonArguments, printer: &Printer) -> Result<Daemon, Failure> {
        let place = Place::find(arguments)?;
        let agent = place.agent();
        Ok(Daemon { place, agent, patience: PATIENCE, printer: *printer })
    }

    /// The daemon that a verb can do without, if there are signs of one.
    pub(super) fn look(arguments: &DaemonArguments, printer: &Printer) -> Result<Option<Daemon>, Failure> {
        let mut daemon = Daemon::find(arguments, printer)?;
        if let Place::State(folder) = &daemon.place {
            if !socket_file(folder).exists() {
                return Ok(None);
            }
            daemon.patience = SHORT_PATIENCE;
        }
        Ok(Some(daemon))
    }

    /// Whether it was named by its address, so that no state directory here is its own.
    pub(super) fn is_remote(&self) -> bool {
        !matches!(self.place, Place::State(_))
    }

    /// Its address, where it was named by one.
    pub(super) fn url(&self) -> Option<&str> {
        match &self.place {
            Place::Address { url, .. } => Some(url),
            _ => None,
        }
    }

    /// The same, and how long one may wait for it to come back.
    pub(super) fn patient(self, patience: Duration) -> Daemon {
        Daemon { patience, ..self }
    }

    /// A request to it.
    fn request(&self, method: &Method, path: &str) -> Builder {
        let request = Request::builder().method(method);
        match &self.place {
            Place::Address { url, bearer, .. } => {
                request.uri(format!("{url}{path}")).header("Authorization", &bearer.0)
            }
            _ => request.uri(format!("{}{path}", socket::URL)),
        }
    }

    /// The name of the place, for people.
    fn place(&self) -> String {
        match &self.place {
            Place::Address { url, .. } => url.clone(),
            Place::State(path) | Place::Socket(path) => path.display().to_string(),
        }
    }

    fn silent(&self, why: &str) -> Trouble {
        let error = InputError::new(self.place(), format!("no daemon answers: {why}"));
        Trouble::Silent(error.hint(
            "start one with `bellwether serve --policy srtf --slots 4`; --state-dir or --server says where to look",
        ))
    }

    /// Asks, and asks again while the daemon may be on its way back. Whatever is asked may be asked twice.
    fn ask(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<(u16, Vec<u8>), Trouble> {
        self.retry(|| {
            let mut request = self.request(method, path).header("Accept", "application/json");
            if body.is_some() {
                request = request.header("Content-Type", "application/json");
            }
            let sent = if *method == Method::GET {
                self.agent.run(request.body(())?)
            } else {
                let text = body.map(Value::to_string).unwrap_or_default();
                self.agent.run(request.body(text.into_bytes())?)
            };
            let response = sent?;
            Ok((response.status().as_u16(), read(response)?))
        })
    }

    /// Tries until there is an answer that is not «later», or patience is at its end.
    fn retry<T: Answered>(&self, attempt: impl Fn() -> Result<T, ureq::Error>) -> Result<T, Trouble> {
        let (began, mut told) = (Instant::now(), false);
        loop {
            let answer = attempt();
            if let Err(ureq::Error::Io(error)) = &answer
                && let Some(why) = distrust(error)
            {
                return Err(self.distrusted(why));
            }
            let is_gone = answer.as_ref().is_err_and(is_absent) && began.elapsed() < PAUSE;
            let answer = answer.map_err(|error| self.said(&error));
            let is_last = began.elapsed() >= self.patience;
            let why = match answer {
                Ok(answer) if answer.is_final() || is_last => return Ok(answer),
                Ok(_) => "it is busy or about to end".to_owned(),
                // Where none has been there is none to wait for.
                Err(why) if is_gone || is_last => return Err(self.silent(&why)),
                Err(why) => why,
            };
            if !told && began.elapsed() >= SILENCE {
                told = true;
                let seconds = self.patience.as_secs();
                self.printer.note(format_args!(
                    "no daemon answers at {} ({why}); it may be on its way back, waiting up to {seconds} s",
                    self.place()
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// The answer to a question, read as JSON.
    pub(crate) fn send<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Trouble> {
        let (status, bytes) = self.ask(method, path, body)?;
        if !(200..300).contains(&status) {
            return Err(self.refused(status, &bytes));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            let what = format!("what answers is no daemon of this version: {error}");
            Trouble::Strange(
                InputError::new(self.place(), what).hint("compare `bellwether --version` on both sides"),
            )
        })
    }

    /// What is to be read at `path`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        self.send(&Method::GET, path, None)
    }

    /// Something that is done with a job, answered with the job.
    pub(super) fn of_job(
        &self,
        method: &Method,
        name: &str,
        rest: &str,
        body: Option<&Value>,
    ) -> Result<JobState, Trouble> {
        let path = format!("/v1/jobs/{}{rest}", segment(name));
        self.send(method, &path, body).map_err(|trouble| about(trouble, name))
    }

    /// A job.
    pub(super) fn job(&self, name: &str) -> Result<JobState, Trouble> {
        self.of_job(&Method::GET, name, "", None)
    }

    /// All jobs, in the order of submission.
    pub(crate) fn jobs(&self, state: Option<&str>) -> Result<Vec<JobState>, Trouble> {
        let (mut jobs, mut after) = (Vec::new(), None::<String>);
        let state = state.map_or(String::new(), |state| format!("&state={state}"));
        loop {
            let from = after.map_or(String::new(), |name| format!("&after={}", segment(&name)));
            let page: Page = self.get(&format!("/v1/jobs?limit=1000{state}{from}"))?;
            jobs.extend(page.jobs);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(jobs),
            }
        }
    }

    /// A stream of events about a job.
    pub(super) fn events(&self, name: &str, rest: &str) -> Result<Events, Trouble> {
        let response = self.retry(|| {
            let path = format!("/v1/jobs/{}{rest}", segment(name));
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

    /// Whoever answers is not the daemon, and was told nothing.
    fn distrusted(&self, why: String) -> Trouble {
        let hint = "if the daemon has another certificate now, copy `.serve/connection.json` of its state directory anew; if not, somebody else answers in its place, and has been told nothing";
        Trouble::Strange(InputError::new(self.place(), why).hint(hint))
    }

    /// Why a request went wrong, without the words of the library around it.
    fn said(&self, error: &ureq::Error) -> String {
        match (error, &self.place) {
            (error, Place::State(_)) if is_absent(error) => "none is at work in this state directory".into(),
            (ureq::Error::Io(error), Place::State(_)) if error.kind() == ErrorKind::ConnectionRefused => {
                "the one that was here has died".into()
            }
            (ureq::Error::Io(error), _) if error.kind() == ErrorKind::ConnectionRefused => {
                "the connection is refused".into()
            }
            (error, _) => error.to_string(),
        }
    }

    /// A refusal in the words of the daemon.
    fn refused(&self, status: u16, bytes: &[u8]) -> Trouble {
        let Ok(ErrorBody { error, place, hint }) = serde_json::from_slice(bytes) else {
            let what = format!("what answers with HTTP status {status} is no daemon");
            return Trouble::Strange(
                InputError::new(self.place(), what)
                    .hint("another program may have the port; --server names a daemon"),
            );
        };
        let place = if status == 401 { self.place() } else { place };
        Trouble::Refused(status, InputError::new(place, error).hint(hint))
    }
}

/// Jobs of one answer.
#[derive(Debug, Deserialize)]
struct Page {
    jobs: Vec<JobState>,
    next: Option<String>,
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

/// The API speaks of paths where a user of the command line has names and verbs.
fn about(trouble: Trouble, name: &str) -> Trouble {
    match trouble {
        Trouble::Refused(404, error) => {
            let hint = error.hint.replace("GET /v1/jobs lists all", "`bellwether jobs` lists all jobs");
            Trouble::Refused(404, InputError::new(name, error.what).hint(hint))
        }
        trouble => trouble,
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
pub(super) fn segment(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::at("the answer", error))
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
