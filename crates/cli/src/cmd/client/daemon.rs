//! A daemon and how to reach it: found, asked over HTTP, and asked again while it is being restarted.

use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_serve::daemon::{endpoint, token_file};
use bellwether_serve::snapshot::{ErrorBody, JobState};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::{Method, Request, Response, Uri};
use ureq::{Agent, Body};

use super::DaemonArguments;
use super::events::Events;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::runs::{StateDir, read_token};

/// How long a daemon that does not answer may be on its way back.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for verbs that can do without one.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);

/// Time after which a user hears what is waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Time for a whole answer: the daemon may load a job's data before it accepts it.
const ANSWER: Duration = Duration::from_secs(120);

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

/// Where a daemon is looked for.
#[derive(Debug)]
enum Place {
    /// Where the files of this state directory say, at each attempt anew: a daemon that comes back may have another port.
    State(PathBuf),
    /// Always here.
    Address { url: String, bearer: String },
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
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let from_environment =
            || variable("BELLWETHER_SERVER").filter(|_| arguments.state.state_dir.is_none());
        let place = match arguments.server.clone().or_else(from_environment) {
            Some(url) => {
                let file = arguments.token_file.clone();
                let file = file.or_else(|| variable("BELLWETHER_TOKEN_FILE").map(PathBuf::from));
                let file = file.ok_or_else(|| {
                    InputError::new("--token-file", format!("the daemon at {url} wants its token"))
                        .hint("copy the file `.serve/token` of its state directory, and name it here or in BELLWETHER_TOKEN_FILE")
                })?;
                Place::Address { url: base(&url)?, bearer: bearer(&file)? }
            }
            None if arguments.token_file.is_some() => {
                let error =
                    InputError::new("--token-file", "a token is of use only for a daemon that is named");
                return Err(error.hint("name it with --server http://HOST:PORT").into());
            }
            None => Place::State(StateDir::find(arguments.state.state_dir.clone())?.path().into()),
        };
        Ok(Daemon { place, agent: agent(), patience: PATIENCE, printer: *printer })
    }

    /// The daemon of a state directory.
    pub(crate) fn of_state(folder: PathBuf, printer: &Printer) -> Daemon {
        Daemon { place: Place::State(folder), agent: agent(), patience: PATIENCE, printer: *printer }
    }

    /// The daemon that a verb can do without, if there are signs of one.
    pub(super) fn look(arguments: &DaemonArguments, printer: &Printer) -> Result<Option<Daemon>, Failure> {
        let mut daemon = Daemon::find(arguments, printer)?;
        if let Place::State(folder) = &daemon.place {
            if endpoint(folder).is_none() {
                return Ok(None);
            }
            daemon.patience = SHORT_PATIENCE;
        }
        Ok(Some(daemon))
    }

    /// Whether it was named by its address, so that no state directory here is its own.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.place, Place::Address { .. })
    }

    /// The same, and how long one may wait for it to come back.
    pub(super) fn patient(self, patience: Duration) -> Daemon {
        Daemon { patience, ..self }
    }

    /// Its address and the authorization that it wants, or why there are none.
    fn reach(&self) -> Result<(String, String), String> {
        match &self.place {
            Place::Address { url, bearer } => Ok((url.clone(), bearer.clone())),
            Place::State(folder) => {
                let endpoint = endpoint(folder).ok_or("none is at work in this state directory")?;
                Ok((endpoint.url, bearer(&token_file(folder)).map_err(|failure| failure.to_string())?))
            }
        }
    }

    /// The name of the place, for people.
    fn place(&self) -> String {
        match &self.place {
            Place::Address { url, .. } => url.clone(),
            Place::State(folder) => {
                endpoint(folder).map_or(folder.display().to_string(), |endpoint| endpoint.url)
            }
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
        self.retry(|url, bearer| {
            let mut request = Request::builder()
                .method(method)
                .uri(format!("{url}{path}"))
                .header("Authorization", bearer)
                .header("Accept", "application/json");
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
    fn retry<T: Answered>(
        &self,
        attempt: impl Fn(&str, &str) -> Result<T, ureq::Error>,
    ) -> Result<T, Trouble> {
        let (began, mut told) = (Instant::now(), false);
        loop {
            let reached = self.reach();
            let is_gone = reached.is_err() && began.elapsed() < PAUSE;
            let answer = reached.and_then(|(url, bearer)| attempt(&url, &bearer).map_err(|e| said(&e)));
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
        let response = self.retry(|url, bearer| {
            let request = self.agent.get(format!("{url}/v1/jobs/{}{rest}", segment(name)));
            let config = request.header("Authorization", bearer).config();
            config.timeout_global(None).timeout_per_read(Some(STREAM_SILENCE)).build().call()
        })?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(Events::new(response.into_body().into_reader()));
        }
        // What cannot be read of a refusal is left out of it.
        let bytes = read(response).unwrap_or_default();
        Err(about(self.refused(status, &bytes), name))
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
        Trouble::Refused(status, InputError { what: error, place, hint })
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
            Trouble::Refused(404, InputError { what: error.what, place: name.into(), hint })
        }
        trouble => trouble,
    }
}

fn agent() -> Agent {
    Agent::config_builder()
        // A proxy of the environment would answer for its own machine, and be told the token.
        .proxy(None)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_resolve(Some(CONNECT))
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(ANSWER))
        .user_agent(concat!("bellwether/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

/// Reads a body that is not too long.
fn read(response: Response<Body>) -> Result<Vec<u8>, ureq::Error> {
    let mut bytes = Vec::new();
    response.into_body().into_reader().take(BODY_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Why a request went wrong, without the words of the library around it.
fn said(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "the connection is refused".into()
        }
        error => error.to_string(),
    }
}

/// Checks the address of a daemon; gives it without a slash at its end.
fn base(url: &str) -> Result<String, InputError> {
    let wrong = |why: &str| {
        InputError::new("--server", format!("`{url}` {why}")).hint("write for example http://127.0.0.1:7070")
    };
    let uri: Uri = url.parse().map_err(|_| wrong("is no address"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            let hint = "over a network that you do not trust, use `ssh -L PORT:127.0.0.1:PORT` and http://127.0.0.1:PORT";
            return Err(wrong("asks for TLS, which daemons do not speak").hint(hint));
        }
        _ => return Err(wrong("is no address")),
    }
    let plain = uri.authority().is_some_and(|a| !a.host().is_empty() && !a.as_str().contains('@'));
    if !plain || !matches!(uri.path(), "" | "/") || uri.query().is_some() || url.contains('#') {
        return Err(wrong("is more or less than an address"));
    }
    Ok(url.trim_end_matches('/').into())
}

/// The header that shows the token in a file.
fn bearer(file: &std::path::Path) -> Result<String, Failure> {
    let token = read_token(file).map_err(|failure| match failure {
        Failure::Input(error) => {
            error.hint("a daemon's token lies in the file `.serve/token` of its state directory").into()
        }
        failure => failure,
    })?;
    Ok(format!("Bearer {}", token.to_text()))
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
    fn an_address_is_checked() {
        assert_eq!(base("http://127.0.0.1:7070/").unwrap(), "http://127.0.0.1:7070");
        assert_eq!(base("http://[::1]:7070").unwrap(), "http://[::1]:7070");
        for wrong in [
            "127.0.0.1:7070",
            "http://",
            "https://host:1",
            "http://a@b:1",
            "http://h:1/v1",
            "http://h:1?x",
            "",
        ] {
            let error = base(wrong).unwrap_err();
            assert_eq!(
                (error.place.as_str(), error.hint.contains("http://127.0.0.1")),
                ("--server", true),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_name_stays_within_its_part_of_the_path() {
        assert_eq!(segment("digits-1.x"), "digits-1.x");
        assert_eq!(segment("../a b?é"), "..%2Fa%20b%3F%C3%A9");
    }
}
