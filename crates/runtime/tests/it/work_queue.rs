//! The work queue against an independent account of random histories: workers come, work, idle, leave and die at any
//! moment, late words of the dead included.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bellwether_runtime::membership::WorkerId;
use bellwether_runtime::membership::work_queue::{NeverGranted, Rule, WorkQueue};
use proptest::prelude::*;

/// What happens; numbers of workers are taken modulo how many there are.
#[derive(Debug, Clone)]
enum Happening {
    Join,
    Want(usize, u32),
    /// A worker finishes the unit in its hands and begins the next one.
    Work(usize),
    /// A worker tells the work queue what it has finished since it last did.
    Report(usize),
    Lost(usize),
    Leave(usize),
    /// A dead worker reports what it held.
    Late(usize),
    Halt(u64),
}

#[derive(Debug, Clone, Default)]
struct Worker {
    /// In the order of their grants: the first is in its hands.
    queue: Vec<u64>,
    unreported: Vec<u64>,
    ahead: u32,
    leaving: bool,
    /// Without what it did not report.
    clock: u64,
}

impl Worker {
    fn held(&self) -> usize {
        self.queue.len() + self.unreported.len()
    }

    fn wants_more(&self) -> bool {
        !self.leaving && self.held() < self.ahead as usize
    }

    fn counts(&self) -> bool {
        self.held() > 0 || self.wants_more()
    }
}

/// A work queue, and the account that the test keeps beside it.
struct Bench {
    work_queue: WorkQueue,
    units: Range<u64>,
    per_step: u64,
    rule: Rule,
    workers: BTreeMap<WorkerId, Worker>,
    dead: Vec<(WorkerId, Vec<u64>)>,
    done: BTreeSet<u64>,
    joined: WorkerId,
    log: Vec<(WorkerId, u64)>,
}

impl Bench {
    fn new(units: Range<u64>, per_step: u64, rule: Rule) -> Bench {
        Bench {
            work_queue: WorkQueue::new(units.clone(), per_step, rule),
            units,
            per_step,
            rule,
            workers: BTreeMap::new(),
            dead: Vec::new(),
            done: BTreeSet::new(),
            joined: 0,
            log: Vec::new(),
        }
    }

    fn pick(&self, place: usize) -> Option<WorkerId> {
        self.workers.keys().nth(place % self.workers.len().max(1)).copied()
    }

    fn worker(&mut self, id: WorkerId) -> &mut Worker {
        self.workers.get_mut(&id).expect("it was picked")
    }

    fn happen(&mut self, happening: &Happening) {
        match *happening {
            Happening::Join => drop(self.join()),
            Happening::Want(place, ahead) => self.pick(place).map_or((), |id| self.want(id, ahead)),
            Happening::Work(place) => self.pick(place).map_or((), |id| self.work(id)),
            Happening::Report(place) => self.pick(place).map_or((), |id| self.report(id)),
            Happening::Lost(place) => self.pick(place).map_or((), |id| self.lost(id)),
            Happening::Leave(place) => self.pick(place).map_or((), |id| self.leave(id)),
            Happening::Late(place) => {
                if let Some((id, units)) = self.dead.get(place % self.dead.len().max(1)) {
                    assert_eq!(self.work_queue.done(*id, units), Ok(Vec::new()));
                }
            }
            Happening::Halt(after) => self.halt(after),
        }
        self.grant();
        self.compare();
    }

    fn join(&mut self) -> WorkerId {
        self.joined += 1;
        self.work_queue.join(self.joined);
        self.workers.insert(self.joined, Worker::default());
        self.joined
    }

    fn want(&mut self, id: WorkerId, ahead: u32) {
        self.work_queue.want(id, ahead);
        let counting = self.workers.values().filter(|w| w.counts()).map(|w| w.clock).min();
        let furthest = self.workers.values().map(|w| w.clock).max();
        let worker = self.worker(id);
        let counted = worker.counts();
        worker.ahead = ahead;
        if !counted && worker.counts() {
            worker.clock = worker.clock.max(counting.or(furthest).unwrap_or(0));
        }
    }

    fn work(&mut self, id: WorkerId) {
        let worker = self.worker(id);
        if !worker.queue.is_empty() {
            worker.unreported.push(worker.queue.remove(0));
            self.begin(id);
        }
    }

    /// The moment in which a worker begins the first unit of its queue: here the bound is counted.
    fn begin(&self, id: WorkerId) {
        let so_far = |w: &Worker| w.clock + w.unreported.len() as u64;
        let slowest = self.workers.values().filter(|w| w.counts()).map(so_far).min().unwrap_or(0);
        if let (Rule::Bounded(bound), Some(unit)) = (self.rule, self.workers[&id].queue.first()) {
            let ahead = so_far(&self.workers[&id]) - slowest;
            assert!(ahead <= u64::from(bound), "worker {id} begins {unit}, {ahead} ahead");
        }
    }

    fn report(&mut self, id: WorkerId) {
        let worker = self.worker(id);
        let finished = std::mem::take(&mut worker.unreported);
        worker.clock += finished.len() as u64;
        if worker.leaving && worker.held() == 0 {
            self.workers.remove(&id);
        }
        assert_eq!(self.work_queue.done(id, &finished), Ok(finished.clone()));
        // Telling it twice changes nothing.
        assert_eq!(self.work_queue.done(id, &finished), Ok(Vec::new()));
        for unit in finished {
            assert!(self.done.insert(unit), "{unit} counted twice");
        }
    }

    fn lost(&mut self, id: WorkerId) {
        let worker = self.workers.remove(&id).expect("it was picked");
        let mut held = [worker.queue, worker.unreported].concat();
        held.sort_unstable();
        assert_eq!(self.work_queue.lost(id), held);
        self.dead.push((id, held));
    }

    fn leave(&mut self, id: WorkerId) {
        self.work_queue.leave(id);
        let worker = self.worker(id);
        worker.leaving = true;
        if worker.held() == 0 {
            self.workers.remove(&id);
        }
    }

    fn halt(&mut self, after: u64) {
        let granted = self.log.iter().map(|(_, unit)| unit + 1).max().unwrap_or(0);
        let wanted = after.max(granted).max(self.units.start).next_multiple_of(self.per_step);
        self.units.end = wanted.min(self.units.end);
        assert_eq!(self.work_queue.halt(after), self.units.end);
    }

    fn pool(&self) -> BTreeSet<u64> {
        let held: BTreeSet<u64> =
            self.workers.values().flat_map(|w| w.queue.iter().chain(&w.unreported).copied()).collect();
        self.units.clone().filter(|unit| !held.contains(unit) && !self.done.contains(unit)).collect()
    }

    fn all_before_are_done(&self, unit: u64) -> bool {
        (self.units.start..unit - unit % self.per_step).all(|earlier| self.done.contains(&earlier))
    }

    fn grant(&mut self) {
        let pool = self.pool();
        let mut granted = BTreeSet::new();
        for (id, units) in self.work_queue.grants() {
            for unit in units {
                assert!(pool.contains(&unit) && granted.insert(unit), "{unit} was not to be had");
                assert!(self.rule != Rule::Together || self.all_before_are_done(unit));
                let worker = self.workers.get_mut(&id).expect("only those who are there get units");
                assert!(worker.wants_more());
                worker.queue.push(unit);
                self.log.push((id, unit));
                if worker.queue.len() == 1 {
                    self.begin(id);
                }
            }
        }
        assert!(pool.iter().take(granted.len()).eq(granted.iter()), "the smallest units first");
        self.nothing_more_was_possible(pool.iter().nth(granted.len()).copied());
    }

    fn nothing_more_was_possible(&self, next: Option<u64>) {
        let Some(next) = next.filter(|unit| self.rule != Rule::Together || self.all_before_are_done(*unit))
        else {
            return;
        };
        let slowest = self.workers.values().filter(|w| w.counts()).map(|w| w.clock).min();
        for (id, worker) in self.workers.iter().filter(|(_, worker)| worker.wants_more()) {
            let Rule::Bounded(bound) = self.rule else { panic!("{id} could have been granted {next}") };
            let ahead = worker.clock + worker.held() as u64 - slowest.unwrap_or(0);
            assert!(ahead > u64::from(bound), "{id} could have been granted {next}");
        }
    }

    fn compare(&self) {
        let first_open = self.units.clone().find(|unit| !self.done.contains(unit)).unwrap_or(self.units.end);
        assert_eq!(self.work_queue.watermark(), first_open);
        assert_eq!(self.work_queue.completed(), self.done.len() as u64);
        assert_eq!(self.work_queue.steps_complete(), first_open / self.per_step);
        assert_eq!(self.work_queue.is_over(), self.units.clone().all(|unit| self.done.contains(&unit)));
        assert_eq!(self.work_queue.in_flight(), self.workers.values().map(|w| w.held() as u64).sum::<u64>());
        assert!(self.work_queue.workers().eq(self.workers.keys().copied()));
        assert!(self.done.iter().all(|unit| self.units.contains(unit)));
    }

    /// All but one die, and that one works to the end.
    fn finish(&mut self) {
        let survivor = self.workers.iter().find(|(_, w)| !w.leaving).map(|(id, _)| *id);
        let survivor = survivor.unwrap_or_else(|| self.join());
        let others: Vec<WorkerId> = self.workers.keys().copied().filter(|id| *id != survivor).collect();
        others.into_iter().for_each(|id| self.lost(id));
        self.want(survivor, 2);
        self.grant();
        for _ in 0..2 * (self.units.end - self.units.start) {
            self.work(survivor);
            self.report(survivor);
            self.grant();
            self.compare();
        }
        assert!(self.work_queue.is_over(), "one worker that works is enough");
        assert!(self.done.iter().copied().eq(self.units.clone()));
    }

    /// A work queue that starts again from what is done grants exactly the rest, in order.
    fn resume_elsewhere(&self) {
        let rest = self.work_queue.watermark()..self.units.end;
        let mut work_queue =
            WorkQueue::resume(rest.clone(), self.per_step, self.rule, self.work_queue.done_above());
        work_queue.join(9);
        work_queue.want(9, 3);
        let mut granted = Vec::new();
        while let Some((_, units)) = work_queue.grants().pop() {
            assert_eq!(work_queue.done(9, &units), Ok(units.clone()));
            granted.extend(units);
        }
        assert!(work_queue.is_over());
        assert_eq!(work_queue.steps_complete(), self.units.end / self.per_step);
        let missing: Vec<u64> = rest.filter(|unit| !self.done.contains(unit)).collect();
        assert_eq!(granted, missing);
    }
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let who = 0..12usize;
    let one = prop_oneof![
        4 => Just(Happening::Join),
        6 => (who.clone(), 0..5u32).prop_map(|(place, ahead)| Happening::Want(place, ahead)),
        30 => who.clone().prop_map(Happening::Work),
        20 => who.clone().prop_map(Happening::Report),
        2 => who.clone().prop_map(Happening::Lost),
        1 => who.clone().prop_map(Happening::Leave),
        2 => who.prop_map(Happening::Late),
    ];
    prop::collection::vec(one, 0..200)
}

fn rules() -> impl Strategy<Value = Rule> {
    prop_oneof![Just(Rule::Free), Just(Rule::Together), (0..4u32).prop_map(Rule::Bounded)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_history_keeps_the_account(
        rule in rules(), first_step in 0..3u64, steps in 1..12u64, per_step in 1..7u64,
        happenings in happenings(), halt in prop::option::of((0..200usize, 0..80u64)),
    ) {
        let units = first_step * per_step..(first_step + steps) * per_step;
        let run = || {
            let mut bench = Bench::new(units.clone(), per_step, rule);
            // Most histories begin with workers at work.
            [Happening::Join, Happening::Join, Happening::Want(0, 2), Happening::Want(1, 1)]
                .iter()
                .for_each(|happening| bench.happen(happening));
            for (place, happening) in happenings.iter().enumerate() {
                bench.happen(happening);
                match halt {
                    Some((at, after)) if at == place => bench.happen(&Happening::Halt(after)),
                    _ => {}
                }
            }
            bench.resume_elsewhere();
            bench.finish();
            bench.log
        };
        prop_assert_eq!(run(), run());
    }
}

/// A work queue with workers 1, 2, … that want this many units each.
fn queue_of(units: u64, rule: Rule, ahead: &[u32]) -> WorkQueue {
    let mut work_queue = WorkQueue::new(0..units, 4, rule);
    for (worker, ahead) in (1..).zip(ahead) {
        work_queue.join(worker);
        work_queue.want(worker, *ahead);
    }
    work_queue
}

#[test]
fn the_fast_one_waits_for_the_slowest_until_that_one_works_idles_or_dies() {
    let run_ahead = |work_queue: &mut WorkQueue| {
        let mut count = 0;
        while let Some((_, units)) = work_queue.grants().into_iter().find(|(worker, _)| *worker == 1) {
            count += work_queue.done(1, &units).unwrap().len();
        }
        count
    };
    for end in ["works", "idles", "dies", "leaves"] {
        let mut work_queue = queue_of(100, Rule::Bounded(3), &[2, 1]);
        // Its units 0…3 may begin while the other has done none.
        assert_eq!(run_ahead(&mut work_queue), 4);
        let held: Vec<u64> = work_queue.held(2).collect();
        match end {
            "works" => drop(work_queue.done(2, &held)),
            "idles" => {
                work_queue.want(2, 0);
                assert_eq!(run_ahead(&mut work_queue), 0, "what it holds still counts");
                work_queue.done(2, &held).unwrap();
            }
            "leaves" => {
                work_queue.leave(2);
                assert_eq!(run_ahead(&mut work_queue), 0, "what it holds still counts");
                work_queue.done(2, &held).unwrap();
            }
            _ => assert_eq!(work_queue.lost(2), held),
        }
        let more = match end {
            "works" => 1,
            "dies" => 96,
            _ => 95,
        };
        assert_eq!(run_ahead(&mut work_queue), more, "{end}");
    }
}

#[test]
fn a_newcomer_neither_delays_the_others_nor_runs_ahead() {
    let mut work_queue = queue_of(100, Rule::Bounded(0), &[1, 1]);
    for _ in 0..10 {
        for (worker, units) in work_queue.grants() {
            work_queue.done(worker, &units).unwrap();
        }
    }
    work_queue.join(3);
    work_queue.want(3, 5);
    // All are at clock 10: each may begin one unit.
    assert_eq!(work_queue.grants(), [(1, vec![20]), (2, vec![21]), (3, vec![22])]);
}

#[test]
fn steps_do_not_mix_when_all_train_together() {
    let mut work_queue = queue_of(8, Rule::Together, &[3, 3]);
    assert_eq!(work_queue.grants(), [(1, vec![0, 2]), (2, vec![1, 3])]);
    assert_eq!(work_queue.done(1, &[0, 2]), Ok(vec![0, 2]));
    assert!(work_queue.grants().is_empty());
    // The other dies: its part of the step is done by the one who is left, before the next step begins.
    work_queue.lost(2);
    assert_eq!(work_queue.grants(), [(1, vec![1, 3])]);
    assert_eq!(work_queue.done(1, &[3, 1]), Ok(vec![3, 1]));
    assert_eq!((work_queue.steps_complete(), work_queue.completed()), (1, 4));
    assert_eq!(work_queue.grants(), [(1, vec![4, 5, 6])]);
}

#[test]
fn a_halt_ends_at_a_step_after_what_was_begun() {
    let mut work_queue = queue_of(100, Rule::Free, &[5]);
    work_queue.grants();
    assert_eq!(work_queue.halt(2), 8);
    // Later halts only shorten, and never below what was begun.
    assert_eq!((work_queue.halt(40), work_queue.halt(0)), (8, 8));
    assert_eq!(work_queue.done(1, &[0, 1, 2, 3, 4]).unwrap().len(), 5);
    assert_eq!(work_queue.grants(), [(1, vec![5, 6, 7])]);
    work_queue.done(1, &[5, 6, 7]).unwrap();
    assert!(work_queue.is_over() && work_queue.grants().is_empty());
    assert_eq!((work_queue.watermark(), work_queue.steps_complete()), (8, 2));
    // The phase may go on, but an end that was promised is not taken back.
    work_queue.extend(12);
    work_queue.extend(4);
    assert!(!work_queue.is_over());
    assert_eq!(work_queue.grants(), [(1, vec![8, 9, 10, 11])]);
}

#[test]
fn a_unit_that_was_never_granted_is_an_error_and_changes_nothing() {
    let mut work_queue = queue_of(100, Rule::Free, &[2]);
    work_queue.grants();
    assert_eq!(work_queue.done(1, &[0, 7]), Err(NeverGranted { worker: 1, unit: 7 }));
    assert_eq!((work_queue.completed(), work_queue.in_flight()), (0, 2));
    assert_eq!(work_queue.done(5, &[0]), Ok(vec![]), "a stranger's word counts for nothing");
}

#[test]
fn a_work_queue_begun_again_knows_what_is_done() {
    let done = BTreeSet::from([3, 8, 9, 12, 20, 21]);
    let mut work_queue = WorkQueue::resume(8..20, 4, Rule::Free, &done);
    assert_eq!((work_queue.watermark(), work_queue.completed(), work_queue.steps_complete()), (10, 3, 2));
    assert_eq!(work_queue.done_above(), &BTreeSet::from([12]));
    work_queue.join(1);
    // It comes with words of before the restart: what is known to be done counts no second time.
    assert_eq!(work_queue.done(1, &[12, 8, 3]), Ok(vec![]));
    work_queue.want(1, 1);
    assert_eq!(work_queue.grants(), [(1, vec![10])]);
    // Unit 12 is done: the phase cannot end before it.
    assert_eq!(work_queue.halt(0), 16);
}
