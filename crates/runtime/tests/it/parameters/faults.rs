//! Broken connections, interruptions and work that is done again: no gradient is lost, and none counts twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bellwether_runtime::parameters::{Fault, Rule, Work};
use bellwether_runtime::workload::TensorExchange;

use super::harness::{Group, layout, pair, plain};

const LONG: Duration = Duration::from_secs(20);

#[test]
fn connections_that_break_all_the_time_lose_nothing() {
    let group = Group::start(layout(&[300_000, 11], &[4]), 2, 4, plain());
    group.begin(Rule::Each);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut client = group.client_with(5, LONG);
        let handle = client.handle();
        let (group, done) = (&group, &done);
        scope.spawn(move || {
            let mut replaced = 0;
            while !done.load(Ordering::Relaxed) {
                let server = replaced % 2;
                handle.replace(server, group.dial(&group.servers[server as usize], 5)).expect("replaced");
                replaced += 1;
                std::thread::sleep(Duration::from_micros(700));
            }
            assert!(replaced > 20, "{replaced}");
        });
        for unit in 0..60 {
            group.unit(&mut client, group.each(unit), 1.0).expect("a unit");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(group.whole().parameters.iter().all(|value| *value == -60.0));
    for (server, account) in (0..).zip(group.servers.iter().map(|server| server.account())) {
        let pieces = group.map.of_server(server).len() as u64;
        assert_eq!((account.updates, account.progress.watermark()), (60 * pieces, 60));
    }
}

#[test]
fn a_unit_that_broke_off_is_done_again_by_another() {
    let group = Group::start(layout(&[100_000, 9, 8], &[]), 1, 4, plain());
    group.begin(Rule::Each);
    let mut parameters = vec![0.0; 9];
    {
        let mut dying = group.client(0);
        dying.begin(group.each(0)).expect("begun");
        dying.pull(1, &mut parameters).expect("taken");
        dying.push(1, &[1.0; 9]).expect("given");
        while group.servers[0].account().updates == 0 {
            std::thread::yield_now();
        }
    }
    let mut other = group.client(1);
    let account = group.unit(&mut other, group.each(0), 1.0).expect("a unit");
    assert_eq!(account.repeated, 1);
    assert!(group.whole().parameters.iter().all(|value| *value == -1.0));
    let account = group.servers[0].account();
    assert_eq!((account.repeated, account.progress.watermark()), (1, 1));
}

#[test]
fn a_unit_that_is_done_again_gets_the_parameters_of_its_step() {
    let group = Group::start(layout(&[100_000, 9, 8], &[]), 2, 1, plain());
    group.begin(Rule::Together);
    let work = |unit| Work { together: true, ..group.each(unit) };
    group.unit(&mut group.client(0), work(0), 1.0).expect("a unit");
    let updates = || group.servers.iter().map(|server| server.account().updates).sum::<u64>();
    let before = updates();
    {
        let mut dying = group.client(1);
        dying.begin(work(1)).expect("begun");
        dying.pull(1, &mut [0.0; 9]).expect("taken");
        dying.push(1, &[1.0; 9]).expect("given");
        // It was the only unit of the step: this piece has done the step, the others have not.
        while updates() == before {
            std::thread::yield_now();
        }
    }
    let seen = std::sync::Mutex::new(Vec::new());
    let gradient = |parameters: &[f32], out: &mut [f32]| {
        seen.lock().expect("no panic").extend_from_slice(parameters);
        out.fill(1.0);
    };
    let account = group.unit_of(&mut group.client(2), work(1), &gradient).expect("a unit");
    assert_eq!(account.repeated, 1);
    assert!(seen.lock().expect("no panic").iter().all(|value| *value == -1.0), "all are of step 1");
    assert!(group.whole().parameters.iter().all(|value| *value == -2.0));
}

#[test]
fn a_lost_server_is_named_and_can_be_replaced() {
    let group = Group::start(layout(&[40, 40], &[]), 2, 1, plain());
    group.begin(Rule::Each);
    let mut client = group.client(0);
    let (silent, there) = pair();
    client.handle().replace(1, silent).expect("replaced");
    client.begin(group.each(0)).expect("begun");
    drop(there);
    let mut out = vec![0.0; 40];
    let held = |server: u32| group.map.pieces()[group.map.of_server(server)[0] as usize].tensor;
    client.pull(held(0), &mut out).expect("the other server is there");
    let error = client.pull(held(1), &mut out).expect_err("no server answers");
    assert!(error.to_string().starts_with("lost parameter server 1: "), "{error}");
    assert_eq!(client.handle().lost().len(), 1);
    client.handle().replace(1, group.dial(&group.servers[1], 0)).expect("replaced");
    client.pull(held(1), &mut out).expect("it was asked again");
    assert!(client.handle().lost().is_empty());
    // The same unit from its begin.
    group.unit(&mut client, group.each(0), 1.0).expect("a unit");
    assert_eq!(group.whole().parameters, [-1.0; 80]);
}

#[test]
fn an_interrupt_ends_every_wait_at_once() {
    let group = Group::start(layout(&[40], &[]), 1, 2, plain());
    group.begin(Rule::Together);
    let mut client = group.client(0);
    let handle = client.handle();
    let work = |unit| Work { together: true, ..group.each(unit) };
    client.begin(work(2)).expect("begun");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            handle.interrupt();
        });
        let begin = Instant::now();
        // Step 1 does not come: no worker did step 0.
        let error = client.pull(0, &mut [0.0; 40]).expect_err("interrupted");
        assert_eq!(error.to_string(), Fault::Interrupted.to_string());
        assert!((0.04..5.0).contains(&begin.elapsed().as_secs_f64()));
    });
    assert_eq!(client.begin(work(0)), Err(Fault::Interrupted));
    handle.resume();
    for unit in [1, 0, 3, 2] {
        group.unit(&mut client, work(unit), 1.0).expect("a unit");
    }
    assert_eq!(group.whole().parameters, [-4.0; 40]);
}

#[test]
fn parts_out_of_order_are_refused() {
    let group = Group::start(layout(&[8, 8], &[]), 1, 1, plain());
    group.begin(Rule::Each);
    let mut client = group.client(0);
    let mut out = [0.0; 8];
    assert!(client.push(0, &out).is_err());
    client.begin(group.each(0)).expect("begun");
    client.pull(0, &mut out).expect("taken");
    client.pull(0, &mut out).expect("taken again");
    client.push(0, &out).expect("given");
    assert!(client.push(0, &out).is_err());
    assert!(client.pull(0, &mut out).is_err());
}

#[test]
fn a_server_that_stops_while_workers_come_does_stop() {
    let group = Group::start(layout(&[64], &[]), 1, 1, plain());
    for round in 0..400 {
        let server = Arc::new(group.server(0).0);
        let (coming, come) = channel();
        let admits = Arc::clone(&server);
        // They stay connected until the server has stopped.
        let workers = std::thread::spawn(move || {
            let mut kept = Vec::new();
            for worker in 0..20 {
                let (here, there) = pair();
                kept.push(here);
                let served = if worker == 3 { admits.follow(there) } else { admits.serve(there, worker) };
                let _ = coming.send(());
                if served.is_err() {
                    return kept;
                }
            }
            kept
        });
        (0..round % 7).for_each(|_| come.recv().expect("they keep coming"));
        let (done, stopped) = channel();
        std::thread::spawn(move || {
            server.stop();
            done.send(()).expect("somebody waits");
        });
        stopped.recv_timeout(LONG).unwrap_or_else(|_| panic!("round {round}: it waits for ever"));
        drop(workers.join().expect("they are sent away"));
    }
}
