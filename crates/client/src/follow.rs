//! Jobs followed until they end.

use std::time::{Duration, Instant};

use bellwether_serve::snapshot::JobState;

use crate::{Client, ClientError};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Time between two reports on how far a job is.
const PERIOD: Duration = Duration::from_secs(5);

impl Client {
    /// Follows jobs until all have ended; returns them in the order of `names`. `on_change` is called when a job's
    /// state or workers change, and every 5 s while steps are committed; if it returns false, following ends at once
    /// with an empty list.
    ///
    /// # Errors
    ///
    /// Those of [`Client::job`].
    pub fn follow(
        &self,
        names: &[String],
        mut on_change: impl FnMut(&JobState) -> bool,
    ) -> Result<Vec<JobState>, ClientError> {
        let mut told: Vec<Option<(JobState, Instant)>> = names.iter().map(|_| None).collect();
        let mut ended: Vec<Option<JobState>> = names.iter().map(|_| None).collect();
        loop {
            let open = names.iter().zip(&mut told).zip(&mut ended).filter(|(_, ended)| ended.is_none());
            for ((name, told), ended) in open {
                let job = self.job(name)?;
                let is_news = told.as_ref().is_none_or(|(before, when)| {
                    let shape =
                        |job: &JobState| (job.state, job.workers, job.target_workers, job.why.clone());
                    shape(before) != shape(&job) || when.elapsed() >= PERIOD && before.step != job.step
                });
                if is_news {
                    *told = Some((job.clone(), Instant::now()));
                    if !on_change(&job) {
                        return Ok(Vec::new());
                    }
                }
                if job.state.has_ended() {
                    *ended = Some(job);
                }
            }
            if ended.iter().all(Option::is_some) {
                return Ok(ended.into_iter().flatten().collect());
            }
            std::thread::sleep(LOOK);
        }
    }
}
