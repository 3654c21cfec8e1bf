//! The search for the least share of synchronous steps.

use bellwether_sched::tune::{Ask, Outcome, Search, Session};
use proptest::prelude::*;

/// Trains whatever is asked for; each session takes `seconds(fraction)`.
fn search(
    mut search: Search,
    outcome: &mut dyn FnMut(f64, u32) -> Outcome,
    seconds: impl Fn(f64) -> f64,
) -> Search {
    while let Ask::Run { fraction, run } = search.next() {
        let outcome = outcome(fraction, run);
        let session = Session { fraction, run, outcome, seconds: seconds(fraction), samples: 10 };
        search.tell(session).expect("it was asked for");
        // Written down and read again at any time.
        let text = serde_json::to_string(&search).expect("plain data");
        let written = serde_json::from_str(&text).expect("it was just written");
        assert_eq!(Search::again(&written).expect("it was just written"), search);
    }
    search
}

fn new(settings: u32) -> Search {
    Search::new(0.01, 5, settings, None).expect("it is valid")
}

/// The value of a series of points between them.
fn between(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.iter().position(|(at, _)| *at >= x).expect("it is inside");
    let (x1, y1) = points[after];
    if x1 == x {
        return y1;
    }
    let (x0, y0) = points[after - 1];
    y0 + (y1 - y0) * (x - x0) / (x1 - x0)
}

/// Published accuracies (%) and times (s) by share of synchronous steps: Sync-Switch, ICDCS 2021.
type Published = [(f64, f64, f64)];
const FIRST: &Published = &[
    (0.0, 89.2, 1607.0),
    (0.02, 90.4, 1776.0),
    (0.04, 91.3, 1969.0),
    (0.05, 91.7, 2086.0),
    (0.0625, 91.0, 2083.0),
    (0.1, 91.4, 2543.0),
    (0.15, 91.4, 3134.0),
    (0.2, 91.2, 3397.0),
    (0.25, 91.9, 3900.0),
    (0.5, 92.0, 6100.0),
    (0.75, 90.2, 8403.0),
    (1.0, 91.9, 10_647.0),
];
const SECOND: &Published = &[
    (0.0, 70.9, 6064.0),
    (0.0625, 73.3, 6507.0),
    (0.125, 74.6, 6880.0),
    (0.25, 75.1, 7364.0),
    (0.5, 74.3, 8585.0),
    (1.0, 74.6, 11_304.0),
];
/// Less than half was not published; asynchronous training diverged.
const THIRD: &Published = &[(0.5, 92.1, 5139.0), (1.0, 92.3, 9618.0)];

fn published(table: &Published, settings: u32) -> Search {
    let accuracies: Vec<(f64, f64)> = table.iter().map(|(f, accuracy, _)| (*f, *accuracy)).collect();
    let times: Vec<(f64, f64)> = table.iter().map(|(f, _, seconds)| (*f, *seconds)).collect();
    let mut outcome = |fraction: f64, _| match fraction < table[0].0 {
        true => Outcome::Diverged,
        false => Outcome::Accuracy(between(&accuracies, fraction) / 100.0),
    };
    search(new(settings), &mut outcome, |fraction| between(&times, fraction.max(table[0].0)))
}

#[test]
fn the_published_tables_give_the_published_choices() {
    let best = |table, settings| published(table, settings).next();
    // Down to a sixteenth, as far as accuracies were published for the fractions of the ladder.
    assert_eq!(best(FIRST, 4), Ask::Done(Some(0.0625)));
    assert_eq!(best(SECOND, 4), Ask::Done(Some(0.125)));
    assert_eq!(best(THIRD, 4), Ask::Done(Some(0.5)));
    // A fifth setting asks for accuracies that lie between published ones, on straight lines: the first set-up then
    // passes at half of the published choice by 0.006 points, and the second between the last two settings.
    assert_eq!(best(FIRST, 5), Ask::Done(Some(0.03125)));
    assert_eq!(best(SECOND, 5), Ask::Done(Some(0.09375)));
    assert_eq!(best(THIRD, 5), Ask::Done(Some(0.5)));
}

#[test]
fn the_cost_is_all_sessions_and_is_paid_back_by_the_difference() {
    let search = published(FIRST, 4);
    // 1, 1/2, 1/4, 1/8 (between a tenth and 15 %), 1/16; five sessions each.
    let eighth = 2543.0 + (3134.0 - 2543.0) * 0.5;
    let cost = 5.0 * (10_647.0 + 6100.0 + 3900.0 + eighth + 2083.0);
    assert!((search.cost().0 - cost).abs() < 1e-6 && search.cost().1 == 250);
    let gain = search.gain().unwrap();
    let recurrences = cost / (10_647.0 - 2083.0);
    assert!((gain.recurrences.unwrap() - recurrences).abs() < 1e-9 && !gain.extrapolated);
    // A diverged session spares the rest of its setting: 10 sessions that passed, and one for each of 1/4, 3/8 and
    // 7/16.
    let third = published(THIRD, 4);
    assert_eq!(third.sessions().len(), 13);
    assert_eq!(third.settings().last().map(|s| (s.diverged, s.passed)), Some((1, Some(false))));
}

#[test]
fn with_a_target_nothing_synchronous_is_trained_and_its_time_is_on_the_line() {
    let of = Search::new(0.01, 2, 3, Some(0.9)).unwrap();
    let mut outcome = |fraction: f64, _| Outcome::Accuracy(if fraction < 0.2 { 0.8 } else { 0.9 });
    let search = search(of, &mut outcome, |fraction| 100.0 + 900.0 * fraction);
    let fractions: Vec<f64> = search.settings().iter().map(|setting| setting.fraction).collect();
    assert_eq!(fractions, [0.5, 0.25, 0.125]);
    assert_eq!(search.next(), Ask::Done(Some(0.25)));
    let gain = search.gain().unwrap();
    assert!((gain.synchronous_s - 1000.0).abs() < 1e-6 && gain.extrapolated, "{gain:?}");
    // One setting makes no line.
    let one = Search::new(0.01, 1, 1, Some(0.9)).unwrap();
    let one = self::search(one, &mut |_, _| Outcome::Accuracy(0.9), |_| 1.0);
    assert_eq!((one.next(), one.gain()), (Ask::Done(Some(0.5)), None));
}

#[test]
fn a_loss_may_be_larger_by_the_margin() {
    let of = |fraction: f64| match fraction {
        f if f < 0.2 => 2.03,
        f if f < 0.4 => 2.019,
        _ => 2.0,
    };
    let done = search(new(3), &mut |fraction, _| Outcome::Loss(of(fraction)), |_| 1.0);
    assert_eq!(done.next(), Ask::Done(Some(0.25)));
    assert_eq!((done.accuracies(), done.target()), (Some(false), Some(2.0)));
    // The times are equal: it never pays.
    assert_eq!(done.gain().and_then(|gain| gain.recurrences), None);
}

#[test]
fn where_synchronous_training_diverges_no_target_is_known() {
    let done = search(new(3), &mut |_, _| Outcome::Accuracy(f64::NAN), |_| 1.0);
    assert_eq!((done.next(), done.sessions().len(), done.gain()), (Ask::Done(None), 1, None));
    assert_eq!(done.target(), None);
    // Where all mixed sessions do, all steps stay synchronous.
    let mut mixed = |fraction: f64, _| match fraction < 1.0 {
        true => Outcome::Diverged,
        false => Outcome::Accuracy(0.9),
    };
    let done = search(new(3), &mut mixed, |_| 1.0);
    assert_eq!(done.next(), Ask::Done(Some(1.0)));
}

#[test]
fn nonsense_is_refused() {
    for (margin, runs, settings, target) in
        [(-0.1, 5, 5, None), (1.0, 5, 5, None), (f64::NAN, 5, 5, None), (0.01, 0, 5, None)]
            .into_iter()
            .chain([(0.01, 1001, 5, None), (0.01, 5, 0, None), (0.01, 5, 41, None)])
            .chain([(0.01, 5, 5, Some(91.0)), (0.01, 5, 5, Some(f64::NAN))])
    {
        assert!(
            Search::new(margin, runs, settings, target).is_err(),
            "{margin} {runs} {settings} {target:?}"
        );
    }
    let session =
        Session { fraction: 1.0, run: 0, outcome: Outcome::Accuracy(0.9), seconds: 1.0, samples: 1 };
    let refused = |session: Session| new(2).tell(session).is_err();
    assert!(!refused(session));
    assert!(refused(Session { run: 1, ..session }) && refused(Session { fraction: 0.5, ..session }));
    assert!(
        refused(Session { seconds: -1.0, ..session }) && refused(Session { seconds: f64::NAN, ..session })
    );
    assert!(refused(Session { outcome: Outcome::Accuracy(91.0), ..session }));
    assert!(refused(Session { outcome: Outcome::Loss(-1.0), ..session }));
    // Accuracies and losses do not mix.
    let mut one = new(2);
    one.tell(session).unwrap();
    assert!(one.tell(Session { run: 1, outcome: Outcome::Loss(0.1), ..session }).is_err());
    let mut given = Search::new(0.01, 1, 1, Some(0.9)).unwrap();
    assert!(given.tell(Session { fraction: 0.5, outcome: Outcome::Loss(0.1), ..session }).is_err());
    // A file that was changed.
    let text = serde_json::to_string(&one).unwrap();
    for (from, to) in [("\"run\":0", "\"run\":3"), ("0.01", "7"), ("\"seconds\":1.0", "\"seconds\":-1")] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        assert!(Search::again(&serde_json::from_str(&changed).unwrap()).is_err(), "{changed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Accuracy rises with the share, and each session's has an error: the result is within a step of the ladder of a
    /// share whose accuracy is the wanted one, give or take the error.
    #[test]
    fn the_boundary_is_found(
        settings in 1_u32..8, steepness in 0.1_f64..20.0, error in 0.0_f64..0.01, seed: u64,
    ) {
        let accuracy = |fraction: f64| 0.7 + 0.2 * (1.0 - (-steepness * fraction).exp());
        let mut state = seed | 1;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            error * ((state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
        };
        let mut outcome = |fraction: f64, _| Outcome::Accuracy(accuracy(fraction) + noise());
        let done = search(new(settings), &mut outcome, |fraction| 1.0 + fraction);
        let Ask::Done(Some(best)) = done.next() else { panic!("it is over") };
        let step = 0.5_f64.powi(settings as i32);
        let wanted = accuracy(1.0) - 0.01;
        // The target has an error too.
        prop_assert!(best == 1.0 || accuracy(best) >= wanted - 2.0 * error - 1e-9, "{best}: {}", accuracy(best));
        let below = best - step;
        prop_assert!(below <= 0.0 || accuracy(below) <= wanted + 2.0 * error + 1e-9, "{best}: {}", accuracy(below));
        prop_assert_eq!(done.sessions().len(), 5 * (settings as usize + 1));
    }
}
