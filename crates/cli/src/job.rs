//! Job files, read and made known.

use std::path::Path;

use bellwether_core::job::{CheckedJob, Job};
use bellwether_core::{InputError, parse};
use bellwether_runtime::membership::WorkloadDescription;

use crate::failure::Failure;
use crate::session;

/// Reads a job file, with other values for some of its keys.
pub(crate) fn read(path: &Path, overrides: &[(String, String)]) -> Result<CheckedJob, Failure> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the job file cannot be read: {e}"))
            .hint("`bellwether run JOB.toml` takes the path of a job file; examples/ has some")
    })?;
    let job = parse::job(&text, &place, overrides)?;
    // Workers have other working directories, and a run is taken up from anywhere.
    let folder = std::path::absolute(path).map_err(|e| Failure::at(&place, e))?;
    let folder = folder.parent().unwrap_or(Path::new("/"));
    Ok(job.edit(|job| job.paths_mut().into_iter().for_each(|p| *p = folder.join(&*p)))?)
}

/// Builds the workload once here, so that bad data are refused before anything is started.
pub(crate) fn describe(job: &Job) -> Result<WorkloadDescription, InputError> {
    Ok(WorkloadDescription::of(session::build(job)?.as_ref()))
}
