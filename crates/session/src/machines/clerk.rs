//! Talks to the provider for one run, on a thread of its own: writes the lease, asks for machines, watches them, and
//! gives them back.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether_core::lease::{Lease, Row};
use bellwether_core::machines::{Offer, Pool, Provider, ProviderError, Request, Tag};
use bellwether_core::record::Provisioned;
use bellwether_runtime::journal::now_s;
use bellwether_runtime::run_dir::{Endpoint, LeaseFile};
use bellwether_sched::fleet::Action;
use bellwether_sched::promise::keeper::Keeper;

use super::script::{Scripts, Worker};
use super::shared::Shared;
use super::{keeper, tag};

/// Time between two looks at what the provider has, while machines come or go, and while nothing happens.
const LIST_EAGER: Duration = Duration::from_secs(1);
const LIST: Duration = Duration::from_secs(5);

/// Time between two questions for prices.
const OFFERS: Duration = Duration::from_secs(60);

/// Time between two looks at what is wished for.
const LOOK: Duration = Duration::from_millis(100);

/// How long to try to give everything back when the run ends, beside the time in which a machine may yet appear. What
/// is left then is in the lease.
const CLOSING_PATIENCE: Duration = Duration::from_secs(60);

/// See the [module](self).
pub(crate) struct Clerk {
    pub(super) shared: Arc<Shared>,
    pub(super) provider: Box<dyn Provider>,
    pub(super) scripts: Scripts,
    pub(super) keeper: Keeper,
    pub(super) lease: Lease,
    pub(super) file: LeaseFile,
    /// Machines of an earlier holder that ran, whose workers are to be told where this coordinator is.
    pub(super) untold: Vec<(u64, BTreeSet<u64>)>,
    /// What the run's summary says in the end.
    pub(super) account: Arc<Mutex<Option<Provisioned>>>,
    pub(super) progress: Progress,
}

/// What the clerk remembers from one look to the next.
pub(super) struct Progress {
    /// Whether the machines of an earlier holder are still to be found.
    adopts: bool,
    list_at: Instant,
    offers_at: Instant,
    closing_since: Option<Instant>,
    is_unwritten: bool,
    /// Whether the provider did not answer last.
    is_away: bool,
    /// Whether the lease could not be written last.
    is_full: bool,
}

impl Progress {
    /// Of a clerk that begins with a lease in which there may be machines.
    pub(super) fn new(adopts: bool) -> Progress {
        let now = Instant::now();
        Progress {
            adopts,
            list_at: now,
            offers_at: now,
            closing_since: None,
            is_unwritten: true,
            is_away: false,
            is_full: false,
        }
    }
}

impl Clerk {
    /// Works until the holder closes and everything is given back.
    pub(super) fn work(mut self) {
        loop {
            self.list();
            self.tell_where();
            self.close();
            self.act();
            self.offers();
            if self.is_done() {
                return self.leave();
            }
            keeper::look(&mut self.keeper, &self.shared);
            let news = self.shared.lock().fleet.news();
            self.shared.lock().notes.extend(news);
            self.shared.wait(LOOK);
        }
    }

    /// Carries out what the fleet wants, after it was written down.
    fn act(&mut self) {
        // Machines of an earlier holder may be there of which the fleet does not know yet.
        if self.progress.adopts {
            return;
        }
        let (actions, rows) = {
            let mut board = self.shared.lock();
            (board.fleet.actions(now_s()), board.fleet.rows())
        };
        let is_written = self.write(rows);
        for action in actions {
            match action {
                Action::Request { number, pool, workers } => {
                    let tag = tag(&self.lease, number);
                    // Each request takes a while, and the run may be over by now.
                    let answer = if self.shared.lock().is_closing {
                        let (provider, why) = (self.provider.name(), "the run is over".to_owned());
                        Err(ProviderError::Refused { provider, why })
                    } else if is_written {
                        self.request(tag, pool, &workers)
                    } else {
                        let why = "the lease cannot be written".to_owned();
                        Err(ProviderError::Unanswered { provider: self.provider.name(), why })
                    };
                    self.shared.lock().fleet.answered(number, now_s(), answer);
                    self.progress.list_at = self.progress.list_at.min(Instant::now() + LIST_EAGER / 4);
                }
                Action::Release { number } => {
                    if let Err(error) = self.provider.release(&tag(&self.lease, number)) {
                        self.lament(&error);
                    }
                }
            }
        }
    }

    fn request(&mut self, tag: Tag, pool: Pool, workers: &[u64]) -> Result<(), ProviderError> {
        let workers = self.workers(workers);
        let setup = self.lease.plan.kind(&pool.machine).map_or("", |kind| &kind.obtain.setup).to_owned();
        let written = self.scripts.write(tag.number, &setup, &workers);
        let (script, secrets) = written.map_err(|error| ProviderError::Unanswered {
            provider: self.provider.name(),
            why: format!("what the machine should run cannot be written: {error}"),
        })?;
        self.provider.request(&Request { tag, pool, script, secrets })
    }

    /// Workers with where their coordinator is.
    fn workers(&self, workers: &[u64]) -> Vec<Worker> {
        let board = self.shared.lock();
        workers.iter().filter_map(|worker| Some((*worker, *board.joins.get(worker)?))).collect()
    }

    /// Writes the lease where it has changed; whether what is on disk is true.
    fn write(&mut self, rows: Vec<Row>) -> bool {
        if rows == self.lease.machines && !self.progress.is_unwritten {
            return true;
        }
        self.lease.machines = rows;
        match self.file.write(&self.lease) {
            Ok(()) => (self.progress.is_unwritten, self.progress.is_full) = (false, false),
            Err(error) => {
                self.progress.is_unwritten = true;
                if !std::mem::replace(&mut self.progress.is_full, true) {
                    let note = format!("{error}; no machine is asked for until the lease can be written");
                    self.shared.lock().notes.push(note);
                }
            }
        }
        !self.progress.is_unwritten
    }

    /// Looks at what the provider has, when it is time to.
    fn list(&mut self) {
        let (is_moving, is_empty) = {
            let board = self.shared.lock();
            (board.fleet.is_moving(), board.fleet.is_empty())
        };
        // Without a machine there is nothing to look for, but for those of an earlier holder.
        if is_empty && !self.progress.adopts {
            return;
        }
        // What begins to move while nothing was expected to is looked at sooner.
        if is_moving {
            self.progress.list_at = self.progress.list_at.min(Instant::now() + LIST_EAGER);
        }
        if Instant::now() < self.progress.list_at {
            return;
        }
        let listed = self.provider.list(&self.lease.lease);
        self.progress.list_at = Instant::now() + if is_moving { LIST_EAGER } else { LIST };
        match listed {
            Ok(machines) => {
                self.progress.adopts = false;
                let mut board = self.shared.lock();
                if std::mem::take(&mut self.progress.is_away) {
                    board.notes.push(format!("{} answers again", self.provider.name()));
                }
                board.fleet.listed(now_s(), &machines);
                drop(board);
                self.shared.notify();
            }
            Err(error) => self.lament(&error),
        }
    }

    /// Asks for prices, when it is time to.
    fn offers(&mut self) {
        if Instant::now() < self.progress.offers_at {
            return;
        }
        self.progress.offers_at = Instant::now() + OFFERS;
        let Ok(offers) = self.provider.offers() else { return };
        let mut board = self.shared.lock();
        for Offer { pool, dollars_per_hour, .. } in offers {
            if let Some(price) = dollars_per_hour {
                board.fleet.set_price(&pool, price);
                self.keeper.set_price(&pool, price);
            }
        }
    }

    /// Writes into the tickets of workers of an earlier coordinator where this one is, once that is known.
    fn tell_where(&mut self) {
        if self.untold.is_empty() {
            return;
        }
        let own = |endpoint: &Endpoint| endpoint.process == std::process::id();
        let Some(endpoint) = self.scripts.run.endpoint().filter(own) else { return };
        for (number, workers) in std::mem::take(&mut self.untold) {
            let workers: Vec<Worker> = workers.into_iter().map(|worker| (worker, endpoint.control)).collect();
            // Where the disk is full they look where the coordinator was, and end in the end.
            let _ = self.scripts.tell(number, &workers);
        }
    }

    /// Begins to give everything back once the run is over: its workers have been told.
    fn close(&mut self) {
        let mut board = self.shared.lock();
        if board.is_closing && self.progress.closing_since.is_none() {
            self.progress.closing_since = Some(Instant::now());
            board.fleet.close();
        }
    }

    fn is_done(&self) -> bool {
        let Some(since) = self.progress.closing_since else { return false };
        let patience = CLOSING_PATIENCE + Duration::from_secs_f64(self.provider.settle_s());
        since.elapsed() >= patience || self.shared.lock().fleet.is_empty()
    }

    /// Says what the machines have cost, and what is left of them.
    fn leave(mut self) {
        let rows = self.shared.lock().fleet.rows();
        self.write(rows);
        let account = keeper::account(&self.keeper, &self.lease, self.provider.name(), now_s());
        *self.account.lock().expect("no holder of this lock panics") = Some(account);
    }

    /// The provider does not do what it was asked for now; told once until it answers again.
    fn lament(&mut self, error: &ProviderError) {
        if !std::mem::replace(&mut self.progress.is_away, true) {
            let note = format!("{error}; workers go on, and it is asked again until it answers");
            self.shared.lock().notes.push(note);
        }
    }
}
