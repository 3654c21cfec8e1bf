//! The model of the exchange and the exchange itself: which vectors go the short way, and how many bytes travel.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;

use bellwether_core::prediction::Link;
use bellwether_core::profile::CollectiveCost;
use bellwether_model::collective::{DirectExchange, partial_sums};
use bellwether_runtime::channel::Stream;
use bellwether_runtime::collective::{Collective, CollectivePlan, Member, Stamp, wake_pair};
use bellwether_runtime::mesh::Mesh;
use bellwether_runtime::tree;

#[test]
fn model_and_runtime_cut_the_tree_alike() {
    for nodes in 1..=64u32 {
        for workers in 1..=nodes {
            let ranges = tree::ranges(nodes, workers).into_iter();
            let held: Vec<u32> = ranges.map(|range| tree::maximal_nodes(nodes, range).len() as u32).collect();
            assert_eq!(partial_sums(nodes, workers), Ok(held), "{nodes} virtual nodes, {workers} workers");
        }
    }
}

/// The plan of one of the workers that share these virtual nodes.
fn plan(nodes: u32, workers: u32, me: u64, values: u64) -> CollectivePlan {
    let ranges = tree::ranges(nodes, workers).into_iter().zip(0..);
    let members = ranges.map(|(nodes, worker)| Member { worker, nodes }).collect();
    CollectivePlan::new(nodes, members, Vec::new(), me, values as usize).expect("a plan")
}

/// Whether the runtime sends vectors of this many values to all owners at once, as its plan says.
fn small_by_the_runtime(nodes: u32, workers: u32, values: u64) -> bool {
    let plan = format!("{:?}", plan(nodes, workers, 0, values));
    assert!(plan.contains("mode: Small") != plan.contains("mode: Bulk"), "the plan names its mode: {plan}");
    plan.contains("mode: Small")
}

/// The same by the model: with a latency of 1 s and nothing else, the seconds are the hops.
fn small_by_the_model(nodes: u32, workers: u32, values: u64) -> bool {
    let link = Link { bandwidth_bytes_per_s: 1e300, latency_s: 1.0 };
    let free = CollectiveCost { s_per_byte: 0.0, fixed_s: 0.0 };
    let exchange = DirectExchange::new(nodes, workers, 4 * values).expect("an exchange");
    let hops = exchange.seconds(&link, &free).expect("seconds");
    // Between groups they go two hops more.
    if workers > 16 { hops < 3.5 } else { hops < 1.5 }
}

#[test]
fn model_and_runtime_call_the_same_vectors_small() {
    let mut seen = [0, 0];
    let few = [(2, 2), (3, 2), (8, 3), (8, 4), (8, 8), (7, 5), (33, 15), (64, 16)];
    let many = [(17, 17), (64, 20), (20, 20), (36, 36), (128, 36), (100, 50)];
    for (nodes, workers) in few.into_iter().chain(many) {
        // Around every size at which one of them might change its mind.
        for kibibytes in [1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
            for values in [kibibytes * 256 - 1, kibibytes * 256, kibibytes * 256 + 1] {
                let small = small_by_the_runtime(nodes, workers, values);
                assert_eq!(small_by_the_model(nodes, workers, values), small, "{nodes} {workers} {values}");
                seen[usize::from(small)] += 1;
            }
        }
        for peers in [7, 8, 9, 10, 11, 12, 13, 14, 15] {
            // What a member with this many peers may send to all of them together.
            let most = 96 * 1024 / peers / 4;
            for values in [most - 1, most, most + 1] {
                let small = small_by_the_runtime(nodes, workers, values);
                assert_eq!(small_by_the_model(nodes, workers, values), small, "{nodes} {workers} {values}");
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 50), "both kinds were seen: {seen:?}");
}

/// The most bytes that one worker sends or receives in an exchange between threads.
fn most_bytes_of_an_exchange(nodes: u32, workers: u32, values: usize) -> u64 {
    let mut meshes: BTreeMap<u64, Mesh> = (0..u64::from(workers)).map(|id| (id, Mesh::new())).collect();
    let plans: Vec<CollectivePlan> =
        (0..u64::from(workers)).map(|me| plan(nodes, workers, me, values as u64)).collect();
    for plan in &plans {
        let me = plan.worker();
        for peer in plan.peers().filter(|peer| *peer > me) {
            let (here, there) = UnixStream::pair().expect("descriptors");
            for (mine, other, stream) in [(me, peer, here), (peer, me, there)] {
                let mesh = meshes.get_mut(&mine).expect("every worker has one");
                mesh.insert(other, Stream::from(stream)).expect("a sound socket");
            }
        }
    }
    let sums = partial_sums(nodes, workers).expect("they can share them");
    let run = |(plan, (mut mesh, sums)): (CollectivePlan, (Mesh, u32))| {
        let (_waker, wake) = wake_pair().expect("descriptors");
        let partials = vec![vec![1.0; values]; sums as usize];
        let partials: Vec<&[f32]> = partials.iter().map(Vec::as_slice).collect();
        let stamp = Stamp { job: 1, epoch: 1, step: 1 };
        let mut out = vec![0.0; values];
        let outcome = Collective::new(plan).run(&mut mesh, stamp, &[], &partials, &mut out, &wake);
        let traffic = outcome.expect("all take part").traffic;
        let sent: u64 = traffic.iter().map(|peer| peer.sent_bytes).sum();
        let received: u64 = traffic.iter().map(|peer| peer.received_bytes).sum();
        sent.max(received)
    };
    std::thread::scope(|scope| {
        let members = plans.into_iter().zip(meshes.into_values().zip(sums));
        let threads: Vec<_> = members.map(|member| scope.spawn(move || run(member))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).max().unwrap_or(0)
    })
}

#[test]
fn model_and_runtime_send_as_many_bytes() {
    for (nodes, workers) in [(2, 2), (7, 5), (64, 16), (17, 17), (64, 20), (20, 20), (36, 36), (50, 36)] {
        // Frames have headers, which count where pieces are as short as a cache line, and pieces do not divide a vector
        // evenly.
        for (values, most) in [(1_000, 0.3), (200_000, 0.06)] {
            let sent = most_bytes_of_an_exchange(nodes, workers, values) as f64;
            let model = DirectExchange::new(nodes, workers, 4 * values as u64).expect("an exchange");
            let more = sent / model.link_bytes() - 1.0;
            assert!((-0.001..most).contains(&more), "{nodes} {workers} {values}: {sent}, {more}");
        }
    }
}
