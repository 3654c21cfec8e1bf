//! Google Compute Engine: the metadata server's flag `instance/preempted`.
//!
//! The flag turns from `FALSE` to `TRUE` when the preemption begins, about 30 s before the server is gone. The
//! server can be asked to answer only when the value is no longer the one whose tag is given, so a notice
//! arrives at once and not at the next question. It is asked to wait no longer than one interval: a connection
//! that died unnoticed then costs no more than plain polling would.

use std::time::Duration;

use super::http::Client;
use super::{Notice, NoticeError, Notices};

/// Where the metadata server is.
pub(super) const ADDRESS: &str = "http://metadata.google.internal";

const PATH: &str = "/computeMetadata/v1/instance/preempted";

/// Without it the server refuses: a page in a browser cannot send it.
const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");

/// Time that Compute Engine gives a server that it preempts.
const NOTICE_S: f64 = 30.0;

/// The server is asked to wait for whole seconds, at most this many.
const LONGEST_WAIT_S: u64 = 60;

/// Asks the metadata server of Google Compute Engine.
#[derive(Debug)]
pub struct Gce {
    client: Client,
    wait_s: u64,
    /// Names the value that was seen last.
    tag: Option<String>,
}

impl Gce {
    /// A client of the server at `base`, which is asked to wait for a change for about `interval`.
    pub fn new(base: String, interval: Duration) -> Gce {
        let wait_s = (interval.as_secs_f64().ceil() as u64).clamp(1, LONGEST_WAIT_S);
        Gce { client: Client::new(base), wait_s, tag: None }
    }
}

impl Notices for Gce {
    fn poll(&mut self) -> Result<Option<Notice>, NoticeError> {
        // After a fault the next question asks for the value as it is.
        let (path, wait) = match self.tag.take() {
            Some(tag) => (
                format!("{PATH}?wait_for_change=true&timeout_sec={}&last_etag={tag}", self.wait_s),
                Duration::from_secs(self.wait_s),
            ),
            None => (PATH.into(), Duration::ZERO),
        };
        let answer = self.client.get(&path, FLAVOR, wait)?;
        if answer.status != 200 {
            return Err(self.client.garbled(format!("status {}", answer.status)));
        }
        let preempted = preempted(&answer.body).map_err(|what| self.client.garbled(what))?;
        self.tag = answer.etag.filter(|tag| is_tag(tag));
        Ok(preempted
            .then(|| Notice { within_s: Some(NOTICE_S), what: "Compute Engine preempts this server".into() }))
    }
}

/// Whether it can stand in a query as it is.
fn is_tag(tag: &str) -> bool {
    (1..=64).contains(&tag.len()) && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

/// Reads the value of the flag.
///
/// # Errors
///
/// Returns what is wrong if the body is neither `TRUE` nor `FALSE`.
///
/// ```
/// use bellwether_runtime::notice::gce::preempted;
/// assert_eq!(preempted(b"TRUE\n"), Ok(true));
/// assert!(preempted(b"<html>").is_err());
/// ```
pub fn preempted(body: &[u8]) -> Result<bool, String> {
    match body.trim_ascii() {
        b"TRUE" => Ok(true),
        b"FALSE" => Ok(false),
        _ => Err("neither TRUE nor FALSE".into()),
    }
}
