//! What holds for every workload on every device: limits, order of the queue, no idle room, equal answers.

use std::collections::BTreeMap;

use bellwether_core::parse::document;
use bellwether_model::gpu::{
    Amounts, Device, Discipline, Kernel, Launch, Options, Outcome, Process, Rooms, Slice, Stream, Workload,
    built_in, capacity, occupancy, run,
};
use proptest::prelude::*;

fn kernel(number: usize, (blocks, threads, registers, shared, time_us): (u32, u32, u32, u32, u32)) -> Kernel {
    let text = format!(
        "name = 'k{number}'\nblocks = {blocks}\nthreads_per_block = {threads}\nregisters_per_thread = {registers}\n\
         shared_bytes = {shared}\ntime_us = {time_us}.0"
    );
    document(&text, "kernel").expect("a kernel")
}

prop_compose! {
    fn kernels()(shapes in prop::collection::vec(
        (1_u32..400, 1_u32..=1024, 0_u32..=60, 0_u32..=40_000, 1_u32..50), 1..4),
        vary in any::<bool>(), demand in any::<bool>()) -> Vec<Kernel> {
        let mut kernels: Vec<Kernel> = shapes.into_iter().enumerate().map(|(n, shape)| kernel(n, shape)).collect();
        for kernel in &mut kernels {
            kernel.variation = if vary { 0.5 } else { 0.0 };
            if demand {
                (kernel.demand.issue, kernel.demand.dram) = (0.1, 0.01);
            }
        }
        kernels
    }
}

prop_compose! {
    fn workloads()(kernels in kernels(), streams in prop::collection::vec(
        (0_usize..2, -1_i32..2, 0_u32..60, 1_u32..4, prop::collection::vec((any::<prop::sample::Index>(), 0_u32..20, 1_u32..3), 1..3)),
        1..4), percent in 1_u32..=100) -> Workload {
        let mut workload = Workload::of(kernels);
        workload.time_slice.slice_us = 30.0;
        workload.time_slice.switch_us = 7.0;
        for (number, (process, priority, start_us, repeat, launches)) in streams.into_iter().enumerate() {
            let mut stream = Stream::once("", f64::from(start_us));
            stream.name = format!("s{number}");
            stream.process = ["a", "b"][process].into();
            (stream.priority, stream.repeat) = (priority, repeat);
            let launch = |(kernel, gap_us, times): (prop::sample::Index, u32, u32)| Launch {
                kernel: kernel.get(&workload.kernels).name.clone(),
                gap_us: f64::from(gap_us),
                times,
            };
            stream.launches = launches.into_iter().map(launch).collect();
            workload.streams.push(stream);
        }
        workload.slices = vec![
            Slice { name: "s".into(), multiprocessors: 28, memory_share: 0.25 },
            Slice { name: "l".into(), multiprocessors: 70, memory_share: 0.7 },
        ];
        for (name, slice) in [("a", "s"), ("b", "l")] {
            if workload.streams.iter().any(|stream| stream.process == name) {
                let slice = Some(slice.into());
                let active_thread_percent = f64::from(percent);
                workload.processes.push(Process { name: name.into(), active_thread_percent, slice });
            }
        }
        workload
    }
}

fn devices() -> impl Strategy<Value = Device> {
    prop::sample::select(built_in())
}

fn place(device: &Device, workload: &Workload, discipline: Discipline) -> Outcome {
    let options = Options { explain: None, skip_alone: true };
    run(device, workload, discipline, options).expect("a workload that fits")
}

fn needs(device: &Device, workload: &Workload) -> Vec<Amounts> {
    workload
        .kernels
        .iter()
        .map(|kernel| occupancy(device, kernel).expect("a kernel that fits").need)
        .collect()
}

/// What happens at an instant: blocks that end, then blocks that start in the order of placement.
fn instants(outcome: &Outcome) -> BTreeMap<u64, (Vec<usize>, Vec<usize>)> {
    let mut instants: BTreeMap<u64, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
    for (number, block) in outcome.blocks.iter().enumerate() {
        assert!(block.start_us < block.end_us, "{block:?}");
        instants.entry(block.start_us.to_bits()).or_default().1.push(number);
        instants.entry(block.end_us.to_bits()).or_default().0.push(number);
    }
    instants
}

/// Resources in use stay within the device's; under time slicing each process has a device of its own.
fn within_limits(device: &Device, workload: &Workload, outcome: &Outcome) {
    let needs = needs(device, workload);
    let mut free = BTreeMap::new();
    for (ending, starting) in instants(outcome).values() {
        for (number, back) in ending.iter().map(|n| (n, true)).chain(starting.iter().map(|n| (n, false))) {
            let block = &outcome.blocks[*number];
            let launch = &outcome.launches[block.launch as usize];
            let apart = outcome.discipline == Discipline::TimeSlice;
            let owner = if apart { outcome.streams[launch.stream].process.as_str() } else { "" };
            let free = free.entry((owner, block.multiprocessor)).or_insert_with(|| capacity(device));
            for (free, need) in free.iter_mut().zip(needs[launch.kernel]) {
                *free = if back { *free + need } else { free.checked_sub(need).expect("within the limits") };
            }
        }
    }
}

/// One queue: a launch places no block while one before it, by priority and arrival, has unplaced ones; and while its
/// head has unplaced blocks after an instant, none of them fits anywhere.
fn in_order_and_busy(device: &Device, workload: &Workload, outcome: &Outcome) {
    let needs = needs(device, workload);
    let priority = |launch: usize| match outcome.discipline {
        Discipline::Priority => workload.streams[outcome.launches[launch].stream].priority,
        _ => 0,
    };
    let blocks_of = |launch: usize| workload.kernels[outcome.launches[launch].kernel].blocks;
    let mut unplaced: Vec<u32> = (0..outcome.launches.len()).map(blocks_of).collect();
    let mut free = vec![capacity(device); device.multiprocessors as usize];
    let mut instants = instants(outcome);
    for launch in &outcome.launches {
        instants.entry(launch.queued_us.to_bits()).or_default();
    }
    for (time, (ending, starting)) in &instants {
        let now_us = f64::from_bits(*time);
        for number in ending {
            let block = &outcome.blocks[*number];
            let need = needs[outcome.launches[block.launch as usize].kernel];
            free[block.multiprocessor as usize].iter_mut().zip(need).for_each(|(free, need)| *free += need);
        }
        let head = |unplaced: &[u32]| {
            let waiting =
                |launch: &usize| outcome.launches[*launch].queued_us <= now_us && unplaced[*launch] > 0;
            (0..unplaced.len()).filter(waiting).min_by_key(|launch| (priority(*launch), *launch))
        };
        for number in starting {
            let block = &outcome.blocks[*number];
            let launch = block.launch as usize;
            assert_eq!(head(&unplaced), Some(launch), "only the head places blocks");
            unplaced[launch] -= 1;
            let need = needs[outcome.launches[launch].kernel];
            free[block.multiprocessor as usize].iter_mut().zip(need).for_each(|(free, need)| *free -= need);
        }
        if let Some(head) = head(&unplaced) {
            let need = needs[outcome.launches[head].kernel];
            let fits = |free: &Amounts| free.iter().zip(need).all(|(free, need)| *free >= need);
            assert!(!free.iter().any(fits), "a block of the head waits although it fits at {now_us} us");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn limits_hold(device in devices(), workload in workloads()) {
        for discipline in Discipline::ALL {
            if discipline == Discipline::Mig && !device.mig {
                continue;
            }
            within_limits(&device, &workload, &place(&device, &workload, discipline));
        }
    }

    #[test]
    fn the_head_alone_places_and_never_waits_in_vain(device in devices(), workload in workloads()) {
        for discipline in [Discipline::Leftover, Discipline::Priority] {
            in_order_and_busy(&device, &workload, &place(&device, &workload, discipline));
        }
        let mut uncapped = workload;
        uncapped.processes.clear();
        in_order_and_busy(&device, &uncapped, &place(&device, &uncapped, Discipline::Mps));
    }

    #[test]
    fn equal_input_gives_equal_output(device in devices(), workload in workloads()) {
        for discipline in [Discipline::Leftover, Discipline::TimeSlice, Discipline::Mps] {
            let of = |outcome: &Outcome| format!("{outcome:?}");
            let (one, other) = (place(&device, &workload, discipline), place(&device, &workload, discipline));
            prop_assert_eq!(of(&one), of(&other));
        }
    }

    #[test]
    fn every_launch_ends_with_all_its_blocks(device in devices(), workload in workloads()) {
        let launches: u32 = workload.streams.iter()
            .map(|stream| stream.repeat * stream.launches.iter().map(|launch| launch.times).sum::<u32>()).sum();
        for discipline in [Discipline::Leftover, Discipline::Priority, Discipline::TimeSlice, Discipline::Mps] {
            let outcome = place(&device, &workload, discipline);
            prop_assert_eq!(outcome.launches.len(), launches as usize);
            for (number, launch) in outcome.launches.iter().enumerate() {
                let placed = outcome.placement(number).len();
                prop_assert_eq!(placed, workload.kernels[launch.kernel].blocks as usize);
                prop_assert!(launch.queued_us <= launch.start_us && launch.placed_us < launch.end_us);
            }
        }
    }

    /// Under a cap a process is never on more multiprocessors than it may; in a slice never outside of it.
    #[test]
    fn shares_hold(workload in workloads()) {
        let devices = built_in();
        let a100 = devices.iter().find(|device| device.name == "a100").unwrap();
        let mps = place(a100, &workload, Discipline::Mps);
        let mut held: BTreeMap<(&str, u32), i32> = BTreeMap::new();
        for (ending, starting) in instants(&mps).values() {
            for (number, change) in ending.iter().map(|n| (n, -1)).chain(starting.iter().map(|n| (n, 1))) {
                let block = &mps.blocks[*number];
                let process = mps.streams[mps.launches[block.launch as usize].stream].process.as_str();
                *held.entry((process, block.multiprocessor)).or_default() += change;
                let on = held.iter().filter(|((name, _), blocks)| *name == process && **blocks > 0).count();
                let percent = workload.processes.iter().find(|entry| entry.name == process).unwrap().active_thread_percent;
                prop_assert!(on as f64 <= (percent / 100.0 * 108.0).ceil());
            }
        }
        let mig = place(a100, &workload, Discipline::Mig);
        for block in &mig.blocks {
            let process = mig.streams[mig.launches[block.launch as usize].stream].process.as_str();
            let own = if process == "a" { 0..28 } else { 28..98 };
            prop_assert!(own.contains(&block.multiprocessor));
        }
    }

    #[test]
    fn the_tree_chooses_as_looking_does(device in devices(), kernels in kernels(),
        steps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0_u8..3), 1..600)) {
        let workload = Workload::of(kernels);
        let needs = needs(&device, &workload);
        let count = device.multiprocessors as usize;
        let mut rooms = Rooms::new(device.order.sequence(device.multiprocessors), capacity(&device), &needs);
        let mut placed: Vec<(usize, usize)> = Vec::new();
        for (kernel, block, action) in steps {
            if action == 0 && !placed.is_empty() {
                let (kernel, rank) = placed.swap_remove(block.index(placed.len()));
                rooms.release(kernel, rank);
                continue;
            }
            let kernel = kernel.index(needs.len());
            let most = rooms.most(kernel);
            // The first of the largest, from the definition.
            let room = |rank: &usize| rooms.room(kernel, *rank);
            let best = (0..count).rev().max_by_key(room).filter(|rank| room(rank) > 0);
            prop_assert_eq!(most, best);
            prop_assert_eq!(rooms.most_of(kernel, 0..count), best);
            if let Some(rank) = most {
                rooms.take(kernel, rank);
                placed.push((kernel, rank));
            }
        }
    }
}
