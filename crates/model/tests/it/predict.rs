//! Laws of the predictions from one worker's profile, over random profiles and configurations.

use bellwether_core::job::WorkerRange;
use bellwether_core::prediction::{
    Bottleneck, Configuration, DeviceGroup, Link, Protocol, StepModel, Validity,
};
use bellwether_core::profile::{
    CollectiveCost, MeasuredStep, Network, Operation, OperationKind, PROFILE_VERSION, Part, Profile,
};
use bellwether_model::compute::Durations;
use bellwether_model::event::TransmissionOrder;
use bellwether_model::predict::{Fidelity, ProfileModel, Question, SendOrder};
use bellwether_testkit::Random;
use proptest::prelude::*;

const ROUNDING: f64 = 1e-9;

/// The profile of a step whose computations run one after another; part i leaves after computation `sent[i]`.
fn profile(nodes: u32, computes: usize, bytes: &[u64], sent: &[usize], steps: &[Vec<f64>]) -> Profile {
    let mut operations: Vec<Operation> = (0..computes as u32)
        .map(|number| Operation {
            name: format!("compute {number}"),
            kind: OperationKind::Compute,
            after: number.checked_sub(1).into_iter().collect(),
        })
        .collect();
    for (part, after) in (0..bytes.len() as u32).zip(sent) {
        let kind = OperationKind::Upload(part);
        operations.push(Operation { name: format!("send {part}"), kind, after: vec![*after as u32] });
    }
    for part in 0..bytes.len() as u32 {
        let (kind, after) = (OperationKind::Update(part), vec![computes as u32 + part]);
        operations.push(Operation { name: format!("update {part}"), kind, after });
    }
    // Durations of the computations, then of one update per part, then of the rest of the step.
    let step = |durations_s: &Vec<f64>| {
        let (computing, others) = durations_s.split_at(computes);
        let mut operations_s = computing.to_vec();
        operations_s.extend(bytes.iter().map(|_| 0.0));
        operations_s.extend(&others[..bytes.len()]);
        MeasuredStep { step_s: durations_s.iter().sum(), operations_s, data_wait_s: 0.0 }
    };
    Profile {
        version: PROFILE_VERSION,
        job: "test".into(),
        source: "by hand".into(),
        computation: None,
        device: "device".into(),
        batch: 96,
        virtual_nodes: nodes,
        parameter_bytes: bytes.iter().sum(),
        parts: bytes
            .iter()
            .enumerate()
            .map(|(number, bytes)| Part { name: format!("part {number}"), bytes: *bytes, server: None })
            .collect(),
        operations,
        steps: steps.iter().map(step).collect(),
        collective: None,
        network: Some(Network { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 }),
        shared_memory: None,
        parsing: None,
        checkpoint_s: None,
        tail_s: None,
        sharding: None,
        peak_resident_bytes: None,
        processor_wait: None,
        boot: None,
        apart: None,
        batches: Vec::new(),
    }
}

/// Random profiles: of a batch that virtual nodes share, or of one worker's own.
fn profiles() -> impl Strategy<Value = Profile> {
    let shape =
        (1u32..10, 1usize..6, prop::collection::vec((1u64..20_000_000, 0usize..100), 1..5), 1usize..9);
    shape.prop_flat_map(|(nodes, layers, parts, steps)| {
        let computes = if nodes > 1 { nodes as usize } else { layers };
        let durations = prop::collection::vec(0.001..1.0f64, computes);
        let others = prop::collection::vec(0.0..0.05f64, parts.len() + 1);
        let step = (durations, others).prop_map(|(durations, others)| [durations, others].concat());
        let costs = prop::option::of((0.0..1e-8f64, 0.0..1e-3f64));
        (prop::collection::vec(step, steps), costs).prop_map(move |(steps, costs)| {
            let (bytes, sent): (Vec<u64>, Vec<usize>) = parts.iter().copied().unzip();
            let last = computes - 1;
            let sent: Vec<usize> =
                sent.iter().map(|sent| if nodes > 1 { last } else { sent % computes }).collect();
            let mut profile = profile(nodes, computes, &bytes, &sent, &steps);
            profile.collective = costs.map(|(s_per_byte, fixed_s)| CollectiveCost { s_per_byte, fixed_s });
            profile
        })
    })
}

fn links() -> impl Strategy<Value = Link> {
    (5.0..10.0f64, 0.0..0.01f64)
        .prop_map(|(power, latency_s)| Link { bandwidth_bytes_per_s: 10f64.powf(power), latency_s })
}

/// A protocol and its number of servers.
fn protocols() -> impl Strategy<Value = (Protocol, u32)> {
    prop_oneof![
        Just((Protocol::Bsp, 0)),
        (1u32..4).prop_map(|servers| (Protocol::Bsp, servers)),
        (1u32..4).prop_map(|servers| (Protocol::Asp, servers)),
        Just((Protocol::Gossip, 0)),
    ]
}

fn model(profile: &Profile) -> ProfileModel {
    let model = ProfileModel::new(profile.clone()).expect("the profile is sound");
    model.with_device("fast", 2.5).and_then(|m| m.with_device("slow", 0.4)).expect("speeds above 0")
}

/// `workers` of one device; at most as many as may share the batch.
fn configuration(
    model: &ProfileModel,
    (protocol, servers): (Protocol, u32),
    workers: u32,
    link: Link,
) -> Configuration {
    let shared = protocol == Protocol::Bsp && model.shares_batch();
    let workers = if shared { workers.min(model.profile().virtual_nodes) } else { workers };
    let each = if shared { 1 } else { u64::from(workers) };
    let batch = model.profile().batch * each;
    Configuration { protocol, servers, batch, ..model.configuration(workers, link) }
}

fn devices(counts: &[(&str, u32)]) -> Vec<DeviceGroup> {
    let group = |(node, (device, count)): (usize, &(&str, u32))| DeviceGroup {
        node: node as u32,
        device: (*device).into(),
        count: *count,
    };
    counts.iter().enumerate().map(group).collect()
}

fn rate(model: &ProfileModel, configuration: &Configuration) -> f64 {
    model.predict(&model.job(), configuration).expect("a prediction").examples_per_s
}

#[test]
fn only_workers_of_one_machine_exchange_through_its_memory() {
    let mut measured = profile(4, 4, &[8_000_000], &[3], &[vec![0.01; 6]]);
    let over_socket = model(&measured);
    let link = Link::from(measured.network.expect("a link"));
    measured.shared_memory = Some(Network { bandwidth_bytes_per_s: 1e10, latency_s: 1e-6 });
    let through_memory = model(&measured);
    let fast = Link { bandwidth_bytes_per_s: 1e10, latency_s: 1e-6 };
    let together = through_memory.configuration(4, link);
    let at_link = rate(&over_socket, &over_socket.configuration(4, fast));
    assert_eq!(rate(&through_memory, &together), at_link);
    // On two machines, and over a link that is not the profiled one, there is no such memory.
    let apart = Configuration { devices: devices(&[("device", 2), ("device", 2)]), ..together };
    assert_eq!(rate(&through_memory, &apart), rate(&over_socket, &apart));
    let other = Link { latency_s: 2.0 * link.latency_s, ..link };
    let over_other = |model: &ProfileModel| rate(model, &model.configuration(4, other));
    assert_eq!(over_other(&through_memory), over_other(&over_socket));
    assert!(at_link > 1.2 * rate(&over_socket, &apart));
}

proptest! {
    #[test]
    fn the_laws_of_a_step_model_hold(
        profile in profiles(), way in protocols(), workers in 1u32..40, link in links(), fast in 0u32..5, slow in 0u32..5,
    ) {
        let model = model(&profile);
        let mut configuration = configuration(&model, way, workers, link);
        let own = configuration.workers();
        let (fast, slow) = (fast.min(own - 1), slow.min(own - 1 - fast.min(own - 1)));
        configuration.devices = devices(&[("device", own - fast - slow), ("fast", fast), ("slow", slow)]);
        let prediction = model.predict(&model.job(), &configuration).expect("a prediction");
        let values = [prediction.low, prediction.examples_per_s, prediction.high, prediction.step_s];
        prop_assert!(values.iter().all(|value| value.is_finite() && *value > 0.0), "{prediction:?}");
        prop_assert!(prediction.low <= prediction.examples_per_s && prediction.examples_per_s <= prediction.high);
        let batch = configuration.batch as f64;
        prop_assert!((prediction.examples_per_s * prediction.step_s / batch - 1.0).abs() < ROUNDING);
        prop_assert_eq!(&model.predict(&model.job(), &configuration).expect("again"), &prediction);
    }

    #[test]
    fn a_lone_worker_does_what_was_measured(profile in profiles(), link in links()) {
        let model = model(&profile);
        let steps = profile.steps.len() as f64;
        let step_s = profile.steps.iter().map(|step| step.step_s).sum::<f64>() / steps;
        let predicted = rate(&model, &model.configuration(1, link));
        prop_assert!((predicted * step_s / profile.batch as f64 - 1.0).abs() < ROUNDING);
    }

    #[test]
    fn no_number_of_workers_beats_as_many_lone_ones(
        profile in profiles(), way in protocols(), workers in 1u32..40, link in links(),
    ) {
        let model = model(&profile);
        let many = configuration(&model, way, workers, link);
        let alone = rate(&model, &configuration(&model, way, 1, link));
        prop_assert!(rate(&model, &many) <= f64::from(many.workers()) * alone * (1.0 + ROUNDING));
    }

    #[test]
    fn a_faster_link_is_never_slower(
        profile in profiles(), way in protocols(), workers in 1u32..40, link in links(),
        factor in prop_oneof![1.0..1.1f64, 1.0..100.0f64],
    ) {
        // With several servers the queueing model leaves small ones out where computing is short, and then jumps.
        let way = if way.0 == Protocol::Asp { (way.0, 1) } else { way };
        let model = model(&profile);
        let slow = configuration(&model, way, workers, link);
        let mut fast = slow.clone();
        fast.link.bandwidth_bytes_per_s *= factor;
        prop_assert!(rate(&model, &fast) >= rate(&model, &slow) * (1.0 - ROUNDING));
        fast.link.latency_s /= factor;
        prop_assert!(rate(&model, &fast) >= rate(&model, &slow) * (1.0 - ROUNDING));
    }

    #[test]
    fn a_faster_device_is_never_slower(
        profile in profiles(), way in protocols(), workers in 1u32..20, link in links(), fast in 1u32..20,
    ) {
        let model = model(&profile);
        let before = configuration(&model, way, workers, link);
        let own = before.workers();
        let fast = fast.min(own);
        let mut after = before.clone();
        after.devices = devices(&[("device", own - fast), ("fast", fast)]);
        prop_assert!(rate(&model, &after) >= rate(&model, &before) * (1.0 - ROUNDING));
        after.devices = devices(&[("device", own - fast), ("slow", fast)]);
        prop_assert!(rate(&model, &after) <= rate(&model, &before) * (1.0 + ROUNDING));
    }

    #[test]
    fn the_slowest_of_equal_workers_is_the_expected_maximum(
        seconds in prop::collection::vec(0.001..1.0f64, 1..20), workers in 1u32..50,
    ) {
        // Nothing to exchange and nothing else to do.
        let steps: Vec<Vec<f64>> = seconds.iter().map(|seconds| vec![*seconds, 0.0]).collect();
        let model = ProfileModel::new(profile(1, 1, &[], &[], &steps)).expect("a profile");
        // The same speed but for its last bits goes through the sum for mixed devices.
        let model = model.with_device("twin", 1.0 + 1e-13).expect("a speed");
        let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 };
        let mut asked = model.configuration(workers, link);
        let expected_s = Durations::new(&seconds).expect("durations").expected_maximum_s(workers);
        for twins in [0, workers / 2, workers] {
            asked.devices = devices(&[("device", workers - twins), ("twin", twins)]);
            let step_s = model.predict(&model.job(), &asked).expect("a prediction").step_s;
            prop_assert!((step_s / expected_s - 1.0).abs() < ROUNDING, "{step_s} for {expected_s}");
        }
    }
}

#[test]
fn the_slowest_of_mixed_devices_is_what_drawing_lots_gives() {
    const DRAWS: u32 = 100_000;
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 };
    let mut random = Random(11);
    for counts in [[1, 1, 1], [3, 2, 1], [0, 5, 2], [10, 10, 0], [1, 20, 0]] {
        // Long tails: mostly short steps, a few long ones.
        let seconds: Vec<f64> = (0..25).map(|_| 0.1 - random.unit().ln() * 0.2).collect();
        let steps: Vec<Vec<f64>> = seconds.iter().map(|seconds| vec![*seconds, 0.0]).collect();
        let model = model(&profile(1, 1, &[], &[], &steps));
        let mut asked = model.configuration(counts.iter().sum(), link);
        let speeds = [1.0, 2.5, 0.4];
        asked.devices = devices(&[("device", counts[0]), ("fast", counts[1]), ("slow", counts[2])]);
        let predicted_s = model.predict(&model.job(), &asked).expect("a prediction").step_s;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..DRAWS {
            let mut slowest_s = 0.0f64;
            for (count, speed) in counts.iter().zip(speeds) {
                for _ in 0..*count {
                    let drawn = (random.unit() * seconds.len() as f64) as usize;
                    slowest_s = slowest_s.max(seconds[drawn] / speed);
                }
            }
            sum += slowest_s;
            squares += slowest_s * slowest_s;
        }
        let draws = f64::from(DRAWS);
        let drawn_s = sum / draws;
        let error_s = ((squares / draws - drawn_s * drawn_s) / draws).sqrt();
        let off = (predicted_s - drawn_s).abs();
        assert!(
            off <= 4.0 * error_s,
            "{counts:?}: {predicted_s} s, drawn {drawn_s} s with error {error_s} s"
        );
        assert!(error_s < 0.005 * drawn_s, "{counts:?}: the lots would show nothing");
    }
}

#[test]
fn a_slow_virtual_node_counts_wherever_it_stands() {
    let link = Link { bandwidth_bytes_per_s: 1e12, latency_s: 0.0 };
    for slow in 0..5 {
        let mut durations_s = vec![0.1; 5];
        durations_s[slow] = 2.0;
        durations_s.extend([0.0, 0.0]);
        let model = ProfileModel::new(profile(5, 5, &[1], &[4], &[durations_s])).expect("a profile");
        let alone = rate(&model, &model.configuration(1, link));
        for workers in 2..=5 {
            let predicted = rate(&model, &model.configuration(workers, link));
            assert!(predicted <= f64::from(workers) * alone * (1.0 + ROUNDING), "{slow} {workers}");
        }
    }
}

#[test]
fn what_lies_beyond_the_profile_is_said() {
    let steps = vec![vec![0.5, 0.0, 0.0], vec![0.6, 0.0, 0.0]];
    let model = model(&profile(1, 1, &[1000], &[0], &steps));
    let measured = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    let says = |configuration: &Configuration, words: &str| {
        let prediction = model.predict(&model.job(), configuration).expect("a prediction");
        match &prediction.validity {
            Validity::Extrapolated(why) => assert!(why.contains(words), "{why}"),
            Validity::Interpolated => assert!(words.is_empty(), "{configuration:?} is not measured"),
        }
    };
    for way in [(Protocol::Bsp, 0), (Protocol::Asp, 1), (Protocol::Gossip, 0)] {
        let inside = configuration(&model, way, 3, measured);
        says(&inside, "");
        says(&Configuration { batch: 2 * inside.batch, ..inside.clone() }, "batch");
        says(&Configuration { devices: devices(&[("fast", 3)]), ..inside.clone() }, "device");
        says(&Configuration { shared_with: vec!["other".into()], ..inside.clone() }, "other jobs");
        let link = Link { bandwidth_bytes_per_s: 2e9, ..measured };
        says(&Configuration { link, ..inside.clone() }, "link");
    }
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let model = model(&profile(4, 4, &[1000], &[3], &[vec![0.1, 0.2, 0.1, 0.1, 0.01, 0.0]]));
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 1e-4 };
    let good = model.configuration(2, link);
    let refused = |configuration: Configuration, words: &str| {
        let why = model.predict(&model.job(), &configuration).expect_err("nothing to predict").to_string();
        assert!(why.contains(words), "{why}");
    };
    refused(Configuration { devices: Vec::new(), ..good.clone() }, "at least one worker");
    refused(Configuration { devices: devices(&[("device", 0)]), ..good.clone() }, "at least one worker");
    refused(Configuration { devices: devices(&[("unknown", 2)]), ..good.clone() }, "`unknown`");
    refused(Configuration { devices: devices(&[("device", 5)]), ..good.clone() }, "4 virtual nodes");
    refused(Configuration { batch: 0, ..good.clone() }, "at least one sample");
    refused(Configuration { protocol: Protocol::Asp, ..good.clone() }, "parameter servers");
    refused(Configuration { servers: u32::MAX, ..good.clone() }, "servers");
    for bandwidth_bytes_per_s in [0.0, -1.0, f64::NAN] {
        refused(Configuration { link: Link { bandwidth_bytes_per_s, ..link }, ..good.clone() }, "bandwidth");
    }
    for latency_s in [f64::INFINITY, f64::NAN, -1.0] {
        refused(Configuration { link: Link { latency_s, ..link }, ..good.clone() }, "latency");
    }
    // Two of them are more than a number can hold: an error, and never an infinite step.
    let endless = Link { latency_s: 1e308, ..link };
    refused(Configuration { protocol: Protocol::Asp, servers: 1, link: endless, ..good.clone() }, "inf");
    // Steps so short that the rate is more than a number can hold.
    let model = ProfileModel::new(profile(1, 1, &[], &[], &[vec![1e-310, 0.0]])).expect("a profile");
    let why = model
        .predict(&model.job(), &model.configuration(1, link))
        .expect_err("nothing to predict")
        .to_string();
    assert!(why.contains("beyond all measure"), "{why}");
}

/// Eight virtual nodes of about 10 ms, 1 MB in two parts.
fn shared() -> ProfileModel {
    let step = |step: usize| {
        let mut seconds: Vec<f64> =
            (0..8).map(|node| 0.009 + 0.000_3 * ((step * 5 + node * 3) % 7) as f64).collect();
        seconds.extend([0.000_1, 0.000_1, 0.0]);
        seconds
    };
    let steps: Vec<Vec<f64>> = (0..20).map(step).collect();
    ProfileModel::new(profile(8, 8, &[900_000, 100_000], &[7, 7], &steps)).expect("a profile")
}

#[test]
fn the_coarse_and_the_fine_model_agree_on_units() {
    let model = shared();
    let link = Link { bandwidth_bytes_per_s: 1e8, latency_s: 1e-4 };
    let mut wrong = Vec::new();
    for protocol in [Protocol::Asp, Protocol::Ssp(2), Protocol::Ssp(0), Protocol::Bsp] {
        for (nodes, servers) in [(1, 1), (2, 1), (8, 1), (1, 2)] {
            for workers in [1, 2, 4, 8] {
                let asked = Configuration { protocol, servers, ..model.configuration(workers, link) };
                let asked = model.in_units(asked, nodes);
                if protocol == Protocol::Bsp && nodes * workers > 8 {
                    let why = model.predict(&model.job(), &asked).expect_err("too few units").to_string();
                    assert!(why.contains("fewer than"), "{why}");
                    continue;
                }
                let fine = model.predict_fine(&asked, &TransmissionOrder::Fifo, 1).expect("a simulation");
                let off = rate(&model, &asked) / fine.examples_per_s - 1.0;
                println!(
                    "{protocol} {nodes} nodes {servers} servers {workers} workers: {off:+.3} {:.1}",
                    fine.examples_per_s
                );
                // Of several servers a worker waits for the slower, which the formula of means knows only in part.
                let bar = if servers > 1 && protocol != Protocol::Bsp { 0.25 } else { 0.05 };
                if off.abs() > bar {
                    wrong.push((protocol, nodes, servers, workers, off));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn whole_virtual_nodes_are_as_they_were_measured() {
    let mut profile = shared().profile().clone();
    profile.network = Some(Network { bandwidth_bytes_per_s: 1e8, latency_s: 1e-4 });
    let model = ProfileModel::new(profile).expect("a profile");
    let link = Link { bandwidth_bytes_per_s: 1e8, latency_s: 1e-4 };
    let asked = Configuration { protocol: Protocol::Asp, servers: 1, ..model.configuration(4, link) };
    let validity = |asked: &Configuration| model.predict(&model.job(), asked).expect("a prediction").validity;
    for nodes in [1, 2, 8] {
        assert_eq!(validity(&model.in_units(asked.clone(), nodes)), Validity::Interpolated, "{nodes}");
    }
    let mut odd = model.in_units(asked, 1);
    odd.batch = 2 * 4 * model.profile().batch;
    assert!(matches!(validity(&odd), Validity::Extrapolated(why) if why.contains("batch")));
}

/// Each worker meets the other as it is found alone: at a link for D of its Z + 2 D seconds.
#[test]
fn workers_of_two_speeds_meet_at_the_server() {
    let (own_s, transfer_s) = (0.1, 0.1);
    let model = ProfileModel::new(profile(1, 1, &[1_000_000], &[0], &vec![vec![own_s, 0.0, 0.0]; 5]));
    let model = model.expect("a profile").with_device("slow", 0.25).expect("a speed");
    let link = Link { bandwidth_bytes_per_s: 1e7, latency_s: 0.0 };
    let on = |quick: u32, slow: u32| {
        let group = |device: &str, count| DeviceGroup { node: 0, device: device.into(), count };
        let devices = vec![group("device", quick), group("slow", slow)];
        let asked = Configuration::synchronous(devices, 96 * u64::from(quick + slow), link);
        let asked = Configuration { protocol: Protocol::Asp, servers: 1, ..asked };
        f64::from(quick + slow) / model.predict(&model.job(), &asked).expect("a prediction").step_s
    };
    let alone_s = |delay_s: f64| delay_s + 2.0 * transfer_s;
    let rate = |delay_s: f64, other_s: f64| {
        1.0 / (delay_s + 2.0 * transfer_s * (1.0 + transfer_s / alone_s(other_s)))
    };
    let by_hand = rate(own_s, 4.0 * own_s) + rate(4.0 * own_s, own_s);
    assert!((on(1, 1) / by_hand - 1.0).abs() < 1e-9, "{} and {by_hand}", on(1, 1));
    assert!((on(0, 1) * alone_s(4.0 * own_s) - 1.0).abs() < 1e-9);
    // A slow one more helps less than a quick one more, and does no harm.
    assert!(on(2, 0) < on(2, 1) && on(2, 1) < on(3, 0));
}

#[test]
fn a_unit_is_its_virtual_nodes_and_their_transfers() {
    let model = shared();
    let link = Link { bandwidth_bytes_per_s: 1e7, latency_s: 0.0 };
    let asked = |protocol, workers, nodes| {
        let asked = Configuration { protocol, servers: 1, ..model.configuration(workers, link) };
        let asked = model.in_units(asked, nodes);
        model.predict_fine(&asked, &TransmissionOrder::Fifo, 1).expect("a simulation").step_s
    };
    // Alone: 0.1 s down, a virtual node of about 9.9 ms, 0.1 s up; synchronous eight times that, updated once.
    assert!((asked(Protocol::Asp, 1, 1) - 0.2101).abs() < 5e-4);
    assert!((asked(Protocol::Asp, 1, 4) - 0.2398).abs() < 1e-3);
    assert!((asked(Protocol::Bsp, 1, 1) - 8.0 * 0.2099).abs() < 5e-3);
    assert!((asked(Protocol::Bsp, 1, 4) - 2.0 * 0.2397).abs() < 3e-3);
    // All at once over one link: eight times down, one virtual node, eight times up.
    assert!((asked(Protocol::Bsp, 8, 1) - 1.611).abs() < 0.02);
    // Three do eight one by one: as if there were nine, three turns of 0.3 s down, a virtual node, and 0.3 s up.
    assert!((asked(Protocol::Bsp, 3, 1) - 1.83).abs() < 0.03);
}

#[test]
fn what_a_lone_worker_hides_behind_its_computing_is_not_counted_twice() {
    // Two parts of 10 MB, 0.1 s each way. Computing needs part 0 and then part 1; part 1's gradient leaves first.
    let operation =
        |name: &str, kind, after: &[u32]| Operation { name: name.into(), kind, after: after.to_vec() };
    let operations = vec![
        operation("get 0", OperationKind::Download(0), &[]),
        operation("get 1", OperationKind::Download(1), &[]),
        operation("forward 0", OperationKind::Compute, &[0]),
        operation("both of 1", OperationKind::Compute, &[1, 2]),
        operation("backward 0", OperationKind::Compute, &[3]),
        operation("put 1", OperationKind::Upload(1), &[3]),
        operation("put 0", OperationKind::Upload(0), &[4]),
    ];
    let step =
        MeasuredStep { step_s: 0.9, operations_s: vec![0.0, 0.0, 0.2, 0.3, 0.2, 0.0, 0.0], data_wait_s: 0.0 };
    let mut profile = profile(1, 1, &[10_000_000, 10_000_000], &[0, 0], &[vec![1.0, 0.0, 0.0]]);
    (profile.operations, profile.steps) = (operations, vec![step]);
    let model = model(&profile);
    let link = Link { bandwidth_bytes_per_s: 1e8, latency_s: 0.0 };
    let asked =
        |workers| Configuration { protocol: Protocol::Asp, servers: 1, ..model.configuration(workers, link) };
    // 0.1 s until part 0 is there, 0.7 s of computing, 0.1 s until its gradient is; all other transfers are hidden.
    let one = model.predict(&model.job(), &asked(1)).unwrap();
    assert!((one.step_s - 0.9).abs() < 1e-6, "{}", one.step_s);
    // The links carry all bytes all the same: 0.2 s each way.
    let many = model.predict(&model.job(), &asked(64)).unwrap();
    assert!((many.examples_per_s / 96.0 - 5.0).abs() < 0.1, "{}", many.examples_per_s);
}

/// Four virtual nodes of 0.1 s, an exchange, and an update of 0.01 s; a step waits `data_wait_s` for its samples.
fn waiting(data_wait_s: f64) -> Profile {
    let mut profile = profile(4, 4, &[1_000_000], &[3], &vec![vec![0.1, 0.1, 0.1, 0.1, 0.01, 0.0]; 3]);
    for step in &mut profile.steps {
        step.step_s += data_wait_s;
        step.data_wait_s = data_wait_s;
    }
    profile
}

#[test]
fn waiting_for_samples_is_shared_by_the_workers_and_no_device_shortens_it() {
    let link = Link { bandwidth_bytes_per_s: 1e12, latency_s: 0.0 };
    let model = model(&waiting(0.8));
    let step = |workers, device: &str| {
        let mut configuration = model.configuration(workers, link);
        configuration.devices.iter_mut().for_each(|group| group.device = device.into());
        model.predict(&model.job(), &configuration).expect("an answer")
    };
    // 0.4 s of computing, 0.8 s of waiting, 0.01 s of update.
    assert!((step(1, "device").step_s - 1.21).abs() < 1e-9, "{:?}", step(1, "device"));
    assert!((step(2, "device").step_s - 0.61).abs() < 1e-4, "{:?}", step(2, "device"));
    assert!((step(1, "fast").step_s - (0.16 + 0.8 + 0.01)).abs() < 1e-9, "{:?}", step(1, "fast"));
    assert_eq!(step(1, "device").bottleneck, Bottleneck::Data);
    // A device of 0.4 times the speed computes longer than it waits.
    assert_eq!(step(1, "slow").bottleneck, Bottleneck::Compute);
}

#[test]
fn waiting_for_samples_counts_in_every_protocol() {
    let link = Link { bandwidth_bytes_per_s: 1e12, latency_s: 0.0 };
    let [with, without] = [waiting(0.8), waiting(0.0)].map(|profile| model(&profile));
    for (protocol, servers) in [
        (Protocol::Bsp, 0),
        (Protocol::Bsp, 1),
        (Protocol::Asp, 1),
        (Protocol::Ssp(1), 1),
        (Protocol::Gossip, 0),
    ] {
        let seconds = |model: &ProfileModel| {
            let configuration = configuration(model, (protocol, servers), 1, link);
            model.predict(&model.job(), &configuration).expect("an answer").step_s
        };
        let (longer_s, shorter_s) = (seconds(&with), seconds(&without));
        assert!(longer_s > 2.5 * shorter_s, "{protocol} {servers}: {longer_s} after {shorter_s}");
    }
    let configuration = configuration(&with, (Protocol::Asp, 1), 1, link);
    let fine = with.predict_fine(&configuration, &TransmissionOrder::Fifo, 0).expect("an answer");
    assert!(fine.step_s > 1.2 && fine.bottleneck == Bottleneck::Data, "{fine:?}");
}

#[test]
fn the_rest_of_a_step_counts_in_both_models() {
    let link = Link { bandwidth_bytes_per_s: 1e12, latency_s: 0.0 };
    let mut profile = waiting(0.0);
    profile.steps.iter_mut().for_each(|step| step.step_s += 0.2);
    let model = model(&profile);
    let seconds = |protocol, device: &str| {
        let mut configuration = configuration(&model, (protocol, 1), 1, link);
        configuration.devices.iter_mut().for_each(|group| group.device = device.into());
        let coarse = model.predict(&model.job(), &configuration).expect("an answer").step_s;
        let fine = model.predict_fine(&configuration, &TransmissionOrder::Fifo, 0).expect("an answer").step_s;
        (coarse, fine)
    };
    for protocol in [Protocol::Bsp, Protocol::Asp] {
        for (device, expected_s) in [("device", 0.4 + 0.01 + 0.2), ("slow", 1.0 + 0.01 + 0.2)] {
            let (coarse_s, fine_s) = seconds(protocol, device);
            assert!((coarse_s - expected_s).abs() < 1e-4, "{protocol} {device}: coarse {coarse_s}");
            assert!((fine_s - expected_s).abs() < 1e-4, "{protocol} {device}: fine {fine_s}");
        }
    }
}

/// Virtual nodes come out even on 1, 2, 4 and 8 workers.
#[test]
fn the_knee_lies_beyond_a_step_of_uneven_virtual_nodes() {
    let model = model(&profile(8, 8, &[1000], &[7], &vec![[vec![0.1; 8], vec![0.0, 0.0]].concat(); 3]));
    let knee = |bandwidth_bytes_per_s: f64, protocol, most: u32| {
        let question = Question {
            model: &model,
            link: Link { bandwidth_bytes_per_s, latency_s: 0.0 },
            protocol,
            servers: None,
            reduce: None,
            devices: &[],
            batch: None,
            nodes_per_update: 1,
            fidelity: Fidelity::Coarse,
            order: SendOrder::Fifo,
            seed: 0,
        };
        let asked = Some(WorkerRange { min: 1, max: most });
        let counts = question.counts(asked).expect("numbers of workers");
        let answers = counts.iter().map(|workers| question.answer(*workers).expect("an answer"));
        let mut answers: Vec<_> = answers.collect();
        question.mark_knee(&mut answers).expect("an answer of one worker");
        // Which queue it was is said where there is one.
        let stations = (protocol == Protocol::Asp).then_some("exponential");
        assert!(answers.iter().all(|answer| answer.stations == stations), "{protocol}: {answers:?}");
        let knees: Vec<u32> =
            answers.iter().filter(|answer| answer.knee).map(|answer| answer.workers).collect();
        (knees, question.left_out(asked))
    };
    assert_eq!(knee(1e12, Protocol::Bsp, 8), (vec![], None));
    assert_eq!(knee(1e12, Protocol::Bsp, 7).0, [4]);
    let left_out = knee(1e12, Protocol::Bsp, 12).1.expect("there are eight virtual nodes");
    assert!(left_out.contains("more than 8 workers") && left_out.contains("8 virtual nodes"), "{left_out}");
    assert_eq!(knee(1e12, Protocol::Gossip, 12), (vec![], None));
    assert_eq!(knee(1e12, Protocol::Asp, 3).1, None);
}

#[test]
fn a_profile_cannot_wait_longer_than_its_steps() {
    let mut profile = waiting(0.1);
    profile.steps[1].data_wait_s = 9.0;
    let error = profile.check().expect_err("too long").to_string();
    assert!(error.contains("steps[1]") && error.contains("wait 9 s for data"), "{error}");
    profile.steps[1].data_wait_s = f64::NAN;
    assert!(profile.check().is_err());
    let mut profile = waiting(0.1);
    profile.peak_resident_bytes = Some(0);
    assert!(profile.check().is_err());
}

/// A step of two virtual nodes, with this much for each of them, the update and the rest.
fn of_two(nodes_s: [f64; 2], update_s: f64, rest_s: f64) -> Profile {
    profile(2, 2, &[4_000_000], &[1], &[vec![nodes_s[0], nodes_s[1], update_s, rest_s]])
}

#[test]
fn devices_with_profiles_of_their_own_are_as_these_say() {
    let (own, other) = (of_two([0.1, 0.1], 0.01, 0.02), of_two([0.3, 0.5], 0.03, 0.01));
    let model = ProfileModel::new(own).and_then(|model| model.with_profile("other", other.clone()));
    let (model, other) = (model.expect("the same job"), ProfileModel::new(other).expect("a profile"));
    let link = Link { bandwidth_bytes_per_s: 1e9, latency_s: 0.0 };
    let on = |names: &[&str]| Configuration {
        devices: devices(&names.iter().map(|name| (*name, 1)).collect::<Vec<_>>()),
        ..model.configuration(names.len() as u32, link)
    };
    let predict =
        |model: &ProfileModel, names: &[&str]| model.predict(&model.job(), &on(names)).expect("a prediction");
    for names in [&["other"][..], &["other", "other"]] {
        let own_words: Vec<&str> = names.iter().map(|_| "device").collect();
        assert_eq!(predict(&model, names), predict(&other, &own_words));
    }
    assert!(model.virtual_node_s(&model.job(), &on(&["other"])).is_some_and(|s| (s - 0.4).abs() < 1e-12));
    // Each has one virtual node. The slower one takes 0.3 s or 0.5 s, the other one never as long; the longest update
    // and the longest rest are added, and what two workers exchange.
    let mixed = predict(&model, &["device", "other"]);
    let exchange_s = predict(&model, &["device", "device"]).step_s - (0.1 + 0.01 + 0.02);
    assert!((mixed.step_s - (0.4 + 0.03 + 0.02 + exchange_s)).abs() < 1e-9, "{mixed:?}");
    assert!(mixed.validity.beyond().is_some_and(|why| why.contains("unlike devices")));
}
