//! Least remaining first: shortest remaining time, and shortest remaining service.
//!
//! # Idea
//!
//! At each event all jobs are sorted by the seconds that they still take (SRTF), or by those times the devices that
//! they ask for (SRSF). In this order each runs that fits into what is left; the rest wait, and are stopped for it if
//! they ran. Of equals the one that arrived first goes first.
//!
//! # Source
//!
//! Schrage, A proof of the optimality of the shortest remaining processing time discipline, Operations Research 1968;
//! for gangs of devices: Gu et al., Tiresias, NSDI 2019 (as its baselines).
//!
//! # Reads
//!
//! Remaining work and speed: of a running job its expected end, with what a restart costs; of a waiting job its speed
//! on the devices that it asks for. A job that should have ended by what is believed goes first, and one of which
//! nothing is known goes last.
//!
//! # Complexity
//!
//! With one type of device, O(widths · log n) per job that starts or stops, for that many distinct widths, and a shift
//! of at most half of the running jobs of one width. With several types, the whole order at each event: O(n log n).
//!
//! # Bad when
//!
//! Remaining times are badly known; long or wide jobs starve while shorter ones keep coming; a restart is costly.

use std::collections::BTreeMap;

use bellwether_core::cluster::{ClusterView, JobId, JobView};
use bellwether_core::policy::{Changes, Decision, Policy, PolicyInput, Promises, Rule};
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

use super::About;
use crate::decision_builder::DecisionBuilder;
use crate::free_devices::FreeDevices;
use crate::greedy::{Gangs, Place, bits, number, run_in_order};
use crate::speed::Speeds;

/// Shortest remaining time first.
pub const TIME: About = About {
    name: "srtf",
    idea: "who has the shortest remaining time runs, and stops others for it",
    options: &[],
    bad_when: "remaining times are badly known, restarts are costly, or long jobs must not starve",
    gangs: true,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |_| Ok(Box::new(Shortest::new(Measure::Time))),
};

/// Shortest remaining service first.
pub const SERVICE: About = About {
    name: "srsf",
    idea: "who has the least remaining time times devices runs, and stops others for it",
    options: &[],
    bad_when: "remaining times are badly known, restarts are costly, or wide jobs must not starve",
    gangs: true,
    needs_remaining: true,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |_| Ok(Box::new(Shortest::new(Measure::Service))),
};

/// What there should be least of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// Remaining seconds.
    Time,
    /// Remaining device-seconds.
    Service,
}

impl Measure {
    fn of(self, seconds: f64, devices: u32) -> f64 {
        match self {
            Measure::Time => seconds,
            Measure::Service => seconds * f64::from(devices),
        }
    }
}

/// Believed seconds that a waiting job takes on the devices that it asks for.
fn takes_s(speeds: &mut Speeds, model: &dyn StepModel, view: &ClusterView, seen: &JobView) -> f64 {
    let rate = speeds.asked_rate(model, view, &seen.job);
    seen.remaining.zip(rate).map_or(f64::INFINITY, |(work, rate)| work / rate)
}

/// When a running job is believed to end.
fn ends_s(seen: &JobView) -> f64 {
    seen.end_s().unwrap_or(f64::INFINITY)
}

/// The same rule, worked out from the whole view each time, for any number of device types.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WholeView {
    measure: Measure,
    board: FreeDevices,
    speeds: Speeds,
}

impl WholeView {
    /// With an empty memory.
    pub fn new(measure: Measure) -> WholeView {
        WholeView { measure, board: FreeDevices::default(), speeds: Speeds::new() }
    }
}

impl Policy for WholeView {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        self.board.follow(view, changes);
        self.speeds.follow(changes);
        let mut places: Vec<Place> = Vec::with_capacity(view.jobs.len());
        for (&id, seen) in &view.jobs {
            let seconds = match seen.is_running() {
                true => ends_s(seen) - now_s,
                false => takes_s(&mut self.speeds, model, view, seen),
            };
            places.push((bits(self.measure.of(seconds, seen.job.asked())), id));
        }
        places.sort_unstable();
        let order: Vec<JobId> = places.into_iter().map(|(_, id)| id).collect();
        let mut draft = DecisionBuilder::new(&mut self.board);
        let runs = run_in_order(view, &order, &mut draft);
        let waiting = runs.iter().filter(|runs| !**runs).count();
        draft.finish(Rule::ShortestRemaining, waiting, None)
    }
}

/// The rule, with an order that is kept from event to event where the cluster has one type of device.
///
/// Running jobs of one width lose remaining time at the same rate, so they stay in the order of their expected ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Shortest {
    whole: WholeView,
    gangs: Gangs,
    /// Of each job in `gangs` its width, whether it runs, and its place, or its mark, the bits of its expected end,
    /// when it does.
    places: BTreeMap<JobId, (u32, bool, Place)>,
    /// Started or stopped by the last decision: what is known of them then is seen in the next view.
    touched: Vec<JobId>,
}

impl Shortest {
    fn new(measure: Measure) -> Shortest {
        let (gangs, places) = (Gangs::default(), BTreeMap::new());
        Shortest { whole: WholeView::new(measure), gangs, places, touched: Vec::new() }
    }

    /// Puts a job where it belongs by the view.
    fn enter(&mut self, view: &ClusterView, model: &dyn StepModel, id: JobId) {
        let Some(seen) = view.jobs.get(&id).filter(|seen| seen.job.accepts(0)) else { return };
        let width = seen.job.asked();
        let place = if seen.is_running() {
            let mark = (bits(ends_s(seen)), id);
            self.gangs.run(width, mark);
            mark
        } else {
            let seconds = takes_s(&mut self.whole.speeds, model, view, seen);
            let place = (bits(self.whole.measure.of(seconds, width)), id);
            self.gangs.wait(width, place);
            place
        };
        self.places.insert(id, (width, seen.is_running(), place));
    }

    fn leave(&mut self, id: JobId) {
        match self.places.remove(&id) {
            Some((width, true, mark)) => self.gangs.remove_running(width, mark),
            Some((width, false, place)) => self.gangs.remove_waiting(width, place),
            None => {}
        }
    }

    fn follow(&mut self, view: &ClusterView, changes: &Changes, model: &dyn StepModel) {
        self.whole.speeds.follow(changes);
        for id in std::mem::take(&mut self.touched) {
            self.enter(view, model, id);
        }
        for id in changes.gone(view) {
            self.leave(id);
        }
        let lost = changes.lost.iter().map(|(id, _)| id);
        let all = changes.relearnt.then(|| view.jobs.keys()).into_iter().flatten();
        for &id in lost.chain(&changes.revised).chain(&changes.arrived).chain(all) {
            self.leave(id);
            self.enter(view, model, id);
        }
    }
}

impl Policy for Shortest {
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, changes, model } = *input;
        if view.device_types.len() > 1 {
            return self.whole.decide(input);
        }
        self.whole.board.follow(view, changes);
        self.follow(view, changes, model);
        let measure = self.whole.measure;
        let rule = |width: u32, (end, id): Place| (bits(measure.of(number(end) - now_s, width)), id);
        let turn = self.gangs.turn(self.whole.board.devices(0), rule);
        let mut draft = DecisionBuilder::new(&mut self.whole.board);
        for &(_, (_, id)) in &turn.stop {
            draft.stop(id, &view.jobs[&id]);
        }
        for &(width, (_, id)) in &turn.start {
            draft.start_on(id, &view.jobs[&id], width);
        }
        for (_, (_, id)) in turn.stop.iter().chain(&turn.start) {
            self.places.remove(id);
            self.touched.push(*id);
        }
        draft.finish(Rule::ShortestRemaining, self.gangs.waiting() + turn.stop.len(), None)
    }
}
