//! What a job's profile says of it on the slots.

use bellwether_core::InputError;
use bellwether_core::job::{CheckedJob, Reduce};
use bellwether_core::prediction::{Link, ProfiledRate, Protocol, StepModel};
use bellwether_core::profile::Profile;
use bellwether_model::predict::{Fidelity, ProfileModel, Question, QuestionError, SendOrder};
use bellwether_session::kind;

use crate::ledger::Task;
use crate::machine::Machine;

/// The speeds of `job` on all numbers of slots of each speed that it can have. A slot of speed 1 is taken to be as fast
/// as the device of the profile; workers are linked as the machine says, else as the profile's were.
///
/// # Errors
///
/// Returns an error for a profile of another job, or one that cannot be predicted from.
pub(super) fn rates(
    profile: &Profile,
    job: &CheckedJob,
    task: Task,
    machine: &Machine,
) -> Result<Vec<ProfiledRate>, InputError> {
    check(profile, job, task)?;
    let wrong = |error: InputError| InputError { place: format!("profile: {}", error.place), ..error };
    let sync = &job.sync;
    let phases = sync.policy.phases(job.total_steps(task.training_samples));
    let protocol = phases.first().map_or(Protocol::Bsp, |(_, protocol)| *protocol);
    let at_servers = sync.reduce == Reduce::Servers || protocol.needs_servers();
    let link = machine.link.or(profile.network.map(Link::from));
    let mut rates = Vec::new();
    let mut speeds: Vec<f64> = machine.device_types.iter().map(|device| device.speed).collect();
    speeds.sort_by(f64::total_cmp);
    speeds.dedup();
    for speed in speeds {
        let model = ProfileModel::new(profile.clone()).map_err(wrong)?;
        let model = model.with_device(&profile.device, speed).map_err(wrong)?;
        let question = Question {
            model: &model,
            link: link.unwrap_or(Link { bandwidth_bytes_per_s: f64::MAX, latency_s: 0.0 }),
            protocol,
            servers: at_servers.then_some(sync.servers.max(1)),
            reduce: None,
            devices: &[],
            batch: None,
            nodes_per_update: sync.nodes_per_update,
            fidelity: Fidelity::Coarse,
            order: SendOrder::Fifo,
            seed: 0,
        };
        // Nothing is known of several workers that nothing links.
        let most = if link.is_some() { slots(machine, speed).min(job.batch.virtual_nodes) } else { 1 };
        for workers in 1..=most {
            let answer = question.answer(workers).map_err(|error| match error {
                QuestionError::Option(error) | QuestionError::Model(error) => wrong(error),
            })?;
            let (low, high) = (answer.low, answer.high);
            let (examples_per_s, bottleneck) = (answer.examples_per_s, answer.bottleneck);
            rates.push(ProfiledRate { workers, speed, examples_per_s, low, high, bottleneck });
        }
    }
    Ok(rates)
}

/// Rates that were told by other means than a profile, if they can be.
///
/// # Errors
///
/// Returns the first that cannot.
pub(super) fn checked(rates: Vec<ProfiledRate>, virtual_nodes: u32) -> Result<Vec<ProfiledRate>, InputError> {
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    for (place, rate) in rates.iter().enumerate() {
        let ProfiledRate { workers, speed, examples_per_s, low, high, .. } = *rate;
        let place = format!("rates[{place}]");
        if !(1..=virtual_nodes).contains(&workers) {
            let what = format!("{workers} workers cannot share {virtual_nodes} virtual nodes");
            return Err(InputError::new(place, what));
        }
        let are_rates = [speed, examples_per_s, low, high].into_iter().all(is_positive);
        if !(are_rates && low <= examples_per_s && examples_per_s <= high) {
            let what = "speed and rates are finite and above 0, and a rate lies within its interval";
            return Err(InputError::new(place, what));
        }
    }
    Ok(rates)
}

/// The types of slot that can hold a worker of the job, as places in the machine's list; empty for all.
///
/// # Errors
///
/// Returns an error if none can.
pub(super) fn types_that_fit(profile: &Profile, machine: &Machine) -> Result<Vec<u16>, InputError> {
    let model = ProfileModel::new(profile.clone())?;
    let configuration = model.configuration(1, Link::UNLIMITED);
    let (mut fit, mut refused) = (Vec::new(), None);
    for (number, device) in (0..).zip(&machine.device_types) {
        let room = device.memory_bytes.map_or(f64::INFINITY, |bytes| bytes as f64);
        match model.fits(&model.job(), &configuration, room) {
            Ok(()) => fit.push(number),
            Err(why) => refused = Some(format!("no slot can hold the job; on `{}` {why}", device.name)),
        }
    }
    match refused {
        None => Ok(Vec::new()),
        Some(what) if fit.is_empty() => Err(InputError::new("profile", what)
            .hint("raise batch.virtual_nodes, or start the daemon with slots that have more memory")),
        Some(_) => Ok(fit),
    }
}

/// Refuses a profile of another job.
fn check(profile: &Profile, job: &CheckedJob, task: Task) -> Result<(), InputError> {
    match &profile.computation {
        Some(computation) => kind::check("profile", computation, &profile.job, job),
        // Of a profile of another framework, or of an earlier release, its sizes must do.
        None if profile.batch == job.batch.size && profile.parameter_bytes == task.bytes => Ok(()),
        None => Err(kind::of_another_job("profile", &profile.job)),
    }
}

/// The most slots of one type that are this fast.
fn slots(machine: &Machine, speed: f64) -> u32 {
    let view = machine.view();
    let types = (0..).zip(&machine.device_types).filter(|(_, device)| device.speed == speed);
    types.map(|(number, _)| view.devices(Some(number))).max().unwrap_or(0)
}
