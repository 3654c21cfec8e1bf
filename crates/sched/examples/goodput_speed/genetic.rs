//! The genetic algorithm that the published scheduler uses, written from its description, for one objective.

use bellwether_core::cluster::{Allocation, NodeId, Share};
use bellwether_sched::goodput::Problem;

use crate::workload::Random;

const SIZE: usize = 100;
const RESET: f64 = 0.1;
const CLEARED: f64 = 0.1;
const OFFSET: f64 = 1e-3;

/// Devices by job and node, row by row.
type Matrix = Vec<u8>;

/// What lives on from one decision to the next.
#[derive(Default)]
pub(crate) struct Population {
    jobs: Vec<usize>,
    members: Vec<(f64, Matrix)>,
}

/// What the operators look up.
struct Context {
    jobs: usize,
    nodes: usize,
    sizes: Vec<u8>,
    current: Matrix,
    most: Vec<u8>,
    least: Vec<u8>,
    /// By job, nodes and devices: reciprocal of the speed-up and its offset, with and without a restart.
    cost: Vec<[f64; 2]>,
    width: usize,
}

impl Population {
    /// Runs this many generations from the last members, or from what the jobs hold; returns the allocation of the
    /// best. `names` are the jobs' names, which carry members over.
    pub(crate) fn evolve(
        &mut self,
        problem: &Problem,
        names: &[usize],
        generations: u32,
        random: &mut Random,
    ) -> Vec<Allocation> {
        let context = Context::new(problem);
        let mut members = self.carried(&context, names);
        members.push(context.current.clone());
        let mut members: Vec<(f64, Matrix)> =
            members.into_iter().map(|member| context.rated(member, random)).collect();
        for _ in 0..generations {
            let parents = members.len();
            while members.len() < parents + SIZE {
                let (mut one, mut other) =
                    (pick(&members[..parents], random).clone(), pick(&members[..parents], random).clone());
                let point = random.below(context.jobs) * context.nodes;
                one[..point].swap_with_slice(&mut other[..point]);
                for mut child in [one, other] {
                    context.mutate(&mut child, random);
                    members.push(context.rated(child, random));
                }
            }
            // The best survive, each once.
            members.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
            members.dedup_by(|a, b| a.1 == b.1);
            members.truncate(SIZE);
        }
        let best = context.allocations(&members[0].1);
        self.jobs = names.to_vec();
        self.members = members;
        best
    }

    fn carried(&self, context: &Context, names: &[usize]) -> Vec<Matrix> {
        let places: Vec<Option<usize>> =
            names.iter().map(|name| self.jobs.iter().position(|known| known == name)).collect();
        let carry = |(_, old): &(f64, Matrix)| {
            let mut member = vec![0; context.current.len()];
            for (job, place) in places.iter().enumerate() {
                if let Some(place) = place {
                    let (to, from) = (job * context.nodes, place * context.nodes);
                    member[to..to + context.nodes].copy_from_slice(&old[from..from + context.nodes]);
                }
            }
            member
        };
        self.members.iter().map(carry).collect()
    }
}

/// The better of two.
fn pick<'a>(members: &'a [(f64, Matrix)], random: &mut Random) -> &'a Matrix {
    let (one, other) = (&members[random.below(members.len())], &members[random.below(members.len())]);
    if one.0 <= other.0 { &one.1 } else { &other.1 }
}

impl Context {
    fn new(problem: &Problem) -> Context {
        let (jobs, nodes) = (problem.jobs.len(), problem.nodes.len());
        let devices: u32 = problem.nodes.iter().sum();
        let width = devices as usize + 1;
        let mut context = Context {
            jobs,
            nodes,
            sizes: problem.nodes.iter().map(|&devices| devices as u8).collect(),
            current: vec![0; jobs * nodes],
            most: problem.jobs.iter().map(|job| job.max_devices as u8).collect(),
            least: problem.jobs.iter().map(|job| job.min_devices as u8).collect(),
            cost: vec![[1.0 / OFFSET; 2]; jobs * (nodes + 1) * width],
            width,
        };
        for (job, candidate) in problem.jobs.iter().enumerate() {
            for share in candidate.current.shares() {
                context.current[job * nodes + share.node.0 as usize] = share.devices as u8;
            }
            let age_s = candidate.age_s;
            let delay_s = problem.restart_s;
            let kept = (age_s - f64::from(candidate.restarts) * delay_s).max(0.0) / (age_s + delay_s);
            for used in 1..=nodes {
                for count in used..=(candidate.max_devices as usize).min(devices as usize) {
                    let speedup = (problem.goodput)(job, used as u32, count as u32) / candidate.fair_goodput
                        * nodes as f64
                        / f64::from(devices);
                    context.cost[(job * (nodes + 1) + used) * width + count] =
                        [1.0 / (speedup + OFFSET), 1.0 / (speedup * kept + OFFSET)];
                }
            }
        }
        context
    }

    /// Repairs a member and adds up its costs.
    fn rated(&self, mut member: Matrix, random: &mut Random) -> (f64, Matrix) {
        self.repair(&mut member, random);
        let mut sum = 0.0;
        for (job, row) in member.chunks_exact(self.nodes).enumerate() {
            let used = row.iter().filter(|&&count| count > 0).count();
            let count: usize = row.iter().map(|&count| usize::from(count)).sum();
            let changed = row != self.row(&self.current, job);
            sum += self.cost[(job * (self.nodes + 1) + used) * self.width + count][usize::from(changed)];
        }
        (sum, member)
    }

    fn row<'a>(&self, matrix: &'a Matrix, job: usize) -> &'a [u8] {
        &matrix[job * self.nodes..(job + 1) * self.nodes]
    }

    fn mutate(&self, member: &mut Matrix, random: &mut Random) {
        for job in 0..self.jobs {
            let range = job * self.nodes..(job + 1) * self.nodes;
            if random.unit() < RESET {
                member[range.clone()].copy_from_slice(&self.current[range.clone()]);
            }
            if random.unit() < CLEARED {
                member[range].iter_mut().filter(|_| random.unit() < CLEARED).for_each(|count| *count = 0);
            }
        }
        for node in 0..self.nodes {
            let places = || (0..self.jobs).map(|job| job * self.nodes + node);
            let used: u32 = places().map(|place| u32::from(member[place])).sum();
            if used >= u32::from(self.sizes[node]) {
                continue;
            }
            // A node with room is given to one job on average, and to one of those that are there already.
            let any = 1.0 / self.jobs as f64;
            let there = 1.0 / places().filter(|&place| member[place] > 0).count().max(1) as f64;
            for place in places() {
                let present = if member[place] > 0 { there } else { 0.0 };
                if random.unit() < any + present - any * present {
                    let more = usize::from(self.sizes[node].saturating_sub(member[place])) + 1;
                    member[place] += random.below(more) as u8;
                }
            }
        }
    }

    /// At most one job that spans nodes on each node, no job above its cap, no node above its devices.
    fn repair(&self, member: &mut Matrix, random: &mut Random) {
        let mut spread = vec![false; self.nodes];
        let mut order: Vec<usize> = (0..self.nodes).collect();
        let mut left = self.sizes.clone();
        for job in 0..self.jobs {
            let row = &mut member[job * self.nodes..(job + 1) * self.nodes];
            if row.iter().filter(|&&count| count > 0).count() > 1 {
                for (count, spread) in row.iter_mut().zip(&mut spread) {
                    if *count > 0 && std::mem::replace(spread, true) {
                        *count = 0;
                    }
                }
            }
            let mut room = self.most[job];
            if row.iter().map(|&count| u32::from(count)).sum::<u32>() > u32::from(room) {
                for index in (1..self.nodes).rev() {
                    order.swap(index, random.below(index + 1));
                }
                for &node in &order {
                    row[node] = row[node].min(room);
                    room -= row[node];
                }
            }
            for (count, left) in row.iter_mut().zip(&mut left) {
                *count = (*count).min(*left);
                *left -= *count;
            }
            if row.iter().map(|&count| u32::from(count)).sum::<u32>() < u32::from(self.least[job]) {
                row.fill(0);
            }
        }
    }

    fn allocations(&self, member: &Matrix) -> Vec<Allocation> {
        let share = |(node, &count): (usize, &u8)| Share { node: NodeId(node as u32), devices: count.into() };
        let row = |row: &[u8]| Allocation::new(row.iter().enumerate().map(share).collect());
        member.chunks_exact(self.nodes).map(row).collect()
    }
}
