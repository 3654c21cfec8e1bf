//! Sets of pods that run a user's own command together.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether_operator::exchange::{Member, News, Report};
use rustix::process::Signal;

use crate::cluster::{Cluster, Pod, UID, wait_for};

const JOB: &str = "name = \"job\"\nsteps = 10\n[model]\nkind = \"mlp\"\nhidden = [4]\n[data]\nkind = \"digits\"\n\
                   [batch]\nsize = 8\nvirtual_nodes = 4\n[optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";

fn members(count: u32) -> Vec<Member> {
    (0..count)
        .map(|rank| Member { rank, address: format!("127.0.0.{}", 41 + rank).parse().unwrap() })
        .collect()
}

fn start<'c>(cluster: &'c Cluster, rank: u32, words: &[&str], generation: &str) -> Pod<'c> {
    let words = [&["group"], words].concat();
    let more =
        [("BELLWETHER_GENERATION", generation), ("BELLWETHER_SLOTS", "2"), ("BELLWETHER_PORT", "2345")];
    cluster.start(&format!("group-{rank}"), &format!("127.0.0.{}", 41 + rank), &words, &more)
}

fn environment(pod: &Pod<'_>) -> BTreeMap<String, String> {
    let printed = pod.printed("out");
    let pairs = printed.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn torchrun_finds_its_fellows_once_all_are_there() {
    let cluster = Cluster::new(JOB);
    let words = ["--backend=torchrun", "--", "sh", "-c", "env; exit $RANK"];
    let pods = [start(&cluster, 0, &words, "3"), start(&cluster, 1, &words, "3")];
    let wish = |generation, size, count| {
        cluster.change_wish(|wish| {
            (wish.generation, wish.size, wish.members) = (generation, size, members(count))
        });
    };
    wish(2, 2, 2);
    wish(3, 2, 1);
    std::thread::sleep(Duration::from_millis(300));
    assert!(pods.iter().all(|pod| pod.printed("out").is_empty()), "not all are there");
    wish(3, 2, 2);
    for (rank, pod) in pods.iter().enumerate() {
        let found =
            wait_for("an environment", || Some(environment(pod)).filter(|found| found.contains_key("PATH")));
        let rank = rank.to_string();
        for (name, value) in [
            ("RANK", &*rank),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "0"),
            ("MASTER_ADDR", "127.0.0.41"),
            ("MASTER_PORT", "2345"),
            ("PET_NNODES", "2"),
            ("PET_NODE_RANK", &*rank),
            ("PET_NPROC_PER_NODE", "2"),
            ("PET_MASTER_ADDR", "127.0.0.41"),
            ("PET_MASTER_PORT", "2345"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }
    assert_eq!(pods.map(Pod::code), [Some(0), Some(1)]);
}

#[test]
fn tensorflow_is_told_the_addresses_of_all() {
    let cluster = Cluster::new(JOB);
    let pod = start(&cluster, 1, &["--backend=tensorflow", "--", "sh", "-c", "env"], "1");
    cluster.change_wish(|wish| (wish.generation, wish.size, wish.members) = (1, 2, members(2)));
    let found = wait_for("TF_CONFIG", || environment(&pod).remove("TF_CONFIG"));
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let expected = serde_json::json!({
        "cluster": { "worker": ["127.0.0.41:2345", "127.0.0.42:2345"] },
        "task": { "type": "worker", "index": 1 },
    });
    assert_eq!(found, expected);
    assert_eq!(pod.code(), Some(0));
}

#[test]
fn the_first_reports_what_it_prints_and_its_output_stays_as_it_is() {
    let cluster = Cluster::new(JOB);
    let script = "printf 'step 7: 12.5 samples/s\\nno end'; echo 'step 9: 14.0 samples/s' >&2; \
                  trap 'echo; echo asked; exit 5' TERM; while :; do sleep 0.05; done";
    let pattern = "--pattern=step (?<step>[0-9]+): (?<samples_per_second>[0-9.]+) samples";
    let words = ["--backend=torchrun", pattern, "--", "sh", "-c", script];
    let pods = [start(&cluster, 0, &words, "1"), start(&cluster, 1, &words, "1")];
    cluster.change_wish(|wish| (wish.generation, wish.size, wish.members) = (1, 2, members(2)));
    let mut reports = Vec::new();
    wait_for("reports", || {
        reports.extend(cluster.news.try_iter());
        let of =
            |step, speed| Report { step: Some(step), samples_per_second: Some(speed), ..Report::default() };
        // Of two within a second the second counts.
        let last = [of(7, 12.5), of(9, 14.0)];
        let known = |(uid, news): &(String, News)| {
            assert_eq!(uid, UID);
            last.iter().any(|report| *news == News::Reported(*report))
        };
        (reports.len() >= 2 && reports.iter().all(known)).then_some(())
    });
    assert_eq!(reports.len(), 2, "only the first speaks: {reports:?}");
    for pod in pods {
        wait_for("what it printed", || pod.printed("out").ends_with("no end").then_some(()));
        pod.signal(Signal::TERM);
        wait_for("an answer", || pod.printed("out").ends_with("asked\n").then_some(()));
        assert_eq!(pod.printed("out"), "step 7: 12.5 samples/s\nno end\nasked\n");
        assert!(pod.printed("err").contains("step 9: 14.0 samples/s\n"));
        assert_eq!(pod.code(), Some(5));
    }
}

#[test]
fn a_pod_of_an_older_set_ends() {
    let cluster = Cluster::new(JOB);
    let pod = start(&cluster, 0, &["--backend=torchrun", "--", "true"], "1");
    cluster.change_wish(|wish| wish.generation = 2);
    assert_eq!(pod.code(), Some(143));
}
