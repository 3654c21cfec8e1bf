//! Where a daemon is: in a state directory of this machine, at a socket, or at an address, with the file that says how
//! to recognise it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether_core::InputError;
use bellwether_serve::connection::Connection;
use bellwether_serve::daemon::socket_file;
use bellwether_serve::secret::Secret;
use bellwether_serve::tls::Fingerprint;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;

use crate::{socket, tls};

/// Begins the name of a daemon that is named by its socket.
pub const UNIX: &str = "unix:";

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Time for a whole answer: the daemon may load a job's data before it accepts it.
const ANSWER: Duration = Duration::from_secs(120);

/// Where a daemon is looked for.
#[derive(Debug)]
pub enum Endpoint {
    /// At the socket of this state directory. What is sent there reaches no other process, also after its death.
    StateDir(PathBuf),
    /// At this socket.
    Socket(PathBuf),
    /// At an address.
    Address(Address),
}

/// A daemon's address, and how the two ends recognise each other.
#[derive(Debug)]
pub struct Address {
    /// Without a slash at its end.
    pub url: String,
    /// The header that shows the token.
    pub bearer: Bearer,
    /// Of the daemon's certificate; `None` if a proxy encrypts.
    pub fingerprint: Option<Fingerprint>,
}

/// The value of the header `Authorization`. It never ends in a log.
pub struct Bearer(pub(crate) String);

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Address(address) => f.write_str(&address.url),
            Endpoint::StateDir(path) | Endpoint::Socket(path) => path.display().fmt(f),
        }
    }
}

impl Endpoint {
    /// The daemon that wrote the connection file `file`, at the address `server` instead of the file's if one is
    /// given. With `plain_http`, the token may travel unencrypted: only if something else encrypts all the way.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or is not a connection file; an address that is malformed or would reveal the
    /// token. The places and hints of these errors name the options of the command line.
    pub fn from_connection_file(
        file: &Path,
        server: Option<&str>,
        plain_http: bool,
    ) -> Result<Endpoint, InputError> {
        let place = file.display().to_string();
        let wrong = |what: String| {
            let hint = "copy it again from `.serve/connection.json` of the daemon's state directory; `bellwether serve` writes it if it listens for clients elsewhere";
            InputError::new(&place, what).hint(hint)
        };
        let text = std::fs::read(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let connection: Connection = serde_json::from_slice(&text)
            .map_err(|error| wrong(format!("is not a connection file: {error}")))?;
        let token = Secret::parse(&connection.token).ok_or_else(|| wrong("its token is malformed".into()))?;
        let parse = |text: &String| {
            Fingerprint::parse(text).ok_or_else(|| wrong(format!("`{text}` is not a fingerprint")))
        };
        let fingerprint = connection.fingerprint.as_ref().map(parse).transpose()?;
        let (named, place) = match server {
            Some(url) => (url, "--server"),
            None => (connection.url.as_str(), &*place),
        };
        let (url, is_secure) = base(named, place, plain_http)?;
        let fingerprint = fingerprint.filter(|_| is_secure);
        if is_secure && fingerprint.is_none() {
            return Err(wrong("it has no fingerprint, so it says nothing of a certificate".into()));
        }
        let bearer = Bearer(format!("Bearer {}", token.to_text()));
        Ok(Endpoint::Address(Address { url, bearer, fingerprint }))
    }

    /// The HTTP client for it.
    pub(crate) fn agent(&self) -> Agent {
        match self {
            Endpoint::StateDir(folder) => socket::agent(config(), socket_file(folder)),
            Endpoint::Socket(path) => socket::agent(config(), path.clone()),
            Endpoint::Address(Address { fingerprint: Some(fingerprint), .. }) => {
                tls::agent(config(), *fingerprint)
            }
            Endpoint::Address(Address { fingerprint: None, .. }) => Agent::new_with_config(config()),
        }
    }
}

fn config() -> Config {
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
}

/// Checks the address of a daemon; gives it without a slash at its end, and whether it is one of HTTPS.
fn base(url: &str, place: &str, plain_http: bool) -> Result<(String, bool), InputError> {
    let wrong = |why: &str| {
        let hint = "write for example https://trainer:7070, or unix:/run/user/1000/trainer.socket, where `ssh -L` lets a daemon's socket appear";
        InputError::new(place, format!("`{url}` {why}")).hint(hint)
    };
    let uri: Uri = url.parse().map_err(|_| wrong("is not an address"))?;
    let is_secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") if plain_http => false,
        Some("http") => {
            let what = "would reveal the token to anyone who listens there or on the way";
            let hint = "use https://, or unix:PATH through `ssh -L PATH:…/.serve/socket HOST`; --plain-http says that somebody else encrypts all the way";
            return Err(wrong(what).hint(hint));
        }
        _ => return Err(wrong("is not an address")),
    };
    let plain = uri.authority().is_some_and(|a| !a.host().is_empty() && !a.as_str().contains('@'));
    if !plain || !matches!(uri.path(), "" | "/") || uri.query().is_some() || url.contains('#') {
        return Err(wrong("is more or less than an address"));
    }
    Ok((url.trim_end_matches('/').into(), is_secure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked() {
        let base = |url, plain_http| base(url, "--server", plain_http);
        assert_eq!(base("http://127.0.0.1:7070/", true).unwrap(), ("http://127.0.0.1:7070".into(), false));
        assert_eq!(base("https://[::1]:7070", false).unwrap(), ("https://[::1]:7070".into(), true));
        assert!(base("http://127.0.0.1:7070", false).unwrap_err().hint.contains("--plain-http"));
        for wrong in [
            "127.0.0.1:7070",
            "http://",
            "ftp://host:1",
            "https://a@b:1",
            "http://h:1/v1",
            "http://h:1?x",
            "",
        ] {
            let error = base(wrong, true).unwrap_err();
            assert_eq!((error.place.as_str(), error.hint.contains("unix:/")), ("--server", true), "{wrong}");
        }
    }
}
