//! What a block takes of a multiprocessor, and how many of them fit.

use std::fmt;

use bellwether_core::InputError;
use serde::Serialize;

use super::device::{Device, WARP_THREADS};
use super::kernel::Kernel;

/// What blocks need of a multiprocessor, each of which may run out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Threads.
    Threads,
    /// Warps: threads rounded up to 32, block by block.
    Warps,
    /// Slots for blocks.
    BlockSlots,
    /// Registers, by warp and grain.
    Registers,
    /// Bytes of shared memory, with grain and reserve.
    SharedMemory,
}

impl Resource {
    /// All of them, in the order of [`Amounts`].
    pub const ALL: [Resource; 5] = [
        Resource::Threads,
        Resource::Warps,
        Resource::BlockSlots,
        Resource::Registers,
        Resource::SharedMemory,
    ];
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Threads => "threads",
            Resource::Warps => "warps",
            Resource::BlockSlots => "block slots",
            Resource::Registers => "registers",
            Resource::SharedMemory => "shared memory",
        })
    }
}

/// An amount of each resource, in the order of [`Resource::ALL`].
pub type Amounts = [u32; 5];

/// All that a multiprocessor of this device has.
pub fn capacity(device: &Device) -> Amounts {
    [
        device.threads_per_multiprocessor,
        device.warps_per_multiprocessor,
        device.blocks_per_multiprocessor,
        device.registers_per_multiprocessor,
        device.shared_bytes_per_multiprocessor,
    ]
}

/// How many more blocks fit where `free` is left, resource by resource; `u32::MAX` where they need none.
pub fn rooms(free: &Amounts, need: &Amounts) -> Amounts {
    std::array::from_fn(|resource| free[resource].checked_div(need[resource]).unwrap_or(u32::MAX))
}

/// How many more blocks fit where `free` is left.
pub(super) fn room(free: &Amounts, need: &Amounts) -> u32 {
    rooms(free, need).into_iter().fold(u32::MAX, u32::min)
}

/// The first resource of those that allow the fewest blocks, and how many they allow.
pub(super) fn scarcest(rooms: Amounts) -> (Resource, u32) {
    let by_room = Resource::ALL.into_iter().zip(rooms).min_by_key(|(_, room)| *room);
    by_room.expect("there are five resources")
}

/// How many blocks of a kernel an empty multiprocessor holds, and why not more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Occupancy {
    /// What one block takes.
    pub need: Amounts,
    /// How many would fit by each resource alone.
    pub rooms: Amounts,
    /// How many fit.
    pub blocks: u32,
    /// The first resource that runs out.
    pub limit: Resource,
    /// Share of the warps of a multiprocessor that they fill, 0 to 1.
    pub warp_share: f64,
}

/// Computes what a block of this kernel takes of this device, and how many fit on an empty multiprocessor.
///
/// # Errors
///
/// Returns an error for a block that fits no multiprocessor (with the resource that it exceeds), more shared memory
/// than a block may opt in to, more threads or registers than the device allows, or none at all.
pub fn occupancy(device: &Device, kernel: &Kernel) -> Result<Occupancy, InputError> {
    let place = || format!("kernel `{}`", kernel.name);
    let on = format!("on {}", device.name);
    let within = |what: &str, value: u32, most: u32| {
        if value <= most {
            return Ok(());
        }
        Err(InputError::new(
            place(),
            format!("a block asks for {value} {what}, more than the {most} that are possible {on}"),
        )
        .hint(format!("at most {most}")))
    };
    if kernel.threads_per_block == 0 {
        return Err(InputError::new(place(), "its blocks have no threads").hint("at least 1"));
    }
    within("threads", kernel.threads_per_block, device.threads_per_block)?;
    within("registers per thread", kernel.registers_per_thread, device.registers_per_thread)?;
    if kernel.shared_bytes > device.shared_bytes_per_block {
        let what = format!(
            "a block asks for {} bytes of shared memory, more than the {} that one may opt in to {on}",
            kernel.shared_bytes, device.shared_bytes_per_block
        );
        return Err(InputError::new(place(), what).hint("use less, or a device with more"));
    }
    let need = need(device, kernel);
    let capacity = capacity(device);
    let rooms = rooms(&capacity, &need);
    let (limit, blocks) = scarcest(rooms);
    if blocks == 0 {
        let (needed, there) = (need[limit as usize], capacity[limit as usize]);
        let what = format!("a block fits no multiprocessor {on}: it takes {needed} of {there} {limit}");
        return Err(InputError::new(place(), what).hint(format!("use fewer {limit} per block")));
    }
    let warp_share =
        f64::from(blocks * need[Resource::Warps as usize]) / f64::from(capacity[Resource::Warps as usize]);
    Ok(Occupancy { need, rooms, blocks, limit, warp_share })
}

/// What one block takes; its numbers are within the device's limits.
fn need(device: &Device, kernel: &Kernel) -> Amounts {
    let warps = kernel.threads_per_block.div_ceil(WARP_THREADS);
    let registers_per_warp = match kernel.registers_per_thread {
        0 => 0,
        registers => (registers.saturating_mul(WARP_THREADS))
            .div_ceil(device.register_grain_per_warp)
            .saturating_mul(device.register_grain_per_warp),
    };
    let shared = kernel.shared_bytes.saturating_add(device.shared_reserved_bytes_per_block);
    let shared = shared.div_ceil(device.shared_grain_bytes).saturating_mul(device.shared_grain_bytes);
    [kernel.threads_per_block, warps, 1, registers_per_warp.saturating_mul(warps), shared]
}
