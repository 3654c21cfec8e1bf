//! A disk that is full, for a moment or to the end, as a file system of the test's own.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use bellwether_core::record::Event;

use crate::harness::{Live, PROGRAM, Scene, wait_for};
use crate::jobs;

/// Whether this process may mount a file system of its own; says so where it may not.
pub(crate) fn may_mount() -> bool {
    let probe = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let may = probe.is_ok_and(|output| output.status.success());
    if !may {
        println!("skipped: this user may not mount a file system, so no disk can be full");
    }
    may
}

/// The file system on which a scene keeps its state; it is there as long as this.
struct Disk {
    folder: File,
}

impl Disk {
    /// Starts `bellwether ARGUMENTS` with its state on a file system of this size, which no other process sees but
    /// through the scene's folder `state`.
    fn start<'s>(scene: &'s Scene, size: &str, arguments: &[&str]) -> (Disk, Live<'s>) {
        let disk = scene.path("disk");
        fs::create_dir(&disk).expect("it can be made");
        let script = format!("mount -t tmpfs -o size={size} none \"$XDG_STATE_HOME\" && exec \"$@\"");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, "sh", PROGRAM]).args(arguments);
        command.current_dir(scene.path(".")).env("XDG_STATE_HOME", &disk);
        let live = scene.start_command(command);
        let inside = PathBuf::from(format!("/proc/{}/root{}", live.process(), disk.display()));
        let folder = wait_for(
            || format!("no state in {}: {}", inside.display(), live.stderr()),
            || inside.join("bellwether/job-1/journal.jsonl").is_file().then(|| File::open(&inside).ok())?,
        );
        let path = format!("/proc/{}/fd/{}", std::process::id(), folder.as_raw_fd());
        symlink(path, scene.path("state")).expect("nothing is there yet");
        (Disk { folder }, live)
    }

    fn filler(&self) -> PathBuf {
        format!("/proc/self/fd/{}/filler", self.folder.as_raw_fd()).into()
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.filler()).expect("it can be made");
        for size in [1 << 16, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.filler()).expect("it is there");
    }
}

#[test]
fn a_disk_that_is_full_for_a_moment_costs_no_line_of_the_journal() {
    if !may_mount() {
        return;
    }
    let recipe = jobs::patient();
    let scene = recipe.scene();
    let arguments = ["run", "job.toml", "--format", "json", "--workers", "2"];
    let (disk, mut run) = Disk::start(&scene, "4m", &arguments);
    assert!(run.reach(20));
    disk.fill();
    let journal = scene.run_folder().join("journal.jsonl");
    let length = || fs::metadata(&journal).expect("it is there").len();
    wait_for(
        || "a journal that stands still".into(),
        || {
            let before = length();
            std::thread::sleep(Duration::from_millis(700));
            (length() == before).then_some(())
        },
    );
    let step = scene.step();
    disk.free();
    assert!(run.reach(step + 100));
    assert!(run.stderr().contains("cannot be written"), "{}", run.stderr());
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    assert_eq!(run.summary().outcome.word(), "stopped");
    scene.audit();
    let warned = |event: &Event| match event {
        Event::Warning { message } if message.contains("all of them are there") => Some(()),
        _ => None,
    };
    assert_eq!(scene.picked(warned).len(), 1);
    let steps: Vec<u64> =
        bellwether_runtime::metrics::read(&scene.run_folder()).map(|line| line.step).collect();
    assert!(steps.windows(2).all(|pair| pair[1] == pair[0] + 1), "{steps:?}");
    assert_eq!(scene.resume(&[]).summary().params_digest, Some(recipe.digest()));
}

#[test]
fn a_torn_line_costs_a_warning_and_not_the_run() {
    let recipe = jobs::momentum().steps(4000);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(150));
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    assert_eq!(run.summary().outcome.word(), "stopped");
    let path = scene.run_folder().join("journal.jsonl");
    let text = fs::read_to_string(&path).expect("it is there");
    // As earlier releases left it: half a line, and the next one glued to it. Then bytes that are not text.
    let evaluated = text.lines().position(|line| line.contains("\"evaluated\"")).expect("it was evaluated");
    let mut lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
    let half = lines[evaluated][..20].to_vec();
    lines[evaluated + 1].splice(0..0, half);
    lines[evaluated] = vec![0, 255, 0];
    fs::write(&path, [lines.join(&b'\n'), vec![b'\n']].concat()).expect("it can be written");
    let number = |n: usize| format!("line {} cannot be read", evaluated + n);
    let audit = scene.call(&["audit", "job-1"]);
    assert_eq!(audit.code, Some(0), "{audit:?}");
    audit.says(&[&number(1), &number(2)]);
    let ended = scene.resume(&[]).end();
    ended.says(&[&number(1), &number(2)]);
    assert!(ended.stdout.contains(&recipe.digest()), "{ended:?}");
    // A lost commit proves nothing, and refutes nothing.
    let bytes = fs::read(&path).expect("it is there");
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let commit = lines.iter().position(|line| line.windows(11).any(|w| w == b"\"committed\"")).expect("one");
    lines[commit] = b"{";
    fs::write(&path, lines.join(&b'\n')).expect("it can be written");
    let audit = scene.call(&["audit", "job-1"]);
    assert_eq!(audit.code, Some(1), "{audit:?}");
    audit.says(&["were committed when 0 steps were done", "does not prove a fault"]);
}

/// Seconds that a test's run holds its state for want of room.
const WAIT: [&str; 2] = ["--last-checkpoint-wait", "2s"];

#[test]
fn a_full_disk_costs_checkpoints_but_neither_the_run_nor_its_result() {
    if !may_mount() {
        return;
    }
    let recipe = jobs::patient().steps(100);
    let scene = recipe.scene();
    let periodic = ["--workers", "2", "--set", "checkpoint.every_steps=20"];
    let arguments = [&["run", "job.toml", "--format", "json"][..], &periodic].concat();
    let (disk, mut run) = Disk::start(&scene, "4m", &arguments);
    assert!(run.reach(25));
    disk.fill();
    wait_for(|| run.stderr(), || run.stderr().contains("the workers hold the state").then_some(()));
    assert!(run.stderr().contains("the checkpoint of step 60 is not there"), "{}", run.stderr());
    disk.free();
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let summary: bellwether_core::record::Summary = serde_json::from_str(&ended.stdout).expect("a summary");
    assert_eq!((summary.outcome.word(), summary.params_digest), ("finished", Some(recipe.digest())));
    assert!(scene.run_folder().join("checkpoints/step-000000000100.safetensors").is_file());
    scene.audit();
}

#[test]
fn without_room_to_the_end_a_run_has_failed_and_can_be_taken_up() {
    if !may_mount() {
        return;
    }
    let recipe = jobs::patient().steps(150);
    let scene = recipe.scene();
    let (disk, mut run) = Disk::start(
        &scene,
        "4m",
        &[&["run", "job.toml", "--format", "json", "--workers", "2"][..], &WAIT].concat(),
    );
    assert!(run.reach(20));
    disk.fill();
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    let ended = run.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    ended.says(&[
        "could not be written within 2 s",
        "No space left",
        "make room",
        "`bellwether resume job-1`",
    ]);
    let summary: serde_json::Value = serde_json::from_str(&ended.stdout).expect("a summary");
    assert_eq!((&summary["outcome"], &summary["checkpoint"]), (&"failed".into(), &serde_json::Value::Null));
    disk.free();
    assert_eq!(scene.resume(&[]).summary().params_digest, Some(recipe.digest()));
    scene.audit();
}
