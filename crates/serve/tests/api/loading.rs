//! The process that learns the size of a task: what it is told, and what becomes of one that dies or does not end.

use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::Duration;

use bellwether_core::{InputError, parse};
use bellwether_serve::ledger::Task;
use bellwether_serve::loading::{LoadLimits, in_process};

/// A program that is being written cannot be started, and a process that is being started by another thread has all
/// files open.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn ask(script: &str, patience: Duration) -> Result<Task, InputError> {
    let _alone = ONE_AT_A_TIME.lock().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let text = "name = \"a\"\nsteps = 1\n[model]\nkind = \"synthetic\"\nstep_time = \"1ms\"\nparameters = \"1KiB\"\n\
                [data]\nkind = \"indices\"\nsamples = 8\n[batch]\nsize = 8\nvirtual_nodes = 2\n\
                [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
    let job = parse::job(text, "test", &[]).unwrap();
    in_process(program, LoadLimits { patience, ..LoadLimits::default() })(&job)
}

#[test]
fn the_process_is_told_the_job_and_its_answer_counts() {
    let answer = r#"grep -q '"samples":8' && echo '{"Ok":{"training_samples":8,"bytes":1024}}'"#;
    let patience = Duration::from_secs(60);
    assert_eq!(ask(answer, patience), Ok(Task { training_samples: 8, bytes: 1024 }));
    let refused = ask(r#"echo '{"Err":{"error":"is no file","place":"x","hint":"y"}}'"#, patience);
    assert_eq!(refused, Err(InputError::new("x", "is no file").hint("y")));
}

#[test]
fn one_that_dies_or_does_not_end_is_the_jobs_fault() {
    let error = ask("kill -9 $$", Duration::from_secs(60)).unwrap_err();
    assert!(error.what.contains("in 8GiB of memory") && error.what.contains("signal: 9"), "{error}");
    let error = ask("exec sleep 100", Duration::from_millis(50)).unwrap_err();
    assert!(error.what.contains("not loaded after 0.05 s"), "{error}");
}
