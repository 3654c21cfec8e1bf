//! The timeline: launches reach the device, blocks are placed, run, and end.

mod dispatch;
mod host;
mod setup;
mod summary;
mod turns;

use std::collections::BTreeSet;

use bellwether_core::InputError;
use bellwether_des::{Stream as Random, Streams as Randoms};

use super::device::Device;
use super::discipline::Discipline;
use super::occupancy::Amounts;
use super::outcome::{BlockRun, Decision, LaunchRun, Outcome, RoundRun};
use super::partition::Partition;
use super::timeline::{Clock, Event};
use super::workload::{Arrivals, Stream, Workload};
use dispatch::Cap;
use host::Host;
use turns::Turns;

/// What else to report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The decision to explain: which block of all, in the order of placement, from 1.
    pub explain: Option<u64>,
    /// Whether to leave the times of kernels that run alone out (they and slowdowns are then not numbers).
    pub skip_alone: bool,
}

/// Runs a workload on a device.
///
/// ```
/// use bellwether_model::gpu::{Discipline, Options, Workload, built_in, find, run};
/// let devices = built_in();
/// let text = r#"
/// kernel = [{ name = "x", blocks = 81, threads_per_block = 1024, time_us = 10.0 }]
/// "#;
/// let workload: Workload = bellwether_core::parse::document(text, "workload.toml")?;
/// let outcome = run(find(&devices, "v100")?, &workload, Discipline::Leftover, Options::default())?;
/// // 80 multiprocessors, two such blocks each: the 81st shares one.
/// assert_eq!(outcome.placement(0)[80], 0);
/// assert_eq!(outcome.end_us, 10.0);
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
///
/// # Errors
///
/// Same errors as [`Workload::check`]; also for slices that the device cannot be cut into, and more blocks than can be
/// simulated.
pub fn run(
    device: &Device,
    workload: &Workload,
    discipline: Discipline,
    options: Options,
) -> Result<Outcome, InputError> {
    let mut simulation = Simulation::new(device, workload, discipline, options)?;
    simulation.go();
    let launched = |kernel| simulation.launches.iter().any(|launch| launch.run.kernel == kernel);
    let alone_us = (0..workload.kernels.len())
        .map(|kernel| match !options.skip_alone && launched(kernel) {
            true => alone(device, workload, kernel),
            false => Ok(f64::NAN),
        })
        .collect::<Result<Vec<f64>, _>>()?;
    Ok(simulation.outcome(&alone_us))
}

/// Time of one launch of a kernel that has the whole device for itself, in microseconds.
fn alone(device: &Device, workload: &Workload, kernel: usize) -> Result<f64, InputError> {
    let mut alone = Workload::of(vec![workload.kernels[kernel].clone()]);
    alone.seed = workload.seed;
    let mut simulation = Simulation::new(device, &alone, Discipline::Leftover, Options::default())?;
    simulation.go();
    Ok(simulation.clock.now())
}

/// Where a stream stands.
#[derive(Debug)]
struct StreamState {
    stream: Stream,
    /// Kernel of each of its launches.
    kernels: Vec<usize>,
    process: usize,
    partition: usize,
    round: u32,
    /// Which of its launches comes next, and how often it was launched already.
    launch: usize,
    times: u32,
    /// Launches of all rounds so far.
    launched: u64,
    /// Launches of all rounds that have not ended.
    left: u64,
    /// The process whose host launches it.
    host: usize,
    /// When the present round arrived, in microseconds.
    arrival_us: f64,
    random: Random,
}

/// A launch that has reached the device.
#[derive(Debug)]
struct Launched {
    run: LaunchRun,
    process: usize,
    partition: usize,
    /// Blocks that have no multiprocessor yet.
    unplaced: u32,
    /// Blocks that have one and have not ended.
    running: u32,
    /// Blocks that were started.
    started: u32,
    /// Blocks that were not placed before the choice before the present one.
    before: u32,
    /// Choices so far.
    choices: u32,
    random: Random,
}

/// The clock counts microseconds.
struct Simulation<'a> {
    device: &'a Device,
    workload: &'a Workload,
    discipline: Discipline,
    options: Options,
    /// What a block takes, by kernel.
    needs: Vec<Amounts>,
    clock: Clock<Event>,
    partitions: Vec<Partition>,
    streams: Vec<StreamState>,
    launches: Vec<Launched>,
    blocks: Vec<BlockRun>,
    rounds: Vec<RoundRun>,
    /// By process.
    caps: Vec<Option<Cap>>,
    turns: Option<Turns>,
    hosts: Vec<Host>,
    /// Pairs of kernels that shared a multiprocessor, the smaller index first.
    together: BTreeSet<(usize, usize)>,
    explained: Option<Decision>,
}

impl Simulation<'_> {
    /// Lets everything happen. All events of an instant happen before blocks are placed in it.
    fn go(&mut self) {
        while let Some(event) = self.clock.step() {
            self.happen(event);
            while self.clock.next_time() == Some(self.clock.now()) {
                let event = self.clock.step().expect("there is an event at this time");
                self.happen(event);
            }
            self.take_turns();
            for partition in 0..self.partitions.len() {
                self.dispatch(partition);
                self.partitions[partition].refresh(&mut self.clock);
            }
        }
        let done = self.launches.iter().all(|launch| launch.unplaced == 0 && launch.running == 0);
        assert!(done, "a launch that fits the device always ends");
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(stream) => {
                self.partitions[self.streams[stream].partition].rounds += 1;
                self.next_launch(stream);
            }
            Event::Queue(stream) => self.launch(stream),
            Event::End { partition, rank, launch } => self.end(partition, rank, launch),
            Event::Slice => self.end_turn(),
            Event::Switched => self.switched(),
        }
    }

    /// Lets the next launch of a stream follow after its gap.
    fn next_launch(&mut self, stream: usize) {
        let state = &self.streams[stream];
        self.clock.after(state.stream.launches[state.launch].gap_us, Event::Queue(stream));
    }

    /// Lets a launch reach the device.
    fn queue(&mut self, stream: usize) {
        let now_us = self.clock.now();
        let number = u32::try_from(self.launches.len()).expect("the number of launches was checked");
        let state = &mut self.streams[stream];
        let kernel = state.kernels[state.launch];
        let blocks = self.workload.kernels[kernel].blocks;
        let run = LaunchRun {
            kernel,
            stream,
            round: state.round,
            queued_us: now_us,
            start_us: f64::NAN,
            placed_us: f64::NAN,
            end_us: f64::NAN,
            colocated: false,
        };
        let random = Randoms::new(self.workload.seed).stream(&state.stream.name, state.launched);
        state.launched += 1;
        let (process, partition) = (state.process, state.partition);
        let launch = Launched {
            run,
            process,
            partition,
            unplaced: blocks,
            running: 0,
            started: 0,
            before: blocks,
            choices: 0,
            random,
        };
        self.launches.push(launch);
        let priority = match self.discipline {
            Discipline::Priority => state.stream.priority,
            _ => 0,
        };
        self.partitions[partition].enqueue(priority, number);
    }

    fn end(&mut self, partition: usize, rank: usize, launch: u32) {
        let now_us = self.clock.now();
        let partition = &mut self.partitions[partition];
        let block = partition.end(rank, launch, &mut self.clock);
        self.blocks[block as usize].end_us = now_us;
        let launched = &mut self.launches[launch as usize];
        launched.running -= 1;
        partition.rooms.release(launched.run.kernel, rank);
        if let Some(cap) = &mut self.caps[launched.process] {
            cap.leave(rank);
        }
        if launched.running == 0 && launched.unplaced == 0 {
            launched.run.end_us = now_us;
            let stream = launched.run.stream;
            self.ended(stream);
        }
    }

    /// Goes on with a stream whose launch has ended.
    fn ended(&mut self, stream: usize) {
        let now_us = self.clock.now();
        self.let_through(stream);
        let state = &mut self.streams[stream];
        state.times += 1;
        if state.times == state.stream.launches[state.launch].times {
            (state.times, state.launch) = (0, state.launch + 1);
        }
        if state.launch < state.kernels.len() {
            return self.next_launch(stream);
        }
        let round = RoundRun { stream, round: state.round, arrival_us: state.arrival_us, end_us: now_us };
        self.rounds.push(round);
        self.partitions[state.partition].rounds -= 1;
        state.launch = 0;
        state.round += 1;
        if state.round == state.stream.repeat {
            return;
        }
        state.arrival_us = match (state.stream.every_us, state.stream.arrivals) {
            (0.0, _) => now_us,
            (every_us, Arrivals::Regular) => state.stream.start_us + every_us * f64::from(state.round),
            (every_us, Arrivals::Poisson) => state.arrival_us + state.random.exponential(every_us),
        };
        self.clock.at(state.arrival_us.max(now_us), Event::Arrive(stream));
    }
}
