//! Which block goes where: the head of the queue, the multiprocessor with the most room, one block or two.

use super::Simulation;
use crate::gpu::device::Issue;
use crate::gpu::occupancy::{rooms, scarcest};
use crate::gpu::outcome::{BlockRun, Decision, RoomRow};

/// Choices before those of two multiprocessors at a time, under interleaved pairs.
const CHOICES_ONE_BY_ONE: u32 = 3;

/// The multiprocessors on which a process may hold blocks at a time.
#[derive(Debug)]
pub(super) struct Cap {
    most: usize,
    /// Its blocks, by rank.
    held: Vec<u32>,
    /// Ranks where it has any.
    ranks: usize,
}

impl Cap {
    pub(super) fn new(most: usize, multiprocessors: usize) -> Cap {
        Cap { most, held: vec![0; multiprocessors], ranks: 0 }
    }

    fn join(&mut self, rank: usize) {
        self.ranks += usize::from(self.held[rank] == 0);
        self.held[rank] += 1;
    }

    pub(super) fn leave(&mut self, rank: usize) {
        self.held[rank] -= 1;
        self.ranks -= usize::from(self.held[rank] == 0);
    }

    /// The ranks that it must keep to, if it has as many as it may.
    fn kept(&self) -> Option<impl Iterator<Item = usize>> {
        let held = (0..self.held.len()).filter(|rank| self.held[*rank] > 0);
        (self.ranks >= self.most).then_some(held)
    }
}

/// A multiprocessor for some blocks.
struct Choice {
    rank: usize,
    blocks: u32,
    /// What it was chosen from, if that is to be explained.
    seen: Option<Vec<RoomRow>>,
}

impl Simulation<'_> {
    /// Places blocks of the head of the queue while they fit, then those of the next head.
    pub(super) fn dispatch(&mut self, partition: usize) {
        if !self.partitions[partition].is_active() {
            return;
        }
        let mut place = 0;
        while let Some((_, launch)) = self.partitions[partition].queue.get(place).copied() {
            if self.issue(launch) {
                if self.launches[launch as usize].unplaced == 0 {
                    self.partitions[partition].queue.remove(place);
                }
            } else if self.only_capped(launch) {
                // What its own process is denied does not hold up the others.
                place += 1;
            } else {
                break;
            }
        }
    }

    /// Whether a block of this launch would fit if its process had no cap.
    fn only_capped(&mut self, launch: u32) -> bool {
        let launched = &self.launches[launch as usize];
        let rooms = &mut self.partitions[launched.partition].rooms;
        self.caps[launched.process].is_some() && rooms.most(launched.run.kernel).is_some()
    }

    /// Places the next blocks of a launch: those of one choice, or of two that are numbered in turn. `false` when
    /// there is no room.
    fn issue(&mut self, launch: u32) -> bool {
        let launched = &self.launches[launch as usize];
        let two = self.device.issue == Issue::InterleavedPairs && launched.choices >= CHOICES_ONE_BY_ONE;
        let Some(mut first) = self.choose(launch) else { return false };
        let second = if two { self.choose(launch) } else { None };
        match second {
            None => {
                for _ in 0..first.blocks {
                    self.start(launch, &mut first);
                }
            }
            Some(mut second) => {
                for turn in 0..2 {
                    for choice in [&mut first, &mut second] {
                        if turn < choice.blocks {
                            self.start(launch, choice);
                        }
                    }
                }
            }
        }
        true
    }

    /// Chooses a multiprocessor and takes the room of as many blocks as go there at once.
    fn choose(&mut self, launch: u32) -> Option<Choice> {
        let number = launch as usize;
        if self.launches[number].unplaced == 0 {
            return None;
        }
        let rank = self.best(launch)?;
        // At most four blocks are placed before the next are chosen.
        let next = self.blocks.len() as u64 + 1;
        let asked = self.options.explain.is_some_and(|number| (next..next + 4).contains(&number));
        let seen = asked.then(|| self.rows(launch));
        let launched = &mut self.launches[number];
        let rooms = &mut self.partitions[launched.partition].rooms;
        let many = 2 * rooms.sequence().len() as u64 + 5;
        let pair = self.device.issue != Issue::One && u64::from(launched.before) >= many;
        launched.before = launched.unplaced;
        launched.choices += 1;
        let kernel = launched.run.kernel;
        let blocks = if pair { 2.min(rooms.room(kernel, rank)).min(launched.unplaced) } else { 1 };
        for _ in 0..blocks {
            rooms.take(kernel, rank);
            if let Some(cap) = &mut self.caps[launched.process] {
                cap.join(rank);
            }
        }
        launched.unplaced -= blocks;
        launched.running += blocks;
        Some(Choice { rank, blocks, seen })
    }

    /// The rank with the most room for a launch, of those that its process may use.
    fn best(&mut self, launch: u32) -> Option<usize> {
        let launched = &self.launches[launch as usize];
        let rooms = &mut self.partitions[launched.partition].rooms;
        match self.caps[launched.process].as_ref().and_then(Cap::kept) {
            Some(ranks) => rooms.most_of(launched.run.kernel, ranks),
            None => rooms.most(launched.run.kernel),
        }
    }

    /// Starts the next block of a launch where there is room for it.
    fn start(&mut self, launch: u32, choice: &mut Choice) {
        let now_us = self.clock.now();
        let rank = choice.rank;
        let (multiprocessor, block) = self.record(launch, choice);
        let launched = &mut self.launches[launch as usize];
        let kernel = &self.workload.kernels[launched.run.kernel];
        let mut time_us = kernel.block_time_us(block, self.device);
        if kernel.variation > 0.0 {
            time_us = launched.random.lognormal(time_us, kernel.variation).max(f64::MIN_POSITIVE);
        }
        let partition = &mut self.partitions[launched.partition];
        let index = self.blocks.len() as u32;
        partition.start((launch, rank, kernel.demand), (index, time_us), &mut self.clock);
        self.meet(launch, rank);
        self.blocks.push(BlockRun { launch, block, multiprocessor, start_us: now_us, end_us: f64::NAN });
    }

    /// Notes when a launch was placed, and the decision if it was asked for.
    fn record(&mut self, launch: u32, choice: &mut Choice) -> (u32, u32) {
        let now_us = self.clock.now();
        let launched = &mut self.launches[launch as usize];
        let kernel = &self.workload.kernels[launched.run.kernel];
        // `unplaced` is ahead of the blocks that were started: those are counted here.
        let block = launched.started;
        launched.started += 1;
        if block == 0 {
            launched.run.start_us = now_us;
        }
        if launched.started == kernel.blocks {
            launched.run.placed_us = now_us;
        }
        let multiprocessor = self.partitions[launched.partition].rooms.sequence()[choice.rank];
        let number = self.blocks.len() as u64 + 1;
        if self.options.explain == Some(number)
            && let Some(rooms) = choice.seen.take()
        {
            let need = self.needs[launched.run.kernel];
            let blocks = choice.blocks;
            self.explained = Some(Decision {
                number,
                time_us: now_us,
                launch,
                block,
                need,
                multiprocessor,
                blocks,
                rooms,
            });
        }
        (multiprocessor, block)
    }

    /// Notes which launches a new block finds on its multiprocessor.
    fn meet(&mut self, launch: u32, rank: usize) {
        let partition = self.launches[launch as usize].partition;
        for other in self.partitions[partition].launches_at(rank).filter(|other| *other != launch) {
            let kernels = [launch, other].map(|met| {
                let run = &mut self.launches[met as usize].run;
                run.colocated = true;
                run.kernel
            });
            self.together.insert((kernels[0].min(kernels[1]), kernels[0].max(kernels[1])));
        }
    }

    /// The multiprocessors as the present choice of a launch sees them.
    fn rows(&self, launch: u32) -> Vec<RoomRow> {
        let launched = &self.launches[launch as usize];
        let partition = &self.partitions[launched.partition];
        let need = self.needs[launched.run.kernel];
        let row = |(rank, multiprocessor): (usize, &u32)| {
            let free = *partition.rooms.free(rank);
            let rooms = rooms(&free, &need);
            let (limit, room) = scarcest(rooms);
            RoomRow { multiprocessor: *multiprocessor, free, rooms, room, limit }
        };
        partition.rooms.sequence().iter().enumerate().map(row).collect()
    }
}
