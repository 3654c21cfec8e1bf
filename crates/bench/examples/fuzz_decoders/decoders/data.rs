//! Decoders of data sets: their files, in memory and read by place.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bellwether_core::InputError;
use bellwether_core::job::CheckedJob;
use bellwether_core::parse;
use bellwether_runtime::workload::{MicroBatch, Weights, Workload};
use bellwether_workloads::{Files, Ranges, Version, build_from};

use super::{Decoder, decoder};

/// Rows of two numbers and a class.
const ROWS: &[u8] = b"0.5,1,0\n2,-3e-1,1\n\n4,5,1\n\"6\", 7 ,0\n8,9,1\n1,1,0\n2,2,1\n";

/// Three images of 2×2, and their labels.
const IMAGES: &[u8] = b"\0\0\x08\x03\0\0\0\x03\0\0\0\x02\0\0\0\x02abcdefghijkl";
const LABELS: &[u8] = b"\0\0\x08\x01\0\0\0\x03\0\x01\0";

/// Files in memory: one whose name is `labels` has other bytes.
struct Folder {
    bytes: Vec<u8>,
    labels: Vec<u8>,
}

struct Open(Vec<u8>);

impl Folder {
    fn of(&self, path: &Path) -> Vec<u8> {
        if path.ends_with("labels") { self.labels.clone() } else { self.bytes.clone() }
    }
}

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.of(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Ranges>> {
        Ok(Arc::new(Open(self.of(path))))
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(vec!["one".into()])
    }
}

impl Ranges for Open {
    fn version(&self) -> io::Result<Version> {
        Ok(Version { bytes: self.0.len() as u64, modified: (1, 0), number: 1 })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

const NUMBERS: &str = "kind = \"mlp\"\nhidden = [2]";
const LETTERS: &str = "kind = \"transformer\"\ncontext = 4\nwidth = 2\nlayers = 1\nheads = 1";

fn job(model: &str, data: &str, is_streamed: bool) -> CheckedJob {
    let text = format!(
        "name = \"j\"\nsteps = 1\nworkers = 1\n[batch]\nsize = 1\nvirtual_nodes = 1\n[optimizer]\nkind = \"sgd\"\n\
         learning_rate = 0.1\n[model]\n{model}\n[data]\n{data}\nstreamed = {is_streamed}\n"
    );
    parse::job(&text, "job.toml", &[]).expect("a job")
}

/// Opens the files, and reads a sample of them.
fn is_read(job: &CheckedJob, folder: Folder) -> bool {
    let files: Arc<dyn Files> = Arc::new(folder);
    let opened: Result<Box<dyn Workload>, InputError> = build_from(job, &files);
    let Ok(mut workload) = opened else { return false };
    let counts = (workload.layout().parameter_count(), workload.layout().state_count());
    let (mut parameters, mut state) = (vec![0.0; counts.0], vec![0.0; counts.1]);
    workload.initialize(1, &mut parameters, &mut state);
    let (mut gradient, mut left) = (vec![0.0; counts.0], vec![0.0; counts.1]);
    let weights = Weights { parameters: &parameters, state: &state, version: 0 };
    let last = workload.training_samples() - 1;
    let samples = MicroBatch { samples: &[last] };
    workload.gradient(weights, samples, 7, &mut gradient, &mut left).is_ok()
}

/// A tar archive of a record: its label, and its bytes.
fn archive() -> Vec<u8> {
    let file = |name: &str, content: &[u8]| {
        let mut header = vec![0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header.extend_from_slice(content);
        header.resize(header.len().next_multiple_of(512), 0);
        header
    };
    let records = (0..4).map(|number| {
        [
            file(&format!("{number}.bin"), &[number, 2, 3, 4]),
            file(&format!("{number}.cls"), &[b'0' + number % 2]),
        ]
    });
    records.flatten().flatten().chain([0; 1024]).collect()
}

pub(super) fn all() -> Vec<Decoder> {
    let csv = "kind = \"csv\"\npath = \"rows\"";
    let idx = "kind = \"idx\"\nimages = \"images\"\nlabels = \"labels\"";
    let records = "kind = \"records\"\npath = \"records\"\nshape = [1, 2, 2]";
    let tokens = "kind = \"tokens\"\npath = \"tokens\"\nvocabulary = 300";
    let whole = |bytes: &[u8]| Folder { bytes: bytes.to_vec(), labels: LABELS.to_vec() };
    let of = |name, share, right: Vec<Vec<u8>>, job: CheckedJob| {
        decoder(name, share, right, move |bytes| is_read(&job, whole(bytes)))
    };
    let rows = vec![ROWS.to_vec()];
    let images = vec![IMAGES.to_vec()];
    let text = vec![b"a text of some words, and of some more words than these".to_vec()];
    let words: Vec<u8> = (0u16..60).flat_map(|token| (token * 4).to_le_bytes()).collect();
    let labels_of = job(NUMBERS, idx, false);
    vec![
        of("rows in memory", 0.3, rows.clone(), job(NUMBERS, csv, false)),
        of("rows by place", 0.3, rows, job(NUMBERS, csv, true)),
        of("images in memory", 0.3, images.clone(), job(NUMBERS, idx, false)),
        of("images by place", 0.3, images, job(NUMBERS, idx, true)),
        decoder("labels of images", 0.3, vec![LABELS.to_vec()], move |bytes| {
            let folder = Folder { bytes: IMAGES.to_vec(), labels: bytes.to_vec() };
            is_read(&labels_of, folder)
        }),
        of("archives of records in memory", 0.3, vec![archive()], job(NUMBERS, records, false)),
        of("archives of records by place", 0.3, vec![archive()], job(NUMBERS, records, true)),
        of("tokens", 0.3, vec![words], job(LETTERS, tokens, true)),
        of("texts", 0.3, text, job(LETTERS, "kind = \"text\"\npath = \"text\"", true)),
    ]
}
