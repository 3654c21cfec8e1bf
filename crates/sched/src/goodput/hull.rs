//! How many devices each job would get if it did not matter which devices stand together.

use super::Problem;

/// What is asked again and again: speed-ups on as few nodes as possible, and the part that survives a restart.
pub(super) struct Tables {
    /// By job and devices: worth of new devices on as few nodes as hold them.
    packed: Vec<Vec<f64>>,
    /// By devices: the fewest nodes that hold them.
    fewest: Vec<u32>,
    /// By job: the part of its speed that it keeps when its devices change.
    kept: Vec<f64>,
    /// By job: worth of what it holds.
    pub(super) held: Vec<f64>,
    /// Worth of nothing.
    pub(super) nothing: f64,
}

impl Tables {
    pub(super) fn new(problem: &Problem) -> Tables {
        let mut sizes = problem.nodes.to_vec();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut fewest = vec![0];
        for (index, &size) in sizes.iter().enumerate() {
            fewest.resize(fewest.len() + size as usize, index as u32 + 1);
        }
        let kept: Vec<f64> = (0..problem.jobs.len()).map(|job| problem.kept(job)).collect();
        let nothing = problem.worth(0.0);
        let row = |job: usize| {
            let candidate = &problem.jobs[job];
            let most = candidate.max_devices.min(problem.devices());
            let of = |devices: u32| {
                if devices < candidate.min_devices.max(1) {
                    nothing
                } else {
                    problem.worth(problem.speedup(job, fewest[devices as usize], devices) * kept[job])
                }
            };
            (0..=most).map(of).collect()
        };
        let held = |job: usize| {
            let current = &problem.jobs[job].current;
            let (nodes, devices) = (current.shares().len() as u32, current.devices());
            if devices == 0 { nothing } else { problem.worth(problem.speedup(job, nodes, devices)) }
        };
        let packed = (0..problem.jobs.len()).map(row).collect();
        let held = (0..problem.jobs.len()).map(held).collect();
        Tables { packed, fewest, kept, held, nothing }
    }

    /// The most devices that a job may be given here.
    pub(super) fn most(&self, job: usize) -> u32 {
        self.packed[job].len() as u32 - 1
    }

    /// Worth of this many new devices on as few nodes as hold them; the job may be given that many.
    pub(super) fn packed(&self, job: usize, devices: u32) -> f64 {
        self.packed[job][devices as usize]
    }

    /// Whether other devices can be worth anything to a job.
    pub(super) fn moves(&self, job: usize) -> bool {
        self.kept[job] > 0.0
    }

    /// Worth of new devices on this many nodes.
    pub(super) fn fresh(&self, problem: &Problem, job: usize, nodes: u32, devices: u32) -> f64 {
        let Some(&packed) = self.packed[job].get(devices as usize) else { return self.nothing };
        if self.fewest[devices as usize] == nodes || devices < problem.jobs[job].min_devices {
            packed
        } else {
            problem.worth(problem.speedup(job, nodes, devices) * self.kept[job])
        }
    }
}

/// Devices for each job.
pub(super) struct Counts {
    /// By job: how many.
    pub(super) devices: Vec<u32>,
    /// A sum of worths that none exceeds, as long as few nodes are faster than many.
    pub(super) worth: f64,
}

/// More devices for a job, and what each of them adds.
struct Segment {
    job: usize,
    from: u32,
    to: u32,
    slope: f64,
}

/// Counts that make most of all devices together: the relaxation of a knapsack from which each job takes one option.
pub(super) fn counts(problem: &Problem, tables: &Tables) -> Counts {
    let mut segments: Vec<Segment> =
        (0..problem.jobs.len()).flat_map(|job| hull(problem, tables, job)).collect();
    segments.sort_by(|a, b| b.slope.total_cmp(&a.slope).then(a.job.cmp(&b.job)).then(a.from.cmp(&b.from)));
    let mut left = problem.devices();
    let mut worth = tables.nothing * problem.jobs.len() as f64;
    let mut whole = true;
    let mut devices = vec![0; problem.jobs.len()];
    for Segment { job, from, to, slope } in segments {
        let taken = (to - from).min(left);
        if whole {
            worth += slope * f64::from(taken);
        }
        // The bound takes a part of the first segment that does not fit; counts go on with those that do.
        whole &= taken == to - from;
        if taken == to - from && devices[job] == from {
            devices[job] = to;
            left -= taken;
        }
    }
    Counts { devices, worth }
}

/// The upper concave hull of a job's worth over its devices, as far as it rises.
fn hull(problem: &Problem, tables: &Tables, job: usize) -> Vec<Segment> {
    let current = problem.jobs[job].current.devices();
    let mut corners: Vec<(u32, f64)> = vec![(0, tables.nothing)];
    let slope = |a: (u32, f64), b: (u32, f64)| (b.1 - a.1) / f64::from(b.0 - a.0);
    for devices in 1..=tables.most(job).max(current) {
        let fresh = tables.packed[job].get(devices as usize).copied().unwrap_or(tables.nothing);
        let worth = if devices == current { fresh.max(tables.held[job]) } else { fresh };
        let corner = (devices, worth);
        if worth <= corners.iter().fold(f64::NEG_INFINITY, |best, &(_, worth)| best.max(worth)) {
            continue;
        }
        while corners.len() > 1 {
            let [before, last] = [corners[corners.len() - 2], corners[corners.len() - 1]];
            if slope(before, last) > slope(last, corner) {
                break;
            }
            corners.pop();
        }
        corners.push(corner);
    }
    let segment =
        |pair: &[(u32, f64)]| Segment { job, from: pair[0].0, to: pair[1].0, slope: slope(pair[0], pair[1]) };
    corners.windows(2).map(segment).collect()
}
