//! A holder of the token may say anything: nothing breaks a machine, or makes it grow without bound.

use bellwether_core::plan::{Synchronisation, TransmissionOrder};
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::Network;
use bellwether_core::record::Boot;
use bellwether_runtime::membership::coordinator::{Config, Coordinator, Event};
use bellwether_runtime::membership::member::{Member, Rules, Task};
use bellwether_runtime::membership::{
    Active, EvaluationRecord, FromWorker, Load, Membership, Mismatch, Offer, Peer, Phase, Report, Serve,
    ServerReport, Shadow, StepRecord, SwitchRecord, ToWorker, UnitRecord, Verdict, WorkerId,
    WorkloadDescription,
};

use super::cases::{RULES, config};
use bellwether_testkit::Random;

/// Numbers of which some are right at some time, and some never.
fn number(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => u64::MAX,
        1 => u64::MAX - random.below(3),
        2 => 1 << 53,
        3 => random.bits(),
        4 => 100 + random.below(3),
        _ => random.below(12),
    }
}

fn seconds(random: &mut Random) -> f64 {
    random.pick(&[0.0, 0.01, 1.0, -1.0, 1e300, f64::NAN, f64::INFINITY]).expect("not empty")
}

fn many<T>(random: &mut Random, each: impl Fn(&mut Random) -> T) -> Vec<T> {
    (0..random.below(4)).map(|_| each(random)).collect()
}

fn report(random: &mut Random) -> Report {
    Report {
        epoch: number(random),
        step: number(random),
        steps: many(random, |random| StepRecord {
            step: number(random),
            loss: Some(seconds(random)),
            duration_s: seconds(random),
            accumulation: number(random) as u32,
            ..StepRecord::default()
        }),
        evaluations: many(random, |random| EvaluationRecord {
            step: number(random),
            loss: seconds(random),
            correct: number(random),
            predictions: number(random),
            samples: number(random),
        }),
        switches: many(random, |random| SwitchRecord {
            epoch: number(random),
            step: number(random),
            stall_s: seconds(random),
        }),
        resident_bytes: number(random),
    }
}

fn from_worker(random: &mut Random) -> FromWorker {
    let (epoch, step, what) = (number(random), number(random), "anything".to_string());
    match random.below(23) {
        0 => FromWorker::Warmed(WorkloadDescription {
            training_samples: random.below(2),
            ..Default::default()
        }),
        1 => {
            let network = Network { bandwidth_bytes_per_s: seconds(random), latency_s: seconds(random) };
            FromWorker::LinkMeasured { network, shared_memory: Some(network) }
        }
        21 => FromWorker::Booted(Boot {
            start_s: seconds(random),
            importing_s: seconds(random),
            building_s: seconds(random),
            compiling_s: seconds(random),
        }),
        2 => FromWorker::Heartbeat,
        3 | 4 => FromWorker::Ready {
            epoch,
            step,
            last: number(random),
            trained: (number(random), random.bits() as u32),
        },
        5 => FromWorker::Lost { epoch, step, peer: Some(number(random)), why: what },
        6 | 7 => FromWorker::Report(report(random)),
        8 => FromWorker::CaughtUp { epoch, step },
        9 => FromWorker::Leave { replace: random.chance(0.5) },
        10 => FromWorker::Left { epoch, step },
        11 => FromWorker::Failed { what },
        12 => FromWorker::NotFinite { step, what },
        20 => FromWorker::UserFailed { what, step, node: number(random) as u32 },
        13 => FromWorker::Units {
            epoch,
            done: many(random, |random| UnitRecord { unit: number(random), ..UnitRecord::default() }),
            want: number(random) as u32,
        },
        14 => FromWorker::ServerLost { epoch, shard: number(random) as u32, why: what },
        15 => FromWorker::Serving { epoch },
        16 => FromWorker::ServerReport(ServerReport {
            epoch,
            handed_over: Some(step),
            apply_s: seconds(random),
            ..ServerReport::default()
        }),
        17 | 18 => FromWorker::Mismatched(Mismatch {
            epoch,
            step,
            node: random.below(6) as u32,
            worker: number(random),
            checker: number(random),
            verdict: match random.below(3) {
                0 => Verdict::Awaited,
                1 => Verdict::Open,
                _ => Verdict::Wrong { worker: number(random), judge: number(random) },
            },
        }),
        19 => FromWorker::CheckpointFailed { step, why: what },
        _ => match random.chance(0.5) {
            true if random.chance(0.1) => FromWorker::Lacking { epoch, shard: number(random) as u32 },
            true => FromWorker::ShadowLost { epoch, shadow: number(random) },
            false => FromWorker::Finished { step, digest: [random.below(2) as u8; 32] },
        },
    }
}

fn event(random: &mut Random) -> Event {
    // A worker without a sensible number is not let in.
    let worker = 1 + random.below(9);
    let address = "host:1".to_string();
    match random.below(30) {
        0..=3 => Event::Attached {
            worker,
            address,
            process: 1,
            instance: random.below(2),
            waited_s: 0.0,
            held: random.chance(0.5).then(|| (number(random), number(random))),
            workload: random.chance(0.7).then(WorkloadDescription::default),
        },
        4 => Event::ServerAttached {
            server: 20 + random.below(4),
            address,
            process: 1,
            instance: 1,
            waited_s: 0.0,
        },
        5 => Event::Gone(worker, "anything".into()),
        6 => Event::Ended(worker),
        7 => Event::Scale(random.below(9) as u32),
        8 => Event::Replace(worker),
        9 => Event::Revoked(worker),
        10 => Event::Accumulate(random.bits() as u32),
        11 => Event::Pause(worker),
        12 => Event::Unpause,
        13 => Event::Received(random.below(12)),
        14 => Event::Collected(random.below(12), Ok(())),
        15 => {
            Event::Checkpoint(random.below(12), if random.chance(0.5) { Ok(()) } else { Err("full".into()) })
        }
        16 => Event::Said(20 + random.below(4), from_worker(random)),
        17 => Event::Gone(20 + random.below(4), "anything".into()),
        18 => Event::Tick,
        19 => Event::Protocol(
            random.below(12),
            random.pick(&[Protocol::Asp, Protocol::Bsp]).expect("not empty"),
        ),
        _ => Event::Said(worker, from_worker(random)),
    }
}

#[test]
fn nothing_that_a_worker_says_breaks_the_coordinator() {
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let mut coordinator = Coordinator::new(
            Config {
                spawns: random.chance(0.5),
                max_barren_crashes: u32::MAX,
                max_accumulation: random.pick(&[1, 4]).expect("not empty"),
                synchronisation: Synchronisation {
                    reduce_at_servers: random.chance(0.5),
                    replica: random.chance(0.5),
                    ..Synchronisation::default()
                },
                schedule: if random.chance(0.3) { vec![(5, 2), (9, 4)] } else { Vec::new() },
                ..config(1 + random.below(4) as u32)
            },
            0.0,
        );
        if random.chance(0.8) {
            coordinator.set_total_steps(RULES.total_steps);
        }
        let (mut now_s, mut largest) = (0.0, 0);
        for turn in 0..400 {
            now_s += random.between(0.0, 0.2);
            let event = event(&mut random);
            coordinator.handle(event, now_s);
            if turn == 150 {
                largest = format!("{coordinator:?}").len();
            }
        }
        let size = format!("{coordinator:?}").len();
        assert!(size < 4 * largest.max(10_000), "seed {seed}: it grows from {largest} to {size}");
    }
}

fn a_membership(random: &mut Random) -> Membership {
    let worker = |random: &mut Random| -> WorkerId { 1 + random.below(4) };
    Membership {
        epoch: number(random),
        active: many(random, |random| Active {
            worker: worker(random),
            address: "host:1".into(),
            nodes: 0..1 + random.below(4) as u32,
        }),
        shadows: many(random, |random| Shadow { worker: worker(random), address: "host:1".into() }),
        promoted: many(random, worker),
        from_step: number(random),
        hold_at: random.chance(0.5).then(|| number(random)),
        decided: number(random),
        stop: random.chance(0.2),
        accumulation: number(random) as u32,
        paused: many(random, worker),
        sharded: random.chance(0.5),
    }
}

fn to_worker(random: &mut Random) -> ToWorker {
    let (epoch, step) = (number(random), number(random));
    let peers = |random: &mut Random| {
        many(random, |random| Peer { worker: number(random), address: "host:1".into() })
    };
    match random.below(14) {
        0 | 1 => ToWorker::Prepare(a_membership(random)),
        2 | 3 => {
            let load =
                random.pick(&[None, Some(Load::Fresh), Some(Load::Checkpoint(step))]).expect("not empty");
            ToWorker::Recover { membership: a_membership(random), load, keep: random.chance(0.5) }
        }
        4 | 5 => ToWorker::Start {
            epoch,
            step,
            behind: many(random, |random| random.below(4)),
            source: random.below(4),
            accumulation: number(random) as u32,
        },
        6 => ToWorker::Phase(Phase {
            epoch,
            protocol: Protocol::Asp,
            servers: peers(random),
            peers: peers(random),
            order: TransmissionOrder::Fifo,
            checkpoint: Some(step),
            late: random.chance(0.5),
        }),
        7 => ToWorker::Grant { epoch, units: many(random, number) },
        8 => ToWorker::EvaluateAlone { epoch, step },
        9 => ToWorker::HandOver { epoch, step },
        12 => ToWorker::GoOn { step },
        11 => ToWorker::SendCheckpoint { epoch, step },
        10 => ToWorker::Serve(Serve {
            epoch,
            shard: 0,
            shards: 1,
            protocol: Protocol::Bsp,
            step,
            checkpoint: None,
            workload: WorkloadDescription::default(),
            replica: None,
            follows: false,
            order: TransmissionOrder::Fifo,
        }),
        _ if random.chance(0.1) => ToWorker::Bye { reason: "anything".into(), refused: false },
        _ => ToWorker::HandOver { epoch, step },
    }
}

/// Carries out what the member says, well or badly.
fn carry_out(member: &mut Member, random: &mut Random) {
    let (epoch, well) = (member.membership().epoch, random.chance(0.7));
    match member.next_task() {
        Task::Form { load, .. } => {
            let loaded = load.map(|load| if let Load::Checkpoint(step) = load { step } else { 0 });
            let result = if well { Ok(()) } else { Err((Some(2), "no".into())) };
            drop(member.formed(epoch, loaded, result));
        }
        task @ (Task::Train | Task::Hold) => {
            let offer = member.offer(&task);
            let other = Offer { epoch: number(random), decided: number(random), checkpoint: number(random) };
            member.round_done(&task, &[offer, if well { offer } else { other }]);
        }
        Task::BeginShadow => member.shadow_began(number(random)),
        Task::CatchUp { .. } => member.caught_up_with_result(),
        Task::Evaluate => member.evaluated(),
        Task::Checkpoint => member.checkpointed(),
        Task::Switch(membership) => member.switched(membership),
        Task::Finish => drop(member.finished([0; 32])),
        Task::Unit(unit) => member.unit_done(unit),
        Task::EvaluateAlone(_) => member.evaluated_alone(),
        Task::HandOver(_) => member.handed_over(),
        Task::Wait if member.is_shadow() => drop(member.shadow_complete()),
        Task::Wait | Task::Idle | Task::Leave | Task::Exit { .. } => {}
    }
}

#[test]
fn nothing_that_a_coordinator_says_breaks_a_worker() {
    for seed in 0..600 {
        let mut random = Random::new(1_000_000 + seed);
        let rules = Rules { evaluate_every: random.below(3), checkpoint_every: random.below(3), ..RULES };
        let mut member = Member::new(1 + random.below(3), rules);
        for _ in 0..300 {
            match random.below(8) {
                0..=2 => drop(member.message(to_worker(&mut random))),
                3 => {
                    let membership = a_membership(&mut random);
                    let result = if random.chance(0.8) { Ok(()) } else { Err((2, "no".into())) };
                    drop(member.prepared(membership, result));
                }
                4 if random.chance(0.2) => {
                    drop(member.disconnected());
                    member.reconnected();
                }
                5 => drop(member.failed(number(&mut random), None, "anything".into())),
                _ => carry_out(&mut member, &mut random),
            }
        }
        assert!(format!("{member:?}").len() < 100_000, "seed {seed}: it grows");
    }
}
