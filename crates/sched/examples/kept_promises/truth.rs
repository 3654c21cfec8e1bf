//! What really happens: how long recorded servers lived, and the two ways of others.

use std::collections::BTreeMap;
use std::error::Error;

use bellwether_core::InputError;
use bellwether_core::plan::{Candidate, Kind, Plan};
use bellwether_model::transient::{Law, best_period_s, samples};
use bellwether_sched::plan::Catalogue;
use bellwether_sched::promise::Promise;
use bellwether_testkit::Random;

use super::is_transient;

/// Regions whose names are in those of servers.
const REGIONS: [&str; 6] =
    ["us-east1", "us-central1", "us-west1", "europe-west1", "europe-west4", "asia-east1"];

/// No server lives longer.
const LIMIT_S: f64 = 86_400.0;

/// What became of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) met: bool,
    pub(super) cost: f64,
}

/// How long servers live in truth.
pub(super) enum Lifetimes {
    /// Recorded, in seconds, by device and region; a region without any has those of all.
    Recorded(BTreeMap<String, Vec<(String, f64)>>),
    /// By laws of the catalogue's machines.
    Laws(BTreeMap<String, Law>),
}

impl Lifetimes {
    /// The dated blocks of the file of ICAC 2019.
    pub(super) fn read(text: &str) -> Lifetimes {
        let mut all: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
        let mut device = String::new();
        for line in text.lines() {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            let is_title = cells.len() >= 3 && cells[1].is_empty() && !cells[0].is_empty();
            if is_title {
                device = cells[0].to_lowercase();
            }
            let [name, start, end, ..] = cells[..] else { continue };
            let (Some(start), Some(end)) = (minute(start), minute(end)) else { continue };
            if ["k80", "p100", "v100"].contains(&device.as_str()) {
                let region = REGIONS.iter().find(|region| name.contains(*region)).unwrap_or(&"");
                let lived_s = (60.0 * (end - start)).clamp(30.0, LIMIT_S);
                all.entry(device.clone()).or_default().push(((*region).to_owned(), lived_s));
            }
        }
        Lifetimes::Recorded(all)
    }

    /// Gives the recorded lifetimes of each device to the catalogue, as what plans believe, and takes its laws for the
    /// truth.
    pub(super) fn swap(self, catalogue: &mut Catalogue) -> Result<Lifetimes, InputError> {
        let Lifetimes::Recorded(recorded) = self else { return Ok(self) };
        let mut laws = BTreeMap::new();
        for machine in &mut catalogue.machines {
            let (Some(transient), Some(lived)) = (&mut machine.transient, recorded.get(&machine.device))
            else {
                continue;
            };
            let lines: Vec<String> = lived.iter().map(|(_, lived_s)| format!("{lived_s}s")).collect();
            let believed = samples(&lines.join("\n"), "recorded")?;
            transient.words = format!("lives:{}", lines.join(","));
            laws.insert(machine.name.clone(), std::mem::replace(&mut transient.law, believed));
        }
        Ok(Lifetimes::Laws(laws))
    }

    /// One of them, by chance.
    pub(super) fn draw(&self, kind: &Kind, random: &mut Random) -> f64 {
        let recorded = match self {
            Lifetimes::Recorded(recorded) => recorded,
            Lifetimes::Laws(laws) => {
                return laws.get(&kind.machine).map_or(LIMIT_S, |law| law.lifetime_s(random.unit()));
            }
        };
        let all = recorded.get(&kind.device).map_or(&[][..], Vec::as_slice);
        let here: Vec<f64> = all
            .iter()
            .filter(|(region, _)| Some(region) == kind.region.as_ref())
            .map(|(_, lived_s)| *lived_s)
            .collect();
        let any: Vec<f64> = all.iter().map(|(_, lived_s)| *lived_s).collect();
        random.pick(if here.is_empty() { &any } else { &here }).unwrap_or(LIMIT_S)
    }
}

/// Minutes since the beginning of the month, of `2/18/19 23:40` and what may follow it.
fn minute(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (date, time) = (words.next()?, words.next()?);
    let mut date = date.split('/');
    let (month, day): (f64, f64) = (date.next()?.parse().ok()?, date.next()?.parse().ok()?);
    let (hour, minute) = time.split_once(':')?;
    let minute: String = minute.chars().take_while(char::is_ascii_digit).collect();
    Some((31.0 * month + day) * 1440.0 + hour.parse::<f64>().ok()? * 60.0 + minute.parse::<f64>().ok()?)
}

/// The machines that a plan chose, with the kind of the first.
fn chosen(plan: &Plan) -> Result<(&Candidate, &Kind), InputError> {
    let wrong = || InputError::new("plan", "it chose no machines");
    let chosen = plan.chosen().ok_or_else(wrong)?;
    let kind = plan.kind(&chosen.machines[0].machine).ok_or_else(wrong)?;
    Ok((chosen, kind))
}

/// All at once, or nothing: with every loss the machines are asked for again, and training goes on from a checkpoint.
pub(super) fn skypilot(
    plan: &Plan,
    lifetimes: &Lifetimes,
    pace: f64,
    seed: u64,
) -> Result<Outcome, Box<dyn Error>> {
    let (candidate, kind) = chosen(plan)?;
    let promise = Promise::of(plan)?;
    let basis = promise.basis();
    let count: u32 = candidate.machines.iter().map(|group| group.count).sum();
    let (rate, terms) = (candidate.examples_per_s * pace, kind.transient.as_ref());
    let price = terms.map_or(0.0, |terms| terms.dollars_per_hour);
    let law = promise.law(&kind.machine).ok_or("a law")?;
    let period_s = best_period_s(law, count, basis.checkpoint_s)?.unwrap_or(f64::INFINITY);
    let deadline_s = plan.constraints.deadline_s.unwrap_or(f64::INFINITY);
    let mut random = Random::new(seed);
    let (mut now_s, mut left_s, mut cost) = (0.0, plan.samples / rate, 0.0);
    let work_s = left_s;
    while left_s > 0.0 && now_s < 20.0 * (work_s + deadline_s) {
        let lives_s = (0..count).map(|_| lifetimes.draw(kind, &mut random)).fold(f64::INFINITY, f64::min);
        // Each piece of work ends with a checkpoint, but for the last.
        let pieces = (left_s / period_s).ceil().max(1.0);
        let needs_s = kind.join_s + left_s + (pieces - 1.0) * basis.checkpoint_s;
        let ran_s = needs_s.min(lives_s);
        if lives_s < needs_s {
            let done = ((ran_s - kind.join_s).max(0.0) / (period_s + basis.checkpoint_s)).floor();
            left_s -= (done * period_s).min(left_s);
        } else {
            left_s = 0.0;
        }
        now_s += kind.provision_s + ran_s;
        cost += f64::from(count) * price * ran_s / 3600.0;
    }
    cost += basis.fixed_dollars_per_hour * now_s / 3600.0;
    Ok(Outcome { met: now_s <= deadline_s, cost })
}

/// Machines that no one takes away.
pub(super) fn on_demand(plan: &Plan, pace: f64) -> Outcome {
    let Ok((candidate, kind)) = chosen(plan) else { return Outcome { met: false, cost: 0.0 } };
    let work_s = plan.samples / (candidate.examples_per_s * pace);
    let fixed = plan.basis.as_ref().map_or(0.0, |basis| basis.fixed_dollars_per_hour);
    let end_s = kind.provision_s + kind.join_s + work_s;
    let price: f64 =
        candidate.machines.iter().map(|group| f64::from(group.count) * group.dollars_per_hour).sum();
    let cost = (price * (end_s - kind.provision_s) + fixed * end_s) / 3600.0;
    debug_assert!(candidate.machines.iter().all(|group| !is_transient(group.market)));
    Outcome { met: end_s <= plan.constraints.deadline_s.unwrap_or(f64::INFINITY), cost }
}
