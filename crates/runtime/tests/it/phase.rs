//! A whole asynchronous phase in a simulation: the work queue, toy workers that pull, compute and push, and toy servers
//! that apply each piece of each unit once; workers, servers and the coordinator die at random moments.
//!
//! Messages of one connection keep their order, those of different connections do not. What a worker sent before it
//! died may still arrive, long after its units were granted to others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bellwether_core::record::Staleness;
use bellwether_core::shards::{Piece, spread};
use bellwether_runtime::membership::WorkerId;
use bellwether_runtime::membership::work_queue::{Rule, WorkQueue};
use bellwether_runtime::order::mix;
use proptest::prelude::*;

/// A unit's part in one piece.
type Update = (u64, usize);

#[derive(Debug, Clone, Copy)]
enum Request {
    Pull(usize),
    /// The update, and the version of the piece that it was computed from.
    Push(Update, u64),
}

#[derive(Debug, Clone, Copy)]
enum Reply {
    Version(usize, u64),
    Applied(Update),
}

/// Both directions between a worker and a server.
#[derive(Debug, Default)]
struct Connection {
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
}

/// The unit in a worker's hands.
#[derive(Debug, Default)]
struct Work {
    unit: u64,
    pulled: BTreeMap<usize, u64>,
    computed: bool,
    acknowledged: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct Worker {
    queue: VecDeque<u64>,
    work: Option<Work>,
    unreported: Vec<u64>,
    /// What the work queue knows of its clock.
    clock: u64,
    dead: bool,
}

impl Worker {
    fn clock_now(&self) -> u64 {
        self.clock + self.unreported.len() as u64
    }
}

/// What a server holds: for each of its pieces, the units that were applied, in order; their number is the version.
type Held = BTreeMap<usize, Vec<u64>>;

#[derive(Debug, Clone, Default)]
struct Server {
    held: Held,
    replica: Option<Held>,
    snapshot: Held,
}

fn apply(held: &mut Held, (unit, piece): Update) -> bool {
    let applied = held.entry(piece).or_default();
    let new = !applied.contains(&unit);
    applied.extend(new.then_some(unit));
    new
}

fn version(held: &Held, piece: usize) -> u64 {
    held.get(&piece).map_or(0, |applied| applied.len() as u64)
}

#[derive(Debug, Clone, Copy)]
struct Setting {
    units: u64,
    per_step: u64,
    rule: Rule,
    workers: usize,
    servers: u32,
    replica: bool,
    ahead: u32,
    disasters: u32,
    seed: u64,
}

struct Phase {
    setting: Setting,
    draws: u64,
    work_queue: WorkQueue,
    /// The work queue as the journal has it: a little older.
    journal: WorkQueue,
    pieces: Vec<Piece>,
    servers: Vec<Server>,
    workers: BTreeMap<WorkerId, Worker>,
    connections: BTreeMap<(WorkerId, usize), Connection>,
    joined: WorkerId,
    staleness: Staleness,
    /// All that was ever applied.
    ever: BTreeSet<Update>,
    /// What the death of servers without a replica took back.
    lost: BTreeSet<Update>,
}

impl Phase {
    fn new(setting: Setting) -> Phase {
        let pieces = spread(&[160, 48, 16, 16], setting.servers);
        let server = Server { replica: setting.replica.then(Held::new), ..Server::default() };
        let work_queue = WorkQueue::new(0..setting.units, setting.per_step, setting.rule);
        Phase {
            setting,
            draws: 0,
            journal: work_queue.clone(),
            work_queue,
            pieces,
            servers: vec![server; setting.servers as usize],
            workers: BTreeMap::new(),
            connections: BTreeMap::new(),
            joined: 0,
            staleness: Staleness::default(),
            ever: BTreeSet::new(),
            lost: BTreeSet::new(),
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.draws += 1;
        (mix(self.setting.seed, self.draws) % below.max(1) as u64) as usize
    }

    fn run(&mut self) {
        (0..self.setting.workers).for_each(|_| self.join());
        let mut disasters = self.setting.disasters;
        for _ in 0..1_000_000 {
            if self.work_queue.is_over() {
                return;
            }
            if disasters > 0 && self.draw(60) == 0 {
                disasters -= 1;
                self.disaster();
            }
            if self.workers.values().all(|worker| worker.dead) {
                self.join();
            }
            match self.draw(10) {
                0..3 => self.something_at_a_worker(),
                3..6 => self.something_at_a_server(),
                6..9 => self.something_replied(),
                _ => self.something_seldom(),
            }
        }
        panic!("the stretch does not end");
    }

    fn pick(&mut self) -> Option<WorkerId> {
        let place = self.draw(self.workers.len());
        self.workers.keys().nth(place).copied()
    }

    fn join(&mut self) {
        self.joined += 1;
        let slowest = self.workers.values().map(|worker| worker.clock).min().unwrap_or(0);
        self.workers.insert(self.joined, Worker { clock: slowest, ..Worker::default() });
        self.work_queue.join(self.joined);
        self.work_queue.want(self.joined, self.setting.ahead);
        self.grant();
    }

    fn grant(&mut self) {
        for (id, units) in self.work_queue.grants() {
            // Grants to one whose death was not noticed yet arrive nowhere.
            self.workers.get_mut(&id).expect("the clerk knows no others").queue.extend(units);
        }
    }

    fn disaster(&mut self) {
        match self.draw(5) {
            0 | 1 => {
                // Noticed later; what it sent stays on its way.
                let Some(id) = self.pick() else { return };
                self.workers.get_mut(&id).expect("it was picked").dead = true;
            }
            2 | 3 => {
                let server = self.draw(self.servers.len());
                self.server_dies(server);
            }
            _ => self.coordinator_dies(),
        }
    }

    fn something_at_a_worker(&mut self) {
        let Some(id) = self.pick() else { return };
        let worker = self.workers.get_mut(&id).expect("it was picked");
        let all = self.pieces.len();
        match &mut worker.work {
            _ if worker.dead => {}
            None => {
                let Some(unit) = worker.queue.pop_front() else { return };
                worker.work = Some(Work { unit, ..Work::default() });
                self.count_the_bound(id);
                (0..all).for_each(|piece| self.send(id, piece, Request::Pull(piece)));
            }
            Some(work) if !work.computed && work.pulled.len() == all => {
                work.computed = true;
                self.push(id, 0..all);
            }
            Some(work) if work.acknowledged.len() == all => {
                worker.unreported.push(work.unit);
                worker.work = None;
            }
            Some(_) => {}
        }
    }

    /// A worker begins a unit: here the bound is counted, as the clocks are at this moment.
    fn count_the_bound(&self, id: WorkerId) {
        let slowest = self.workers.values().map(Worker::clock_now).min().unwrap_or(0);
        if let Rule::Bounded(bound) = self.setting.rule {
            let ahead = self.workers[&id].clock_now() - slowest;
            assert!(ahead <= u64::from(bound), "worker {id} begins {ahead} ahead of the slowest");
        }
    }

    fn push(&mut self, id: WorkerId, pieces: impl IntoIterator<Item = usize>) {
        for piece in pieces {
            let Some(work) = &self.workers[&id].work else { return };
            let request = Request::Push((work.unit, piece), work.pulled[&piece]);
            self.send(id, piece, request);
        }
    }

    fn send(&mut self, id: WorkerId, piece: usize, request: Request) {
        let server = self.pieces[piece].server as usize;
        self.connections.entry((id, server)).or_default().requests.push_back(request);
    }

    /// A server takes the next request of one connection.
    fn something_at_a_server(&mut self) {
        let waiting: Vec<_> =
            self.connections.iter().filter(|(_, c)| !c.requests.is_empty()).map(|(key, _)| *key).collect();
        if waiting.is_empty() {
            return;
        }
        let key = waiting[self.draw(waiting.len())];
        let connection = self.connections.get_mut(&key).expect("it was just seen");
        let Some(request) = connection.requests.pop_front() else { return };
        match request {
            Request::Pull(piece) => {
                let version = version(&self.servers[key.1].held, piece);
                connection.replies.push_back(Reply::Version(piece, version));
            }
            Request::Push(update, version) => {
                connection.replies.push_back(Reply::Applied(update));
                self.apply(key.1, update, version);
                // Before it acknowledges, a server hands on what it applied.
                self.servers[key.1].replica.as_mut().map(|replica| apply(replica, update));
            }
        }
    }

    fn apply(&mut self, server: usize, update: Update, pulled: u64) {
        let held = &mut self.servers[server].held;
        let before = version(held, update.1);
        if apply(held, update) {
            // A server that went back to a snapshot has fewer updates than were pulled.
            self.staleness.add(before.saturating_sub(pulled));
            self.ever.insert(update);
            self.lost.remove(&update);
        }
    }

    /// A worker hears one reply.
    fn something_replied(&mut self) {
        let waiting: Vec<_> =
            self.connections.iter().filter(|(_, c)| !c.replies.is_empty()).map(|(key, _)| *key).collect();
        if waiting.is_empty() {
            return;
        }
        let key = waiting[self.draw(waiting.len())];
        let reply = self.connections.get_mut(&key).and_then(|connection| connection.replies.pop_front());
        let work = self.workers.get_mut(&key.0).and_then(|worker| worker.work.as_mut());
        let (Some(reply), Some(work)) = (reply, work) else { return };
        match reply {
            Reply::Version(piece, version) if !work.computed => {
                work.pulled.insert(piece, version);
            }
            Reply::Applied((unit, piece)) if unit == work.unit && work.computed => {
                work.acknowledged.insert(piece);
            }
            // Of a unit that was taken from it.
            _ => {}
        }
    }

    fn something_seldom(&mut self) {
        match self.draw(4) {
            0 => {
                let server = self.draw(self.servers.len());
                self.servers[server].snapshot = self.servers[server].held.clone();
            }
            1 => self.journal = self.work_queue.clone(),
            _ => self.report(),
        }
    }

    /// A worker tells the work queue what it finished, or is found dead.
    fn report(&mut self) {
        let Some(id) = self.pick() else { return };
        let worker = self.workers.get_mut(&id).expect("it was picked");
        if worker.dead {
            self.workers.remove(&id);
            self.work_queue.lost(id);
            assert_eq!(self.work_queue.done(id, &[]), Ok(Vec::new()));
        } else {
            let finished = std::mem::take(&mut worker.unreported);
            worker.clock += finished.len() as u64;
            assert_eq!(self.work_queue.done(id, &finished), Ok(finished.clone()));
            for unit in finished {
                let whole = (0..self.pieces.len()).all(|piece| self.ever.contains(&(unit, piece)));
                assert!(whole, "unit {unit} counts before all its pieces were applied");
            }
        }
        self.grant();
    }

    fn server_dies(&mut self, server: usize) {
        self.dies_in_the_middle(server);
        let Server { held, replica, snapshot } = &mut self.servers[server];
        match replica {
            Some(replica) => held.clone_from(replica),
            None => {
                let gone = std::mem::replace(held, snapshot.clone());
                for (piece, units) in gone {
                    let kept = snapshot.get(&piece).map_or(0, Vec::len);
                    self.lost.extend(units[kept..].iter().map(|unit| (*unit, piece)));
                }
            }
        }
        // All its connections are gone. A worker with a unit in hand says again what this server may not have.
        self.connections.retain(|key, _| key.1 != server);
        let pieces: Vec<usize> =
            (0..self.pieces.len()).filter(|piece| self.pieces[*piece].server as usize == server).collect();
        let alive: Vec<WorkerId> = self.workers.iter().filter(|(_, w)| !w.dead).map(|(id, _)| *id).collect();
        for id in alive {
            match &self.workers[&id].work {
                Some(work) if work.computed => self.push(id, pieces.clone()),
                Some(work) => {
                    let missing: Vec<usize> =
                        pieces.iter().filter(|piece| !work.pulled.contains_key(piece)).copied().collect();
                    missing.into_iter().for_each(|piece| self.send(id, piece, Request::Pull(piece)));
                }
                None => {}
            }
        }
        self.nothing_is_missing();
    }

    /// The last request may have been applied already, at the server alone or at its replica too, without a word.
    fn dies_in_the_middle(&mut self, server: usize) {
        let how_far = self.draw(3);
        let mut last = self.connections.iter().filter(|(key, _)| key.1 == server);
        let last = last.find_map(|(_, connection)| connection.requests.front().copied());
        let Some(Request::Push(update, version)) = last else { return };
        match (how_far, self.servers[server].replica.is_some()) {
            // Only the dead one had it, and no process was told: as if it had not been.
            (1, true) => {}
            (1, false) | (2, _) => {
                self.apply(server, update, version);
                self.servers[server].replica.as_mut().map(|replica| apply(replica, update));
            }
            _ => {}
        }
    }

    /// A new coordinator begins with what the journal has; the workers drop what they hold, but not what they sent.
    fn coordinator_dies(&mut self) {
        let rest = self.journal.watermark()..self.setting.units;
        let Setting { per_step, rule, ahead, .. } = self.setting;
        self.work_queue = WorkQueue::resume(rest, per_step, rule, self.journal.done_above());
        self.workers.retain(|_, worker| !worker.dead);
        for (id, worker) in &mut self.workers {
            *worker = Worker::default();
            self.work_queue.join(*id);
            self.work_queue.want(*id, ahead);
        }
        self.journal = self.work_queue.clone();
        self.grant();
    }

    fn applied(&self) -> BTreeSet<Update> {
        let held = self.servers.iter().flat_map(|server| &server.held);
        held.flat_map(|(piece, units)| units.iter().map(|unit| (*unit, *piece))).collect()
    }

    /// What was ever applied is still there, unless a server without a replica died.
    fn nothing_is_missing(&self) {
        let there: BTreeSet<Update> = self.applied().union(&self.lost).copied().collect();
        assert_eq!(there, self.ever);
        assert!(self.lost.is_empty() || !self.setting.replica);
    }

    fn check_the_end(&self) {
        self.nothing_is_missing();
        let all: BTreeSet<Update> =
            (0..self.setting.units).flat_map(|unit| (0..self.pieces.len()).map(move |p| (unit, p))).collect();
        assert_eq!(self.ever, all, "every piece of every unit was applied");
        let applied: usize = self.servers.iter().flat_map(|server| server.held.values()).map(Vec::len).sum();
        assert_eq!(applied, all.len() - self.lost.len(), "and once");
        let calm = self.setting.disasters == 0;
        match self.setting.rule {
            // From its pull to its push, each other worker goes from K behind it to K ahead of it at most.
            Rule::Bounded(bound) if calm => {
                let most = (self.setting.workers as u64 - 1) * (2 * u64::from(bound) + 1);
                assert!(self.staleness.largest <= most, "{}: {most}", self.staleness);
            }
            Rule::Together => assert!(self.staleness.largest < self.setting.per_step, "{}", self.staleness),
            Rule::Bounded(_) | Rule::Free => {}
        }
        if calm {
            assert_eq!(self.staleness.updates(), all.len() as u64);
        }
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let rule = prop_oneof![Just(Rule::Free), Just(Rule::Together), (0..4u32).prop_map(Rule::Bounded)];
    let size = (1..10u64, 1..7u64, 1..6usize, 1..4u32);
    let disasters = prop_oneof![1 => Just(0u32), 4 => 1..30u32];
    (size, rule, any::<bool>(), 1..4u32, disasters, any::<u64>()).prop_map(
        |((steps, per_step, workers, servers), rule, replica, ahead, disasters, seed)| Setting {
            units: steps * per_step,
            per_step,
            rule,
            workers,
            servers,
            replica,
            ahead,
            disasters,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_piece_of_every_unit_is_applied_once_whatever_dies(setting in settings()) {
        let mut phase = Phase::new(setting);
        phase.run();
        phase.check_the_end();
    }
}
