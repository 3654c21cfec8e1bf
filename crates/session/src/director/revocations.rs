//! Servers of this machine that vanish as a law says, and what that cost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bellwether_core::job::Job;
use bellwether_core::record::{Event, ExpectedRun, Revocations, Summary};
use bellwether_core::units::DollarsPerHour;
use bellwether_des::random::Streams;
use bellwether_model::transient::{self, Checkpoints, Law, Servers};
use bellwether_runtime::coordinator::{Director, DirectorCommand, RunEvent, RunStatus};
use bellwether_runtime::membership::WorkerId;

use crate::compare::Learnt;

/// Runs of the expectation.
const RUNS: u32 = 2000;

/// Simulated runs longer than this multiple of the failure-free time are censored.
const HORIZON: f64 = 100.0;

const HOUR_S: f64 = 3600.0;

/// Servers that vanish as a law says.
#[derive(Debug, Clone)]
pub struct Vanishing {
    /// The law in its owner's words.
    pub words: String,
    /// Lifetimes of servers.
    pub law: Law,
    /// Source of the lifetimes.
    pub seed: u64,
    /// Seconds of the law's clock in a second of the run, above 0.
    pub time_scale: f64,
    /// Seconds on the law's clock between a provider's notice and the end of a server; 0 takes it away
    /// without.
    pub notice_s: f64,
}

/// The owner of the servers.
#[derive(Debug, Clone)]
pub(crate) struct RevocationDirector {
    asked: Vanishing,
    account: Rc<RefCell<Account>>,
}

/// What happened to the servers, in seconds of the run.
#[derive(Debug, Default)]
struct Account {
    servers: BTreeMap<WorkerId, Server>,
    now_s: f64,
    first_s: Option<f64>,
    ended_s: f64,
    revoked: u32,
    /// Seconds from the start of a worker until it took part.
    joined_s: Vec<f64>,
    /// Seconds from each crash to the next step.
    recovered_s: Vec<f64>,
}

impl Account {
    /// Mean seconds that all pause when one joins or is lost: joining costs nothing, nor does a loss with
    /// notice, but a crash does.
    fn pause_s(&self) -> f64 {
        let changes = self.joined_s.len() + self.revoked as usize;
        self.recovered_s.iter().sum::<f64>() / changes.max(1) as f64
    }
}

#[derive(Debug)]
struct Server {
    began_s: f64,
    ends_s: f64,
    /// When its notice comes; `None` once it has come, or where there is none.
    notice_at_s: Option<f64>,
    joined: bool,
    /// When it was given back or taken away.
    over_s: Option<f64>,
}

impl RevocationDirector {
    pub(crate) fn new(asked: Vanishing) -> RevocationDirector {
        RevocationDirector { asked, account: Rc::default() }
    }

    /// The same as one who steers a run.
    pub(crate) fn director(&self) -> Box<dyn Director> {
        Box::new(self.clone())
    }

    /// The clock of the law in seconds of the run.
    fn real_s(&self, law_s: f64) -> f64 {
        law_s / self.asked.time_scale
    }

    /// A server begins to live. Its lifetime depends on the seed and its number only.
    fn begin(&self, worker: WorkerId, now_s: f64) {
        let mut stream = Streams::new(self.asked.seed).stream("lifetime", worker);
        let ends_s = now_s + self.real_s(self.asked.law.sample(&mut stream));
        let notice = ends_s.is_finite() && self.asked.notice_s > 0.0;
        let notice_at_s = notice.then(|| (ends_s - self.real_s(self.asked.notice_s)).max(now_s));
        let server = Server { began_s: now_s, ends_s, notice_at_s, joined: false, over_s: None };
        let mut account = self.account.borrow_mut();
        account.first_s.get_or_insert(now_s);
        account.servers.insert(worker, server);
    }

    fn learn(&self, event: &Event, now: &RunStatus<'_>) {
        match event {
            Event::WorkerStarted { worker } => self.begin(*worker, now.elapsed_s),
            Event::Membership { workers, .. } => {
                let account = &mut *self.account.borrow_mut();
                for worker in workers {
                    if let Some(server) = account.servers.get_mut(worker)
                        && !std::mem::replace(&mut server.joined, true)
                    {
                        account.joined_s.push(now.elapsed_s - server.began_s);
                    }
                }
            }
            Event::Recovered { seconds, .. } => self.account.borrow_mut().recovered_s.push(*seconds),
            Event::Ended { .. } => self.account.borrow_mut().ended_s = now.elapsed_s,
            _ => {}
        }
    }

    /// Whose time has come.
    fn due(&self, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        let now_s = now.elapsed_s;
        let account = &mut *self.account.borrow_mut();
        account.now_s = now_s;
        let mut commands = Vec::new();
        for (worker, server) in account.servers.iter_mut().filter(|(_, server)| server.over_s.is_none()) {
            if !now.processes.contains(worker) {
                // It was given back, or went by itself: its place is another server's by now.
                server.over_s = Some(now_s);
                continue;
            }
            let lived_s = (server.ends_s - server.began_s) * self.asked.time_scale;
            let noticed = server.notice_at_s.take_if(|at_s| *at_s <= now_s);
            let ends = server.ends_s <= now_s;
            if noticed.is_some() || ends && self.asked.notice_s == 0.0 {
                account.revoked += 1;
                let notice_s = noticed.map(|_| (server.ends_s - now_s).max(0.0));
                let revoked = Event::Revoked { worker: *worker, step: now.step, lived_s, notice_s };
                commands.push(DirectorCommand::Note(revoked));
            }
            if noticed.is_some() {
                commands.push(DirectorCommand::Warn(*worker));
            }
            if ends {
                server.over_s = Some(now_s);
                commands.push(DirectorCommand::Revoke(*worker));
            }
        }
        commands
    }

    /// What the run took, beside what the law let expect; with the price of a server.
    pub(crate) fn report(
        &self,
        job: &Job,
        summary: &Summary,
        learnt: Option<&Learnt>,
        price: Option<DollarsPerHour>,
    ) -> Revocations {
        let account = self.account.borrow();
        let scale = self.asked.time_scale;
        let ended_s = if account.ended_s > 0.0 { account.ended_s } else { account.now_s };
        let time_s = (ended_s - account.first_s.unwrap_or(ended_s)) * scale;
        let lived_s =
            |server: &Server| (server.over_s.unwrap_or(ended_s).min(ended_s) - server.began_s).max(0.0);
        let server_hours = account.servers.values().map(lived_s).sum::<f64>() * scale / HOUR_S;
        Revocations {
            law: self.asked.words.clone(),
            time_scale: scale,
            revoked: account.revoked,
            time_s,
            expected: learnt.and_then(|learnt| self.expected(&account, job, summary, learnt)),
            server_hours,
            cost_dollars: price.map(|price| price.get() * server_hours),
        }
    }

    /// Many runs of the same steps by the law, with the speeds that the first steps showed and the overheads
    /// that this run had.
    fn expected(
        &self,
        account: &Account,
        job: &Job,
        summary: &Summary,
        learnt: &Learnt,
    ) -> Option<ExpectedRun> {
        let scale = self.asked.time_scale;
        let count = learnt.workers;
        let steps = summary.steps.checked_sub(learnt.first)? as f64;
        let rates: Vec<f64> = (1..=count)
            .map(|workers| Some(learnt.model.rate(workers)?.steps_per_s / scale))
            .collect::<Option<_>>()?;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let servers = Servers {
            count,
            law: self.asked.law.clone(),
            price_per_hour: 1.0,
            provision_s: 0.0,
            join_s: mean(&account.joined_s) * scale,
            replaced: true,
        };
        let rate = rates[count as usize - 1];
        let every = job.checkpoint.every_steps;
        let job = transient::Job {
            checkpoints: (every > 0).then(|| Checkpoints { period_s: every as f64 / rate, time_s: 0.0 }),
            regroup_s: account.pause_s() * scale,
            ..transient::Job::new(steps, vec![servers], HORIZON * steps / rate)
        };
        let speed = |at_work: &[u32]| at_work[0].checked_sub(1).map_or(0.0, |place| rates[place as usize]);
        let outcomes = transient::simulate(&job, speed, RUNS, self.asked.seed).ok()?;
        Some(ExpectedRun {
            time_s: outcomes.time_s().mean,
            low_s: outcomes.time_quantile_s(0.05).value,
            high_s: outcomes.time_quantile_s(0.95).value,
            revoked: outcomes.losses().mean,
            server_hours: outcomes.cost().mean,
        })
    }
}

impl Director for RevocationDirector {
    fn direct(&mut self, seen: RunEvent<'_>, now: &RunStatus<'_>) -> Vec<DirectorCommand> {
        match seen {
            RunEvent::Journal(event) => {
                self.learn(event, now);
                Vec::new()
            }
            RunEvent::Tick => self.due(now),
            RunEvent::Committed(_) | RunEvent::Reported(..) => Vec::new(),
        }
    }
}
