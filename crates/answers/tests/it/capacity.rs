//! Small grids: the pruned search answers as one that simulates every candidate, and candidates are what `simulate`
//! says.

use std::fmt::Write;
use std::fs;

use bellwether_answers::capacity::{Answer, CandidateRow, Request};
use bellwether_answers::options::Options;
use bellwether_answers::simulate;
use bellwether_core::plan::Market;
use bellwether_testkit::Random;
use bellwether_testkit::search::seeds;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with a workload and a catalogue, and what is asked about them.
struct Scene {
    folder: TempDir,
    options: Value,
}

impl Scene {
    fn new(trace: &str, prices: &str, options: &Value) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("trace.csv"), trace).expect("a trace");
        fs::write(folder.path().join("prices.toml"), prices).expect("prices");
        let mut all = json!({
            "workload": folder.path().join("trace.csv"),
            "catalog": folder.path().join("prices.toml"),
        });
        let Value::Object(given) = options else { panic!("options are an object") };
        given.iter().for_each(|(name, value)| all[name] = value.clone());
        Scene { folder, options: all }
    }

    fn request(&self, more: &[(&str, Value)]) -> Request {
        let mut options = self.options.clone();
        more.iter().for_each(|(name, value)| options[*name] = value.clone());
        Request::of(Options::read(&options.to_string()).expect("options")).expect("a request")
    }

    fn answer(&self, more: &[(&str, Value)]) -> Answer {
        self.request(more).answer(&mut |_| {}, &mut |_| {}).expect("an answer")
    }

    /// What `simulate` makes of a candidate.
    fn simulated(&self, row: &CandidateRow) -> simulate::PolicyResult {
        let request = self.request(&[]);
        let file = self.folder.path().join("cluster.toml");
        fs::write(&file, request.cluster_file(&row.machines).expect("its machines")).expect("a cluster");
        let request = simulate::Request {
            cluster: file.display().to_string(),
            policies: vec![row.policy.clone()],
            restart: None,
            seeds: row.runs,
            ..request.jobs
        };
        let inputs = request.inputs().expect("inputs");
        request.answer(&inputs, &mut |_, _| {}).expect("a simulation").remove(0)
    }
}

fn trace(random: &mut Random) -> String {
    let mut text = "job_id,submit_time,num_gpu,duration,min_gpu,max_gpu,deadline\n".to_owned();
    for job in 0..5 + random.below(12) {
        let (arrival_s, asked) = (random.below(2000), 1 + random.below(5));
        let duration_s = 20 + random.below(900);
        let (least, most) = match random.chance(0.4) {
            true => (1 + random.below(asked), asked + random.below(4)),
            false => (asked, asked),
        };
        let deadline_s = arrival_s + duration_s + random.below(1500);
        let _ = writeln!(text, "{job},{arrival_s},{asked},{duration_s},{least},{most},{deadline_s}");
    }
    text
}

fn prices(random: &mut Random) -> String {
    let mut text = String::new();
    if random.chance(0.5) {
        let _ = writeln!(text, "fixed_price = \"${}/h\"", random.below(3));
    }
    let devices = ["k80", "p100", "v100"];
    for kind in 0..1 + random.below(3) {
        let device = devices[(kind as usize + random.below(2) as usize) % 3];
        let speed = [("k80", 1.0), ("p100", 1.7), ("v100", 2.9)]
            .iter()
            .find(|one| one.0 == device)
            .map_or(1.0, |one| one.1);
        let _ = writeln!(
            text,
            "[[machine]]\nname = \"kind{kind}\"\ndevice = \"{device}\"\ndevices = {}\nspeed = {speed:?}\nprice = \"${}/h\"",
            1 + random.below(4),
            1 + random.below(6),
        );
        if random.chance(0.7) {
            let law = ["exponential:20min", "points:10min=0.3,40min=1", "never"][random.below(3) as usize];
            let _ = writeln!(
                text,
                "transient_price = \"$0.{}/h\"\nrevocations = \"{law}\"\nprovision = \"{}s\"\njoin = \"{}s\"",
                1 + random.below(9),
                random.below(100),
                random.below(60),
            );
        }
    }
    text
}

fn options(random: &mut Random) -> Value {
    let one = |random: &mut Random, of: &[&str]| of[random.below(of.len() as u64) as usize].to_owned();
    let limit = 60 * (1 + random.below(40));
    let figure = one(
        random,
        &[
            "p95 completion",
            "median completion",
            "mean completion",
            "max completion",
            "mean wait",
            "p80 wait",
            "makespan",
        ],
    );
    let mut objectives = vec![format!("{figure} < {limit}s")];
    if random.chance(0.3) {
        objectives.push(format!("deadlines >= {}%", 10 * random.below(11)));
    }
    if random.chance(0.2) {
        objectives.push(format!("p90 slowdown <= {}", 1 + random.below(5)));
    }
    let start = random.below(objectives.len() as u64) as usize;
    objectives.rotate_left(start);
    let mut options = json!({
        "objective": objectives,
        "policy": one(random, &["fifo,srtf", "easy,equi", "las2d,srtf,hell", "fifo,afs,edf"]),
        "truth": one(random, &["declared", "amdahl:0.2", "power:0.7", "curve:1,1.8,2.5,2.4", "noisy:0.3:power:0.8"]),
        "transient": random.chance(0.6),
        "max_machines": 2 + random.below(3),
        "kinds": 1 + random.below(2),
        "runs": 1 + random.below(3),
        "seed": 1,
        "front": random.chance(0.3),
    });
    let more =
        [("restart", "15s"), ("checkpoint", "100s"), ("start", "5s"), ("early", "0.3"), ("round", "60s")];
    for (name, value) in more {
        if random.chance(0.25) {
            options[name] = value.into();
        }
    }
    options
}

/// What must be the same whatever was simulated.
fn essence(answer: &Answer) -> Value {
    let row = |place: usize| {
        let row = &answer.candidates[place];
        json!([
            row.cluster,
            row.policy,
            row.cost_dollars,
            row.figures,
            row.runs,
            row.runs_held,
            row.makespan_s
        ])
    };
    let relaxations: Vec<Value> =
        answer.relaxations.iter().map(|one| json!([one.say, row(one.candidate)])).collect();
    let front: Vec<Value> =
        answer.front.iter().map(|one| json!([one.objective, one.candidate.map(row)])).collect();
    json!([answer.choice.map(row), answer.cluster_file, relaxations, front])
}

#[test]
fn a_pruned_search_answers_as_one_that_simulates_all() {
    let (mut held, mut not_held, mut pruned, mut all) = (0, 0, 0, 0);
    for seed in seeds(0..120) {
        let mut random = Random::new(seed);
        let scene = Scene::new(&trace(&mut random), &prices(&mut random), &options(&mut random));
        let found = scene.answer(&[]);
        let exhaustive = scene.answer(&[("exhaustive", true.into())]);
        assert_eq!(essence(&found), essence(&exhaustive), "seed {seed}: {}", scene.options);
        match found.choice {
            Some(_) => held += 1,
            None => not_held += 1,
        }
        all += exhaustive.counts.measured;
        pruned += found.counts.measured + found.counts.cut_short;
    }
    assert!(held > 20 && not_held > 10, "{held} {not_held}");
    assert!(pruned < all / 2, "{pruned} of {all} were simulated");
}

#[test]
fn candidates_are_what_simulate_makes_of_their_cluster_files() {
    let mut compared = 0;
    for seed in seeds(0..25) {
        let mut random = Random::new(seed ^ 0xCAFE);
        let mut options = options(&mut random);
        options["exhaustive"] = true.into();
        options["objective"] = json!([
            "p95 completion < 600s",
            "mean wait < 60s",
            "mean slowdown < 2",
            "makespan < 1h",
            "deadlines >= 90%"
        ]);
        let scene = Scene::new(&trace(&mut random), &prices(&mut random), &options);
        for row in scene.answer(&[]).candidates.iter().step_by(5) {
            let result = scene.simulated(row);
            let near = |name: &str, found: f64| {
                let figure = row.figures.get(name).copied().unwrap_or(row.makespan_s);
                assert!(
                    (figure - found).abs() <= 1e-9 * (1.0 + figure.abs()),
                    "seed {seed}, {name}: {figure} {found}"
                );
            };
            near("p95_completion_s", result.mean(|one| one.report.p95_jct_s));
            near("mean_wait_s", result.mean(|one| one.report.avg_queueing_s));
            near("mean_slowdown", result.mean(|one| one.report.avg_slowdown));
            near("makespan_s", result.mean(|one| one.report.makespan_s));
            near("deadlines_met", result.mean(|one| one.report.deadlines_met / one.report.deadlines));
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

const LIVES: &str =
    "[[machine]]\ndevice = \"a\"\ndevices = 2\nprice = \"$4/h\"\ntransient_price = \"$1/h\"\n";

const JOBS: &str =
    "job_id,submit_time,num_gpu,duration\n0,0,2,3600\n1,100,4,3600\n2,200,2,3600\n3,9000,1,1800\n";

#[test]
fn transient_machines_are_paid_while_they_live() {
    let prices = format!("{LIVES}revocations = \"exponential:30min\"\nprovision = \"10min\"\n");
    let options = json!({
        "objective": "makespan < 30h", "transient": true, "max_machines": 4, "policy": "fifo", "exhaustive": true, "runs": 1,
    });
    let scene = Scene::new(JOBS, &prices, &options);
    let answer = scene.answer(&[]);
    let mut revoked = 0.0;
    for row in &answer.candidates {
        // Time for which machines of two devices were there.
        let result = scene.simulated(row);
        let there_s = result.recording.offered_device_s / 2.0;
        let of = |market: Market| {
            let machines = row.machines.iter().filter(|machines| machines.market == market);
            f64::from(machines.map(|machines| machines.count).sum::<u32>())
        };
        let transient_s = there_s - of(Market::OnDemand) * row.makespan_s;
        let dollars = (4.0 * of(Market::OnDemand) * row.makespan_s + transient_s) / 3600.0;
        assert!((dollars - row.cost_dollars).abs() < 1e-6, "{} {dollars} {}", row.cluster, row.cost_dollars);
        revoked += row.revoked;
    }
    assert!(revoked > 20.0, "{revoked}");
    // While its worker joins a machine is paid, and not there yet.
    let joining = prices.replace("provision = \"10min\"", "provision = \"4min\"\njoin = \"6min\"");
    let dearer = Scene::new(JOBS, &joining, &options).answer(&[]);
    for row in &answer.candidates {
        let same = |other: &&CandidateRow| other.cluster == row.cluster && other.policy == row.policy;
        let other = dearer.candidates.iter().find(same).expect("the same candidate");
        assert_eq!((other.makespan_s, other.revoked), (row.makespan_s, row.revoked));
        let most = row.cost_dollars + row.revoked * 0.1 + 1e-9;
        assert!(
            (row.cost_dollars..=most).contains(&other.cost_dollars),
            "{} {}",
            row.cluster,
            other.cost_dollars
        );
    }
}

#[test]
fn lifetimes_in_a_file_go_with_the_cluster() {
    let prices = format!("{LIVES}revocations = \"samples:lives.txt\"\n");
    let options =
        json!({ "objective": "makespan < 30h", "transient": true, "max_machines": 4, "policy": "fifo" });
    let scene = Scene::new(JOBS, &prices, &options);
    fs::write(scene.folder.path().join("lives.txt"), "30min\n2h\n1h+\n").expect("lifetimes");
    let answer = scene.answer(&[]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let file = elsewhere.path().join("cluster.toml");
    fs::write(&file, answer.cluster_file.as_ref().expect("a choice")).expect("a cluster");
    let chosen = &answer.candidates[answer.choice.expect("a choice")];
    let request = simulate::Request {
        cluster: file.display().to_string(),
        policies: vec!["fifo".into()],
        seeds: chosen.runs,
        ..scene.request(&[]).jobs
    };
    let result =
        request.answer(&request.inputs().expect("inputs"), &mut |_, _| {}).expect("a simulation").remove(0);
    assert_eq!(result.mean(|one| one.report.makespan_s), chosen.makespan_s);
}
