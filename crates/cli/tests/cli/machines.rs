//! `run --plan --provision` and `machines`: obtained, lost, replaced and given back, whatever is killed.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use bellwether_core::plan::Plan;
use bellwether_core::record::{Event, Summary};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Live, PROGRAM, Random, Scene, is_alive, signal, wait_for};
use crate::jobs;
use crate::served::Served;

/// Machines of this computer, which come at once.
const CATALOGUE: &str = "
    [network]
    bandwidth = \"10Gbit/s\"
    [[machine]]
    name = \"box\"
    device = \"DEVICE\"
    price = \"$1/h\"
    transient_price = \"$0.25/h\"
    revocations = \"exponential:1h\"
    limit = 8
";

/// A scene with a job, its profile, and a plan with these wishes.
fn planned(recipe: &jobs::Recipe, wishes: &[&str]) -> (Scene, Plan) {
    let scene = recipe.scene();
    static PROFILES: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let text = {
        // Their length is not part of what jobs compute.
        let mut known = PROFILES.lock().expect("a test's file, answer or number");
        let key = recipe.clone().steps(1).text();
        let measured = known.entry(key).or_insert_with(|| {
            let profiled = scene.call(&["profile", "job.toml", "-o", "profile.json", "--steps", "4"]);
            assert_eq!(profiled.code, Some(0), "{profiled:?}");
            fs::read_to_string(scene.path("profile.json")).expect("a test's file, answer or number")
        });
        measured.clone()
    };
    scene.write("profile.json", &text);
    let profile: Value = serde_json::from_str(&text).expect("a test's file, answer or number");
    let device = profile["device"].as_str().expect("a test's file, answer or number");
    scene.write("prices.toml", CATALOGUE.replace("DEVICE", device));
    let words = ["plan", "profile.json", "--catalog", "prices.toml", "--format", "json"];
    let made = scene.call(&[&words[..], wishes].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    scene.write("plan.json", &made.stdout);
    let plan = Plan::read(&made.stdout, "plan.json").expect("a test's file, answer or number");
    (scene, plan)
}

fn provisioned<'s>(scene: &'s Scene, more: &[&str]) -> Live<'s> {
    scene.train(&[&["--plan", "plan.json", "--provision", "here"], more].concat())
}

/// Processes of this machine with the tag of one of the scene's leases.
fn machines(scene: &Scene) -> Vec<(String, u32)> {
    let leases: Vec<String> = fs::read_dir(scene.path("state/bellwether/leases"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("a test's file, answer or number").flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let tag = String::from_utf8_lossy(&environment)
            .split('\0')
            .find_map(|variable| variable.strip_prefix("BELLWETHER_MACHINE=").map(str::to_owned));
        let is_ours = |tag: &String| leases.iter().any(|lease| tag.starts_with(&format!("{lease}-")));
        found.extend(tag.filter(is_ours).filter(|_| is_alive(process)).map(|tag| (tag, process)));
    }
    found.sort();
    found
}

fn listed(scene: &Scene) -> Vec<Value> {
    let ended = scene.call(&["machines", "--format", "json", "--all"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a test's file, answer or number"))
        .collect()
}

fn notes(scene: &Scene) -> Vec<String> {
    scene.picked(|event| match event {
        Event::Cluster { message } => Some(message.clone()),
        _ => None,
    })
}

fn account(summary: &Summary) -> &bellwether_core::record::Provisioned {
    summary.provisioned.as_ref().expect("a provider gave machines")
}

#[test]
fn machines_are_obtained_lost_replaced_and_given_back() {
    let recipe = jobs::patient().steps(250);
    let (scene, plan) =
        planned(&recipe, &["--steps", "250", "--transient", "--deadline", "10min", "--max-workers", "3"]);
    let chosen = plan.chosen().unwrap().workers;
    let mut run = provisioned(&scene, &["--workers", "1..3"]);
    assert!(run.reach(40));
    let there = machines(&scene);
    assert_eq!(there.len() as u32, chosen, "{there:?} of {:?}", plan.chosen());
    let table = scene.call(&["machines"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(table.stdout.contains("runs") && table.stdout.contains("per hour"), "{}", table.stdout);
    assert!(!table.stdout.contains("orphaned"), "{}", table.stdout);
    // Another process may not give back what a run holds.
    let refused = scene.call(&["machines", "release", "job-1"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("bellwether stop job-1"), "{}", refused.stderr);
    // A machine goes without a word.
    signal(there[0].1, Signal::KILL);
    let summary = run.summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?}");
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    let account = account(&summary);
    assert_eq!((account.obtained, account.left), (chosen + 1, 0), "{:#?}", notes(&scene));
    assert!(account.cost_dollars > 0.0 && account.deadline_s == Some(600.0), "{account:?}");
    assert_eq!(machines(&scene), []);
    let leases = listed(&scene);
    assert!(leases[0]["machines"].as_array().unwrap().is_empty(), "{leases:?}");
    assert!(notes(&scene).iter().any(|note| note.contains("is over")), "{:#?}", notes(&scene));
    scene.audit();
}

#[test]
fn whatever_is_killed_nothing_is_left_and_the_run_goes_on() {
    let recipe = jobs::patient().steps(400);
    let (scene, _) = planned(&recipe, &["--steps", "400", "--max-workers", "3", "--deadline", "1h"]);
    let mut random = Random::new(11);
    let mut run = provisioned(&scene, &[]);
    for kill in 0..4 {
        // Also while machines are asked for, before one is there.
        std::thread::sleep(Duration::from_millis(random.below(900)));
        run.kill();
        let is_begun = scene.path("state/bellwether/job-1/journal.jsonl").exists();
        if kill == 3 {
            // Half the time with a machine less.
            machines(&scene).first().inspect(|(_, process)| signal(*process, Signal::KILL));
        }
        if kill % 2 == 1 {
            let released = scene.call(&["machines", "release", "--orphaned"]);
            assert_eq!(released.code, Some(0), "{released:?}");
            wait_for(|| format!("{:?}", machines(&scene)), || machines(&scene).is_empty().then_some(()));
        }
        run = if is_begun { scene.resume(&[]) } else { provisioned(&scene, &[]) };
    }
    let summary = run.summary();
    assert_eq!(summary.outcome.word(), "finished", "{summary:?} {:#?}", notes(&scene));
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert_eq!(account(&summary).left, 0);
    assert_eq!(machines(&scene), []);
    scene.audit();
}

#[test]
fn a_budget_that_is_used_up_stops_the_run_with_a_checkpoint() {
    let recipe = jobs::patient().steps(5000);
    let (scene, mut plan) = planned(&recipe, &["--steps", "5000", "--max-workers", "2"]);
    // A dollar an hour: less than ten seconds of it.
    plan.constraints.budget_dollars = Some(0.004);
    for kind in &mut plan.basis.as_mut().unwrap().kinds {
        (kind.on_demand, kind.provision_s, kind.join_s) = (Some(1.0), 0.0, 0.0);
    }
    scene.write("plan.json", serde_json::to_string(&plan).unwrap());
    let summary = provisioned(&scene, &[]).summary();
    assert_eq!(summary.outcome.word(), "stopped", "{summary:?}");
    assert!(summary.checkpoint.is_some() && summary.steps < 5000, "{summary:?}");
    let account = account(&summary);
    assert!(account.cost_dollars <= 0.004 * 1.05, "{account:?}");
    assert_eq!((account.left, machines(&scene)), (0, Vec::new()));
    // With more money it goes on where it was.
    plan.constraints.budget_dollars = Some(10.0);
    scene.write("plan.json", serde_json::to_string(&plan).unwrap());
    let resumed = scene.resume(&["--plan", "plan.json", "--provision", "here", "--steps", "5000"]);
    drop(resumed);
}

#[test]
fn a_run_that_is_slower_than_planned_takes_more_machines() {
    let wishes = ["--steps", "2500", "--max-workers", "4", "--deadline", "125s"];
    let (scene, plan) = planned(&jobs::patient().steps(2500), &wishes);
    // 100 s of one worker: the cheapest plan that keeps the deadline.
    assert_eq!(plan.chosen().unwrap().workers, 1, "{}", plan.reason);
    let run = provisioned(&scene, &["--speed", "0.4"]);
    let told = run.until("other machines", |event| match event {
        Event::Cluster { message } if message.contains("Instead of") => Some(message.clone()),
        _ => None,
    });
    assert!(told.contains("95 % were asked for") && told.contains("of the predicted speed"), "{told}");
    run.until("more workers", |event| match event {
        Event::Membership { workers, .. } if workers.len() > 1 => Some(()),
        _ => None,
    });
    assert!(machines(&scene).len() > 1, "{:?}", machines(&scene));
    run.signal(Signal::TERM);
    let summary = run.end();
    assert!(summary.stdout.contains("\"changes\":1"), "{summary:?}");
    assert_eq!(machines(&scene), []);
}

#[test]
fn what_cannot_be_provisioned_is_refused_before_anything_begins() {
    let (scene, plan) = planned(&jobs::patient(), &["--steps", "500", "--max-workers", "2"]);
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let ended = scene.call(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        assert!(
            ended.stderr.contains(says) && ended.stderr.contains("hint"),
            "{arguments:?}: {}",
            ended.stderr
        );
    };
    let run = ["run", "job.toml"];
    refused(&[&run[..], &["--provision", "here"]].concat(), 2, "nothing says which machines");
    refused(&[&run[..], &["--plan", "plan.json", "--provision", "skypilot"]].concat(), 2, "obtain.skypilot");
    refused(
        &[&run[..], &["--plan", "plan.json", "--provision", "kubernetes"]].concat(),
        2,
        "--listen HOST:PORT",
    );
    refused(
        &[&run[..], &["--plan", "plan.json", "--provision", "here", "--no-spawn"]].concat(),
        2,
        "leave --on",
    );
    refused(&["machines", "release", "nothing-7"], 2, "machines --all");
    let early = Plan { basis: None, ..plan };
    scene.write("early.json", serde_json::to_string(&early).unwrap());
    refused(&[&run[..], &["--plan", "early.json", "--provision", "here"]].concat(), 2, "make it again");
    let ended = scene.call(&[&run[..], &["--plan", "plan.json", "--provision", "slrm"]].concat());
    assert!(ended.code == Some(2) && ended.stderr.contains("slurm"), "{ended:?}");
    let submit = ["submit", "job.toml", "--plan", "plan.json"];
    let ended = scene.call(&submit);
    assert!(ended.code == Some(2) && ended.stderr.contains("--provision"), "{ended:?}");
    let ended = scene.call(&[&submit[..], &["--provision", "here", "--deadline", "1h"]].concat());
    assert!(ended.code == Some(2) && ended.stderr.contains("--deadline"), "{ended:?}");
    // Garbage in the place of a lease is told, and is in no one's way.
    fs::create_dir_all(scene.path("state/bellwether/leases")).unwrap();
    scene.write("state/bellwether/leases/abc.json", "{}");
    let listed = scene.call(&["machines"]);
    assert!(listed.code == Some(0) && listed.stderr.contains("invalid lease"), "{listed:?}");
    assert!(listed.stdout.contains("no machines are held"), "{listed:?}");
    assert!(Path::new(&scene.path("state/bellwether/leases/abc.json")).exists());
}

#[test]
fn a_daemons_job_trains_on_machines_of_its_own() {
    let recipe = jobs::patient().steps(600);
    let (scene, mut plan) =
        planned(&recipe, &["--steps", "600", "--max-workers", "2", "--deadline", "10min"]);
    let chosen = &mut plan.candidates[plan.choice.unwrap()];
    (chosen.machines[0].count, chosen.workers) = (2, 2);
    scene.write("plan.json", serde_json::to_string(&plan).unwrap());
    let served = Served::start(&scene, &["--policy", "fifo", "--slots", "1"]);
    let submit = || {
        let ended = scene.call(&["submit", "job.toml", "--plan", "plan.json", "--provision", "here"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    let trains = |job: &Value| job["state"] == "running" && job["workers"] == 2;
    let are_gone = || machines(&scene).is_empty().then_some(());
    submit();
    served.until("it trains", |jobs| trains(&jobs["job-1"]) && jobs["job-1"]["step"].as_u64() > Some(20));
    assert_eq!(served.ask("GET", "/v1/cluster", None).body["free"], 1, "it takes no slot");
    let there = machines(&scene);
    assert_eq!(there.len(), 2, "{there:?}");
    let shown = scene.call(&["show", "job-1"]);
    assert!(shown.stdout.contains("of its own, from here"), "{shown:?}");
    let table = scene.call(&["machines"]);
    assert!(table.stdout.contains("job-1") && table.stdout.contains("2 machines"), "{table:?}");
    let scaled = scene.call(&["scale", "job-1", "--workers", "1"]);
    assert!(scaled.code == Some(2) && scaled.stderr.contains("its plan says how many"), "{scaled:?}");
    // A machine dies, and then the daemon; the next one finds the run as it is.
    signal(there[0].1, Signal::KILL);
    served.kill();
    let served = Served::start(&scene, &[]);
    served.until("it trains on", |jobs| trains(&jobs["job-1"]) && jobs["job-1"]["step"].as_u64() > Some(100));
    assert_eq!(served.job("job-1")["failures"], 0);
    // What is stopped holds nothing.
    assert_eq!(scene.call(&["stop", "job-1"]).code, Some(0));
    served.until("it is stopped", |jobs| jobs["job-1"]["state"] == "suspended");
    wait_for(|| format!("{:?}", machines(&scene)), are_gone);
    assert_eq!(scene.call(&["resume", "job-1"]).code, Some(0));
    served.until("it has finished", |jobs| jobs["job-1"]["state"] == "finished");
    assert_eq!(served.job("job-1")["digest"].as_str().map(str::to_owned), Some(recipe.digest()));
    wait_for(|| format!("{:?}", machines(&scene)), are_gone);
    // A coordinator that dies is started again; who is cancelled meanwhile gives everything back.
    submit();
    served.until("the second trains", |jobs| trains(&jobs["job-2"]));
    let endpoint = fs::read_to_string(scene.path("state/bellwether/job-2/endpoint.json")).unwrap();
    let endpoint: Value = serde_json::from_str(&endpoint).unwrap();
    signal(endpoint["process"].as_u64().unwrap() as u32, Signal::KILL);
    served.until("it is tried again", |jobs| jobs["job-2"]["failures"] == 1);
    assert_eq!(scene.call(&["cancel", "job-2"]).code, Some(0));
    served.until("it is cancelled", |jobs| jobs["job-2"]["state"] == "cancelled");
    wait_for(|| format!("{:?}", machines(&scene)), are_gone);
    assert_eq!(served.interrupt(), Some(0));
    let left: Vec<Value> =
        listed(&scene).into_iter().filter(|lease| lease["machines"] != json!([])).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_an_exported_task_runs_on_each_node_trains_the_job() {
    let recipe = jobs::patient().steps(120);
    let (scene, _) = planned(&recipe, &["--steps", "120", "--max-workers", "2"]);
    let text = fs::read_to_string(scene.path("prices.toml")).unwrap();
    scene.write("prices.toml", text + "[machine.obtain]\nskypilot = { infra = \"gcp/us-east1\" }\n");
    let words = ["plan", "profile.json", "--catalog", "prices.toml", "--steps", "120", "--max-workers", "2"];
    let export = ["--budget", "$5", "--export", "skypilot", "--job", "job.toml"];
    let made = scene.call(&[&words[..], &export].concat());
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.stdout.contains("num_nodes: 2"), "{}", made.stdout);
    let (_, run) = made.stdout.split_once("run: |\n").unwrap();
    let script: String = run.lines().map(|line| format!("{}\n", line.trim_start_matches("  "))).collect();
    scene.write("run.sh", script);
    let program = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let path = format!("{program}:{}", std::env::var("PATH").unwrap_or_default());
    // Two nodes of one machine, at an address of loopback that no other test listens at.
    let node = |rank: &str| {
        let mut command = Command::new("sh");
        command.arg("run.sh").current_dir(scene.path("")).env("XDG_STATE_HOME", scene.path("state"));
        command.env("PATH", &path).env("SKYPILOT_NODE_RANK", rank).env("BELLWETHER_TOKEN", "ab".repeat(32));
        command.env("SKYPILOT_NODE_IPS", "127.25.4.1\n127.0.0.1");
        scene.start_command(command)
    };
    let (second, first) = (node("1"), node("0"));
    let ended = first.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let digest = scene.picked(|event| match event {
        Event::Ended { params_digest, .. } => params_digest.clone(),
        _ => None,
    });
    assert_eq!(digest, [recipe.digest()], "{ended:?}");
    assert_eq!(second.end().code, Some(0));
}

/// `kubectl` and `sky` as a stand-in plays them; `None` without Python.
fn stand_in(scene: &Scene) -> Option<String> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: there is no python3");
        return None;
    }
    let folder = scene.path("engine");
    fs::create_dir_all(&folder).expect("a test's file, answer or number");
    for name in ["kubectl", "sky"] {
        let path = folder.join(name);
        fs::write(&path, include_str!("stand_in.py")).expect("a test's file, answer or number");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a test's file, answer or number");
    }
    let program = Path::new(PROGRAM).parent().expect("a test's file, answer or number").display().to_string();
    Some(format!("{}:{program}:{}", folder.display(), std::env::var("PATH").unwrap_or_default()))
}

/// Starts the command where it finds the stand-in.
fn start_beside<'s>(scene: &'s Scene, path: &str, arguments: &[&str]) -> Live<'s> {
    let mut command = scene.command(arguments);
    command.env("PATH", path).env("STAND_IN", scene.path("engine"));
    scene.start_command(command)
}

/// Machines that the stand-in has.
fn played(scene: &Scene) -> Vec<String> {
    let files = fs::read_dir(scene.path("engine")).expect("a test's file, answer or number").flatten();
    let names =
        files.filter_map(|file| Some(file.file_name().to_str()?.strip_suffix(".machine")?.to_owned()));
    names.collect()
}

#[test]
fn pods_and_clusters_of_clouds_are_obtained_and_given_back() {
    let recipe = jobs::patient().steps(250);
    for provider in ["kubernetes", "skypilot"] {
        let (scene, mut plan) = planned(&recipe, &["--steps", "250", "--max-workers", "2"]);
        for kind in &mut plan.basis.as_mut().unwrap().kinds {
            kind.obtain.skypilot.insert("infra".into(), "here".into());
        }
        scene.write("plan.json", serde_json::to_string(&plan).unwrap());
        let Some(path) = stand_in(&scene) else { return };
        scene.write("engine/delay", "1.5");
        let words = ["run", "job.toml", "--format", "json", "--plan", "plan.json", "--provision", provider];
        let mut run = start_beside(&scene, &path, &[&words[..], &["--listen", "127.0.0.1:0"]].concat());
        assert!(run.reach(20));
        // Garbage in place of an answer is told, and changes nothing.
        scene.write("engine/garbage", "<html>sorry</html>");
        let there = played(&scene);
        assert_eq!(there.len() as u32, plan.chosen().unwrap().workers);
        let secret = fs::read_to_string(scene.run_folder().join("token")).unwrap();
        let digits = secret.split_whitespace().next().unwrap().to_owned();
        let summary = run.summary();
        assert_eq!(summary.params_digest, Some(recipe.digest()), "{provider}: {:#?}", notes(&scene));
        assert_eq!((account(&summary).left, played(&scene).len()), (0, 0), "{:#?}", notes(&scene));
        let told = notes(&scene).join("\n");
        assert!(told.contains("did not answer") || provider == "skypilot", "{told}");
        let journal = fs::read_to_string(scene.run_folder().join("journal.jsonl")).unwrap();
        assert!(!journal.contains(&digits), "the journal has the token");
        for lease in fs::read_dir(scene.path("state/bellwether/leases")).unwrap().flatten() {
            assert!(!fs::read_to_string(lease.path()).unwrap().contains(&digits), "the lease has the token");
        }
    }
}

#[test]
fn a_pod_that_never_gets_a_node_is_waited_for_and_given_back_by_others() {
    let (scene, _) = planned(&jobs::patient(), &["--steps", "500", "--max-workers", "2"]);
    let Some(path) = stand_in(&scene) else { return };
    scene.write("engine/room", "0");
    let words =
        ["run", "job.toml", "--plan", "plan.json", "--provision", "kubernetes", "--listen", "127.0.0.1:0"];
    let run = start_beside(&scene, &path, &words);
    wait_for(|| format!("{:?}", played(&scene)), || (!played(&scene).is_empty()).then_some(()));
    run.kill();
    let listed = start_beside(&scene, &path, &["machines"]).end();
    assert!(listed.stdout.contains("waits, orphaned") && listed.stderr.contains("--orphaned"), "{listed:?}");
    let released = start_beside(&scene, &path, &["machines", "release", "--orphaned"]).end();
    assert_eq!((released.code, played(&scene).len()), (Some(0), 0), "{released:?}");
}
