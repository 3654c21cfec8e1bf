//! Workers of several kinds at the same stations: exact mean-value analysis, and an approximation of it.

use bellwether_core::InputError;

use super::PLACE;
use crate::common::check;

/// Most population vectors times stations that the exact recursion keeps (8 MB).
pub const STATES_MAX: u64 = 1_000_000;

/// Change of a queue length, relative to the workers, at which the approximation has settled, ...
const SETTLED: f64 = 1e-10;

/// ... or has been given up as settled enough: it halves the change in a few rounds.
const ROUNDS_MAX: u32 = 10_000;

/// Workers of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// How many of them.
    pub workers: u32,
    /// Seconds of their step at no station.
    pub delay_s: f64,
    /// Seconds of their step at each station.
    pub demands_s: Vec<f64>,
}

/// What a network with several kinds of workers does.
#[derive(Debug, Clone, PartialEq)]
pub struct MulticlassSolution {
    /// Steps per second of each kind, all its workers together.
    pub throughput_per_s: Vec<f64>,
    /// Mean number of workers of all kinds at each station.
    pub queue_lengths: Vec<f64>,
    /// Whether it is exact, or the Bard-Schweitzer approximation.
    pub exact: bool,
}

/// Mean-value analysis of several kinds of workers: exact up to [`STATES_MAX`], approximate above.
///
/// # Errors
///
/// Same errors as [`multiclass_exact`], but for the limit.
pub fn multiclass(classes: &[Class]) -> Result<MulticlassSolution, InputError> {
    let stations = checked(classes)?;
    if states(classes, stations).is_some() {
        multiclass_exact(classes)
    } else {
        multiclass_approximate(classes)
    }
}

/// Exact mean-value analysis of several kinds of workers at stations that share their work among all present.
///
/// # Errors
///
/// Returns an error on any of these: no kind; kinds with different numbers of stations; negative seconds; a step
/// without any time; no worker at all; more population vectors than [`STATES_MAX`] allows.
pub fn multiclass_exact(classes: &[Class]) -> Result<MulticlassSolution, InputError> {
    let stations = checked(classes)?;
    let Some(states) = states(classes, stations) else {
        let what = format!("the exact recursion over these workers keeps more than {STATES_MAX} numbers");
        return Err(InputError::new(PLACE, what).hint("use the approximation"));
    };
    // A population vector is a number in mixed radix: class c counts in units of `unit[c]`.
    let mut units = Vec::with_capacity(classes.len());
    let mut unit = 1;
    for class in classes {
        units.push(unit);
        unit *= class.workers as usize + 1;
    }
    let mut queues = vec![0.0; states * stations];
    let mut throughput_per_s = vec![0.0; classes.len()];
    let mut residences_s = vec![0.0; stations];
    for state in 1..states {
        throughput_per_s.fill(0.0);
        for (c, class) in classes.iter().enumerate() {
            let population = state / units[c] % (class.workers as usize + 1);
            if population == 0 {
                continue;
            }
            // With one worker of this kind less, which is what the arriving worker sees.
            let seen = (state - units[c]) * stations;
            let mut cycle_s = class.delay_s;
            for (k, demand_s) in class.demands_s.iter().enumerate() {
                residences_s[k] = demand_s * (1.0 + queues[seen + k]);
                cycle_s += residences_s[k];
            }
            throughput_per_s[c] = population as f64 / cycle_s;
            for (k, residence_s) in residences_s.iter().enumerate() {
                queues[state * stations + k] += throughput_per_s[c] * residence_s;
            }
        }
    }
    let queue_lengths = queues[(states - 1) * stations..].to_vec();
    Ok(MulticlassSolution { throughput_per_s, queue_lengths, exact: true })
}

/// The approximation of Bard and Schweitzer: an arriving worker sees the queues of the full network, its own
/// kind's a worker shorter in proportion.
///
/// Its cost does not depend on the number of workers. It is never too high; it is exact for a lone worker and far
/// beyond the knee, and around the knee about 5 % too low with tens of workers of each kind, up to 15 % with
/// one or two.
///
/// # Errors
///
/// Same errors as [`multiclass_exact`], but for the limit.
pub fn multiclass_approximate(classes: &[Class]) -> Result<MulticlassSolution, InputError> {
    let stations = checked(classes)?;
    let workers: f64 = classes.iter().map(|class| f64::from(class.workers)).sum();
    let spread = |class: &Class| vec![f64::from(class.workers) / stations.max(1) as f64; stations];
    let mut queues: Vec<Vec<f64>> = classes.iter().map(spread).collect();
    let mut throughput_per_s = vec![0.0; classes.len()];
    for _ in 0..ROUNDS_MAX {
        let totals: Vec<f64> =
            (0..stations).map(|k| queues.iter().map(|of_class| of_class[k]).sum()).collect();
        let mut change: f64 = 0.0;
        for (c, class) in classes.iter().enumerate().filter(|(_, class)| class.workers > 0) {
            let population = f64::from(class.workers);
            let residence_s = |k: usize, own: f64| class.demands_s[k] * (1.0 + totals[k] - own / population);
            let cycle_s = class.delay_s + (0..stations).map(|k| residence_s(k, queues[c][k])).sum::<f64>();
            throughput_per_s[c] = population / cycle_s;
            for (k, queue) in queues[c].iter_mut().enumerate() {
                let next = throughput_per_s[c] * residence_s(k, *queue);
                change = change.max((next - *queue).abs());
                *queue = next;
            }
        }
        if change <= SETTLED * workers {
            break;
        }
    }
    let queue_lengths = (0..stations).map(|k| queues.iter().map(|of_class| of_class[k]).sum()).collect();
    Ok(MulticlassSolution { throughput_per_s, queue_lengths, exact: false })
}

/// Checks the classes, and returns their number of stations.
fn checked(classes: &[Class]) -> Result<usize, InputError> {
    let Some(first) = classes.first() else {
        return Err(InputError::new(PLACE, "there are no workers").hint("name at least one kind"));
    };
    let stations = first.demands_s.len();
    for (c, class) in classes.iter().enumerate() {
        let place = format!("{PLACE}, kind {c} of workers");
        if class.demands_s.len() != stations {
            let what = format!("it visits {} stations, the first kind {stations}", class.demands_s.len());
            return Err(InputError::new(place, what).hint("give 0 for stations it does not visit"));
        }
        check::negative(&place, "the delay in seconds", class.delay_s)?;
        for &demand_s in &class.demands_s {
            check::negative(&place, "a station's demand in seconds", demand_s)?;
        }
        check::not_positive(
            &place,
            "the step in seconds",
            class.delay_s + class.demands_s.iter().sum::<f64>(),
        )?;
        if class.workers > 0 {
            check::workers(&place, class.workers)?;
        }
    }
    if classes.iter().all(|class| class.workers == 0) {
        return Err(InputError::new(PLACE, "there are no workers").hint("at least one kind needs some"));
    }
    Ok(stations)
}

/// Number of population vectors, unless they are too many for the exact recursion.
fn states(classes: &[Class], stations: usize) -> Option<usize> {
    let mut states: u64 = 1;
    for class in classes {
        states = states.checked_mul(u64::from(class.workers) + 1)?;
    }
    let numbers = states.checked_mul(stations.max(1) as u64)?;
    (numbers <= STATES_MAX).then_some(states as usize)
}
