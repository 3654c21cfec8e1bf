//! The state machine without a coordinator around it, and the bytes of reports.

use std::collections::BTreeMap;

use bellwether_core::plan::Synchronisation;
use bellwether_runtime::control::{convert, generated as wire};
use bellwether_runtime::membership::coordinator::{Action, Config, Coordinator, Event};
use bellwether_runtime::membership::{FromWorker, ToWorker, WorkerId};
use prost::Message;
use rustix::time::{ClockId, clock_gettime};

use super::workers::{NODES_EACH, heartbeat, report, switched, workload};
use super::{FIRST_STEPS, Row, STEPS, median, rounded};

/// Seconds between two ticks of a coordinator.
const TICK_S: f64 = 0.01;

/// Seconds in which the reports of a step arrive.
const BURST_S: f64 = 0.002;

/// Milliseconds of the processor that this thread has had.
fn processor_ms() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

struct Simulated {
    machine: Coordinator,
    now_s: f64,
    /// Milliseconds that the machine took.
    spent_ms: f64,
    /// Messages that it wanted to be sent.
    sent: Vec<ToWorker>,
    members: Vec<WorkerId>,
    epoch: u64,
    step: u64,
}

pub(super) fn measure(workers: u64, step_s: f64) -> Row {
    let mut run = Simulated::begin(workers);
    let steps: Vec<f64> = (0..FIRST_STEPS + STEPS).map(|_| run.timed(|run| run.train(step_s))).collect();
    let mut row = Row::new();
    let step_ms = median(&steps[FIRST_STEPS..]);
    row.insert("machine, ms per step".into(), rounded(step_ms));
    let [encode_ms, decode_ms, bytes] = run.read_reports(step_s);
    row.insert("reading the reports, ms per step".into(), rounded(decode_ms));
    row.insert("machine and reading, ms per step".into(), rounded(step_ms + decode_ms));
    row.insert("writing the reports, at all workers, ms".into(), rounded(encode_ms));
    row.insert("bytes of a report".into(), rounded(bytes));
    let look = |run: &mut Simulated| {
        // Members that have just spoken are not asked anything.
        run.train(step_s);
        run.timed(Simulated::look_around)
    };
    let looks: Vec<f64> = (0..STEPS).map(|_| look(&mut run)).collect();
    row.insert("a look at all workers, ms".into(), rounded(median(&looks)));
    let mut change = |name: &str, change: &dyn Fn(&mut Simulated)| {
        let spent_ms = run.timed(change);
        let [encode_ms, bytes] = run.write_sent();
        row.insert(format!("{name}, machine, ms"), rounded(spent_ms));
        row.insert(format!("{name}, messages written, ms"), rounded(encode_ms));
        row.insert(format!("{name}, messages, MB"), rounded(bytes / 1e6));
    };
    change("two more", &|run| run.grow(2));
    change("two fewer", &|run| run.shrink(2));
    change("a death", &Simulated::lose);
    row
}

impl Simulated {
    fn begin(workers: u64) -> Simulated {
        let wanted = u32::try_from(workers).expect("a number of workers");
        let config = Config {
            virtual_nodes: wanted * NODES_EACH,
            wanted,
            min_workers: wanted,
            max_workers: wanted + 8,
            schedule: Vec::new(),
            spawns: false,
            speeds: BTreeMap::new(),
            heartbeat_timeout_s: 5.0,
            boot_timeout_s: 100.0,
            reattach_grace_s: 4.0,
            max_barren_crashes: 20,
            max_accumulation: 1,
            synchronisation: Synchronisation::default(),
            units_per_step: 1,
            evaluate_every: 0,
            checkpoint_every: 0,
            slices: false,
            sharded: false,
            verdict_every: 0,
            verdict_needs_state: true,
            checkpoint_period_s: 0.0,
            last_checkpoint_wait_s: 300.0,
            expected_step_s: None,
            replaces_alone: false,
            resumed: None,
            checkpoint: None,
            workload: None,
        };
        let mut machine = Coordinator::new(config, 0.0);
        machine.set_total_steps(1 << 40);
        let mut run = Simulated {
            machine,
            now_s: 0.0,
            spent_ms: 0.0,
            sent: Vec::new(),
            members: Vec::new(),
            epoch: 0,
            step: 0,
        };
        run.arrive(1..workers + 1);
        run.recovered();
        run
    }

    /// Milliseconds that the machine takes for something.
    fn timed(&mut self, what: impl FnOnce(&mut Simulated)) -> f64 {
        let before_ms = self.spent_ms;
        what(self);
        self.spent_ms - before_ms
    }

    /// Lets all of it happen, in the order of the times; they are seconds from now.
    fn happen(&mut self, mut events: Vec<(f64, Event)>) {
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        let last_s = events.last().map_or(0.0, |(after_s, _)| *after_s);
        let mut actions: Vec<Action> = Vec::new();
        let began_ms = processor_ms();
        for (after_s, event) in events {
            actions.append(&mut self.machine.handle(event, self.now_s + after_s));
        }
        self.spent_ms += processor_ms() - began_ms;
        self.now_s += last_s;
        for action in actions {
            match action {
                Action::Send(_, message) => self.sent.push(message),
                Action::End(end) => panic!("the run ended: {end:?}"),
                _ => {}
            }
        }
    }

    /// All of these say something within a short time.
    fn say(&mut self, message: impl Fn(WorkerId) -> FromWorker) {
        let gap_s = BURST_S / self.members.len() as f64;
        let said = |(place, worker): (usize, &WorkerId)| {
            (gap_s * place as f64, Event::Said(*worker, message(*worker)))
        };
        let events = self.members.iter().enumerate().map(said).collect();
        self.happen(events);
    }

    fn attach(&mut self, worker: WorkerId) {
        let event = Event::Attached {
            worker,
            address: format!("10.0.{}.{}:41234", worker / 256, worker % 256),
            process: 1,
            instance: worker,
            waited_s: 0.0,
            held: None,
            workload: None,
        };
        self.happen(vec![(0.0001, event)]);
    }

    /// These are there, and then all of them are warm.
    fn arrive(&mut self, workers: std::ops::Range<WorkerId>) {
        workers.clone().for_each(|worker| self.attach(worker));
        for worker in workers {
            self.happen(vec![(0.0001, Event::Said(worker, FromWorker::Warmed(workload())))]);
        }
    }

    fn look(&mut self) {
        let membership = self.machine.membership();
        self.epoch = membership.epoch;
        self.members = membership.active.iter().map(|member| member.worker).collect();
    }

    /// All form the membership that a recovery has told them of.
    fn recovered(&mut self) {
        self.look();
        let (epoch, step) = (self.epoch, self.step);
        let trained = (epoch - 1, 1);
        self.say(|_| FromWorker::Ready { epoch, step, last: step.min(1), trained });
        assert_eq!(self.machine.lifecycle(), "training");
    }

    /// A step of all, in which time passes as it does for a coordinator.
    fn train(&mut self, step_s: f64) {
        let mut events: Vec<(f64, Event)> = Vec::new();
        let ticks = (step_s / TICK_S).round() as u32;
        events.extend((0..ticks).map(|tick| (TICK_S * f64::from(tick), Event::Tick)));
        let count = self.members.len() as f64;
        let at = (self.epoch, self.step + 1);
        for (place, worker) in self.members.iter().enumerate() {
            let place = place as f64 / count;
            // Each second one, so that a part of them is due in every step.
            let since_s = (self.now_s - place).rem_euclid(1.0);
            if since_s + step_s >= 1.0 {
                events.push((1.0 - since_s, Event::Said(*worker, heartbeat(at.0, self.step))));
            }
            let told = FromWorker::Report(report(*worker, &self.members, at, step_s));
            events.push((step_s + BURST_S * place, Event::Said(*worker, told)));
        }
        self.step += 1;
        self.happen(events);
        assert_eq!(self.machine.progress().committed(), self.step);
    }

    /// Time passes, so that all workers are looked at.
    fn look_around(&mut self) {
        self.happen(vec![(0.09, Event::Tick)]);
    }

    /// Newcomers join.
    fn grow(&mut self, by: u64) {
        let count = self.members.len() as u64 + by;
        self.happen(vec![(0.001, Event::Scale(u32::try_from(count).expect("few workers")))]);
        let first = self.members.iter().max().expect("it has members") + 1;
        self.arrive(first..first + by);
        let (shadowed, step) = (self.planned(), self.step);
        self.say(|_| switched(shadowed, step));
        for worker in first..first + by {
            let message = FromWorker::CaughtUp { epoch: shadowed, step };
            self.happen(vec![(0.001, Event::Said(worker, message))]);
        }
        let promoted = self.planned();
        self.say(|_| switched(promoted, step));
        self.look();
        assert_eq!((self.epoch, self.members.len() as u64), (promoted, count));
        self.train(0.1);
    }

    /// Members leave.
    fn shrink(&mut self, by: usize) {
        let count = self.members.len() - by;
        self.happen(vec![(0.001, Event::Scale(u32::try_from(count).expect("few workers")))]);
        let (epoch, step, mut left) = (self.planned(), self.step, self.members.clone());
        self.say(|_| switched(epoch, step));
        self.look();
        left.retain(|worker| !self.members.contains(worker));
        for worker in left {
            self.happen(vec![(0.001, Event::Said(worker, FromWorker::Left { epoch, step }))]);
        }
        assert_eq!((self.epoch, self.members.len()), (epoch, count));
        self.train(0.1);
    }

    /// A member dies.
    fn lose(&mut self) {
        let dead = self.members[self.members.len() / 2];
        self.happen(vec![(0.001, Event::Gone(dead, "killed".into()))]);
        self.recovered();
        assert!(!self.members.contains(&dead));
        self.train(0.1);
    }

    /// The newest membership that was told.
    fn planned(&self) -> u64 {
        let epoch = |message: &ToWorker| match message {
            ToWorker::Prepare(membership) => Some(membership.epoch),
            _ => None,
        };
        self.sent.iter().rev().find_map(epoch).expect("a plan")
    }

    /// Milliseconds to write the reports of a step, at all workers together, and to read them; and their bytes.
    fn read_reports(&mut self, step_s: f64) -> [f64; 3] {
        let at = (self.epoch, self.step + 1);
        let (mut written, mut read, mut bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..STEPS {
            let report = |worker: &WorkerId| FromWorker::Report(report(*worker, &self.members, at, step_s));
            let reports: Vec<FromWorker> = self.members.iter().map(report).collect();
            let began_ms = processor_ms();
            let encoded: Vec<Vec<u8>> =
                reports.iter().map(|report| convert::write_from_worker(report).encode_to_vec()).collect();
            written.push(processor_ms() - began_ms);
            bytes = encoded[0].len();
            let began_ms = processor_ms();
            let decode = |bytes: &Vec<u8>| {
                let message = wire::FromWorker::decode(bytes.as_slice()).expect("it was written so");
                convert::read_from_worker(message).expect("it makes sense")
            };
            let decoded: Vec<FromWorker> = encoded.iter().map(decode).collect();
            read.push(processor_ms() - began_ms);
            assert_eq!(decoded, reports);
        }
        [median(&written), median(&read), bytes as f64]
    }

    /// Milliseconds to write what was to be sent, and its bytes.
    fn write_sent(&mut self) -> [f64; 2] {
        let sent = std::mem::take(&mut self.sent);
        let began_ms = processor_ms();
        let bytes: usize =
            sent.iter().map(|message| convert::write_to_worker(message).encode_to_vec().len()).sum();
        [processor_ms() - began_ms, bytes as f64]
    }
}
