//! The timeline: launches reach the device, blocks are placed, run, and end.

mod dispatch;
mod setup;
mod summary;
mod turns;

use std::collections::BTreeSet;

use bellwether_core::InputError;
use bellwether_des::{Simulation as Clock, Stream as Random, Streams as Randoms, Ticket};

use super::device::Device;
use super::discipline::Discipline;
use super::occupancy::Amounts;
use super::outcome::{BlockRun, Decision, LaunchRun, Outcome, RoundRun};
use super::partition::Partition;
use super::workload::{Arrivals, Stream, Workload};
use dispatch::Cap;
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
/// As [`Workload::check`]; slices that the device cannot be cut into; more blocks than can be simulated.
pub fn run(
    device: &Device,
    workload: &Workload,
    discipline: Discipline,
    options: Options,
) -> Result<Outcome, InputError> {
    let mut simulation = Simulation::new(device, workload, discipline, options)?;
    simulation.go();
    let alone_us = match options.skip_alone {
        true => vec![f64::NAN; workload.kernels.len()],
        false => workload
            .kernels
            .iter()
            .map(|kernel| alone_us(device, workload, &kernel.name))
            .collect::<Result<_, _>>()?,
    };
    Ok(simulation.outcome(&alone_us))
}

/// Time of one launch of a kernel that has the whole device for itself, in microseconds.
///
/// # Errors
///
/// As [`run`], and an unknown kernel.
pub fn alone_us(device: &Device, workload: &Workload, kernel: &str) -> Result<f64, InputError> {
    let kernel = workload.kernel(kernel, "the workload".into())?;
    let mut alone = Workload::of(vec![workload.kernels[kernel].clone()]);
    alone.seed = workload.seed;
    let mut simulation = Simulation::new(device, &alone, Discipline::Leftover, Options::default())?;
    simulation.go();
    Ok(simulation.clock.now())
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// A round of a stream arrives.
    Arrive(usize),
    /// The next launch of a stream reaches the device.
    Queue(usize),
    /// The block in this slot ends.
    End(u32),
    /// The turn of a process is over.
    Slice,
    /// The device has changed over to another process.
    Switched,
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

/// A block that runs.
#[derive(Debug, Clone, Copy)]
struct Running {
    /// Its place in the list of all blocks.
    index: usize,
    launch: u32,
    rank: usize,
    /// Time that it still needs at full speed, as of `since_us`.
    remaining_us: f64,
    since_us: f64,
    rate: f64,
    ticket: Option<Ticket>,
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
    /// Blocks that run, by slot, and slots that none has.
    running: Vec<Running>,
    vacant: Vec<u32>,
    /// By process.
    caps: Vec<Option<Cap>>,
    turns: Option<Turns>,
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
                self.refresh(partition);
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
            Event::Queue(stream) => self.queue(stream),
            Event::End(slot) => self.end(slot),
            Event::Slice => self.end_turn(),
            Event::Switched => self.switched(),
        }
    }

    /// Lets the next launch of a stream follow after its gap.
    fn next_launch(&mut self, stream: usize) {
        let state = &self.streams[stream];
        self.clock.after(state.stream.launches[state.launch].gap_us, Event::Queue(stream));
    }

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

    fn end(&mut self, slot: u32) {
        let now_us = self.clock.now();
        let Running { index, launch, rank, .. } = self.running[slot as usize];
        self.vacant.push(slot);
        self.blocks[index].end_us = now_us;
        let launched = &mut self.launches[launch as usize];
        launched.running -= 1;
        let partition = &mut self.partitions[launched.partition];
        partition.rooms.release(launched.run.kernel, rank);
        let residents = &mut partition.residents[rank];
        let place =
            residents.iter().position(|resident| *resident == slot).expect("a block that runs is resident");
        residents.swap_remove(place);
        partition.leave(launch, rank);
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

    /// Lets the blocks of a partition run at the rates that hold now.
    fn refresh(&mut self, partition: usize) {
        let partition = &mut self.partitions[partition];
        if !partition.stale {
            return;
        }
        partition.stale = false;
        partition.share();
        let now_us = self.clock.now();
        for (rank, residents) in partition.residents.iter().enumerate() {
            for slot in residents {
                let block = &mut self.running[*slot as usize];
                let rate = partition.rate(block.launch, rank);
                if rate == block.rate {
                    continue;
                }
                block.remaining_us = (block.remaining_us - (now_us - block.since_us) * block.rate).max(0.0);
                block.since_us = now_us;
                block.rate = rate;
                let end_us = now_us + block.remaining_us / rate;
                match block.ticket {
                    Some(ticket) if rate > 0.0 => {
                        self.clock.reschedule(ticket, end_us);
                    }
                    Some(ticket) => {
                        self.clock.cancel(ticket);
                        block.ticket = None;
                    }
                    None if rate > 0.0 => block.ticket = Some(self.clock.at(end_us, Event::End(*slot))),
                    None => {}
                }
            }
        }
    }
}
