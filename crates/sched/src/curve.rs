//! What a job makes of few and of many devices: its speed by their number, and what is best of it.

use std::collections::BTreeMap;

use bellwether_core::cluster::{ClusterView, Job, JobId};
use bellwether_core::policy::Changes;
use bellwether_core::prediction::StepModel;
use serde::{Deserialize, Serialize};

use crate::speed::Speeds;

/// The speed of a job on devices of one type, packed on few nodes, by their number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Work per second by devices from 0; 0 where it cannot run.
    rates: Vec<f64>,
    /// By devices from 0: the fewest up to there that are fastest; 0 for none.
    fastest: Vec<u32>,
    /// By devices from 0: the next on the upper hull of what lies beyond; 0 where no number beyond is faster.
    next_faster: Vec<u32>,
    /// By devices from 0: the number up to there that [costs](Curve::cost) least; 0 for none.
    cheapest: Vec<u32>,
    /// Work per second and device on the fewest that it runs on.
    per_device: f64,
}

impl Curve {
    /// A curve through `rates` in work per second, by devices from 0; where one is not positive it cannot run.
    ///
    /// ```
    /// use bellwether_sched::curve::Curve;
    /// let curve = Curve::new(vec![0.0, 10.0, 20.0, 30.0, 38.0, 46.0, 49.0, 50.0, 50.0]);
    /// assert_eq!((curve.fastest(8), curve.cheapest(8), curve.cheapest(4)), (7, 5, 4));
    /// assert_eq!((curve.next(0), curve.next(7), curve.next(8)), (Some(1), Some(8), None));
    /// ```
    pub fn new(rates: Vec<f64>) -> Curve {
        let least = rates.iter().position(|&rate| rate > 0.0);
        let per_device = least.map_or(0.0, |least| rates[least] / least as f64);
        let length = rates.len();
        let next_faster = upper_hull(&rates);
        let [fastest, cheapest] = [vec![0; length], vec![0; length]];
        let mut curve = Curve { rates, fastest, next_faster, cheapest, per_device };
        for devices in 1..length as u32 {
            let (mut fastest, mut cheapest) = (curve.fastest(devices - 1), curve.cheapest(devices - 1));
            if curve.rate(devices) > curve.rate(fastest) {
                fastest = devices;
            }
            if curve.cost(devices) < curve.cost(cheapest) {
                cheapest = devices;
            }
            curve.fastest[devices as usize] = fastest;
            curve.cheapest[devices as usize] = cheapest;
        }
        curve
    }

    /// Work per second; 0 where it cannot run.
    pub fn rate(&self, devices: u32) -> f64 {
        self.rates.get(devices as usize).copied().unwrap_or(0.0)
    }

    /// Of at most `devices` the fewest that are fastest; 0 when it cannot run on so few.
    pub fn fastest(&self, devices: u32) -> u32 {
        up_to(&self.fastest, devices)
    }

    /// Of at most `devices` the number that [costs](Curve::cost) least, and the fewest such; 0 when it cannot run.
    pub fn cheapest(&self, devices: u32) -> u32 {
        up_to(&self.cheapest, devices)
    }

    /// The fewest devices beyond `devices` on which it runs; the fewest at all beyond 0.
    pub fn next(&self, devices: u32) -> Option<u32> {
        (devices + 1..self.rates.len() as u32).find(|&more| self.rate(more) > 0.0)
    }

    /// The number beyond `devices`, and of at most `most`, to which the speed rises most steeply, and the fewest such;
    /// `None` when no such number is faster. A number where the speed falls, or hardly rises, before it rises again is
    /// passed over.
    ///
    /// ```
    /// use bellwether_sched::curve::Curve;
    /// let curve = Curve::new(vec![0.0, 10.0, 20.0, 30.0, 40.0, 35.0, 60.0, 62.0]);
    /// let next = [(3, 7), (4, 7), (4, 5)].map(|(from, most)| curve.next_faster(from, most));
    /// assert_eq!(next, [Some(4), Some(6), None]);
    /// ```
    pub fn next_faster(&self, devices: u32, most: u32) -> Option<u32> {
        let next = *self.next_faster.get(devices as usize)?;
        if next <= most {
            return (next > 0).then_some(next);
        }
        let within = &self.rates[..self.rates.len().min(most as usize + 1)];
        let slope = |more: &u32| slope(within, devices, *more);
        let beyond = devices + 1..within.len() as u32;
        let steepest = beyond.clone().map(|more| slope(&more)).fold(0.0, f64::max);
        beyond.clone().find(|more| slope(more) >= steepest * (1.0 - EQUAL) && slope(more) > 0.0)
    }

    /// The most devices, up to `devices`, on which it runs; 0 for none.
    pub fn usable(&self, devices: u32) -> u32 {
        let most = devices.min((self.rates.len() as u32).saturating_sub(1));
        (1..=most).rev().find(|&fewer| self.rate(fewer) > 0.0).unwrap_or(0)
    }

    /// Device-seconds that a unit of work takes on the fewest devices; infinite when it cannot run at all.
    pub fn unit_size(&self) -> f64 {
        if self.per_device > 0.0 { 1.0 / self.per_device } else { f64::INFINITY }
    }

    /// Seconds that a unit of work takes, divided by how well the devices are used compared with the fewest.
    pub fn cost(&self, devices: u32) -> f64 {
        let rate = self.rate(devices);
        // One division after the other: the square of a very small or large rate underflows or overflows.
        if rate > 0.0 { self.per_device / rate * (f64::from(devices) / rate) } else { f64::INFINITY }
    }
}

/// Slopes that differ by less, relative to the steeper, are equal: a straight line of rounded numbers has no steps.
const EQUAL: f64 = 1e-9;

/// Work per second that each device from the first number to the second adds.
fn slope(rates: &[f64], from: u32, to: u32) -> f64 {
    (rates[to as usize] - rates[from as usize]) / f64::from(to - from)
}

/// For each number of devices the next one on the upper hull of the numbers from there on; 0 where none is faster.
fn upper_hull(rates: &[f64]) -> Vec<u32> {
    let mut next = vec![0; rates.len()];
    for from in (0..rates.len() as u32).rev() {
        // What lies beyond is a hull already: along it the slope falls, so the steepest way there is found by going on
        // as long as it pays.
        let mut to = from + 1;
        if to as usize >= rates.len() {
            continue;
        }
        loop {
            let further = next[to as usize];
            let is_steeper = further > 0
                && slope(rates, from, further) > slope(rates, from, to) + EQUAL * slope(rates, to, further);
            if !is_steeper {
                break;
            }
            to = further;
        }
        if slope(rates, from, to) > 0.0 {
            next[from as usize] = to;
        }
    }
    next
}

fn up_to(table: &[u32], devices: u32) -> u32 {
    let last = table.len().saturating_sub(1);
    table.get(last.min(devices as usize)).copied().unwrap_or(0)
}

/// The curves of all jobs that are there; equal jobs share theirs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    speeds: Speeds,
    /// By kind of job, its fewest and most devices, and the types that it accepts.
    known: BTreeMap<(u32, u32, u32, Vec<u16>), u32>,
    /// One for each type of device.
    curves: Vec<Vec<Curve>>,
    of_job: BTreeMap<JobId, u32>,
}

impl Curves {
    /// Takes in the jobs that came, changed or went, and asks a model again that has learnt; says whether the curves of
    /// a job that was there before are others now.
    pub fn follow(&mut self, view: &ClusterView, changes: &Changes, model: &dyn StepModel) -> bool {
        for id in changes.gone(view) {
            self.of_job.remove(&id);
        }
        if changes.relearnt {
            *self = Curves::default();
        }
        let mut others = changes.relearnt;
        let all = changes.relearnt.then(|| view.jobs.keys()).into_iter().flatten();
        for &id in changes.arrived.iter().chain(&changes.revised).chain(all) {
            let Some(seen) = view.jobs.get(&id) else { continue };
            let place = self.place(view, &seen.job, model);
            others |= self.of_job.insert(id, place).is_some_and(|before| before != place);
        }
        others
    }

    /// Drops a job that is refused.
    pub fn forget(&mut self, id: JobId) {
        self.of_job.remove(&id);
    }

    /// The curves of a job, one for each type of device.
    ///
    /// # Panics
    ///
    /// When the job did not [come](Curves::follow).
    pub fn of(&self, id: JobId) -> &[Curve] {
        let place = self.of_job.get(&id).expect("a job in the view has arrived");
        &self.curves[*place as usize]
    }

    fn place(&mut self, view: &ClusterView, job: &Job, model: &dyn StepModel) -> u32 {
        let key = (self.speeds.kind(job), job.min_devices, job.max_devices, job.device_types.clone());
        if let Some(&place) = self.known.get(&key) {
            return place;
        }
        let types = 0..view.device_types.len() as u16;
        let curves = types.map(|device_type| self.ask(view, job, device_type, model)).collect();
        self.curves.push(curves);
        let place = self.curves.len() as u32 - 1;
        self.known.insert(key, place);
        place
    }

    fn ask(&mut self, view: &ClusterView, job: &Job, device_type: u16, model: &dyn StepModel) -> Curve {
        let of_type = view.nodes.iter().filter(|node| node.device_type == device_type);
        let devices = of_type.fold(0, |sum: u32, node| sum.saturating_add(node.devices));
        let mut rates = vec![0.0; job.min_devices.min(devices.saturating_add(1)) as usize];
        for devices in job.min_devices..=job.max_devices.min(devices) {
            let rate = self.speeds.rate(model, view, job, device_type, devices);
            rates.push(rate.filter(|rate| rate.is_finite()).unwrap_or(0.0));
        }
        Curve::new(rates)
    }
}
