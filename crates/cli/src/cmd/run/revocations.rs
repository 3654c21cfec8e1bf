//! `bellwether run --revocations`: servers of this machine that vanish as a law says, and what that cost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;

use bellwether_core::InputError;
use bellwether_core::job::Job;
use bellwether_core::record::{Event, ExpectedRun, Revocations, Summary};
use bellwether_core::units::{DollarsPerHour, Seconds};
use bellwether_des::random::Streams;
use bellwether_model::transient::{self, Checkpoints, Law, Named, Servers};
use bellwether_runtime::coordinator::{Director, DirectorCommand, Now, Seen};
use bellwether_runtime::membership::WorkerId;
use clap::Args;

use super::compare::Learnt;
use crate::failure::Failure;

/// Runs of the expectation.
const RUNS: u32 = 2000;

/// A run that takes so many times as long as without losses is given up in the expectation.
const HORIZON: f64 = 100.0;

const HOUR_S: f64 = 3600.0;

/// Flags of servers that vanish.
#[derive(Debug, Args)]
pub(crate) struct RevocationArguments {
    /// Take the workers' servers away as a law says: exponential:15h, k80:us-west1, samples:FILE, … (see docs/transient.md);
    /// time-scale=3600 lets an hour of the law pass in a second
    #[arg(long, value_name = "LAW[,seed=N][,time-scale=X]", conflicts_with = "no_spawn")]
    revocations: Option<Asked>,
    /// Time on the law's clock between a provider's notice and the end of the server; 0s takes it away without
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "revocations")]
    notice: Seconds,
}

/// The law as the user named it, and how it is to be played.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    words: String,
    law: Named,
    seed: u64,
    time_scale: f64,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Asked, String> {
        let (mut words, mut seed, mut time_scale) = (text, 0, 1.0);
        // The laws have commas of their own.
        while let Some((rest, last)) = words.rsplit_once(',') {
            let wrong = |what: &str| format!("`{last}` in `{text}`: {what}");
            match last.split_once('=') {
                Some(("seed", number)) => {
                    seed = number.parse().map_err(|_| wrong("a seed is a whole number"))?
                }
                Some(("time-scale", number)) => {
                    let scale: f64 = number.parse().map_err(|_| wrong("a time scale is a number"))?;
                    if !(scale.is_finite() && scale > 0.0) {
                        return Err(wrong("a time scale is above 0"));
                    }
                    time_scale = scale;
                }
                _ => break,
            }
            words = rest;
        }
        Ok(Asked { words: words.into(), law: words.parse()?, seed, time_scale })
    }
}

impl RevocationArguments {
    /// The provider that was asked for.
    ///
    /// # Errors
    ///
    /// A file of lifetimes that cannot be read.
    pub(super) fn provider(&self) -> Result<Option<Provider>, Failure> {
        let Some(asked) = &self.revocations else { return Ok(None) };
        let law = match &asked.law {
            Named::Law(law) => law.clone(),
            Named::Samples(file) => lifetimes(Path::new(file))?,
        };
        let account = Rc::new(RefCell::new(Account::default()));
        Ok(Some(Provider { asked: asked.clone(), law, notice_s: self.notice.get(), account }))
    }
}

fn lifetimes(path: &Path) -> Result<Law, Failure> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        InputError::new(&place, format!("the lifetimes cannot be read: {e}"))
            .hint("samples:FILE names a file with one lifetime on each line, for example 5h30min")
    })?;
    Ok(transient::samples(&text, &place)?)
}

/// Whoever owns the servers.
#[derive(Debug, Clone)]
pub(super) struct Provider {
    asked: Asked,
    law: Law,
    /// On the law's clock.
    notice_s: f64,
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
    /// Mean seconds that all pause when one joins or is lost: joining costs nothing, nor does a loss with notice, but a
    /// crash does.
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

impl Provider {
    /// The same as one who steers a run.
    pub(super) fn director(&self) -> Box<dyn Director> {
        Box::new(self.clone())
    }

    /// The clock of the law in seconds of the run.
    fn real_s(&self, law_s: f64) -> f64 {
        law_s / self.asked.time_scale
    }

    /// A server begins to live. Its lifetime depends on the seed and its number only.
    fn begin(&self, worker: WorkerId, now_s: f64) {
        let mut stream = Streams::new(self.asked.seed).stream("lifetime", worker);
        let ends_s = now_s + self.real_s(self.law.sample(&mut stream));
        let notice = ends_s.is_finite() && self.notice_s > 0.0;
        let notice_at_s = notice.then(|| (ends_s - self.real_s(self.notice_s)).max(now_s));
        let server = Server { began_s: now_s, ends_s, notice_at_s, joined: false, over_s: None };
        let mut account = self.account.borrow_mut();
        account.first_s.get_or_insert(now_s);
        account.servers.insert(worker, server);
    }

    fn learn(&self, event: &Event, now: &Now<'_>) {
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
    fn due(&self, now: &Now<'_>) -> Vec<DirectorCommand> {
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
            if noticed.is_some() || ends && self.notice_s == 0.0 {
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
    pub(super) fn report(
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

    /// Many runs of the same steps by the law, with the speeds that the first steps showed and the overheads that this
    /// run had.
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
            law: self.law.clone(),
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

impl Director for Provider {
    fn direct(&mut self, seen: Seen<'_>, now: &Now<'_>) -> Vec<DirectorCommand> {
        match seen {
            Seen::Journal(event) => {
                self.learn(event, now);
                Vec::new()
            }
            Seen::Tick => self.due(now),
            Seen::Committed(_) | Seen::Reported(..) => Vec::new(),
        }
    }
}
