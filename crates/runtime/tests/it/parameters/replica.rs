//! Replicas: the same bytes as the primary, and nothing acknowledged is lost with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bellwether_core::job::Optimizer as Update;
use bellwether_runtime::parameters::{Rule, Server, Told, Work};

use super::harness::{Group, layout, optimizer, pair, plain};

const PATIENCE: Duration = Duration::from_secs(20);

fn momentum() -> Update {
    Update::Sgd { learning_rate: 0.1, momentum: 0.9, nesterov: false, weight_decay: 0.01, clip_norm: None }
}

/// Starts a replica of server 0 that has begun the same phase, and waits until it is whole.
fn replicate(group: &Group, rule: Rule) -> Server {
    let (replica, of_replica) = group.server(0);
    replica.begin(group.phase(1, rule, 0));
    let (here, there) = pair();
    replica.follow(there).expect("it follows");
    group.servers[0].replicate_to(here).expect("it replicates");
    let told = group.told[0].lock().expect("no panic");
    loop {
        match told.recv_timeout(PATIENCE).expect("told") {
            Told::Replicated => return replica,
            Told::ReplicaLost { why } => panic!("{why}, {:?}", of_replica.try_recv()),
            Told::Left { .. } | Told::PrimaryLost { .. } => {}
        }
    }
}

fn work(group: &Group, rule: Rule, unit: u64) -> Work {
    Work { together: rule == Rule::Together, share: 0.25, scale: 0.5, ..group.each(unit) }
}

fn equal(primary: &Server, replica: &Server) {
    assert_eq!(replica.shard().digest(), primary.shard().digest());
    let (of_primary, of_replica) = (primary.account(), replica.account());
    assert_eq!(of_replica.progress, of_primary.progress);
    let versions = |pieces: &[(u32, u64, f64)]| pieces.iter().map(|piece| piece.1).collect::<Vec<_>>();
    assert_eq!(versions(&of_replica.pieces), versions(&of_primary.pieces));
}

#[test]
fn a_replica_that_comes_while_workers_push_has_the_same_bytes() {
    for rule in [Rule::Each, Rule::Together] {
        let group = Group::start(layout(&[200_000, 30], &[6]), 1, 3, optimizer(momentum()));
        group.begin(rule);
        let next = AtomicU64::new(0);
        let replicas = std::thread::scope(|scope| {
            for worker in 0..3 {
                let (group, next) = (&group, &next);
                scope.spawn(move || {
                    let mut client = group.client(worker);
                    loop {
                        let unit = next.fetch_add(1, Ordering::Relaxed);
                        if unit >= 60 {
                            return;
                        }
                        let account = group.unit(&mut client, work(group, rule, unit), unit as f32);
                        account.expect("a unit");
                    }
                });
            }
            // The second takes the place of the first.
            let first = replicate(&group, rule);
            std::thread::sleep(Duration::from_millis(5));
            [replicate(&group, rule), first]
        });
        equal(&group.servers[0], &replicas[0]);
        assert_eq!(group.servers[0].account().progress.watermark(), 60);
    }
}

#[test]
fn workers_go_on_at_the_replica_when_the_primary_dies() {
    for rule in [Rule::Each, Rule::Together] {
        let mut group = Group::start(layout(&[200_000, 30], &[6]), 1, 3, plain());
        group.begin(rule);
        let replica = replicate(&group, rule);
        let primary = group.servers.remove(0);
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let mut handles = Vec::new();
            for worker in 0..3 {
                let streams = vec![group.dial(&primary, worker)];
                let mut client = group.client_over(streams, PATIENCE);
                handles.push(client.handle());
                let (group, next, done) = (&group, &next, &done);
                scope.spawn(move || {
                    loop {
                        let unit = next.fetch_add(1, Ordering::Relaxed);
                        if unit >= 60 {
                            return;
                        }
                        let work = Work { share: 1.0, scale: 1.0, ..work(group, rule, unit) };
                        group.unit(&mut client, work, 1.0).expect("a unit");
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            while done.load(Ordering::Relaxed) < 20 {
                std::thread::yield_now();
            }
            primary.stop();
            for (worker, handle) in (0..).zip(handles) {
                handle.replace(0, group.dial(&replica, worker)).expect("replaced");
            }
        });
        let shard = replica.shard();
        // Each unit's gradient once: whatever was acknowledged before, and whatever was sent again.
        let once = shard.parameters.iter().all(|value| *value == -60.0);
        assert!(once, "{rule:?}: {:?}", &shard.parameters[..3]);
        assert_eq!(replica.account().progress.watermark(), 60);
    }
}

#[test]
fn a_primary_goes_on_without_its_replica() {
    let group = Group::start(layout(&[100_000], &[]), 1, 1, plain());
    group.begin(Rule::Each);
    let replica = replicate(&group, Rule::Each);
    let mut client = group.client(0);
    group.unit(&mut client, group.each(0), 1.0).expect("a unit");
    equal(&group.servers[0], &replica);
    replica.stop();
    group.unit(&mut client, group.each(1), 1.0).expect("a unit");
    let told = group.told[0].lock().expect("no panic").recv_timeout(PATIENCE).expect("told");
    assert!(matches!(told, Told::ReplicaLost { .. }), "{told:?}");
    assert!(group.whole().parameters.iter().all(|value| *value == -2.0));
}

#[test]
fn a_replica_says_that_its_primary_is_gone() {
    let group = Group::start(layout(&[10], &[]), 1, 1, plain());
    group.begin(Rule::Each);
    let (replica, told) = group.server(0);
    replica.begin(group.phase(1, Rule::Each, 0));
    let (here, there) = pair();
    replica.follow(there).expect("it follows");
    drop(here);
    let told = told.recv_timeout(PATIENCE).expect("told");
    assert!(matches!(told, Told::PrimaryLost { .. }), "{told:?}");
}
