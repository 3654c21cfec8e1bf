//! GPUs as data: limits of a multiprocessor, grains of allocation, and how blocks are handed out.

use bellwether_core::parse::document;
use bellwether_core::{InputError, ParseError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Threads of a warp, on every device so far.
pub const WARP_THREADS: u32 = 32;

/// Largest limit that a device file may state: far above every device, and sums of it cannot overflow.
const LIMIT_MAX: u32 = 1 << 24;

/// Most multiprocessors that a device file may state.
const MULTIPROCESSORS_MAX: u32 = 4096;

/// Most blocks and warps of a multiprocessor that a device file may state.
const SLOTS_MAX: u32 = 1024;

/// Which multiprocessor comes first among those of equal room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// 0, 1, 2, 3, …
    Ascending,
    /// 0, 2, 4, …, then 1, 3, 5, …: one multiprocessor of each pair first.
    EvensThenOdds,
}

impl Order {
    /// The multiprocessors in this order.
    pub fn sequence(self, multiprocessors: u32) -> Vec<u32> {
        match self {
            Order::Ascending => (0..multiprocessors).collect(),
            Order::EvensThenOdds => {
                (0..multiprocessors).step_by(2).chain((1..multiprocessors).step_by(2)).collect()
            }
        }
    }
}

/// How many blocks go to the chosen multiprocessor at once.
///
/// A choice gives two while many blocks are left: at least 2 N + 5 of N multiprocessors were unplaced before the
/// choice before it (before itself, for the first). Otherwise it gives one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Issue {
    /// Always one.
    One,
    /// Two while many are left; both are numbered one after the other.
    Pairs,
    /// As pairs; but from the fourth choice on, choices go two by two, and the blocks of such two are numbered in
    /// turn: a, b, a, b instead of a, a, b, b.
    InterleavedPairs,
}

/// What is known of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Seen in a trace of this device.
    Observed,
    /// Reported by others.
    Published,
    /// Carried over from a related device.
    Assumed,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What users write; case, `-`, `_` and spaces do not matter.
    pub name: String,
    /// The product.
    pub description: String,
    /// The vendor's name of the architecture.
    pub architecture: String,
    /// The vendor's number of the capability, as `8.0`.
    pub compute_capability: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Boost clock in MHz: it converts cycles to time.
    pub clock_mhz: u32,
    /// Most threads of a block.
    pub threads_per_block: u32,
    /// Most registers of a thread.
    pub registers_per_thread: u32,
    /// Threads that a multiprocessor holds.
    pub threads_per_multiprocessor: u32,
    /// Blocks that it holds.
    pub blocks_per_multiprocessor: u32,
    /// Warps that it holds.
    pub warps_per_multiprocessor: u32,
    /// Registers of 32 bits that it has.
    pub registers_per_multiprocessor: u32,
    /// Registers are handed to a warp in multiples of this.
    pub register_grain_per_warp: u32,
    /// Bytes of shared memory that it has.
    pub shared_bytes_per_multiprocessor: u32,
    /// Most bytes of shared memory that a block may ask for, when it opts in.
    pub shared_bytes_per_block: u32,
    /// Bytes of shared memory that the system takes for each block beside those that it asked for.
    pub shared_reserved_bytes_per_block: u32,
    /// Shared memory is handed to a block in multiples of this many bytes.
    pub shared_grain_bytes: u32,
    /// Which multiprocessor comes first among equals.
    pub order: Order,
    /// What is known of the order.
    pub order_evidence: Evidence,
    /// How many blocks a choice places.
    pub issue: Issue,
    /// What is known of the issue.
    pub issue_evidence: Evidence,
    /// What else should be known.
    #[serde(default)]
    pub note: String,
    /// Whether it can be cut into slices (multi-instance).
    #[serde(default)]
    pub mig: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Gpus")]
struct File {
    /// The devices.
    gpu: Vec<Device>,
}

impl Device {
    /// The JSON schema of a file of devices.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(File).to_value()
    }
}

/// The devices that come with the program.
///
/// ```
/// let devices = bellwether_model::gpu::built_in();
/// let v100 = bellwether_model::gpu::find(&devices, "V100")?;
/// assert_eq!(v100.multiprocessors, 80);
/// let error = bellwether_model::gpu::find(&devices, "a10").unwrap_err();
/// assert!(error.hint.contains("`a100`"));
/// # Ok::<(), bellwether_core::InputError>(())
/// ```
pub fn built_in() -> Vec<Device> {
    read_devices(include_str!("../../../../data/gpus.toml"), "data/gpus.toml")
        .expect("the built-in table of GPUs is checked by a test")
}

/// Reads a table of devices; `place` names the file in errors.
///
/// # Errors
///
/// Returns an error for a malformed table, a limit of 0 or beyond reason, and a name that stands in it twice.
pub fn read_devices(text: &str, place: &str) -> Result<Vec<Device>, InputError> {
    let file: File = document(text, place)?;
    for (number, device) in file.gpu.iter().enumerate() {
        device.check().map_err(|e| InputError { place: format!("{place}: {}", e.place), ..e })?;
        if file.gpu[..number].iter().any(|other| plain(&other.name) == plain(&device.name)) {
            return Err(InputError::new(place, format!("two GPUs are named `{}`", device.name)));
        }
    }
    Ok(file.gpu)
}

/// The device of this name; of several the last, so that a user's may replace a built-in one.
///
/// # Errors
///
/// Returns an error for an unknown name; it lists similar names.
pub fn find<'a>(devices: &'a [Device], name: &str) -> Result<&'a Device, InputError> {
    let wanted = plain(name);
    let found = devices.iter().rev().find(|device| plain(&device.name) == wanted);
    let known = devices.iter().map(|device| &device.name);
    found.ok_or_else(|| ParseError::one_of("GPU", name, known).at("the GPU"))
}

/// A name without what does not matter in it.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

impl Device {
    /// Refuses limits that no model can use.
    fn check(&self) -> Result<(), InputError> {
        let place = format!("GPU `{}`", self.name);
        if plain(&self.name).is_empty() {
            return Err(InputError::new(place, "it has no name").hint("give it letters or digits"));
        }
        let ranges = [
            ("multiprocessors", self.multiprocessors, 1, MULTIPROCESSORS_MAX),
            ("clock_mhz", self.clock_mhz, 1, LIMIT_MAX),
            ("threads_per_block", self.threads_per_block, 1, LIMIT_MAX),
            ("registers_per_thread", self.registers_per_thread, 1, LIMIT_MAX),
            ("threads_per_multiprocessor", self.threads_per_multiprocessor, 1, LIMIT_MAX),
            ("blocks_per_multiprocessor", self.blocks_per_multiprocessor, 1, SLOTS_MAX),
            ("warps_per_multiprocessor", self.warps_per_multiprocessor, 1, SLOTS_MAX),
            ("registers_per_multiprocessor", self.registers_per_multiprocessor, 1, LIMIT_MAX),
            ("register_grain_per_warp", self.register_grain_per_warp, 1, LIMIT_MAX),
            ("shared_bytes_per_multiprocessor", self.shared_bytes_per_multiprocessor, 0, LIMIT_MAX),
            ("shared_bytes_per_block", self.shared_bytes_per_block, 0, LIMIT_MAX),
            ("shared_reserved_bytes_per_block", self.shared_reserved_bytes_per_block, 0, LIMIT_MAX),
            ("shared_grain_bytes", self.shared_grain_bytes, 1, LIMIT_MAX),
        ];
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(InputError::new(place, format!("`{key}` is {value}"))
                    .hint(format!("it must be from {least} to {most}")));
            }
        }
        Ok(())
    }
}
