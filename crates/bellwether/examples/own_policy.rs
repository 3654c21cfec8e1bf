//! Writes a scheduling policy and compares it with built-in ones: `cargo run --release -p bellwether --example
//! own_policy`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bellwether::policy::{
    About, Decision, DecisionBuilder, FreeDevices, Policy, PolicyInput, Promises, Registry, Rule,
};
use bellwether::predict::{Law, Speedup};
use bellwether::simulate::{Cluster, ReadOptions, Report, Scenario, report, simulate, trace};

/// Jobs that want few devices go first, so that many can run. A job that has waited for `patience_s` goes before
/// them.
struct NarrowestFirst {
    patience_s: f64,
}

impl Policy for NarrowestFirst {
    /// Asked whenever a job arrives or ends, or a node goes up or down. What is not named in the decision stays as it
    /// is, so jobs that run keep their devices.
    fn decide(&mut self, input: &PolicyInput<'_>) -> Decision {
        let PolicyInput { now_s, view, .. } = *input;
        let mut waiting: Vec<_> = view.jobs.iter().filter(|(_, seen)| !seen.is_running()).collect();
        waiting.sort_by_key(|(id, seen)| {
            let is_patient = now_s - seen.job.arrival_s < self.patience_s;
            // Of equals the one that arrived first: the same view gives the same decision.
            (is_patient, if is_patient { seen.job.asked() } else { 0 }, **id)
        });
        // What is free, and the builder that places jobs there and keeps count.
        let mut free = FreeDevices::new(view);
        let mut decision = DecisionBuilder::new(&mut free);
        let mut started = 0;
        for (id, seen) in &waiting {
            started += usize::from(decision.start_on(**id, seen, seen.job.asked()));
        }
        decision.finish(Rule::Custom, waiting.len() - started, None)
    }
}

/// What the registry knows of it. The option stands after a colon: `narrowest_first:600`.
const NARROWEST_FIRST: About = About {
    name: "narrowest_first",
    idea: "jobs that ask for few devices go first, unless another has waited for too long",
    options: &[("patience", 3600.0, "seconds after which a job goes before narrower ones")],
    bad_when: "wide jobs are the urgent ones",
    gangs: true,
    needs_remaining: false,
    promises: Promises { work_conserving: true, starvation_free: false },
    make: |options| Ok(Box::new(NarrowestFirst { patience_s: options.get("patience") })),
};

/// A trace in Bellwether's own columns; `simulate_trace` reads a published one.
const TRACE: &[u8] = b"job_id,submit_time,num_gpu,duration
1,0,6,1h
2,60,6,1h
3,120,2,1h
4,180,4,30min
5,240,2,30min
6,300,1,10min
";

/// The figures of each policy.
pub(crate) fn compare() -> Result<Vec<(&'static str, Report)>, Box<dyn std::error::Error>> {
    // A daemon (`bellwether::serve`) takes such a registry too.
    let mut registry = Registry::built_in();
    registry.register(NARROWEST_FIRST)?;
    let cluster = Cluster::from_words("2x4")?;
    let jobs = trace::read(TRACE, None, &ReadOptions::default())?.entries;
    // How fast jobs are on other numbers of devices than they ask for; none of these policies gives them any.
    let model = Speedup::new(Law::Linear, cluster.device_speeds.clone())?;
    let mut reports = Vec::new();
    for name in ["fifo", "srtf", "narrowest_first", "narrowest_first:600"] {
        let (_, mut policy) = registry.parse(name)?;
        let recording =
            simulate(policy.as_mut(), &jobs, &model, &model, &Scenario::new(cluster.view.clone()))?;
        reports.push((name, report(&jobs, &recording, cluster.devices())));
    }
    Ok(reports)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (name, Report { avg_jct_s, makespan_s, .. }) in compare()? {
        println!("{name:<20} mean completion time {avg_jct_s:>6.0} s, all done after {makespan_s:>6.0} s");
    }
    Ok(())
}
