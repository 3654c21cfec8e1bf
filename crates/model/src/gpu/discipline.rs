//! Which launches may place blocks: the ways in which a GPU is shared.

use std::fmt;
use std::str::FromStr;

use bellwether_core::{InputError, ParseError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::device::Device;

/// How launches of several streams share the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// One queue in order of arrival; only its head places blocks. All streams count as of one process.
    #[default]
    Leftover,
    /// The same with a queue for each level of priority; a block that runs is never interrupted.
    Priority,
    /// The whole device to one process at a time, in turn.
    TimeSlice,
    /// As leftover over all processes, each of which may be held to a share of the multiprocessors.
    Mps,
    /// Each process in a slice of its own: multiprocessors and memory bandwidth are cut up.
    Mig,
}

impl Discipline {
    /// All of them.
    pub const ALL: [Discipline; 5] =
        [Discipline::Leftover, Discipline::Priority, Discipline::TimeSlice, Discipline::Mps, Discipline::Mig];

    /// Its word in files and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Discipline::Leftover => "leftover",
            Discipline::Priority => "priority",
            Discipline::TimeSlice => "time-slice",
            Discipline::Mps => "mps",
            Discipline::Mig => "mig",
        }
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Discipline {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Discipline, ParseError> {
        let found = Discipline::ALL.into_iter().find(|discipline| discipline.word() == text);
        found.ok_or_else(|| ParseError::one_of("discipline", text, Discipline::ALL.map(Discipline::word)))
    }
}

/// Turns of processes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeSlice {
    /// Length of a turn, in microseconds.
    pub slice_us: f64,
    /// Time in which no process runs when the turn goes to another one, in microseconds.
    pub switch_us: f64,
}

impl Default for TimeSlice {
    fn default() -> Self {
        TimeSlice { slice_us: 2_000.0, switch_us: 145.0 }
    }
}

impl TimeSlice {
    pub(super) fn check(&self) -> Result<(), InputError> {
        let usable = |value: f64, least: f64| (least..=1e9).contains(&value);
        if usable(self.slice_us, 1.0) && usable(self.switch_us, 0.0) {
            return Ok(());
        }
        let what = format!("a slice of {} us with a switch of {} us", self.slice_us, self.switch_us);
        Err(InputError::new("[time_slice]", what)
            .hint("a slice takes from 1 us to 1e9 us, a switch from 0 us"))
    }
}

/// A slice of a device that is cut up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// The name by which processes refer to it.
    pub name: String,
    /// How many multiprocessors it has: on A100 14 for each seventh, on H100 and H200 16.
    pub multiprocessors: u32,
    /// Its share of the bandwidth of memory and bus, from 0.001 to 1.
    pub memory_share: f64,
}

/// Refuses slices that the device cannot be cut into.
pub(super) fn check_slices(slices: &[Slice], device: &Device) -> Result<(), InputError> {
    if !device.mig {
        return Err(InputError::new("the discipline", format!("{} cannot be cut into slices", device.name))
            .hint("choose a device with `mig = true`, or another discipline"));
    }
    if slices.is_empty() {
        return Err(InputError::new("the workload", "`mig` needs slices").hint("add [[slice]]"));
    }
    for slice in slices {
        let share = (1e-3..=1.0).contains(&slice.memory_share);
        if slice.multiprocessors == 0 || !share {
            let what =
                format!("{} multiprocessors and {} of memory", slice.multiprocessors, slice.memory_share);
            return Err(InputError::new(format!("slice `{}`", slice.name), what)
                .hint("it needs a multiprocessor at least, and a share of memory from 0.001 to 1"));
        }
    }
    let multiprocessors: u64 = slices.iter().map(|slice| u64::from(slice.multiprocessors)).sum();
    let share: f64 = slices.iter().map(|slice| slice.memory_share).sum();
    if multiprocessors > u64::from(device.multiprocessors) || share > 1.0 + 1e-9 {
        let what = format!(
            "all slices together take {multiprocessors} multiprocessors and {share} of the memory; {} has {} and 1",
            device.name, device.multiprocessors
        );
        return Err(InputError::new("the slices", what).hint("make them smaller, or fewer"));
    }
    Ok(())
}
