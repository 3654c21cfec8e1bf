//! Checkpoints in slices, in a folder: what is read is what was written, by whatever number of workers, and what is
//! removed.

use std::fs;
use std::path::Path;

use bellwether_core::job::CheckpointUrl;
use bellwether_runtime::checkpoint::CheckpointError;
use bellwether_runtime::noise::Noise;
use bellwether_runtime::objects::{self, StoreError};
use bellwether_runtime::slices::{self, Manifest, Shelf, Slice, Subject};
use bellwether_runtime::state::{TrainingState, hex};
use bellwether_runtime::workload::{Layout, Tensor};
use proptest::prelude::*;

const SLOTS: [&str; 2] = ["first", "second"];

fn url(folder: &Path) -> CheckpointUrl {
    CheckpointUrl::Folder(folder.into())
}

fn shelf(folder: &Path, keep: usize) -> Shelf {
    Shelf::open(url(folder), keep, "identity").expect("a folder needs no environment")
}

fn layout(parameters: usize) -> Layout {
    let tensor = |name: &str, length| Tensor { name: name.into(), shape: vec![length] };
    Layout { parameters: vec![tensor("w", parameters), tensor("b", 3)], state: vec![tensor("m", 5)] }
}

fn state(layout: &Layout, step: u64) -> TrainingState {
    let mut state = TrainingState::zeros(layout, SLOTS.len());
    let mut next = step as f32;
    let mut fill = |values: &mut Vec<f32>| {
        for value in values {
            next += 0.5;
            *value = next;
        }
    };
    fill(&mut state.parameters);
    state.slots.iter_mut().for_each(&mut fill);
    fill(&mut state.model_state);
    (state.step, state.noise) = (step, Noise { signal: 0.25, noise: 3.0 });
    state
}

/// Writes the slices that this many workers would; the manifest over them.
fn write(folder: &Path, state: &TrainingState, layout: &Layout, workers: u64, identity: &str) -> Manifest {
    let objects = objects::open(&url(folder)).expect("a folder");
    let length = slices::length(state);
    let count = slices::count(length, workers);
    let mut values = Vec::new();
    let written = (0..count).map(|index| {
        let range = slices::range(length, index, count);
        slices::copy(state, range.clone(), &mut values);
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        let digest = hex(blake3::hash(bytes).as_bytes());
        let slice = Slice { index, offset: 4 * range.start, bytes: bytes.len() as u64, digest };
        let key = format!("{}/{}", slices::folder_of(state.step), slice.name(count as usize));
        objects.put(&key, bytes).expect("it can be written");
        slice
    });
    let slices = written.collect();
    let subject = Subject {
        identity: &slices::identity_hash(identity),
        run: "run",
        step: state.step,
        kernel_class: "class",
        noise: state.noise,
        layout,
        slots: &SLOTS.map(String::from),
    };
    Manifest::new(&subject, slices)
}

fn store(shelf: &Shelf, folder: &Path, step: u64, workers: u64) {
    let layout = layout(40);
    let manifest = write(folder, &state(&layout, step), &layout, workers, "identity");
    shelf.commit(&manifest).expect("it can be written");
    shelf.prune(&manifest).expect("it can be removed");
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<String> = entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path.display().to_string()] })
        .collect();
    files.sort();
    files
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn what_any_number_of_workers_wrote_is_read_back(parameters in 0..70usize, workers in 1..12u64) {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = layout(parameters);
        let state = state(&layout, 9);
        let shelf = shelf(folder.path(), 1);
        shelf.commit(&write(folder.path(), &state, &layout, workers, "identity")).expect("it can be written");
        let (read, skipped) = shelf.newest_state(&layout, &SLOTS).expect("it can be read").expect("it is there");
        prop_assert_eq!(read, state);
        prop_assert!(skipped.is_empty());
    }
}

#[test]
fn what_is_not_kept_goes_and_what_is_on_its_way_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = shelf(folder.path(), 2);
    shelf.try_out("run", "name").expect("it is a folder");
    let layout = layout(40);
    for (step, workers) in [(1, 2), (2, 3), (4, 1)] {
        store(&shelf, folder.path(), step, workers);
    }
    assert_eq!(shelf.steps().expect("a list"), [4, 2]);
    // Of a checkpoint that never became one, of the next that may, and of an earlier try of the same step.
    write(folder.path(), &state(&layout, 3), &layout, 2, "identity");
    write(folder.path(), &state(&layout, 8), &layout, 2, "identity");
    write(folder.path(), &state(&layout, 6), &layout, 5, "identity");
    fs::write(folder.path().join("step-000000000006/.0.part"), "half").expect("it can be written");
    store(&shelf, folder.path(), 6, 2);
    assert_eq!(shelf.steps().expect("a list"), [6, 4]);
    let left = files(folder.path());
    let of = |step: u64| left.iter().filter(|file| file.contains(&format!("step-{step:012}/"))).count();
    assert_eq!([1, 2, 3, 4, 6, 8].map(of), [0, 0, 0, 2, 3, 2], "{left:?}");
    assert!(left.iter().any(|file| file.ends_with("run.json")));
}

#[test]
fn without_all_slices_there_is_no_manifest() {
    let folder = tempfile::tempdir().expect("a folder");
    let (shelf, layout) = (shelf(folder.path(), 2), layout(40));
    let manifest = write(folder.path(), &state(&layout, 5), &layout, 3, "identity");
    let slice = files(folder.path()).pop().expect("there are three");
    let bytes = fs::read(&slice).expect("it is there");
    for cut in [None, Some(&bytes[..8])] {
        fs::remove_file(&slice).expect("it is there");
        if let Some(cut) = cut {
            fs::write(&slice, cut).expect("it can be written");
        }
        let error = shelf.commit(&manifest).expect_err("a slice is missing");
        assert!(
            matches!(&error, StoreError::Failed { what, .. } if what.contains("not the same for all nodes")),
            "{error}"
        );
        assert!(shelf.steps().expect("a list").is_empty());
        fs::write(&slice, &bytes).expect("it can be written");
    }
    shelf.commit(&manifest).expect("now they are there");
}

#[test]
fn what_is_damaged_is_skipped_and_what_is_anothers_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (shelf, layout) = (shelf(folder.path(), 3), layout(40));
    store(&shelf, folder.path(), 1, 2);
    store(&shelf, folder.path(), 2, 2);
    let slice = files(folder.path()).into_iter().rev().find(|file| file.contains("slice-")).expect("a slice");
    let mut bytes = fs::read(&slice).expect("it is there");
    bytes[3] ^= 4;
    fs::write(&slice, bytes).expect("it can be written");
    let (read, skipped) = shelf.newest_state(&layout, &SLOTS).expect("one can").expect("it is there");
    assert_eq!((read.step, skipped.len()), (1, 1));
    assert!(skipped[0].to_string().contains("digest"), "{skipped:?}");
    let other = layout.parameters[0].shape[0] + 1;
    let error = shelf.newest_state(&self::layout(other), &SLOTS).expect_err("it is of another model");
    assert!(matches!(&error, CheckpointError::OtherJob { what, .. } if what.contains("[40]")), "{error}");
    let other = Shelf::open(url(folder.path()), 1, "another").expect("a folder");
    assert!(matches!(other.newest_state(&layout, &SLOTS), Err(CheckpointError::OtherJob { .. })));
}

#[test]
fn the_newest_checkpoint_of_the_job_is_found_among_all_runs() {
    let root = tempfile::tempdir().expect("a folder");
    let layout = layout(40);
    assert_eq!(slices::newest_run(&url(root.path()), "identity"), Ok(None));
    for (run, step, identity) in [("a-1", 3, "identity"), ("a-2", 7, "identity"), ("b-1", 9, "another")] {
        let folder = root.path().join(run);
        let manifest = write(&folder, &state(&layout, step), &layout, 2, identity);
        Shelf::open(url(&folder), 1, identity)
            .expect("a folder")
            .commit(&manifest)
            .expect("it can be written");
    }
    let found = slices::newest_run(&url(root.path()), "identity");
    assert_eq!(found, Ok(Some((url(&root.path().join("a-2")), 7))));
    let one = root.path().join("a-1");
    assert_eq!(slices::newest_run(&url(&one), "identity"), Ok(Some((url(&one), 3))));
    assert_eq!(slices::newest_run(&url(&root.path().join("nowhere")), "identity"), Ok(None));
}
