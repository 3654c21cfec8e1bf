//! Samples in files against the same samples in memory: the same split, the same digest, the same bits.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bellwether_core::InputError;
use bellwether_core::job::{Data, Normalise, Separator, Shards, TokenWidth};
use proptest::prelude::*;

use super::super::source::{Files, Ranges, Version};
use super::super::{Access, Dataset, Part, gzip, idx, records};

/// A folder in memory, which counts what is read.
#[derive(Default)]
pub(in crate::data) struct Folder {
    files: Mutex<BTreeMap<String, (Vec<u8>, i64)>>,
    kept: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Bytes that were read.
    read: AtomicU64,
}

struct Open(Arc<Folder>, String);

impl Folder {
    /// With these files.
    pub(in crate::data) fn with(files: &[(&str, &[u8])]) -> Arc<Folder> {
        let folder = Folder::default();
        files.iter().for_each(|(name, bytes)| folder.write(name, bytes));
        Arc::new(folder)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let mut files = self.files.lock().unwrap();
        let version = files.get(name).map_or(0, |(_, version)| version + 1);
        files.insert(name.into(), (bytes.to_vec(), version));
    }

    fn get(&self, name: &str) -> io::Result<(Vec<u8>, i64)> {
        self.files.lock().unwrap().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// What the trait asks to share.
struct Shared(Arc<Folder>);

impl Files for Shared {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.get(path.to_str().unwrap())?.0)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Ranges>> {
        let name = path.to_str().unwrap().to_owned();
        self.0.get(&name)?;
        Ok(Arc::new(Open(Arc::clone(&self.0), name)))
    }

    fn list(&self, _folder: &Path) -> io::Result<Vec<String>> {
        Ok(self.0.files.lock().unwrap().keys().rev().cloned().collect())
    }

    fn kept(&self, name: &str) -> Option<Vec<u8>> {
        self.0.kept.lock().unwrap().get(name).cloned()
    }

    fn keep(&self, name: &str, bytes: &[u8]) {
        self.0.kept.lock().unwrap().insert(name.into(), bytes.to_vec());
    }
}

impl Ranges for Open {
    fn version(&self) -> io::Result<Version> {
        let (bytes, version) = self.0.get(&self.1)?;
        Ok(Version { bytes: bytes.len() as u64, modified: (version, 0), number: 1 })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let (bytes, _) = self.0.get(&self.1)?;
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        // Systems may give less than was asked for.
        let count = rest.len().min(out.len()).min(5000);
        out[..count].copy_from_slice(&rest[..count]);
        self.0.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A table without headers, to be changed.
pub(in crate::data) fn csv(path: impl Into<Shards>) -> Data {
    Data::Csv {
        path: path.into(),
        header: false,
        separator: None,
        label: None,
        classes: Vec::new(),
        scale: 1.0,
        normalise: Normalise::None,
        held_out: 0.2,
        streamed: Some(true),
        order: None,
    }
}

/// Loads it as the job says.
pub(in crate::data) fn load(folder: &Arc<Folder>, data: &Data) -> Result<Dataset, InputError> {
    let files: Arc<dyn Files> = Arc::new(Shared(Arc::clone(folder)));
    Dataset::load(data, 4, Access::Files(&files))
}

fn refused(folder: &Arc<Folder>, data: &Data) -> String {
    load(folder, data).err().unwrap().to_string()
}

fn in_memory(mut data: Data) -> Data {
    match &mut data {
        Data::Csv { streamed, .. }
        | Data::Idx { streamed, .. }
        | Data::Cifar10 { streamed, .. }
        | Data::Text { streamed, .. }
        | Data::Tokens { streamed, .. }
        | Data::Records { streamed, .. } => *streamed = Some(false),
        _ => panic!("it lies in files"),
    }
    data
}

/// All that a network sees of a set.
fn seen(set: &Dataset) -> impl PartialEq + std::fmt::Debug + use<> {
    let all = |part| {
        let indices: Vec<u64> = (0..set.count(part)).rev().collect();
        let batch = set.batch(part, &indices).unwrap();
        let bits: Vec<u32> = batch.values.iter().map(|value| value.to_bits()).collect();
        (bits, batch.tokens, batch.targets)
    };
    (all(Part::Training), all(Part::HeldOut), set.image(), set.classes(), set.digest().to_owned())
}

/// The set of `streamed` is that of `whole` in memory, when it is opened first and when it was known before.
#[track_caller]
fn same(folder: &Arc<Folder>, streamed: &Data, whole: Data) {
    let expected = seen(&load(folder, &in_memory(whole)).unwrap());
    let fresh = load(folder, streamed).unwrap();
    assert!(fresh.is_streamed());
    assert_eq!(seen(&fresh), expected);
    assert_eq!(folder.kept.lock().unwrap().len(), 1, "what was found out is kept");
    assert_eq!(seen(&load(folder, streamed).unwrap()), expected, "as it was known before");
}

/// Any line of a table, and its end.
fn line() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        (-999i32..999).prop_map(|n| n.to_string()),
        any::<f32>().prop_map(|n| { if n.is_finite() { n.to_string() } else { "0.5".into() } })
    ];
    let field = (number, 0..4u8).prop_map(|(number, quoted)| match quoted {
        0 => format!("\"{number}\""),
        1 => format!(" {number} "),
        _ => number,
    });
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\n\n  \n"), Just("\r")];
    let long = prop_oneof![9 => Just(0usize), 1 => Just(3000)];
    (field.clone(), field, 0..5u32, end, long)
        .prop_map(|(a, b, class, end, spaces)| format!("{a},{b},{class}{}{end}", " ".repeat(spaces)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tables_in_files_are_those_in_memory(
        lines in prop::collection::vec(line(), 3..90), cuts in prop::collection::vec(0usize..90, 0..3),
        header: bool, how in 0..3u8, share in 0.0..0.6, plain: bool,
    ) {
        let mut lines = lines;
        if plain {
            // Such lines are told apart without a reader.
            lines.iter_mut().for_each(|line| line.retain(|letter| letter != '"'));
        }
        let title = if header { "one,two,class\n" } else { "" };
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(lines.len())).collect();
        cuts.extend([0, lines.len()]);
        cuts.sort_unstable();
        cuts.dedup();
        let folder = Folder::with(&[("whole.csv", format!("{title}{}", lines.concat()).as_bytes())]);
        for (number, cut) in cuts.windows(2).enumerate() {
            let part = format!("{title}{}", lines[cut[0]..cut[1]].concat());
            folder.write(&format!("part-{number}.csv"), part.as_bytes());
        }
        let table = |path: &str| {
            let mut data = csv(path);
            let Data::Csv { header: with, normalise, held_out, .. } = &mut data else { unreachable!() };
            *with = header;
            *normalise = [Normalise::None, Normalise::Standard, Normalise::Range][usize::from(how)];
            *held_out = share;
            data
        };
        prop_assume!((lines.len() as f64 * share).round() < lines.len() as f64);
        same(&folder, &table("part-*.csv"), table("whole.csv"));
    }

    #[test]
    fn tokens_in_files_are_those_in_memory(
        tokens in prop::collection::vec(0u16..700, 30..200), cut in 0usize..200, share in 0.2..0.5, wide: bool,
    ) {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| match wide {
            true => u32::from(*token).to_le_bytes().to_vec(),
            false => token.to_le_bytes().to_vec(),
        }).collect();
        let cut = cut.min(tokens.len()) * if wide { 4 } else { 2 };
        let folder = Folder::with(&[("a", &bytes[..cut]), ("b", &bytes[cut..]), ("whole", &bytes)]);
        let data = |path: Shards| Data::Tokens {
            path,
            token: if wide { TokenWidth::U32 } else { TokenWidth::U16 },
            vocabulary: 700,
            held_out: share,
            streamed: Some(true),
            order: None,
        };
        same(&folder, &data(vec!["a".into(), "b".into()].into()), data("whole".into()));
    }
}

#[test]
fn images_in_files_are_those_in_memory() {
    let (images, labels) = idx::tests::files(30, 2, 3);
    let folder = Folder::with(&[
        ("a-images", &images),
        ("a-labels", &labels),
        ("b-images", &images),
        ("b-labels", &labels),
    ]);
    let data = |names: &[&str], tests: Option<&str>, held_out| {
        let of =
            |what: &str| Shards::from(names.iter().map(|n| format!("{n}-{what}").into()).collect::<Vec<_>>());
        Data::Idx {
            images: of("images"),
            labels: of("labels"),
            test_images: tests.map(|name| Shards::from(&*format!("{name}-images"))),
            test_labels: tests.map(|name| Shards::from(&*format!("{name}-labels"))),
            held_out,
            streamed: Some(true),
            order: None,
        }
    };
    same(&folder, &data(&["a", "b"], None, 0.2), data(&["a", "b"], None, 0.2));
    folder.kept.lock().unwrap().clear();
    same(&folder, &data(&["a"], Some("b"), 0.2), data(&["a"], Some("b"), 0.2));
    let uneven = Data::Idx {
        images: "a-images".into(),
        labels: "*-labels".into(),
        test_images: None,
        test_labels: None,
        held_out: 0.2,
        streamed: Some(true),
        order: None,
    };
    assert!(refused(&folder, &uneven).contains("1 files of images are named, and 2 of labels"));
}

#[test]
fn batches_and_records_in_files_are_those_in_memory() {
    let batch: Vec<u8> =
        (0..3073 * 12).map(|place: u32| if place.is_multiple_of(3073) { 3 } else { place as u8 }).collect();
    let folder = Folder::with(&[
        ("one.bin", &batch[..3073 * 5]),
        ("two.bin", &batch[3073 * 5..]),
        ("all.bin", &batch),
    ]);
    let cifar = |files: &[&str]| Data::Cifar10 {
        files: files.iter().map(Into::into).collect(),
        test_files: Vec::new(),
        held_out: 0.3,
        streamed: Some(true),
        order: None,
    };
    same(&folder, &cifar(&["one.bin", "t*o.bin"]), cifar(&["all.bin"]));
    let records = |path: &str| Data::Records {
        path: path.into(),
        shape: None,
        held_out: 0.25,
        streamed: Some(true),
        order: None,
    };
    let folder = Folder::with(&[("a.tar", &records::tests::archive(40))]);
    same(&folder, &records("a.tar"), records("a.tar"));
}

#[test]
fn what_is_known_of_files_spares_reading_them() {
    let lines: String = (0..5000).map(|row| format!("{row},{},{}\n", row * 3, row % 4)).collect();
    let folder = Folder::with(&[("x.csv", lines.as_bytes())]);
    let said = || {
        let mut data = csv("x.csv");
        let Data::Csv { separator, .. } = &mut data else { unreachable!() };
        *separator = Some(Separator::Comma);
        data
    };
    load(&folder, &said()).unwrap();
    let before = folder.read.swap(0, Ordering::Relaxed);
    assert!(before > 2 * lines.len() as u64, "{before}");
    let again = load(&folder, &said()).unwrap();
    let known = folder.read.swap(0, Ordering::Relaxed);
    assert!(known < lines.len() as u64 / 2, "{known} of {}", lines.len());
    again.batch(Part::Training, &[7]).unwrap();
    assert!(folder.read.load(Ordering::Relaxed) < 10_000, "one sample is read with its neighbours");
    // Damaged, it is found out again.
    folder.kept.lock().unwrap().values_mut().for_each(|bytes| bytes[20] ^= 1);
    assert_eq!(load(&folder, &said()).unwrap().digest(), again.digest());
    // Another file of the same name and length.
    folder.write("x.csv", lines.replace("4999", "4998").as_bytes());
    assert_ne!(load(&folder, &said()).unwrap().digest(), again.digest());
}

#[test]
fn a_file_that_changes_gives_no_sample_any_more() {
    let lines: String = (0..100).map(|row| format!("{row},{}\n", row % 2)).collect();
    for change in [&lines[..lines.len() / 2], &lines.replace('7', "8"), ""] {
        let folder = Folder::with(&[("a/x.csv", lines.as_bytes())]);
        let set = load(&folder, &csv("a/x.csv")).unwrap();
        set.batch(Part::Training, &[3]).unwrap();
        folder.write("a/x.csv", change.as_bytes());
        let error = set.batch(Part::Training, &[3]).unwrap_err();
        assert!(error.is_user && error.what.contains("a/x.csv: has changed"), "{error}");
    }
    let folder = Folder::with(&[("x.csv", lines.as_bytes())]);
    let set = load(&folder, &csv("x.csv")).unwrap();
    folder.files.lock().unwrap().clear();
    assert!(set.batch(Part::Training, &[3]).unwrap_err().what.contains("x.csv: cannot be read"));
}

#[test]
fn what_cannot_be_read_by_index_is_refused_with_a_way_out() {
    let lines = "1,0\n2,1\n3,0\n4,1\n5,1\n";
    let packed = gzip::tests::compress(lines.as_bytes());
    let files: [(&str, &[u8]); 3] =
        [("x.csv.gz", &packed), ("one.csv", lines.as_bytes()), ("two.csv", b"1,2,0\n")];
    let folder = Folder::with(&files);
    assert!(refused(&folder, &csv("x.csv.gz")).contains("x.csv.gz: is packed by gzip"));
    assert!(!load(&folder, &in_memory(csv("x.csv.gz"))).unwrap().is_streamed());
    assert!(refused(&folder, &csv("no-*.csv")).contains("no-*.csv: describes no file"));
    assert!(refused(&folder, &csv("none.csv")).contains("none.csv: cannot be read"));
    let uneven = csv(vec!["one.csv".into(), "two.csv".into()]);
    for data in [in_memory(uneven.clone()), uneven] {
        assert!(refused(&folder, &data).contains("two.csv:1:2: has 3 columns, the lines before it 2"));
    }
    let open = |path: &Path| Ok(folder.get(path.to_str().unwrap())?.0);
    let error = Dataset::load(&csv("one.csv"), 4, Access::Whole(&open)).err().unwrap();
    assert_eq!(error.place, "data.streamed");
}
