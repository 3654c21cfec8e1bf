//! Footprints in memory, from which pairs had room and which had not.

use super::Pair;

/// How sharp the threshold is: at this much above it one pair in four still fits.
const WIDTH: f64 = 0.05;

/// Where a footprint is expected of which no pair tells.
const USUAL: f64 = 0.4;

/// How far footprints lie from there.
const DEVIATION: f64 = 0.3;

/// Rounds over all jobs.
const SWEEPS: u32 = 60;

/// The longest step of one round.
const LONGEST_STEP: f64 = 0.1;

/// The footprint of each job.
pub(super) fn fit(jobs: usize, pairs: &[Pair]) -> Vec<f64> {
    let mut seen = vec![Vec::new(); jobs];
    for pair in pairs {
        let ([a, b], fitted) = (pair.jobs, pair.shares.is_some());
        seen[a].push((b, fitted));
        if a != b {
            seen[b].push((a, fitted));
        }
    }
    let mut footprints = vec![USUAL; jobs];
    for _ in 0..SWEEPS {
        for job in 0..jobs {
            let others = seen[job].iter().map(|&(other, fitted)| {
                // Two of a kind take twice its own.
                let times = if other == job { 2.0 } else { 1.0 };
                (footprints[other], fitted, times)
            });
            footprints[job] += change(footprints[job], others, USUAL);
        }
    }
    footprints
}

/// The footprint of one job, beside others whose footprints are known; `usual` where these say nothing.
pub(super) fn of_one(usual: f64, seen: &[(f64, bool)]) -> f64 {
    let mut footprint = usual;
    for _ in 0..SWEEPS {
        footprint += change(footprint, seen.iter().map(|&(other, fitted)| (other, fitted, 1.0)), usual);
    }
    footprint
}

/// A Newton step: the cost is convex.
fn change(own: f64, seen: impl Iterator<Item = (f64, bool, f64)>, usual: f64) -> f64 {
    let strength = 1.0 / (DEVIATION * DEVIATION);
    let (mut slope, mut curvature) = ((own - usual) * strength, strength);
    for (other, fitted, times) in seen {
        let room = 1.0 / (1.0 + libm::exp((own + other - 1.0) / WIDTH));
        slope += times / WIDTH * if fitted { 1.0 - room } else { -room };
        curvature += times * times * room * (1.0 - room) / (WIDTH * WIDTH);
    }
    (-slope / curvature).clamp(-LONGEST_STEP, LONGEST_STEP)
}
