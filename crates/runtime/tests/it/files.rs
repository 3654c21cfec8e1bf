//! What a run leaves on disk: checkpoints that survive damage, journals that survive a cut.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use bellwether_core::record::{Event, Line};
use bellwether_runtime::checkpoint::{CheckpointError, Store, read_weights};
use bellwether_runtime::journal::{self, Journal, RunHistory};
use bellwether_runtime::noise::Noise;
use bellwether_runtime::private;
use bellwether_runtime::state::TrainingState;
use bellwether_runtime::workload::{Layout, Tensor};
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
    store.prune();
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
fn weights_are_taken_by_name_by_any_job() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    write(&store, 1);
    let (whole, path) = (layout(), store.path(1));
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let (parameters, mean) = read_weights(&path, &whole).unwrap();
    assert_eq!(bits(&parameters), bits(&state(1).parameters));
    assert_eq!(mean.map(|mean| bits(&mean)), Some(bits(&state(1).model_state)));
    // A part of the model, whose state is another.
    let of = |name: &str, shape: &[usize]| Tensor { name: name.into(), shape: shape.into() };
    let part = Layout { parameters: vec![of("b", &[7])], state: vec![of("variance", &[4])] };
    let (parameters, state_of_part) = read_weights(&path, &part).unwrap();
    assert_eq!(bits(&parameters), bits(&state(1).parameters[15..]));
    assert_eq!(state_of_part, None);
    for (name, shape, what) in [("c", [7], "no tensor `parameters/c`"), ("b", [8], "has shape [7]")] {
        let other = Layout { parameters: vec![of(name, &shape)], state: Vec::new() };
        let error = read_weights(&path, &other).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    fs::write(&path, &fs::read(&path).unwrap()[..90]).unwrap();
    assert!(read_weights(&path, &whole).unwrap_err().contains("is not a checkpoint"));
}

#[test]
fn a_checkpoint_that_comes_late_stays_until_it_is_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    [20, 30, 40].iter().for_each(|step| write(&store, *step));
    let (path, _) = store.write(&state(10), &layout(), &SLOTS, "class").unwrap();
    assert!(path.exists(), "it can be linked until then");
    store.prune();
    assert_eq!(store.steps(), [40, 30, 20]);
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
    for at in (0..whole.len()).filter(|at| *at < 1200 || at % 13 == 0) {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&path, &damaged).unwrap();
        match store.newest(&layout(), &SLOTS) {
            Ok(loaded) => {
                let loaded = loaded.unwrap();
                // The spaces that fill the header up decide nothing.
                assert!(loaded.state == state(1) || whole[at] == b' ', "byte {at}");
                assert_eq!(loaded.skipped.len(), usize::from(loaded.state.step == 1));
            }
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

/// Changes the metadata of a checkpoint, as only a test does.
fn rewrite(path: &Path, change: impl Fn(&mut std::collections::HashMap<String, String>)) {
    let bytes = fs::read(path).expect("a checkpoint of ours");
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("a checkpoint of ours");
    let mut metadata = header.metadata().clone().expect("a checkpoint of ours");
    change(&mut metadata);
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("a checkpoint of ours");
    fs::write(path, safetensors::serialize(tensors.tensors(), Some(metadata)).expect("a checkpoint of ours"))
        .expect("a checkpoint of ours");
}

#[test]
fn a_header_that_is_not_as_it_was_written_is_damage_and_no_other_job() {
    for key in ["identity", "kernel_class", "step", "run", "digest", "format"] {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path()).of_run("r1");
        write(&store, 1);
        write(&store, 2);
        rewrite(&store.path(2), |metadata| drop(metadata.insert(key.into(), "other".into())));
        let loaded = store.newest(&layout(), &SLOTS).unwrap().unwrap();
        assert_eq!(loaded.state, state(1), "{key}");
        assert!(matches!(loaded.skipped.as_slice(), [CheckpointError::Damaged { .. }]), "{key}");
    }
}

#[test]
fn a_checkpoint_of_release_0_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let unsealed = |metadata: &mut std::collections::HashMap<String, String>| {
        metadata.insert("format".into(), "bellwether 1".into());
        metadata.remove("run");
        metadata.remove("seal");
    };
    for step in [1, 2] {
        write(&store, step);
        rewrite(&store.path(step), unsealed);
    }
    for run in ["", "r1"] {
        let loaded = store.clone().of_run(run).newest(&layout(), &SLOTS).unwrap().unwrap();
        assert_eq!((loaded.state, loaded.kernel_class.as_str()), (state(2), "class"));
    }
    // Without a seal damage cannot be told from another job: the one before is as good as ever.
    rewrite(&store.path(2), |metadata| drop(metadata.insert("identity".into(), "other".into())));
    assert_eq!(store.newest(&layout(), &SLOTS).unwrap().unwrap().state, state(1));
}

#[test]
fn runs_that_share_a_folder_neither_use_nor_remove_each_others_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["r1", "r2"].map(|run| store(folder.path()).of_run(run));
    (10..13).for_each(|step| write(&other, step));
    (1..6).for_each(|step| write(&one, step));
    assert_eq!(one.steps(), [12, 11, 10, 5, 4, 3], "the newest three of each");
    let loaded = one.newest(&layout(), &SLOTS).unwrap().unwrap();
    assert_eq!((loaded.state, loaded.skipped.len()), (state(5), 3));
    assert!(loaded.skipped.iter().all(|e| matches!(e, CheckpointError::OtherRun { run, .. } if run == "r2")));
    assert_eq!(other.newest(&layout(), &SLOTS).unwrap().unwrap().state, state(12));
    assert_eq!(one.newest_run().as_deref(), Some("r2"));
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
    assert_eq!(lines.iter().collect::<RunHistory>().committed(), 6);
}

/// Ten samples, or `samples`, in batches of four.
fn task(training_samples: u64, fingerprint: &str) -> Line {
    let event = Event::TaskKnown {
        fingerprint: fingerprint.into(),
        training_samples,
        held_out_samples: 0,
        parameters: 1,
        total_steps: 100,
        batch: 4,
        virtual_nodes: 2,
    };
    Line { time_s: 0.0, event }
}

fn line(event: Event) -> Line {
    Line { time_s: 0.0, event }
}

#[test]
fn the_ledger_holds_for_whole_histories_and_for_rollbacks() {
    let lines = [task(10, "a"), committed(0, 1), committed(2, 6)];
    let ledger = journal::ledger(&lines, 7).unwrap();
    assert_eq!((ledger.steps, ledger.samples, ledger.epochs), (7, 24, 2));
    let rolled_back = [task(10, "a"), committed(0, 4), line(Event::RolledBack { to: 2 }), committed(2, 5)];
    assert_eq!(journal::ledger(&rolled_back, 7).unwrap().steps, 6);
}

#[test]
fn the_ledger_proves_no_epoch_of_two_data_sets() {
    // Epochs of three steps of ten samples each, then of two steps of eight.
    let lines = [
        task(10, "a"),
        committed(0, 4),
        line(Event::RolledBack { to: 4 }),
        task(8, "b"),
        committed(4, 8),
        task(8, "b"),
        committed(9, 9),
    ];
    let ledger = journal::ledger(&lines, 7).unwrap();
    let segments: Vec<_> = ledger.segments.iter().map(|s| (s.first, s.last, s.epochs)).collect();
    assert_eq!(segments, [(0, 3, 1), (4, 9, 3)]);
    assert_eq!((ledger.steps, ledger.epochs, ledger.samples), (10, 4, 10 + 4 + 6 * 4));
    assert_eq!(ledger.segments[1].fingerprint, "b");
}

#[test]
fn steps_that_a_checkpoint_alone_tells_of_are_not_proven() {
    let found = line(Event::FoundInCheckpoint { first: 2, last: 3 });
    let lines = [task(10, "a"), committed(0, 1), found, committed(2, 3), committed(4, 8)];
    let ledger = journal::ledger(&lines, 7).unwrap();
    let segments: Vec<_> = ledger.segments.iter().map(|s| (s.first, s.last, s.is_proven)).collect();
    assert_eq!(segments, [(0, 1, true), (2, 3, false), (4, 8, true)]);
    assert_eq!((ledger.steps, ledger.epochs), (9, 1));
}

#[test]
fn the_ledger_finds_what_is_wrong() {
    for lines in [
        vec![task(10, "a"), committed(1, 2)],
        vec![task(10, "a"), committed(0, 2), committed(2, 3)],
        vec![task(10, "a"), committed(0, 2), committed(4, 5)],
        vec![committed(0, 2)],
    ] {
        assert!(journal::ledger(&lines, 7).is_err(), "{lines:?}");
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

#[test]
fn no_other_user_may_look_into_what_is_made() {
    let place = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let deep = place.path().join("a/b");
    private::folder(&deep).unwrap();
    assert_eq!((mode(&deep), mode(deep.parent().unwrap())), (0o700, 0o700));
    private::own_folder(&deep).unwrap();
    private::file(&deep.join("file")).unwrap();
    assert_eq!(mode(&deep.join("file")), 0o600);
    fs::set_permissions(&deep, Permissions::from_mode(0o755)).unwrap();
    private::folder(&deep).unwrap();
    assert!(private::own_folder(&deep).is_err(), "others may look into it, and it was there before");
    private::restrict(&deep).unwrap();
    private::is_own(&deep).unwrap();
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&deep, &link).unwrap();
    assert!(private::is_own(&link).is_err());
}
