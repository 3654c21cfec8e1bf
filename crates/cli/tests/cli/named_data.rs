//! Data that clients of a daemon name: what does not end, what is too large, what is none of their business.

use std::fs::{self, File};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use crate::harness::Scene;
use crate::served::{Served, synthetic};

fn job(name: &str, data: &str, hidden: u32) -> String {
    format!(
        "name = \"{name}\"\nsteps = 1\n[model]\nkind = \"mlp\"\nhidden = [{hidden}, {hidden}]\n[data]\n{data}\n\
         [batch]\nsize = 16\nvirtual_nodes = 2\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n"
    )
}

#[test]
fn files_that_do_not_end_or_are_too_large_do_no_harm() {
    let scene = Scene::new("");
    let served = Served::start(&scene, &["--policy", "fifo", "--slots", "2", "--load-memory", "1GiB"]);
    let pipe = scene.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
    let large = scene.path("large");
    File::create(&large).and_then(|file| file.set_len(1 << 42)).expect("a file may have a hole");
    let csv = |path: &str| format!("kind = \"csv\"\npath = \"{path}\"");
    let refused = |data: &str, hidden: u32, words: &[&str]| {
        let answer = served.submit("bad", &job("bad", data, hidden), json!({}));
        let text = answer.body.to_string();
        assert_eq!(answer.status, 422, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    for _ in 0..9 {
        refused(&csv(&pipe.display().to_string()), 8, &["pipe", "not a regular file"]);
    }
    refused(&csv("/dev/zero"), 8, &["/dev/zero", "not a regular file"]);
    refused(&csv(&large.display().to_string()), 8, &["large:1", "a line of more than 64 MiB"]);
    let whole = format!("{}\nstreamed = false", csv(&large.display().to_string()));
    refused(&whole, 8, &["large", "4096GiB", "1GiB are allowed"]);
    refused("kind = \"digits\"", 60_000, &["cannot be built in 1GiB of memory", "--load-memory"]);
    // A user who may name a file cannot read it by its errors.
    let secret = scene.write("secret", "root:*:20228:0,7\nx\n");
    let answer = served.submit("bad", &job("bad", &csv(&secret.display().to_string()), 8), json!({}));
    let text = answer.body.to_string();
    assert!(answer.status == 422 && text.contains("secret:1:1"), "{text}");
    assert!(!text.contains("root") && !text.contains("20228"), "{text}");
    let pages = fs::read_to_string(format!("/proc/{}/statm", served.process())).expect("it lives");
    let resident =
        pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).map(|pages| pages << 12);
    assert!(resident.is_some_and(|bytes| bytes < 256 << 20), "{resident:?}");
    assert_eq!(served.submit("good", &job("good", "kind = \"digits\"", 8), json!({})).status, 201);
    assert_eq!(served.submit("also", &synthetic("also", 1, 1, 1.0), json!({})).status, 201);
    served.until_all("finished");
}
