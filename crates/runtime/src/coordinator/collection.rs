//! Puts the whole state together from what several hand over.

use crate::membership::{WorkerId, WorkloadDescription};
use crate::parameters::ShardMap;
use crate::state::TrainingState;

/// A state that is on its way.
#[derive(Debug)]
pub(super) struct Collection {
    /// Complete steps.
    pub(super) step: u64,
    holders: Vec<WorkerId>,
    parts: Vec<Option<TrainingState>>,
    /// How the parts lie in the whole; without it each is the whole, and the mean counts.
    map: Option<ShardMap>,
}

impl Collection {
    /// Of shards of servers (`sharded`), in their order, or of whole states of workers.
    pub(super) fn new(
        step: u64,
        holders: Vec<WorkerId>,
        workload: &WorkloadDescription,
        sharded: bool,
    ) -> Collection {
        let parts = holders.iter().map(|_| None).collect();
        let map = sharded.then(|| ShardMap::new(&workload.layout, holders.len() as u32));
        Collection { step, holders, parts, map }
    }

    /// Another holds what this one held.
    pub(super) fn replace(&mut self, holders: &[WorkerId]) {
        let kept = |holder: &WorkerId| self.holders.iter().position(|id| id == holder);
        let places: Vec<Option<usize>> = holders.iter().map(kept).collect();
        let parts = places.into_iter().map(|place| self.parts[place?].take());
        self.parts = parts.collect();
        self.holders = holders.to_vec();
    }

    /// What this holder's part looks like; `None` from a worker that was not asked.
    pub(super) fn blank(
        &self,
        holder: WorkerId,
        workload: &WorkloadDescription,
        slots: usize,
    ) -> Option<TrainingState> {
        let place = self.holders.iter().position(|id| *id == holder)?;
        Some(match &self.map {
            Some(map) => map.empty_shard(slots, place as u32),
            None => TrainingState::zeros(&workload.layout, slots),
        })
    }

    /// Takes a part in; the whole once all are there.
    pub(super) fn take(
        &mut self,
        holder: WorkerId,
        part: TrainingState,
        workload: &WorkloadDescription,
    ) -> Option<TrainingState> {
        let place = self.holders.iter().position(|id| *id == holder)?;
        let slots = part.slots.len();
        self.parts[place] = Some(part);
        if self.parts.iter().any(Option::is_none) {
            return None;
        }
        let parts: Vec<TrainingState> = self.parts.iter_mut().filter_map(Option::take).collect();
        let mut whole = match &self.map {
            Some(map) => {
                let mut whole = TrainingState::zeros(&workload.layout, slots);
                for (part, shard) in parts.iter().zip(0..) {
                    map.gather(part, shard, &mut whole);
                }
                whole
            }
            None => mean(&parts)?,
        };
        whole.step = self.step;
        whole.noise = parts.first()?.noise;
        Some(whole)
    }
}

/// The mean of states, element by element.
fn mean(states: &[TrainingState]) -> Option<TrainingState> {
    let (first, others) = states.split_first()?;
    let mut mean = first.clone();
    let share = 1.0 / states.len() as f32;
    let fold = |target: &mut [f32], of: fn(&TrainingState) -> Vec<&[f32]>, place: usize| {
        for other in others {
            target.iter_mut().zip(of(other)[place]).for_each(|(sum, value)| *sum += value);
        }
        target.iter_mut().for_each(|sum| *sum *= share);
    };
    fold(&mut mean.parameters, |state| vec![&state.parameters], 0);
    fold(&mut mean.model_state, |state| vec![&state.model_state], 0);
    for (place, slot) in mean.slots.iter_mut().enumerate() {
        fold(slot, |state| state.slots.iter().map(Vec::as_slice).collect(), place);
    }
    Some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Layout, Tensor};

    fn workload() -> WorkloadDescription {
        let tensor = |name: &str, values| Tensor { name: name.into(), shape: vec![values] };
        let layout =
            Layout { parameters: vec![tensor("a", 100), tensor("b", 30)], state: vec![tensor("s", 3)] };
        WorkloadDescription { layout, ..WorkloadDescription::default() }
    }

    fn numbered(workload: &WorkloadDescription) -> TrainingState {
        let mut state = TrainingState::zeros(&workload.layout, 1);
        let TrainingState { parameters, slots, model_state, .. } = &mut state;
        let values = parameters.iter_mut().chain(&mut slots[0]).chain(model_state);
        values.zip(0..).for_each(|(value, number)| *value = number as f32);
        state.step = 7;
        state
    }

    #[test]
    fn shards_make_the_whole_in_any_order() {
        let workload = workload();
        let whole = numbered(&workload);
        let map = ShardMap::new(&workload.layout, 2);
        let mut collection = Collection::new(7, vec![11, 12], &workload, true);
        assert_eq!(collection.blank(9, &workload, 1), None);
        assert_eq!(collection.take(12, map.scatter(&whole, 1), &workload), None);
        collection.replace(&[13, 12]);
        assert_eq!(collection.take(11, map.scatter(&whole, 0), &workload), None);
        assert_eq!(collection.take(13, map.scatter(&whole, 0), &workload), Some(whole));
    }

    #[test]
    fn whole_states_are_averaged() {
        let workload = workload();
        let (low, mut high) = (numbered(&workload), numbered(&workload));
        high.parameters.iter_mut().for_each(|value| *value += 2.0);
        high.slots[0][4] += 8.0;
        let mut collection = Collection::new(7, vec![1, 2], &workload, false);
        assert_eq!(collection.take(1, low.clone(), &workload), None);
        let mean = collection.take(2, high, &workload).expect("both are here");
        assert_eq!(mean.parameters[3], low.parameters[3] + 1.0);
        assert_eq!(mean.slots[0][4], low.slots[0][4] + 4.0);
        assert_eq!(mean.model_state, low.model_state);
    }
}
