//! Slurm's programs answer nonsense, too late, or not at all.

use std::os::unix::fs::PermissionsExt;

use crate::harness::{Ended, Scene};

const JOB: &str = "name = \"job\"\nsteps = 20\nworkers = \"1..2\"\n\
                   [model]\nkind = \"synthetic\"\nstep_time = \"1ms\"\nparameters = \"1KiB\"\n\
                   [data]\nkind = \"indices\"\nsamples = 100\n[batch]\nsize = 4\nvirtual_nodes = 2\n\
                   [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";

/// A scene whose Slurm is these programs.
fn with_programs(programs: &[(&str, &str)]) -> Scene {
    let scene = Scene::new(JOB);
    std::fs::create_dir(scene.path("bin")).expect("a new folder");
    for (name, text) in programs {
        let path = scene.write(&format!("bin/{name}"), format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    scene
}

fn train(scene: &Scene, more: &[&str]) -> Ended {
    train_with(scene, more, &[])
}

/// The same with variables of the environment.
fn train_with(scene: &Scene, more: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = scene.command(&[&["run", "job.toml", "--on=slurm", "--format=json"], more].concat());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", scene.path("bin").display()));
    command.envs(variables.iter().copied());
    scene.start_command(command).end()
}

#[test]
fn what_is_wrong_with_slurm_is_said_before_anything_begins() {
    let version = "case $1 in --version) echo slurm 23.02.1; exit;; esac";
    let cases = [
        ("exit 1", "`sbatch` failed: it says nothing"),
        ("echo slurm 17.11.2", "Slurm 17.11 is too old"),
        ("echo torque", "does not name a version"),
        ("printf '\\377\\376'", "it is not text"),
        (
            &format!("{version}\necho 'sbatch: error: invalid partition specified: gpu' >&2; exit 1"),
            "Slurm would not take a worker's job: invalid partition specified: gpu",
        ),
        (
            &format!("{version}\necho 'Unable to contact slurm controller (connect failure)' >&2; exit 1"),
            "cannot reach its cluster",
        ),
    ];
    for (sbatch, words) in cases {
        let scene = with_programs(&[("sbatch", sbatch)]);
        train(&scene, &[]).refused_with(&["--on slurm", words, "hint: "]);
        assert!(!scene.run_folder().exists(), "nothing was begun");
    }
}

#[test]
fn options_for_jobs_want_jobs() {
    let scene = Scene::new(JOB);
    scene
        .call(&["run", "job.toml", "--on=here", "--sbatch=--time=1"])
        .refused_with(&["--sbatch", "--on slurm"]);
    scene.call(&["run", "job.toml", "--on=allocation"]).refused_with(&["allocation", "salloc"]);
    let missing = ["run", "job.toml", "--on=slurm", "--sbatch-script=nothing.sh"];
    scene.call(&missing).refused_with(&["nothing.sh"]);
}

/// A Slurm whose jobs are processes that it starts at once, and whose queue is what `squeue` says.
fn playing(squeue: &str) -> Scene {
    let sbatch = "case $1 in --version) echo slurm 23.02.1; exit;; --test-only) exit;; esac\n\
                  script=$(mktemp); cat > $script; setsid sh $script </dev/null >/dev/null 2>&1 &\n\
                  echo $!";
    let scontrol = "case $3 in node) echo NodeName=n1 NodeAddr=127.0.0.1;; *) echo garbage;; esac";
    let told = [("sbatch", sbatch), ("squeue", squeue), ("scontrol", scontrol), ("scancel", "exit 0")];
    with_programs(&[&told[..], &[("sinfo", "echo '|||'")]].concat())
}

#[test]
fn nonsense_in_the_queue_loses_nothing() {
    for squeue in
        ["echo '<html>502</html>'", "exit 3", "printf '\\377'", "echo '1|DANCING|x|x|x|x|x|bellwether |'"]
    {
        let scene = playing(squeue);
        let ended = train(&scene, &["--workers=2"]);
        assert_eq!(ended.code, Some(0), "{squeue}: {ended:?}");
        assert!(ended.stdout.contains("\"steps\":20"), "{ended:?}");
        scene.audit();
    }
}

#[test]
fn credentials_of_the_environment_are_not_given_to_slurm() {
    let scene = playing("exit 0");
    let sbatch = std::fs::read_to_string(scene.path("bin/sbatch")).expect("it is there");
    let told = scene.path("told.txt");
    scene.write(
        "bin/sbatch",
        sbatch.replace("#!/bin/sh\n", &format!("#!/bin/sh\nenv >> {}\n", told.display())),
    );
    let home = scene.path("home").display().to_string();
    let secrets = [
        ("AWS_ACCESS_KEY_ID", "key-hush"),
        ("AWS_SECRET_ACCESS_KEY", "hush"),
        ("AWS_REGION", "x"),
        ("HOME", &*home),
    ];
    let ended = train_with(&scene, &["--workers=1"], &secrets);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = std::fs::read_to_string(&told).expect("sbatch was called");
    assert!(told.contains("AWS_REGION=x") && !told.contains("hush"), "{told}");
    // Where workers need them, it is said before anything begins.
    let scene = playing("exit 0");
    let refused = train_with(&scene, &["--set=checkpoint.url=s3://models/x"], &secrets);
    refused.refused_with(&["checkpoint.url", "~/.aws/credentials", "hint: "]);
    assert!(!scene.run_folder().exists(), "nothing was begun");
}

#[test]
fn a_queue_that_forgets_jobs_is_not_believed_at_once() {
    // The queue is empty, and what `scontrol` says of the job makes no sense: nothing is known, so nothing is lost.
    let scene = playing("exit 0");
    let ended = train(&scene, &["--workers=2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let crashed = |event: &bellwether_core::record::Event| {
        matches!(event, bellwether_core::record::Event::Crashed { .. }).then_some(())
    };
    assert!(scene.picked(crashed).is_empty());
}
