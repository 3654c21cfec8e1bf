//! What a run leaves on disk: checkpoints that survive damage, journals that survive a cut.

use std::fs;
use std::path::Path;

use bellwether_core::record::{Event, Line};
use bellwether_runtime::checkpoint::{CheckpointError, Store};
use bellwether_runtime::journal::{self, Journal};
use bellwether_runtime::noise::Noise;
use bellwether_runtime::order::SampleOrder;
use bellwether_runtime::state::TrainingState;
use bellwether_runtime::trainee::{Layout, Tensor};
use proptest::prelude::*;

const SLOTS: [&str; 2] = ["moment1", "moment2"];

fn layout() -> Layout {
    let tensor = |name: &str, shape: &[usize]| Tensor { name: name.into(), shape: shape.into() };
    Layout { parameters: vec![tensor("a", &[3, 5]), tensor("b", &[7])], state: vec![tensor("mean", &[4])] }
}

fn state(step: u64) -> TrainingState {
    let mut state = TrainingState::zeros(&layout(), SLOTS.len());
    state.step = step;
    state.noise = Noise { signal: 0.1, noise: step as f64 / 3.0 };
    let values =
        state.parameters.iter_mut().chain(state.slots.iter_mut().flatten()).chain(&mut state.model_state);
    for (i, value) in values.enumerate() {
        *value = (i as f32 + step as f32).sin();
    }
    state
}

fn store(folder: &Path) -> Store {
    Store::new(folder.into(), 3, "job a")
}

fn write(store: &Store, step: u64) {
    store.write(&state(step), &layout(), &SLOTS, "class").expect("a folder that can be written");
}

#[test]
fn a_checkpoint_comes_back_bit_for_bit_and_only_the_newest_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    assert!(store.newest(&layout(), &SLOTS).unwrap().is_none());
    (1..=5).for_each(|step| write(&store, step * 10));
    assert_eq!(store.steps(), [50, 40, 30]);
    let loaded = store.newest(&layout(), &SLOTS).unwrap().unwrap();
    assert_eq!(loaded.state, state(50));
    assert!(loaded.skipped.is_empty());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no temporary file is left");
}

#[test]
fn a_damaged_checkpoint_gives_way_to_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    write(&store, 1);
    write(&store, 2);
    let path = store.path(2);
    let whole = fs::read(&path).unwrap();
    // A bit flipped anywhere, or the file cut anywhere: never believed.
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&path, &damaged).unwrap();
        match store.newest(&layout(), &SLOTS) {
            Ok(loaded) => {
                let loaded = loaded.unwrap();
                // Harmless only where the metadata does not decide anything (the kernel class, spaces).
                assert!(loaded.state == state(1) || (loaded.state == state(2) && at < 600), "byte {at}");
                assert_eq!(loaded.skipped.len(), usize::from(loaded.state.step == 1));
            }
            Err(CheckpointError::OtherJob { .. }) => assert!(at < 1200, "byte {at}"),
            Err(error) => panic!("byte {at}: {error}"),
        }
        fs::write(&path, &whole[..at]).unwrap();
        assert_eq!(store.newest(&layout(), &SLOTS).unwrap().unwrap().state, state(1), "cut at {at}");
    }
    fs::write(store.path(1), b"").unwrap();
    fs::write(&path, b"{}").unwrap();
    assert!(matches!(store.newest(&layout(), &SLOTS), Err(CheckpointError::Damaged { .. })));
}

#[test]
fn a_checkpoint_of_another_job_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(&store(folder.path()), 1);
    let other = Store::new(folder.path().into(), 3, "job b");
    assert!(matches!(other.newest(&layout(), &SLOTS), Err(CheckpointError::OtherJob { .. })));
    let mut wider = layout();
    wider.parameters[1].shape = vec![8];
    assert!(matches!(store(folder.path()).newest(&wider, &SLOTS), Err(CheckpointError::OtherJob { .. })));
    assert!(matches!(
        store(folder.path()).newest(&layout(), &["momentum"]),
        Err(CheckpointError::OtherJob { .. })
    ));
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    write(&store, 1);
    fs::create_dir(store.path(2)).unwrap();
    assert!(matches!(store.write(&state(2), &layout(), &SLOTS, ""), Err(CheckpointError::Io { .. })));
    assert_eq!(store.read(1, &layout(), &SLOTS).unwrap(), state(1));
}

fn committed(first: u64, last: u64) -> Line {
    Line { time_s: 0.0, event: Event::Committed { first, last, accumulation: 1 } }
}

#[test]
fn a_journal_survives_a_last_line_that_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.jsonl");
    let mut journal = Journal::open(&path).unwrap();
    journal.write(1.0, &Event::Committed { first: 0, last: 4, accumulation: 1 }).unwrap();
    journal.write(2.0, &Event::RolledBack { to: 3 }).unwrap();
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    assert_eq!(journal::read(&path).unwrap().len(), 1);
    Journal::open(&path)
        .unwrap()
        .write(3.0, &Event::Committed { first: 5, last: 5, accumulation: 1 })
        .unwrap();
    let lines = journal::read(&path).unwrap();
    assert_eq!(lines.iter().map(|l| l.time_s).collect::<Vec<_>>(), [1.0, 3.0]);
    assert_eq!(journal::resumed(&lines).committed, 6);
}

const ORDER: SampleOrder = SampleOrder { samples: 10, batch: 4, virtual_nodes: 2, seed: 7 };

#[test]
fn the_ledger_holds_for_whole_histories_and_for_rollbacks() {
    let lines = [committed(0, 1), committed(2, 6)];
    let ledger = journal::ledger(&lines, ORDER).unwrap();
    assert_eq!((ledger.steps, ledger.samples, ledger.epochs), (7, 24, 2));
    let rolled_back =
        [committed(0, 4), Line { time_s: 0.0, event: Event::RolledBack { to: 2 } }, committed(2, 5)];
    assert_eq!(journal::ledger(&rolled_back, ORDER).unwrap().steps, 6);
}

#[test]
fn the_ledger_finds_what_is_wrong() {
    for lines in [
        vec![committed(1, 2)],
        vec![committed(0, 2), committed(2, 3)],
        vec![committed(0, 2), committed(4, 5)],
    ] {
        assert!(journal::ledger(&lines, ORDER).is_err(), "{lines:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_checkpoint_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), length in any::<u64>()) {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        fs::write(store.path(1), &bytes).unwrap();
        prop_assert!(store.newest(&layout(), &SLOTS).is_err());
        // A header that claims any length.
        let mut claim = length.to_le_bytes().to_vec();
        claim.extend(&bytes);
        fs::write(store.path(1), &claim).unwrap();
        prop_assert!(store.newest(&layout(), &SLOTS).is_err());
    }
}
