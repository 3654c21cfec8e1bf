//! One question over HTTP to a metadata server, with limits on everything that it may send or delay.

use std::io::Read;
use std::time::Duration;

use bellwether_core::ParseError;
use ureq::http::{Response, Uri};
use ureq::{Agent, Body};

use super::NoticeError;

/// A metadata server is on the same machine or next to it.
const CONNECT: Duration = Duration::from_secs(1);

/// Time for a whole answer, beyond what the server was asked to wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// More bytes of headers, or of a body, than any answer of a metadata server has.
const LIMIT: usize = 16 << 10;

/// Asks a metadata server.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    base: String,
}

/// What a metadata server said.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) body: Vec<u8>,
}

/// Checks an address that a user gave: `http://HOST[:PORT][/PATH]`; gives it without a slash at its end.
pub(super) fn base(url: &str) -> Result<String, ParseError> {
    let wrong = |expected: &str| ParseError::new("address", url, expected);
    let uri: Uri = url.parse().map_err(|_| wrong("http://HOST:PORT"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(wrong("http://HOST:PORT, as metadata servers do not speak TLS")),
        _ => return Err(wrong("http://HOST:PORT")),
    }
    let plain = uri.authority().is_some_and(|a| !a.host().is_empty() && !a.as_str().contains('@'));
    if !plain || uri.query().is_some() || url.contains('#') {
        return Err(wrong("http://HOST:PORT without a user, a query or a fragment"));
    }
    Ok(url.trim_end_matches('/').into())
}

impl Client {
    pub(super) fn new(base: String) -> Client {
        let config = Agent::config_builder()
            // A proxy of the environment would answer for its own machine.
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .max_response_header_size(LIMIT)
            .input_buffer_size(LIMIT)
            .output_buffer_size(LIMIT)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(PATIENCE))
            .user_agent(concat!("bellwether/", env!("CARGO_PKG_VERSION")))
            .build();
        Client { agent: config.new_agent(), base }
    }

    /// An answer that is not as documented.
    pub(super) fn garbled(&self, what: impl Into<String>) -> NoticeError {
        NoticeError::Garbled { url: self.base.clone(), what: what.into() }
    }

    /// Asks for `path`, whose answer the server may hold back for `wait`.
    pub(super) fn get(
        &self,
        path: &str,
        header: (&str, &str),
        wait: Duration,
    ) -> Result<Answer, NoticeError> {
        let request = self.agent.get(format!("{}{path}", self.base)).header(header.0, header.1);
        self.answer(request.config().timeout_global(Some(wait + PATIENCE)).build().call())
    }

    /// Puts nothing at `path`.
    pub(super) fn put(&self, path: &str, header: (&str, &str)) -> Result<Answer, NoticeError> {
        self.answer(self.agent.put(format!("{}{path}", self.base)).header(header.0, header.1).send_empty())
    }

    fn answer(&self, response: Result<Response<Body>, ureq::Error>) -> Result<Answer, NoticeError> {
        let unreachable = |why: String| NoticeError::Unreachable { url: self.base.clone(), why };
        let response = response.map_err(|error| unreachable(error.to_string()))?;
        let (parts, body) = response.into_parts();
        let etag = parts.headers.get("etag").and_then(|value| value.to_str().ok()).map(String::from);
        let mut bytes = Vec::new();
        // One byte more than fits tells an answer that is too long.
        let read = body.into_reader().take(LIMIT as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| unreachable(error.to_string()))?;
        if bytes.len() > LIMIT {
            return Err(self.garbled(format!("more than {LIMIT} bytes")));
        }
        Ok(Answer { status: parts.status.as_u16(), etag, body: bytes })
    }
}
