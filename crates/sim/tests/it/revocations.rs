//! Transient nodes: each lives as its law and its name say, in whatever cluster it is.

use bellwether_model::speedup::{Law, Speedup};
use bellwether_sched::drive::drive;
use bellwether_sched::registry::Registry;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::trace::{ReadOptions, read};
use bellwether_sim::world::{Outage, Recording, Scenario, World};

const FIRM: &str = "[[nodes]]\ncount = 1\ndevices = 1\ndevice = \"firm\"\n";

/// How long the job of the trace takes, in seconds.
const SPAN_S: f64 = 100_000.0;

fn group(name: &str, count: u32) -> String {
    format!(
        "[[nodes]]\ncount = {count}\ndevices = 1\ndevice = \"gone\"\nname = \"{name}\"\n\
         lifetimes = \"exponential:1h\"\nreplacement = \"10min\"\n"
    )
}

/// A job that runs on the node that stays, for as long as is looked at the others.
fn recorded(cluster: &Cluster, seed: u64) -> Recording {
    let rows = format!("job_id,submit_time,num_gpu,duration,device\n0,500,1,{SPAN_S},firm\n");
    let options = ReadOptions { device_types: &cluster.view.device_types, ..ReadOptions::default() };
    let trace = read(rows.as_bytes(), None, &options).expect("a trace");
    let mut scenario = Scenario::new(cluster.view.clone());
    scenario.outages.clone_from(&cluster.outages);
    scenario.seed = seed;
    let model = Speedup::new(Law::Linear, [].into()).expect("a model");
    let mut world = World::new(&trace.entries, &model, &scenario);
    let (_, mut policy) = Registry::built_in().parse("fifo").expect("a policy");
    drive(&mut *policy, &mut world, &model).expect("it runs");
    world.into_recording()
}

#[test]
fn nodes_of_one_name_live_as_long_in_every_cluster() {
    for seed in 1..4 {
        for counts in [[1, 0], [3, 0], [0, 2], [2, 1], [1, 3]] {
            let groups = [("x", counts[0]), ("y", counts[1])];
            let groups = groups.iter().filter(|(_, count)| *count > 0);
            let mut texts: Vec<String> = groups.map(|(name, count)| group(name, *count)).collect();
            texts.push(FIRM.to_owned());
            let straight = Cluster::from_file(&texts.concat(), "cluster").expect("a cluster");
            texts.reverse();
            let reversed = Cluster::from_file(&texts.concat(), "cluster").expect("a cluster");
            let mut expected_s = SPAN_S;
            for (name, count) in [("x", counts[0]), ("y", counts[1])] {
                let servers = straight.outages.iter().find_map(|outage| match outage {
                    Some(Outage::Revocations(servers)) if servers.name == name => Some(servers),
                    _ => None,
                });
                for number in 0..count {
                    let lives = servers.expect("it is there").lives(seed, number.into());
                    let lives = lives.take_while(|(from_s, _)| *from_s < SPAN_S);
                    expected_s += lives.map(|(from_s, until_s)| until_s.min(SPAN_S) - from_s).sum::<f64>();
                }
            }
            for cluster in [straight, reversed] {
                let offered_s = recorded(&cluster, seed).offered_device_s;
                assert!((offered_s - expected_s).abs() < 1e-6, "{counts:?}: {offered_s} {expected_s}");
            }
        }
    }
}

#[test]
fn groups_that_say_twice_or_half_when_nodes_go_are_refused() {
    let refused = |more: &str, words: &str| {
        let text = format!("[[nodes]]\ncount = 1\ndevices = 1\n{more}");
        let error = Cluster::from_file(&text, "cluster").expect_err("no cluster").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused("lifetimes = \"never\"\nmean_time_to_failure = \"1h\"\n", "twice");
    refused("replacement = \"1h\"\n", "lifetimes");
    refused("lifetimes = \"nevr\"\n", "never");
    refused("lifetimes = \"samples:a.txt\"\n", "a.txt");
    refused("lifetimes = \"never\"\nreplacement = \"1e300s\"\n", "replacement");
}
