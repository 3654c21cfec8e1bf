//! Jobs of PyTorch and TensorFlow, predicted by the command from one process and compared with what several did
//! (`data/frameworks`). A change of a model that makes these predictions worse fails here.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::harness::Scene;

/// Mean and worst error in percent, and the share of measurements within their intervals, of PyTorch's jobs when they
/// were predicted (`docs/accuracy.md`) ...
const DDP: (f64, f64, f64) = (3.84, 12.87, 1.0);

/// ... and of TensorFlow's.
const SERVERS: (f64, f64, f64) = (8.25, 27.5, 0.92);

/// One kept measurement.
struct Point {
    job: String,
    link: String,
    workers: String,
    measured: f64,
}

fn folder() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/frameworks").to_string()
}

fn points(framework: &str) -> Vec<Point> {
    let text = std::fs::read_to_string(folder() + "/predicted.csv").expect("the kept table");
    let point = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let [job, link, workers, _, _, _, measured] = cells[..] else { panic!("seven columns: {line}") };
        let measured = measured.trim().parse().expect("a number");
        Point { job: job.into(), link: link.into(), workers: workers.into(), measured }
    };
    text.lines().skip(1).map(point).filter(|point| point.job.starts_with(framework)).collect()
}

/// Mean and worst absolute error in percent, and the share of measurements within the intervals, of all points.
fn score(framework: &str, how: &[&str]) -> (f64, f64, f64) {
    let scene = Scene::new("");
    let mut profiles: BTreeMap<String, String> = BTreeMap::new();
    let (mut errors, mut held) = (Vec::new(), 0.0);
    for point in points(framework) {
        let name = format!("{}-{}", point.job, point.link);
        let profile = profiles.entry(name.clone()).or_insert_with(|| {
            let trace = format!("{}/traces/{}.json.gz", folder(), point.job);
            let apart = format!("{}/apart/{name}.json", folder());
            let file = format!("{name}.json");
            let ended = scene.call(&["profile", "--import", &trace, "--apart", &apart, "-o", &file]);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            file
        });
        let workers = format!("{0}..{0}", point.workers);
        let asked = ["predict", profile, "--workers", &workers, "--format", "json"];
        let ended = scene.call(&[&asked, how].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let answer = &said[0];
        let number = |key: &str| answer[key].as_f64().expect("a number");
        errors.push(100.0 * (number("examples_per_s") / point.measured - 1.0).abs());
        held += f64::from(u8::from(number("low") <= point.measured && point.measured <= number("high")));
    }
    let count = errors.len() as f64;
    assert!(count > 12.0, "{count} points");
    let worst = errors.iter().copied().fold(0.0, f64::max);
    println!("{framework}: {} {worst} {}", errors.iter().sum::<f64>() / count, held / count);
    (errors.iter().sum::<f64>() / count, worst, held / count)
}

#[test]
fn ddp_over_gloo_is_predicted_as_well_as_it_was() {
    let (mean, worst, held) = score("torch", &[]);
    assert!(mean <= DDP.0 + 0.2 && worst <= DDP.1 + 0.5 && held >= DDP.2 - 1e-9, "{mean} {worst} {held}");
}

#[test]
fn tensorflows_parameter_servers_are_predicted_as_well_as_they_were() {
    let how = ["--protocol", "asp", "--servers", "1"];
    let (mean, worst, held) = score("tensorflow", &how);
    assert!(
        mean <= SERVERS.0 + 0.2 && worst <= SERVERS.1 + 0.5 && held >= SERVERS.2 - 1e-9,
        "{mean} {worst} {held}"
    );
}
