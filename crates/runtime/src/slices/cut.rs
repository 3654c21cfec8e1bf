//! How a state is cut into slices.

use std::ops::Range;

use crate::state::TrainingState;

/// Bytes of the longest slice: a worker with more writes several, so that each is one request.
pub const SLICE_BYTES_MAX: u64 = 1 << 30;

/// Elements of slice `index` of `count` of a vector with `length`.
pub fn range(length: u64, index: u64, count: u64) -> Range<u64> {
    let at = |index: u64| (u128::from(length) * u128::from(index) / u128::from(count.max(1))) as u64;
    at(index)..at(index + 1)
}

/// How many slices `workers` cut a state with this number of `f32` into: as many for each of them.
pub fn count(length: u64, workers: u64) -> u64 {
    let share = (length * 4).div_ceil(workers.max(1));
    workers.max(1) * share.div_ceil(SLICE_BYTES_MAX).max(1)
}

/// The vectors of a state, in the order of the one vector.
fn vectors(state: &TrainingState) -> impl Iterator<Item = &[f32]> {
    let slots = state.slots.iter().map(Vec::as_slice);
    std::iter::once(&state.parameters[..]).chain(slots).chain(std::iter::once(&state.model_state[..]))
}

/// Number of `f32` in a state.
pub fn length(state: &TrainingState) -> u64 {
    vectors(state).map(|values| values.len() as u64).sum()
}

/// Copies elements of the one vector over what is in `into`.
pub fn copy(state: &TrainingState, range: Range<u64>, into: &mut Vec<f32>) {
    into.clear();
    let mut start = 0;
    for values in vectors(state) {
        let end = start + values.len() as u64;
        let (from, to) = (range.start.clamp(start, end), range.end.clamp(start, end));
        into.extend_from_slice(&values[(from - start) as usize..(to - start) as usize]);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slices_cover_a_vector_and_do_not_overlap(length in 0..u64::MAX / 4, workers in 1..10_000u64) {
            let count = count(length, workers);
            prop_assert_eq!(count % workers, 0);
            prop_assert!(count / workers <= length * 4 / workers / SLICE_BYTES_MAX + 2);
            // All of few, some of many.
            let mut end = 0;
            for index in 0..count.min(1000) {
                let range = range(length, index, count);
                prop_assert_eq!(range.start, end);
                prop_assert!(range.end >= range.start && (range.end - range.start) * 4 <= SLICE_BYTES_MAX + 4);
                end = range.end;
            }
            prop_assert_eq!(range(length, count - 1, count).end, length);
        }

        #[test]
        fn copies_of_all_slices_are_the_state(parameters in 0..50usize, slots in 0..3usize, extra in 0..5usize, count in 1..9u64) {
            let mut next = 0.0;
            let mut values = |count: usize| -> Vec<f32> { (0..count).map(|_| { next += 1.0; next }).collect() };
            let state = TrainingState {
                parameters: values(parameters),
                slots: (0..slots).map(|_| values(parameters)).collect(),
                model_state: values(extra),
                ..TrainingState::default()
            };
            let (mut all, mut slice) = (Vec::new(), vec![9.0]);
            for index in 0..count {
                copy(&state, range(length(&state), index, count), &mut slice);
                all.extend_from_slice(&slice);
            }
            prop_assert_eq!(all, vectors(&state).flatten().copied().collect::<Vec<_>>());
        }
    }
}
