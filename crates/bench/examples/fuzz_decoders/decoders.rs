//! The decoders, each with right messages and its share of the inputs.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use bellwether_runtime::channel::{Cipher, Token, fuzz};
use bellwether_runtime::checkpoint::Store;
use bellwether_runtime::collective::fuzz::{Hearing, Speaker};
use bellwether_runtime::control::convert::{read_from_worker, read_to_worker, read_workload};
use bellwether_runtime::control::generated as wire;
use bellwether_runtime::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Stamp};
use bellwether_runtime::noise::Noise;
use bellwether_runtime::parameters::wire as parameters;
use bellwether_runtime::slices::{Manifest, Slice, Subject};
use bellwether_runtime::state::TrainingState;
use bellwether_runtime::workload::{Layout, Tensor};
use bellwether_runtime::{journal, metrics, sharding, transfer};
use prost::Message as _;

mod data;
mod machines;
mod slurm;
mod texts;

/// What reads bytes of others.
pub(crate) struct Decoder {
    pub(crate) name: &'static str,
    /// Of all inputs, relative to others: what is quick gets more.
    pub(crate) share: f64,
    /// Messages that it understands.
    pub(crate) right: Vec<Vec<u8>>,
    /// Whether it understands an input.
    pub(crate) read: Read,
}

/// See [`Decoder::read`].
type Read = Box<dyn Fn(&[u8]) -> bool>;

fn decoder(
    name: &'static str,
    share: f64,
    right: Vec<Vec<u8>>,
    read: impl Fn(&[u8]) -> bool + 'static,
) -> Decoder {
    Decoder { name, share, right, read: Box::new(read) }
}

pub(crate) fn decoders() -> Vec<Decoder> {
    let parts = [
        greetings(),
        data_plane(),
        exchanges(),
        control_plane(),
        files(),
        texts::all(),
        slurm::all(),
        machines::all(),
        data::all(),
    ];
    parts.into_iter().flatten().collect()
}

/// What comes before anybody has proved anything, and the records that follow.
fn greetings() -> Vec<Decoder> {
    let token = Token::parse(&"5a".repeat(32)).expect("64 digits").with_cipher(Cipher::Aes256Gcm);
    let [first, second, third] = [token.clone(), token.clone(), token.clone()];
    let hello = fuzz::local_hello(&token);
    // An admitted dialer's last message depends on the listener's: these are understood but for it.
    let halves = vec![fuzz::hello(&token), hello.clone()];
    let records =
        vec![fuzz::sealed(&[b"one", b"another"]), fuzz::sealed(&[&[1; 700]]), fuzz::sealed(&[b"", b"x"])];
    let tokens =
        vec!["5a".repeat(32).into_bytes(), format!("{} aes-256-gcm\n", "c3".repeat(32)).into_bytes()];
    vec![
        unfinished("greetings at a listener", 1.5, halves.clone(), move |bytes| {
            fuzz::is_admitted(&first, false, bytes)
        }),
        decoder("greetings at a Unix socket", 1.5, vec![hello], move |bytes| {
            fuzz::is_admitted(&second, true, bytes)
        }),
        unfinished("answers to a dialer", 0.5, halves, move |bytes| fuzz::is_believed(&third, bytes)),
        decoder("records", 8.0, records, |bytes| fuzz::opened(bytes) > 0),
        decoder("token files", 12.0, tokens, |bytes| text(bytes, |text| Token::parse(text).is_some())),
    ]
}

/// A decoder to which no message is right by itself.
fn unfinished(
    name: &'static str,
    share: f64,
    right: Vec<Vec<u8>>,
    read: impl Fn(&[u8]) -> bool + 'static,
) -> Decoder {
    let known = right.clone();
    decoder(name, share, right, move |bytes| read(bytes) || known.iter().any(|known| known == bytes))
}

fn text(bytes: &[u8], read: impl Fn(&str) -> bool) -> bool {
    std::str::from_utf8(bytes).is_ok_and(read)
}

/// Headers of frames and streams.
fn data_plane() -> Vec<Decoder> {
    let stamp = Stamp { job: 5, epoch: 3, step: 9 };
    let frame = |kind| FrameHeader { kind, length_bytes: 4096, index: 2, stamp }.encode().to_vec();
    let phase = parameters::Stamp { job: 5, phase: 3 };
    let piece = |kind| parameters::Header::new(kind, 2, phase).encode().to_vec();
    let state = |kind| transfer::Header { kind, step: 9, chunk: 1, values: 4096 }.encode().to_vec();
    let frames = vec![frame(FrameKind::Control), frame(FrameKind::Contribution), frame(FrameKind::Result)];
    let pieces = vec![piece(parameters::Kind::Pull), piece(parameters::Kind::Push)];
    let states =
        vec![state(transfer::Kind::Begin), state(transfer::Kind::Chunk), state(transfer::Kind::Fetch)];
    vec![
        decoder("frames of the all-reduce", 16.0, frames, move |bytes| {
            bytes.first_chunk::<FRAME_HEADER_BYTES>().is_some_and(|bytes| {
                FrameHeader::decode(bytes).is_ok_and(|header| header.check(&stamp).is_ok())
            })
        }),
        decoder("frames of parameter servers", 12.0, pieces, move |bytes| {
            bytes.first_chunk().is_some_and(|bytes| {
                parameters::Header::decode(bytes)
                    .is_ok_and(|h| h.check(&phase).is_ok() && h.check_length(0).is_ok())
            })
        }),
        decoder("headers of state streams", 12.0, states, |bytes| {
            bytes.first_chunk().is_some_and(|bytes| transfer::Header::decode(bytes).is_some())
        }),
        decoder("sets of virtual shards", 2.0, vec![sharding::encode_set(&[0, 3, 9], 11)], |mut bytes| {
            sharding::decode_set(&mut bytes, 11).is_some()
        }),
    ]
}

/// Whole exchanges, as a member hears them from a peer.
fn exchanges() -> Vec<Decoder> {
    let from = |name, speaker| {
        let hearing = Hearing::new(speaker).expect("memory that can be shared");
        let (right, hearing) = (hearing.right(), RefCell::new(hearing));
        decoder(name, 4.0, right, move |bytes| hearing.borrow_mut().takes(bytes))
    };
    vec![
        from("exchanges with a peer that lends", Speaker::OfGroup),
        from("exchanges with another group", Speaker::OfColumn),
    ]
}

/// Messages of gRPC, as they are checked.
fn control_plane() -> Vec<Decoder> {
    let from = |body| wire::FromWorker { body: Some(body) }.encode_to_vec();
    let to = |body| wire::ToWorker { body: Some(body) }.encode_to_vec();
    let tensor = |length| wire::Tensor { name: "weights".into(), shape: vec![length, 7] };
    let workload = wire::Workload {
        fingerprint: "digits".into(),
        training_samples: 1000,
        held_out_samples: 10,
        parameters: vec![tensor(30), tensor(4)],
        state: vec![tensor(1)],
    };
    let attach = wire::Attach {
        worker: 3,
        address: "10.0.0.1:4000".into(),
        held: Some(wire::HeldState { epoch: 2, step: 9 }),
        workload: Some(workload.clone()),
        ..Default::default()
    };
    let step = wire::StepRecord { step: 9, loss: 0.5, nodes_s: vec![0.1; 4], ..Default::default() };
    let report = wire::Report { epoch: 3, step: 9, steps: vec![step.clone(), step], ..Default::default() };
    let welcome =
        wire::Welcome { worker: 3, job: texts::job_json(), run: "job-1".into(), ..Default::default() };
    let member = wire::Member { worker: 1, address: "10.0.0.2:4000".into(), first: 0, end: 4 };
    let membership = wire::MembershipEpoch {
        epoch: 4,
        active: vec![member.clone(), wire::Member { worker: 2, first: 4, end: 8, ..member }],
        from_step: 20,
        ..Default::default()
    };
    let slice = wire::Slice { index: 1, offset: 24, bytes: 24, digest: vec![7; 32] };
    let slices =
        wire::SlicesWritten { epoch: 3, step: 9, count: 2, slices: vec![slice], ..Default::default() };
    let from_worker = vec![
        from(wire::from_worker::Body::Warmed(workload)),
        from(wire::from_worker::Body::Report(report)),
        from(wire::from_worker::Body::SlicesWritten(slices)),
    ];
    let to_worker = vec![
        to(wire::to_worker::Body::Prepare(wire::Prepare { membership: Some(membership) })),
        to(wire::to_worker::Body::Bye(wire::Bye { reason: "the run is over".into(), ..Default::default() })),
    ];
    let steering = vec![
        wire::ScaleRequest { workers: 4 }.encode_to_vec(),
        wire::Status { run: "job-1".into(), ..Default::default() }.encode_to_vec(),
    ];
    vec![
        decoder("messages of workers", 10.0, from_worker, |bytes| {
            wire::FromWorker::decode(bytes).is_ok_and(|message| read_from_worker(message).is_some())
        }),
        decoder("first messages of workers", 5.0, vec![attach.encode_to_vec()], |bytes| {
            wire::Attach::decode(bytes)
                .is_ok_and(|attach| attach.workload.is_none_or(|t| read_workload(t).is_some()))
        }),
        decoder("messages to workers", 8.0, to_worker, |bytes| {
            wire::ToWorker::decode(bytes).is_ok_and(|message| read_to_worker(message).is_some())
        }),
        decoder("first messages to workers", 1.0, vec![welcome.encode_to_vec()], |bytes| {
            wire::Welcome::decode(bytes).is_ok_and(|welcome| texts::is_job(welcome.job.as_bytes()))
        }),
        decoder("messages of verbs", 4.0, steering, |bytes| {
            wire::ScaleRequest::decode(bytes).is_ok() | wire::Status::decode(bytes).is_ok()
        }),
    ]
}

/// Files of a run, read as files: in memory where the system has such a folder.
fn files() -> Vec<Decoder> {
    let tensor = |name: &str, shape| Tensor { name: name.into(), shape };
    let layout = Layout {
        parameters: vec![tensor("w", vec![4, 3]), tensor("b", vec![3])],
        state: vec![tensor("m", vec![2])],
    };
    let folder = Folder::new();
    let store = Store::new(folder.0.join("checkpoints"), 1, "identity").of_run("run");
    let mut state = TrainingState::zeros(&layout, 1);
    state.step = 7;
    state.parameters.iter_mut().zip(1_u16..).for_each(|(value, number)| *value = number.into());
    let (path, _) =
        store.write(&state, &layout, &["momentum"], "class").expect("a folder that can be written");
    let whole = fs::read(&path).expect("it was just written");
    let (journal_path, no_point) = (folder.0.join("journal.jsonl"), folder.0.join("no_point"));
    let metrics_folder = folder.0.clone();
    vec![
        decoder("checkpoints", 0.5, vec![whole], move |bytes| {
            let _keep = &folder;
            fs::write(&path, bytes).expect("a folder that can be written");
            store.newest(&layout, &["momentum"]).is_ok_and(|found| found.is_some())
        }),
        decoder("manifests of checkpoints in slices", 1.0, vec![manifest()], |bytes| {
            Manifest::decode(bytes).is_ok_and(|manifest| {
                let slots: [&str; 0] = [];
                manifest.bytes().is_some() && manifest.difference(&Layout::default(), &slots).is_some()
            })
        }),
        decoder("journals", 0.7, vec![texts::JOURNAL.into()], move |bytes| {
            fs::write(&journal_path, bytes).expect("a folder that can be written");
            let history = journal::history(&journal_path, &no_point).expect("it was just written");
            history.resumed().is_some() && history.damage.lines == 0
        }),
        decoder("metrics", 0.7, vec![texts::METRICS.into()], move |bytes| {
            fs::write(metrics_folder.join("metrics.jsonl"), bytes).expect("a folder that can be written");
            metrics::read(&metrics_folder).count() > 0
        }),
    ]
}

/// A manifest of two slices.
fn manifest() -> Vec<u8> {
    let layout =
        Layout { parameters: vec![Tensor { name: "w".into(), shape: vec![4, 3] }], state: Vec::new() };
    let slice = |index| Slice { index, offset: 24 * index, bytes: 24, digest: "0a".repeat(32) };
    let subject = Subject {
        identity: "identity",
        run: "run",
        step: 7,
        kernel_class: "class",
        noise: Noise::default(),
        layout: &layout,
        slots: &[],
    };
    Manifest::new(&subject, vec![slice(0), slice(1)]).encode()
}

/// A folder in memory, if there is such a thing here; gone with this value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let memory = PathBuf::from("/dev/shm");
        let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let folder = root.join(format!("bellwether-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder that can be made");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
