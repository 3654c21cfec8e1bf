//! Which worker has which machine.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::machines::Pool;

use super::{Fleet, Held, Leaving, Place, RIPE_S, Stage, Supply};

impl Fleet {
    /// A worker needs a machine.
    pub fn need(&mut self, worker: u64) {
        if !self.is_closing {
            self.waiting.push(worker);
        }
    }

    /// A worker needs no machine any more: it has left, or is not wanted.
    pub fn dismiss(&mut self, worker: u64) {
        self.waiting.retain(|other| *other != worker);
        self.lost.remove(&worker);
        for held in self.held.values_mut() {
            let was_last = held.workers.remove(&worker) && held.workers.is_empty();
            held.is_fruitless |= was_last && !held.has_joined && matches!(held.stage, Stage::Runs { .. });
        }
    }

    /// Leaves pools alone whose machines were given up before a worker joined on them.
    pub(super) fn leave_alone(&mut self, now_s: f64) {
        let take = |held: &mut Held| std::mem::take(&mut held.is_fruitless).then(|| held.pool.clone());
        let pools: Vec<Pool> = self.held.values_mut().filter_map(take).collect();
        for pool in pools {
            self.pause(&pool, now_s, "no worker joined on its machine");
        }
    }

    /// Workers that have a machine, or wait for one.
    pub fn workers(&self) -> BTreeSet<u64> {
        let seated = self.held.values().filter(|held| !held.is_over()).flat_map(|held| &held.workers);
        seated.chain(&self.waiting).copied().collect()
    }

    /// Workers that take part: a pool whose workers do is no longer left alone, and a machine whose worker does runs,
    /// whatever the provider has said of it by then.
    pub fn joined(&mut self, workers: &[u64], now_s: f64) {
        for held in self.held.values_mut() {
            if !held.has_joined && workers.iter().any(|worker| held.workers.contains(worker)) {
                held.has_joined = true;
                held.running_s.get_or_insert(now_s);
                self.pauses.remove(&held.pool);
            }
        }
    }

    /// How far a worker is. One that was never heard of has lost its machine.
    pub fn place(&self, worker: u64) -> Place {
        if self.waiting.contains(&worker) {
            return Place::Waits;
        }
        match self.held.values().find(|held| held.workers.contains(&worker)).map(|held| &held.stage) {
            Some(Stage::Runs { .. }) => Place::Runs,
            Some(Stage::Unanswered { .. } | Stage::Waits { .. }) => Place::Waits,
            Some(Stage::Over { how }) => Place::Over(how.clone()),
            None => {
                let how = self.lost.get(&worker).cloned();
                Place::Over(how.unwrap_or_else(|| "its machine is gone".into()))
            }
        }
    }

    /// Workers whose machines will be taken away.
    pub fn leaving(&self, now_s: f64) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        for (number, held) in &self.held {
            let Stage::Runs { leaves: Some((at_s, why)), .. } = &held.stage else { continue };
            let left_s = (at_s - now_s).max(0.0);
            let of = |worker: &u64| Leaving { worker: *worker, number: *number, left_s, why: why.clone() };
            leaving.extend(held.workers.iter().map(of));
        }
        leaving
    }

    /// Workers on machines of which there are more than are wanted, each with its machine: the newest first. Those that
    /// stand in for others stay, until other machines are wanted.
    pub fn surplus(&self) -> Vec<(u64, u64)> {
        let mut room: BTreeMap<&Pool, u32> = BTreeMap::new();
        for (pool, count) in &self.wanted {
            *room.entry(pool).or_default() += count;
        }
        let mut surplus = Vec::new();
        // The oldest stay: they have state, and their pool has shown that it lasts.
        for (number, held) in self.held.iter().filter(|(_, held)| held.counts() && !held.is_stand_in) {
            match room.get_mut(&held.pool).filter(|room| **room > 0) {
                Some(room) => *room -= 1,
                None => surplus.extend(held.workers.iter().map(|worker| (*worker, *number))),
            }
        }
        surplus.reverse();
        surplus
    }

    /// Machines at work of each pool, by when they began to run.
    pub fn running(&self) -> BTreeMap<&Pool, Vec<f64>> {
        let mut running: BTreeMap<&Pool, Vec<f64>> = BTreeMap::new();
        for held in self.held.values().filter(|held| held.counts()) {
            if let (Some(since_s), Stage::Runs { .. }) = (held.running_s, &held.stage) {
                running.entry(&held.pool).or_default().push(since_s);
            }
        }
        running
    }

    /// The machine of a worker: its number, its pool, and the node or address where it runs, empty while it does not.
    pub fn machine_of(&self, worker: u64) -> Option<(u64, &Pool, &str)> {
        let (number, held) = self.held.iter().find(|(_, held)| held.workers.contains(&worker))?;
        let place = match &held.stage {
            Stage::Runs { place, .. } => place.as_str(),
            Stage::Unanswered { .. } | Stage::Waits { .. } | Stage::Over { .. } => "",
        };
        Some((*number, &held.pool, place))
    }

    /// Whether fewer machines of some pool are there than are wanted, and it may be asked for one.
    pub fn has_room(&self, now_s: f64) -> bool {
        let is_ready = |pool| self.supply(pool).is_some_and(|supply| self.is_ready(supply, now_s));
        self.wanted.iter().any(|(pool, count)| self.counted(pool) < *count as usize && is_ready(pool))
    }

    fn counted(&self, pool: &Pool) -> usize {
        self.held.values().filter(|held| held.counts() && held.pool == *pool).count()
    }

    /// Makes machines for workers that wait. One of several devices waits for a moment until it is full.
    pub(super) fn seat(&mut self, now_s: f64) {
        if self.waited.0 != self.waiting.len() {
            self.waited = (self.waiting.len(), now_s);
        }
        let is_ripe = now_s - self.waited.1 >= RIPE_S;
        while !self.waiting.is_empty() {
            let Some((supply, is_stand_in)) = self.choose(now_s) else { break };
            let supply = supply.clone();
            let devices = supply.devices.max(1) as usize;
            if self.waiting.len() < devices && !is_ripe {
                break;
            }
            let workers = self.waiting.drain(..devices.min(self.waiting.len())).collect();
            self.last += 1;
            self.held.insert(self.last, Held { is_stand_in, ..Held::new(&supply, now_s, workers) });
        }
    }

    fn supply(&self, pool: &Pool) -> Option<&Supply> {
        self.supplies.iter().find(|supply| supply.pool == *pool)
    }

    /// The supply of the next machine, and whether that stands in for another: rules 1 to 3. One of a pool that is
    /// wanted, too, stands in where that pool has all its machines.
    fn choose(&self, now_s: f64) -> Option<(&Supply, bool)> {
        let has_room = |(pool, count): &&(Pool, u32)| self.counted(pool) < *count as usize;
        let roomy: Vec<&Supply> =
            self.wanted.iter().filter(has_room).filter_map(|(pool, _)| self.supply(pool)).collect();
        // A successor comes before the one that it follows goes: there is room for it wherever machines are wanted.
        let any = || self.wanted.iter().filter_map(|(pool, _)| self.supply(pool)).collect();
        let is_full = roomy.is_empty();
        let first: Vec<&Supply> = if is_full { any() } else { roomy };
        let is_ready = |supply: &&&Supply| self.is_ready(supply, now_s);
        if let Some(ready) = first.iter().find(is_ready) {
            return Some((*ready, is_full && ready.pool != first[0].pool));
        }
        let region = self.held.values().find(|held| held.counts()).and_then(|held| self.supply(&held.pool));
        let dearest = first.iter().map(|supply| supply.dollars_per_device()).fold(0.0, f64::max);
        let other = self.supplies.iter().find(|supply| {
            let is_near = region.is_none_or(|other| other.region == supply.region);
            let is_cheap = supply.dollars_per_device() <= dearest * (1.0 + 1e-9);
            is_near && (is_cheap || self.is_urgent) && self.is_ready(supply, now_s)
        });
        other.map(|supply| (supply, true))
    }

    /// Whether a pool may be asked: it is not left alone, and not used up.
    fn is_ready(&self, supply: &Supply, now_s: f64) -> bool {
        let pauses = self.pauses.get(&supply.pool).is_some_and(|pause| now_s < pause.until_s);
        // A limit counts machines of a kind, however they are rented.
        let of_kind = |held: &&Held| !held.is_over() && held.pool.machine == supply.pool.machine;
        let held = self.held.values().filter(of_kind).count();
        !pauses && supply.limit.is_none_or(|limit| held < limit as usize)
    }

    /// Takes back requests that have waited for too long, where another pool could stand in.
    pub(super) fn lose_patience(&mut self, now_s: f64) {
        let mut late: Vec<(u64, Pool, String)> = Vec::new();
        for (number, held) in &self.held {
            let Stage::Waits { since_s, reason } = &held.stage else { continue };
            let Some(supply) = self.supply(&held.pool) else { continue };
            if held.workers.is_empty() || now_s - since_s < supply.patience_s {
                continue;
            }
            let mut without = self.clone();
            without.pause(&held.pool, now_s, "");
            if without.choose(now_s).is_some() {
                let reason = if reason.is_empty() { "it does not come" } else { reason };
                late.push((*number, held.pool.clone(), reason.to_owned()));
            }
        }
        for (number, pool, reason) in late {
            self.wait_again(number);
            self.pause(&pool, now_s, &format!("machine {number} waited for too long ({reason})"));
        }
    }

    /// The workers of a machine that did not come wait for another, before all others.
    pub(super) fn wait_again(&mut self, number: u64) {
        let Some(held) = self.held.get_mut(&number) else { return };
        let workers = std::mem::take(&mut held.workers);
        self.waiting.splice(0..0, workers);
    }
}

impl Held {
    /// Whether it counts among the machines that are wanted: it is there or will be, for a worker, and stays.
    fn counts(&self) -> bool {
        !self.is_over() && !self.workers.is_empty() && !self.is_leaving()
    }
}
