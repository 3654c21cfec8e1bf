//! Runs a job that is synchronous for a moment, on one worker and then on two, and keeps what its steps took.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use bellwether_core::job::Job;
use bellwether_core::plan::Synchronisation;
use bellwether_core::profile::{Network, Profile};
use bellwether_core::record::{Event, RunOutcome};
use bellwether_runtime::coordinator::{self, Observation, Options, Spawn};
use bellwether_runtime::membership::TraineeDescription;

use super::build::{self, Measured};
use super::setup::{Ask, How, endless, help};
use crate::failure::Failure;
use crate::files::Folder;
use crate::metrics::{self, WARM_UP_STEPS};
use crate::options::reachable;
use crate::printer::Printer;
use crate::processes::spawner;
use crate::runs::{RunDir, StateDir};

/// What the measurement waits for, as the journal tells it.
#[derive(Debug, Default)]
struct Watch {
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
/// What keeps it from being trained.
pub(crate) fn measure(
    original: &Job,
    trainee: &TraineeDescription,
    how: &How,
    printer: &Printer,
) -> Result<Profile, Failure> {
    let mut job = original.clone();
    endless(&mut job);
    let scratch = Folder::new("profile")?;
    let run = StateDir::find(Some(scratch.path().to_path_buf()))?.create(&job, false)?;
    let listen = how.listen.unwrap_or(([127, 0, 0, 1], 0).into());
    reachable("--listen", listen)?;
    let two = job.batch.virtual_nodes >= 2;
    let options = Options {
        run: run.name.clone(),
        folder: run.path.clone(),
        token: run.token()?,
        listen,
        data_listen: SocketAddr::new(listen.ip(), 0),
        workers: 1,
        max_workers: if two { 2 } else { 1 },
        schedule: Vec::new(),
        spawn_server: None,
        synchronisation: Synchronisation::default(),
        spawn: Some(only(spawner(&run, |_| Vec::new())?, how.peer_by_hand)),
        trainee: Some(trainee.clone()),
        speeds: BTreeMap::new(),
        director: None,
        heartbeat_timeout: Duration::from_secs(5),
        grace: Duration::from_secs(4),
        last_checkpoint_wait: Duration::from_secs(10),
        accept_other_data: false,
        plain_transport: None,
        expected_step_s: None,
        replaces_alone: false,
        measure_link: true,
        job,
    };
    let (asks, asked) = channel();
    let helper = help(run.clone(), asked);
    let steps = how.steps + WARM_UP_STEPS as u64;
    let mut watch = Watch::default();
    printer.note(format_args!("one worker: {WARM_UP_STEPS} steps to warm up, {} to measure", how.steps));
    let invite = || {
        if how.peer_by_hand {
            let token = run.token_file();
            printer.note(format_args!(
                "now start the peer: bellwether worker --join {} --listen ITS-ADDRESS:0 --token-file {}",
                run.endpoint().map_or(listen, |e| e.control),
                token.display()
            ));
        } else {
            printer.note(format_args!("two workers: as many steps again"));
        }
    };
    let observe = &mut |seen: Observation<'_>| {
        if let Observation::Journal(event) = seen {
            watch.see(event, steps, two, &asks, how.peer_by_hand, &invite);
        }
    };
    let ended = coordinator::run(options, observe);
    drop(asks);
    let _ = helper.join();
    let (summary, outcome) = ended.map_err(|e| Failure::at("profile", e))?;
    if outcome != RunOutcome::Stopped {
        return Err(Failure::at(&original.name, format!("it could not be measured: {}", summary.reason)));
    }
    let measured = Measured::read(&run, how.steps)?;
    Ok(build::profile(original, trainee, &measured))
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
    fn see(
        &mut self,
        event: &Event,
        steps: u64,
        two: bool,
        asks: &Sender<Ask>,
        by_hand: bool,
        invite: &dyn Fn(),
    ) {
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
            _ => return,
        }
        if self.steps < steps {
            return;
        }
        // The helper ends only after this sender.
        match self.part {
            Part::One if two => {
                self.part = Part::Growing;
                invite();
                if !by_hand {
                    let _ = asks.send(Ask::Scale(2));
                }
            }
            Part::One | Part::Two => {
                self.part = Part::Over;
                let _ = asks.send(Ask::Stop);
            }
            Part::Growing | Part::Over => {}
        }
    }
}

impl Measured {
    /// What the run left in its folder.
    fn read(run: &RunDir, wanted: u64) -> Result<Measured, Failure> {
        let steps = metrics::read(&run.path).collect();
        let (mut links, mut checkpoint_s) = (Vec::new(), None);
        let at = |error| Failure::at(run.journal_file().display().to_string(), error);
        for line in run.journal().map_err(at)?.lines() {
            match line.map_err(at)?.event {
                Event::LinkMeasured { bandwidth_bytes_per_s, latency_s, .. } => {
                    links.push(Network { bandwidth_bytes_per_s, latency_s });
                }
                Event::Checkpointed { seconds, .. } => checkpoint_s = Some(seconds),
                _ => {}
            }
        }
        // The first worker is on the coordinator's machine; the second may be elsewhere.
        Ok(Measured { steps, wanted, network: links.get(1).or(links.first()).copied(), checkpoint_s })
    }
}
