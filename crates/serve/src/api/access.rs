//! Who may ask what.

/// Who may ask something; who may ask more may also ask less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    /// Every client that reaches the server.
    Everybody,
    /// Who knows the token for metrics.
    Scraper,
    /// A browser with a session.
    Session,
    /// Who comes by the socket, or knows the token.
    Owner,
}
