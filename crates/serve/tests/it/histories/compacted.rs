//! A ledger may be compacted after any of its lines: the same follows from it, and from all that comes after.

use bellwether_serve::ledger::{Line, read_from};
use bellwether_serve::state::State;
use bellwether_testkit::Random;

use super::world::Shared;
use super::{compact_at, live_through, replay};

/// Histories without compactions whose ledgers are compacted here.
const HISTORIES: usize = 60;

/// Places of each ledger at which that is done.
const PLACES: u64 = 8;

fn folded<'l>(lines: impl IntoIterator<Item = &'l Line>) -> State {
    let mut state = None;
    lines.into_iter().for_each(|line| State::fold(&mut state, line).expect("it was written so"));
    state.expect("a ledger has a first line")
}

/// All that the state says, but for what tells clients of changes.
fn told(state: &mut State) -> String {
    state.touched.clear();
    (state.decisions_changed, state.nodes_changed, state.slots.version) = (false, false, 0);
    let holding = state.view.jobs.iter().filter(|(_, seen)| seen.is_running()).map(|(job, _)| *job);
    assert!(holding.eq(state.active.holding.iter().copied()), "{:?}", state.active);
    let closing = state.jobs.iter().filter(|(_, record)| record.cancelled && record.end.is_none());
    assert!(closing.map(|(job, _)| *job).eq(state.active.closing.iter().copied()), "{:?}", state.active);
    format!("{state:?}")
}

#[test]
fn the_same_follows_from_a_compacted_ledger() {
    let mut places = 0;
    for seed in (0..).filter(|seed| compact_at(*seed) == u64::MAX).take(HISTORIES) {
        let shared = Shared::new(seed);
        live_through(seed, &shared);
        let lines = replay::lines(&shared.lock().disk.bytes);
        let mut random = Random(seed);
        for _ in 0..PLACES {
            let place = 1 + random.below(lines.len() as u64) as usize;
            let mut whole = folded(&lines[..place]);
            let bytes =
                whole.compacted().unwrap_or_else(|error| panic!("seed {seed}, line {place}: {error}"));
            let mut compacted = None;
            read_from(bytes.as_slice(), |line| State::fold(&mut compacted, &line)).unwrap();
            let mut compacted = compacted.expect("it has a first line");
            assert_eq!(told(&mut whole), told(&mut compacted), "seed {seed}, line {place}");
            for (number, line) in lines[place..].iter().enumerate() {
                whole.apply(line).unwrap();
                compacted
                    .apply(line)
                    .unwrap_or_else(|what| panic!("seed {seed}, line {place} + {number}: {what}"));
                if random.below(20) == 0 {
                    assert_eq!(
                        told(&mut whole),
                        told(&mut compacted),
                        "seed {seed}, line {place} + {number}"
                    );
                }
            }
            assert_eq!(told(&mut whole), told(&mut compacted), "seed {seed}, line {place} to the end");
            places += usize::from(place < lines.len());
        }
    }
    assert!(places > HISTORIES * PLACES as usize / 2, "{places}");
}
