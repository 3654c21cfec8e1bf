//! Shares of time of single jobs and of pairs that share devices.
//!
//! Notation as in [`shares`](super::shares), with `Y_ijk` for the part of their time that jobs i and j spend together
//! on devices of type k, at `T_ik g_ijk` and `T_jk g_jik` steps per second:
//!
//! ```text
//! maximise    z
//! subject to  sum_k T_jk (X_jk + sum_i g_jik Y_ijk) >= z w_j p_j / sf_j      for each job that can run
//!             sum_k (X_jk + sum_i Y_ijk) <= 1                                for each job
//!             sum_j sf_j X_jk + sum_{i<j} sf_j Y_ijk <= N_k                  for each type
//! ```
//!
//! Jobs of a kind are one class with a common row, so the program grows with kinds and not with jobs; each member of a
//! class can have the average over the class, by taking turns. Only pairs that keep more than one speed in all are
//! columns: less is no better than one after the other. The program is solved by `microlp`, to its optimum.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, SolveOptions, Variable};

use super::shares::{Job, normalised};

/// The sum of what both keep of their speeds, above which a pair is worth a column.
const LEAST_SUM: f64 = 1.0;

/// Shares below this are rounding.
const LEAST_SHARE: f64 = 1e-9;

/// A share of a type's time, of one job or of two together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The jobs by their places, the smaller first.
    pub jobs: (usize, Option<usize>),
    /// The type.
    pub kind: usize,
    /// The share of its (or both of their) time.
    pub share: f64,
}

/// Jobs that are as good as each other.
struct Class {
    members: Vec<usize>,
    /// Normalised speed by type.
    speeds: Vec<f64>,
    devices: f64,
}

/// Time that a class, or two classes together, spend on a type.
struct Column {
    classes: (usize, Option<usize>),
    kind: usize,
    /// What a unit of it is worth to the first and to the second class.
    worth: [f64; 2],
    variable: Variable,
}

/// Maximises the least `sf_j thr_j / (w_j p_j)`. `kinds` says which jobs are alike, and `kept` what the first and the
/// second of two jobs keep of their speeds on a type; only jobs of equal gangs are asked about. `None` where no pair is
/// worth a column, so that [`shares::max_min`](super::shares::max_min) says it all, and should the solver fail.
pub fn max_min(
    jobs: &[Job],
    kinds: &[u32],
    devices: &[f64],
    mut kept: impl FnMut(usize, usize, usize) -> Option<[f64; 2]>,
) -> Option<Vec<Part>> {
    let classes = classes(jobs, kinds, devices);
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let level = problem.add_var(1.0, (0.0, f64::INFINITY));
    let mut columns = Vec::new();
    let mut add = |classes: (usize, Option<usize>), kind: usize, worth: [f64; 2], problem: &mut Problem| {
        let variable = problem.add_var(0.0, (0.0, f64::INFINITY));
        columns.push(Column { classes, kind, worth, variable });
    };
    for (c, one) in classes.iter().enumerate() {
        for kind in (0..devices.len()).filter(|&kind| one.speeds[kind] > 0.0) {
            add((c, None), kind, [one.speeds[kind], 0.0], &mut problem);
            for (d, two) in classes.iter().enumerate().skip(c) {
                // Two of one class are two jobs.
                let second = if c == d { 1 } else { 0 };
                let both = one.members.first().zip(two.members.get(second));
                let (Some((&i, &j)), true) = (both, one.devices == two.devices && two.speeds[kind] > 0.0)
                else {
                    continue;
                };
                let Some([first, second]) = kept(i, j, kind) else { continue };
                if first + second > LEAST_SUM {
                    let worth = [one.speeds[kind] * first, two.speeds[kind] * second];
                    add((c, Some(d)), kind, worth, &mut problem);
                }
            }
        }
    }
    if columns.iter().all(|column| column.classes.1.is_none()) {
        return None;
    }
    bound(&mut problem, &classes, &columns, level, devices);
    let mut options = SolveOptions::default();
    options.tolerances.feasibility = 1e-9;
    let solution = problem.solve_with(options).ok()?.into_solution().ok()?;
    Some(columns.iter().flat_map(|column| parts(column, &classes, &solution)).collect())
}

/// Jobs of one kind, claim and gang, in the order of their first members.
fn classes(jobs: &[Job], kinds: &[u32], devices: &[f64]) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let mut known: Vec<(u32, Vec<u64>)> = Vec::new();
    for (place, job) in jobs.iter().enumerate() {
        let speeds = normalised(job, devices);
        let key = (kinds[place], speeds.iter().map(|speed| speed.to_bits()).collect());
        match known.iter().position(|other| *other == key) {
            Some(class) => classes[class].members.push(place),
            None => {
                known.push(key);
                classes.push(Class { members: vec![place], speeds, devices: job.devices });
            }
        }
    }
    classes
}

/// The rows.
fn bound(problem: &mut Problem, classes: &[Class], columns: &[Column], level: Variable, devices: &[f64]) {
    let at = |class: usize| {
        columns.iter().map(move |column| {
            let (first, second) = column.classes;
            let own = [first == class, second == Some(class)].map(|is| if is { 1.0 } else { 0.0 });
            let worth = own[0] * column.worth[0] + own[1] * column.worth[1];
            (column.variable, own[0] + own[1], worth)
        })
    };
    for (c, class) in classes.iter().enumerate() {
        let count = class.members.len() as f64;
        let time = at(c).filter(|(_, times, _)| *times > 0.0).map(|(variable, times, _)| (variable, times));
        problem.add_constraint(time, ComparisonOp::Le, count);
        if class.speeds.iter().any(|&speed| speed > 0.0) {
            let worth =
                at(c).filter(|(.., worth)| *worth > 0.0).map(|(variable, _, worth)| (variable, worth));
            problem.add_constraint(worth.chain([(level, -count)]), ComparisonOp::Ge, 0.0);
        }
    }
    for (kind, &count) in devices.iter().enumerate() {
        let of_kind = columns.iter().filter(|column| column.kind == kind);
        let used = of_kind.map(|column| (column.variable, classes[column.classes.0].devices));
        problem.add_constraint(used, ComparisonOp::Le, count);
    }
}

/// What a column means for the members of its classes: as much for each of a class, in as few pairs as can be.
fn parts(column: &Column, classes: &[Class], solution: &Solution) -> Vec<Part> {
    let (kind, total) = (column.kind, solution.var_value(column.variable));
    let first = &classes[column.classes.0].members;
    let count = first.len();
    let part = |i: usize, j: Option<usize>, share: f64| {
        let jobs = j.map_or((i, None), |j| (i.min(j), Some(i.max(j))));
        Part { jobs, kind, share }
    };
    if total / (count as f64) < LEAST_SHARE {
        return Vec::new();
    }
    match column.classes.1 {
        None => first.iter().map(|&i| part(i, None, total / count as f64)).collect(),
        // Each beside the next one, in a ring.
        Some(second) if second == column.classes.0 => {
            let pairs = if count == 2 { 1 } else { count };
            (0..pairs)
                .map(|at| part(first[at], Some(first[(at + 1) % count]), total / pairs as f64))
                .collect()
        }
        // Both classes cut a line of this length in equal pieces: who lies above whom is a pair for as long.
        Some(second) => {
            let second = &classes[second].members;
            let (mut i, mut j, mut at) = (0, 0, 0.0);
            let mut found = Vec::new();
            while i < first.len() && j < second.len() {
                let (own, other) = ((i + 1) * second.len(), (j + 1) * first.len());
                let end = own.min(other) as f64 / (first.len() * second.len()) as f64;
                found.push(part(first[i], Some(second[j]), total * (end - at)));
                at = end;
                i += usize::from(own <= other);
                j += usize::from(other <= own);
            }
            found
        }
    }
}
