//! The file that a client elsewhere needs: where the daemon is, how to know it, and what to tell it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The content of `connection.json`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Address of the daemon, as clients write it.
    pub url: String,
    /// Of its certificate, as [`Fingerprint`](crate::tls::Fingerprint) writes it; `None` where a proxy encrypts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The token, as 64 hexadecimal digits.
    pub token: String,
}

impl fmt::Debug for Connection {
    /// Never shows the token: it would end in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.url)
    }
}
