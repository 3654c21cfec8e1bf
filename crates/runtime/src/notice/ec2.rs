//! Amazon EC2: the item `spot/instance-action` of the instance metadata service, version 2.
//!
//! The item is there (`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`) about two minutes before a spot
//! server is terminated or stopped, and absent (404) before. A hibernation begins with its notice. Every
//! question needs a token, which the service gives for some hours and refuses afterwards (401).

use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::http::{Answer, Client};
use super::{Notice, NoticeError, Notices};

/// Where the instance metadata service is.
pub(super) const ADDRESS: &str = "http://169.254.169.254";

/// The longest life of a token that the service grants.
const LIFETIME: (&str, &str) = ("X-aws-ec2-metadata-token-ttl-seconds", "21600");

/// Longer than any token; what is longer is none.
const LONGEST_TOKEN: usize = 1024;

/// Asks the instance metadata service of Amazon EC2.
#[derive(Debug)]
pub struct Ec2 {
    client: Client,
    token: Option<String>,
}

impl Ec2 {
    /// A client of the service at `base`.
    pub fn new(base: String) -> Ec2 {
        Ec2 { client: Client::new(base), token: None }
    }

    /// Asks with the token that we have, or a new one.
    fn ask(&mut self) -> Result<Answer, NoticeError> {
        let token = match self.token.take() {
            Some(token) => token,
            None => self.fetch_token()?,
        };
        let header = ("X-aws-ec2-metadata-token", token.as_str());
        let answer = self.client.get("/latest/meta-data/spot/instance-action", header, Duration::ZERO)?;
        self.token = (answer.status != 401).then_some(token);
        Ok(answer)
    }

    fn fetch_token(&self) -> Result<String, NoticeError> {
        let answer = self.client.put("/latest/api/token", LIFETIME)?;
        if answer.status != 200 {
            return Err(self.client.garbled(format!("status {} instead of a token", answer.status)));
        }
        let token = answer.body.trim_ascii();
        if !(1..=LONGEST_TOKEN).contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
            return Err(self.client.garbled("something that is not a token"));
        }
        Ok(token.iter().copied().map(char::from).collect())
    }
}

impl Notices for Ec2 {
    fn poll(&mut self) -> Result<Option<Notice>, NoticeError> {
        let mut answer = self.ask()?;
        if answer.status == 401 {
            // The token has expired, and is forgotten.
            answer = self.ask()?;
        }
        match answer.status {
            404 => Ok(None),
            200 => {
                let action = action(&answer.body).map_err(|what| self.client.garbled(what))?;
                Ok(Some(action.notice(SystemTime::now())))
            }
            status => Err(self.client.garbled(format!("status {status}"))),
        }
    }
}

/// What EC2 will do with the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// `terminate`, `stop` or `hibernate`.
    pub verb: &'static str,
    /// When, if that can be read.
    pub at: Option<SystemTime>,
}

impl Action {
    /// The notice that this is at the time `now`.
    pub fn notice(&self, now: SystemTime) -> Notice {
        let left = |at: SystemTime| at.duration_since(now).unwrap_or_default().as_secs_f64();
        Notice { within_s: self.at.map(left), what: format!("EC2 will {} this server", self.verb) }
    }
}

/// Reads the item `instance-action`.
///
/// A time that cannot be read is ignored: the server goes all the same.
///
/// # Errors
///
/// Returns what is wrong if the body is not a JSON object with one of the three actions.
///
/// ```
/// use bellwether_runtime::notice::ec2::action;
/// let action = action(br#"{"action": "stop", "time": "2017-09-18T08:22:00Z"}"#).unwrap();
/// assert_eq!((action.verb, action.at.is_some()), ("stop", true));
/// ```
pub fn action(body: &[u8]) -> Result<Action, String> {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow)]
        action: std::borrow::Cow<'a, str>,
        time: Option<serde_json::Value>,
    }
    let item: Item = serde_json::from_slice(body).map_err(|_| "something that is not an instance action")?;
    let known = ["terminate", "stop", "hibernate"].into_iter().find(|verb| *verb == item.action);
    let verb = known.ok_or("an instance action that is none of terminate, stop and hibernate")?;
    let time = item.time.as_ref().and_then(|time| time.as_str());
    Ok(Action { verb, at: time.and_then(|time| humantime::parse_rfc3339(time).ok()) })
}
