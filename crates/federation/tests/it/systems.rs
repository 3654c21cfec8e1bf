//! Small federations for the tests of their simulation.

use bellwether_federation::queue::simulation::{
    Admission, Arrivals, Class, Demand, Group, Law, Length, Priority, Simulator, Site, Summary, System,
    Target, Work, replicate,
};

/// A class of single servers that works on the first type only.
pub(crate) fn class(law: Law) -> Class {
    Class { work: Work { mean: 1.0, law }, devices: 1, speeds: vec![1.0], transfer_s: 0.0 }
}

/// Jobs of the first class.
pub(crate) fn poisson(rate_per_s: f64) -> Vec<Demand> {
    vec![Demand { class: 0, arrivals: Arrivals::Poisson { rate_per_s } }]
}

/// A site of one type and one class: arrivals per second, servers, shared ones, longest wait in seconds.
pub(crate) fn site((rate_per_s, servers, shared, longest_wait_s): (f64, u32, u32, f64)) -> Site {
    Site { groups: vec![Group { kind: 0, servers, shared }], demands: poisson(rate_per_s), longest_wait_s }
}

/// The chain's system: one class, one type, exponential work of mean 1, admission by count, no priority.
pub(crate) fn chain(sites: &[(f64, u32, u32, f64)]) -> System {
    System {
        classes: vec![class(Law::Exponential)],
        sites: sites.iter().copied().map(site).collect(),
        admission: Admission::Count,
        priority: Priority::NoOne,
    }
}

/// The grand coalition of a system, ready.
pub(crate) fn grand(system: &System, length: Length) -> Simulator {
    let members: Vec<usize> = (0..system.sites.len()).collect();
    Simulator::new(system, &members, &length).expect("a proper system")
}

/// Simulates the grand coalition until the interval of the forwarded jobs is narrower than 2 % of them.
pub(crate) fn precise(system: &System, warm_up_s: f64, measured_s: f64) -> Summary {
    let simulator = grand(system, Length::Seconds { warm_up: warm_up_s, measured: measured_s });
    let target = Target { relative: 0.0099, absolute_per_s: 0.0, least: 20, most: 400 };
    let summary = replicate(&simulator, 1, &target);
    assert!(summary.reached(&target), "{} replications are too few", summary.replications);
    summary
}
