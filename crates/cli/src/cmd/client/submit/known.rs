//! What is known of a job's speed when it is submitted.

use std::path::Path;

use bellwether_answers::fit;
use bellwether_core::InputError;
use bellwether_core::fitted::FittedFile;
use bellwether_core::job::{CheckedJob, Job};
use bellwether_core::prediction::ProfiledRate;
use bellwether_core::profile::Profile;

use super::SubmitArguments;
use crate::failure::Failure;
use crate::files;
use crate::runs::RunDir;

/// What `--profile` names.
pub(super) enum Known {
    Profile(Box<Profile>),
    Fitted(FittedFile, String),
    Run(RunDir),
}

/// A file with a profile or with fitted models, or a run.
pub(super) fn read(path: &Path, arguments: &SubmitArguments) -> Result<Known, Failure> {
    if let Some(file) = fit::read(path)? {
        return Ok(Known::Fitted(file, path.display().to_string()));
    }
    let ends_with_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if ends_with_json || path.is_file() {
        return Ok(Known::Profile(Box::new(files::profile_to_send(path)?)));
    }
    Ok(Known::Run(fit::find_run(path, arguments.daemon.state.state_dir.as_deref())?))
}

impl Known {
    /// A profile is sent as it is: the daemon knows its slots.
    pub(super) fn profile(&self) -> Option<Box<Profile>> {
        match self {
            Known::Profile(profile) => Some(profile.clone()),
            Known::Fitted(..) | Known::Run(_) => None,
        }
    }

    /// What the others say of this job.
    pub(super) fn rates(&self, job: &CheckedJob) -> Result<Vec<ProfiledRate>, InputError> {
        match self {
            Known::Profile(_) => Ok(Vec::new()),
            Known::Fitted(file, place) => fitted(file, place, job),
            Known::Run(run) => fit::rates_of_run(run, job),
        }
    }
}

/// What the only kind of the file says, or that of the job's name.
fn fitted(file: &FittedFile, place: &str, job: &Job) -> Result<Vec<ProfiledRate>, InputError> {
    let kind = match &file.kinds[..] {
        [kind] => Some(kind),
        kinds => kinds.iter().find(|kind| kind.name == job.name),
    };
    let kind = kind.ok_or_else(|| {
        let names: Vec<&str> = file.kinds.iter().map(|kind| kind.name.as_str()).collect();
        InputError::new(place, format!("it holds no kind `{}`", job.name)).hint(format!(
            "there is {}: give the job one of these names, or fit its own measurements",
            names.join(", ")
        ))
    })?;
    fit::rates_of_kind(kind, job)
}
