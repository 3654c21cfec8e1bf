//! What no policy can beat on a cluster of some size: from the work of jobs alone.
//!
//! # Bounds
//!
//! ```text
//! alone_i     least seconds of job i on any devices that it may hold
//! work_i      least device-seconds of job i, those of type k counted s_k times, on any devices
//! C           devices of the cluster, those of type k counted s_k times
//!
//! span        >= max over i of arrival_i + alone_i,  and  >= arrival_j + sum over i >= j of work_i / C
//! completions >= those of the shortest remaining work first on one device of speed C (SRPT)
//! late        jobs j..i that are all done within b of their arrival but for l of them keep
//!             (sum of their work less the l largest) <= C (arrival_i + b - arrival_j)
//! ```
//!
//! The scales s_k may be any positive numbers; the relative speeds of the devices make the bounds sharp. A job that
//! moves between types needs the share f_k of its work on type k, so at least `sum f_k s_k work_ik >= min s_k work_ik`
//! of C. Lost work, restarts and machines that are away only add to that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bellwether_core::cluster::Job;
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, StepModel};

/// Devices of a job up to which all numbers are tried; nothing is said of wider ones.
const DEVICES_MAX: u32 = 1 << 16;

/// Steps of a search through windows of time: the longer the trace, the fewer windows begin.
const STEPS: usize = 200_000;

/// Most and fewest windows.
const WINDOWS: (usize, usize) = (64, 4);

/// A type of device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceType<'a> {
    /// Its name.
    pub name: &'a str,
    /// What a device of it counts.
    pub scale: f64,
    /// The most that a cluster may have.
    pub most: u32,
}

/// The least of one job.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Least {
    /// When it arrives, in seconds.
    pub arrival_s: f64,
    /// Seconds that it takes at least.
    pub alone_s: f64,
    /// Device-seconds that it takes at least, with their scales.
    pub work: f64,
}

/// A kind of job: its model, the devices that it asks for, fewest and most, its batch, and the types that it accepts.
type Kind = (String, [u32; 3], u64, Vec<u16>);

/// Finds the least of jobs; asks the model once for each kind of job.
pub struct Finder<'a> {
    types: &'a [DeviceType<'a>],
    model: &'a dyn StepModel,
    /// Seconds and device-seconds of a unit of work, by kind of job.
    kinds: BTreeMap<Kind, (f64, f64)>,
}

impl<'a> Finder<'a> {
    /// For jobs that are as fast as `model` says on these types of device, which are numbered as jobs number them.
    pub fn new(types: &'a [DeviceType<'a>], model: &'a dyn StepModel) -> Finder<'a> {
        Finder { types, model, kinds: BTreeMap::new() }
    }

    /// The least of `job` with this much work, in the units of the model; nothing where the work is not known.
    pub fn least(&mut self, job: &Job, work: Option<f64>) -> Least {
        let nothing = Least { arrival_s: job.arrival_s, ..Least::default() };
        let Some(work) = work.filter(|work| work.is_finite() && *work > 0.0 && self.model.is_by_count())
        else {
            return nothing;
        };
        let description = &job.description;
        let sizes = [description.devices, job.min_devices, job.max_devices];
        let key = (description.model.clone(), sizes, description.batch, job.device_types.clone());
        let (types, model) = (self.types, self.model);
        let (alone_s, device_s) = *self.kinds.entry(key).or_insert_with(|| of_kind(job, types, model));
        Least { alone_s: alone_s * work, work: device_s * work, ..nothing }
    }
}

/// Seconds and device-seconds of a unit of work.
fn of_kind(job: &Job, types: &[DeviceType<'_>], model: &dyn StepModel) -> (f64, f64) {
    let (mut alone_s, mut device_s) = (f64::INFINITY, f64::INFINITY);
    for (_, of_type) in (0_u16..).zip(types).filter(|(number, _)| job.accepts(*number)) {
        let most = job.max_devices.min(of_type.most);
        if most > DEVICES_MAX {
            return (0.0, 0.0);
        }
        // A job may hold more devices than it has workers: servers need some.
        let mut fastest = 0.0_f64;
        for count in 1..=most {
            let devices = vec![DeviceGroup { node: 0, device: of_type.name.to_owned(), count }];
            let configuration = Configuration::synchronous(devices, job.description.batch, Link::UNLIMITED);
            if let Ok(prediction) = model.predict(&job.description, &configuration) {
                fastest = fastest.max(prediction.examples_per_s);
            }
            if count >= job.min_devices && fastest > 0.0 {
                alone_s = alone_s.min(1.0 / fastest);
                device_s = device_s.min(of_type.scale * f64::from(count) / fastest);
            }
        }
    }
    // Where nothing is known, nothing is said: whether it runs is found out elsewhere.
    if alone_s.is_finite() { (alone_s, device_s) } else { (0.0, 0.0) }
}

/// The least of all jobs of a trace, in order of arrival.
#[derive(Debug, Clone, Default)]
pub struct Leasts {
    jobs: Vec<Least>,
    /// The work of each job and of those behind it.
    behind: Vec<f64>,
    /// From the first arrival to the end of the job that ends last if all begin at once.
    alone_span_s: f64,
}

impl Leasts {
    /// Of these jobs.
    pub fn new(jobs: Vec<Least>) -> Leasts {
        let first_s = jobs.first().map_or(0.0, |job| job.arrival_s);
        let mut behind = vec![0.0; jobs.len()];
        let mut sum = 0.0;
        for (job, behind) in jobs.iter().zip(&mut behind).rev() {
            sum += job.work;
            *behind = sum;
        }
        let alone_span_s = jobs.iter().map(|job| job.arrival_s + job.alone_s - first_s).fold(0.0, f64::max);
        Leasts { jobs, behind, alone_span_s }
    }

    /// The jobs.
    pub fn jobs(&self) -> &[Least] {
        &self.jobs
    }

    /// Seconds from the first arrival to the last end, at least, on a cluster of `capacity`.
    pub fn span_s(&self, capacity: f64) -> f64 {
        let first_s = self.jobs.first().map_or(0.0, |job| job.arrival_s);
        let of_work = self.jobs.iter().zip(&self.behind);
        let of_work = of_work.map(|(job, behind)| job.arrival_s - first_s + behind / capacity);
        of_work.fold(self.alone_span_s, f64::max)
    }

    /// The mean completion time in seconds, at least, on a cluster of `capacity`.
    ///
    /// ```
    /// use bellwether_sched::capacity::bounds::{Least, Leasts};
    /// // The short one goes first: it ends at 2, and the other one at 6.
    /// let job = |arrival_s: f64, work: f64| Least { arrival_s, alone_s: 0.0, work };
    /// let jobs = Leasts::new(vec![job(0.0, 8.0), job(0.0, 4.0)]);
    /// assert_eq!(jobs.mean_completion_s(2.0), 4.0);
    /// ```
    pub fn mean_completion_s(&self, capacity: f64) -> f64 {
        let count = self.jobs.len().max(1) as f64;
        let alone = self.jobs.iter().map(|job| job.alone_s).sum::<f64>() / count;
        alone.max(self.shortest_first_s(capacity) / count)
    }

    /// The sum of completion times where the shortest remaining work goes first, at the speed `capacity`.
    fn shortest_first_s(&self, capacity: f64) -> f64 {
        let mut waiting: BinaryHeap<Reverse<Ordered>> = BinaryHeap::new();
        let (mut now_s, mut sum_s, mut next) = (f64::MIN, 0.0, 0);
        // Each job leaves with its arrival, so that the sum is that of ends less that of arrivals.
        while next < self.jobs.len() || !waiting.is_empty() {
            if waiting.is_empty() {
                now_s = now_s.max(self.jobs[next].arrival_s);
            }
            while let Some(job) = self.jobs.get(next).filter(|job| job.arrival_s <= now_s) {
                waiting.push(Reverse(Ordered(job.work)));
                sum_s -= job.arrival_s;
                next += 1;
            }
            let Some(Reverse(Ordered(work))) = waiting.pop() else { continue };
            let end_s = now_s + work / capacity;
            match self.jobs.get(next).filter(|job| job.arrival_s < end_s) {
                Some(job) => {
                    let left = work - (job.arrival_s - now_s) * capacity;
                    waiting.push(Reverse(Ordered(left.max(0.0))));
                    now_s = job.arrival_s;
                }
                None => {
                    sum_s += end_s;
                    now_s = end_s;
                }
            }
        }
        sum_s
    }

    /// The capacity without which more than `late` jobs take longer than `within_s`, whatever a policy decides.
    ///
    /// ```
    /// use bellwether_sched::capacity::bounds::{Least, Leasts};
    /// let job = |arrival_s: f64| Least { arrival_s, alone_s: 1.0, work: 6.0 };
    /// let jobs = Leasts::new(vec![job(0.0), job(0.0), job(1.0)]);
    /// // All three within 3 s of their arrival: 18 device-seconds in 4 s; two of them: 12.
    /// assert_eq!(jobs.capacity_for(3.0, 0), 4.5);
    /// assert_eq!(jobs.capacity_for(3.0, 1), 3.0);
    /// ```
    pub fn capacity_for(&self, within_s: f64, late: usize) -> f64 {
        let count = self.jobs.len();
        let windows = (STEPS / count.max(1)).clamp(WINDOWS.1, WINDOWS.0).min(count.max(1));
        let mut needed = 0.0_f64;
        for window in 0..windows {
            let begin = window * count / windows;
            let (mut largest, mut sum) = (BinaryHeap::new(), 0.0);
            for job in &self.jobs[begin..] {
                largest.push(Reverse(Ordered(job.work)));
                if largest.len() > late
                    && let Some(Reverse(Ordered(work))) = largest.pop()
                {
                    sum += work;
                }
                let time_s = job.arrival_s + within_s - self.jobs[begin].arrival_s;
                if time_s > 0.0 {
                    needed = needed.max(sum / time_s);
                }
            }
        }
        needed
    }
}

/// A number that is not NaN, in its order.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}
