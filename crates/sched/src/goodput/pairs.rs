//! Two nodes at a time, packed as well as their guests can be.

use bellwether_core::cluster::{NodeId, Share};

use super::Problem;
use super::hull::Tables;
use super::layout::{Layout, Row, gains};

/// What a guest may hold of both nodes.
struct Choice {
    devices: [u32; 2],
    /// By node, as bits: where it counts as the one job that spans nodes.
    spans: usize,
    row: Row,
    worth: f64,
}

/// Shares two nodes out again among their guests in the best of all ways; `false` when they have that already. What
/// guests hold of other nodes stays, unless too little would be left. Without `spanning`, a job that spans nodes keeps
/// its shares, and no other begins to.
pub(super) fn repack(
    problem: &Problem,
    tables: &Tables,
    layout: &mut Layout,
    pair: [usize; 2],
    spanning: bool,
) -> bool {
    let mut jobs: Vec<usize> = pair.iter().flat_map(|&node| layout.guests[node].iter().copied()).collect();
    jobs.retain(|&job| spanning || layout.rows[job].len() == 1);
    jobs.sort_unstable();
    jobs.dedup();
    if jobs.len() < 2 {
        return false;
    }
    let mut room = pair.map(|node| layout.free[node]);
    for share in jobs.iter().flat_map(|&job| &layout.rows[job]) {
        if let Some(side) = pair.iter().position(|&node| node == share.node.0 as usize) {
            room[side] += share.devices;
        }
    }
    let of = |&job: &usize| choices(problem, tables, layout, job, pair, room, spanning);
    let mut choices: Vec<Vec<Choice>> = jobs.iter().map(of).collect();
    let (chosen, best) = solve(&choices, room, spanning);
    let before: f64 = jobs.iter().map(|&job| layout.worths[job]).sum();
    if !gains(before, best) {
        return false;
    }
    for &job in &jobs {
        layout.lift(tables, job);
    }
    for ((job, mut choices), index) in jobs.into_iter().zip(choices.drain(..)).zip(chosen) {
        let Choice { row, worth, .. } = choices.swap_remove(index);
        layout.put(job, row, worth);
    }
    true
}

/// All that a guest may hold, and first that it holds nothing of the two nodes.
fn choices(
    problem: &Problem,
    tables: &Tables,
    layout: &Layout,
    job: usize,
    pair: [usize; 2],
    room: [u32; 2],
    spanning: bool,
) -> Vec<Choice> {
    let mut outside = layout.rows[job].clone();
    outside.retain(|share| !pair.contains(&(share.node.0 as usize)));
    let held: u32 = outside.iter().map(|share| share.devices).sum();
    let (least, most) = (problem.jobs[job].min_devices.max(1), tables.most(job));
    let mut choices: Vec<Choice> = Vec::new();
    for one in 0..=most.min(room[0]) {
        for other in 0..=most.min(room[1]) {
            let devices = [one, other];
            let count = held + one + other;
            let empty = one + other == 0;
            if (one > 0 && other > 0 && !spanning) || (!empty && !(least..=most).contains(&count)) {
                continue;
            }
            let mut row = if empty && count < least { Row::new() } else { outside.clone() };
            for (node, devices) in pair.into_iter().zip(devices).filter(|(_, devices)| *devices > 0) {
                let share = Share { node: NodeId(node as u32), devices };
                row.insert(row.partition_point(|known| known.node < share.node), share);
            }
            let spans = if row.len() > 1 { usize::from(one > 0) + 2 * usize::from(other > 0) } else { 0 };
            let worth = layout.worth_of(problem, tables, job, &row);
            // What takes no less, and is worth no more, than a choice before it is none.
            let is_no_better = |known: &Choice| {
                let takes_less = known.devices[0] <= one && known.devices[1] <= other;
                takes_less && known.spans & !spans == 0 && known.worth >= worth
            };
            if !choices.iter().any(is_no_better) {
                choices.push(Choice { devices, spans, row, worth });
            }
        }
    }
    choices
}

/// The best choice of each job together, by dynamic programming over what is used of both nodes and who spans them.
fn solve(choices: &[Vec<Choice>], room: [u32; 2], spanning: bool) -> (Vec<usize>, f64) {
    let kinds = if spanning { 4 } else { 1 };
    let width = room[1] as usize + 1;
    let states = (room[0] as usize + 1) * width * kinds;
    let place = |[one, other]: [u32; 2]| (one as usize * width + other as usize) * kinds;
    let mut best = vec![f64::NEG_INFINITY; states];
    best[0] = 0.0;
    let mut came: Vec<(u32, u32)> = vec![(0, 0); choices.len() * states];
    for (choices, came) in choices.iter().zip(came.chunks_exact_mut(states)) {
        let mut next = vec![f64::NEG_INFINITY; states];
        for one in 0..=room[0] {
            for other in 0..=room[1] {
                for kind in 0..kinds {
                    let state = place([one, other]) + kind;
                    if best[state] == f64::NEG_INFINITY {
                        continue;
                    }
                    for (index, choice) in choices.iter().enumerate() {
                        let used = [one + choice.devices[0], other + choice.devices[1]];
                        if used[0] > room[0] || used[1] > room[1] || kind & choice.spans != 0 {
                            continue;
                        }
                        let to = place(used) + (kind | choice.spans);
                        if best[state] + choice.worth > next[to] {
                            next[to] = best[state] + choice.worth;
                            came[to] = (state as u32, index as u32);
                        }
                    }
                }
            }
        }
        best = next;
    }
    let mut state = (0..states).fold(0, |most, state| if best[state] > best[most] { state } else { most });
    let worth = best[state];
    let mut chosen = vec![0; choices.len()];
    for (chosen, came) in chosen.iter_mut().zip(came.chunks_exact(states)).rev() {
        let (from, index) = came[state];
        (*chosen, state) = (index as usize, from as usize);
    }
    (chosen, worth)
}
