//! How connections notice that their peer is gone.
//!
//! Without this, what is sent into a link that swallows it is sent again for a quarter of an hour, and who only listens
//! waits for ever. It is the last resort: whether a run gets on is watched by its coordinator, which is much quicker.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Rest after which a connection asks whether the other end is there, and the time between two such questions.
const QUESTION: Duration = Duration::from_secs(5);

/// How long what was sent may stay without an answer, and a question too, where the peer always reads.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The same between workers whose computing times are not known yet.
pub(crate) const UNKNOWN_PATIENCE: Duration = Duration::from_secs(600);

/// How many times as long as the longest step a peer may let everything wait.
const STEPS: u32 = 10;

/// Sets how long the other end may be silent.
///
/// The system also counts the time in which the other end is there and reads nothing. Workers read nothing while they
/// compute: theirs is a matter of how long that takes.
pub(crate) fn limit_silence(stream: &impl AsFd, patience: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(QUESTION).with_interval(QUESTION))?;
    socket.set_tcp_user_timeout(Some(patience))
}

/// How long a worker whose longest step took `step` may let its peers wait.
pub(crate) fn of_steps(step: Duration) -> Duration {
    PATIENCE.max(STEPS * step)
}
