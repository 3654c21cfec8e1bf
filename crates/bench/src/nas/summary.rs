//! What the results say: rank correlations with their intervals, the best of the top, and what it cost.

use bellwether_core::job::architecture_text;
use bellwether_des::statistics::Tally;
use bellwether_session::nas::Architecture;

use super::rank::{best_of_top, kendall};
use super::record::Record;
use super::{CONTROL, METHODS};
use crate::report::{Report, Row};
use crate::statistics::mean;

/// How often intervals hold the mean.
const LEVEL: f64 = 0.95;

/// Adds a row for each method, and the bars.
pub(super) fn add(report: &mut Report, record: &Record, sample: &[Architecture]) {
    let names: Vec<String> = sample.iter().map(|one| architecture_text(one)).collect();
    let of_seed = |seed: u64| -> Vec<f64> {
        names.iter().map(|name| record.truth(seed, name).map_or(f64::NAN, |(accuracy, _)| accuracy)).collect()
    };
    let truths: Vec<Vec<f64>> = record.truth_seeds().into_iter().map(of_seed).collect();
    let truth: Vec<f64> = (0..names.len())
        .map(|place| mean(&truths.iter().map(|one| one[place]).collect::<Vec<_>>()))
        .collect();
    let mut ceiling = Tally::new();
    for (place, one) in truths.iter().enumerate() {
        truths[..place].iter().for_each(|other| ceiling.add(kendall(one, other)));
    }
    let seconds =
        |seed: u64| names.iter().filter_map(move |name| Some(record.truth(seed, name)?.1)).sum::<f64>();
    let truth_s: f64 = record.truth_seeds().into_iter().map(seconds).sum();
    report.row(
        Row::new("from scratch")
            .with("seeds", truths.len())
            .with("tau", ceiling.mean())
            .with("best", best_of_top(&truth, &truth, 1))
            .with("median", crate::statistics::median(&truth))
            .with("train_s", truth_s),
    );
    let taus = |method: &str| -> Vec<(u64, f64)> {
        let tau = |seed: u64| {
            let scored = record.scored(method, seed)?;
            Some((seed, kendall(&scores(&names, &scored.scores), &truth)))
        };
        record.seeds(method).into_iter().filter_map(tau).collect()
    };
    for method in METHODS.into_iter().chain([CONTROL]) {
        row(report, record, (&names, &truth), method, &taus(method));
    }
    let base = taus(METHODS[0]);
    let pairs =
        [(METHODS[1], METHODS[0]), (METHODS[2], METHODS[0]), (METHODS[2], METHODS[1]), (METHODS[1], CONTROL)];
    for (better, than) in pairs {
        let (one, two) = (taus(better), if than == METHODS[0] { base.clone() } else { taus(than) });
        let mut gain = Tally::new();
        for (seed, tau) in &one {
            two.iter().filter(|(other, _)| other == seed).for_each(|(_, other)| gain.add(tau - other));
        }
        let interval = gain.interval(LEVEL);
        report.row(
            Row::new(format!("{better} over {than}"))
                .with("seeds", gain.count())
                .with("tau", gain.mean())
                .with("tau_low", interval.low())
                .with("tau_high", interval.high()),
        );
        if (better, than) == pairs[0] {
            report.bar("τ of few-shot (5) over one-shot, low end", interval.low(), 0.0, interval.low() > 0.0);
        }
    }
}

fn scores(names: &[String], scored: &std::collections::BTreeMap<String, f64>) -> Vec<f64> {
    names.iter().map(|name| scored.get(name).copied().unwrap_or(f64::NAN)).collect()
}

fn row(
    report: &mut Report,
    record: &Record,
    (names, truth): (&[String], &[f64]),
    method: &str,
    taus: &[(u64, f64)],
) {
    let mut tally = Tally::new();
    taus.iter().for_each(|(_, tau)| tally.add(*tau));
    let interval = tally.interval(LEVEL);
    let scored: Vec<_> = taus.iter().filter_map(|(seed, _)| record.scored(method, *seed)).collect();
    let top = |k: usize| {
        mean(&scored.iter().map(|one| best_of_top(&scores(names, &one.scores), truth, k)).collect::<Vec<_>>())
    };
    let samples: Vec<f64> = taus.iter().map(|(_, tau)| *tau).collect();
    report.row(
        Row::new(method)
            .with("seeds", taus.len())
            .with("tau", tally.mean())
            .with("tau_low", interval.low())
            .with("tau_high", interval.high())
            .with("top_1", top(1))
            .with("top_10", top(10))
            .with("train_s", mean(&scored.iter().map(|one| one.train_s).collect::<Vec<_>>()))
            .with("score_s", mean(&scored.iter().map(|one| one.score_s).collect::<Vec<_>>()))
            .samples("taus", &samples),
    );
}
