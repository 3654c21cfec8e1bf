//! The graph of a profiled step, made ready for running it many times.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bellwether_core::error::InputError;
use bellwether_core::profile::{Operation, OperationKind, Profile};

use super::{Setting, TransmissionOrder};
use crate::common::check;

/// One operation, with everything that running it asks for.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) kind: OperationKind,
    pub(super) part: u32,
    pub(super) server: u32,
    pub(super) bytes: f64,
    /// Seconds of getting the part ready.
    pub(super) parse_s: f64,
    /// Place among the computing operations.
    pub(super) turn: u32,
    /// Level of the part, for downloads by priority.
    pub(super) level: u32,
    followers: std::ops::Range<u32>,
}

/// A step's operations and the measured durations of all steps.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) tasks: Vec<Task>,
    followers: Vec<u32>,
    /// Number of operations that each waits for.
    pub(super) waits: Vec<u32>,
    /// Operations that wait for none.
    pub(super) sources: Vec<u32>,
    /// Operations that compute, in the order in which they run.
    pub(super) computes: Vec<u32>,
    pub(super) parts: usize,
    /// Parts that workers ask for.
    pub(super) downloaded: Vec<bool>,
    /// Durations by step and operation.
    durations_s: Vec<f64>,
    pub(super) measured: usize,
    pub(super) mean_step_s: f64,
}

impl Graph {
    pub(super) fn new(profile: &Profile, setting: &Setting) -> Result<Graph, InputError> {
        let servers = place_parts(profile, setting.servers)?;
        let profile = with_downloads(profile);
        let after = followers(&profile);
        let computes = computing_order(&profile, &after);
        let mut turns = vec![0; profile.operations.len()];
        computes.iter().zip(0..).for_each(|(operation, turn)| turns[*operation as usize] = turn);
        let mut followers = Vec::new();
        let tasks = profile.operations.iter().zip(&after).enumerate().map(|(number, (operation, after))| {
            let begin = followers.len() as u32;
            followers.extend(after);
            let part = part_of(operation.kind);
            let bytes = part.map_or(0, |part| profile.parts[part as usize].bytes) as f64;
            let parse = |p: bellwether_core::profile::Parsing| p.fixed_s + p.s_per_byte * bytes;
            let level = match (&setting.order, operation.kind) {
                (TransmissionOrder::Priority(levels), OperationKind::Download(part)) => levels[part as usize],
                _ => 0,
            };
            Task {
                kind: operation.kind,
                part: part.unwrap_or(0),
                server: part.map_or(0, |part| servers[part as usize]),
                bytes,
                parse_s: profile.parsing.map_or(0.0, parse),
                turn: turns[number],
                level,
                followers: begin..followers.len() as u32,
            }
        });
        let tasks: Vec<Task> = tasks.collect();
        let mut downloaded = vec![false; profile.parts.len()];
        for operation in &profile.operations {
            if let OperationKind::Download(part) = operation.kind {
                downloaded[part as usize] = true;
            }
        }
        let waits: Vec<u32> = profile.operations.iter().map(|o| o.after.len() as u32).collect();
        let sources = (0..tasks.len() as u32).filter(|number| waits[*number as usize] == 0).collect();
        Ok(Graph {
            tasks,
            followers,
            waits,
            sources,
            computes,
            parts: profile.parts.len(),
            downloaded,
            durations_s: profile.steps.iter().flat_map(|step| step.operations_s.iter().copied()).collect(),
            measured: profile.steps.len(),
            mean_step_s: profile.steps.iter().map(|step| step.step_s).sum::<f64>()
                / profile.steps.len() as f64,
        })
    }

    /// Operations that wait for this one.
    pub(super) fn followers(&self, operation: u32) -> &[u32] {
        let range = &self.tasks[operation as usize].followers;
        &self.followers[range.start as usize..range.end as usize]
    }

    /// Seconds of an operation in a measured step.
    pub(super) fn duration_s(&self, drawn: u32, operation: u32) -> f64 {
        self.durations_s[drawn as usize * self.tasks.len() + operation as usize]
    }
}

fn part_of(kind: OperationKind) -> Option<u32> {
    match kind {
        OperationKind::Compute => None,
        OperationKind::Download(part) | OperationKind::Upload(part) | OperationKind::Update(part) => {
            Some(part)
        }
    }
}

/// Operations that wait for each operation.
fn followers(profile: &Profile) -> Vec<Vec<u32>> {
    let mut followers = vec![Vec::new(); profile.operations.len()];
    for (number, operation) in profile.operations.iter().enumerate() {
        operation.after.iter().for_each(|before| followers[*before as usize].push(number as u32));
    }
    followers
}

/// Computing operations in the order of the profile, as far as the graph allows that order.
fn computing_order(profile: &Profile, followers: &[Vec<u32>]) -> Vec<u32> {
    let operations = &profile.operations;
    let mut waits: Vec<usize> = operations.iter().map(|operation| operation.after.len()).collect();
    let free = (0..operations.len() as u32).filter(|number| waits[*number as usize] == 0);
    let mut ready: BinaryHeap<Reverse<u32>> = free.map(Reverse).collect();
    let mut order = Vec::new();
    while let Some(Reverse(number)) = ready.pop() {
        if operations[number as usize].kind == OperationKind::Compute {
            order.push(number);
        }
        for follower in &followers[number as usize] {
            waits[*follower as usize] -= 1;
            if waits[*follower as usize] == 0 {
                ready.push(Reverse(*follower));
            }
        }
    }
    order
}

/// The profile with a download of every part that is uploaded, when it has no download at all.
///
/// Synchronous training without servers keeps the parameters at the workers, so its steps begin by computing.
/// With servers they begin by downloading: each part is asked for at the begin of the step, in the order of the
/// parts, and a computation that waits for nothing else waits for all of them.
pub fn with_downloads(profile: &Profile) -> Cow<'_, Profile> {
    let is_download = |operation: &Operation| matches!(operation.kind, OperationKind::Download(_));
    let mut uploaded = vec![false; profile.parts.len()];
    for operation in &profile.operations {
        if let OperationKind::Upload(part) = operation.kind {
            uploaded[part as usize] = true;
        }
    }
    let parts: Vec<u32> = (0..uploaded.len() as u32).filter(|part| uploaded[*part as usize]).collect();
    if profile.operations.iter().any(is_download) || parts.is_empty() {
        return Cow::Borrowed(profile);
    }
    let mut completed = profile.clone();
    let first = profile.operations.len() as u32;
    let downloads: Vec<u32> = (first..first + parts.len() as u32).collect();
    for operation in &mut completed.operations {
        if operation.kind == OperationKind::Compute && operation.after.is_empty() {
            operation.after.clone_from(&downloads);
        }
    }
    completed.operations.extend(parts.iter().map(|part| Operation {
        name: format!("download {}", profile.parts[*part as usize].name),
        kind: OperationKind::Download(*part),
        after: Vec::new(),
    }));
    for step in &mut completed.steps {
        step.operations_s.resize(completed.operations.len(), 0.0);
    }
    Cow::Owned(completed)
}

/// The server of each part: that of the profile, or else the one with the fewest bytes so far, the largest
/// parts first.
///
/// # Errors
///
/// Returns an error on any of these: a part that was measured on a server that does not exist here; no server at all,
/// or more than a million.
pub fn place_parts(profile: &Profile, servers: u32) -> Result<Vec<u32>, InputError> {
    check::servers("servers", servers)?;
    for (number, part) in profile.parts.iter().enumerate() {
        if let Some(server) = part.server.filter(|server| *server >= servers) {
            let what = format!("part `{}` is on server {server}, and there are {servers} servers", part.name);
            let hint =
                "servers are numbered from 0; ask for more servers, or leave `server` out of the profile";
            return Err(InputError::new(format!("parts[{number}]"), what).hint(hint));
        }
    }
    Ok(spread_parts(profile, servers))
}

/// As [`place_parts`]; a part whose server does not exist here goes where there is room.
pub(super) fn spread_parts(profile: &Profile, servers: u32) -> Vec<u32> {
    let mut bytes = vec![0u64; servers as usize];
    let mut places = vec![0; profile.parts.len()];
    let mut free = Vec::new();
    for (number, part) in profile.parts.iter().enumerate() {
        match part.server.filter(|server| *server < servers) {
            Some(server) => {
                places[number] = server;
                bytes[server as usize] = bytes[server as usize].saturating_add(part.bytes);
            }
            None => free.push(number),
        }
    }
    free.sort_by_key(|part| (Reverse(profile.parts[*part].bytes), *part));
    // The one with the fewest bytes first; of equals, that of the smallest number.
    let mut emptiest: BinaryHeap<Reverse<(u64, u32)>> = bytes.into_iter().zip(0..).map(Reverse).collect();
    for part in free {
        let Some(Reverse((held, server))) = emptiest.pop() else { break };
        places[part] = server;
        emptiest.push(Reverse((held.saturating_add(profile.parts[part].bytes), server)));
    }
    places
}
