//! The engine in upheaval: clients that ask for anything at any time, processes that start late and die, daemons that end
//! and come back. Whatever happens, the ledger stays possible, no slot has two holders, and every job ends once, as it
//! should.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bellwether_core::cluster::JobId;
use bellwether_core::job::WorkerRange;
use bellwether_core::parse;
use bellwether_serve::crew::{Crew, End, Report, Wanted};
use bellwether_serve::engine::{Ends, Engine, EngineError, Options};
use bellwether_serve::ledger::{Entry, Outcome, Task, read};
use bellwether_serve::machine::{DeviceType, Machine, MachineNode};
use bellwether_serve::request::{Request, Submission};
use bellwether_serve::state::State;
use tokio::sync::mpsc::UnboundedSender;

const STEPS: u64 = 100;
const SLOTS: u32 = 4;
const POLICIES: [&str; 7] = ["fifo", "fifo_skip", "srtf", "wfs", "hell", "las", "priority"];

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// Processes of a job that are played.
#[derive(Debug, Default)]
struct Played {
    wanted: Option<Wanted>,
    /// Active workers; none while they start.
    active: u32,
    step: u64,
    alive: bool,
    failures: u32,
}

struct World {
    jobs: BTreeMap<JobId, Played>,
    random: Random,
    reports: Option<UnboundedSender<Report>>,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().expect("no thread panics with it")
}

impl World {
    fn say(&self, report: Report) {
        if let Some(reports) = &self.reports {
            // An engine that is gone hears nothing.
            let _ = reports.send(report);
        }
    }

    /// Something happens to some of the processes.
    fn happen(&mut self) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for job in jobs {
            let (luck, dice) = (self.random.below(100), self.random.below(12));
            let mut reports = Vec::new();
            if let Some(played) = self.jobs.get_mut(&job).filter(|_| luck < 40) {
                act(job, played, luck, dice, &mut reports);
            }
            reports.into_iter().for_each(|report| self.say(report));
        }
    }
}

fn act(job: JobId, played: &mut Played, luck: u64, dice: u64, reports: &mut Vec<Report>) {
    let Some(wanted) = played.wanted.clone() else { return };
    let mut ended = |played: &mut Played, end| {
        // Whoever wants something after it is told anew.
        (played.alive, played.active, played.wanted) = (false, 0, None);
        let (why, digest, unix_s) = (String::new(), None, 0.0);
        reports.push(Report::Ended { job, end, why, step: played.step, digest, unix_s });
    };
    if wanted.workers == 0 {
        ended(played, End::Stopped);
    } else if played.step == STEPS {
        ended(played, End::Finished);
    } else if !played.alive {
        (played.alive, played.active) = (true, 0);
    } else if luck == 0 && played.failures == 0 {
        (played.alive, played.active, played.wanted) = (false, 0, None);
        played.failures += 1;
        reports.push(Report::Lost { job, why: "killed".into() });
    } else if played.active != wanted.workers {
        played.active = wanted.workers;
        reports.push(Report::Training { job, workers: played.active, unix_s: 0.0 });
    } else {
        played.step = (played.step + dice).min(STEPS);
        let examples_per_s = Some(100.0 * f64::from(played.active));
        reports.push(Report::Progress { job, step: played.step, loss: Some(1.0), examples_per_s });
    }
}

/// A crew of played processes, which outlive it.
struct Players(Shared);

impl Crew for Players {
    fn want(&mut self, wanted: Wanted) {
        let mut world = lock(&self.0);
        let job = wanted.job;
        let played = world.jobs.entry(job).or_default();
        let active = played.active;
        played.wanted = Some(wanted);
        // Whoever is taken over says at once what it does.
        if active > 0 {
            world.say(Report::Training { job, workers: active, unix_s: 0.0 });
        }
    }
}

struct Daemon {
    ends: Ends,
    thread: std::thread::JoinHandle<Result<(), EngineError>>,
}

impl Daemon {
    fn start(folder: &Path, world: &Shared, policy: Option<&str>, machine: Option<Machine>) -> Daemon {
        let runs = folder.to_path_buf();
        let options = Options {
            folder: folder.into(),
            ledger: folder.join("ledger.jsonl"),
            machine,
            policy: policy.map(Into::into),
            time_scale: None,
            retries: 3,
            prepare: Box::new(move |name, _| Ok(runs.join(name))),
        };
        let opened = Engine::open(options, |reports| {
            lock(world).reports = Some(reports);
            Players(world.clone())
        });
        let (engine, ends) = opened.expect("the ledger is possible");
        Daemon { ends, thread: std::thread::spawn(move || engine.run()) }
    }

    fn stop(self, world: &Shared) {
        self.ends.stop.send_replace(true);
        self.thread.join().expect("the engine does not panic").expect("no law was broken");
        lock(world).reports = None;
    }
}

fn request(random: &mut Random, submitted: &mut u64) -> Request {
    let name = |random: &mut Random, submitted: u64| format!("job-{}", random.below(submitted.max(1)));
    let range = |random: &mut Random| {
        let min = 1 + random.below(3) as u32;
        WorkerRange { min, max: min + random.below(3) as u32 }
    };
    match random.below(10) {
        0..=4 => {
            let text = "name = \"job\"\nsteps = 100\n[model]\nkind = \"synthetic\"\nstep_time = \"10ms\"\nparameters = \"1KiB\"\n\
                [data]\nkind = \"indices\"\nsamples = 800\n[batch]\nsize = 8\nvirtual_nodes = 8\n\
                [optimizer]\nkind = \"sgd\"\nlearning_rate = 0.1\n";
            *submitted += 1;
            Request::Submit(Box::new(Submission {
                job: parse::job(text, "test", &[]).expect("a job"),
                name: Some(format!("job-{}", *submitted - 1)),
                workers: Some(range(random)),
                weight: 1.0 + random.below(3) as f64,
                deadline_s: None,
                task: Task { training_samples: 800, bytes: 1024 },
                key: None,
            }))
        }
        5 => Request::Suspend { job: name(random, *submitted) },
        6 => Request::Resume { job: name(random, *submitted) },
        7 => Request::Cancel { job: name(random, *submitted) },
        8 => Request::Limit { job: name(random, *submitted), workers: Some(range(random)), weight: None },
        _ => Request::Choose { policy: POLICIES[random.below(POLICIES.len() as u64) as usize].into() },
    }
}

/// One node, two equal ones, or a fast and a slow one, in turn.
fn machine(seed: u64) -> Machine {
    let mut machine = Machine::slots(SLOTS);
    let which = seed % 3;
    if which > 0 {
        machine.nodes = vec![MachineNode { device_type: 0, devices: SLOTS / 2 }; 2];
    }
    if which > 1 {
        machine.device_types.push(DeviceType { name: "slow".into(), speed: 0.5 });
        machine.nodes[1].device_type = 1;
    }
    machine
}

/// One history; returns what each job came to.
fn live_through(seed: u64) -> BTreeMap<String, Outcome> {
    let folder = tempfile::tempdir().expect("a folder");
    let world: Shared =
        Arc::new(Mutex::new(World { jobs: BTreeMap::new(), random: Random(seed ^ 0x5eed), reports: None }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("an event loop");
    let mut random = Random(seed);
    let policy = POLICIES[seed as usize % POLICIES.len()];
    let mut daemon = Daemon::start(folder.path(), &world, Some(policy), Some(machine(seed)));
    let (mut submitted, mut cancelled, mut suspended) = (0, BTreeSet::new(), BTreeSet::new());
    for _ in 0..60 {
        lock(&world).happen();
        if random.below(3) == 0 {
            let request = request(&mut random, &mut submitted);
            let granted = runtime.block_on(daemon.ends.desk.ask(request.clone())).is_ok();
            match request {
                Request::Submit(_) if !granted => submitted -= 1,
                Request::Cancel { job } if granted => drop(cancelled.insert(job)),
                Request::Suspend { job } if granted => drop(suspended.insert(job)),
                _ => {}
            }
        }
        if random.below(20) == 0 {
            daemon.stop(&world);
            lock(&world).happen();
            daemon = Daemon::start(folder.path(), &world, None, None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for job in &suspended {
        // One that ended is not resumed.
        let _ = runtime.block_on(daemon.ends.desk.ask(Request::Resume { job: job.clone() }));
    }
    let since = Instant::now();
    while daemon.ends.desk.now().jobs.values().any(|job| !job.state.has_ended()) {
        lock(&world).happen();
        std::thread::sleep(Duration::from_millis(1));
        let now = daemon.ends.desk.now();
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "seed {seed}: jobs do not end: {:#?}\n{:#?}\n{}",
            now.jobs,
            lock(&world).jobs,
            std::fs::read_to_string(folder.path().join("ledger.jsonl")).unwrap_or_default()
        );
    }
    assert_eq!(daemon.ends.desk.now().cluster.free, SLOTS, "seed {seed}: all slots are free");
    daemon.stop(&world);
    check_ledger(&folder.path().join("ledger.jsonl"), seed, submitted, &cancelled)
}

fn check_ledger(
    ledger: &Path,
    seed: u64,
    submitted: u64,
    cancelled: &BTreeSet<String>,
) -> BTreeMap<String, Outcome> {
    let (mut state, mut ends) = (None::<State>, BTreeMap::<JobId, Outcome>::new());
    let each = |line: bellwether_serve::ledger::Line| {
        if let Entry::Ended { job, outcome, .. } = &line.entry {
            assert_eq!(ends.insert(*job, *outcome), None, "seed {seed}: job {} ends twice", job.0);
        }
        match &mut state {
            None => state = Some(State::open(&line)?),
            Some(state) => state.apply(&line)?,
        }
        Ok(())
    };
    read(ledger, each).expect("the ledger is possible");
    let state = state.expect("a ledger has a first line");
    assert_eq!(state.jobs.len() as u64, submitted, "seed {seed}: no job is lost");
    let names = ends.iter().map(|(job, outcome)| (state.jobs[job].submitted.name.clone(), *outcome));
    let ends: BTreeMap<String, Outcome> = names.collect();
    for (name, outcome) in &ends {
        let fits = match outcome {
            Outcome::Finished => true,
            Outcome::Cancelled => cancelled.contains(name),
            Outcome::Failed | Outcome::Refused => false,
        };
        assert!(fits, "seed {seed}: {name} came to {outcome:?}");
    }
    ends
}

#[test]
fn every_job_ends_once_whatever_happens() {
    let seeds = std::env::var("BELLWETHER_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let mut outcomes = BTreeMap::<String, u64>::new();
    for seed in 0..seeds {
        for outcome in live_through(seed).values() {
            *outcomes.entry(format!("{outcome:?}")).or_default() += 1;
        }
    }
    // What is never tried proves nothing.
    assert!(outcomes["Finished"] > 10 * outcomes.len() as u64 && outcomes["Cancelled"] > 5, "{outcomes:?}");
}
