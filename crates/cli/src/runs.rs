//! The state directory and the folders of its runs, as the verbs use them.

use bellwether_core::InputError;
use bellwether_runtime::run_dir::RunDirError;
pub(crate) use bellwether_runtime::run_dir::{RunDir, StateDir, read_token};

use crate::failure::Failure;

impl From<RunDirError> for Failure {
    fn from(error: RunDirError) -> Self {
        let text = error.to_string();
        let at = |path: &std::path::Path, what: String| InputError::new(path.display().to_string(), what);
        let error = match error {
            RunDirError::NoStateDir => InputError::new("state directory", text).hint("pass --state-dir DIR"),
            RunDirError::NoSuchRun { asked, nearest, .. } => {
                let hint = match nearest {
                    Some(near) => format!("did you mean `{near}`? `bellwether jobs` lists all jobs"),
                    None => "`bellwether jobs` lists all jobs; --state-dir says where to look".into(),
                };
                InputError::new(asked, text).hint(hint)
            }
            RunDirError::Token { path, source: Some(error) } => at(
                &path,
                format!("the token file cannot be read: {error}"),
            )
            .hint("every run makes its own token; it lies in the run's folder, which `bellwether run` names"),
            RunDirError::Token { path, source: None } => at(&path, "is not a token".into())
                .hint("a token file holds 64 hexadecimal digits; every run makes its own"),
            RunDirError::Random(error) => InputError::new("random token", error.to_string()),
            RunDirError::Malformed { path, why } => at(&path, why),
            RunDirError::Io { path, source } => at(&path, source.to_string()),
        };
        error.into()
    }
}
