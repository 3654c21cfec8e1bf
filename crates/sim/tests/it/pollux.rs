//! Elastic jobs of measured applications under Pollux, Optimus and AFS: all end, twice the same, and batches are
//! chosen.

use std::sync::Arc;

use bellwether_core::cluster::{ClusterView, Job, Node};
use bellwether_core::prediction::JobDescription;
use bellwether_model::elastic::jobs::{Applications, FittedJobs, MeasuredJobs, Sources};
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::{Recording, Scenario, World};

macro_rules! table {
    ($name:literal, $file:literal) => {
        include_str!(concat!("../../../../data/pollux-tables/", $name, "/", $file, ".csv"))
    };
}

fn applications() -> Applications {
    let mut applications = Applications::default();
    let bert = Sources {
        placements: table!("bert", "placements"),
        scalability: table!("bert", "scalability"),
        validation: &[(12, table!("bert", "validation-12")), (96, table!("bert", "validation-96"))],
    };
    applications.add("bert", &bert, "bert").expect("the tables are sound");
    let cifar10 = Sources {
        placements: table!("cifar10", "placements"),
        scalability: table!("cifar10", "scalability"),
        validation: &[
            (128, table!("cifar10", "validation-128")),
            (1024, table!("cifar10", "validation-1024")),
        ],
    };
    applications.add("cifar10", &cifar10, "cifar10").expect("the tables are sound");
    applications
}

/// A job every two minutes, in turn of both applications.
fn entries(applications: &Applications) -> Vec<Entry> {
    let entry = |row: usize| {
        let (model, batch) = [("bert", 12), ("cifar10", 128)][row % 2];
        let description = JobDescription { name: row.to_string(), model: model.into(), batch, devices: 2 };
        let arrival_s = 120.0 * row as f64;
        let limits = Job { min_devices: 1, max_devices: 16, ..Job::rigid(description, arrival_s) };
        let job = Job { adaptive_batch: true, ..limits };
        Entry {
            job: Arc::new(job),
            work: 0.2 * applications.work(model, batch).expect("it is there"),
            is_duration: false,
            row,
        }
    };
    (0..24).map(entry).collect()
}

fn run(name: &str, applications: &Applications, entries: &[Entry]) -> Recording {
    let node = Node { device_type: 0, devices: 4, free: 4, up: true };
    let cluster = ClusterView {
        device_types: vec!["t4".into()],
        nodes: vec![node; 4],
        restart_s: 30.0,
        ..ClusterView::default()
    };
    let scenario = Scenario::new(cluster);
    let (truth, belief) = (MeasuredJobs(applications.clone()), FittedJobs(applications.clone()));
    let (_, mut policy) = Registry::built_in().parse(name).expect("the tables are sound");
    let mut world = World::new(entries, &truth, &scenario);
    drive(policy.as_mut(), &mut world, &belief).expect("the tables are sound");
    world.into_recording()
}

#[test]
fn elastic_jobs_end_twice_the_same_and_pollux_ends_them_sooner_than_arrival_order() {
    let applications = applications();
    let entries = entries(&applications);
    let mean_s = |name: &str| {
        let recording = run(name, &applications, &entries);
        assert_eq!(recording, run(name, &applications, &entries), "{name}");
        let took = recording.jobs.iter().zip(&entries).map(|(record, entry)| {
            record.end_s.unwrap_or_else(|| panic!("{name}: a job never ends")) - entry.job.arrival_s
        });
        let mean_s = took.sum::<f64>() / entries.len() as f64;
        println!("{name}: {mean_s:.0} s");
        mean_s
    };
    let fifo_s = mean_s("fifo");
    assert!(mean_s("pollux") < fifo_s);
    assert!(mean_s("optimus") > 0.0 && mean_s("afs") > 0.0);
}
