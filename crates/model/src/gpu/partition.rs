//! A device, or the part of it that some processes see: free resources, queue, and the blocks that run.

use bellwether_des::{Queue, Ticket};

use super::contention::{Claim, share};
use super::kernel::Demand;
use super::rooms::Rooms;
use super::timeline::{Clock, Event};

/// Multiprocessors with their queue. Under time slicing each process has one with all multiprocessors, and one of
/// them is active; in a device that is cut up each slice is one; otherwise there is one.
#[derive(Debug)]
pub(super) struct Partition {
    /// Its place among all.
    number: usize,
    pub(super) rooms: Rooms,
    /// Launches with blocks that are not placed, by priority and then by arrival.
    pub(super) queue: Vec<(i32, u32)>,
    /// Blocks that run, by rank.
    groups: Vec<Vec<Group>>,
    /// Share of the bandwidth of memory and bus.
    memory: f64,
    /// Whether its blocks advance and new ones may be placed.
    active: bool,
    /// Rounds of its streams that have arrived and not ended.
    pub(super) rounds: u32,
    /// Whether rates must be computed again.
    stale: bool,
}

/// Blocks of one launch on one multiprocessor: they run at the same rate.
#[derive(Debug)]
struct Group {
    launch: u32,
    demand: Demand,
    /// Time that they have run at full speed, plus when the first of them started: the clock itself as long as nothing
    /// slows them, so that equal blocks end at the same instant to the last bit.
    progress_us: f64,
    /// The time at which `progress_us` was right.
    since_us: f64,
    rate: f64,
    /// The blocks, by the progress at which they end.
    blocks: Queue<u32>,
    /// The end of the first of them, while it is foreseen.
    end: Option<Ticket>,
}

impl Group {
    fn contends(&self) -> bool {
        self.demand != Demand::default()
    }

    fn advance(&mut self, now_us: f64) {
        let in_step = self.rate == 1.0 && self.progress_us == self.since_us;
        self.progress_us =
            if in_step { now_us } else { self.progress_us + (now_us - self.since_us) * self.rate };
        self.since_us = now_us;
    }

    /// Foresees the end of the first block.
    fn foresee(&mut self, event: Event, clock: &mut Clock<Event>) {
        let first_us = self.blocks.next_time().filter(|_| self.rate > 0.0);
        let Some(first_us) = first_us else {
            if let Some(ticket) = self.end.take() {
                clock.cancel(ticket);
            }
            return;
        };
        let in_step = self.rate == 1.0 && self.progress_us == self.since_us;
        // A group that ran slower may fall into step by rounding alone, a last bit past the end of its next block.
        let end_us = if in_step {
            first_us.max(clock.now())
        } else {
            clock.now() + (first_us - self.progress_us).max(0.0) / self.rate
        };
        match self.end {
            Some(ticket) => {
                clock.reschedule(ticket, end_us);
            }
            None => self.end = Some(clock.at(end_us, event)),
        }
    }
}

impl Partition {
    pub(super) fn new(number: usize, rooms: Rooms, memory: f64, active: bool) -> Partition {
        let groups = rooms.sequence().iter().map(|_| Vec::new()).collect();
        Partition { number, rooms, queue: Vec::new(), groups, memory, active, rounds: 0, stale: false }
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn set_active(&mut self, active: bool) {
        self.active = active;
        self.stale = true;
    }

    /// Lets a launch wait for its turn: after those of the same or a lower number of priority that are there.
    pub(super) fn enqueue(&mut self, priority: i32, launch: u32) {
        let place = self.queue.partition_point(|waiting| *waiting < (priority, launch));
        self.queue.insert(place, (priority, launch));
    }

    /// Launches with blocks on a multiprocessor.
    pub(super) fn launches_at(&self, rank: usize) -> impl Iterator<Item = u32> {
        self.groups[rank].iter().map(|group| group.launch)
    }

    /// Starts a block that takes `time_us` at full speed. What uses shared resources stands still until [`refresh`]
    /// has shared them out.
    ///
    /// [`refresh`]: Partition::refresh
    pub(super) fn start(
        &mut self,
        (launch, rank, demand): (u32, usize, Demand),
        (block, time_us): (u32, f64),
        clock: &mut Clock<Event>,
    ) {
        let now_us = clock.now();
        let groups = &mut self.groups[rank];
        let place = groups.iter().position(|group| group.launch == launch).unwrap_or_else(|| {
            let rate = if demand == Demand::default() { 1.0 } else { 0.0 };
            let (blocks, end) = (Queue::new(), None);
            groups.push(Group { launch, demand, progress_us: now_us, since_us: now_us, rate, blocks, end });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.advance(now_us);
        let end_us = group.progress_us + time_us;
        let is_first = group.blocks.next_time().is_none_or(|first_us| end_us < first_us);
        group.blocks.schedule(end_us, block);
        self.stale |= group.contends();
        if is_first {
            group.foresee(Event::End { partition: self.number, rank, launch }, clock);
        }
    }

    /// Ends the first block of a launch on a multiprocessor.
    pub(super) fn end(&mut self, rank: usize, launch: u32, clock: &mut Clock<Event>) -> u32 {
        let groups = &mut self.groups[rank];
        let place = groups.iter().position(|group| group.launch == launch).expect("its blocks run there");
        let group = &mut groups[place];
        group.advance(clock.now());
        group.end = None;
        let (end_us, block) = group.blocks.pop().expect("an end is foreseen only of a block");
        // Rounding must not leave the next block a longer way than it has.
        group.progress_us = group.progress_us.max(end_us);
        self.stale |= group.contends();
        if group.blocks.is_empty() {
            groups.remove(place);
        } else {
            group.foresee(Event::End { partition: self.number, rank, launch }, clock);
        }
        block
    }

    /// Lets all blocks run at the rates that hold now.
    pub(super) fn refresh(&mut self, clock: &mut Clock<Event>) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let active = if self.active { 1.0 } else { 0.0 };
        let mut claims = Vec::new();
        for (rank, groups) in self.groups.iter_mut().enumerate() {
            for (place, group) in groups.iter_mut().enumerate() {
                let (launch, blocks, demand) = (group.launch, group.blocks.len() as u32, group.demand);
                if self.active && group.contends() {
                    claims.push(Claim { launch, rank, place, blocks, demand, rate: 0.0 });
                } else {
                    group.set_rate(active, Event::End { partition: self.number, rank, launch }, clock);
                }
            }
        }
        claims.sort_unstable_by_key(|claim| (claim.launch, claim.rank));
        share(&mut claims, self.groups.len(), self.memory);
        for Claim { launch, rank, place, rate, .. } in claims {
            let event = Event::End { partition: self.number, rank, launch };
            self.groups[rank][place].set_rate(rate, event, clock);
        }
    }
}

impl Group {
    fn set_rate(&mut self, rate: f64, event: Event, clock: &mut Clock<Event>) {
        if rate != self.rate {
            self.advance(clock.now());
            self.rate = rate;
            self.foresee(event, clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_now_where_rounding_puts_its_end_before_the_present() {
        // As a workload of random kernels had it: the group ran at part of its speed before.
        let (now_us, end_us) = (256.040_214_015_398_76, 256.040_214_015_398_7);
        assert!(end_us < now_us);
        let mut clock = Clock::new();
        clock.at(now_us, Event::Slice);
        clock.step();
        let mut blocks = Queue::new();
        blocks.schedule(end_us, 0);
        let demand = Demand::default();
        let mut group =
            Group { launch: 0, demand, progress_us: now_us, since_us: now_us, rate: 1.0, blocks, end: None };
        group.foresee(Event::End { partition: 0, rank: 0, launch: 0 }, &mut clock);
        assert_eq!(clock.next_time(), Some(now_us));
    }
}
