//! Connections without encryption: only where somebody asks for them, with a reason that is kept.

use bellwether_core::record::Event;

use crate::harness::Scene;
use crate::jobs;

fn reasons(scene: &Scene) -> Vec<String> {
    scene.picked(|event| match event {
        Event::PlainTransport { reason } => Some(reason.clone()),
        _ => None,
    })
}

fn token(scene: &Scene) -> String {
    std::fs::read_to_string(scene.run_folder().join("token")).expect("the run has a token")
}

#[test]
fn nothing_is_encrypted_only_for_a_reason_that_the_journal_keeps() {
    let recipe = jobs::patient().steps(150);
    let scene = recipe.scene();
    let mut run = scene.train(&["--workers", "2", "--plain-transport", " the network encrypts "]);
    assert!(run.reach(1));
    let address = scene.endpoint().control.to_string();
    // A worker that was told to encrypt does not fall back.
    let text = token(&scene);
    assert!(text.ends_with(" unencrypted\n"), "{text}");
    scene.write("encrypts", text.replace("unencrypted", "aes-256-gcm"));
    let worker = scene.call(&["worker", "--join", &address, "--token-file", "encrypts"]);
    worker.refused_with(&[&address, "another cipher than this token names"]);
    run.until("a refusal", |event| match event {
        Event::Refused { reason, .. } if reason.contains("another cipher") => Some(()),
        _ => None,
    });
    assert_eq!(scene.call(&["stop", "job"]).code, Some(0));
    let stopped = run.end();
    stopped.says(&["warning: nothing is encrypted between the machines", "the network encrypts"]);
    // It is said again to the user who takes the run up.
    let ended = scene.resume(&[]).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.says(&["warning: nothing is encrypted between the machines", "the network encrypts"]);
    assert_eq!(reasons(&scene), ["the network encrypts"; 2]);
}

#[test]
fn a_token_that_asks_for_no_encryption_is_no_reason() {
    let recipe = jobs::momentum();
    let scene = recipe.scene();
    for reason in ["", " "] {
        scene
            .call(&["run", "job.toml", "--plain-transport", reason])
            .refused_with(&["--plain-transport", "expected why"]);
    }
    scene
        .call(&["run", "--resume", "job-1", "--plain-transport", "x"])
        .refused_with(&["--plain-transport", "--resume"]);
    let mut run = scene.train(&["--workers", "2"]);
    assert!(run.reach(1));
    run.kill();
    let (digits, cipher) =
        token(&scene).trim().split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("two words");
    assert_ne!(cipher, "unencrypted");
    std::fs::write(scene.run_folder().join("token"), format!("{digits} unencrypted\n"))
        .expect("it can be written");
    scene.resume(&[]).end().refused_with(&["job-1", "without encryption", "--plain-transport"]);
    std::fs::write(scene.run_folder().join("token"), format!("{digits} {cipher}\n"))
        .expect("it can be written");
    let summary = scene.resume(&[]).summary();
    assert_eq!(summary.params_digest, Some(recipe.digest()), "{summary:?}");
    assert!(reasons(&scene).is_empty());
}
