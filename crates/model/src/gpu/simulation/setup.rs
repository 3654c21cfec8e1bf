//! From a workload to the first events: partitions, streams, and what may be simulated at all.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::{InputError, ParseError};
use bellwether_des::{Simulation as Clock, Streams as Randoms};

use super::dispatch::Cap;
use super::host::Host;
use super::turns::Turns;
use super::{Options, Simulation, StreamState};
use crate::gpu::device::Device;
use crate::gpu::discipline::{Discipline, check_slices};
use crate::gpu::occupancy::{Amounts, capacity, occupancy};
use crate::gpu::partition::Partition;
use crate::gpu::rooms::Rooms;
use crate::gpu::timeline::Event;
use crate::gpu::workload::{Stream, Workload};

/// Most blocks of all launches together: each is reported.
const BLOCKS_MAX: u64 = 20_000_000;

impl<'a> Simulation<'a> {
    pub(super) fn new(
        device: &'a Device,
        workload: &'a Workload,
        discipline: Discipline,
        options: Options,
    ) -> Result<Simulation<'a>, InputError> {
        workload.check(device)?;
        let streams = workload.running_streams();
        let blocks = count_blocks(workload, &streams)?;
        let needs: Vec<Amounts> = workload
            .kernels
            .iter()
            .map(|kernel| occupancy(device, kernel).map(|occupancy| occupancy.need))
            .collect::<Result<_, _>>()?;
        let mut processes: Vec<&str> = Vec::new();
        for stream in &streams {
            if !processes.contains(&stream.process.as_str()) {
                processes.push(&stream.process);
            }
        }
        let (partitions, partition_of) = partitions(device, workload, discipline, &processes, &needs)?;
        let caps = processes.iter().map(|process| cap(device, workload, discipline, process)).collect();
        let mut simulation = Simulation {
            device,
            workload,
            discipline,
            options,
            needs,
            clock: Clock::new(),
            partitions,
            streams: Vec::new(),
            launches: Vec::new(),
            blocks: Vec::with_capacity(blocks as usize),
            rounds: Vec::new(),
            caps,
            turns: (discipline == Discipline::TimeSlice).then(Turns::default),
            hosts: processes.iter().map(|_| Host::default()).collect(),
            together: BTreeSet::new(),
            explained: None,
        };
        for stream in &streams {
            let process = processes
                .iter()
                .position(|process| *process == stream.process)
                .expect("all processes were listed");
            simulation.add(stream, process, partition_of[process])?;
        }
        Ok(simulation)
    }

    fn add(&mut self, stream: &Stream, process: usize, partition: usize) -> Result<(), InputError> {
        let place = || format!("stream `{}`", stream.name);
        let kernels = stream
            .launches
            .iter()
            .map(|launch| self.workload.kernel(&launch.kernel, place()))
            .collect::<Result<_, _>>()?;
        self.clock.at(stream.start_us, Event::Arrive(self.streams.len()));
        self.streams.push(StreamState {
            stream: stream.clone(),
            kernels,
            process,
            partition,
            round: 0,
            launch: 0,
            times: 0,
            launched: 0,
            left: u64::from(stream.repeat)
                * stream.launches.iter().map(|launch| u64::from(launch.times)).sum::<u64>(),
            // One queue for all means one context, and so one process.
            host: if matches!(self.discipline, Discipline::Leftover | Discipline::Priority) {
                0
            } else {
                process
            },
            arrival_us: stream.start_us,
            random: Randoms::new(self.workload.seed).stream(&format!("arrivals of {}", stream.name), 0),
        });
        Ok(())
    }
}

/// Blocks of all launches together; refuses more than can be reported.
fn count_blocks(workload: &Workload, streams: &[Stream]) -> Result<u64, InputError> {
    let mut blocks = 0_u64;
    for stream in streams {
        for launch in &stream.launches {
            let kernel = workload.kernel(&launch.kernel, format!("stream `{}`", stream.name))?;
            let launches = u64::from(stream.repeat) * u64::from(launch.times);
            blocks = blocks.saturating_add(launches.saturating_mul(workload.kernels[kernel].blocks.into()));
        }
    }
    if blocks > BLOCKS_MAX {
        return Err(InputError::new("the workload", format!("all launches together have {blocks} blocks"))
            .hint(format!("at most {BLOCKS_MAX} can be simulated: repeat less")));
    }
    Ok(blocks)
}

/// The partitions of the device, and that of each process.
fn partitions(
    device: &Device,
    workload: &Workload,
    discipline: Discipline,
    processes: &[&str],
    needs: &[Amounts],
) -> Result<(Vec<Partition>, Vec<usize>), InputError> {
    let capacity = capacity(device);
    let sequence = device.order.sequence(device.multiprocessors);
    let whole = |number: usize, active: bool| {
        Partition::new(number, Rooms::new(sequence.clone(), capacity, needs), 1.0, active)
    };
    match discipline {
        Discipline::Leftover | Discipline::Priority | Discipline::Mps => {
            Ok((vec![whole(0, true)], vec![0; processes.len()]))
        }
        Discipline::TimeSlice => Ok((
            (0..processes.len()).map(|number| whole(number, false)).collect(),
            (0..processes.len()).collect(),
        )),
        Discipline::Mig => {
            check_slices(&workload.slices, device)?;
            let mut first = 0;
            let mut partitions = Vec::new();
            let mut by_name = BTreeMap::new();
            for slice in &workload.slices {
                let own = first..first + slice.multiprocessors;
                first = own.end;
                let sequence = sequence.iter().copied().filter(|number| own.contains(number)).collect();
                by_name.insert(slice.name.as_str(), partitions.len());
                partitions.push(Partition::new(
                    partitions.len(),
                    Rooms::new(sequence, capacity, needs),
                    slice.memory_share,
                    true,
                ));
            }
            let of = processes
                .iter()
                .map(|process| slice_of(workload, process, &by_name))
                .collect::<Result<_, _>>()?;
            Ok((partitions, of))
        }
    }
}

/// The partition of the slice that a process names.
fn slice_of(
    workload: &Workload,
    process: &str,
    by_name: &BTreeMap<&str, usize>,
) -> Result<usize, InputError> {
    let place = format!("process `{process}`");
    let named = workload
        .processes
        .iter()
        .find(|entry| entry.name == process)
        .and_then(|entry| entry.slice.as_deref());
    let Some(name) = named else {
        return Err(
            InputError::new(place, "under `mig` it needs a slice").hint("give it a [[process]] with `slice`")
        );
    };
    let found = by_name.get(name).copied();
    found.ok_or_else(|| ParseError::one_of("slice", name, by_name.keys()).at(place))
}

/// The cap of a process, if the discipline knows caps and it has one.
fn cap(device: &Device, workload: &Workload, discipline: Discipline, process: &str) -> Option<Cap> {
    let entry = workload.processes.iter().find(|entry| entry.name == process)?;
    let share = entry.active_thread_percent / 100.0;
    let most = (share * f64::from(device.multiprocessors)).ceil().max(1.0) as usize;
    let multiprocessors = device.multiprocessors as usize;
    (discipline == Discipline::Mps && most < multiprocessors).then(|| Cap::new(most, multiprocessors))
}
