//! Training where the workers share the optimizer's state.
//!
//! A step has two phases. In the first, the sums of the gradients go to those who hold the slots of their virtual
//! shards. Each owner works out its shards' new parameters, and in the second phase they reach everyone. Only then are
//! slots and parameters changed: a worker that has come to the end of a step knows that all members have the sums of
//! what they hold, so that each of them can come there, too, whatever happens to others. The bits are those of an
//! optimizer that each worker holds as a whole.

use std::ops::Range;
use std::sync::{Arc, RwLock};
use std::time::Instant;

use bellwether_core::job::Job;
use bellwether_core::record::Traffic;
use bellwether_core::virtual_shards::{Assignment, VirtualShards};
use bellwether_memory::Vector;

use super::apply::{Decided, apply_here, square_sum};
use super::{Applied, Engine, Fault, fault, unplanned};
use crate::collective::{Collective, CollectivePlan, Held, Outcome};
use crate::membership::WorkerId;
use crate::optimizer::{Update, UpdateRule};
use crate::sharding::{SlotShards, update_shard};
use crate::state::{Reduced, all_finite};
use crate::transfer::{read, write};
use crate::worker::incoming::Incoming;
use crate::workload::WorkloadError;

mod holders;
mod state;

/// What a worker says behind its header with the new parameters: everything is finite.
const FINITE: u8 = 0;

/// The sum of a gradient is not.
const GRADIENT: u8 = 1;

/// A new parameter or slot is not.
const RESULT: u8 = 2;

/// One worker's share of the optimizer's state.
pub(in crate::worker) struct Sharded {
    copies: u32,
    cut: VirtualShards,
    pub(in crate::worker) slots: Arc<RwLock<SlotShards>>,
    /// Who holds what, as the members last agreed.
    assignment: Assignment,
    /// The membership in which members and newcomers know it.
    told: Option<u64>,
    /// New parameters, and behind them the sums of the model's state.
    next: Vector,
    /// The second phase.
    gather: Option<Collective>,
    /// Exchanges control bytes among the members, between the phases.
    between: Option<Collective>,
    /// What the members told a newcomer of the square sum of the last gradient.
    told_squares: f64,
    /// An update whose sums are here, and which is not applied.
    pending: Option<(Range<u64>, Decided)>,
    /// What this worker said last with its sums.
    pub(super) said: Vec<u8>,
}

/// What the second phase of a step took.
#[derive(Debug, Default)]
pub(super) struct Shared {
    traffic: Vec<Traffic>,
    pub(super) seconds: f64,
}

impl Shared {
    /// Adds what it moved to what the first phase did, which has the same peers.
    pub(super) fn add_to(&self, first: &mut [Traffic]) {
        for second in &self.traffic {
            for traffic in first.iter_mut().filter(|traffic| traffic.peer == second.peer) {
                traffic.sent_bytes += second.sent_bytes;
                traffic.received_bytes += second.received_bytes;
                traffic.sent_s += second.sent_s;
                traffic.received_s += second.received_s;
            }
        }
    }
}

/// New parameters that came from their owners.
struct Arrived;

impl UpdateRule for Arrived {
    fn apply(
        &mut self,
        _: Update,
        _: usize,
        parameters: &mut [f32],
        _: &mut [&mut [f32]],
        values: &[f32],
    ) -> Result<(), WorkloadError> {
        parameters.copy_from_slice(values);
        Ok(())
    }
}

impl Sharded {
    /// No shard yet; nothing where each worker holds the whole state. `next` has a value for each parameter and for
    /// the model's state.
    pub(super) fn of(
        job: &Job,
        parameters: usize,
        slots: usize,
        next: impl FnOnce() -> Vector,
    ) -> Option<Self> {
        let copies = job.sharding?.copies;
        let cut = VirtualShards::of(parameters);
        Some(Sharded {
            copies,
            cut,
            slots: Arc::new(RwLock::new(SlotShards::none(cut, slots))),
            assignment: Assignment::default(),
            told: None,
            next: next(),
            gather: None,
            between: None,
            told_squares: 0.0,
            pending: None,
            said: Vec::new(),
        })
    }

    /// Whatever was not applied of an earlier step is done again.
    pub(super) fn begin_step(&mut self) {
        self.pending = None;
    }

    /// The membership changed: who holds what is told again.
    pub(super) fn adopt(&mut self) {
        (self.told, self.gather, self.between) = (None, None, None);
    }

    fn held(&self) -> Vec<u32> {
        read(&self.slots).held()
    }

    /// The parts of the parameters, with the ranks of their holders in `active`.
    fn parts(&self, active: &[WorkerId]) -> Vec<Held> {
        let rank = |worker: &WorkerId| active.iter().position(|id| id == worker);
        let part = |shard| Held {
            values: self.cut.range(shard),
            ranks: self.assignment.holders(shard).iter().filter_map(rank).collect(),
        };
        (0..self.cut.count()).map(part).collect()
    }

    /// Squares of the gradient, summed over each of these shards.
    fn squares(&self, shards: &[u32], gradient: &[f32]) -> Vec<f64> {
        shards.iter().map(|shard| square_sum(&gradient[self.cut.range(*shard)])).collect()
    }
}

fn nonsense(worker: WorkerId, what: &str) -> Fault {
    Fault::Collective(Some(worker), format!("it sent {what} that make no sense"))
}

impl Engine {
    fn sharded(&self) -> &Sharded {
        self.sharded.as_ref().expect("the optimizer's state is shared")
    }

    fn sharded_mut(&mut self) -> &mut Sharded {
        self.sharded.as_mut().expect("the optimizer's state is shared")
    }

    fn active(&self) -> Vec<WorkerId> {
        self.membership.active.iter().map(|member| member.worker).collect()
    }

    /// The two phases of a step in the membership in force.
    fn plan_phases(&mut self) -> Result<(), Fault> {
        let parts = self.sharded().parts(&self.active());
        let (nodes, lengths) = (self.order.virtual_nodes, self.lengths());
        let members = Self::members_of(&self.membership);
        let shadows = self.membership.shadows.iter().map(|shadow| shadow.worker).collect();
        (self.bulk, self.sharded_mut().between) = (None, None);
        if self.membership.rank(self.me).is_some() {
            let plan = CollectivePlan::scatter(nodes, members.clone(), self.me, lengths, &parts);
            let plan = plan.map_err(unplanned)?.with_bfloat16(self.accumulator.rounded());
            self.bulk = Some(Collective::new(plan));
            let plan = CollectivePlan::new(nodes, members.clone(), Vec::new(), self.me, 0);
            self.sharded_mut().between = Some(Collective::new(plan.map_err(unplanned)?));
        }
        let plan = CollectivePlan::gather(nodes, members, shadows, self.me, lengths, &parts);
        self.sharded_mut().gather = Some(Collective::new(plan.map_err(unplanned)?));
        Ok(())
    }

    /// What a newcomer receives of a step: what the members said, and the new parameters.
    pub(super) fn receive_new(&mut self, step: u64) -> Result<Outcome, Fault> {
        let (stamp, wake) = (self.stamp(step), Arc::clone(&self.wake));
        let sharded = self.sharded.as_mut().expect("the optimizer's state is shared");
        let gather = sharded.gather.as_mut().expect("the members told who holds what");
        let mut outcome = gather.receive(&mut self.mesh, stamp, &mut sharded.next, &wake).map_err(fault)?;
        let (_, squares) = self.take_flags(&mut outcome)?;
        self.sharded_mut().told_squares = squares;
        Ok(outcome)
    }

    /// Takes what members say of the new parameters off their headers: whether all numbers of the new state are finite,
    /// and the square sum of the whole gradient, where it is needed.
    fn take_flags(&self, outcome: &mut Outcome) -> Result<(bool, f64), Fault> {
        let (mut worst, mut squares) = (FINITE, 0.0);
        for (member, header) in self.membership.active.iter().zip(&mut outcome.headers) {
            let said = header.split_last_chunk::<9>().map(|(_, said)| *said);
            let [flag, sum @ ..] = said.ok_or_else(|| nonsense(member.worker, "control bytes"))?;
            header.truncate(header.len() - 9);
            (worst, squares) = (worst.max(flag), f64::from_le_bytes(sum));
        }
        if worst == GRADIENT {
            return Err(Fault::NotFinite("the gradient is not finite".into()));
        }
        Ok((worst == FINITE, squares))
    }

    /// Applies the sums of these steps, of which each member has those that it holds.
    pub(super) fn apply_sharded(
        &mut self,
        steps: Range<u64>,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<(Applied, Shared), Fault> {
        let sharded = self.sharded();
        let owned = sharded.assignment.owned_by(self.me);
        let cut = sharded.cut;
        let is_member = self.membership.rank(self.me).is_some();
        let squares = match is_member {
            true if self.needs_square_sum(&steps) => self.exchange_squares(&steps, &owned)?,
            true => 0.0,
            false => sharded.told_squares,
        };
        let decided = self.decide(&steps, squares)?;
        let (mut shared, mut is_finite) = (Shared::default(), true);
        if is_member {
            let gradient_is_finite = owned.iter().all(|shard| all_finite(&self.out[cut.range(*shard)]));
            let result_is_finite = self.work_out(&owned, decided.update)?;
            let flag = match (gradient_is_finite, result_is_finite) {
                (false, _) => GRADIENT,
                (true, false) => RESULT,
                (true, true) => FINITE,
            };
            let began = Instant::now();
            let mut outcome = self.share(&steps, decided, (flag, squares))?;
            (is_finite, _) = self.take_flags(&mut outcome)?;
            shared = Shared { traffic: outcome.traffic, seconds: began.elapsed().as_secs_f64() };
        }
        is_finite &= self.commit(&steps, decided, incoming, urgent)?;
        Ok((self.applied(decided, is_finite), shared))
    }

    /// The sum of squares of the whole gradient, of which the owner of each shard has a part.
    fn exchange_squares(&mut self, steps: &Range<u64>, owned: &[u32]) -> Result<f64, Fault> {
        let squares = self.sharded().squares(owned, &self.out);
        let said: Vec<u8> = squares.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let (stamp, wake) = (self.stamp(steps.start), Arc::clone(&self.wake));
        let sharded = self.sharded.as_mut().expect("the optimizer's state is shared");
        let between = sharded.between.as_mut().expect("the members told who holds what");
        let outcome = between.run(&mut self.mesh, stamp, &said, &[], &mut [], &wake).map_err(fault)?;
        let assignment = &self.sharded().assignment;
        let mut of_shards = vec![0.0; assignment.shards() as usize];
        for (worker, header) in self.active().iter().zip(&outcome.headers) {
            let (sums, rest) = header.as_chunks::<8>();
            let owned = assignment.owned_by(*worker);
            if sums.len() != owned.len() || !rest.is_empty() {
                return Err(nonsense(*worker, "sums of squares"));
            }
            for (shard, sum) in owned.iter().zip(sums) {
                of_shards[*shard as usize] = f64::from_le_bytes(*sum);
            }
        }
        Ok(of_shards.iter().sum())
    }

    /// Works the new parameters of these shards out, and changes nothing else; says whether they and the new slots are
    /// finite.
    fn work_out(&mut self, owned: &[u32], update: Update) -> Result<bool, Fault> {
        let (state, sharded) = (read(&self.state), self.sharded.as_mut().expect("it is shared"));
        let slots = read(&sharded.slots);
        let mut scratch = Vec::new();
        let mut is_finite = true;
        for shard in owned {
            let range = sharded.cut.range(*shard);
            scratch.clear();
            scratch.extend_from_slice(slots.get(*shard).expect("an owner has its shards"));
            let next = &mut sharded.next[range.clone()];
            next.copy_from_slice(&state.parameters[range.clone()]);
            let of_shard = (range.start, &mut *next, &mut scratch[..]);
            update_shard(&mut &self.optimizer, update, of_shard, &self.out[range])
                .map_err(|error| Fault::Workload(error, None))?;
            is_finite &= all_finite(next) && all_finite(&scratch);
        }
        let parameters = state.parameters.len();
        sharded.next[parameters..].copy_from_slice(&self.out[parameters..]);
        Ok(is_finite)
    }

    /// The second phase. From here on the update can be applied here without any other worker.
    fn share(&mut self, steps: &Range<u64>, decided: Decided, said: (u8, f64)) -> Result<Outcome, Fault> {
        let (stamp, wake) = (self.stamp(steps.start), Arc::clone(&self.wake));
        let sharded = self.sharded.as_mut().expect("the optimizer's state is shared");
        sharded.pending = Some((steps.clone(), decided));
        let (flag, squares) = said;
        let mut said = std::mem::take(&mut sharded.said);
        said.push(flag);
        said.extend(squares.to_le_bytes());
        let gather = sharded.gather.as_mut().expect("the members told who holds what");
        let outcome = gather.share(&mut self.mesh, stamp, &said, &mut sharded.next, &wake).map_err(fault)?;
        self.drop_dead(&outcome);
        Ok(outcome)
    }

    /// Changes slots and parameters. What is held beyond this worker's share, from the membership before, goes.
    fn commit(
        &mut self,
        steps: &Range<u64>,
        decided: Decided,
        incoming: Option<&Incoming>,
        urgent: &dyn Fn() -> bool,
    ) -> Result<bool, Fault> {
        let state = Arc::clone(&self.state);
        let me = self.me;
        if incoming.is_none() {
            self.wait_for_readers(&state, steps.start);
            self.update_shards(decided.update)?;
        }
        let Decided { update, samples, noise, .. } = decided;
        let sharded = self.sharded.as_mut().expect("the optimizer's state is shared");
        let reduced = Reduced { sums: &sharded.next, samples, update, noise };
        let is_finite = apply_here(&state, incoming, &mut Arrived, reduced, urgent)?;
        sharded.pending = None;
        write(&sharded.slots).retain(&sharded.assignment.held_by(me));
        self.version += 1;
        Ok(is_finite)
    }

    /// Updates the slots of this worker's shards. Their parameters become what came from the owners, bit for bit.
    fn update_shards(&mut self, update: Update) -> Result<(), Fault> {
        let sharded = self.sharded.as_ref().expect("the optimizer's state is shared");
        let (mut state, mut slots) = (write(&self.state), write(&sharded.slots));
        for shard in sharded.assignment.held_by(self.me) {
            let range = sharded.cut.range(shard);
            let mut rule = &self.optimizer;
            slots
                .update(shard, &mut rule, update, &mut state.parameters[range.clone()], &self.out[range])
                .map_err(|error| Fault::Workload(error, None))?;
        }
        Ok(())
    }
}
