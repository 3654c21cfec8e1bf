//! Users: people with a token of their own, and what each may do.
//!
//! The daemon's owner makes them and removes them. `users.json` holds a hash of each token and never the token, which
//! is shown once. A browser's session that was opened with a user's token can do no more than the user, and ends with
//! the user.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::{fs, io};

use bellwether_core::InputError;
use bellwether_core::queue::{DEFAULT_QUEUE, is_within};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::private::write_line;
use crate::secret::Secret;

/// Users that there may be.
const USERS_MAX: usize = 1000;

/// Letters of a user's name.
const NAME_MAX: usize = 64;

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look at the jobs of the user's queues.
    Observe,
    /// Submit jobs to these queues, too, and steer those that are there.
    Submit,
    /// See and steer the jobs of all queues, and choose policy and queues.
    Operate,
}

impl Role {
    /// Its name, as it stands in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Role::Observe => "observe",
            Role::Submit => "submit",
            Role::Operate => "operate",
        }
    }
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The name, which stands beside what the user does.
    pub name: String,
    /// What the user may do.
    pub role: Role,
    /// The queues whose jobs that concerns, each with those below it; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<String>>,
    /// Whether the user may submit jobs that run a Python script. A script runs as the daemon's user of the system, and
    /// can read whatever that one can: the files of all jobs, and the daemon's own token.
    #[serde(default)]
    pub scripts: bool,
}

impl User {
    /// Whether the user sees jobs of a queue, by its name.
    pub(super) fn sees(&self, queue: Option<&str>) -> bool {
        let queue = queue.unwrap_or(DEFAULT_QUEUE);
        let covers = |named: &String| is_within(queue, named);
        self.role == Role::Operate || self.queues.as_ref().is_none_or(|queues| queues.iter().any(covers))
    }

    fn check(&self) -> Result<(), InputError> {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.@".contains(letter);
        if !(1..=NAME_MAX).contains(&self.name.len()) || !self.name.chars().all(is_letter) {
            let error = InputError::new("name", format!("`{}` cannot name a user", self.name.escape_debug()));
            return Err(
                error.hint(format!("use letters, digits, `-`, `_`, `.` and `@`, at most {NAME_MAX} in all"))
            );
        }
        if self.queues.as_ref().is_some_and(|queues| queues.is_empty() || queues.iter().any(String::is_empty))
        {
            let error = InputError::new("queues", "a user of no queue can do nothing");
            return Err(error.hint("name a queue, or leave `queues` out for all of them"));
        }
        if self.role == Role::Operate && self.queues.is_some() {
            let error = InputError::new("queues", "who operates the daemon does so for all queues");
            return Err(error.hint("leave `queues` out, or choose the role `submit`"));
        }
        Ok(())
    }
}

/// A user as the file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    user: User,
    /// Of the token, in hexadecimal digits.
    token_hash: String,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    users: Vec<Kept>,
}

/// All users of a daemon.
#[derive(Debug, Default)]
pub struct Users {
    /// Where they are kept; `None` to keep them in memory alone.
    path: Option<PathBuf>,
    known: RwLock<Vec<(blake3::Hash, Arc<User>)>>,
}

/// Why there is no new user.
#[derive(Debug)]
pub(super) enum AddError {
    /// It cannot be one.
    Invalid(InputError),
    /// There is one of this name.
    Taken(InputError),
    /// The file cannot be written.
    Io(io::Error),
}

impl Users {
    /// The users in this file; none if it is not there.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or holds something else.
    pub fn open(path: &Path) -> Result<Users, InputError> {
        let place = || path.display().to_string();
        let wrong = |what: String| {
            InputError::new(place(), what).hint("put it right, or remove it and add the users again")
        };
        let File { users } = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::default(),
            Err(error) => return Err(InputError::new(place(), error.to_string())),
        };
        let mut known = Vec::new();
        for Kept { user, token_hash } in users {
            user.check().map_err(|error| wrong(format!("user `{}`: {error}", user.name.escape_debug())))?;
            let hash = blake3::Hash::from_hex(&token_hash);
            let hash = hash.map_err(|_| wrong(format!("the token hash of `{}` is none", user.name)))?;
            known.push((hash, Arc::new(user)));
        }
        Ok(Users { path: Some(path.into()), known: RwLock::new(known) })
    }

    /// All of them, in the order in which they were added.
    pub(super) fn all(&self) -> Vec<Arc<User>> {
        self.read().iter().map(|(_, user)| user.clone()).collect()
    }

    /// The one of this name.
    pub(super) fn named(&self, name: &str) -> Option<Arc<User>> {
        self.read().iter().find(|(_, user)| user.name == name).map(|(_, user)| user.clone())
    }

    /// Who has the token of this hash. Hashes are compared in a time that does not depend on where they differ.
    pub(super) fn of_token(&self, hash: &blake3::Hash) -> Option<Arc<User>> {
        self.read().iter().find(|(known, _)| known == hash).map(|(_, user)| user.clone())
    }

    /// Adds one; returns the token.
    pub(super) fn add(&self, user: User) -> Result<Secret, AddError> {
        user.check().map_err(AddError::Invalid)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.iter().any(|(_, other)| other.name == user.name) {
            let error = InputError::new("name", format!("there is a user `{}` already", user.name));
            return Err(AddError::Taken(error.hint("remove that one first: `bellwether users remove NAME`")));
        }
        if known.len() >= USERS_MAX {
            let error = InputError::new("name", format!("there are {USERS_MAX} users, and no more may be"));
            return Err(AddError::Taken(error.hint("remove one first")));
        }
        let token = Secret::random().map_err(AddError::Io)?;
        let mut next = known.clone();
        next.push((blake3::hash(token.to_text().as_bytes()), Arc::new(user)));
        self.write(&next).map_err(AddError::Io)?;
        *known = next;
        Ok(token)
    }

    /// Removes the one of this name; says whether there was one.
    pub(super) fn remove(&self, name: &str) -> io::Result<bool> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = known.clone();
        next.retain(|(_, user)| user.name != name);
        if next.len() == known.len() {
            return Ok(false);
        }
        self.write(&next)?;
        *known = next;
        Ok(true)
    }

    fn write(&self, users: &[(blake3::Hash, Arc<User>)]) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let kept = |(hash, user): &(blake3::Hash, Arc<User>)| Kept {
            user: (**user).clone(),
            token_hash: hash.to_hex().to_string(),
        };
        write_line(path, &serde_json::to_string(&File { users: users.iter().map(kept).collect() })?)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<(blake3::Hash, Arc<User>)>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, role: Role, queues: Option<&[&str]>) -> User {
        let queues = queues.map(|queues| queues.iter().map(ToString::to_string).collect());
        User { name: name.into(), role, queues, scripts: false }
    }

    #[test]
    fn a_queue_stands_for_those_below_it() {
        let alice = user("alice", Role::Submit, Some(&["research", "ads"]));
        assert!(alice.sees(Some("research")) && alice.sees(Some("research/vision")));
        assert!(!alice.sees(Some("researchers")) && !alice.sees(Some("default")) && !alice.sees(None));
        assert!(user("bob", Role::Observe, None).sees(Some("anything")));
        assert!(user("carol", Role::Observe, Some(&["default"])).sees(None));
    }

    #[test]
    fn users_come_back_from_their_file_which_does_not_hold_their_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        let users = Users::open(&path).unwrap();
        let alice = user("alice", Role::Submit, Some(&["research"]));
        let token = users.add(alice.clone()).unwrap().to_text();
        assert!(matches!(users.add(alice.clone()), Err(AddError::Taken(_))));
        users.add(user("bob", Role::Operate, None)).unwrap();
        assert!(!fs::read_to_string(&path).unwrap().contains(&token));
        let again = Users::open(&path).unwrap();
        let hash = blake3::hash(token.as_bytes());
        assert_eq!(again.of_token(&hash).map(|user| (*user).clone()), Some(alice));
        assert!(again.remove("alice").unwrap() && !again.remove("alice").unwrap());
        let again = Users::open(&path).unwrap();
        assert!(again.of_token(&hash).is_none());
        assert_eq!(again.all().len(), 1);
    }

    #[test]
    fn who_cannot_be_a_user_is_refused() {
        let users = Users::default();
        for wrong in [
            user("", Role::Submit, None),
            user("a b", Role::Submit, None),
            user("alice", Role::Submit, Some(&[])),
            user("alice", Role::Operate, Some(&["research"])),
        ] {
            assert!(matches!(users.add(wrong), Err(AddError::Invalid(_))));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.json");
        for text in [
            "",
            "{}",
            "{\"users\": [{}]}",
            "{\"users\": [{\"user\": {\"name\": \"a\", \"role\": \"king\"}}]}",
        ] {
            fs::write(&path, text).unwrap();
            let error = Users::open(&path).unwrap_err();
            assert!(error.to_string().contains("users.json"), "{error}");
        }
    }
}
