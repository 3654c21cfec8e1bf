//! Untrusted bytes: no decoder panics, none allocates by a claim, and what is written is read back.

use bellwether_core::plan::TransmissionOrder;
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::Network;
use bellwether_core::record::{Boot, Call, LinkKind, Staleness, Traffic};
use bellwether_runtime::control::generated as wire;
use bellwether_runtime::control::{Token, convert};
use bellwether_runtime::membership::{
    Active, Activity, EvaluationRecord, FromWorker, Load, Membership, Mismatch, Peer, Phase, Position,
    Report, Serve, ServerReport, Shadow, StepRecord, SwitchRecord, ToWorker, UnitRecord, Verdict,
    WorkloadDescription,
};
use bellwether_runtime::transfer::{Header, Kind};
use bellwether_runtime::workload::{Layout, Tensor};
use proptest::prelude::*;
use prost::Message;

fn membership() -> impl Strategy<Value = Membership> {
    let member = (1u64..9, "[a-z0-9.:]{0,12}", 0u32..5, 1u32..5);
    (any::<u64>(), proptest::collection::vec(member, 0..4), any::<u64>(), any::<Option<u64>>(), any::<bool>())
        .prop_map(|(epoch, members, from_step, hold_at, stop)| Membership {
            epoch,
            active: members
                .iter()
                .map(|(worker, address, first, count)| Active {
                    worker: *worker,
                    address: address.clone(),
                    nodes: *first..first + count,
                })
                .collect(),
            shadows: members.iter().map(|m| Shadow { worker: m.0, address: m.1.clone() }).collect(),
            promoted: members.iter().map(|m| m.0).collect(),
            from_step,
            hold_at,
            decided: from_step / 2,
            stop,
            accumulation: epoch as u32,
            paused: members.iter().map(|m| m.0).collect(),
            sharded: stop,
        })
}

fn order() -> impl Strategy<Value = TransmissionOrder> {
    prop_oneof![
        Just(TransmissionOrder::Fifo),
        any::<u64>().prop_map(|window_bytes| TransmissionOrder::RoundRobin { window_bytes }),
        proptest::collection::vec(any::<u32>(), 1..5).prop_map(TransmissionOrder::Priority),
    ]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop_oneof![
        Just(Protocol::Bsp),
        Just(Protocol::Asp),
        Just(Protocol::Gossip),
        any::<u32>().prop_map(Protocol::Ssp),
    ]
}

fn peers() -> impl Strategy<Value = Vec<Peer>> {
    let peer = (any::<u64>(), "[a-z0-9.:]{0,12}").prop_map(|(worker, address)| Peer { worker, address });
    proptest::collection::vec(peer, 0..4)
}

fn workload() -> impl Strategy<Value = WorkloadDescription> {
    (".*", any::<u64>(), any::<u64>(), 0usize..99).prop_map(|(fingerprint, a, b, size)| {
        let tensors = vec![Tensor { name: fingerprint.clone(), shape: vec![size, 3] }];
        WorkloadDescription {
            fingerprint,
            training_samples: a,
            held_out_samples: b,
            layout: Layout { parameters: tensors.clone(), state: tensors },
        }
    })
}

/// What is said about phases without a membership.
fn to_worker_asynchronous() -> impl Strategy<Value = ToWorker> {
    let two = || (any::<u64>(), any::<u64>());
    prop_oneof![
        (any::<u64>(), protocol(), peers(), peers(), order(), any::<Option<u64>>()).prop_map(
            |(epoch, protocol, servers, peers, order, checkpoint)| {
                ToWorker::Phase(Phase { epoch, protocol, servers, peers, order, checkpoint, late: epoch > 9 })
            }
        ),
        (any::<u64>(), any::<Vec<u64>>()).prop_map(|(epoch, units)| ToWorker::Grant { epoch, units }),
        two().prop_map(|(epoch, step)| ToWorker::EvaluateAlone { epoch, step }),
        two().prop_map(|(epoch, step)| ToWorker::HandOver { epoch, step }),
        (two(), 0u32..9, protocol(), any::<Option<u64>>(), workload(), peers(), order()).prop_map(
            |((epoch, step), shard, protocol, checkpoint, workload, peers, order)| {
                let (replica, follows) = (peers.first().cloned(), shard > 4);
                let shards = shard + 1;
                ToWorker::Serve(Serve {
                    epoch,
                    shard,
                    shards,
                    protocol,
                    step,
                    checkpoint,
                    workload,
                    replica,
                    follows,
                    order,
                })
            }
        ),
    ]
}

fn from_worker_asynchronous() -> impl Strategy<Value = FromWorker> {
    let unit = (any::<u64>(), 0f64..1e9, 0u32..1000).prop_map(|(n, x, tensor)| UnitRecord {
        unit: n,
        samples: n,
        loss_sum: x,
        duration_s: x,
        compute_s: x,
        data_wait_s: x,
        wait_s: x,
        segments_s: vec![x; 3],
        calls: vec![Call::Take(tensor), Call::Give(tensor)],
        worker: 0,
    });
    prop_oneof![
        (0f64..1e3, 0f64..1e3, 0f64..1e3).prop_map(|(importing_s, building_s, compiling_s)| {
            FromWorker::Booted(Boot { start_s: 0.0, importing_s, building_s, compiling_s })
        }),
        (any::<u64>(), proptest::collection::vec(unit, 0..3), any::<u32>())
            .prop_map(|(epoch, done, want)| FromWorker::Units { epoch, done, want }),
        (any::<u64>(), any::<u32>(), ".*").prop_map(|(epoch, shard, why)| FromWorker::ServerLost {
            epoch,
            shard,
            why
        }),
        any::<u64>().prop_map(|epoch| FromWorker::Serving { epoch }),
        (any::<u64>(), any::<Vec<u64>>(), any::<Option<u64>>(), 0f64..1e9).prop_map(
            |(n, counts, handed_over, x)| {
                FromWorker::ServerReport(ServerReport {
                    epoch: n,
                    staleness: Staleness { counts, sum: n, largest: n },
                    updates: n,
                    apply_s: x,
                    received_bytes: n,
                    sent_bytes: n,
                    handed_over,
                    pieces_s: vec![x],
                })
            }
        ),
    ]
}

fn to_worker() -> impl Strategy<Value = ToWorker> {
    prop_oneof![
        to_worker_asynchronous(),
        membership().prop_map(ToWorker::Prepare),
        (membership(), any::<Option<u64>>(), any::<bool>()).prop_map(|(membership, step, keep)| {
            let load = step.map(|s| if s == 0 { Load::Fresh } else { Load::Checkpoint(s) });
            ToWorker::Recover { membership, load, keep }
        }),
        (any::<u64>(), any::<u64>(), any::<Vec<u64>>(), any::<u64>()).prop_map(
            |(epoch, step, behind, source)| {
                let accumulation = source as u32;
                ToWorker::Start { epoch, step, behind, source, accumulation }
            }
        ),
        (any::<u64>(), any::<u64>()).prop_map(|(epoch, step)| ToWorker::SendCheckpoint { epoch, step }),
        any::<u64>().prop_map(|step| ToWorker::GoOn { step }),
        (".*", any::<bool>()).prop_map(|(reason, refused)| ToWorker::Bye { reason, refused }),
        any::<bool>().prop_map(|explain| ToWorker::Inquire { explain }),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Awaited),
        Just(Verdict::Open),
        (1u64.., 1u64..).prop_map(|(worker, judge)| Verdict::Wrong { worker, judge }),
    ]
}

fn position() -> impl Strategy<Value = Position> {
    let times = (0f64..1e9, 0f64..1e9, any::<Option<u32>>());
    let place = (prop::sample::select(&Activity::ALL[..]), any::<u64>(), any::<u64>());
    (place, times, any::<Vec<u64>>(), "[a-z ]{0,20}").prop_map(
        |((activity, epoch, step), (since_s, starved_s, usual), waits_for, thread)| Position {
            activity,
            epoch,
            step,
            since_s,
            starved_s,
            waits_for,
            usual_s: usual.map(f64::from),
            allowance_s: usual.map(|seconds| 2.0 * f64::from(seconds)),
            thread,
        },
    )
}

fn from_worker() -> impl Strategy<Value = FromWorker> {
    let two = || (any::<u64>(), any::<u64>());
    prop_oneof![
        from_worker_asynchronous(),
        Just(FromWorker::Heartbeat),
        position().prop_map(FromWorker::At),
        any::<bool>().prop_map(|replace| FromWorker::Leave { replace }),
        (0f64..1e12, 0f64..1e3, any::<bool>()).prop_map(|(bandwidth_bytes_per_s, latency_s, shares)| {
            let network = Network { bandwidth_bytes_per_s, latency_s };
            FromWorker::LinkMeasured { network, shared_memory: shares.then_some(network) }
        }),
        (two(), two(), any::<u32>()).prop_map(|((epoch, step), (last, trained), accumulation)| {
            FromWorker::Ready { epoch, step, last, trained: (trained, accumulation) }
        }),
        two().prop_map(|(epoch, step)| FromWorker::CaughtUp { epoch, step }),
        two().prop_map(|(epoch, shadow)| FromWorker::ShadowLost { epoch, shadow }),
        (any::<u64>(), any::<u32>()).prop_map(|(epoch, shard)| FromWorker::Lacking { epoch, shard }),
        two().prop_map(|(epoch, step)| FromWorker::Left { epoch, step }),
        (two(), 1u64.., ".*").prop_map(|((epoch, step), peer, why)| {
            FromWorker::Lost { epoch, step, peer: Some(peer), why }
        }),
        (any::<u64>(), ".*").prop_map(|(step, what)| FromWorker::NotFinite { step, what }),
        (two(), any::<u32>(), two(), verdict()).prop_map(
            |((epoch, step), node, (worker, checker), verdict)| {
                FromWorker::Mismatched(Mismatch { epoch, step, node, worker, checker, verdict })
            }
        ),
        (any::<u64>(), ".*").prop_map(|(step, why)| FromWorker::CheckpointFailed { step, why }),
        ".*".prop_map(|what| FromWorker::Failed { what }),
        (any::<u64>(), any::<u32>(), ".*").prop_map(|(step, node, what)| FromWorker::UserFailed {
            what,
            step,
            node
        }),
        (any::<u64>(), any::<[u8; 32]>()).prop_map(|(step, digest)| FromWorker::Finished { step, digest }),
        (two(), 0u64..99, -1e9f64..1e9).prop_map(|((epoch, step), n, x)| {
            FromWorker::Report(Report {
                epoch,
                step,
                steps: vec![StepRecord {
                    step,
                    loss: Some(x),
                    duration_s: x,
                    compute_s: x,
                    data_wait_s: x,
                    exchange_s: x,
                    update_s: x,
                    nodes_s: vec![x; 3],
                    traffic: vec![Traffic {
                        peer: n,
                        sent_bytes: n,
                        received_bytes: n,
                        sent_s: x,
                        received_s: x,
                        link: LinkKind::ALL.get(n as usize % 6).copied(),
                    }],
                    accumulation: n as u32,
                    noise_scale: (n > 50).then_some(x),
                    learning_rate_factor: (n > 20).then_some(x),
                    ..StepRecord::default()
                }],
                evaluations: vec![EvaluationRecord { step, loss: x, correct: n, predictions: n, samples: n }],
                switches: vec![SwitchRecord { epoch, step, stall_s: x }],
                resident_bytes: n,
            })
        }),
        workload().prop_map(FromWorker::Warmed),
    ]
}

proptest! {
    #[test]
    fn words_survive_the_wire(to in to_worker(), from in from_worker()) {
        let bytes = convert::write_to_worker(&to).encode_to_vec();
        prop_assert_eq!(convert::read_to_worker(wire::ToWorker::decode(&*bytes).unwrap()), Some(to));
        let bytes = convert::write_from_worker(&from).encode_to_vec();
        prop_assert_eq!(convert::read_from_worker(wire::FromWorker::decode(&*bytes).unwrap()), Some(from));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..300), to in to_worker(), from in from_worker(), at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let mutate = |mut valid: Vec<u8>| {
            if !valid.is_empty() {
                let at = at.index(valid.len());
                valid[at] ^= flip;
            }
            valid
        };
        for bytes in [bytes, mutate(convert::write_to_worker(&to).encode_to_vec()), mutate(convert::write_from_worker(&from).encode_to_vec())] {
            if let Ok(message) = wire::ToWorker::decode(&*bytes) {
                let _ = convert::read_to_worker(message);
            }
            if let Ok(message) = wire::FromWorker::decode(&*bytes) {
                let _ = convert::read_from_worker(message);
            }
        }
    }

    #[test]
    fn headers_of_state_streams_survive_and_random_ones_do_not_pass(step: u64, chunk: u64, values: u64, noise: [u8; 32]) {
        for kind in [Kind::Begin, Kind::Chunk, Kind::End, Kind::Fetch] {
            let header = Header { kind, step, chunk, values };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        }
        prop_assert_eq!(Header::decode(&noise), None);
    }

    #[test]
    fn tokens_are_exactly_64_digits_and_a_cipher(text in "[0-9a-fA-F]{60,68}") {
        let written = Token::parse(&text).map(|token| token.to_text());
        let expected = (text.len() == 64).then(|| format!("{} chacha20-poly1305", text.to_lowercase()));
        prop_assert_eq!(&written, &expected);
        prop_assert_eq!(written.as_deref().and_then(Token::parse), Token::parse(&text));
    }
}

#[test]
fn shapes_whose_size_overflows_are_refused() {
    let tensor = |shape: Vec<u64>| wire::Workload {
        parameters: vec![wire::Tensor { name: "w".into(), shape }],
        ..wire::Workload::default()
    };
    assert!(convert::read_workload(tensor(vec![1 << 40, 1 << 40])).is_none());
    assert!(convert::read_workload(tensor(vec![u64::MAX])).is_none());
    assert!(convert::read_workload(tensor(vec![3, 4])).is_some());
}
