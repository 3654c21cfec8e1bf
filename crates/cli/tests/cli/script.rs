//! Scripts that declare their jobs, as far as no Python is needed: a shell stands for the interpreter.

use crate::harness::{Ended, Scene};

/// A declaration as a script of the package writes it.
const DECLARATION: &str = "{\"version\":1,\"python\":\"/bin/sh\",\"script\":\"SCRIPT\",\"job\":{\"name\":\"train\",\"epochs\":2,\
    \"batch\":{\"size\":64,\"virtual_nodes\":8},\"model\":{\"kind\":\"python\",\"script\":\"SCRIPT\",\"layout\":\"abc\"},\
    \"data\":{\"kind\":\"python\",\"training_samples\":1438},\"optimizer\":{\"kind\":\"own\",\"name\":\"RAdam\",\
    \"slots\":[\"exp_avg\"]},\"checkpoint\":{\"every_steps\":23}},\"layout\":{\"parameters\":[[\"w\",[10]]],\"state\":[]}}";

/// A script that writes `declared` where the command reads it.
fn scene(declared: &str, then: &str) -> Scene {
    let scene = Scene::new("");
    let path = scene.path("train.py").display().to_string();
    let declared = declared.replace("SCRIPT", &path);
    let body = format!(
        "fd=$(echo \"$BELLWETHER_LEAD\" | sed 's/.*\"declare_fd\":\\([0-9]*\\).*/\\1/')\n\
         test \"$BELLWETHER_ROLE\" = declare || test \"$BELLWETHER_ROLE\" = lead || exit 9\n\
         cat > /dev/fd/$fd <<'END'\n{declared}\nEND\n{then}\n"
    );
    scene.write("train.py", body);
    scene
}

fn run(scene: &Scene, more: &[&str]) -> Ended {
    scene.call(&[&["run", "--python", "/bin/sh", "train.py"], more].concat())
}

#[test]
fn a_script_that_is_not_there_is_named() {
    Scene::new("").call(&["run", "nothing.py"]).refused_with(&["nothing.py", "there is no such file"]);
}

#[test]
fn an_interpreter_that_is_not_there_is_named() {
    let scene = scene(DECLARATION, "");
    let ended = scene.call(&["run", "--python", "nothing/python", "train.py"]);
    ended.refused_with(&["`nothing/python` cannot be started", "--python"]);
}

#[test]
fn a_script_that_declares_nothing_is_told_so() {
    let scene = Scene::new("");
    scene.write("train.py", "exit 0\n");
    run(&scene, &[]).refused_with(&["train.py", "it ended without declaring a job", "run.epochs"]);
    scene.write("train.py", "echo Traceback >&2; exit 3\n");
    run(&scene, &[]).refused_with(&["Traceback", "it failed before it declared a job (exit code 3)"]);
}

#[test]
fn a_declaration_that_cannot_be_read_is_refused() {
    run(&scene("nonsense", ""), &[]).refused_with(&["what it declares cannot be read", "same release"]);
    let newer = DECLARATION.replace("\"version\":1", "\"version\":9");
    run(&scene(&newer, ""), &[]).refused_with(&["version 9"]);
}

#[test]
fn what_a_script_declares_is_checked_as_a_job_file_is() {
    let wrong = DECLARATION.replace("\"virtual_nodes\":8", "\"virtual_nodes\":7");
    run(&scene(&wrong, ""), &[]).refused_with(&["train.py: batch.size", "7 equal virtual nodes"]);
    let goodput = ["--set", "mode.goodput.max_batch=256"];
    run(&scene(DECLARATION, ""), &goodput)
        .refused_with(&["optimizer.kind", "how the rate of the program's own rule"]);
    let servers = ["--set", "sync.policy=asp"];
    run(&scene(DECLARATION, ""), &servers).refused_with(&["optimizer.kind", "sgd"]);
}

#[test]
fn a_job_file_and_its_script_say_the_same_or_are_refused() {
    let scene = scene(DECLARATION, "");
    let file =
        "[model]\nkind = \"python\"\nscript = \"train.py\"\npython = \"/bin/sh\"\n[batch]\nsize = 128\n";
    scene.write("job.toml", file);
    let ended = scene.call(&["run", "job.toml", "--dry-run"]);
    ended.refused_with(&["job.toml: batch.size: it is 128 here and 64 in train.py", "one place"]);
    scene.write("job.toml", file.replace("128", "64"));
    let ended = scene.call(&["run", "job.toml", "--dry-run", "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let outlook: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(outlook["steps"], 46, "{outlook}");
}

#[test]
fn a_lead_whose_run_does_not_begin_is_told_so_by_the_end_of_its_pipe() {
    let then = "follow=$(echo \"$BELLWETHER_LEAD\" | sed 's/.*\"follow_fd\":\\([0-9]*\\).*/\\1/')\n\
                cat /dev/fd/$follow > heard\n";
    let scene = scene(&DECLARATION.replace("\"virtual_nodes\":8", "\"virtual_nodes\":7"), then);
    run(&scene, &[]).refused_with(&["7 equal virtual nodes"]);
    let heard =
        crate::harness::wait_for(|| "the lead ends".into(), || std::fs::read(scene.path("heard")).ok());
    assert!(heard.is_empty());
}

#[test]
fn a_worker_becomes_the_script_with_what_it_needs_to_join() {
    let scene = Scene::new("");
    let token = scene.write("token", "0".repeat(64));
    let body = "echo \"$BELLWETHER_ROLE $BELLWETHER_WORKER $1 $NPROC $PYTHONHASHSEED\"; exit 4\n";
    scene.write("train.py", body);
    let token = token.display().to_string();
    let worker = ["worker", "--join", "127.0.0.1:9", "--token-file", &token, "--worker-id", "3"];
    let ended = scene.call(&[&worker[..], &["--", "/bin/sh", "train.py", "--fast"]].concat());
    assert_eq!(ended.code, Some(4));
    let said = ended.stdout;
    for word in ["worker {", "\"join\":\"127.0.0.1:9\"", "\"worker\":3", "/token\"", "} --fast 1 0"] {
        assert!(said.contains(word), "{said} lacks {word}");
    }
    let slow = ["--speed", "0.5", "--", "/bin/sh", "train.py"];
    scene.call(&[&worker[..], &slow].concat()).refused_with(&["--speed", "built-in models"]);
    scene
        .call(&[&worker[..], &["--", "nothing/python", "train.py"]].concat())
        .refused_with(&["nothing/python", "cannot be started"]);
}

#[test]
fn a_worker_of_a_script_is_started_on_each_gpu_that_is_named() {
    let scene = Scene::new("");
    let token = scene.write("token", "0".repeat(64)).display().to_string();
    let body = "echo \"$CUDA_VISIBLE_DEVICES $TF_FORCE_GPU_ALLOW_GROWTH\" >> seen; exit $1\n";
    scene.write("train.py", body);
    let worker = ["worker", "--join", "127.0.0.1:9", "--token-file", &token];
    let on = |gpus: &str, code: &str| {
        scene.call(&[&worker[..], &["--gpus", gpus, "--", "/bin/sh", "train.py", code]].concat())
    };
    assert_eq!(on("9021,9022", "0").code, Some(0));
    let seen = std::fs::read_to_string(scene.path("seen")).expect("both workers wrote it");
    let mut seen: Vec<&str> = seen.lines().collect();
    seen.sort_unstable();
    assert_eq!(seen, ["9021 true", "9022 true"]);
    assert_eq!(on("9021,9022", "4").code, Some(4));
    on("first", "0").refused_with(&["--gpus", "numbers of GPUs with commas between"]);
    let nothing = [&worker[..], &["--gpus", "9021,9022", "--", "nothing/python", "train.py"]].concat();
    scene.call(&nothing).refused_with(&["nothing/python", "cannot be started"]);
    if !std::path::Path::new("/dev/nvidia0").exists() {
        on("all", "0").refused_with(&["--gpus", "no GPU"]);
    }
}
