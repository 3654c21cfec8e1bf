//! How often runs keep deadline and budget beside what their plans promised, on recorded lifetimes of servers that the
//! plans' laws were not fitted to; what they cost beside SkyPilot's rule and beside machines on demand.
//!
//! `cargo run --release -p bellwether-sched --example kept_promises -- [RUNS] [SIGMA] [swap] [full]`
//!
//! Plans are made with the published catalogue of 2019, whose laws are CM-DARE's (396 servers, ICDCS 2020). In truth
//! each server lives as one of the dated servers of ICAC 2019 did (`data/transient`), which lived longer. With `swap`
//! it is the other way round: plans believe the dated servers, and in truth servers live by CM-DARE's laws. The run
//! is faster or slower than predicted by a factor that is log-normal with SIGMA (0.1). Deadlines are up to a tenth
//! later than 95 % of the runs of some configuration with transient machines end, which has at most half of the
//! workers that are allowed, or with `full` any number. Three ways to carry a plan out:
//!
//! - `kept`: the fleet and the keeper of the plan's word, as `run --provision` has them;
//! - `skypilot`: machines of the same kind and number, all transient; where one is lost, all are given back, as many
//!   are asked for again, and training begins at the last checkpoint, which comes as often as is best for them;
//! - `on demand`: the plan that takes no transient machine, if there is one.

#![allow(clippy::print_stdout)]

mod kept;
mod truth;

use std::error::Error;
use std::fs;
use std::path::Path;

use bellwether_core::plan::{Candidate, Market, Plan};
use bellwether_core::profile::Profile;
use bellwether_model::predict::ProfileModel;
use bellwether_sched::plan::{Catalogue, Question, plan};
use bellwether_testkit::Random;
use serde_json::json;

use truth::{Lifetimes, Outcome};

/// Samples of a virtual node, whose gradient takes a K80 so long: 4.5 steps of ResNet-32 a second.
const NODE_SAMPLES: u64 = 128;
const NODE_S: f64 = 0.22;
const NODES: u64 = 32;

/// Most workers of a run.
const WORKERS_MAX: u32 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runs: u64 = words.first().map_or(Ok(300), |word| word.parse())?;
    let sigma: f64 = words.get(1).map_or(Ok(0.1), |word| word.parse())?;
    let is_said = |word: &str| words.iter().any(|said| said == word);
    let (is_swapped, is_full) = (is_said("swap"), is_said("full"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("examples/plan/published-2019.toml"))?;
    let mut catalogue = Catalogue::read(&text, "published-2019.toml", &|_| unreachable!("it names no file"))?;
    let mut lifetimes = Lifetimes::read(&fs::read_to_string(root.join("data/transient/lifetime.csv"))?);
    if is_swapped {
        lifetimes = lifetimes.swap(&mut catalogue)?;
    }
    let mut table = Table::default();
    let mut random = Random::new(20_261_130);
    let mut seed = 0;
    while table.rows < runs {
        seed += 1;
        let wish = Wish::draw(&mut random, if is_full { WORKERS_MAX } else { WORKERS_MAX / 2 });
        let Some(plans) = planned(&catalogue, &wish, seed)? else { continue };
        let pace = (sigma * random.normal()).exp();
        let kept = kept::run(&plans.0, &lifetimes, pace, seed)?;
        let sky = truth::skypilot(&plans.0, &lifetimes, pace, seed)?;
        let firm = plans.1.as_ref().map(|firm| truth::on_demand(firm, pace));
        table.add(&plans.0, &kept, &sky, firm.as_ref());
    }
    table.print(seed, sigma, is_swapped);
    Ok(())
}

/// The plan that is carried out, and the one without transient machines.
type Plans = (Plan, Option<Plan>);

/// What is to be trained.
struct Wish {
    samples: f64,
    /// Which configuration's time is the deadline, from 0 to 1 of all, and by what factor it is later.
    place: f64,
    slack: f64,
    has_budget: bool,
    /// Workers of that configuration.
    workers_max: u32,
}

impl Wish {
    /// From 20 to 200 hours of one K80.
    fn draw(random: &mut Random, workers_max: u32) -> Wish {
        let hours = 20.0 * 10f64.powf(random.unit());
        let samples = hours * 3600.0 / NODE_S * NODE_SAMPLES as f64;
        let (place, slack) = (random.unit(), random.between(1.0, 1.1));
        Wish { samples, place, slack, has_budget: random.chance(0.5), workers_max }
    }
}

/// The plan for a wish, and the one without transient machines; `None` where the first cannot be made. Every second one
/// has a budget of a quarter more than it is expected to cost.
fn planned(catalogue: &Catalogue, wish: &Wish, seed: u64) -> Result<Option<Plans>, Box<dyn Error>> {
    let model = catalogue.speeds_of(ProfileModel::new(profile()?)?)?;
    let job = model.job();
    let question = |transient, deadline_s, budget_dollars| Question {
        deadline_s,
        budget_dollars,
        transient,
        max_workers: WORKERS_MAX,
        seed,
        runs: 400,
        ..Question::new(&job, &model, catalogue, wish.samples)
    };
    let free = plan(&question(true, None, None), catalogue, &model)?;
    let counts = |candidate: &&Candidate| candidate.has_transient() && candidate.workers <= wish.workers_max;
    let with_transient: Vec<&Candidate> = free.candidates.iter().filter(counts).collect();
    let place = (wish.place * with_transient.len() as f64) as usize;
    let Some(candidate) = with_transient.get(place) else { return Ok(None) };
    let deadline_s = Some(wish.slack * candidate.p95_time_s);
    let first = plan(&question(true, deadline_s, None), catalogue, &model)?;
    let Some(chosen) = first.chosen() else { return Ok(None) };
    // SkyPilot's rule is about transient machines of one kind.
    if chosen.machines.iter().any(|group| group.machine != chosen.machines[0].machine)
        || !chosen.has_transient()
    {
        return Ok(None);
    }
    let budget = wish.has_budget.then_some(1.25 * chosen.cost_dollars);
    let with_budget = plan(&question(true, deadline_s, budget), catalogue, &model)?;
    let firm = plan(&question(false, deadline_s, None), catalogue, &model)?;
    let firm = Some(firm).filter(|firm| firm.chosen().is_some());
    Ok(with_budget.chosen().is_some().then_some((with_budget, firm)))
}

/// A K80 with 32 virtual nodes of ResNet-32.
fn profile() -> Result<Profile, Box<dyn Error>> {
    let compute = |node: u64| {
        let after = if node > 0 { vec![node - 1] } else { vec![] };
        json!({ "name": node.to_string(), "kind": "compute", "after": after })
    };
    let mut operations: Vec<serde_json::Value> = (0..NODES).map(compute).collect();
    operations.push(json!({ "name": "send", "kind": { "upload": 0 }, "after": [NODES - 1] }));
    operations.push(json!({ "name": "update", "kind": { "update": 0 }, "after": [NODES] }));
    let mut operations_s = vec![NODE_S; NODES as usize];
    operations_s.extend([0.0, 0.001]);
    let batch = NODE_SAMPLES * NODES;
    let profile = json!({
        "version": 1, "job": "resnet-32", "source": "published", "device": "k80", "batch": batch, "virtual_nodes": NODES,
        "parameter_bytes": 7_432_000, "parts": [{ "name": "all", "bytes": 7_432_000 }], "operations": operations,
        "steps": [{ "step_s": NODE_S * NODES as f64 + 0.001, "operations_s": operations_s }],
    });
    Ok(Profile::read(&profile.to_string(), "made")?)
}

/// All runs together.
#[derive(Default)]
struct Table {
    rows: u64,
    promised: f64,
    kept: Tally,
    sky: Tally,
    firm: Tally,
    with_budget: u64,
    within_budget: u64,
    stopped: u64,
    changes: u32,
    lost: u32,
    planned_cost: f64,
}

/// One way to carry plans out.
#[derive(Default)]
struct Tally {
    runs: u64,
    met: u64,
    cost: f64,
    /// Costs of the kept way in the same runs.
    kept_cost: f64,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, kept: &Outcome) {
        self.runs += 1;
        self.met += u64::from(outcome.met);
        self.cost += outcome.cost;
        self.kept_cost += kept.cost;
    }

    /// Share that met the deadline, with Wilson's interval of 95 %.
    fn share(&self) -> String {
        let (n, p, z) = (self.runs as f64, self.met as f64 / self.runs as f64, 1.96);
        let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
        let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        format!("{:.1} % ({:.1} to {:.1})", 100.0 * p, 100.0 * (middle - half), 100.0 * (middle + half))
    }

    fn print(&self, name: &str) {
        if self.runs > 0 {
            let (cost, ratio) = (self.cost / self.runs as f64, self.cost / self.kept_cost);
            println!(
                "{name:<10} {:>4} runs, deadlines met {}, mean ${cost:.2}, {ratio:.2} times `kept`",
                self.runs,
                self.share()
            );
        }
    }
}

impl Table {
    fn add(&mut self, plan: &Plan, kept: &kept::Kept, sky: &Outcome, firm: Option<&Outcome>) {
        let Some(chosen) = plan.chosen() else { return };
        self.rows += 1;
        self.promised += chosen.meets_deadline.unwrap_or(1.0);
        self.planned_cost += chosen.cost_dollars;
        self.kept.add(&kept.outcome, &kept.outcome);
        self.sky.add(sky, &kept.outcome);
        if let Some(firm) = firm {
            self.firm.add(firm, &kept.outcome);
        }
        if let Some(budget) = plan.constraints.budget_dollars {
            self.with_budget += 1;
            self.within_budget += u64::from(kept.outcome.cost <= budget);
            self.stopped += u64::from(kept.is_stopped);
        }
        self.changes += kept.changes;
        self.lost += kept.lost;
    }

    fn print(&self, drawn: u64, sigma: f64, is_swapped: bool) {
        let rows = self.rows as f64;
        let truth = if is_swapped {
            "plans believe ICAC's servers, truth is CM-DARE's laws"
        } else {
            "plans believe CM-DARE's laws, truth is ICAC's servers"
        };
        println!("{truth}");
        println!("{} runs of {drawn} wishes, speed off by a factor exp(N(0, {sigma}²))", self.rows);
        println!(
            "promised   {:.1} % on average, planned ${:.2}",
            100.0 * self.promised / rows,
            self.planned_cost / rows
        );
        self.kept.print("kept");
        self.sky.print("skypilot");
        self.firm.print("on demand");
        println!(
            "budgets    {} of {} kept, {} runs stopped at them; {} changes of machines, {} servers lost",
            self.within_budget, self.with_budget, self.stopped, self.changes, self.lost
        );
    }
}

/// Whether machines of a group may be taken away.
fn is_transient(market: Market) -> bool {
    market == Market::Transient
}
