//! What sharing a GPU costs: contention worked out by hand, published orderings, and the disciplines.

use bellwether_core::parse::document;
use bellwether_model::gpu::{Device, Discipline, Options, Outcome, Workload, built_in, find, run};

use crate::gpu_published::mechanisms::{TrainingKernel, compare};
use crate::gpu_published::{COLOCATED, ISOLATED, ROWS};

fn device(name: &str) -> Device {
    find(&built_in(), name).expect("a built-in device").clone()
}

fn workload(text: &str) -> Workload {
    document(text, "workload.toml").expect("a workload")
}

fn place(name: &str, workload: &Workload, discipline: Discipline) -> Outcome {
    let options = Options { explain: None, skip_alone: true };
    run(&device(name), workload, discipline, options).expect("a workload that fits")
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 1e-9 * expected.abs(), "{value}, not {expected}");
}

#[test]
fn the_earlier_kernel_takes_what_it_wants_of_the_memory() {
    let outcome = place(
        "v100",
        &workload(
            "[[kernel]]
            name = 'a'\nblocks = 2\nthreads_per_block = 32\ntime_us = 100.0\ndemand = { dram = 0.4 }
            [[kernel]]
            name = 'b'\nblocks = 2\nthreads_per_block = 32\ntime_us = 30.0\ndemand = { dram = 0.4 }",
        ),
        Discipline::Leftover,
    );
    // B wants 0.8 and gets 0.2: a quarter of its speed while A runs, so 25 of its 30 us are done at 100 us.
    near(outcome.launches[0].end_us, 100.0);
    near(outcome.launches[1].end_us, 105.0);
}

#[test]
fn blocks_of_one_kernel_slow_each_other() {
    // Three blocks per multiprocessor at half of its issue slots each: 2/3 of the speed.
    let text = "[[kernel]]\nname = 'a'\nblocks = 240\nthreads_per_block = 32\ntime_us = 10.0\ndemand = { issue = 0.5 }";
    near(place("v100", &workload(text), Discipline::Leftover).end_us, 15.0);
}

#[test]
fn what_a_slowed_kernel_does_not_use_is_left_to_others() {
    let text = "[[kernel]]
        name = 'a'\nblocks = 160\nthreads_per_block = 32\ntime_us = 10.0\ndemand = { issue = 1.0, dram = 0.005 }
        [[kernel]]
        name = 'b'\nblocks = 1\nthreads_per_block = 32\ntime_us = 10.0\ndemand = { dram = 0.6 }";
    // Two blocks of A share each multiprocessor and run at half speed, so A uses 0.4 of the memory and not 0.8.
    let outcome = place("v100", &workload(text), Discipline::Leftover);
    near(outcome.launches[0].end_us, 20.0);
    near(outcome.launches[1].end_us, 10.0);
}

#[test]
fn published_orderings_of_contention() {
    for row in &ROWS {
        let strength = row.strength();
        let ((_, isolated_ms), apart) = row.predict(ISOLATED, strength);
        let ((_, colocated_ms), together) = row.predict(COLOCATED, strength);
        let name = format!("{} {:?}: {isolated_ms}, {colocated_ms}", row.device, row.class);
        assert!(apart && !together, "{name}");
        assert!((isolated_ms / row.isolated.1 - 1.0).abs() <= 0.1, "{name}");
        assert!(row.serial.1 <= 1.01 * isolated_ms && isolated_ms <= 1.01 * colocated_ms, "{name}");
    }
}

#[test]
fn turns_are_of_the_stated_length() {
    let text = "[[kernel]]
        name = 'k'\nblocks = 160\nthreads_per_block = 1024\ntime_us = 3000.0
        [[stream]]\nname = 'a'\nprocess = 'a'\nlaunch = [{ kernel = 'k' }]
        [[stream]]\nname = 'b'\nprocess = 'b'\nlaunch = [{ kernel = 'k' }]";
    let outcome = place("v100", &workload(text), Discipline::TimeSlice);
    // a 0-2000, b 2145-4145, a 4290-5290 and is done, b 5435-6435.
    near(outcome.launches[0].end_us, 5290.0);
    near(outcome.launches[1].end_us, 6435.0);
    assert!(!outcome.launches[0].colocated);
    // A process that is alone pays nothing.
    let alone = workload(&text[..text.rfind("[[stream]]").unwrap()]);
    near(place("v100", &alone, Discipline::TimeSlice).end_us, 3000.0);
}

#[test]
fn a_higher_level_goes_first_but_does_not_interrupt() {
    let text = "[[kernel]]
        name = 'full'\nblocks = 480\nthreads_per_block = 1024\ntime_us = 100.0
        [[stream]]\nname = 'low'\nlaunch = [{ kernel = 'full' }]
        [[stream]]\nname = 'high'\npriority = -1\nstart_us = 50.0\nlaunch = [{ kernel = 'full' }]";
    let of = |discipline| {
        let outcome = place("v100", &workload(text), discipline);
        [outcome.launches[0].end_us, outcome.launches[1].start_us, outcome.launches[1].end_us]
    };
    // 160 blocks at a time: the low one has three waves of 100 us.
    assert_eq!(of(Discipline::Leftover), [300.0, 300.0, 600.0]);
    assert_eq!(of(Discipline::Priority), [600.0, 100.0, 400.0]);
}

#[test]
fn a_cap_leaves_multiprocessors_to_others() {
    let text = "[[kernel]]
        name = 'k'\nblocks = 160\nthreads_per_block = 1024\ntime_us = 100.0
        [[stream]]\nname = 'a'\nprocess = 'a'\nlaunch = [{ kernel = 'k' }]
        [[stream]]\nname = 'b'\nprocess = 'b'\nlaunch = [{ kernel = 'k' }]";
    let capped = format!(
        "{text}\n[[process]]\nname = 'a'\nactive_thread_percent = 50.0\n[[process]]\nname = 'b'\nactive_thread_percent = 50.0"
    );
    let of = |text: &str| {
        let outcome = place("v100", &workload(text), Discipline::Mps);
        [outcome.launches[0].end_us, outcome.launches[1].end_us]
    };
    assert_eq!(of(text), [100.0, 200.0], "one after the other");
    assert_eq!(of(&capped), [200.0, 200.0], "each on 40 multiprocessors");
    assert!(place("v100", &workload(&capped), Discipline::Mps).kernels[0].isolated());
}

#[test]
fn a_slice_knows_nothing_of_the_others() {
    let kernel = |name: &str| {
        format!(
            "[[kernel]]\nname = '{name}'\nblocks = 90\nthreads_per_block = 512\ntime_us = 40.0\ndemand = {{ dram = 0.02 }}\n"
        )
    };
    let process = |name: &str, slice: &str| {
        format!(
            "[[stream]]\nname = '{name}'\nprocess = '{name}'\nrepeat = 3\nlaunch = [{{ kernel = '{name}' }}]\n[[process]]\nname = '{name}'\nslice = '{slice}'\n"
        )
    };
    let slices = "[[slice]]\nname = 'small'\nmultiprocessors = 14\nmemory_share = 0.125\n[[slice]]\nname = 'large'\nmultiprocessors = 56\nmemory_share = 0.5\n";
    let both = workload(&format!(
        "{}{}{}{}{slices}",
        kernel("a"),
        kernel("b"),
        process("a", "small"),
        process("b", "large")
    ));
    let one = workload(&format!("{}{}{slices}", kernel("a"), process("a", "small")));
    let (both, one) = (place("a100", &both, Discipline::Mig), place("a100", &one, Discipline::Mig));
    near(both.streams[0].end_us, one.streams[0].end_us);
    // 14 multiprocessors hold 56 blocks, which want 1.12 of the memory and get 0.125; then 34 with 0.68.
    near(one.launches[0].end_us, 40.0 * 1.12 / 0.125 + 40.0 * 0.68 / 0.125);
    assert!(
        both.blocks
            .iter()
            .all(|block| (block.multiprocessor < 14) == (both.launches[block.launch as usize].stream == 0))
    );
    let error = |name: &str, text: &str| {
        run(&device(name), &workload(text), Discipline::Mig, Options::default()).unwrap_err().to_string()
    };
    let text = format!("{}{}{slices}", kernel("a"), process("a", "smal"));
    assert!(error("a100", &text).contains("invalid slice \"smal\""));
    assert!(error("v100", &text).contains("cannot be cut"));
    assert!(error("a100", &text.replace("= 56", "= 96")).contains("110 multiprocessors"));
}

/// Long training kernels: three waves of blocks and more, in whole and broken numbers, bound by memory or by nothing
/// that is shared.
const LONG: [TrainingKernel; 4] = [
    TrainingKernel { waves: 3.0, memory: false },
    TrainingKernel { waves: 4.3, memory: false },
    TrainingKernel { waves: 5.0, memory: false },
    TrainingKernel { waves: 3.4, memory: true },
];

#[test]
fn published_orderings_of_mechanisms() {
    for training in LONG {
        let times = compare(training, true);
        let [slices, mps, priority] = times.turnaround_ms;
        assert!(slices < mps && mps < priority, "{training:?}: {times:?}");
        let [slices, mps, priority] = times.training_ms;
        assert!(mps < priority && priority < slices, "{training:?}: {times:?}");
    }
}

/// Queues and placement alone order priority and MPS the other way round: a block that may go first does not start
/// later for it. What makes priorities slower here is that both tasks are in one process, whose launches hold each
/// other up.
#[test]
fn with_hosts_of_their_own_priority_is_no_slower_than_mps() {
    for training in LONG {
        let times = compare(training, false);
        let [slices, mps, priority] = times.turnaround_ms;
        assert!(slices < mps && priority <= mps, "{training:?}: {times:?}");
        let [slices, mps, priority] = times.training_ms;
        assert!(mps <= priority && priority < slices, "{training:?}: {times:?}");
    }
}
