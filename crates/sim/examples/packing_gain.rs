//! Prints what packing two jobs on a device gains, and what is lost when it is decided by predictions: `cargo run --release
//! -p bellwether-sim --example packing_gain`.

use std::error::Error;
use std::io::{Write, stdout};

use bellwether_core::cluster::{ClusterView, Node};
use bellwether_core::prediction::{Configuration, JobDescription, Prediction, StepModel};
use bellwether_des::random::shuffled;
use bellwether_model::colocation::Colocated;
use bellwether_model::throughput_table::GavelTable;
use bellwether_sched::{drive::drive, policy};
use bellwether_sim::report::{Report, report};
use bellwether_sim::trace::{ReadOptions, Trace, read};
use bellwether_sim::world::{Scenario, World};

const TRACE: &[u8] = include_bytes!("../../../data/gavel/g120.trace.tsv");
const TABLE: &[u8] = include_bytes!("../../../data/gavel/simulation_throughputs.json");

/// Speeds alone from the table, and the same part of them beside anybody.
struct Flat(GavelTable, f64);

impl StepModel for Flat {
    fn predict(&self, job: &JobDescription, configuration: &Configuration) -> Result<Prediction, String> {
        self.0.predict(job, configuration)
    }

    fn shared(
        &self,
        _: &JobDescription,
        on: &Configuration,
        _: &JobDescription,
    ) -> Result<Option<f64>, String> {
        Ok((on.workers() == 1).then_some(self.1))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let table = GavelTable::parse(TABLE, "table")?;
    let half = {
        let ranks = shuffled(26 * 26, 1);
        let kinds: Vec<String> = table.kinds("v100").map(str::to_owned).collect();
        let place = move |kind: &str| kinds.iter().position(|known| known == kind).unwrap_or(0);
        move |_: &str, [a, b]: [&str; 2]| ranks[place(a) * 26 + place(b)] % 2 == 0
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
        "| policy | belief | mean completion in s | of that without | makespan in s | preemptions | restarts |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    let policies: Vec<String> = std::env::args().skip(1).collect();
    let pairs = [("fifo_skip", "gandiva"), ("gavel_max_min", "gavel_max_min:packing=1")];
    for (without, with) in
        pairs.into_iter().filter(|(_, with)| policies.is_empty() || policies.iter().any(|p| p == with))
    {
        let plain = simulate(without, false, &table, &table)?;
        row(&mut out, without, "", &plain, &plain)?;
        for (name, belief) in &beliefs {
            row(&mut out, with, name, &simulate(with, true, &table, belief.as_ref())?, &plain)?;
        }
    }
    Ok(())
}

fn simulate(
    name: &str,
    packs: bool,
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
    let options = ReadOptions { device_types: &cluster.device_types, ..ReadOptions::default() };
    let Trace { entries, .. } = read(TRACE, None, &options)?;
    let mut scenario = Scenario::new(cluster);
    scenario.audit = true;
    let (_, mut policy) = policy::parse(name)?;
    let mut world = World::new(&entries, truth, &scenario);
    drive(policy.as_mut(), &mut world, belief)?;
    Ok(report(&entries, &world.into_recording(), 36))
}

fn row(
    out: &mut impl Write,
    policy: &str,
    belief: &str,
    found: &Report,
    plain: &Report,
) -> Result<(), Box<dyn Error>> {
    let Report { avg_jct_s, makespan_s, preemptions, restarts, finished, .. } = found;
    assert_eq!(*finished, 120.0, "every job ends");
    let ratio = avg_jct_s / plain.avg_jct_s;
    Ok(writeln!(
        out,
        "| `{policy}` | {belief} | {avg_jct_s:.0} | {ratio:.3} | {makespan_s:.0} | {preemptions} | {restarts} |"
    )?)
}
