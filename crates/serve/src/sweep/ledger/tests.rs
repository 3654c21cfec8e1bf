//! Ledgers that a crash cut short, and bytes of strangers.

use std::collections::BTreeMap;

use bellwether_core::sweep::{self, Ladder};
use bellwether_sched::search::Search;
use proptest::prelude::*;

use super::*;
use crate::sweep::state::State;

/// A whole sweep with a fixed figure for each trial and length.
fn lines() -> Vec<Line> {
    let text = "job = \"j\"\n[space]\na = { low = 0.0, high = 1.0 }\n[sampler]\nkind = \"random\"\n\
        [scheduler]\nkind = \"asha\"\nmaximum = 9\n[budget]\ntrials = 9\n";
    let sweep = sweep::read(text, "s").unwrap();
    let plan = Plan {
        space: sweep.space,
        sampler: sweep.file.sampler,
        scheduler: sweep.file.scheduler,
        ladder: Some(Ladder { minimum: 1, maximum: 9, reduction: 3 }),
        metric: sweep.file.objective.metric,
        trials: Some(9),
        concurrent: 2,
    };
    let (file, plan) = (Box::new(sweep.file), Box::new(plan));
    let opened = Entry::Opened {
        version: "0".into(),
        id: "id".into(),
        unix_s: 1.5,
        file,
        plan,
        base: "b".into(),
        slots: 2,
        predicted: None,
    };
    let mut lines = vec![Line { time_s: 0.0, entry: opened }];
    let mut state = State::fold(&lines).unwrap();
    let mut add = |state: &mut State, entry: Entry| {
        let line = Line { time_s: lines.len() as f64 / 7.0, entry };
        state.apply(&line).unwrap();
        lines.push(line);
    };
    while !state.is_over() {
        while let Some(decision) = state.next() {
            add(&mut state, Entry::Decided { decision });
        }
        for trial in 0..state.search.trials.len() as u64 {
            if !state.jobs.contains_key(&trial) {
                let job = format!("t{trial}");
                add(&mut state, Entry::Started { trial, job, unit_steps: 4, total_steps: 36 });
            }
            let known = &state.search.trials[trial as usize];
            let (at, ends) = (known.to.unwrap(), known.state.has_ended());
            if !ends && !known.reports.contains_key(&at) {
                let figure = Some((trial * 5 % 9) as f64 / 9.0 + at as f64 / 81.0);
                add(&mut state, Entry::Reported { trial, step: 4 * at, at, figure });
            }
            let is_last = state.search.trials[trial as usize].reports.contains_key(&9);
            if (is_last || ends) && state.jobs[&trial].end.is_none() {
                let outcome = if ends { Outcome::Stopped } else { Outcome::Finished };
                let (why, digest) = (String::new(), Some("d".to_owned()));
                add(&mut state, Entry::Ended { trial, outcome, why, step: 36, digest, worker_s: 0.1 });
            }
        }
    }
    lines
}

fn bytes(lines: &[Line]) -> Vec<u8> {
    lines.iter().flat_map(|line| [serde_json::to_vec(line).unwrap(), vec![b'\n']].concat()).collect()
}

fn trials(search: &Search) -> BTreeMap<u64, String> {
    search.trials.iter().map(|trial| (trial.number, format!("{trial:?}"))).collect()
}

#[test]
fn what_was_written_is_read_and_says_the_same() {
    let lines = lines();
    let read = parse(&bytes(&lines)).unwrap();
    assert_eq!(read, lines);
    let state = State::fold(&read).unwrap();
    assert!(state.is_over() && state.next().is_none());
    assert_eq!(trials(&state.search), trials(&State::fold(&lines).unwrap().search));
    assert_eq!(state.search.trials.len(), 9);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Every cut is a state from which the sweep goes on as it did.
    #[test]
    fn a_ledger_that_was_cut_goes_on_with_the_same_decision(cut in 0.0_f64..1.0) {
        let lines = lines();
        let all = bytes(&lines);
        let kept = parse(&all[..(cut * all.len() as f64) as usize]).unwrap();
        prop_assert_eq!(&kept[..], &lines[..kept.len()]);
        if !kept.is_empty() {
            let state = State::fold(&kept).unwrap();
            if let Entry::Decided { decision } = &lines[kept.len()].entry {
                prop_assert_eq!(state.next(), Some(decision.clone()));
            }
        }
    }

    #[test]
    fn bytes_of_strangers_are_refused(
        at in 0.0_f64..1.0, more in proptest::collection::vec(any::<u8>(), 1..8),
    ) {
        let mut bytes = bytes(&lines());
        let at = (at * bytes.len() as f64) as usize;
        let end = (at + more.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&more[..end - at]);
        // It is another ledger, or none: never a panic.
        if let Ok(lines) = parse(&bytes) {
            drop(State::fold(&lines));
        }
        drop(parse(&more));
        drop(sweep::read(&String::from_utf8_lossy(&more), "s"));
    }
}
