//! Workers of unequal speed: which of them computes how fast.

use bellwether_runtime::membership::WorkerId;
use bellwether_workloads::Pace;

/// The same paces, the fastest at full speed: no worker can be made faster than it is.
pub(super) fn relative(paces: &[Pace]) -> Vec<Pace> {
    let fastest = paces.iter().map(|pace| pace.speed).fold(1.0, f64::max);
    paces.iter().map(|pace| Pace { speed: pace.speed / fastest, ..*pace }).collect()
}

/// The pace of a worker; those beyond the named ones are as fast as they can be.
pub(super) fn of(paces: &[Pace], worker: WorkerId) -> Option<Pace> {
    let place = usize::try_from(worker).ok()?.checked_sub(1)?;
    paces.get(place).copied().filter(|pace| pace.speed < 1.0 || pace.hang.is_some())
}

/// The speeds that those who share out the work know of: one that turns slow later is not known to be slow.
pub(super) fn known(paces: &[Pace]) -> Vec<f64> {
    let paces = relative(paces);
    if paces.iter().all(|pace| pace.after.is_some()) {
        return Vec::new();
    }
    paces.iter().map(|pace| if pace.after.is_none() { pace.speed } else { 1.0 }).collect()
}
