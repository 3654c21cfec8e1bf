//! Why a daemon gave no answer that helps.

use bellwether_core::InputError;

/// A question to a daemon has no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// No daemon answered within the client's patience.
    #[error("{place}: no daemon answers: {why}")]
    Silent {
        /// Where it was looked for.
        place: String,
        /// What the last attempt met.
        why: String,
    },
    /// A daemon refused the request; status 404 if it does not know the job.
    #[error("{error}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The daemon's words.
        error: InputError,
    },
    /// Something answered that does not speak as a daemon does.
    #[error("{place}: what answers with HTTP status {status} is not a daemon")]
    NotADaemon {
        /// Where it answered.
        place: String,
        /// Its HTTP status.
        status: u16,
    },
    /// The answer does not have the form that this version expects.
    #[error("{place}: what answers is not a daemon of this version: {why}")]
    OtherVersion {
        /// Where it answered.
        place: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// The certificate is not the daemon's. The other end was told nothing.
    #[error("{place}: {why}")]
    Distrusted {
        /// Where it answered.
        place: String,
        /// What is wrong with the certificate.
        why: String,
    },
}

impl ClientError {
    /// The same with its place apart from its sentence; a refusal keeps the daemon's hint.
    pub fn located(&self) -> InputError {
        match self {
            ClientError::Refused { error, .. } => error.clone(),
            ClientError::Silent { place, .. }
            | ClientError::NotADaemon { place, .. }
            | ClientError::OtherVersion { place, .. }
            | ClientError::Distrusted { place, .. } => {
                let text = self.to_string();
                let what = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text);
                InputError::new(place, what)
            }
        }
    }
}
