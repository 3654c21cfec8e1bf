//! Puts the whole state together where the workers share the optimizer's slots: one sends all but the slots, and each
//! those of the virtual shards that it owns.

use bellwether_core::virtual_shards::VirtualShards;

use crate::sharding::SlotShards;
use crate::state::TrainingState;
use crate::workload::Layout;

/// What one worker sent of a state.
#[derive(Debug)]
pub(super) enum Part {
    /// All but the slots.
    Rest(TrainingState),
    /// The slots of some virtual shards.
    Slots(SlotShards),
}

/// The state of the latest step of which something came.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    step: u64,
    /// With slots that are filled as they come.
    state: Option<TrainingState>,
    has_rest: bool,
    missing: Vec<u32>,
}

impl SharedState {
    /// Takes a part of the state after `step` steps in; gives the whole away once all of it is here. What belongs to an
    /// earlier step than another part is not needed any more.
    pub(super) fn take(
        &mut self,
        step: u64,
        part: Part,
        (layout, slots): (&Layout, usize),
    ) -> Option<TrainingState> {
        if self.state.is_some() && step < self.step {
            return None;
        }
        if self.state.is_none() || step > self.step {
            let cut = VirtualShards::of(layout.parameter_count());
            let state = Some(TrainingState::zeros(layout, slots));
            *self = SharedState { step, state, has_rest: false, missing: (0..cut.count()).collect() };
        }
        let state = self.state.as_mut()?;
        match part {
            Part::Rest(rest) => {
                let TrainingState { parameters, model_state, noise, .. } = rest;
                (state.parameters, state.model_state, state.noise) = (parameters, model_state, noise);
                state.step = step;
                self.has_rest = true;
            }
            Part::Slots(part) => {
                for shard in part.held() {
                    for (slot, values) in state.slots.iter_mut().enumerate() {
                        let from = part.slot(shard, slot).expect("it is held");
                        values[part.cut.range(shard)].copy_from_slice(from);
                    }
                }
                self.missing.retain(|shard| part.get(*shard).is_none());
            }
        }
        let is_whole = self.has_rest && self.missing.is_empty();
        if is_whole { self.state.take() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Tensor;

    #[test]
    fn parts_make_the_whole_in_any_order() {
        let tensor = |name: &str, values| Tensor { name: name.into(), shape: vec![values] };
        let layout = Layout { parameters: vec![tensor("a", 100)], state: vec![tensor("s", 3)] };
        let cut = VirtualShards::of(100);
        let mut whole = TrainingState::zeros(&layout, 2);
        let places = whole.parameters.iter_mut().chain(whole.slots.iter_mut().flatten());
        places.zip(0u8..).for_each(|(value, number)| *value = f32::from(number));
        whole.step = 7;
        let slots = |shards: &[u32]| {
            let mut part = SlotShards::none(cut, 2);
            part.reset(shards);
            (0..2).for_each(|slot| part.write(slot, 0, &whole.slots[slot]));
            Part::Slots(part)
        };
        let rest = || Part::Rest(TrainingState { slots: Vec::new(), ..whole.clone() });
        let shards: Vec<u32> = (0..cut.count()).collect();
        let (some, others) = shards.split_at(3);
        let mut shared = SharedState::default();
        let of = (&layout, 2);
        // What came of an earlier step does not count.
        assert_eq!(shared.take(6, rest(), of), None);
        assert_eq!(shared.take(7, slots(others), of), None);
        assert_eq!(shared.take(6, slots(&shards), of), None);
        assert_eq!(shared.take(7, rest(), of), None);
        assert_eq!(shared.take(7, slots(some), of), Some(whole.clone()));
        // Sent again as a whole.
        assert_eq!(shared.take(7, slots(&shards), of), None);
        assert_eq!(shared.take(7, rest(), of), Some(whole));
    }
}
