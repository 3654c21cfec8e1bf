//! A job that has been checked, and stays so.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::{Job, check};
use crate::error::InputError;

/// A [`Job`] that passed [`Job::check`]. It can be read like one, and changed only by [`CheckedJob::edit`], which
/// checks the result. Code that holds one need not ask again whether a batch divides or a rate is finite.
///
/// It is written as the job that it holds, and checked when it is read again.
///
/// ```
/// # use bellwether_core::parse;
/// # let text = "name = \"digits\"\nepochs = 2\n[model]\nkind = \"mlp\"\nhidden = [8]\n[data]\nkind = \"digits\"\n\
/// #     [batch]\nsize = 64\nvirtual_nodes = 8\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
/// let job = parse::job(text, "job.toml", &[])?;
/// let longer = job.clone().edit(|job| job.epochs = Some(40))?;
/// assert_eq!((longer.epochs, longer.seed), (Some(40), job.seed));
/// let error = job.edit(|job| job.batch.virtual_nodes = 7).unwrap_err();
/// assert_eq!(error.place, "batch.size");
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Job")]
pub struct CheckedJob(Job);

impl Job {
    /// Checks what the type system cannot: ranges, divisibility, what fits together.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with the key it concerns.
    pub fn check(self) -> Result<CheckedJob, InputError> {
        check::job(&self).map(|()| CheckedJob(self))
    }
}

impl CheckedJob {
    /// Changes the job, and checks it again.
    ///
    /// # Errors
    ///
    /// As [`Job::check`]; the job is lost then, so keep a clone where it is needed.
    pub fn edit(self, change: impl FnOnce(&mut Job)) -> Result<CheckedJob, InputError> {
        let mut job = self.0;
        change(&mut job);
        job.check()
    }

    /// The job, which may be changed and has to be checked again then.
    pub fn into_job(self) -> Job {
        self.0
    }
}

impl Deref for CheckedJob {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.0
    }
}

impl TryFrom<Job> for CheckedJob {
    type Error = InputError;

    fn try_from(job: Job) -> Result<CheckedJob, InputError> {
        job.check()
    }
}
