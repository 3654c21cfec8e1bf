//! The world around an engine, played: time, the disk, users, and the processes of jobs, which outlive every daemon.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bellwether_core::cluster::JobId;
use bellwether_serve::clock::{Clock, Inbox};
use bellwether_serve::engine::Channels;
use bellwether_serve::ledger::{Entry, Line};
use bellwether_serve::machine::DeviceType;
use bellwether_serve::runner::{JobRunner, NodeSeen, Report, SlotsSeen, Wanted};
use bellwether_serve::snapshot::JobState;
use tokio::sync::mpsc::UnboundedSender;

use super::disk::Disk;
use super::replay::Followed;
use super::runs::{Post, Run};
use super::users::Users;
use super::{has_queues, is_cluster};
use bellwether_testkit::Random;

pub(crate) const STEPS: u64 = 100;
pub(crate) const SLOTS: u32 = 4;

/// How often a run breaks by itself; a job may be tried as often again.
pub(crate) const CRASHES_MAX: u32 = 3;

/// Turns after which a history that is calm should be over.
const CALM_TURNS: u64 = 20_000;

/// When the machine believes to be at first, in seconds since the Unix epoch.
const SINCE_S: f64 = 1.7e9;

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) disk: Disk,
    pub(crate) users: Users,
    /// What follows from what is on the disk.
    pub(crate) followed: Followed,
    /// The disk damaged a line, and no daemon that knows of it has seen all processes leave since.
    pub(crate) is_misled: bool,
    /// What clients saw of all jobs in the end.
    pub(crate) shown: BTreeMap<String, Arc<JobState>>,
    pub(crate) runs: BTreeMap<JobId, Run>,
    /// What the living daemon's runner knows of each job.
    pub(crate) posts: BTreeMap<JobId, Post>,
    /// Reports on their way to the living daemon, by job, each with the time of its arrival.
    mail: BTreeMap<JobId, VecDeque<(Duration, Report)>>,
    pub(crate) reports: Option<UnboundedSender<Report>>,
    pub(crate) ends: Option<Channels>,
    /// Time since the beginning, and by how much the machine's clock is wrong.
    pub(crate) elapsed: Duration,
    skew_s: f64,
    /// The daemon was killed: nothing that it does from now on happens.
    pub(crate) dead: bool,
    /// What the daemon may still do until it is killed.
    pub(crate) deeds_left: Option<u64>,
    /// Nodes of a cluster, each with whether it is down and how many slots others hold; empty where one machine plays
    /// all nodes.
    pub(crate) nodes: Vec<(bool, u32)>,
    /// Nothing breaks any more, and users only wait.
    pub(crate) calm: bool,
    /// Turns since then.
    pub(crate) calm_turns: u64,
    /// How often something happened.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// What happened, for those who look for the reason of a failure.
    pub(crate) story: Vec<String>,
}

/// Slots of each node of a cluster.
const NODE_SLOTS: u32 = SLOTS / 2;

#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new(seed: u64) -> Shared {
        let world = World {
            random: Random(seed),
            disk: Disk::default(),
            users: Users::new(has_queues(seed)),
            followed: Followed::default(),
            is_misled: false,
            shown: BTreeMap::new(),
            runs: BTreeMap::new(),
            posts: BTreeMap::new(),
            mail: BTreeMap::new(),
            reports: None,
            ends: None,
            elapsed: Duration::from_secs(1000),
            skew_s: 0.0,
            dead: false,
            deeds_left: None,
            nodes: if is_cluster(seed) { vec![(false, 0); 2] } else { Vec::new() },
            calm: false,
            calm_turns: 0,
            counts: BTreeMap::new(),
            story: Vec::new(),
        };
        Shared(Arc::new(Mutex::new(world)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        // A broken promise panics in the middle of something; what is there is still worth telling.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl World {
    pub(crate) fn unix_s(&self) -> f64 {
        SINCE_S + self.elapsed.as_secs_f64() + self.skew_s
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        let line = format!("{:>9.3} {}", self.elapsed.as_secs_f64(), what());
        self.story.push(line);
    }

    pub(crate) fn count(&mut self, what: &'static str, how_often: u64) {
        *self.counts.entry(what).or_default() += how_often;
    }

    /// The disk damages a line; the name of the job that it loses with it.
    pub(crate) fn damage_ledger(&mut self) -> Option<String> {
        let line = self.disk.damage(&mut self.random)?;
        self.tell(|| format!("the disk damages {line}"));
        (self.is_misled, self.followed) = (true, Followed::default());
        self.runs.values_mut().for_each(|run| run.stopped_by_hand = false);
        match serde_json::from_str(&line) {
            Ok(Line { entry: Entry::Submitted(submitted), .. }) => {
                // The one that sees that a job is lost ends its run.
                self.runs.remove(&submitted.id);
                Some(submitted.name)
            }
            Ok(Line { entry: Entry::KeptJob(kept) | Entry::KeptElsewhere(kept), .. }) => {
                self.runs.remove(&kept.record.submitted.id);
                Some(kept.record.submitted.name)
            }
            _ => None,
        }
    }

    /// The daemon does something; false when it is dead by now and does not.
    pub(crate) fn deed(&mut self) -> bool {
        match &mut self.deeds_left {
            Some(0) => self.kill(),
            Some(left) => *left -= 1,
            None => {}
        }
        !self.dead
    }

    fn kill(&mut self) {
        if !self.dead {
            self.tell(|| "the daemon is killed between two deeds".into());
            self.count("killed between two deeds", 1);
        }
        self.dead = true;
        if let Some(ends) = &self.ends {
            ends.stop.send_replace(true);
        }
    }

    /// What the runner of a dead daemon knew is gone with it.
    pub(crate) fn bury(&mut self) {
        (self.dead, self.deeds_left, self.ends, self.reports) = (false, None, None, None);
        self.posts.clear();
        self.mail.clear();
    }

    /// A report sets out; it arrives after those of the same job that set out before it.
    pub(crate) fn send(&mut self, job: JobId, report: Report) {
        let delay_ms = match self.random.below(10) {
            0 if !self.calm => self.random.below(30_000),
            _ => self.random.below(20),
        };
        let mail = self.mail.entry(job).or_default();
        let earliest = mail.back().map_or(Duration::ZERO, |(time, _)| *time);
        mail.push_back(((self.elapsed + Duration::from_millis(delay_ms)).max(earliest), report));
    }

    fn deliver(&mut self) {
        let (now, Some(reports)) = (self.elapsed, self.reports.clone()) else { return };
        let mut arrived = Vec::new();
        for mail in self.mail.values_mut() {
            while mail.front().is_some_and(|(time, _)| *time <= now) {
                arrived.extend(mail.pop_front());
            }
        }
        for (_, report) in arrived {
            self.tell(|| format!("  heard: {report:?}"));
            // An engine that is gone hears nothing.
            let _ = reports.send(report);
        }
    }

    /// The machine's clock is set.
    fn set_clock(&mut self) {
        let by_s = [-86_400.0, -600.0, -3.0, 3.0, 600.0, 86_400.0][self.random.below(6) as usize];
        self.skew_s += by_s;
        self.tell(|| format!("the clock is set by {by_s} s"));
        self.count("clocks set", 1);
    }

    /// The living daemon hears how the nodes are.
    pub(crate) fn tell_of_nodes(&mut self) {
        if self.nodes.is_empty() {
            return;
        }
        if self.calm {
            self.nodes.fill((false, 0));
        }
        let seen = self.nodes.iter().enumerate().map(|(number, (down, taken))| NodeSeen {
            name: format!("n{number}"),
            down: down.then(|| "it is drained".to_owned()),
            slots: SlotsSeen {
                device_type: DeviceType { name: "cpu".into(), speed: 1.0, memory_bytes: None },
                devices: NODE_SLOTS,
                taken: *taken,
            },
        });
        let seen: Vec<NodeSeen> = seen.collect();
        let nodes = self.nodes.clone();
        self.tell(|| format!("nodes: {nodes:?}"));
        if let Some(reports) = &self.reports {
            // An engine that is gone hears nothing.
            let _ = reports.send(Report::Nodes(seen));
        }
    }

    /// A node goes or comes back, others take slots of it or leave, or one joins.
    fn change_nodes(&mut self) {
        let node = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(5) {
            0..=2 => {
                self.nodes[node].0 = !self.nodes[node].0;
                self.count("nodes down", u64::from(self.nodes[node].0));
            }
            3 => {
                self.nodes[node].1 = self.random.below(u64::from(NODE_SLOTS) + 1) as u32;
                self.count("slots that others take", u64::from(self.nodes[node].1));
            }
            _ if self.nodes.len() == 2 => {
                self.nodes.push((false, 0));
                self.count("nodes that join", 1);
            }
            _ => {}
        }
        self.tell_of_nodes();
    }

    /// A moment passes in which no one waits.
    pub(crate) fn turn(&mut self, patience: Duration) {
        let pause = match self.random.below(200) {
            // The daemon gets no time itself, or the machine sleeps.
            0 if !self.calm => Duration::from_millis(self.random.below(20_000)),
            _ => patience.max(Duration::from_millis(1)),
        };
        self.elapsed += pause;
        self.calm_turns += u64::from(self.calm);
        if !self.calm && self.random.below(150) == 0 {
            self.set_clock();
        }
        if !self.nodes.is_empty() && !self.calm && self.random.below(100) == 0 {
            self.change_nodes();
        }
        if !self.calm && self.ends.is_some() && self.random.below(300) == 0 {
            self.disk.full_until = self.elapsed + Duration::from_millis(self.random.below(5000));
            self.count("disks full", 1);
        }
        for job in self.runs.keys().copied().collect::<Vec<_>>() {
            self.attend(job);
            self.go_on(job);
        }
        self.check_slots();
        self.deliver();
        self.ask_something();
        self.rest();
    }

    /// When all is over, the daemon may stop.
    fn rest(&mut self) {
        let Some(ends) = self.ends.as_ref().filter(|_| self.calm) else { return };
        let now = ends.engine.now();
        if now.jobs.values().all(|job| job.state.has_ended()) && !self.users.are_waiting() {
            ends.stop.send_replace(true);
            self.shown = now.jobs.iter().map(|(name, job)| (name.clone(), job.clone())).collect();
        }
        assert!(
            self.calm_turns < CALM_TURNS,
            "jobs do not end: {:#?} {:#?} {:#?}",
            now.jobs,
            self.runs,
            self.posts
        );
    }

    /// No more workers than slots, and of each job no more than slots that it holds by the ledger, at any moment.
    fn check_slots(&mut self) {
        let Some(state) = self.followed.follow(&self.disk.bytes) else { return };
        // Only what is missing without a trace can mislead a daemon.
        if self.is_misled {
            return;
        }
        let is_elsewhere =
            |job: &JobId| state.jobs.get(job).is_some_and(|record| record.submitted.provision.is_some());
        let here = self.runs.iter().filter(|(job, _)| !is_elsewhere(job));
        let used: u32 = here.map(|(_, run)| run.workers()).sum();
        let slots = SLOTS.max(NODE_SLOTS * self.nodes.len() as u32);
        assert!(used <= slots, "{used} workers on {slots} slots: {:#?}", self.runs);
        for (job, run) in self.runs.iter().filter(|(job, _)| !state.unsettled.contains(job)) {
            if is_elsewhere(job) {
                let is_known = state.jobs.get(job).is_some_and(|record| record.obtaining);
                assert!(is_known || run.workers() == 0, "job {} has machines unawares: {run:#?}", job.0);
                continue;
            }
            let held = state.slots.of(*job).len() as u32;
            assert!(run.workers() <= held, "job {} has {held} slots: {run:#?}", job.0);
        }
    }
}

/// The played clock; while the engine waits, the world goes on.
pub(crate) struct PlayedClock(pub(crate) Shared);

impl Clock for PlayedClock {
    fn elapsed(&self) -> Duration {
        self.0.lock().elapsed
    }

    fn unix_s(&self) -> f64 {
        self.0.lock().unix_s()
    }

    fn wait(&mut self, _inbox: &mut Inbox, patience: Duration) {
        self.0.lock().turn(patience);
    }

    fn pause(&mut self, time: Duration) {
        self.0.lock().turn(time);
    }
}

/// The living daemon's runner.
pub(crate) struct Players(pub(crate) Shared);

impl JobRunner for Players {
    fn want(&mut self, wanted: Wanted) {
        let mut world = self.0.lock();
        if world.deed() {
            world.want(wanted);
        }
    }

    fn release(&mut self, runs: Vec<std::path::PathBuf>) {
        let mut world = self.0.lock();
        if world.deed() {
            world.release(&runs);
        }
    }
}
