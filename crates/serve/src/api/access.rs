//! Who may ask what.

/// Who may ask something; a client that may ask more may also ask less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    /// Every client that reaches the server.
    Everybody,
    /// Clients that know the token for metrics.
    Scraper,
    /// A browser with a session.
    Session,
    /// Clients that come by the socket, or know the token.
    Owner,
}
