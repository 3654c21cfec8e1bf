//! Sessions of browsers: a one-time code buys one, and all end with the daemon's process.
//!
//! What crosses a port without encryption must be of no use to a process that binds that port later. So a browser never
//! has the token; it has a session, which no process knows any more when the daemon is dead. It sends the session in a
//! header and not in a cookie: cookies go to every port of a machine, also to those of its other users, and along with
//! requests of other sites.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::secret::Secret;

/// How long a code is good for: the way from a terminal into a browser.
pub(super) const CODE_LIFE: Duration = Duration::from_secs(120);

/// Codes that wait at a time; the oldest goes first.
const CODES: usize = 16;

/// Sessions at a time; the one that was used longest ago goes first.
const SESSIONS: usize = 32;

/// Hexadecimal digits of a code: 128 bits, which cannot be guessed in two minutes.
const CODE_DIGITS: usize = 32;

/// The sessions of one daemon. Hashes are compared, in a time that does not depend on where they differ.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<Known>);

/// The name of the user who asked for it; `None` for the owner.
type Whose = Option<String>;

#[derive(Debug, Default)]
struct Known {
    /// Oldest first, each with the end of its life.
    codes: VecDeque<(blake3::Hash, Instant, Whose)>,
    /// The last one was used last.
    sessions: VecDeque<(blake3::Hash, Whose)>,
}

fn push<T>(queue: &mut VecDeque<T>, room: usize, value: T) {
    if queue.len() >= room {
        queue.pop_front();
    }
    queue.push_back(value);
}

impl Sessions {
    /// A new code, which opens one session of the owner's, soon.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no randomness to give.
    pub fn code(&self) -> io::Result<String> {
        self.code_for(None)
    }

    /// The same for a user, by name.
    pub(super) fn code_for(&self, whose: Whose) -> io::Result<String> {
        self.code_at(Instant::now(), whose)
    }

    fn code_at(&self, now: Instant, whose: Whose) -> io::Result<String> {
        let mut code = Secret::random()?.to_text();
        code.truncate(CODE_DIGITS);
        let hash = blake3::hash(code.as_bytes());
        push(&mut self.known().codes, CODES, (hash, now + CODE_LIFE, whose));
        Ok(code)
    }

    /// The session that this code buys, if it is one; it is used up by that.
    pub(super) fn open(&self, code: &str, now: Instant) -> io::Result<Option<String>> {
        let hash = blake3::hash(code.as_bytes());
        let mut known = self.known();
        let Some(place) = known.codes.iter().position(|(code, ..)| *code == hash) else { return Ok(None) };
        let bought = known.codes.remove(place).filter(|(_, end, _)| now < *end);
        let Some((_, _, whose)) = bought else { return Ok(None) };
        let session = Secret::random()?.to_text();
        push(&mut known.sessions, SESSIONS, (blake3::hash(session.as_bytes()), whose));
        Ok(Some(session))
    }

    /// Whose session this is, if it is one.
    pub(super) fn whose(&self, hash: &blake3::Hash) -> Option<Whose> {
        let mut known = self.known();
        let place = known.sessions.iter().position(|(session, _)| session == hash)?;
        let used = known.sessions.remove(place)?;
        let whose = used.1.clone();
        known.sessions.push_back(used);
        Some(whose)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_opens_one_session_soon() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let code = sessions.code_at(now, None).unwrap();
        assert_eq!(code.len(), CODE_DIGITS);
        assert_eq!(sessions.open("", now).unwrap(), None);
        assert_eq!(sessions.open(&code[1..], now).unwrap(), None);
        let session = sessions.open(&code, now + CODE_LIFE / 2).unwrap().unwrap();
        assert_eq!(sessions.open(&code, now).unwrap(), None, "it is used up");
        assert_eq!(sessions.whose(&blake3::hash(session.as_bytes())), Some(None));
        assert!(
            sessions.whose(&blake3::hash(code.as_bytes())).is_none(),
            "a code does not serve as a session"
        );
        let late = sessions.code_at(now, None).unwrap();
        assert_eq!(sessions.open(&late, now + CODE_LIFE).unwrap(), None);
        assert_eq!(sessions.open(&late, now).unwrap(), None, "who came too late has used it up");
    }

    #[test]
    fn sessions_are_bounded_and_those_in_use_stay() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let open = || sessions.open(&sessions.code_at(now, None).unwrap(), now).unwrap().unwrap();
        let knows = |session: &String| sessions.whose(&blake3::hash(session.as_bytes())).is_some();
        let (used, forgotten) = (open(), open());
        for _ in 0..SESSIONS {
            open();
            assert!(knows(&used));
        }
        assert!(!knows(&forgotten));
        let codes: Vec<String> = (0..=CODES).map(|_| sessions.code_at(now, None).unwrap()).collect();
        assert_eq!(sessions.open(&codes[0], now).unwrap(), None);
        assert!(sessions.open(&codes[1], now).unwrap().is_some());
    }
}
