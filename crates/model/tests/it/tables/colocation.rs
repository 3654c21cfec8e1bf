//! Pairs of jobs that shared a device (Gavel's table), held out by pair and by model, and the rules that foresee them.

use bellwether_des::{Streams, random::shuffled};
use bellwether_model::colocation::{Demand, Newcomers, Pair, Probe, fit, probed, profile, share};
use bellwether_model::throughput_table::GavelTable;

/// Types of device with pairs.
pub const DEVICES: [&str; 3] = ["k80", "p100", "v100"];

/// Parts that pairs are held out in.
const FOLDS: usize = 10;

const RESAMPLES: u32 = 2_000;

/// All pairs on one type of device.
pub struct Measured {
    pub kinds: Vec<String>,
    pub profiles: Vec<Vec<f64>>,
    pub pairs: Vec<Pair>,
}

pub fn table() -> GavelTable {
    GavelTable::parse(super::data!("gavel/simulation_throughputs.json").as_bytes(), "gavel")
        .expect("it is a table")
}

pub fn measured(device: &str) -> Measured {
    let table = table();
    let kinds: Vec<String> = table.kinds(device).map(str::to_owned).collect();
    let mut pairs = Vec::new();
    for first in 0..kinds.len() {
        for second in first..kinds.len() {
            let shares =
                table.kept(device, [&kinds[first], &kinds[second]], 1).expect("all pairs were measured");
            pairs.push(Pair { jobs: [first, second], shares });
        }
    }
    let profiles = kinds.iter().map(|kind| profile(&table, kind)).collect();
    Measured { kinds, profiles, pairs }
}

/// `Transformer` of `Transformer (batch size 32)`.
pub fn model_of(kind: &str) -> &str {
    kind.split(" (").next().unwrap_or(kind)
}

/// How slowdowns are foreseen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// No job is slowed down.
    NoInterference,
    /// All jobs are slowed down as the training pairs are on average.
    Mean,
    /// Each job suffers so much and causes so much, and the logarithms add.
    Additive,
    /// The model, with this many resources.
    Demands(usize),
}

/// Errors by group: what is drawn together again.
#[derive(Default)]
pub struct Errors(pub Vec<Vec<f64>>);

impl Errors {
    pub fn all(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.0.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        all
    }

    pub fn mean(&self) -> f64 {
        let all = self.all();
        all.iter().sum::<f64>() / all.len() as f64
    }

    pub fn quantile(&self, part: f64) -> f64 {
        let all = self.all();
        all[((all.len() - 1) as f64 * part).round() as usize]
    }

    /// 95 % interval of the mean, by drawing groups again.
    pub fn interval(&self) -> (f64, f64) {
        let mut means = resampled(self.0.len(), |groups| self.mean_of(groups));
        means.sort_by(f64::total_cmp);
        (means[means.len() / 40], means[means.len() - 1 - means.len() / 40])
    }

    /// The part of the resamples in which the mean is less than that of `other`, of the same groups.
    pub fn beats(&self, other: &Errors) -> f64 {
        let wins = resampled(self.0.len(), |groups| {
            f64::from(u8::from(self.mean_of(groups) < other.mean_of(groups)))
        });
        wins.iter().sum::<f64>() / wins.len() as f64
    }

    fn mean_of(&self, groups: &[usize]) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0);
        for error in groups.iter().flat_map(|&group| &self.0[group]) {
            sum += error;
            count += 1.0;
        }
        sum / f64::max(count, 1.0)
    }
}

fn resampled(groups: usize, mut of: impl FnMut(&[usize]) -> f64) -> Vec<f64> {
    let mut stream = Streams::new(9).stream("resamples", 0);
    (0..RESAMPLES).map(|_| of(&(0..groups).map(|_| stream.below(groups)).collect::<Vec<usize>>())).collect()
}

/// The part of each pair: as many in each, at random.
pub fn folds(pairs: usize) -> Vec<usize> {
    let mut parts = vec![0; pairs];
    shuffled(pairs, 7).into_iter().enumerate().for_each(|(rank, pair)| parts[pair] = rank % FOLDS);
    parts
}

/// The two errors of a pair: of the slowdown of each, relative to what was measured.
fn errors(pair: &Pair, foreseen: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let Some([first, second]) = pair.shares else { return Vec::new() };
    let [a, b] = pair.jobs;
    let error = |slowdown: f64, share: f64| (slowdown * share - 1.0).abs();
    let mut found = vec![error(foreseen(a, b), first)];
    if a != b {
        found.push(error(foreseen(b, a), second));
    }
    found
}

/// Slowdowns on training pairs, of the first beside the second.
fn slowdowns(pairs: &[&Pair]) -> Vec<(usize, usize, f64)> {
    let of = |pair: &&Pair| {
        let ([a, b], Some([first, second])) = (pair.jobs, pair.shares) else { return Vec::new() };
        let own = (a, b, 1.0 / first);
        if a == b { vec![own] } else { vec![own, (b, a, 1.0 / second)] }
    };
    pairs.iter().flat_map(of).collect()
}

/// A rule that was trained on pairs of `jobs` jobs.
pub fn trained(rule: Rule, jobs: usize, pairs: &[&Pair]) -> Box<dyn Fn(usize, usize) -> f64> {
    match rule {
        Rule::NoInterference => Box::new(|_, _| 1.0),
        Rule::Mean => {
            let seen = slowdowns(pairs);
            let mean = seen.iter().map(|(_, _, slowdown)| slowdown).sum::<f64>() / seen.len() as f64;
            Box::new(move |_, _| mean)
        }
        Rule::Additive => additive(jobs, &slowdowns(pairs)),
        Rule::Demands(resources) => {
            let owned: Vec<Pair> = pairs.iter().map(|pair| **pair).collect();
            let demands = fit(jobs, &owned, resources).expect("the pairs are sound");
            Box::new(move |a, b| 1.0 / share(&demands[a], &demands[b]))
        }
    }
}

/// `log slowdown = middle + suffers_a + causes_b`, each effect worth one slowdown less than it has.
fn additive(jobs: usize, seen: &[(usize, usize, f64)]) -> Box<dyn Fn(usize, usize) -> f64> {
    let middle = seen.iter().map(|(_, _, slowdown)| slowdown.ln()).sum::<f64>() / seen.len() as f64;
    let (mut suffers, mut causes) = (vec![0.0; jobs], vec![0.0; jobs]);
    for _ in 0..50 {
        suffers = effects(jobs, seen.iter().map(|&(a, b, s)| (a, s.ln() - middle - causes[b])));
        causes = effects(jobs, seen.iter().map(|&(a, b, s)| (b, s.ln() - middle - suffers[a])));
    }
    Box::new(move |a, b| (middle + suffers[a] + causes[b]).exp())
}

fn effects(jobs: usize, rest: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
    let mut sums = vec![(0.0, 1.0); jobs];
    for (job, rest) in rest {
        sums[job].0 += rest;
        sums[job].1 += 1.0;
    }
    sums.into_iter().map(|(sum, count)| sum / count).collect()
}

/// Errors on pairs that were held out; a group is a pair.
pub fn by_pair(measured: &Measured, rule: Rule) -> Errors {
    let parts = folds(measured.pairs.len());
    let mut found = Errors::default();
    for part in 0..FOLDS {
        let split = |held: bool| {
            let pairs = measured.pairs.iter().zip(&parts);
            pairs.filter(move |(_, of)| (**of == part) == held).map(|(pair, _)| pair).collect::<Vec<_>>()
        };
        let foreseen = trained(rule, measured.kinds.len(), &split(false));
        found.0.extend(split(true).into_iter().map(|pair| errors(pair, &foreseen)));
    }
    found.0.retain(|group| !group.is_empty());
    found
}

/// A model that was held out, with all its batch sizes.
pub struct Unseen<'a> {
    pub measured: &'a Measured,
    /// Kinds of it.
    pub new: Vec<usize>,
    /// The others, and what they demand.
    pub known: Vec<usize>,
    pub demands: Vec<Demand>,
    /// What is expected of each of `new` by its speeds alone.
    pub expected: Vec<Demand>,
}

/// Each model held out in turn.
pub fn unseen(measured: &Measured, resources: usize) -> Vec<Unseen<'_>> {
    let mut models: Vec<&str> = measured.kinds.iter().map(|kind| model_of(kind)).collect();
    models.dedup();
    let one = |model: &str| {
        let is_new = |job: &usize| model_of(&measured.kinds[*job]) == model;
        let (new, known): (Vec<usize>, Vec<usize>) = (0..measured.kinds.len()).partition(is_new);
        let place = |job: usize| known.binary_search(&job).ok();
        let inner = |pair: &Pair| {
            let [Some(a), Some(b)] = pair.jobs.map(place) else { return None };
            Some(Pair { jobs: [a, b], ..*pair })
        };
        let pairs: Vec<Pair> = measured.pairs.iter().filter_map(inner).collect();
        let demands = fit(known.len(), &pairs, resources).expect("the pairs are sound");
        let profiles: Vec<Vec<f64>> = known.iter().map(|&job| measured.profiles[job].clone()).collect();
        let newcomers = Newcomers::fit(&demands, &profiles).expect("profiles are sound");
        let expected = new.iter().map(|&job| newcomers.expect(&measured.profiles[job])).collect();
        Unseen { measured, new, known, demands, expected }
    };
    models.into_iter().map(one).collect()
}

impl Unseen<'_> {
    /// The pair of two jobs.
    fn pair(&self, a: usize, b: usize) -> &Pair {
        let jobs = [a.min(b), a.max(b)];
        self.measured.pairs.iter().find(|pair| pair.jobs == jobs).expect("all pairs were measured")
    }

    /// Known jobs beside which each new one is measured: those that press hardest on each resource in turn and are
    /// expected to have room.
    pub fn probes(&self, count: usize) -> Vec<Vec<usize>> {
        let of = |expected: &Demand| {
            let mut chosen: Vec<usize> = Vec::new();
            for turn in 0..count {
                let resource = turn % expected.pressure.len();
                let open = (0..self.known.len())
                    .filter(|place| !chosen.contains(place) && expected.fits(&self.demands[*place]));
                let pressure = |place: &usize| self.demands[*place].pressure[resource];
                chosen.extend(open.max_by(|a, b| pressure(a).total_cmp(&pressure(b))));
            }
            chosen
        };
        self.expected.iter().map(of).collect()
    }

    /// The demands of all kinds of job, those of the new ones after these probes.
    pub fn demands(&self, probes: &[Vec<usize>]) -> Vec<Demand> {
        let mut all = vec![None; self.measured.kinds.len()];
        for (&job, demand) in self.known.iter().zip(&self.demands) {
            all[job] = Some(demand.clone());
        }
        for ((&job, expected), probes) in self.new.iter().zip(&self.expected).zip(probes) {
            let seen = |&place: &usize| {
                let pair = self.pair(job, self.known[place]);
                let ordered = |[a, b]: [f64; 2]| if pair.jobs[0] == job { [a, b] } else { [b, a] };
                Probe { beside: &self.demands[place], shares: pair.shares.map(ordered) }
            };
            all[job] = Some(probed(expected, &probes.iter().map(seen).collect::<Vec<_>>()));
        }
        all.into_iter().map(|demand| demand.expect("a job is known or new")).collect()
    }

    /// Pairs with a new job that were no probes, and the pairs that a rule may learn from.
    fn split(&self, probes: &[Vec<usize>]) -> (Vec<&Pair>, Vec<&Pair>) {
        let is_new = |job: &usize| self.new.contains(job);
        let is_probe = |pair: &Pair| {
            self.new.iter().zip(probes).any(|(&job, probes)| {
                probes.iter().any(|&place| self.pair(job, self.known[place]).jobs == pair.jobs)
            })
        };
        let is_held = |pair: &&Pair| pair.jobs.iter().any(is_new) && !is_probe(pair);
        self.measured.pairs.iter().partition(is_held)
    }

    /// Errors of a rule on the held pairs.
    pub fn errors(&self, rule: Rule, probes: &[Vec<usize>]) -> Vec<f64> {
        let (held, open) = self.split(probes);
        let foreseen: Box<dyn Fn(usize, usize) -> f64> = match rule {
            Rule::Demands(_) => {
                let demands = self.demands(probes);
                Box::new(move |a, b| 1.0 / share(&demands[a], &demands[b]))
            }
            other => trained(other, self.measured.kinds.len(), &open),
        };
        held.into_iter().flat_map(|pair| errors(pair, &foreseen)).collect()
    }
}

/// Errors on models that were held out, after `probes` probes of each of their jobs; a group is a model.
pub fn by_model(measured: &Measured, rule: Rule, probes: usize) -> Errors {
    let resources = if let Rule::Demands(resources) = rule { resources } else { 3 };
    Errors(
        unseen(measured, resources)
            .iter()
            .map(|unseen| unseen.errors(rule, &unseen.probes(probes)))
            .collect(),
    )
}

/// How well it is foreseen who has no room beside whom.
#[derive(Default, Clone, Copy, Debug, PartialEq)]
pub struct Rooms {
    pub pairs: u32,
    /// Pairs that had no room, and how many of them were foreseen.
    pub none: u32,
    pub none_foreseen: u32,
    /// Pairs that had room and were foreseen to have none.
    pub wrongly_refused: u32,
}

impl Rooms {
    pub fn accuracy(&self) -> f64 {
        let wrong = self.none - self.none_foreseen + self.wrongly_refused;
        1.0 - f64::from(wrong) / f64::from(self.pairs)
    }

    /// Accuracy of a rule that says that all have room.
    pub fn base_rate(&self) -> f64 {
        1.0 - f64::from(self.none) / f64::from(self.pairs)
    }

    fn count(&mut self, pair: &Pair, fits: bool) {
        self.pairs += 1;
        self.none += u32::from(pair.shares.is_none());
        self.none_foreseen += u32::from(pair.shares.is_none() && !fits);
        self.wrongly_refused += u32::from(pair.shares.is_some() && !fits);
    }
}

pub fn rooms_by_pair(measured: &Measured) -> Rooms {
    let parts = folds(measured.pairs.len());
    let mut rooms = Rooms::default();
    for part in 0..FOLDS {
        let open = measured.pairs.iter().zip(&parts).filter(|(_, of)| **of != part);
        let open: Vec<Pair> = open.map(|(pair, _)| *pair).collect();
        let demands = fit(measured.kinds.len(), &open, 1).expect("the pairs are sound");
        for (pair, _) in measured.pairs.iter().zip(&parts).filter(|(_, of)| **of == part) {
            rooms.count(pair, demands[pair.jobs[0]].fits(&demands[pair.jobs[1]]));
        }
    }
    rooms
}

pub fn rooms_by_model(measured: &Measured, probes: usize) -> Rooms {
    let mut rooms = Rooms::default();
    for unseen in unseen(measured, 3) {
        let probes = unseen.probes(probes);
        let demands = unseen.demands(&probes);
        for pair in unseen.split(&probes).0 {
            rooms.count(pair, demands[pair.jobs[0]].fits(&demands[pair.jobs[1]]));
        }
    }
    rooms
}
