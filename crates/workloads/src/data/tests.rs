//! Tests of loading: the split, the pairing of files, and what errors say.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use super::*;

fn no_files(path: &Path) -> io::Result<Vec<u8>> {
    Err(io::Error::new(io::ErrorKind::NotFound, format!("no {}", path.display())))
}

type Open<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

fn load(data: &Data, open: Open<'_>) -> Result<Dataset, InputError> {
    Dataset::load(data, 1, Access::Whole(open))
}

fn digits(held_out: f64) -> Dataset {
    load(&Data::Digits { held_out, order: None }, &no_files).unwrap()
}

#[test]
fn digits_decode_to_what_the_archive_says() {
    let data = digits(0.2);
    assert_eq!((data.count(Part::Training), data.count(Part::HeldOut)), (1438, 359));
    assert_eq!((data.image(), data.classes()), ([1, 8, 8], 10));
    let all: Vec<u64> = (0..1438).collect();
    let batch = data.batch(Part::Training, &all).unwrap();
    assert!(batch.values.iter().all(|value| (0.0..=1.0).contains(value)));
    // First line of the file, wherever the split put it.
    let first = [0.0, 0.0, 0.3125, 0.8125, 0.5625, 0.0625, 0.0, 0.0];
    let held: Vec<u64> = (0..359).collect();
    let held = data.batch(Part::HeldOut, &held).unwrap();
    let found = batch.values.chunks(64).chain(held.values.chunks(64)).any(|row| row[..8] == first);
    assert!(found, "the first digit is in neither part");
}

#[test]
fn parts_are_disjoint_and_cover_all() {
    for share in [0.0, 0.1, 0.5] {
        let data = digits(share);
        let Samples::Table { training, held_out, .. } = &data.samples else { panic!("digits are a table") };
        let all: BTreeSet<u32> = training.iter().chain(held_out).copied().collect();
        assert_eq!(all.len(), 1797);
        assert_eq!(training.len() + held_out.len(), 1797);
        assert_eq!(held_out.len(), (1797.0 * share).round() as usize);
    }
}

#[test]
fn an_index_outside_its_part_is_refused() {
    assert!(digits(0.2).batch(Part::HeldOut, &[359]).unwrap_err().what.contains("359"));
}

#[test]
fn plain_and_packed_files_give_the_same_digest() {
    let (images, labels) = idx::tests::files(30, 2, 2);
    let data = |with_test: bool| Data::Idx {
        images: "images".into(),
        labels: "labels".into(),
        test_images: with_test.then(|| "images".into()),
        test_labels: with_test.then(|| "labels".into()),
        held_out: 0.2,
        streamed: None,
        order: None,
    };
    let plain = |path: &Path| Ok(if path.ends_with("images") { images.clone() } else { labels.clone() });
    let packed = |path: &Path| plain(path).map(|bytes: Vec<u8>| gzip::tests::compress(&bytes));
    let load = |with_test, open: Open<'_>| load(&data(with_test), open).unwrap();
    assert_eq!(load(false, &plain).digest(), load(false, &packed).digest());
    assert_eq!(load(false, &plain).count(Part::HeldOut), 6);
    assert_eq!(load(true, &plain).count(Part::HeldOut), 30);
    assert_ne!(load(true, &plain).digest(), load(false, &plain).digest());
}

#[test]
fn a_missing_file_is_named_with_a_hint() {
    let data = csv("here/x.csv");
    let error = load(&data, &no_files).err().unwrap();
    assert_eq!(error.place, "here/x.csv");
    assert!(error.hint.contains("job file's folder"));
}

#[test]
fn a_single_sample_cannot_be_split() {
    let data = csv("x.csv");
    let error = load(&data, &|_| Ok(b"1,0".to_vec())).err().unwrap();
    assert!(error.what.contains("none is left to train on"), "{error}");
}

/// Numbers between commas, without a header.
fn csv(path: &str) -> Data {
    Data::Csv {
        path: path.into(),
        header: false,
        separator: None,
        label: None,
        classes: Vec::new(),
        scale: 1.0,
        normalise: Normalise::None,
        held_out: 0.2,
        streamed: None,
        order: None,
    }
}

#[test]
fn features_are_normalised_by_the_training_samples() {
    let text: String = (0..10).map(|row| format!("{row},7,{}\n", row % 2)).collect();
    let loaded = |how| {
        let mut data = csv("x.csv");
        let Data::Csv { normalise, .. } = &mut data else { panic!("it is CSV") };
        *normalise = how;
        load(&data, &|_| Ok(text.clone().into_bytes())).unwrap()
    };
    let features = |data: &Dataset, part| {
        let indices: Vec<u64> = (0..data.count(part)).collect();
        data.batch(part, &indices).unwrap().values
    };
    let plain = loaded(Normalise::None);
    let raw: Vec<f64> = features(&plain, Part::Training).iter().step_by(2).map(|v| f64::from(*v)).collect();
    let mean = raw.iter().sum::<f64>() / raw.len() as f64;
    let deviation = (raw.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / raw.len() as f64).sqrt();
    for part in [Part::Training, Part::HeldOut] {
        let standard = features(&loaded(Normalise::Standard), part);
        for (value, before) in standard.chunks(2).zip(features(&plain, part).chunks(2)) {
            let expected = ((f64::from(before[0]) - mean) / deviation) as f32;
            assert_eq!((value[0], value[1]), (expected, 0.0), "a feature that never changes says nothing");
        }
    }
    let range = features(&loaded(Normalise::Range), Part::Training);
    let (low, high) = range.iter().step_by(2).fold((f32::MAX, f32::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
    assert_eq!((low, high), (0.0, 1.0));
}
