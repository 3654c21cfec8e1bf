//! Microsoft's Philly: the JSON list `cluster_job_log`.
//!
//! A job's work is the time of all its attempts together, at the devices of its last attempt that had any.

use bellwether_core::{InputError, ParseError};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::job_builder::{Gathered, JobBuilder};
use super::{Format, RowError, value};

#[derive(Debug, Deserialize)]
struct Logged {
    #[serde(default)]
    jobid: String,
    #[serde(default)]
    submitted_time: Option<String>,
    #[serde(default)]
    attempts: Vec<Attempt>,
}

#[derive(Debug, Deserialize)]
struct Attempt {
    #[serde(default)]
    start_time: Option<String>,
    #[serde(default)]
    end_time: Option<String>,
    #[serde(default)]
    detail: Vec<Server>,
}

#[derive(Debug, Deserialize)]
struct Server {
    #[serde(default)]
    gpus: Vec<IgnoredAny>,
}

/// Reads a log into `found`.
pub(super) fn read(bytes: &[u8], found: &mut Gathered) -> Result<Format, InputError> {
    let jobs: Vec<Logged> = serde_json::from_slice(bytes).map_err(|error| {
        InputError::new(format!("{}, line {}", found.options.place, error.line()), error.to_string())
            .hint("a list of jobs as in Philly's `cluster_job_log` is the only JSON that is known")
    })?;
    for (at, job) in jobs.iter().enumerate() {
        let row = at + 1;
        match draft(row, job) {
            Ok(draft) => found.take(draft),
            Err(why) => found.refuse(row, &job.jobid, why),
        }
    }
    found.begin_at_first_day();
    Ok(Format::Philly)
}

fn draft(row: usize, job: &Logged) -> Result<JobBuilder, RowError> {
    let Some(last) = job.attempts.last() else {
        return Err(RowError::Unfinished("never ran: it has no attempt"));
    };
    if time(last.end_time.as_deref())?.is_none() {
        let why = "still ran when the log was written: its last attempt has no end";
        return Err(RowError::Unfinished(why));
    }
    let mut ran_s = 0.0;
    for attempt in &job.attempts {
        // An attempt whose times were lost counts for nothing.
        if let (Some(start_s), Some(end_s)) =
            (time(attempt.start_time.as_deref())?, time(attempt.end_time.as_deref())?)
        {
            ran_s += (end_s - start_s).max(0.0);
        }
    }
    let devices = |attempt: &Attempt| attempt.detail.iter().map(|server| server.gpus.len()).sum::<usize>();
    let devices = job.attempts.iter().rev().map(devices).find(|devices| *devices > 0).unwrap_or(0);
    Ok(JobBuilder {
        row,
        name: job.jobid.clone(),
        arrival_s: time(job.submitted_time.as_deref())?,
        devices: u32::try_from(devices).ok(),
        duration_s: Some(ran_s),
        ..JobBuilder::default()
    })
}

/// A date; `None` where there is none.
fn time(text: Option<&str>) -> Result<Option<f64>, ParseError> {
    match text {
        None | Some("" | "None") => Ok(None),
        Some(text) => match value::time(text)? {
            (seconds, true) => Ok(Some(seconds)),
            (_, false) => Err(ParseError::new("time", text, "a date such as 2017-10-03 18:41:01")),
        },
    }
}
