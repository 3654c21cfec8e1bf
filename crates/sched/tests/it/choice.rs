//! The choice of configurations: against all possibilities, and against a general solver.

use bellwether_sched::program::choice::{Candidate, Choice, best};
use proptest::prelude::*;

use crate::library;

fn assert_valid(choice: &Choice, jobs: &[Vec<Candidate>], devices: &[u32]) {
    let mut free = devices.to_vec();
    let mut value = 0.0;
    for (candidates, place) in jobs.iter().zip(&choice.taken) {
        if let Some(candidate) = place.map(|place| candidates[place]) {
            free[candidate.device_type] =
                free[candidate.device_type].checked_sub(candidate.devices).expect("it fits");
            value += candidate.value;
        }
    }
    assert!((value - choice.value).abs() < 1e-9);
}

/// Values of a hundredth, as Sia's: many choices are equally good.
fn instance() -> impl Strategy<Value = (Vec<Vec<Candidate>>, Vec<u32>)> {
    (1..4_usize).prop_flat_map(|types| {
        let value = prop_oneof![(-20..200_i32).prop_map(|v| f64::from(v) / 100.0), -0.2..2.0_f64];
        let candidate = (value, 0..types, prop::sample::select(vec![1, 2, 3, 4, 8, 16]))
            .prop_map(|(value, device_type, devices)| Candidate { value, device_type, devices });
        let jobs = prop::collection::vec(prop::collection::vec(candidate, 0..6), 0..12);
        (jobs, prop::collection::vec(0..20_u32, types))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_choice_is_that_of_the_library((jobs, devices) in instance()) {
        let choice = best(&jobs, &devices);
        assert_valid(&choice, &jobs, &devices);
        prop_assert_eq!(choice.gap, 0.0);
        let theirs = library::choice(&jobs, &devices);
        prop_assert!((choice.value - theirs).abs() <= 1e-6, "{}, and not {theirs}", choice.value);
        prop_assert_eq!(best(&jobs, &devices), choice);
    }
}

#[test]
fn greed_is_not_enough() {
    // The best for its size is the one of 3, but two of 2 fill the node.
    let candidate = |value, devices| vec![Candidate { value, device_type: 0, devices }];
    let jobs = [candidate(3.3, 3), candidate(2.0, 2), candidate(2.0, 2)];
    let choice = best(&jobs, &[4]);
    assert_eq!((choice.taken, choice.gap), (vec![None, Some(0), Some(0)], 0.0));
}

#[test]
fn nothing_is_taken_where_nothing_fits_or_pays() {
    let candidates = |value, devices| vec![Candidate { value, device_type: 0, devices }];
    let choice = best(&[candidates(1.0, 5), candidates(0.0, 1), candidates(-1.0, 1), Vec::new()], &[4]);
    assert_eq!(choice, Choice { taken: vec![None; 4], value: 0.0, gap: 0.0 });
    assert_eq!(best(&[], &[4]).taken, []);
    assert_eq!(best(&[Vec::new()], &[]).taken, [None]);
    assert_eq!(best(&[candidates(1.0, 1)], &[0]).taken, [None]);
}

#[test]
fn many_types_of_many_devices_are_chosen_from_all_the_same() {
    // The ways to use 10 types of 100 devices have no number in 64 bits.
    let candidates = |device_type| vec![Candidate { value: 1.0, device_type, devices: 60 }];
    let jobs: Vec<_> = (0..20).map(|job| candidates(job % 10)).collect();
    let choice = best(&jobs, &[100; 10]);
    assert_valid(&choice, &jobs, &[100; 10]);
    assert_eq!(choice.value, 10.0);
    assert!(choice.gap >= 0.0);
}
