//! The gate that every request passes first: the name under which it reached this server, and its token.

use std::net::SocketAddr;

use axum::http::{HeaderMap, Request, StatusCode, header};
use bellwether_runtime::control::Token;

use super::failure::{Failure, echo};

/// Whom it lets in.
pub(super) struct Gate {
    /// Of the token; hashes are compared in a time that does not depend on where they differ.
    hash: blake3::Hash,
    /// Names of this server, in small letters; `None` where it may have any.
    hosts: Option<Vec<String>>,
}

impl Gate {
    /// For a server at `address`.
    pub(super) fn new(token: &Token, address: SocketAddr) -> Gate {
        let port = address.port();
        let names = ["localhost", "127.0.0.1", "[::1]"];
        let with_port = |name: &str| {
            let bare = (port == 80).then(|| name.to_owned());
            bare.into_iter().chain([format!("{name}:{port}")])
        };
        let mut hosts: Vec<String> = names.iter().flat_map(|name| with_port(name)).collect();
        hosts.push(address.to_string());
        Gate {
            hash: blake3::hash(token.to_text().as_bytes()),
            hosts: address.ip().is_loopback().then_some(hosts),
        }
    }

    /// Whether whoever sent these headers knows the token.
    pub(super) fn check_token(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let unauthorized = |what: &str| {
            Failure::new(StatusCode::UNAUTHORIZED, "header `Authorization`", what)
                .hint("send `Authorization: Bearer TOKEN`; the token lies in the file `.serve/token` of the daemon's state directory")
        };
        let token = bearer(headers).ok_or_else(|| unauthorized("no token was sent"))?;
        if blake3::hash(token) == self.hash {
            return Ok(());
        }
        Err(unauthorized("the token is not that of this daemon"))
    }

    /// A page of another site can make a browser send requests to this machine, but under that site's name.
    pub(super) fn check_host<B>(&self, request: &Request<B>) -> Result<(), Failure> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
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

/// The token of exactly one bearer authorization.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let value = all.next().filter(|_| all.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}
