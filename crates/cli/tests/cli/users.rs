//! Queues that divide a daemon's slots, and users who may ask for jobs of some of them: by the commands that they type.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::harness::{Ended, Scene, wait_for};
use crate::jobs;
use crate::served::Served;

const QUEUES: &str = "[[queues]]\nname = \"vision\"\nguarantee = \"50%\"\n\
    [[queues]]\nname = \"speech\"\nguarantee = \"50%\"\nlimit = \"50%\"\n";

/// What a command says that must go well.
#[track_caller]
fn well(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.stdout
}

#[track_caller]
fn json(ended: Ended) -> Value {
    serde_json::from_str(&well(ended)).expect("it is JSON")
}

/// Everything below a folder, as one text.
fn all_files(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(all_files(&path)),
            Ok(kind) if kind.is_file() => files.extend(std::fs::read(&path).ok().map(|bytes| (path, bytes))),
            _ => {}
        }
    }
    files
}

/// The queues, as commands show and refuse them.
fn shows_queues(scene: &Scene) {
    let queues = json(scene.call(&["queues", "--format", "json"]));
    let of = |name: &str| {
        let named = |one: &&Value| one["name"] == name;
        queues.as_array().and_then(|all| all.iter().find(named)).cloned().expect("the queue is there")
    };
    assert_eq!(of("vision")["slots"][0]["guaranteed"], 2);
    assert_eq!(
        (&of("speech")["slots"][0]["limit"], &of("speech")["jobs"]["finished"]),
        (&2.into(), &1.into())
    );
    let table = well(scene.call(&["queues"]));
    assert!(table.contains("GUARANTEED") && table.contains("speech"), "{table}");
    scene.write("other.toml", "[[queues]]\nname = \"vision\"\nguarantee = \"150%\"\n");
    scene.call(&["queues", "other.toml"]).refused_with(&["other.toml", "150%"]);
}

#[test]
fn users_submit_to_their_queues_and_do_not_see_those_of_others() {
    let scene: Scene = jobs::momentum().scene();
    scene.write("queues.toml", QUEUES);
    let daemon =
        Served::start(&scene, &["--policy", "fair", "--slots", "4", "--https", "--queues", "queues.toml"]);
    wait_for(|| "no word".into(), || Some(daemon.stdout()).filter(|text| text.contains("dashboard")));
    let said = well(scene.call(&["users", "add", "alice", "--role", "submit", "--queue", "vision"]));
    assert!(said.contains("alice.connection.json"), "{said}");
    well(scene.call(&["users", "add", "bob", "--role", "observe", "--queue", "speech", "-o", "bob.json"]));
    let file = scene.path("alice.connection.json");
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let text = std::fs::read(&file).expect("it is there");
    let connection: Value = serde_json::from_slice(&text).expect("JSON");
    let token = connection["token"].as_str().expect("text").to_owned();
    assert!(!said.contains(&token));
    // A second one would need another file, and leaves this one.
    scene.call(&["users", "add", "alice", "--role", "observe"]).refused_with(&["alice.connection.json"]);
    assert!(file.exists());
    scene
        .call(&["users", "add", "alice", "--role", "observe", "-o", "again.json"])
        .refused_with(&["there is a user `alice`"]);
    assert!(!scene.path("again.json").exists());

    let alice = |verb: &[&str]| scene.call(&[verb, &["--connection", "alice.connection.json"]].concat());
    let bob = |verb: &[&str]| scene.call(&[verb, &["--connection", "bob.json"]].concat());
    well(alice(&["submit", "job.toml", "--name", "hers", "--queue", "vision", "--follow"]));
    well(scene.call(&["submit", "job.toml", "--name", "his", "--queue", "speech", "--follow"]));
    alice(&["submit", "job.toml", "--queue", "speech"]).refused_with(&["alice", "speech", "vision"]);
    bob(&["submit", "job.toml", "--queue", "speech"]).refused_with(&["bob", "role `submit`"]);
    scene.call(&["submit", "job.toml", "--queue", "visoin"]).refused_with(&["did you mean `vision`?"]);
    let names = |listed: Value| -> Vec<String> {
        let name = |job: &Value| job["name"].as_str().expect("text").to_owned();
        listed.as_array().expect("a list").iter().map(name).collect()
    };
    assert_eq!(names(json(alice(&["jobs", "--format", "json"]))), ["hers"]);
    assert_eq!(names(json(bob(&["jobs", "--format", "json"]))), ["his"]);
    assert_eq!(names(json(scene.call(&["jobs", "--format", "json", "--queue", "speech"]))), ["his"]);
    alice(&["cancel", "his"]).refused_with(&["there is no job `his`"]);
    alice(&["policy", "srtf"]).refused_with(&["alice", "role `operate`"]);
    alice(&["users"]).refused_with(&["alice", "owner"]);
    let shown = well(alice(&["show", "hers"]));
    assert!(shown.contains("vision") && shown.contains("alice"), "{shown}");

    shows_queues(&scene);
    // No credential is anywhere but in the file that was asked for.
    well(scene.call(&["users", "remove", "alice"]));
    alice(&["jobs"]).refused_with(&["token"]);
    for (path, bytes) in all_files(&scene.path("state")) {
        assert!(!bytes.windows(token.len()).any(|part| part == token.as_bytes()), "{}", path.display());
    }
    well(scene.call(&["queues", "--none"]));
    assert!(well(scene.call(&["queues"])).contains("nothing divides the slots"));
    drop(daemon);
}

#[test]
fn a_user_of_a_daemon_that_takes_no_tokens_is_told_so() {
    let scene: Scene = jobs::momentum().scene();
    let daemon = Served::start(&scene, &["--policy", "fifo", "--slots", "1"]);
    wait_for(|| "no word".into(), || Some(daemon.stdout()).filter(|text| text.contains("dashboard")));
    let added = scene.call(&["users", "add", "carol", "--role", "operate"]);
    assert!(added.code == Some(0) && added.stderr.contains("--https"), "{added:?}");
    let listed = well(scene.call(&["users"]));
    assert!(listed.contains("carol") && listed.contains("operate") && listed.contains("all"), "{listed}");
    drop(daemon);
}
