//! What is learnt of early ends, beside the law that the ends were drawn from and that the estimate does not know.

use bellwether_des::Streams;
use bellwether_model::early_end::{Departure, EarlyTermination, Ends};
use proptest::prelude::*;

/// Where each of `count` jobs of this law ends.
fn drawn(law: EarlyTermination, count: u64, seed: u64) -> Vec<f64> {
    let streams = Streams::new(seed);
    (0..count).map(|job| law.fraction(&mut streams.stream("end", job))).collect()
}

/// What is learnt of jobs that began one after another at equal distances, each with the work 1 at the same speed, when
/// `now` jobs have begun: many still run then.
fn learnt(ends: &[f64], now: f64, apart: f64) -> Ends {
    let begin = |job: usize| job as f64 * apart;
    let mut order: Vec<usize> = (0..ends.len()).filter(|job| begin(*job) + ends[*job] <= now).collect();
    order.sort_by(|a, b| (begin(*a) + ends[*a]).total_cmp(&(begin(*b) + ends[*b])));
    let mut known = Ends::default();
    for job in order {
        let at = begin(job) + ends[job];
        let running: Vec<f64> = (0..ends.len())
            .filter(|other| begin(*other) < at && begin(*other) + ends[*other] > at)
            .map(|other| at - begin(other))
            .collect();
        known.observe(ends[job], Departure::Ended, &running);
    }
    known
}

#[test]
fn an_estimate_comes_close_to_the_law_although_half_of_the_jobs_still_run() {
    let law = EarlyTermination::new(0.4, 2.0, 5.0).unwrap();
    let (mut errors, mut naive_errors) = (Vec::new(), Vec::new());
    for seed in 0..40 {
        // 60 jobs begin within one job's time: when it is over, those that do all of their work still run.
        let ends = drawn(law, 60, seed);
        let known = learnt(&ends, 1.0, 1.0 / 60.0);
        errors.push(known.mean_rest(0.0) - law.mean_rest(0.0));
        let seen: Vec<f64> = ends
            .iter()
            .enumerate()
            .filter(|(job, end)| *job as f64 / 60.0 + **end <= 1.0)
            .map(|(_, end)| *end)
            .collect();
        naive_errors.push(seen.iter().sum::<f64>() / seen.len() as f64 - law.mean_rest(0.0));
    }
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean(&errors).abs() < 0.03, "{errors:?}");
    // The mean over those that have ended knows only the early ones.
    assert!(mean(&naive_errors) < -0.2, "{naive_errors:?}");
}

#[test]
fn an_interval_holds_as_many_ends_as_it_says() {
    let law = EarlyTermination::new(0.6, 1.0, 3.0).unwrap();
    let known = learnt(&drawn(law, 300, 1), 1e9, 1.0);
    let fresh = drawn(law, 4000, 2);
    for (done, probability) in [(0.0, 0.1), (0.0, 0.3), (0.0, 0.5), (0.1, 0.3), (0.2, 0.25)] {
        let there: Vec<f64> = fresh.iter().copied().filter(|end| *end > done).collect();
        let by = done + known.rest(done, probability);
        let share = there.iter().filter(|end| **end <= by).count() as f64 / there.len() as f64;
        assert!((share - probability).abs() < 0.08, "{probability} after {done}: {share}");
    }
}

proptest! {
    #[test]
    fn laws_of_the_estimate(
        ends in prop::collection::vec((0.0..=1.0f64, prop::bool::ANY), 0..40),
        done in 0.0..=1.0f64,
        more in 0.0..=1.0f64,
    ) {
        let mut known = Ends::default();
        for (end, is_lost) in &ends {
            known.observe(*end, if *is_lost { Departure::Lost } else { Departure::Ended }, &[*end / 2.0]);
        }
        let rest = known.mean_rest(done);
        prop_assert!((0.0..=1.0 - done + 1e-9).contains(&rest));
        // Who has done more ends later.
        let later = done + more * (1.0 - done);
        prop_assert!(later + known.mean_rest(later) >= done + rest - 1e-9);
        // The mean lies within all quantiles.
        prop_assert!(known.rest(done, 0.0) <= rest + 1e-9 && rest <= known.rest(done, 1.0) + 1e-9);
        let text = serde_json::to_string(&known).unwrap();
        let again: Ends = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(again.restored(), known);
    }
}
