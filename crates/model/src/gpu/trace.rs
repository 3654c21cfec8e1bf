//! Measured placements: which multiprocessor each block of a launch went to, and how well a model foresees it.

use bellwether_core::InputError;
use serde::Serialize;

use super::device::Device;
use super::discipline::Discipline;
use super::kernel::{Demand, Kernel};
use super::simulation::{Options, run};
use super::workload::Workload;

/// The columns of a trace, in this order. The last lists the multiprocessors of blocks 0, 1, 2, … between spaces.
pub const TRACE_HEADER: &str = "device,run,test,kernel,grid_blocks,threads_per_block,registers_per_thread,\
                                shared_bytes,sm_of_block_in_order";

/// One launch of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedLaunch {
    /// Name of the kernel.
    pub kernel: String,
    /// Threads of a block.
    pub threads_per_block: u32,
    /// Registers of a thread.
    pub registers_per_thread: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Multiprocessor of each block, by the number of the block.
    pub multiprocessors: Vec<u32>,
}

/// Launches that were on the device together, one after the other, all blocks longer than it took to launch them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TracedRun {
    /// The device, as the trace calls it.
    pub device: String,
    /// What the trace calls the run.
    pub run: String,
    /// What was tested.
    pub test: String,
    /// Its launches, in order.
    pub launches: Vec<TracedLaunch>,
}

/// Reads a trace; `place` names the file in errors. Rows of the same device and run that follow each other are one run.
///
/// # Errors
///
/// Returns an error for another header, a malformed row, a grid whose length differs from its list, or an empty one.
pub fn read_trace(text: &str, place: &str) -> Result<Vec<TracedRun>, InputError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map_or("", |(_, line)| line.trim());
    if header != TRACE_HEADER {
        return Err(InputError::new(format!("{place}, line 1"), "not a trace of blocks")
            .hint(format!("the first line must be {TRACE_HEADER}")));
    }
    let mut runs: Vec<TracedRun> = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{place}, line {}", number + 1);
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [device, run, test, kernel, grid, threads, registers, shared, list] = fields[..] else {
            return Err(InputError::new(place, format!("{} fields instead of 9", fields.len())));
        };
        let count = |text: &str| whole(text, &place);
        let multiprocessors = list.split_whitespace().map(count).collect::<Result<Vec<u32>, _>>()?;
        if multiprocessors.is_empty() || count(grid)? as usize != multiprocessors.len() {
            let what = format!("{} multiprocessors for a grid of {grid} blocks", multiprocessors.len());
            return Err(InputError::new(place, what).hint("list one for each block, and at least one"));
        }
        let launch = TracedLaunch {
            kernel: kernel.into(),
            threads_per_block: count(threads)?,
            registers_per_thread: count(registers)?,
            shared_bytes: count(shared)?,
            multiprocessors,
        };
        match runs.last_mut().filter(|last| last.device == device && last.run == run) {
            Some(last) => last.launches.push(launch),
            None => {
                let (device, run, test) = (device.into(), run.into(), test.into());
                runs.push(TracedRun { device, run, test, launches: vec![launch] });
            }
        }
    }
    Ok(runs)
}

fn whole(text: &str, place: &str) -> Result<u32, InputError> {
    text.parse()
        .map_err(|_| InputError::new(place, format!("invalid number `{text}`: expected a whole number")))
}

/// How a model did on one launch of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaunchScore {
    /// Name of the kernel.
    pub kernel: String,
    /// Blocks of the grid.
    pub blocks: usize,
    /// Blocks that the model placed where they were.
    pub exact: usize,
    /// Whether it gave every multiprocessor as many blocks as it had.
    pub counts_equal: bool,
    /// The first block that it placed elsewhere.
    pub first_wrong: Option<WrongBlock>,
}

/// A block that a model placed elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WrongBlock {
    /// Its number in the grid.
    pub block: usize,
    /// Where it was.
    pub measured: u32,
    /// Where the model placed it.
    pub modelled: u32,
}

/// How a model did on one run of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunScore {
    /// What the trace calls the run.
    pub run: String,
    /// What was tested.
    pub test: String,
    /// Its launches, in order.
    pub launches: Vec<LaunchScore>,
}

impl RunScore {
    /// Whether every block of every launch is where it was.
    pub fn is_exact(&self) -> bool {
        self.launches.iter().all(|launch| launch.exact == launch.blocks)
    }

    /// Whether all counts are as they were.
    pub fn counts_equal(&self) -> bool {
        self.launches.iter().all(|launch| launch.counts_equal)
    }
}

/// Compares a trace with what the model makes of its launches: all at once, in order, blocks that outlast placement.
///
/// # Errors
///
/// Returns an error for a kernel that the device cannot run.
pub fn compare(trace: &[TracedRun], device: &Device) -> Result<Vec<RunScore>, InputError> {
    trace.iter().map(|run| score(run, device)).collect()
}

fn score(traced: &TracedRun, device: &Device) -> Result<RunScore, InputError> {
    let kernels: Vec<Kernel> = traced
        .launches
        .iter()
        .enumerate()
        .map(|(number, launch)| Kernel {
            // A kernel may be launched twice: what a launch is called must be unique.
            name: format!("{} ({})", launch.kernel, number + 1),
            blocks: launch.multiprocessors.len() as u32,
            threads_per_block: launch.threads_per_block,
            registers_per_thread: launch.registers_per_thread,
            shared_bytes: launch.shared_bytes,
            time_us: Some(1.0),
            block_times_us: None,
            cycles: None,
            variation: 0.0,
            demand: Demand::default(),
        })
        .collect();
    let options = Options { explain: None, skip_alone: true };
    let outcome = run(device, &Workload::of(kernels), Discipline::Leftover, options)
        .map_err(|e| InputError { place: format!("run {}: {}", traced.run, e.place), ..e })?;
    let launches = traced
        .launches
        .iter()
        .enumerate()
        .map(|(number, launch)| score_launch(launch, &outcome.placement(number)))
        .collect();
    Ok(RunScore { run: traced.run.clone(), test: traced.test.clone(), launches })
}

fn score_launch(launch: &TracedLaunch, modelled: &[u32]) -> LaunchScore {
    let measured = &launch.multiprocessors;
    let pairs = || measured.iter().copied().zip(modelled.iter().copied());
    let first = pairs().position(|(measured, modelled)| measured != modelled);
    let (mut one, mut other) = (measured.clone(), modelled.to_vec());
    one.sort_unstable();
    other.sort_unstable();
    LaunchScore {
        kernel: launch.kernel.clone(),
        blocks: measured.len(),
        exact: pairs().filter(|(measured, modelled)| measured == modelled).count(),
        counts_equal: one == other,
        first_wrong: first.map(|block| WrongBlock {
            block,
            measured: measured[block],
            modelled: modelled[block],
        }),
    }
}
