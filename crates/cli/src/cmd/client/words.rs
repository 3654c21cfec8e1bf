//! Served jobs and decisions in words.

use bellwether_core::job::WorkerRange;
use bellwether_render::duration::rough;
use bellwether_render::figure;
use bellwether_render::words::count;
use bellwether_serve::snapshot::{ActionState, DecisionState, JobOutlook, JobState, Times};

pub(super) use bellwether_runtime::journal::now_s;

/// The numbers of workers that it may have.
pub(super) fn limits(job: &JobState) -> String {
    WorkerRange { min: job.min_workers, max: job.max_workers }.to_string()
}

/// Workers now, of those that the policy gave it, within its limits.
pub(super) fn workers(job: &JobState) -> String {
    format!("{}/{} ({})", job.workers, job.target_workers, limits(job))
}

/// Predicted over measured, less 1, where both are known.
pub(super) fn error(job: &JobState) -> Option<f64> {
    let (measured, predicted) = (job.examples_per_s?, job.predicted_examples_per_s?);
    (measured > 0.0).then(|| predicted / measured - 1.0)
}

/// Measured samples per second, beside what was predicted and how wrong that is.
pub(super) fn speed(job: &JobState) -> String {
    let number = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.0}"));
    match (job.examples_per_s, job.predicted_examples_per_s, error(job)) {
        (None, None, _) => "–".into(),
        (measured, None, _) => number(measured),
        (measured, predicted, None) => format!("{} ({})", number(measured), number(predicted)),
        (measured, predicted, Some(error)) => {
            format!("{} ({}, {:+.0} %)", number(measured), number(predicted), 100.0 * error)
        }
    }
}

/// When it will start or end, or how long it took, and whether that is too late.
pub(super) fn end(job: &JobState, now_s: f64) -> String {
    let start = job.outlook.as_ref().and_then(|outlook| outlook.start);
    let end = job.outlook.as_ref().and_then(|outlook| outlook.end?.middle_s);
    let (end_s, said) = match (job.ended_s, job.expected_end_s, start) {
        (Some(end_s), ..) => (end_s, format!("took {}", rough(end_s - job.submitted_s))),
        (None, Some(end_s), _) => (end_s, until(end_s, now_s)),
        (None, None, Some(Times { middle_s: Some(start_s), .. })) => {
            (end.unwrap_or(start_s), format!("starts {}", until(start_s, now_s)))
        }
        (None, None, Some(start)) => {
            (start.low_s, format!("starts after {}", rough((start.low_s - now_s).max(0.0))))
        }
        // A deadline that has passed is missed whatever is expected.
        (None, None, None) => (end.unwrap_or(now_s), end.map_or("–".into(), |end_s| until(end_s, now_s))),
    };
    let late = job.deadline_s.is_some_and(|deadline_s| end_s > deadline_s);
    if late { format!("{said}, late") } else { said }
}

fn until(time_s: f64, now_s: f64) -> String {
    format!("in {}", rough((time_s - now_s).max(0.0)))
}

/// When something is expected, with the interval.
fn expected(times: &Times, now_s: f64) -> String {
    let left = |time_s: f64| rough((time_s - now_s).max(0.0));
    let low = left(times.low_s);
    match (times.middle_s, times.high_s) {
        (Some(middle_s), Some(high_s)) => {
            format!("{}, 90 % within {low} to {}", until(middle_s, now_s), left(high_s))
        }
        (Some(middle_s), None) => format!("{}, or much later; not before {low}", until(middle_s, now_s)),
        (None, _) => format!("not before {low}"),
    }
}

/// Who starts before it.
fn ahead(outlook: &JobOutlook) -> String {
    let JobOutlook { ahead, ahead_names, .. } = outlook;
    let all = count(*ahead as usize, "job");
    match (ahead_names.len(), *ahead as usize) {
        (_, 0) => "it is next".into(),
        (0, _) => all,
        (named, ahead) if named == ahead => format!("{all}: {}", ahead_names.join(", ")),
        _ => format!("{all}: …, {}", ahead_names.join(", ")),
    }
}

/// Committed steps of all.
pub(super) fn steps(job: &JobState) -> String {
    format!("{}/{}", job.step, job.total_steps)
}

/// Loss of the last step.
pub(super) fn loss(job: &JobState) -> String {
    figure::loss(job.loss)
}

/// A job in one line.
pub(super) fn line(job: &JobState, now_s: f64) -> String {
    let mut parts = vec![format!("step {}", steps(job))];
    if job.loss.is_some() {
        parts.push(format!("loss {}", loss(job)));
    }
    if job.examples_per_s.is_some() {
        parts.push(format!("{} examples/s", speed(job)));
    }
    if !job.state.has_ended() {
        parts.push(format!("{} workers", workers(job)));
    }
    match end(job, now_s).as_str() {
        "–" => {}
        said if job.ended_s.is_some() || said.starts_with("starts") => parts.push(said.to_owned()),
        said => parts.push(format!("ends {said}")),
    }
    if !job.why.is_empty() {
        parts.push(job.why.clone());
    }
    let waits_for = job.outlook.iter().map(|outlook| outlook.waits_for.clone());
    parts.extend(waits_for.filter(|why| !why.is_empty()));
    format!("{}  {}  {}", job.name, job.state.name(), parts.join("  "))
}

/// What a job is doing, and why.
fn state_of(job: &JobState) -> String {
    let state = job.state.name();
    match job.why.as_str() {
        "" => state.into(),
        // As in "suspended by …".
        why if why.starts_with(state) => why.to_owned(),
        why => format!("{state}: {why}"),
    }
}

/// All that is known of a job, a row per fact.
pub(super) fn facts(job: &JobState, now_s: f64) -> Vec<(&'static str, String)> {
    let ago = |time_s: f64| ago(time_s, now_s);
    let mut rows = vec![("job", job.name.clone()), ("state", state_of(job))];
    if let Some(queue) = &job.queue {
        rows.push(("queue", queue.clone()));
    }
    if let Some(user) = &job.user {
        rows.push(("user", user.clone()));
    }
    if let Some(provider) = &job.provider {
        rows.push(("machines", format!("of its own, from {provider}; `bellwether machines` shows them")));
    }
    let chose = if job.provider.is_some() { "its plan chose" } else { "the policy gave it" };
    let (now, allowed) = (format!("{} of {} that {chose}", job.workers, job.target_workers), limits(job));
    rows.push(("workers", if job.state.has_ended() { allowed } else { format!("{now}, {allowed} allowed") }));
    if job.servers > 0 {
        rows.push(("servers", format!("{}, with a slot each", job.servers)));
    }
    if !job.fits.is_empty() {
        rows.push(("fits on", job.fits.join(", ")));
    }
    if !job.ways.is_empty() {
        rows.push(("ways", format!("{}; its first start decides", job.ways.join(", "))));
    }
    rows.push((
        "steps",
        format!("{} ({:.0} %)", steps(job), 100.0 * job.step as f64 / job.total_steps.max(1) as f64),
    ));
    rows.push(("loss", loss(job)));
    if job.examples_per_s.is_some() {
        rows.push((
            "examples/s",
            job.examples_per_s.map_or(String::new(), |measured| format!("{measured:.0}")),
        ));
    }
    if let Some(predicted) = job.predicted_examples_per_s {
        let interval = match (job.predicted_low, job.predicted_high) {
            (Some(low), Some(high)) => format!(", 95 % within {low:.0} to {high:.0}"),
            _ => String::new(),
        };
        let error = error(job).map_or(String::new(), |error| format!(", error {:+.1} %", 100.0 * error));
        let beyond = job.predicted_beyond.as_ref().map_or(String::new(), |why| format!("; {why}"));
        rows.push(("predicted", format!("{predicted:.0}{interval}{error}{beyond}")));
    }
    rows.push(("submitted", ago(job.submitted_s)));
    if let Some(started_s) = job.started_s {
        let waited = rough((started_s - job.submitted_s).max(0.0));
        rows.push(("started", format!("{}, after {waited} of waiting", ago(started_s))));
    }
    rows.extend(times_ahead(job, now_s));
    if let Some(deadline_s) = job.deadline_s {
        rows.push(("deadline", deadline(job, deadline_s, now_s)));
    }
    rows.push(("priority", job.weight.to_string()));
    rows.push(("preempted", times(job.preemptions)));
    rows.push(("failed", times(job.failures)));
    // Kubernetes tells neither of the time that workers had nor of a folder.
    let has_folder = !job.run_dir.as_os_str().is_empty();
    rows.extend(has_folder.then(|| ("worker time", rough(job.worker_s))));
    rows.extend(job.digest.iter().map(|digest| ("params_digest", digest.clone())));
    rows.extend(has_folder.then(|| ("folder", job.run_dir.display().to_string())));
    rows
}

/// What it waits for, and when it will start and end, or when it ended.
fn times_ahead(job: &JobState, now_s: f64) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(outlook) = job.outlook.as_ref().filter(|outlook| !outlook.waits_for.is_empty()) {
        rows.push(("waits for", outlook.waits_for.clone()));
        rows.push(("ahead of it", ahead(outlook)));
        let start = outlook.start.as_ref();
        let start = start.map_or("never, as things are".into(), |start| expected(start, now_s));
        rows.push(("expected start", start));
    }
    let expected_end = job.outlook.as_ref().and_then(|outlook| outlook.end);
    match (job.ended_s, job.expected_end_s, expected_end) {
        (Some(ended_s), ..) => {
            rows.push((
                "ended",
                format!(
                    "{}, {} after it was submitted",
                    ago(ended_s, now_s),
                    rough(ended_s - job.submitted_s)
                ),
            ));
        }
        (None, _, Some(times)) => rows.push(("expected end", expected(&times, now_s))),
        (None, Some(_), None) => rows.push(("expected end", end(job, now_s))),
        (None, None, None) => {}
    }
    rows
}

fn ago(time_s: f64, now_s: f64) -> String {
    format!("{} ago", rough((now_s - time_s).max(0.0)))
}

fn deadline(job: &JobState, deadline_s: f64, now_s: f64) -> String {
    let left_s = deadline_s - job.ended_s.unwrap_or(now_s);
    match (job.ended_s, left_s >= 0.0) {
        (Some(_), true) => format!("met, {} were left", rough(left_s)),
        (Some(_), false) => format!("missed by {}", rough(-left_s)),
        (None, true) => format!("in {}", rough(left_s)),
        (None, false) => format!("missed, {} ago", rough(-left_s)),
    }
}

fn times(count: u32) -> String {
    match count {
        0 => "never".into(),
        1 => "once".into(),
        count => format!("{count} times"),
    }
}

/// What a decision meant for a job, in a line; without a job for all.
pub(super) fn decision(decision: &DecisionState, job: Option<&str>, now_s: f64) -> String {
    let DecisionState { number, time_s, policy, reason, actions, .. } = decision;
    let named = |action: &&ActionState| job.is_none_or(|job| action.job == job);
    let actions: Vec<String> =
        actions.iter().filter(named).map(|action| acted(action, job.is_none())).collect();
    let what = if actions.is_empty() { String::new() } else { format!("{}: ", actions.join(", ")) };
    format!("#{number}, {} ago, {policy}: {what}{reason}", rough((now_s - time_s).max(0.0)))
}

fn acted(action: &ActionState, with_name: bool) -> String {
    let ActionState { job, from, to, refused, expected_examples_per_s, measured_examples_per_s, took_s } =
        action;
    let name = if with_name { format!("{job} ") } else { String::new() };
    if let Some(why) = refused {
        return format!("{name}refused ({why})");
    }
    let mut more = Vec::new();
    more.extend(took_s.map(|took_s| format!("took {took_s:.1} s")));
    more.extend(expected_examples_per_s.map(|speed| format!("{speed:.0} examples/s expected")));
    more.extend(measured_examples_per_s.map(|speed| format!("{speed:.0} measured")));
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    format!("{name}{from} → {to} workers{more}")
}

/// The time of day in UTC, where a whole date would only take room.
pub(super) fn clock(time_s: f64) -> String {
    let second = time_s.max(0.0) as u64 % 86_400;
    format!("{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_the_time_of_day() {
        assert_eq!(clock(1_763_766_489.9), "23:08:09Z");
    }
}
