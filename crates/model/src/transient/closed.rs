//! Closed forms: the time with known losses, the published fixed point, and the expected course of any job.

use bellwether_core::InputError;

use super::job::{Effect, Job, PLACE, Servers, Speeds};
use super::law::Law;
use crate::common::check;

/// Points of time between the request of the servers and the end at which the expected course is computed.
const STEPS: usize = 128;
/// Most servers of a group whose number at work is taken as a distribution; of more, only the mean counts.
const SPREAD_MAX: u32 = 512;
const HOUR_S: f64 = 3600.0;
const ROUNDS_MAX: u32 = 200;

/// When `work` is done by `workers` that begin at time 0 and are lost, one at each of `losses_s`, and not replaced;
/// `speed` is the work per second by workers. `None` when it never is.
///
/// ```
/// use bellwether_model::transient::time_with_losses_s;
/// // Two workers do 2 units/s for 10 s; the one that is left needs 80 s for the other 80.
/// assert_eq!(time_with_losses_s(100.0, 2, &[10.0], f64::from), Some(90.0));
/// ```
pub fn time_with_losses_s(
    work: f64,
    workers: u32,
    losses_s: &[f64],
    speed: impl Fn(u32) -> f64,
) -> Option<f64> {
    let mut losses_s = losses_s.to_vec();
    losses_s.sort_by(f64::total_cmp);
    let (mut now_s, mut left, mut count) = (0.0, work, workers);
    for loss_s in losses_s {
        let per_s = if count > 0 { speed(count) } else { 0.0 };
        let done = per_s * (loss_s - now_s);
        if done >= left {
            break;
        }
        (now_s, left, count) = (loss_s, left - done, count.saturating_sub(1));
    }
    let per_s = if count > 0 { speed(count) } else { 0.0 };
    (left <= 0.0 || per_s > 0.0).then(|| if left <= 0.0 { now_s } else { now_s + left / per_s })
}

/// What the published closed form takes.
#[derive(Debug, Clone, Copy)]
pub struct FixedPoint<'a> {
    /// Seconds of the work alone, with all workers.
    pub work_s: f64,
    /// Number of checkpoints.
    pub checkpoints: f64,
    /// Seconds of one.
    pub checkpoint_s: f64,
    /// The law of each worker's server.
    pub laws: &'a [Law],
    /// Seconds from a loss until the replacement works: provisioning and joining.
    pub replacement_s: f64,
}

impl FixedPoint<'_> {
    /// The total time T in seconds, from T = work + checkpoints + losses(T) replacement, where losses(T) is the sum of
    /// each worker's probability of being lost within T. The whole cluster waits for each replacement, and none is lost
    /// in its turn: short jobs only. The smallest solution.
    pub fn time_s(&self) -> f64 {
        let alone_s = self.work_s + self.checkpoints * self.checkpoint_s;
        let mut time_s = alone_s;
        // Rises from below, and no further than with every worker lost once.
        for _ in 0..ROUNDS_MAX {
            let losses: f64 = self.laws.iter().map(|law| law.cdf(time_s)).sum();
            let next_s = alone_s + losses * self.replacement_s;
            if next_s - time_s <= 1e-9 * next_s {
                break;
            }
            time_s = next_s;
        }
        time_s
    }
}

/// The remaining seconds after one loss whose replacement is under way: the survivors work at `reduced_per_s` for
/// `replacement_s` seconds, then all at `restored_per_s`.
pub fn remaining_s(work_left: f64, replacement_s: f64, reduced_per_s: f64, restored_per_s: f64) -> f64 {
    replacement_s + work_left / restored_per_s - replacement_s * reduced_per_s / restored_per_s
}

/// The expected course of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Time of a run that finishes, in seconds since the servers were requested.
    pub time_s: f64,
    /// Servers lost by then.
    pub losses: f64,
    /// What a run that finishes costs, in the currency of the prices.
    pub cost: f64,
    /// Probability that a run finishes, roughly: that its chief lives, or, where none is replaced, any worker.
    pub finishes: f64,
}

/// Of one group, at each point of time.
struct Course {
    /// Losses per server.
    losses: Vec<f64>,
    /// Whether the group's workers have begun; of the step in which they do, the part that is left.
    begun: Vec<f64>,
    /// Probability that a worker is at work once they have.
    at_work: Vec<f64>,
}

/// The expected course of a job without Monte Carlo: the time at which the expected work reaches the whole work. `None`
/// when that is not reached within the horizon, or no run can finish. `speed` is as for [`simulate`](super::simulate).
///
/// Good where no single loss decides: see the module. That all workers are lost at once does not count.
///
/// # Errors
///
/// Returns an error for a job that cannot be run, a speed that is negative or not finite.
pub fn expected(job: &Job, speed: impl Fn(&[u32]) -> f64) -> Result<Option<Expected>, InputError> {
    job.check()?;
    let speeds = Speeds::new(job, speed)?;
    let begin_s = job.servers.iter().map(|group| group.provision_s + group.join_s).fold(0.0, f64::max);
    let mut until_s = 1.25 * (begin_s + job.work / speeds.all_per_s());
    check::not_positive(PLACE, "the time of the work in seconds", until_s)?;
    loop {
        let capped_s = until_s.min(job.horizon_s);
        if let Some(expected) = within(job, &speeds, capped_s) {
            return Ok(Some(expected));
        }
        if until_s >= job.horizon_s {
            return Ok(None);
        }
        until_s *= 1.6;
    }
}

/// The same, if the work is expected to be done within `until_s`.
fn within(job: &Job, speeds: &Speeds, until_s: f64) -> Option<Expected> {
    let step_s = until_s / STEPS as f64;
    let courses: Vec<Course> = job.servers.iter().map(|group| course(group, step_s)).collect();
    let working = job.checkpoints.map_or(1.0, |c| c.period_s / (c.period_s + c.time_s));
    let pauses: Vec<f64> = job.servers.iter().map(|group| pause_s(job, group)).collect();
    let paused_s = |step: usize| -> f64 {
        let each = job.servers.iter().zip(&courses).zip(&pauses);
        each.map(|((group, course), pause)| f64::from(group.count) * course.losses[step] * pause).sum()
    };
    let mut done = 0.0;
    let mut before = (mean_speed(job, speeds, &courses, 0), paused_s(0));
    for step in 1..=STEPS {
        let now = (mean_speed(job, speeds, &courses, step), paused_s(step));
        let worked = 0.5 * (before.0 + now.0) * (step_s - (now.1 - before.1)).max(0.0) * working;
        if done + worked >= job.work && worked > 0.0 {
            let part = (job.work - done) / worked;
            return Some(at(job, &courses, step, part, step_s)).filter(|expected| expected.finishes > 0.0);
        }
        done += worked;
        before = now;
    }
    None
}

/// Losses and workers of a group at each point of time.
fn course(group: &Servers, step_s: f64) -> Course {
    let time_s = |step: usize| step as f64 * step_s;
    let first: Vec<f64> = (0..=STEPS).map(|step| group.law.cdf(time_s(step) - group.provision_s)).collect();
    let gap = (group.provision_s + group.join_s) / step_s;
    let begun = (0..=STEPS).map(|step| begun(step, gap)).collect();
    if !group.replaced {
        let at_work = first.iter().map(|lost| 1.0 - lost).collect();
        return Course { losses: first, begun, at_work };
    }
    // The renewal equation: a replacement's losses are those of the first server, counted from the loss. Losses of one
    // step lie in its middle, where the number of later ones is the mean of both ends.
    let mut losses = vec![0.0; STEPS + 1];
    for step in 1..=STEPS {
        let mut sum = first[step] + 0.5 * (first[1] - first[0]) * losses[step - 1];
        for of in 2..=step {
            sum += 0.5 * (first[of] - first[of - 1]) * (losses[step - of] + losses[step - of + 1]);
        }
        losses[step] = sum / (1.0 - 0.5 * (first[1] - first[0]));
    }
    // Each loss keeps its place empty for the time until the replacement works.
    let at_work = |step: usize| {
        let earlier = step as f64 - gap;
        let lost = losses[step] - if earlier > 0.0 { between(&losses, earlier) } else { 0.0 };
        (1.0 - lost).max(0.0)
    };
    Course { at_work: (0..=STEPS).map(at_work).collect(), begun, losses }
}

/// Whether workers that join after `gap` steps have begun. The piece of time around the step in which they do counts in
/// part, so that sums over steps are right; around the first one it is half as long.
fn begun(step: usize, gap: f64) -> f64 {
    let part = if step == 0 { 1.0 - 2.0 * gap } else { step as f64 - gap + 0.5 };
    part.clamp(0.0, 1.0)
}

/// A value at a place between two entries.
fn between(values: &[f64], place: f64) -> f64 {
    let below = (place as usize).min(values.len() - 1);
    let above = (below + 1).min(values.len() - 1);
    values[below] + (place - below as f64) * (values[above] - values[below])
}

/// Seconds that the loss of one worker costs all: regrouping, and what is done again.
fn pause_s(job: &Job, group: &Servers) -> f64 {
    let regroups = if group.replaced { 2.0 } else { 1.0 };
    let mut pause_s = regroups * job.regroup_s;
    if job.losses.worker == Effect::RollsBack {
        pause_s += job.restore_s;
        if let Some(checkpoints) = job.checkpoints {
            // Anywhere in a cycle; in the checkpoint itself the whole period's work is not saved yet.
            let (period_s, time_s) = (checkpoints.period_s, checkpoints.time_s);
            pause_s += period_s * (0.5 * period_s + time_s) / (period_s + time_s);
        }
    }
    pause_s
}

/// Whether a run is over when its first server is lost: then it is always there in a run that finishes.
fn has_chief(job: &Job) -> bool {
    job.losses.chief == Effect::Ends
}

/// Expected work per second at a point of time.
fn mean_speed(job: &Job, speeds: &Speeds, courses: &[Course], step: usize) -> f64 {
    // Probability of each number of workers at work, group by group, in the order of the states.
    let mut states = vec![1.0];
    for (index, (group, course)) in job.servers.iter().zip(courses).enumerate() {
        let sure = u32::from(index == 0 && has_chief(job));
        let mut counts = binomial(group.count, sure, course.at_work[step]);
        counts.iter_mut().for_each(|count| *count *= course.begun[step]);
        counts[0] += 1.0 - course.begun[step];
        states = states.iter().flat_map(|before| counts.iter().map(move |count| before * count)).collect();
    }
    states.iter().enumerate().map(|(state, probability)| probability * speeds.per_s(state)).sum()
}

/// Probabilities of 0 to `count` workers at work, of which `sure` are and the others are with a probability.
fn binomial(count: u32, sure: u32, probability: f64) -> Vec<f64> {
    let mut values = vec![0.0; count as usize + 1];
    let free = count.saturating_sub(sure);
    let (free_f, offset) = (f64::from(free), sure.min(count) as usize);
    if free > SPREAD_MAX {
        let mean = free_f * probability;
        let below = mean.floor();
        values[offset + below as usize] = 1.0 - (mean - below);
        if mean > below {
            values[offset + below as usize + 1] = mean - below;
        }
        return values;
    }
    // From the likelier end, so that the first term does not vanish.
    let (more, less) = (probability.max(1.0 - probability), probability.min(1.0 - probability));
    let mut value = more.powi(free.cast_signed());
    for other in 0..=free {
        let place = if probability >= 0.5 { free - other } else { other };
        values[offset + place as usize] = value;
        value *= (free_f - f64::from(other)) / (f64::from(other) + 1.0) * less / more;
    }
    values
}

/// The course at a part of the way to a point of time.
fn at(job: &Job, courses: &[Course], step: usize, part: f64, step_s: f64) -> Expected {
    let place = (step - 1) as f64 + part;
    let time_s = place * step_s;
    let (mut losses, mut cost, mut all_lost) = (0.0, time_s / HOUR_S * job.fixed_price_per_hour, 1.0);
    for (index, (group, course)) in job.servers.iter().zip(courses).enumerate() {
        let each = between(&course.losses, place);
        let sure = f64::from(u8::from(index == 0 && group.count > 0 && has_chief(job)));
        let free = f64::from(group.count) - sure;
        losses += free * each;
        let whole_s = (time_s - group.provision_s).max(0.0);
        let ran_s = if group.replaced {
            (whole_s - group.provision_s * each).max(0.0)
        } else {
            group.law.lived_s(whole_s)
        };
        cost += (free * ran_s + sure * whole_s) / HOUR_S * group.price_per_hour;
        all_lost *= if group.replaced { 0.0 } else { group.law.cdf(whole_s).powf(f64::from(group.count)) };
    }
    let chief = job.servers.iter().find(|group| group.count > 0).filter(|_| has_chief(job));
    let finishes = match chief {
        Some(group) => 1.0 - group.law.cdf(time_s - group.provision_s),
        None => 1.0 - all_lost,
    };
    Expected { time_s, losses, cost, finishes }
}
