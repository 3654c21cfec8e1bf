//! The gate that every request passes first: the name under which it reached this server, and who sent it.
//!
//! The owner comes by the Unix socket, and needs no secret. On a port the token makes one the owner, but only where it
//! cannot be overheard; where it could be, because nothing is encrypted there, only what is worthless to others counts:
//! the session of a browser, and the token for metrics.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::{Extensions, HeaderMap, Request, StatusCode, header};

use super::access::{Access, Caller};
use super::failure::{Failure, echo};
use super::listener::Door;
use super::places::Place;
use super::sessions::Sessions;
use super::users::Users;
use crate::secret::Secret;

/// The name of this server at its Unix socket. A port that is forwarded there lets browsers in, which say another name.
const SOCKET_HOST: &str = "localhost";

/// What the token for metrics is derived for.
const METRICS: &str = "bellwether serve token for metrics";

/// Whom it lets in.
pub(super) struct Gate {
    /// Of the token; hashes are compared in a time that does not depend on where they differ.
    owner: blake3::Hash,
    /// Of the token for metrics.
    scraper: blake3::Hash,
    pub(super) sessions: Arc<Sessions>,
    pub(super) users: Arc<Users>,
    /// Names of this server on the web, in small letters; `None` where it may have any.
    hosts: Option<Vec<String>>,
    /// How things are changed here, where clients cannot do it.
    changed_by: Option<String>,
}

/// The token that opens the metrics and nothing else: it follows from the daemon's, and the daemon's not from it.
pub fn metrics_token(token: &Secret) -> String {
    token.derive(METRICS).to_text()
}

impl Gate {
    /// For a server at `address`, which may have any name where `is_secure`: what it is called there, clients know
    /// better.
    pub(super) fn new(
        token: &Secret,
        (sessions, users): (Arc<Sessions>, Arc<Users>),
        address: SocketAddr,
        is_secure: bool,
    ) -> Gate {
        let port = address.port();
        let names = ["localhost", "127.0.0.1", "[::1]"];
        let with_port = |name: &str| {
            let bare = (port == 80).then(|| name.to_owned());
            bare.into_iter().chain([format!("{name}:{port}")])
        };
        let mut hosts: Vec<String> = names.iter().flat_map(|name| with_port(name)).collect();
        hosts.push(address.to_string());
        Gate {
            owner: blake3::hash(token.to_text().as_bytes()),
            scraper: blake3::hash(metrics_token(token).as_bytes()),
            sessions,
            users,
            hosts: (address.ip().is_loopback() && !is_secure).then_some(hosts),
            changed_by: None,
        }
    }

    /// The same where others say what trains; see [`ApiOptions::changed_by`](super::ApiOptions::changed_by).
    pub(super) fn changed_by(mut self, others: Option<String>) -> Gate {
        self.changed_by = others;
        self
    }

    /// Who sends this, if they may ask what needs `access`.
    pub(super) fn check(
        &self,
        access: Access,
        extensions: &Extensions,
        headers: &HeaderMap,
    ) -> Result<Caller, Failure> {
        if access == Access::Everybody {
            return Ok(Caller::Anyone);
        }
        let door = extensions.get().copied().unwrap_or(Door::Plain);
        let known = match door {
            Door::Socket => Caller::Owner,
            Door::Plain | Door::Secure => {
                self.known(door, bearer(headers)).map_err(|what| unauthorized(door, what))?
            }
        };
        // A known client keeps its place at the door.
        if let Some(place) = extensions.get::<Arc<Place>>() {
            place.keep();
        }
        let changes = matches!(access, Access::Steer | Access::Operate | Access::Submit | Access::Own);
        if let Some(others) = self.changed_by.as_deref().filter(|_| changes) {
            return Err(forbidden("nothing can be changed here").hint(others));
        }
        if known.may(access) {
            return Ok(known);
        }
        let failure = match &known {
            Caller::Scraper => {
                forbidden("the token for metrics opens nothing else").hint("GET /metrics is what it is for")
            }
            Caller::Browser(_) if matches!(access, Access::Submit | Access::Enter | Access::Own) => {
                forbidden("a browser's session may not do this")
                    .hint("`bellwether submit` and `bellwether dashboard` come by the daemon's socket")
            }
            _ => forbidden(&format!("{} may not do this", known.words())).hint(match access {
                Access::Own => "the daemon's owner says who its users are",
                Access::Operate => "it needs the role `operate`",
                _ => "it needs the role `submit`; `bellwether users` lists who has which",
            }),
        };
        Err(failure)
    }

    /// Who brings this.
    fn known(&self, door: Door, bearer: Option<&[u8]>) -> Result<Caller, &'static str> {
        let hash = blake3::hash(bearer.ok_or("no token was sent")?);
        let (owns, user) = (hash == self.owner, self.users.of_token(&hash));
        if (owns || user.is_some()) && door == Door::Plain {
            return Err("the token is not taken where it could be overheard");
        }
        match (owns, user, self.sessions.whose(&hash), hash == self.scraper) {
            (true, ..) => Ok(Caller::Owner),
            (_, Some(user), ..) => Ok(Caller::User(user)),
            (.., Some(None), _) => Ok(Caller::Browser(None)),
            (.., Some(Some(name)), _) => {
                let user =
                    self.users.named(&name).ok_or("the user whose session this was is not there any more")?;
                Ok(Caller::Browser(Some(user)))
            }
            (.., true) => Ok(Caller::Scraper),
            _ if door == Door::Plain => Err("this is not a session of this daemon"),
            _ => Err("the token is not that of this daemon"),
        }
    }

    /// A page of another site can make a browser send requests to this machine, but under that site's name.
    pub(super) fn check_host<B>(&self, door: Door, request: &Request<B>) -> Result<(), Failure> {
        let socket_hosts = [SOCKET_HOST.to_owned()];
        let hosts = match (door, &self.hosts) {
            (Door::Socket, _) => &socket_hosts[..],
            (_, Some(hosts)) => hosts,
            (_, None) => return Ok(()),
        };
        let mut named = request.headers().get_all(header::HOST).iter();
        let named = named.next().filter(|_| named.next().is_none()).and_then(|host| host.to_str().ok());
        let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
        let host = authority.or(named).unwrap_or("");
        let known = |host: &str| hosts.iter().any(|known| known.eq_ignore_ascii_case(host));
        if known(host) && named.is_none_or(known) {
            return Ok(());
        }
        let what = format!("`{}` is not a name of this server", echo(host));
        let hint = format!("it answers as {}", hosts.join(" and "));
        Err(Failure::new(StatusCode::FORBIDDEN, "header `Host`", what).hint(hint))
    }
}

fn unauthorized(door: Door, what: &str) -> Failure {
    let hint = match door {
        Door::Plain => {
            "`bellwether dashboard` prints an address that opens a session; programs of this machine come by the socket \
             `.serve/socket` of the daemon's state directory, without a token"
        }
        _ => {
            "send `Authorization: Bearer TOKEN`; the token lies in the file `.serve/token` of the daemon's state directory"
        }
    };
    Failure::new(StatusCode::UNAUTHORIZED, "header `Authorization`", what).hint(hint)
}

fn forbidden(what: &str) -> Failure {
    Failure::new(StatusCode::FORBIDDEN, "header `Authorization`", what)
}

/// The token of exactly one bearer authorization.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let value = all.next().filter(|_| all.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
