//! What is held, by whom, and how to give it back when its holder is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bellwether_core::InputError;
use bellwether_core::lease::{Lease, Row};
use bellwether_core::machines::{Machine, Phase, Provider};
use bellwether_runtime::journal::now_s;
use bellwether_runtime::run_dir::{RunDir, StateDir};

use super::{ProviderKind, tag};

/// Time between two looks at whether machines have ended.
const LOOK: Duration = Duration::from_millis(250);

/// How long machines may take to end once they were asked to.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Lists, one after the other, in which nothing is left, after which nothing is.
const EMPTY_LISTS: u32 = 2;

/// A lease, and what is known of its machines.
#[derive(Debug, Clone)]
pub struct Leased {
    /// It.
    pub lease: Lease,
    /// Whether a process holds it.
    pub is_held: bool,
    /// What its provider lists; the error where it does not.
    pub listed: Result<Vec<Machine>, String>,
}

/// A machine of a lease: what the lease says of it, and what the provider does.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its number.
    pub number: u64,
    /// The line of the lease; absent for one that only the provider knows.
    pub row: Option<Row>,
    /// What the provider says; absent where it does not list the machine.
    pub phase: Option<Phase>,
}

/// What came of giving a lease back.
#[derive(Debug, Clone, PartialEq)]
pub struct Released {
    /// The lease.
    pub lease: String,
    /// Its run's folder.
    pub run: String,
    /// Machines that were found and given back.
    pub released: u32,
    /// What went wrong; nothing is left where nothing did.
    pub trouble: Option<String>,
}

impl Leased {
    /// The machines that may be there, by number.
    pub fn machines(&self) -> Vec<Found> {
        let mut found: BTreeMap<u64, Found> = BTreeMap::new();
        for row in self.lease.open() {
            found.insert(row.number, Found { number: row.number, row: Some(row.clone()), phase: None });
        }
        for machine in self.listed.iter().flatten() {
            let number = machine.tag.number;
            let row = || self.lease.machines.iter().find(|row| row.number == number).cloned();
            let entry = found.entry(number).or_insert_with(|| Found { number, row: row(), phase: None });
            entry.phase = Some(machine.phase.clone());
        }
        // What is over, and known to be, is of no interest.
        found.retain(|_, found| !matches!(found.phase, Some(Phase::Ended { .. })));
        found.into_values().collect()
    }
}

/// All leases of a state directory. What cannot be read is told to `trouble`.
///
/// # Errors
///
/// As the file system says.
pub fn leases(state_dir: &StateDir, trouble: &mut dyn FnMut(InputError)) -> Result<Vec<Leased>, InputError> {
    let words = state_dir.lease_words().map_err(|error| InputError::new("leases", error))?;
    let mut all = Vec::new();
    for word in words {
        let lease = match state_dir.read_lease(&word) {
            Ok(lease) => lease,
            Err(error) => {
                trouble(error);
                continue;
            }
        };
        let is_held = state_dir.is_lease_held(&word).map_err(|error| InputError::new(&word, error))?;
        let listed = match ProviderKind::named(&lease.provider) {
            Ok(kind) => {
                let mut provider = kind.open(&lease.plan, &lease.place);
                provider.list(&lease.lease).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        all.push(Leased { lease, is_held, listed });
    }
    Ok(all)
}

/// Gives back all machines of a lease that no process holds, waits until its provider lists none, and writes that
/// down; the lease of a run that is not there any more is removed. `None` while a process holds it.
///
/// # Errors
///
/// As the file system says. What the provider has against it is in the result.
pub fn release(state_dir: &StateDir, lease: &Lease) -> Result<Option<Released>, InputError> {
    let file = state_dir.hold_lease(&lease.lease).map_err(|error| InputError::new(&lease.lease, error))?;
    let Some(file) = file else { return Ok(None) };
    // Its holder may have written it once more before it died.
    let mut lease = state_dir.read_lease(&lease.lease).unwrap_or_else(|_| lease.clone());
    let mut released =
        Released { lease: lease.lease.clone(), run: lease.run.clone(), released: 0, trouble: None };
    match ProviderKind::named(&lease.provider) {
        Ok(kind) => {
            let mut provider = kind.open(&lease.plan, &lease.place);
            match emptied(provider.as_mut(), &lease) {
                Ok(count) => released.released = count,
                Err(trouble) => released.trouble = Some(trouble),
            }
        }
        Err(error) => released.trouble = Some(error.to_string()),
    }
    if released.trouble.is_none() {
        let now_s = now_s();
        for row in lease.machines.iter_mut().filter(|row| row.over.is_none()) {
            row.ended_s = row.running_s.map(|_| now_s);
            row.over = Some("it was released after its holder was gone".into());
        }
        let done = if Path::new(&lease.run).exists() { file.write(&lease) } else { file.remove() };
        done.map_err(|error| InputError::new(&lease.lease, error))?;
    }
    Ok(Some(released))
}

/// Gives back what a run still holds that no process leads any more; `false` while another process holds one of its
/// leases.
///
/// # Errors
///
/// As the file system says, or what the provider has against it; the lease says what may be left then.
pub fn release_run(run: &RunDir) -> Result<bool, InputError> {
    let state_dir = state_dir_of(run)?;
    let (mut is_all, mut failed) = (true, None);
    for lease in open_leases(&state_dir)?.filter(|lease| Path::new(&lease.run) == run.path) {
        match release(&state_dir, &lease)?.map(|released| released.trouble) {
            None => is_all = false,
            Some(None) => {}
            Some(Some(trouble)) => failed = Some(InputError::new(lease.lease, trouble)),
        }
    }
    failed.map_or(Ok(is_all), Err)
}

/// Of these runs of one state directory those whose leases say that they may hold something.
pub fn holding(mut runs: Vec<RunDir>) -> Vec<RunDir> {
    let Some(state_dir) = runs.first().map(state_dir_of) else { return runs };
    let open = |state_dir: StateDir| -> Result<BTreeSet<PathBuf>, InputError> {
        Ok(open_leases(&state_dir)?.map(|lease| lease.run.into()).collect())
    };
    // Where nothing can be read, they are not known to hold nothing.
    if let Ok(open) = state_dir.and_then(open) {
        runs.retain(|run| open.contains(&run.path));
    }
    runs
}

/// The leases of a state directory. One that cannot be read is another's trouble: `machines` tells of it.
pub(super) fn readable(state_dir: &StateDir) -> Result<impl Iterator<Item = Lease>, InputError> {
    let words = state_dir.lease_words().map_err(|error| InputError::new("leases", error))?;
    Ok(words.into_iter().filter_map(|word| state_dir.read_lease(&word).ok()))
}

/// Of these the ones that may hold something.
fn open_leases(state_dir: &StateDir) -> Result<impl Iterator<Item = Lease>, InputError> {
    Ok(readable(state_dir)?.filter(|lease| lease.open().next().is_some()))
}

/// The state directory in which a run lies.
fn state_dir_of(run: &RunDir) -> Result<StateDir, InputError> {
    let folder = run.path.parent().map(Path::to_path_buf);
    StateDir::find(folder).map_err(|error| InputError::new("leases", error))
}

/// Releases until nothing is listed, nor may appear any more; how many machines were found.
fn emptied(provider: &mut dyn Provider, lease: &Lease) -> Result<u32, String> {
    let since = Instant::now();
    let mut found = BTreeSet::new();
    let (mut empty, mut trouble, mut last) = (0, String::new(), Vec::new());
    // The settling of what was asked for just before the end comes on top.
    let patience = PATIENCE + Duration::from_secs_f64(provider.settle_s());
    while since.elapsed() < patience {
        let listed = provider.list(&lease.lease).map_err(|error| error.to_string());
        let there: Vec<u64> = match &listed {
            Ok(machines) => {
                let there = machines.iter().filter(|machine| !matches!(machine.phase, Phase::Ended { .. }));
                there.map(|machine| machine.tag.number).collect()
            }
            // Without a list those of the lease are asked to go, whether they are there or not.
            Err(_) => lease.open().map(|row| row.number).collect(),
        };
        for number in &there {
            found.insert(*number);
            if let Err(error) = provider.release(&tag(lease, *number)) {
                trouble = error.to_string();
            }
        }
        if let Ok(machines) = &listed {
            last = machines.iter().filter_map(described).collect();
        }
        match listed {
            Ok(_) if there.is_empty() => {
                empty += 1;
                // A request whose machine was never seen may still be on its way.
                let unseen = lease.open().filter(|row| !row.is_seen && !found.contains(&row.number));
                let last_s = unseen.map(|row| row.requested_s).fold(0.0, f64::max);
                if empty >= EMPTY_LISTS && now_s() >= last_s + provider.settle_s() {
                    return Ok(found.len() as u32);
                }
            }
            Ok(_) => empty = 0,
            Err(error) => (empty, trouble) = (0, error),
        }
        std::thread::sleep(LOOK);
    }
    if trouble.is_empty() {
        trouble = format!("not all machines end: {}", last.join(", "));
    }
    Err(trouble)
}

/// A machine that is there, and where.
fn described(machine: &Machine) -> Option<String> {
    match &machine.phase {
        Phase::Ended { .. } => None,
        Phase::Runs { place, .. } if !place.is_empty() => Some(format!("{} on {place}", machine.tag)),
        Phase::Runs { .. } | Phase::Waits { .. } => Some(machine.tag.to_string()),
    }
}
