//! Profiles by name, as schedulers ask for them.

use bellwether_core::prediction::{
    Configuration, DeviceGroup, JobDescription, Link, PredictError, StepModel,
};
use bellwether_core::profile::Profile;
use bellwether_model::biased::Biased;
use bellwether_model::predict::ProfileModel;
use bellwether_model::profiles::ProfiledJobs;

/// Four virtual nodes of 0.1 s, a vector of 1 MB, a link of 10 MB/s.
fn profile(network: &str) -> Profile {
    let text = format!(
        r#"{{"version":1,"job":"j","source":"s","device":"d","batch":8,"virtual_nodes":4,"parameter_bytes":1000000,
        "parts":[{{"name":"g","bytes":1000000}}],
        "operations":[{{"name":"0","kind":"compute"}},{{"name":"1","kind":"compute","after":[0]}},
          {{"name":"2","kind":"compute","after":[1]}},{{"name":"3","kind":"compute","after":[2]}},
          {{"name":"up","kind":{{"upload":0}},"after":[3]}},{{"name":"update","kind":{{"update":0}},"after":[4]}}],
        "steps":[{{"step_s":0.4,"operations_s":[0.1,0.1,0.1,0.1,0.0,0.0]}}]{network}}}"#
    );
    Profile::read(&text, "p").expect("a profile")
}

const NETWORK: &str = r#","network":{"bandwidth_bytes_per_s":1e7,"latency_s":0.0}"#;

fn jobs(network: &str) -> ProfiledJobs {
    let mut jobs = ProfiledJobs::new([("fast".to_string(), 2.0)].into());
    jobs.add("net", profile(network)).expect("a profile");
    jobs
}

fn job(model: &str) -> JobDescription {
    JobDescription { name: "n".into(), model: model.into(), batch: 1, devices: 1 }
}

fn on(device: &str, counts: &[u32], link: Link) -> Configuration {
    let group = |(node, count): (usize, &u32)| DeviceGroup {
        node: node as u32,
        device: device.into(),
        count: *count,
    };
    Configuration::synchronous(counts.iter().enumerate().map(group).collect(), 1, link)
}

fn rate(jobs: &ProfiledJobs, configuration: &Configuration) -> f64 {
    jobs.predict(&job("net"), configuration).expect("a prediction").examples_per_s
}

#[test]
fn a_cluster_without_links_has_those_of_the_profile() {
    let jobs = jobs(NETWORK);
    let model = ProfileModel::new(profile(NETWORK)).expect("a model");
    let link = Link { bandwidth_bytes_per_s: 1e7, latency_s: 0.0 };
    for workers in [1, 2, 3, 4] {
        let asked = model.predict(&model.job(), &model.configuration(workers, link)).expect("a prediction");
        // The same question gets the same answer.
        for _ in 0..2 {
            assert_eq!(rate(&jobs, &on("gpu", &[workers], Link::UNLIMITED)), asked.examples_per_s);
        }
    }
    let slow = Link { bandwidth_bytes_per_s: 1e6, latency_s: 0.0 };
    assert!(rate(&jobs, &on("gpu", &[2], slow)) < rate(&jobs, &on("gpu", &[2], link)) / 2.0);
    assert_eq!(rate(&jobs, &on("fast", &[1], link)), 2.0 * rate(&jobs, &on("gpu", &[1], link)));
}

#[test]
fn a_part_of_a_link_that_is_not_described_is_a_part_of_the_profiles() {
    let jobs = jobs(NETWORK);
    let half = Link { bandwidth_bytes_per_s: 5e6, latency_s: 0.0 };
    let on_part = |part: f64| {
        let asked = jobs.predict_on_part(&job("net"), &on("gpu", &[1, 1], Link::UNLIMITED), part);
        asked.expect("a prediction").examples_per_s
    };
    assert_eq!(on_part(1.0), rate(&jobs, &on("gpu", &[1, 1], Link::UNLIMITED)));
    assert_eq!(on_part(0.5), rate(&jobs, &on("gpu", &[1, 1], half)));
    assert!(on_part(0.5) < on_part(1.0));
    let factor = |part: f64| {
        let noisy = Biased::new(Box::new(self::jobs(NETWORK)), 0.3, 1).expect("a model");
        let wrong = noisy.predict_on_part(&job("net"), &on("gpu", &[1, 1], Link::UNLIMITED), part);
        wrong.expect("a prediction").examples_per_s / on_part(part)
    };
    assert!(factor(1.0) != 1.0 && (factor(0.1) / factor(1.0) - 1.0).abs() < 1e-12);
}

#[test]
fn what_profiles_do_not_say_is_refused() {
    let jobs = jobs("");
    assert_eq!(rate(&jobs, &on("gpu", &[1], Link::UNLIMITED)), 20.0);
    let refused = |model: &str, configuration: &Configuration| {
        jobs.predict(&job(model), configuration).expect_err("nothing is known").to_string()
    };
    assert!(refused("net", &on("gpu", &[2], Link::UNLIMITED)).contains("no measured link"));
    assert!(refused("nett", &on("gpu", &[1], Link::UNLIMITED)).contains("did you mean `net`"));
    let five =
        jobs.predict(&job("net"), &on("gpu", &[5], Link { bandwidth_bytes_per_s: 1e7, latency_s: 0.0 }));
    assert!(five.is_err_and(|why| !matches!(why, PredictError::Unknown(_))));
    let mut twice = ProfiledJobs::new(std::collections::BTreeMap::new());
    twice.add("a", profile("")).expect("the first");
    assert!(twice.add("a", profile("")).is_err());
}
