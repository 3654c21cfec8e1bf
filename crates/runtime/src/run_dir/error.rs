//! What can be wrong with a run's folder.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// A run's folder cannot be found, read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// Neither the caller nor the environment names a folder for runs.
    #[error("neither XDG_STATE_HOME nor HOME is set")]
    NoStateDir,
    /// No run has this name.
    #[error("there is no such job in {}", .state_dir.display())]
    NoSuchRun {
        /// What was asked for.
        asked: String,
        /// Where runs were looked for.
        state_dir: PathBuf,
        /// The run whose name is most like it.
        nearest: Option<String>,
    },
    /// A file that should hold a token does not.
    #[error("{}", token_text(.path, .source.as_ref()))]
    Token {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read; absent where it holds something else.
        source: Option<io::Error>,
    },
    /// The system gives no random bytes for a token.
    #[error("random token: {0}")]
    Random(io::Error),
    /// A file holds something else than it should.
    #[error("{}: {why}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl RunDirError {
    pub(super) fn io(path: &Path) -> impl FnOnce(io::Error) -> RunDirError {
        let path = path.to_path_buf();
        move |source| RunDirError::Io { path, source }
    }

    pub(super) fn malformed<E: Display>(path: &Path) -> impl FnOnce(E) -> RunDirError {
        let path = path.to_path_buf();
        move |why| RunDirError::Malformed { path, why: why.to_string() }
    }
}

fn token_text(path: &Path, source: Option<&io::Error>) -> String {
    let path = path.display();
    match source {
        Some(error) => format!("{path}: the token file cannot be read: {error}"),
        None => format!("{path}: is not a token"),
    }
}
