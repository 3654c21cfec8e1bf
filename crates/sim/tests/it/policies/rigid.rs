//! 480 rigid jobs on 64 devices, to the second: end times that the peers' own programs gave.

use bellwether_sched::registry::Registry;
use bellwether_sim::trace::Entry;
use bellwether_sim::world::Scenario;

use super::common::{Linear, cluster, rigid, run};

const TRACE: &str = include_str!("../../../../../data/reference-cases/rigid-480.trace.csv");
const EXPECTED: &str = include_str!("../../../../../data/reference-cases/rigid-480.expected-end-times.csv");

pub(crate) fn entries() -> Vec<Entry> {
    let row = |(index, line): (usize, &str)| {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().expect("a number")).collect();
        rigid(index, cells[1], cells[2] as u32, cells[3])
    };
    TRACE.lines().skip(1).enumerate().map(row).collect()
}

fn expected(column: &str) -> Vec<f64> {
    let names: Vec<&str> = EXPECTED.lines().next().expect("a header").split(',').collect();
    let place = names.iter().position(|name| *name == column).expect("the column is there");
    let cell = |line: &str| line.split(',').nth(place).expect("a cell").parse().expect("a number");
    EXPECTED.lines().skip(1).map(cell).collect()
}

fn check(name: &str, column: &str) {
    let (_, mut policy) = Registry::built_in().parse(name).expect("a policy");
    let recording = run(policy.as_mut(), &entries(), &Scenario::new(cluster(16, 4)), &Linear);
    let recording = recording.expect("no law is broken");
    let ends: Vec<f64> = recording.jobs.iter().map(|job| job.end_s.expect("it ended")).collect();
    let wrong: Vec<usize> = (0..ends.len()).filter(|&job| ends[job] != expected(column)[job]).collect();
    assert!(
        wrong.is_empty(),
        "{name}: {} of {} end times differ, first of job {:?}",
        wrong.len(),
        ends.len(),
        wrong.first()
    );
}

#[test]
fn strict_order_of_arrival() {
    check("fifo", "fifo");
}

#[test]
fn order_of_arrival_with_skipping() {
    check("fifo_skip", "fifo_skip");
}

#[test]
fn shortest_remaining_time() {
    check("srtf", "srtf");
}

#[test]
fn shortest_remaining_service() {
    check("srsf", "srsf");
}

#[test]
fn least_attained_time_in_queues() {
    check("las", "las_mlfq");
}

#[test]
fn least_attained_service_in_queues() {
    check("las2d", "las2d_mlfq_exact");
    check("las2d:3250,7200", "las2d_mlfq_exact");
}

/// A device that is free stands idle until the round ends, as in simulators that decide in rounds, and a first start
/// costs what it does there.
#[test]
fn rounds_and_first_starts_cost_what_they_do_elsewhere() {
    let mut scenario = Scenario::new(cluster(1, 1));
    let entries = [rigid(0, 5.0, 1, 100.0), rigid(1, 20.0, 1, 30.0), rigid(2, 300.0, 1, 10.0)];
    let ends = |scenario: &Scenario| {
        let (_, mut policy) = Registry::built_in().parse("fifo").expect("a policy");
        let recording = run(&mut *policy, &entries, scenario, &Linear).expect("they end");
        recording.jobs.iter().map(|job| job.end_s.expect("it ended")).collect::<Vec<_>>()
    };
    assert_eq!(ends(&scenario), [105.0, 135.0, 310.0]);
    // Rounds begin at the first arrival: at 5, 65, 125, ...
    scenario.round_s = Some(60.0);
    assert_eq!(ends(&scenario), [105.0, 155.0, 315.0]);
    scenario.start_s = 7.0;
    assert_eq!(ends(&scenario), [112.0, 162.0, 322.0]);
}
