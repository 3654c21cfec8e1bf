//! Measures the asynchronous training of a job on one worker and one server.

use std::net::SocketAddr;
use std::sync::mpsc::channel;

use bellwether_core::job::{CheckedJob, Job, Order, SyncPolicy, WorkerRange};
use bellwether_core::plan::{Synchronisation, TransmissionOrder};
use bellwether_core::prediction::Protocol;
use bellwether_core::profile::{Network, Profile};
use bellwether_core::record::{Event, RunOutcome};
use bellwether_runtime::coordinator::{self, MeasureLinks, Observation, Options};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::metrics;
use bellwether_runtime::parameters::ShardMap;
use bellwether_runtime::run_dir::RunDir;

use super::How;
use super::by_parts::{self, Measured, Unit};
use super::setup::{Ask, MeasuredRun, endless, help, tell};
use crate::error::{RunError, at};
use crate::metrics::WARM_UP_STEPS;
use crate::{Note, Observe, Progress, Role, Spawn, WorkloadBuilder};

/// Trains `job` for a moment, asynchronously and in a folder of its own, and makes its profile.
///
/// # Errors
///
/// Returns what keeps it from being trained.
pub(super) fn measure(
    original: &CheckedJob,
    (description, workload): (&WorkloadDescription, &WorkloadBuilder),
    how: &How,
    observe: &mut Observe<'_>,
) -> Result<Profile, RunError> {
    let job = original.clone().edit(|job| {
        endless(job);
        job.workers = WorkerRange { min: 1, max: 1 };
        // A single worker waits for no other, whatever the job says, and the order changes nothing that is kept.
        job.sync.policy = SyncPolicy::Phases(vec![(0.0, Protocol::Asp)]);
        (job.sync.servers, job.sync.replica, job.sync.order) = (1, false, Order::Fifo);
    })?;
    let measured = MeasuredRun::create(&job, how)?;
    let run = &measured.run;
    let (asks, asked) = channel();
    let helper = help(run.clone(), asked);
    let per_step = u64::from(job.batch.virtual_nodes / job.sync.nodes_per_update).max(1);
    let steps = (how.steps + WARM_UP_STEPS as u64).div_ceil(per_step);
    observe(Progress::Note(Note::OneServer { warm_up: WARM_UP_STEPS as u64, updates: how.steps }));
    let mut invited = !how.peer_by_hand;
    let mut over = false;
    let seen = &mut |seen: Observation<'_>| {
        tell(&seen, observe);
        if let (false, Some(endpoint)) = (invited, run.endpoint()) {
            invited = true;
            invite(run, endpoint.control, observe);
        }
        if let Observation::Journal(Event::Committed { last, .. }) = seen
            && !over
            && last + 1 >= steps
        {
            over = true;
            // The helper ends only after this sender.
            let _ = asks.send(Ask::Stop);
        }
    };
    let spawn = if how.peer_by_hand { &Spawn::ByHand } else { &how.spawn };
    let options = Options {
        spawn: spawn.workers(run, workload)?,
        spawn_server: spawn.servers(run)?,
        synchronisation: Synchronisation {
            phases: vec![(0, Protocol::Asp)],
            servers: 1,
            order: TransmissionOrder::Fifo,
            ..Synchronisation::default()
        },
        measure_links: MeasureLinks::Profile,
        ..measured.options(job, (description, workload), how)?
    };
    let ended = coordinator::run(options, seen).map_err(|e| at("profile", e));
    drop(asks);
    let _ = helper.join();
    let (summary, outcome) = ended?;
    if outcome != RunOutcome::Stopped {
        let what = format!("the job could not be measured: {}", summary.outcome.reason());
        return Err(at(&original.name, what).into());
    }
    read(run, original, description, how.steps)
}

fn invite(run: &RunDir, control: SocketAddr, observe: &mut Observe<'_>) {
    for role in [Role::Server, Role::Worker] {
        let token_file = run.token_file();
        observe(Progress::Note(Note::Invitation { role, control, token_file }));
    }
}

/// What the run left in its folder.
fn read(
    run: &RunDir,
    job: &Job,
    description: &WorkloadDescription,
    wanted: u64,
) -> Result<Profile, RunError> {
    let (mut network, mut applied, mut first_boot) = (None, (0, 0.0), None);
    let unread = |error| at(run.journal_file().display().to_string(), error);
    for line in run.journal().map_err(unread)?.lines() {
        match line.map_err(unread)?.event {
            Event::LinkMeasured { bandwidth_bytes_per_s, latency_s, .. } => {
                network = Some(Network { bandwidth_bytes_per_s, latency_s });
            }
            Event::WorkerWarm { boot, .. } => drop(first_boot.get_or_insert(boot)),
            Event::Stale { staleness, apply_s, .. } => {
                applied = (applied.0 + staleness.updates(), applied.1 + apply_s);
            }
            _ => {}
        }
    }
    let mut units: Vec<_> = metrics::read(&run.path).flat_map(|line| line.units).collect();
    units.sort_by_key(|unit| unit.unit);
    let calls = units.iter().map(|unit| &unit.calls).find(|calls| !calls.is_empty());
    let calls = calls.cloned().ok_or_else(|| at(&job.name, "no update was measured"))?;
    let measured = units.into_iter().skip(WARM_UP_STEPS).take(wanted as usize);
    let units = measured
        .map(|unit| Unit {
            duration_s: unit.duration_s,
            compute_s: unit.segments_s,
            data_wait_s: unit.data_wait_s,
        })
        .collect();
    let tensors: Vec<(String, u64)> = description
        .layout
        .parameters
        .iter()
        .map(|tensor| (tensor.name.clone(), 4 * tensor.len() as u64))
        .collect();
    let bytes: u64 = tensors.iter().map(|(_, bytes)| bytes).sum();
    // One server holds all pieces; each of its updates counts by itself.
    let pieces = ShardMap::new(&description.layout, 1).pieces().len() as f64;
    let update_s = applied.1 * pieces / applied.0.max(1) as f64;
    let share = |(_, part): &(String, u64)| update_s * *part as f64 / bytes.max(1) as f64;
    Ok(by_parts::profile(&Measured {
        job: job.name.clone(),
        device: description.fingerprint.clone(),
        batch: job.batch.size * u64::from(job.sync.nodes_per_update) / u64::from(job.batch.virtual_nodes),
        update_s: tensors.iter().map(share).collect(),
        tensors,
        calls,
        units,
        handling: Vec::new(),
        network,
        peak_resident_bytes: None,
        boot: first_boot,
    }))
}
