//! Runs a job that is synchronous for a moment, on one worker and then on two, and keeps what its steps took.

use std::sync::mpsc::channel;

use bellwether_core::job::CheckedJob;
use bellwether_core::profile::{Network, Profile};
use bellwether_core::record::{Event, RunOutcome};
use bellwether_runtime::coordinator::{self, MeasureLinks, Observation, Options, Spawn};
use bellwether_runtime::membership::WorkloadDescription;
use bellwether_runtime::run_dir::RunDir;

use super::How;
use super::build::{self, Measured};
use super::setup::{Ask, MeasuredRun, endless, help, tell};
use crate::error::{RunError, at};
use crate::metrics::{self, WARM_UP_STEPS};
use crate::{Note, Observe, Progress, Role, WorkloadBuilder};

/// What the measurement waits for, as the journal tells it.
#[derive(Debug, Default)]
struct Watch {
    /// Steps with each number of workers.
    wanted: u64,
    /// Whether there are to be two.
    two: bool,
    active: usize,
    /// The boundary at which it came to this number of workers.
    since_step: u64,
    /// Steps committed since then. A commit may bring steps from before it, too.
    steps: u64,
    part: Part,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Part {
    #[default]
    One,
    Growing,
    Two,
    Over,
}

/// Trains `job` for a moment in a folder of its own and makes its profile.
///
/// # Errors
///
/// Returns what keeps it from being trained.
pub(crate) fn measure(
    original: &CheckedJob,
    (description, workload): (&WorkloadDescription, &WorkloadBuilder),
    how: &How,
    observe: &mut Observe<'_>,
) -> Result<Profile, RunError> {
    let job = original.clone().edit(endless)?;
    let measured = MeasuredRun::create(&job, how)?;
    let run = &measured.run;
    let has_room = run.placement()?.is_none_or(|nodes| nodes.values().sum::<u32>() >= 2);
    let two = job.batch.virtual_nodes >= 2 && has_room;
    let options = Options {
        min_workers: 1,
        max_workers: if two { 2 } else { 1 },
        spawn: how.spawn.workers(run, workload)?.map(|spawn| only(spawn, how.peer_by_hand)),
        measure_links: MeasureLinks::Profile,
        ..measured.options(job, (description, workload), how)?
    };
    let listen = options.listen;
    let (asks, asked) = channel();
    let helper = help(run.clone(), asked);
    let mut watch = Watch { wanted: how.steps + WARM_UP_STEPS as u64, two, ..Watch::default() };
    observe(Progress::Note(Note::OneWorker { warm_up: WARM_UP_STEPS as u64, steps: how.steps }));
    let seen = &mut |seen: Observation<'_>| {
        tell(&seen, observe);
        let Observation::Journal(event) = seen else { return };
        match watch.see(event) {
            Some(Ask::Scale(_)) if how.peer_by_hand => {
                let control = run.endpoint().map_or(listen, |endpoint| endpoint.control);
                let token_file = run.token_file();
                observe(Progress::Note(Note::Invitation { role: Role::Peer, control, token_file }));
            }
            ask => {
                if matches!(ask, Some(Ask::Scale(_))) {
                    observe(Progress::Note(Note::TwoWorkers));
                }
                // The helper ends only after this sender.
                let _ = ask.map(|ask| asks.send(ask));
            }
        }
    };
    let ended = coordinator::run(options, seen);
    drop(asks);
    let _ = helper.join();
    let (summary, outcome) = ended.map_err(|e| at("profile", e))?;
    if outcome != RunOutcome::Stopped {
        return Err(
            at(&original.name, format!("it could not be measured: {}", summary.outcome.reason())).into()
        );
    }
    let mut measured = Measured::read(run, how.steps)?;
    measured.peak_resident_bytes = Some(summary.peak_resident_bytes).filter(|bytes| *bytes > 0);
    let mut profile = build::profile(original, description, &measured);
    if profile.device.is_empty() {
        // Only its workers know what they compute with.
        profile.device = kernel_class(run);
    }
    Ok(profile)
}

fn kernel_class(run: &RunDir) -> String {
    run.history().ok().and_then(|history| history.task).map_or(String::new(), |task| task.fingerprint)
}

/// Starts the first worker, and others unless they come by hand.
fn only(mut spawn: Spawn, by_hand: bool) -> Spawn {
    let mut started = 0;
    Box::new(move |worker, address| {
        started += 1;
        if by_hand && started > 1 {
            return Err(std::io::Error::other("the peer is started by hand"));
        }
        spawn(worker, address)
    })
}

impl Watch {
    /// Takes in what happened; what is to be asked of the run then.
    fn see(&mut self, event: &Event) -> Option<Ask> {
        match event {
            Event::Membership { step, workers, .. } => {
                if workers.len() != self.active {
                    (self.active, self.since_step, self.steps) = (workers.len(), *step, 0);
                }
                if self.active == 2 && self.part != Part::Over {
                    self.part = Part::Two;
                }
            }
            Event::Committed { last, .. } => self.steps = (last + 1).saturating_sub(self.since_step),
            _ => return None,
        }
        if self.steps < self.wanted {
            return None;
        }
        match self.part {
            Part::One if self.two => {
                self.part = Part::Growing;
                Some(Ask::Scale(2))
            }
            Part::One | Part::Two => {
                self.part = Part::Over;
                Some(Ask::Stop)
            }
            Part::Growing | Part::Over => None,
        }
    }
}

impl Measured {
    /// What the run left in its folder.
    fn read(run: &RunDir, wanted: u64) -> Result<Measured, RunError> {
        let steps = metrics::read(&run.path).collect();
        let (mut links, mut checkpoint_s, mut first_boot) = (Vec::new(), None, None);
        let unread = |error| at(run.journal_file().display().to_string(), error);
        for line in run.journal().map_err(unread)?.lines() {
            match line.map_err(unread)?.event {
                Event::LinkMeasured { bandwidth_bytes_per_s, latency_s, shared_memory, .. } => {
                    links.push((Network { bandwidth_bytes_per_s, latency_s }, shared_memory));
                }
                Event::WorkerWarm { boot, .. } => drop(first_boot.get_or_insert(boot)),
                Event::Checkpointed { seconds, .. } => checkpoint_s = Some(seconds),
                _ => {}
            }
        }
        // The first worker is on the coordinator's machine; the second may be elsewhere.
        let link = links.get(1).or(links.first()).copied();
        let (network, shared_memory) =
            (link.map(|(network, _)| network), link.and_then(|(_, shared)| shared));
        let boot = first_boot;
        Ok(Measured { steps, wanted, network, shared_memory, checkpoint_s, boot, ..Measured::default() })
    }
}
