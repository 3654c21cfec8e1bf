//! Time slicing: the device goes to one process after the other.

use bellwether_des::Ticket;

use super::Simulation;
use crate::gpu::timeline::Event;

/// Whose turn it is. Each process has a partition of its own with all multiprocessors.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The partition whose turn it is, or comes after the switch.
    current: Option<usize>,
    /// Whether the device is changing over.
    switching: bool,
    /// The end of the present turn, while it is foreseen.
    end: Option<Ticket>,
}

impl Simulation<'_> {
    /// Schedules the next process with work if the device is idle or its process has no work.
    ///
    /// A process has work while a round of one of its streams has arrived and not ended: in the gaps between
    /// launches that depend on each other it keeps its turn.
    pub(super) fn take_turns(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        if turns.switching {
            return;
        }
        match turns.current {
            None => {
                let Some(first) = self.partitions.iter().position(|partition| partition.rounds > 0) else {
                    return;
                };
                turns.current = Some(first);
                self.begin_turn(first);
            }
            Some(current) if self.partitions[current].rounds == 0 => {
                if let Some(ticket) = turns.end.take() {
                    self.clock.cancel(ticket);
                }
                self.switch_from(current);
            }
            Some(_) => {
                if turns.end.is_none() {
                    turns.end = Some(self.clock.after(self.workload.time_slice.slice_us, Event::Slice));
                }
            }
        }
    }

    /// Ends a turn; a process that is alone goes on.
    pub(super) fn end_turn(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        turns.end = None;
        if let Some(current) = turns.current {
            self.switch_from(current);
        }
    }

    /// Changes over to the next process that has work, if another has.
    fn switch_from(&mut self, current: usize) {
        let count = self.partitions.len();
        let after = (1..count).map(|distance| (current + distance) % count);
        let Some(next) = after.into_iter().find(|next| self.partitions[*next].rounds > 0) else { return };
        self.partitions[current].set_active(false);
        if let Some(turns) = &mut self.turns {
            turns.current = Some(next);
            turns.switching = true;
        }
        self.clock.after(self.workload.time_slice.switch_us, Event::Switched);
    }

    /// Begins the turn that the device changed over for.
    pub(super) fn switched(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        turns.switching = false;
        if let Some(current) = turns.current {
            self.begin_turn(current);
        }
    }

    fn begin_turn(&mut self, partition: usize) {
        self.partitions[partition].set_active(true);
        if let Some(turns) = &mut self.turns {
            turns.end = Some(self.clock.after(self.workload.time_slice.slice_us, Event::Slice));
        }
    }
}
