//! Prints what packing two jobs on a device gains, and what is lost when it is decided by predictions: `cargo run
//! --release -p bellwether-sim --example packing_gain`.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use bellwether_core::cluster::{ClusterView, Node};
use bellwether_core::prediction::{Configuration, JobDescription, PredictError, Prediction, StepModel};
use bellwether_des::random::shuffled;
use bellwether_des::statistics::Tally;
use bellwether_model::colocation::Colocated;
use bellwether_model::throughput_table::GavelTable;
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::report::{Report, report};
use bellwether_sim::trace::{Entry, ReadOptions, Trace, read};
use bellwether_sim::world::{Scenario, World};

const TRACE: &[u8] = include_bytes!("../../../data/gavel/g120.trace.tsv");
const TABLE: &[u8] = include_bytes!("../../../data/gavel/simulation_throughputs.json");

/// Other orders of arrival of the same jobs.
const ORDERS: u64 = 20;

/// Speeds alone from the table, and the same part of them beside any other.
struct Flat(GavelTable, f64);

impl StepModel for Flat {
    fn predict(
        &self,
        job: &JobDescription,
        configuration: &Configuration,
    ) -> Result<Prediction, PredictError> {
        self.0.predict(job, configuration)
    }

    fn shared(
        &self,
        _: &JobDescription,
        on: &Configuration,
        _: &JobDescription,
    ) -> Result<Option<f64>, PredictError> {
        Ok((on.workers() == 1).then_some(self.1))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let table = GavelTable::parse(TABLE, "table")?;
    let half = {
        let ranks = shuffled(26 * 26, 1);
        let kinds: Vec<String> = table.kinds("v100").map(str::to_owned).collect();
        let place = move |kind: &str| kinds.iter().position(|known| known == kind).unwrap_or(0);
        move |_: &str, [a, b]: [&str; 2]| ranks[place(a) * 26 + place(b)].is_multiple_of(2)
    };
    let unseen = |_: &str, pair: [&str; 2]| {
        !pair.iter().any(|kind| kind.starts_with("LM") || kind.starts_with("ResNet-18"))
    };
    let beliefs: Vec<(&str, Box<dyn StepModel>)> = vec![
        ("the table, which is the truth", Box::new(table.clone())),
        ("fitted to all pairs", Box::new(Colocated::fit(table.clone(), |_, _| true)?)),
        ("fitted to half of the pairs", Box::new(Colocated::fit(table.clone(), half)?)),
        ("fitted without LM and ResNet-18", Box::new(Colocated::fit(table.clone(), unseen)?)),
        ("no interference", Box::new(Flat(table.clone(), 1.0))),
        ("everybody at half speed", Box::new(Flat(table.clone(), 0.5))),
    ];
    let mut out = stdout().lock();
    writeln!(
        out,
        "| policy | belief | mean completion in s | of that without | in other orders | makespan in s | preemptions | restarts |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let pairs = [("fifo_skip", "gandiva"), ("gavel_max_min", "gavel_max_min:packing=1")];
    for (without, with) in
        pairs.into_iter().filter(|(_, with)| asked.is_empty() || asked.iter().any(|p| p == with))
    {
        let plain: Vec<Report> = (0..=ORDERS)
            .map(|order| simulate(without, false, order, &table, &table))
            .collect::<Result<_, _>>()?;
        row(&mut out, without, "", &plain, &plain)?;
        for (name, belief) in &beliefs {
            let one = |order| simulate(with, true, order, &table, belief.as_ref());
            let found: Vec<Report> = (0..=ORDERS).map(one).collect::<Result<_, _>>()?;
            row(&mut out, with, name, &found, &plain)?;
        }
    }
    Ok(())
}

/// The jobs of the trace in this order of arrival: 0 is its own, others are shuffled.
fn entries(order: u64, device_types: &[String]) -> Result<Vec<Entry>, Box<dyn Error>> {
    let options = ReadOptions { device_types, ..ReadOptions::default() };
    let Trace { mut entries, .. } = read(TRACE, None, &options)?;
    if order > 0 {
        let arrivals_s: Vec<f64> = entries.iter().map(|entry| entry.job.arrival_s).collect();
        entries = shuffled(entries.len(), order).into_iter().map(|place| entries[place].clone()).collect();
        for (entry, arrival_s) in entries.iter_mut().zip(arrivals_s) {
            Arc::make_mut(&mut entry.job).arrival_s = arrival_s;
        }
    }
    Ok(entries)
}

fn simulate(
    name: &str,
    packs: bool,
    order: u64,
    truth: &GavelTable,
    belief: &dyn StepModel,
) -> Result<Report, Box<dyn Error>> {
    let nodes = (0..3).flat_map(|device_type| vec![Node { device_type, devices: 4, free: 4, up: true }; 3]);
    let cluster = ClusterView {
        device_types: ["v100", "p100", "k80"].map(str::to_owned).to_vec(),
        nodes: nodes.collect(),
        packs,
        ..ClusterView::default()
    };
    let entries = entries(order, &cluster.device_types)?;
    let mut scenario = Scenario::new(cluster);
    scenario.audit = true;
    let (_, mut policy) = Registry::built_in().parse(name)?;
    let mut world = World::new(&entries, truth, &scenario);
    drive(policy.as_mut(), &mut world, belief)?;
    let found = report(&entries, &world.into_recording(), 36);
    assert_eq!(found.finished, 120.0, "every job ends");
    Ok(found)
}

/// The trace itself, and the mean ratio over the other orders with its standard error.
fn row(
    out: &mut impl Write,
    policy: &str,
    belief: &str,
    found: &[Report],
    plain: &[Report],
) -> Result<(), Box<dyn Error>> {
    let Report { avg_jct_s, makespan_s, preemptions, restarts, .. } = &found[0];
    let mut ratios = Tally::new();
    let ratio = |place: usize| found[place].avg_jct_s / plain[place].avg_jct_s;
    (1..found.len()).for_each(|place| ratios.add(ratio(place)));
    let (own, mean, error) =
        (ratio(0), ratios.mean(), ratios.variance().sqrt() / (found.len() as f64 - 1.0).sqrt());
    Ok(writeln!(
        out,
        "| `{policy}` | {belief} | {avg_jct_s:.0} | {own:.3} | {mean:.3} ± {error:.3} | {makespan_s:.0} | {preemptions} | {restarts} |"
    )?)
}
