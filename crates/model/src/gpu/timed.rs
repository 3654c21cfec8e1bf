//! Traces of blocks in which times were measured too, and how well the model foresees them.

use bellwether_core::{InputError, ParseError};
use serde::Serialize;

use super::trace::{self, RunScore, TRACE_HEADER, TracedRun};
use super::{Device, device};

/// What follows the last column of a trace in which times were measured too: of each block, in nanoseconds.
const TIMES: &str = ",start_ns,end_ns";

/// A run of a trace.
#[derive(Debug)]
pub struct TimedRun {
    /// Where its blocks were.
    traced: TracedRun,
    /// Blocks that ended before the last one began, where times were measured.
    ended_early: Option<usize>,
}

/// How the model did on a run.
#[derive(Debug, Serialize)]
pub struct Score {
    /// As the trace calls the device.
    pub device: String,
    /// As the model calls it.
    pub gpu: String,
    /// Block by block.
    #[serde(flatten)]
    pub run: RunScore,
    /// Blocks that ended before the last one began, where times were measured: then the comparison is not fair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<usize>,
}

/// Reads a trace with or without times; `place` names the file in errors.
///
/// # Errors
///
/// Returns an error with the line for a malformed row, and for a trace without launches.
pub fn read_timed_trace(text: &str, place: &str) -> Result<Vec<TimedRun>, InputError> {
    let header = text.lines().next().unwrap_or_default().trim();
    let (plain, mut times) = match header.strip_suffix(TIMES) {
        Some(TRACE_HEADER) => without_times(text, place)?,
        _ => (text.to_string(), Vec::new()),
    };
    let traced = trace::read_trace(&plain, place)?;
    if traced.is_empty() {
        return Err(InputError::new(place, "the trace has no launch").hint("each row is one"));
    }
    let timed = !times.is_empty();
    let mut runs = Vec::new();
    for traced in traced {
        let rest = if timed { times.split_off(traced.launches.len()) } else { Vec::new() };
        let of_run: Vec<(u64, u64)> = std::mem::replace(&mut times, rest).into_iter().flatten().collect();
        let last_ns = of_run.iter().map(|(start_ns, _)| *start_ns).max().unwrap_or(0);
        let ended_early = timed.then(|| of_run.iter().filter(|(_, end_ns)| *end_ns < last_ns).count());
        runs.push(TimedRun { traced, ended_early });
    }
    Ok(runs)
}

/// Start and end of each block of a row, in nanoseconds.
type Times = Vec<(u64, u64)>;

/// A trace without its two last columns, and what is in them, row by row.
fn without_times(text: &str, place: &str) -> Result<(String, Vec<Times>), InputError> {
    let mut plain = String::from(TRACE_HEADER);
    let mut times = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        plain.push('\n');
        if line.trim().is_empty() {
            continue;
        }
        let place = format!("{place}, line {}", number + 1);
        let mut fields = line.rsplitn(3, ',');
        let (Some(ends), Some(starts), Some(rest)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(InputError::new(place, "it has no times").hint("end it with start_ns,end_ns"));
        };
        let (starts, ends) = (nanoseconds(starts, &place)?, nanoseconds(ends, &place)?);
        let blocks = rest.rsplit(',').next().unwrap_or_default().split_whitespace().count();
        let backwards = starts.iter().zip(&ends).any(|(start, end)| end < start);
        if starts.len() != blocks || ends.len() != blocks || backwards {
            let what = format!("{} starts and {} ends of {blocks} blocks", starts.len(), ends.len());
            return Err(
                InputError::new(place, what).hint("give each block a start, and an end not before it")
            );
        }
        times.push(starts.into_iter().zip(ends).collect());
        plain.push_str(rest);
    }
    Ok((plain, times))
}

fn nanoseconds(text: &str, place: &str) -> Result<Vec<u64>, InputError> {
    let number =
        |word: &str| word.parse().map_err(|_| ParseError::new("time", word, "whole nanoseconds").at(place));
    text.split_whitespace().map(number).collect()
}

/// Scores the model of `name`, or of the device that each run names.
///
/// # Errors
///
/// Returns an error for a device that is not among `devices`, and for a kernel that the device cannot run.
pub fn score_runs(
    runs: &[TimedRun],
    devices: &[Device],
    name: Option<&str>,
) -> Result<Vec<Score>, InputError> {
    let mut scores = Vec::new();
    for TimedRun { traced, ended_early } in runs {
        let device = device::find(devices, name.unwrap_or(&traced.device)).map_err(|e| match name {
            Some(_) => InputError { place: "--gpu".into(), ..e },
            None => InputError { place: format!("the trace's device, run {}", traced.run), ..e },
        })?;
        scores.extend(trace::compare(std::slice::from_ref(traced), device)?.into_iter().map(|run| Score {
            device: traced.device.clone(),
            gpu: device.name.clone(),
            run,
            ended_early: *ended_early,
        }));
    }
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(rows: &str) -> Result<Vec<TimedRun>, InputError> {
        read_timed_trace(&format!("{TRACE_HEADER}{TIMES}\n{rows}"), "t.csv")
    }

    #[test]
    fn times_tell_which_runs_are_fair() {
        let runs =
            timed("V100,1,t,a,2,32,32,0,0 2,5 6,90 91\nV100,1,t,b,1,32,32,0,4,95,99\n\nV100,2,t,a,1,32,32,0,0,1,2\n")
                .unwrap();
        let early: Vec<Option<usize>> = runs.iter().map(|run| run.ended_early).collect();
        assert_eq!(early, [Some(2), Some(0)]);
        assert_eq!(runs[0].traced.launches[1].multiprocessors, [4]);
    }

    #[test]
    fn bad_times_are_refused_with_their_line() {
        for row in [
            "V100,1,t,a,2,32,32,0,0 2,5 6,90",
            "V100,1,t,a,2,32,32,0,0 2,5 6,90 1",
            "V100,1,t,a,2,32,32,0,0 2,5 6,90 x",
            "V100",
        ] {
            let error = timed(row).unwrap_err();
            assert_eq!(error.place, "t.csv, line 2", "{error}");
        }
    }
}
