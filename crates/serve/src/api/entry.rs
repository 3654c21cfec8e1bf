//! How a browser gets in: a known client asks for a code, and the page exchanges it for a session.

use std::io;
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body;
use super::call::{Call, json};
use super::failure::Failure;
use super::sessions::CODE_LIFE;

/// A code that opens one session of the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Code {
    /// Good for one session.
    pub code: String,
    /// How long it is good for.
    pub life_s: u64,
    /// Where the dashboard is, as this server knows it.
    pub url: String,
}

impl Code {
    /// The address that opens the dashboard at `url`. Browsers do not send what follows `#`.
    pub fn address(&self, url: &str) -> String {
        format!("{url}/#code={}", self.code)
    }
}

/// The code that a page was opened with.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    code: String,
}

/// What a page sends as `Authorization: Bearer SESSION` from now on.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Session {
    /// Known until the daemon ends, or 32 newer ones were in use since.
    session: String,
}

fn no_randomness(error: io::Error) -> Failure {
    Failure::unavailable(format!("the system has no randomness to give: {error}"))
}

pub(super) async fn code(call: Call) -> Result<Response, Failure> {
    let code = call
        .api
        .gate
        .sessions
        .code_for(call.caller.user().map(|user| user.name.clone()))
        .map_err(no_randomness)?;
    json(StatusCode::CREATED, &Code { code, life_s: CODE_LIFE.as_secs(), url: call.api.url.clone() })
}

pub(super) async fn session(call: Call) -> Result<Response, Failure> {
    let Exchange { code } = body::read(&call.body)?;
    let opened = call.api.gate.sessions.open(&code, Instant::now()).map_err(no_randomness)?;
    let session = opened.ok_or_else(|| {
        let what = "the code is none of this daemon's, too old, or used up";
        let failure = Failure::new(StatusCode::UNAUTHORIZED, "body, `code`", what);
        failure.hint("`bellwether dashboard` prints an address with a new one")
    })?;
    json(StatusCode::CREATED, &Session { session })
}
