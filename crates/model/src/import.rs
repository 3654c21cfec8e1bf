//! Profiles of other frameworks: what a step of PyTorch or TensorFlow does, from the trace of its profiler.
//!
//! # Model
//!
//! ```text
//! between ─► forward ─► backward to part 1 ─► backward to part 2 ─► … ─► rest ─┬─► update 1 ─► update 2 ─► …
//!                              └─► send 1            └─► send 2 ───────────────┘
//! own(a, b) = (b − a) − time in (a, b) spent in communication or in the update
//! ```
//!
//! | symbol    | meaning                                                        | unit | type              |
//! |-----------|----------------------------------------------------------------|------|-------------------|
//! | part      | gradients that are reduced as one (a bucket), or one tensor's  | B    | `Part`            |
//! | backward to part k | own time from the readiness of part k − 1 to that of k | s   | `MeasuredStep`    |
//! | update k  | time of the optimizer, shared out to the parts by their bytes  | s    | `MeasuredStep`    |
//! | step      | sum of all: the worker's own time, without waiting             | s    | `MeasuredStep`    |
//!
//! Communication is not replayed: its bytes are kept, its duration belongs to the traced cluster.
//!
//! ```
//! // One step of 10 ms: forward until 4 ms, one gradient of 250 × 4 bytes ready at 9 ms, update of 1 ms.
//! let trace = r#"{"schemaVersion": 1, "traceEvents": [
//!   {"ph":"X","cat":"user_annotation","name":"ProfilerStep#3","pid":1,"tid":1,"ts":0,"dur":10000},
//!   {"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: MmBackward0","pid":1,"tid":1,
//!    "ts":4000,"dur":4000},
//!   {"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
//!    "pid":1,"tid":1,"ts":8000,"dur":1000},
//!   {"ph":"X","cat":"cpu_op","name":"torch::autograd::AccumulateGrad","pid":1,"tid":1,"ts":8000,"dur":1000,
//!    "args":{"Input Dims":[[25,10]],"Input type":["float"]}},
//!   {"ph":"X","cat":"user_annotation","name":"Optimizer.step#SGD.step","pid":1,"tid":1,"ts":9000,"dur":1000}]}"#;
//! let profile = bellwether_model::import::read(trace.as_bytes(), "trace.json").expect("a complete trace");
//! assert_eq!((profile.parts.len(), profile.parameter_bytes), (1, 1000));
//! assert!((profile.compute_s()[0] - 0.009).abs() < 1e-9 && (profile.update_s()[0] - 0.001).abs() < 1e-9);
//! ```
//!
//! # Source
//!
//! The trace event format of Chrome; what Kineto (the profiler of PyTorch) and the profiler of TensorFlow write
//! into it, as seen in traces of PyTorch 2.15 and TensorFlow 2.13 and in the tools' public sources. When
//! gradients are ready: Li et al., PyTorch Distributed, PVLDB 13(12), 2020.
//!
//! # Assumes
//!
//! One worker per trace. Gradients are averaged by all-reduce, or not at all (then each tensor is a part). What
//! shares the device with communication is slowed by it in the trace as it will be elsewhere.
//!
//! # Valid
//!
//! PyTorch: traces with `ProfilerStep` marks, and either all-reduces or `record_shapes=True`. Readiness on a GPU
//! is when the kernels end that were launched before the all-reduce was. TensorFlow: traces with step marks and
//! tensor shapes. Sharded training (reduce-scatter and all-gather) is not understood, and is said so in a note.
//!
//! # Checked by
//!
//! Real traces of both tools, made on a CPU, with sizes known from the network that was traced; GPU traces
//! written by hand; mutated and random bytes, which must give an error or a sound profile (`tests/it/import.rs`).

use bellwether_core::error::InputError;
use bellwether_core::profile::Profile;

mod apart;
mod assemble;
mod kineto;
mod stream;
mod tensorflow;
mod timeline;

pub use apart::Apart;
use stream::Header;

/// A profile, and what a reader of it should know.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The profile; it passes [`Profile::check`].
    pub profile: Profile,
    /// What was left out, guessed or not understood, one sentence each.
    pub notes: Vec<String>,
}

/// What a first look at a trace finds.
#[derive(Debug, Default)]
struct Survey {
    events: u64,
    /// Events whose time is negative, absent, no number or beyond all measure.
    without_time: u64,
    categories: Vec<String>,
    /// Number and name of each process that has a name.
    processes: Vec<(String, String)>,
    /// Process, number and name of each thread that has a name.
    threads: Vec<(String, String, String)>,
    operators: u64,
}

/// Names that are kept for an error message or a lane; more than any tool writes.
const MOST_NAMES: usize = 4_096;

/// Reads the trace of another framework's profiler: `bytes` of JSON, unpacked; `place` names it in errors.
///
/// # Errors
///
/// Returns an error for text that is not JSON, a trace of neither tool, or one that lacks marks of steps, a backward
/// pass or sizes.
pub fn read(bytes: &[u8], place: &str) -> Result<Profile, InputError> {
    read_with_notes(bytes, place).map(|imported| imported.profile)
}

/// As [`read`], with what was left out or guessed.
///
/// # Errors
///
/// Same errors as [`read`].
pub fn read_with_notes(bytes: &[u8], place: &str) -> Result<Imported, InputError> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(InputError::new(place, "the trace is packed by gzip").hint("unpack it with `gunzip`"));
    }
    let mut survey = Survey::default();
    let header = stream::walk(bytes, place, &mut |event| survey.add(&event))?;
    let is_kineto = survey.operators > 0
        || header.keys.iter().any(|key| key == "schemaVersion" || key == "deviceProperties");
    let is_tensorflow =
        survey.processes.iter().any(|(_, name)| name.starts_with("/host:") || name.contains("/device:"));
    let mut imported = match (is_kineto, is_tensorflow) {
        (true, _) => kineto::read(bytes, place, &header)?,
        (false, true) => tensorflow::read(bytes, place, &survey)?,
        (false, false) => return Err(unknown(&survey, &header, place)),
    };
    if survey.without_time > 0 {
        imported.notes.push(format!("{} events without a usable time were skipped", survey.without_time));
    }
    Ok(imported)
}

impl Survey {
    fn add(&mut self, event: &stream::Event<'_>) {
        self.events += 1;
        let category = event.category.as_str();
        self.operators += u64::from(matches!(category, "cpu_op" | "Operator"));
        if !category.is_empty()
            && self.categories.len() < 16
            && !self.categories.iter().any(|c| c == category)
        {
            self.categories.push(category.to_string());
        }
        match (event.phase.as_str(), event.name.as_str()) {
            ("X", _) => self.without_time += u64::from(event.span().is_none()),
            ("M", "process_name") if self.processes.len() < MOST_NAMES => {
                self.processes.push((event.pid.as_str().into(), event.args.name.as_str().into()));
            }
            ("M", "thread_name") if self.threads.len() < MOST_NAMES => {
                let (pid, tid) = (event.pid.as_str().into(), event.tid.as_str().into());
                self.threads.push((pid, tid, event.args.name.as_str().into()));
            }
            _ => {}
        }
    }
}

fn unknown(survey: &Survey, header: &Header, place: &str) -> InputError {
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_string() } else { names.join(", ") };
    let keys = list(header.keys.iter().take(8).map(String::as_str).collect());
    let categories = list(survey.categories.iter().take(8).map(String::as_str).collect());
    let processes = list(survey.processes.iter().take(8).map(|(_, name)| name.as_str()).collect());
    let what = format!(
        "this is a trace of neither PyTorch nor TensorFlow: looked for events of category `cpu_op` or the key \
         `schemaVersion` (PyTorch), and for processes named `/host:` or `/device:` (TensorFlow); found {} events, \
         keys: {keys}; categories: {categories}; processes: {processes}",
        survey.events
    );
    InputError::new(place, what)
        .hint("export it with `torch.profiler` (`export_chrome_trace`) or from TensorFlow's trace viewer")
}

/// Bytes of an element, by the name that a framework gives its type.
fn type_bytes(name: &str) -> Option<u64> {
    let name = name.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| name.contains(word));
    // Longer names hold shorter ones: `bfloat16` holds `float`.
    if any(&["float8", "byte", "char", "int8", "bool"]) {
        Some(1)
    } else if any(&["half", "float16", "short", "int16"]) {
        Some(2)
    } else if any(&["double", "long", "int64", "float64"]) {
        Some(8)
    } else if any(&["float", "int"]) {
        Some(4)
    } else {
        None
    }
}

/// Elements times bytes, where that is a size that a machine could hold.
fn part_bytes(elements: f64, element_bytes: u64) -> Option<u64> {
    let bytes = elements * element_bytes as f64;
    (elements >= 1.0 && elements.fract() == 0.0 && bytes <= 1e15).then_some(bytes as u64)
}
