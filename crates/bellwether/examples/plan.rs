//! Plans which machines to rent for a job: `cargo run --release -p bellwether --example plan`.
//!
//! It takes a profile of the job and a catalogue of what may be rented, and weighs time against money: many fast
//! machines, few cheap ones, or such as the provider may take away at any moment, for a third of the price.

#![allow(clippy::print_stdout, reason = "an example prints")]

use bellwether::plan::{Catalogue, Plan, Question, duration, plan};
use bellwether::predict::ProfileModel;
use bellwether::profile::Profile;

/// ResNet-32 on a K80: 0.22 s per step of 128 samples.
const PROFILE: &str = include_str!("../../../examples/plan/resnet32-k80.json");

/// Machines with one GPU on Google Compute Engine in 2019, with their prices and how long transient ones lived.
const CATALOGUE: &str = include_str!("../../../examples/plan/published-2019.toml");

/// The machines for 64,000 steps within `deadline_s` seconds.
pub(crate) fn machines(deadline_s: f64) -> Result<Plan, Box<dyn std::error::Error>> {
    // A catalogue may name files with measured lifetimes; this one names none.
    let catalogue = Catalogue::read(CATALOGUE, "published-2019.toml", &|file| {
        Err(bellwether::job::InputError::new(file, "no file is read here"))
    })?;
    // The profile is of a K80; the catalogue says how much faster its other devices are.
    let model = catalogue.speeds_of(ProfileModel::new(Profile::read(PROFILE, "resnet32-k80.json")?)?)?;
    let job = model.job();
    let samples = 64_000.0 * model.profile().batch as f64;
    let question = Question {
        deadline_s: Some(deadline_s),
        // In 95 of 100 runs, by simulation of as many as `runs` says.
        confidence: 0.95,
        transient: true,
        ..Question::new(&job, &model, &catalogue, samples)
    };
    Ok(plan(&question, &catalogue, &model)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = machines(2.0 * 3600.0)?;
    println!("{}", plan.reason);
    // None of these is better than another in everything. `bellwether run --plan` takes the chosen one as a file.
    for candidate in &plan.candidates {
        let machines: Vec<String> =
            candidate.machines.iter().map(|group| format!("{} x {}", group.count, group.machine)).collect();
        let (time, cost) = (duration(candidate.time_s), candidate.cost_dollars);
        println!("{:<40} {time:>10} ${cost:>6.2}", machines.join(" and "));
    }
    Ok(())
}
