//! What trials take on this machine, measured with as many of them at once as the sweep has.

use std::time::{Duration, Instant};

use bellwether_core::InputError;

use super::jobs::{Act, Jobs, Trouble};
use super::submission::Laid;
use super::submission::named;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(20);

/// Steps are timed for this long, unless the trials end before.
const TIMED: Duration = Duration::from_secs(4);

/// A trial that has not begun to train by then tells nothing.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a trial takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Seconds until a trial that begins or goes on trains, and those until one that stops has.
    pub change_s: f64,
    /// Seconds of a step of one worker, beside those of the other trials.
    pub step_s: f64,
}

/// Trains `copies` of the job with one worker each for some seconds, and ends them.
///
/// # Errors
///
/// Returns an error if the job cannot be trained, or the engine is gone.
pub fn measure(jobs: &mut dyn Jobs, laid: &Laid, copies: u32) -> Result<Measured, InputError> {
    let error = |trouble: Trouble| match trouble {
        Trouble::Refused(error) | Trouble::Gone(error) => error,
    };
    let began = Instant::now();
    for copy in 0..copies {
        let name = name(copy);
        jobs.submit(named(laid.clone(), &name, name.clone())?).map_err(error)?;
    }
    let names: Vec<String> = (0..copies).map(name).collect();
    // Of each copy when its first steps were heard of, and how many, and the same of its last ones.
    let mut first: Vec<Option<(f64, u64)>> = vec![None; names.len()];
    let mut last = first.clone();
    loop {
        let now_s = began.elapsed().as_secs_f64();
        let seen = jobs.look(PREFIX).map_err(error)?;
        let mut ended = 0;
        for (place, name) in names.iter().enumerate() {
            let Some(job) = seen.get(name) else { continue };
            ended += usize::from(job.state.has_ended());
            if job.step > last[place].map_or(0, |(_, step)| step) {
                last[place] = Some((now_s, job.step));
                first[place] = first[place].or(last[place]);
            }
            if job.state.has_ended() && last[place].is_none() {
                return Err(InputError::new("sweep", format!("a trial cannot be trained: {}", job.why)));
            }
        }
        let all = first.iter().flatten().map(|(at_s, _)| *at_s).fold(0.0, f64::max);
        let has_begun = first.iter().all(Option::is_some);
        if ended == names.len() || has_begun && now_s > all + TIMED.as_secs_f64() {
            break;
        }
        if began.elapsed() > PATIENCE && !has_begun {
            return Err(InputError::new("sweep", format!("no trial trains after {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(PERIOD);
    }
    let stopping = Instant::now();
    for name in &names {
        // One that has finished needs no end.
        let _ = jobs.act(name, Act::Cancel);
    }
    while jobs.look(PREFIX).map_err(error)?.values().any(|job| !job.state.has_ended()) {
        std::thread::sleep(PERIOD);
    }
    let stop_s = stopping.elapsed().as_secs_f64();
    let step_s: Vec<f64> = first
        .iter()
        .zip(&last)
        .filter_map(|(first, last)| {
            let ((from_s, from), (to_s, to)) = ((*first)?, (*last)?);
            // Too short to be timed apart from its start: the whole of it is.
            Some(if to > from { (to_s - from_s) / (to - from) as f64 } else { to_s / to.max(1) as f64 })
        })
        .collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let step_s = mean(&step_s);
    let starts: Vec<f64> =
        first.iter().flatten().map(|(at_s, step)| (at_s - *step as f64 * step_s).max(0.0)).collect();
    Ok(Measured { change_s: mean(&starts) + stop_s, step_s })
}

/// What the copies' names begin with.
const PREFIX: &str = "measured-";

fn name(copy: u32) -> String {
    format!("{PREFIX}{copy}")
}
