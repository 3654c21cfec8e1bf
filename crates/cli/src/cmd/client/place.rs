//! Where a daemon is: in a state directory of this machine, at a socket, or at an address, with the file that says how to
//! know it.

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

use super::args::DaemonArguments;
use super::{socket, tls};
use crate::failure::Failure;
use crate::runs::StateDir;

/// Begins the name of a daemon that is named by its socket.
const UNIX: &str = "unix:";

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(2);

/// Time for a whole answer: the daemon may load a job's data before it accepts it.
const ANSWER: Duration = Duration::from_secs(120);

/// Where a daemon is looked for.
#[derive(Debug)]
pub(super) enum Place {
    /// At the socket of this state directory.
    State(PathBuf),
    /// At this socket.
    Socket(PathBuf),
    /// At this address, without a slash at its end.
    Address {
        url: String,
        /// The header that shows the token.
        bearer: Bearer,
        /// Of its certificate; none where somebody else encrypts.
        fingerprint: Option<Fingerprint>,
    },
}

/// A header that ends in no log.
pub(super) struct Bearer(pub(super) String);

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bearer(…)")
    }
}

impl Place {
    /// The place that the user means.
    pub(super) fn find(arguments: &DaemonArguments) -> Result<Place, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let here = arguments.state.state_dir.is_some();
        let variable = |name: &str| variable(name).filter(|_| !here);
        let server = arguments.server.clone().or_else(|| variable("BELLWETHER_SERVER"));
        let file = arguments.connection.clone();
        let file = file.or_else(|| variable("BELLWETHER_CONNECTION").map(PathBuf::from));
        match (server, file) {
            (Some(path), _) if path.starts_with(UNIX) => Ok(Place::Socket(path[UNIX.len()..].into())),
            (server, Some(file)) => Ok(address(server, &file, arguments.plain_http)?),
            (Some(url), None) => {
                let error =
                    InputError::new("--connection", format!("nothing tells how to know the daemon at {url}"));
                let hint = "copy the file `.serve/connection.json` of its state directory, and name it here or in BELLWETHER_CONNECTION";
                Err(error.hint(hint).into())
            }
            (None, None) => {
                let state = StateDir::find(arguments.state.state_dir.clone())?;
                Ok(Place::State(state.path().into()))
            }
        }
    }

    /// Who asks there.
    pub(super) fn agent(&self) -> Agent {
        match self {
            Place::State(folder) => socket::agent(config(), socket_file(folder)),
            Place::Socket(path) => socket::agent(config(), path.clone()),
            Place::Address { fingerprint: Some(fingerprint), .. } => tls::agent(config(), *fingerprint),
            Place::Address { fingerprint: None, .. } => Agent::new_with_config(config()),
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

/// The daemon that a file tells of, at another address if one is given.
fn address(server: Option<String>, file: &Path, plain_http: bool) -> Result<Place, InputError> {
    let place = file.display().to_string();
    let wrong = |what: String| {
        let hint = "copy it anew from `.serve/connection.json` of the daemon's state directory; `bellwether serve` writes it where it listens for clients elsewhere";
        InputError::new(&place, what).hint(hint)
    };
    let text = std::fs::read(file).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let connection: Connection =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("is no connection file: {error}")))?;
    let token = Secret::parse(&connection.token).ok_or_else(|| wrong("its token is none".into()))?;
    let parse =
        |text: &String| Fingerprint::parse(text).ok_or_else(|| wrong(format!("`{text}` is no fingerprint")));
    let fingerprint = connection.fingerprint.as_ref().map(parse).transpose()?;
    let (named, place) = match &server {
        Some(url) => (url, "--server"),
        None => (&connection.url, &*place),
    };
    let (url, is_secure) = base(named, place, plain_http)?;
    let fingerprint = fingerprint.filter(|_| is_secure);
    if is_secure && fingerprint.is_none() {
        return Err(wrong("it has no fingerprint, so it says nothing of a certificate".into()));
    }
    Ok(Place::Address { url, bearer: Bearer(format!("Bearer {}", token.to_text())), fingerprint })
}

/// Checks the address of a daemon; gives it without a slash at its end, and whether it is one of HTTPS.
fn base(url: &str, place: &str, plain_http: bool) -> Result<(String, bool), InputError> {
    let wrong = |why: &str| {
        let hint = "write for example https://trainer:7070, or unix:/run/user/1000/trainer.socket, where `ssh -L` lets a daemon's socket appear";
        InputError::new(place, format!("`{url}` {why}")).hint(hint)
    };
    let uri: Uri = url.parse().map_err(|_| wrong("is no address"))?;
    let is_secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") if plain_http => false,
        Some("http") => {
            let what = "would tell the token to whoever listens there or on the way";
            let hint = "use https://, or unix:PATH through `ssh -L PATH:…/.serve/socket HOST`; --plain-http says that somebody else encrypts all the way";
            return Err(wrong(what).hint(hint));
        }
        _ => return Err(wrong("is no address")),
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
