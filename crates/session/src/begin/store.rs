//! The place of checkpoints in slices, asked before anything is begun.

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, CheckpointUrl};
use bellwether_runtime::objects::{self, StoreError};
use bellwether_runtime::slices;

use crate::error::RunError;

/// A run whose checkpoints another goes on from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Its folder.
    pub(crate) url: CheckpointUrl,
    /// The step of its newest checkpoint.
    pub(crate) step: u64,
}

fn refused(key: &str, error: &StoreError) -> InputError {
    InputError::new(key, error).hint(error.hint())
}

/// Whether Slurm's jobs can write to the place that the job names: they are not given this environment's credentials.
///
/// # Errors
///
/// A place that takes credentials, and a user whose file has none.
pub(crate) fn check_elsewhere(job: &CheckedJob) -> Result<(), RunError> {
    let Some(url) = &job.checkpoint.url else { return Ok(()) };
    objects::opens_by_file(url).map_err(|error| {
        let hint = "put the credentials into ~/.aws/credentials where the nodes find it: Slurm keeps the environment of a job, so \
                    those of the environment are not passed on";
        RunError::Option(InputError::new("checkpoint.url", error).hint(hint))
    })
}

/// Finds out whether the place that the job names answers, and what lies at `from`.
///
/// # Errors
///
/// A place that does not answer; none of the job's checkpoints at `from`; a job that names no place.
pub(crate) fn find(job: &CheckedJob, from: Option<&CheckpointUrl>) -> Result<Option<Origin>, RunError> {
    let Some(url) = &job.checkpoint.url else {
        let hint = "set checkpoint.url, in the job file or with --set checkpoint.url=URL: the workers read and write there";
        let error =
            || InputError::new("resume-from", "the job names no place for checkpoints in slices").hint(hint);
        return from.map_or(Ok(None), |_| Err(RunError::Option(error())));
    };
    slices::runs_at(url).map_err(|error| refused("checkpoint.url", &error))?;
    let Some(from) = from else { return Ok(None) };
    let found = slices::newest_run(from, &job.identity());
    match found.map_err(|error| RunError::Option(refused("resume-from", &error)))? {
        Some((mut url, step)) => {
            // Workers have other working directories.
            if let Some(folder) = url.folder_mut()
                && let Ok(absolute) = std::path::absolute(&*folder)
            {
                *folder = absolute;
            }
            Ok(Some(Origin { url, step }))
        }
        None => {
            let what = format!("there is no checkpoint of this job at {from}");
            let hint = "give the checkpoint.url of the run that is lost, or its folder below, and the same job: its model, data, \
                        batch, optimizer, length and seed decide which checkpoints are its own";
            Err(RunError::Option(InputError::new("resume-from", what).hint(hint)))
        }
    }
}

/// Whether the store still has the manifest of this name, which a journal tells.
pub(crate) fn is_there(job: &CheckedJob, manifest: &std::path::Path) -> bool {
    if job.checkpoint.url.as_ref().is_none_or(|url| url.folder().is_some()) {
        return manifest.is_file();
    }
    let text = manifest.to_string_lossy();
    let folder =
        text.rsplit_once("/step-").map(|(folder, step)| (folder, step.trim_end_matches("/manifest.json")));
    let Some((folder, step)) = folder else { return false };
    let shelf = folder.parse().ok().and_then(|url| slices::Shelf::open(url, 1, &job.identity()).ok());
    // What cannot be asked now may be there.
    shelf.is_none_or(|shelf| {
        shelf.steps().map_or(true, |steps| step.parse().is_ok_and(|step| steps.contains(&step)))
    })
}
