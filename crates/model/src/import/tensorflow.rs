//! Traces of the TensorFlow profiler, as its trace viewer exports them.
//!
//! An operation's name is its path in the graph, `scope/…/name:Type`. The scope `gradient_tape` (before it,
//! `gradients`) marks the backward pass; the scope of an optimizer marks the update. Operations of a step carry
//! its group. Where a variable is read more than once in a step, as by the steps of an unrolled recurrent layer,
//! workers of parameter servers pull it as often: each read is a transfer of its own. Sizes stand in the shapes of
//! operands, which TensorFlow writes at `host_tracer_level=3`.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::error::InputError;

use super::assemble::{Description, TracedStep, assemble};
use super::stream::{Event, walk};
use super::timeline::Cover;
use super::{Imported, Survey, part_bytes, type_bytes};

type Span = (f64, f64);

/// What is kept of a trace; times in seconds.
#[derive(Debug, Default)]
struct Trace {
    /// Marked steps by their group.
    steps: BTreeMap<String, Span>,
    operations: Vec<Traced>,
    gradients: Vec<Gradient>,
    /// The gradient that an operation of this path applies or reduces. The host's lanes tell them, also
    /// for the device's.
    sizes: BTreeMap<String, Tensor>,
    /// Samples that layers were given, with the time.
    inputs: Vec<(f64, f64)>,
    /// Paths at which forward operations read variables.
    reads: BTreeSet<String>,
    /// The operands after the first, of forward operations by path: a layer's variables are among them.
    operands: BTreeMap<String, Vec<Tensor>>,
    fetches: bool,
    replicas: bool,
    /// Operations without the shapes of their operands.
    shapeless: u64,
}

#[derive(Debug)]
struct Traced {
    span: Span,
    group: String,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Forward,
    Backward,
    Update,
    Communication,
}

#[derive(Debug)]
struct Gradient {
    at: f64,
    group: String,
    name: String,
    /// Known when the whole trace is read; 0 until then.
    bytes: u64,
    source: Source,
}

/// What a gradient was found by, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Collective,
    Apply,
    AssignSub,
    AssignAdd,
    Assign,
}

/// The lanes on which the traced device computes.
struct Lanes<'a> {
    device: String,
    pid: &'a str,
    /// Threads of this process that count; all where empty.
    threads: Vec<&'a str>,
}

pub(super) fn read(bytes: &[u8], place: &str, survey: &Survey) -> Result<Imported, InputError> {
    let lanes = lanes(survey);
    let mut trace = Trace::default();
    walk(bytes, place, &mut |event| trace.add(&event, &lanes))?;
    if trace.steps.is_empty() {
        let what = "the trace of TensorFlow marks no steps: looked for events with `step_name`, found none";
        return Err(InputError::new(place, what).hint(
            "wrap each step in `tf.profiler.experimental.Trace(\"train\", step_num=n, _r=1)`, or train with Keras",
        ));
    }
    if trace.replicas {
        let what = "the trace of TensorFlow has several replicas of the model in one process: their operations \
                    cannot be told apart";
        return Err(InputError::new(place, what).hint("trace one worker with one device"));
    }
    let sizes = &trace.sizes;
    trace.gradients.retain_mut(|gradient| {
        gradient.bytes = sizes.get(&gradient.name).map_or(0, |tensor| tensor.bytes);
        gradient.bytes > 0
    });
    trace.gradients.sort_by(|a, b| a.at.total_cmp(&b.at));
    let Some(source) = trace.gradients.iter().map(|gradient| gradient.source).min() else {
        let what = format!(
            "the trace of TensorFlow says nothing of the gradients' sizes: looked for collectives and for \
             assignments of an optimizer with the shapes of their operands; found {} operations, {} of them \
             without shapes",
            trace.operations.len(),
            trace.shapeless
        );
        return Err(InputError::new(place, what).hint(
            "trace with `ProfilerOptions(host_tracer_level=3)`; TensorFlow 2.13 then writes shapes, 2.21 does not",
        ));
    };
    trace.gradients.retain(|gradient| gradient.source == source);
    let pulled_again = trace.pulled_again();
    let mut notes = Vec::new();
    if !pulled_again.is_empty() {
        notes.push(format!(
            "a step reads variables {} times more than once each, {} bytes in all: through parameter servers it pulls \
             them as often",
            pulled_again.len(),
            pulled_again.iter().sum::<u64>()
        ));
    }
    let samples = trace.inputs.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let about = Description {
        source: "tensorflow",
        device: lanes.device,
        batch: samples.map(|(_, samples)| *samples as u64),
        downloads: trace.fetches,
        pulled_again,
        notes,
    };
    assemble(trace.traced_steps(), about, place)
}

/// The first GPU's streams, or the host.
fn lanes(survey: &Survey) -> Lanes<'_> {
    let mut processes: Vec<&(String, String)> = survey.processes.iter().collect();
    processes.sort_by(|a, b| a.1.cmp(&b.1));
    let gpu = processes.iter().find(|(_, name)| name.contains("/device:GPU:"));
    let host = processes.iter().find(|(_, name)| name.starts_with("/host:"));
    let Some((pid, device)) = gpu.or(host).or(processes.first()) else {
        return Lanes { device: String::new(), pid: "", threads: Vec::new() };
    };
    let streams = survey.threads.iter().filter(|(process, _, name)| {
        gpu.is_some() && process == pid && name.to_ascii_lowercase().starts_with("stream")
    });
    Lanes { device: device.clone(), pid, threads: streams.map(|(_, thread, _)| thread.as_str()).collect() }
}

impl Trace {
    fn add(&mut self, event: &Event<'_>, lanes: &Lanes<'_>) {
        let Some(span) = event.span().filter(|_| event.phase.as_str() == "X") else { return };
        let args = &event.args;
        if !args.step_name.as_str().is_empty() {
            // A step's mark repeats on other lanes; the host's comes with the name of the step.
            self.steps.entry(args.group.as_str().to_string()).or_insert(span);
            return;
        }
        let counts = event.pid.as_str() == lanes.pid
            && (lanes.threads.is_empty() || lanes.threads.contains(&event.tid.as_str()));
        let name = args.long_name.as_str();
        let (path, kind) = name.rsplit_once(':').unwrap_or((name, event.name.as_str()));
        let phase = phase(path, kind, event.name.as_str());
        let shapes = args.tensors.as_str();
        if phase == Phase::Forward && (kind.contains("MatMul") || kind.contains("Conv")) {
            self.inputs.extend(samples(shapes).map(|samples| (span.0, samples)));
        }
        match phase {
            Phase::Forward if kind == "ReadVariableOp" => {
                self.reads.insert(path.to_string());
            }
            Phase::Forward => {
                let sizes: Vec<Tensor> = tensors(shapes).into_iter().skip(1).flatten().collect();
                if !sizes.is_empty() {
                    self.operands.entry(path.to_string()).or_insert(sizes);
                }
            }
            _ => {}
        }
        let source = source(phase, kind);
        if let Some(tensor) = source.and_then(|_| tensors(shapes).into_iter().flatten().max()) {
            self.sizes.insert(path.to_string(), tensor);
        }
        if !counts || (name.is_empty() && !event.name.as_str().starts_with("nccl")) {
            return;
        }
        self.fetches |= matches!(kind, "RecvTensor") || event.name.as_str() == "RecvTensor";
        self.replicas |= path.split('/').any(|scope| scope == "replica_1");
        self.shapeless += u64::from(shapes.is_empty());
        let group = args.group.as_str().to_string();
        if let Some(source) = source {
            let name = path.to_string();
            self.gradients.push(Gradient { at: span.0, group: group.clone(), name, bytes: 0, source });
        }
        self.operations.push(Traced { span, group, phase });
    }

    fn traced_steps(&self) -> Vec<TracedStep> {
        let mut marks: Vec<(&String, Span)> = self.steps.iter().map(|(group, span)| (group, *span)).collect();
        marks.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
        for number in 1..marks.len() {
            let next = marks[number].1.0;
            marks[number - 1].1.1 = marks[number - 1].1.1.min(next);
        }
        // Some threads' operations carry no group; the time tells their step then.
        let group_of = |group: &'_ str, at: f64| -> Option<&str> {
            if let Some((known, _)) = self.steps.get_key_value(group) {
                return Some(known.as_str());
            }
            let begun = marks.partition_point(|(_, span)| span.0 <= at);
            let (mark, span) = marks.get(begun.checked_sub(1)?)?;
            (at < span.1).then_some(mark.as_str())
        };
        let mut operations: BTreeMap<&str, Vec<&Traced>> = BTreeMap::new();
        for operation in &self.operations {
            if let Some(group) = group_of(&operation.group, operation.span.0) {
                operations.entry(group).or_default().push(operation);
            }
        }
        let mut gradients: BTreeMap<&str, Vec<&Gradient>> = BTreeMap::new();
        for gradient in &self.gradients {
            if let Some(group) = group_of(&gradient.group, gradient.at) {
                gradients.entry(group).or_default().push(gradient);
            }
        }
        let order = self.order(&gradients);
        let of = |(group, span): &(&String, Span)| {
            let mine = operations.get(group.as_str()).map_or(&[][..], Vec::as_slice);
            let ready = gradients.get(group.as_str()).map_or(&[][..], Vec::as_slice);
            traced_step(*span, mine, ready, &order)
        };
        marks.iter().map(of).collect()
    }

    /// Bytes of each read of a variable beyond its first, within a step.
    ///
    /// A variable is told by its shape among the operands of the operation that it was read for.
    fn pulled_again(&self) -> Vec<u64> {
        // The same name comes once per step.
        let variables: BTreeSet<&str> =
            self.gradients.iter().map(|gradient| gradient.name.as_str()).collect();
        let mut unread: BTreeMap<&Tensor, u64> = BTreeMap::new();
        for variable in variables.into_iter().filter_map(|name| self.sizes.get(name)) {
            *unread.entry(variable).or_default() += 1;
        }
        let mut again = Vec::new();
        for path in &self.reads {
            let Some((operation, _)) = path.rsplit_once('/') else { continue };
            let operands = self.operands.get(operation).into_iter().flatten();
            let Some(found) = operands.filter(|operand| unread.contains_key(operand)).max() else { continue };
            match unread.get_mut(found) {
                Some(left) if *left > 0 => *left -= 1,
                _ => again.push(found.bytes),
            }
        }
        again
    }

    /// Rank of each gradient's name by the mean time from its step's begin: in a graph of data flow no step has
    /// quite the order of another.
    fn order(&self, gradients: &BTreeMap<&str, Vec<&Gradient>>) -> BTreeMap<String, usize> {
        let mut times: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for (group, gradients) in gradients {
            let begin = self.steps.get(*group).map_or(0.0, |span| span.0);
            for gradient in gradients {
                let time = times.entry(&gradient.name).or_insert((0.0, 0.0));
                *time = (time.0 + gradient.at - begin, time.1 + 1.0);
            }
        }
        let mut order: Vec<(&str, f64)> = times.into_iter().map(|(name, (sum, n))| (name, sum / n)).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        order.into_iter().enumerate().map(|(rank, (name, _))| (name.to_string(), rank)).collect()
    }
}

fn traced_step(
    span: Span,
    operations: &[&Traced],
    ready: &[&Gradient],
    order: &BTreeMap<String, usize>,
) -> TracedStep {
    let cover = |phases: &[Phase]| {
        let spans = operations.iter().filter(|operation| phases.contains(&operation.phase));
        Cover::of(spans.map(|operation| operation.span).collect())
    };
    let backward = operations.iter().filter(|operation| operation.phase == Phase::Backward);
    let Some(backward_begin) = backward.map(|operation| operation.span.0).reduce(f64::min) else {
        return TracedStep::default();
    };
    let begin = operations.iter().map(|operation| operation.span.0).fold(span.0, f64::min);
    let end = operations.iter().map(|operation| operation.span.1).fold(begin, f64::max);
    let computing = cover(&[Phase::Forward, Phase::Backward]);
    let all = cover(&[Phase::Forward, Phase::Backward, Phase::Update, Phase::Communication]);
    // Update and communication run beside the passes; only where nothing else runs do they take time of their own.
    let own = |from: f64, to: f64| {
        ((to - from).max(0.0) - (all.within(from, to) - computing.within(from, to)).max(0.0)).max(0.0)
    };
    let mut last = backward_begin;
    let (mut ready_s, mut parts) = (Vec::new(), Vec::new());
    // The first of a name: a second would be another iteration of the same variable.
    let mut mine: BTreeMap<usize, &Gradient> = BTreeMap::new();
    for gradient in ready {
        if let Some(rank) = order.get(&gradient.name) {
            mine.entry(*rank).or_insert(gradient);
        }
    }
    for gradient in mine.into_values() {
        ready_s.push(own(last, gradient.at));
        last = last.max(gradient.at);
        parts.push((gradient.name.clone(), gradient.bytes));
    }
    let updating = cover(&[Phase::Forward, Phase::Backward, Phase::Update]);
    TracedStep {
        between_s: (span.1 - end.max(span.0)).max(0.0),
        forward_s: own(begin, backward_begin),
        ready_s,
        rest_s: computing.within(last, end),
        update_s: (updating.within(begin, end) - computing.within(begin, end)).max(0.0),
        parts,
    }
}

fn phase(path: &str, kind: &str, event: &str) -> Phase {
    let collective = ["Collective", "Nccl", "Horovod"].iter().any(|family| kind.starts_with(family));
    let transfer = ["RecvTensor", "_Recv", "_HostRecv", "_Send", "_HostSend"]
        .iter()
        .any(|one| kind == *one || event == *one);
    if collective || transfer || event.starts_with("nccl") {
        return Phase::Communication;
    }
    if path.split('/').any(|scope| matches!(unnumbered(scope), "gradient_tape" | "gradients")) {
        return Phase::Backward;
    }
    let optimizers = [
        "adadelta",
        "adafactor",
        "adagrad",
        "adam",
        "adamax",
        "adamw",
        "ftrl",
        "gradientdescent",
        "lamb",
        "lars",
        "lion",
        "momentum",
        "nadam",
        "optimizer",
        "rmsprop",
        "sgd",
        "training",
    ];
    let of_optimizer =
        |scope: &str| optimizers.binary_search(&unnumbered(scope).to_ascii_lowercase().as_str()).is_ok();
    let updates = kind.starts_with("ResourceApply") || kind.starts_with("Apply");
    if updates || path.split('/').any(of_optimizer) { Phase::Update } else { Phase::Forward }
}

/// `Adam_1` is `Adam`.
fn unnumbered(scope: &str) -> &str {
    match scope.rsplit_once('_') {
        Some((name, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => scope,
    }
}

/// Optimizers that keep moments assign those too, but each changes the variable itself in one way.
fn source(phase: Phase, kind: &str) -> Option<Source> {
    match (phase, kind) {
        (Phase::Communication, _) if kind.contains("Reduce") || kind.contains("Allreduce") => {
            Some(Source::Collective)
        }
        (Phase::Update, _) if kind.contains("Apply") => Some(Source::Apply),
        (Phase::Update, "AssignSubVariableOp") => Some(Source::AssignSub),
        (Phase::Update, "AssignAddVariableOp") => Some(Source::AssignAdd),
        (Phase::Update, "AssignVariableOp") => Some(Source::Assign),
        _ => None,
    }
}

/// A tensor of real numbers; the larger one is the greater.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Tensor {
    bytes: u64,
    /// Its sizes as the trace writes them, `256,384`.
    shape: String,
}

/// The operands in `(float[256,384];;int32[2])`; `None` for one that is not a tensor of real numbers: counters are not
/// gradients.
fn tensors(shapes: &str) -> Vec<Option<Tensor>> {
    let operands = shapes.trim_start_matches('(').trim_end_matches(')').split(';');
    let tensor = |operand: &str| {
        let (kind, sizes) = operand.split_once('[')?;
        let real = ["float", "half", "bfloat16", "double"].iter().any(|real| kind.starts_with(real));
        let element_bytes = type_bytes(kind).filter(|_| real)?;
        let shape = sizes.split(']').next()?.to_string();
        Some(Tensor { bytes: part_bytes(elements(sizes)?, element_bytes)?, shape })
    };
    operands.map(tensor).collect()
}

/// Product of the sizes in `256,384]`.
fn elements(sizes: &str) -> Option<f64> {
    let sizes = sizes.split(']').next()?;
    if sizes.is_empty() {
        return Some(1.0);
    }
    sizes.split(',').map(|size| size.trim().parse::<f64>().ok().filter(|size| *size >= 0.0)).product()
}

/// The first size of the first operand.
fn samples(shapes: &str) -> Option<f64> {
    let first = shapes.trim_start_matches('(').split(';').next()?;
    let sizes = first.split_once('[')?.1;
    let size: f64 = sizes.split([',', ']']).next()?.parse().ok()?;
    ((1.0..=1e9).contains(&size) && size.fract() == 0.0).then_some(size)
}
