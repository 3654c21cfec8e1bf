//! Traces of the PyTorch profiler.
//!
//! A trace without kernels was made on a CPU: there the thread that computes is the clock. A trace with kernels
//! was made on a GPU: there the host only launches, and the kernels' own times are the clock; what the host
//! had launched before an event tells which kernels the event waits for.

use std::collections::{BTreeMap, BTreeSet};

use bellwether_core::error::InputError;

use super::assemble::{Description, TracedStep, assemble};
use super::stream::{Event, Header, walk};
use super::timeline::Cover;
use super::{Imported, part_bytes, type_bytes};

type Span = (f64, f64);

/// What is kept of a trace; times in seconds.
#[derive(Debug, Default)]
struct Trace {
    /// Marked steps, with their thread.
    steps: Vec<(Span, String)>,
    /// Evaluations of nodes of the backward pass.
    backward: Vec<Span>,
    backward_threads: BTreeSet<String>,
    optimizer: Vec<Span>,
    /// Calls of communication on the host, with their thread.
    communication: Vec<(Span, String)>,
    operators: Vec<Span>,
    /// All-reduces as each layer of PyTorch records them, from the outermost that knows most.
    reductions: [Vec<Gradient>; 4],
    /// Gradients of single tensors, at the time when they are complete.
    tensors: Vec<Gradient>,
    kernels: Vec<Kernel>,
    /// When the host launched what has this number.
    launches: BTreeMap<u64, f64>,
    /// Samples that the first layers of steps were given, with the time.
    inputs: Vec<(f64, f64)>,
    other_collectives: u64,
}

#[derive(Debug, Clone, Copy)]
struct Gradient {
    at: f64,
    elements: Option<f64>,
    element_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Kernel {
    span: Span,
    correlation: Option<u64>,
    launched: f64,
    communicates: bool,
}

/// A gradient of known size, ready at an instant of the host's clock.
#[derive(Debug, Clone, Copy)]
struct Ready {
    at: f64,
    bytes: u64,
}

pub(super) fn read(bytes: &[u8], place: &str, header: &Header) -> Result<Imported, InputError> {
    let mut trace = Trace::default();
    walk(bytes, place, &mut |event| trace.add(&event))?;
    trace.sort();
    if trace.steps.is_empty() {
        let what = "the trace of PyTorch marks no steps: looked for events `ProfilerStep#N`, found none";
        return Err(
            InputError::new(place, what).hint("call `step()` of the profiler after each training step")
        );
    }
    if trace.backward.is_empty() {
        let what =
            "the trace of PyTorch has no backward pass: looked for `autograd::engine::evaluate_function`";
        return Err(InputError::new(place, what)
            .hint("trace training, with `ProfilerActivity.CPU` among the activities"));
    }
    let mut about = Description { source: "pytorch", ..Description::default() };
    let (ready, part_name) = trace.sized(&mut about.notes, place)?;
    about.device = match header.devices.first() {
        Some(name) if !trace.kernels.is_empty() && !name.is_empty() => name.clone(),
        _ if trace.kernels.is_empty() => "cpu".into(),
        _ => "gpu".into(),
    };
    let first = trace.steps[0].0;
    about.batch = trace.inputs.iter().find(|(at, _)| *at >= first.0).map(|(_, samples)| *samples as u64);
    if trace.other_collectives > 0 {
        about.notes.push(format!(
            "{} collectives other than all-reduce were left out: sharded training is not understood",
            trace.other_collectives
        ));
    }
    let steps = match trace.kernels.iter().any(|kernel| !kernel.communicates) {
        true => trace.device_steps(&ready, part_name, &mut about.notes),
        false => trace.host_steps(&ready, part_name),
    };
    assemble(steps, about, place)
}

impl Trace {
    fn add(&mut self, event: &Event<'_>) {
        let Some(span) = event.span().filter(|_| event.phase.as_str() == "X") else { return };
        let name = event.name.as_str();
        match event.category.as_str() {
            "kernel" | "Kernel" | "gpu_memcpy" | "gpu_memset" | "Memcpy" | "Memset" => {
                self.add_kernel(event, span);
            }
            "cuda_runtime" | "cuda_driver" | "hip_runtime" | "Runtime" => {
                if let Ok(number) = event.args.correlation.as_str().parse() {
                    self.launches.insert(number, span.0);
                }
            }
            // Copies of the host's marks onto the device's lanes.
            "gpu_user_annotation" => {}
            "user_annotation" | "cpu_op" | "Operator" => self.add_host(event, name, span),
            _ => {}
        }
    }

    fn add_kernel(&mut self, event: &Event<'_>, span: Span) {
        let name = event.name.as_str().to_ascii_lowercase();
        let communicates = ["nccl", "rccl"].iter().any(|library| name.contains(library));
        if communicates && name.contains("allreduce") {
            self.reductions[3].push(gradient(event, span.0));
        }
        let correlation = event.args.correlation.as_str().parse().ok();
        self.kernels.push(Kernel { span, correlation, launched: span.0, communicates });
    }

    fn add_host(&mut self, event: &Event<'_>, name: &str, span: Span) {
        let thread = || event.tid.as_str().to_string();
        if name.starts_with("ProfilerStep#") {
            self.steps.push((span, thread()));
        } else if name.starts_with("autograd::engine::evaluate_function") {
            self.backward.push(span);
            if !self.backward_threads.contains(event.tid.as_str()) {
                self.backward_threads.insert(thread());
            }
        } else if name.starts_with("Optimizer.step") {
            self.optimizer.push(span);
        } else if name == "torch::autograd::AccumulateGrad" {
            // Its operand is the gradient; with hooks it also holds what follows from it, so the begin counts.
            self.tensors.push(Gradient { at: span.0, ..gradient(event, span.0) });
        } else if let Some(layer) = communication_layer(name) {
            self.communication.push((span, thread()));
            let kind = if layer == 0 { event.args.collective.as_str() } else { name };
            if is_all_reduce(kind) {
                self.reductions[layer].push(gradient(event, span.0));
            } else if is_sharded(kind) {
                self.other_collectives += 1;
            }
        } else if event.category.as_str() != "user_annotation" {
            self.operators.push(span);
            let operand = match name {
                "aten::linear" | "aten::conv1d" | "aten::conv2d" | "aten::conv3d" => 0,
                "aten::embedding" => 1,
                _ => return,
            };
            let samples = event.args.dims.item(operand).item(0).size();
            self.inputs.extend(samples.filter(|n| *n >= 1.0 && *n <= 1e9).map(|n| (span.0, n)));
        }
    }

    fn sort(&mut self) {
        self.steps.sort_by(|a, b| a.0.0.total_cmp(&b.0.0));
        // Steps of one worker do not overlap; made disjoint, each event belongs to one of them.
        for number in 1..self.steps.len() {
            let next = self.steps[number].0.0;
            let before = &mut self.steps[number - 1].0;
            before.1 = before.1.min(next);
        }
        self.backward.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.optimizer.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.inputs.sort_by(|a, b| a.0.total_cmp(&b.0));
        for gradients in self.reductions.iter_mut().chain([&mut self.tensors]) {
            gradients.sort_by(|a, b| a.at.total_cmp(&b.at));
        }
        for kernel in &mut self.kernels {
            let launched = kernel.correlation.and_then(|number| self.launches.get(&number));
            kernel.launched = launched.copied().unwrap_or(kernel.span.0);
        }
        self.kernels.sort_by(|a, b| a.launched.total_cmp(&b.launched));
    }

    /// Gradients with their sizes: the all-reduces, or single tensors where nothing is reduced.
    fn sized(&self, notes: &mut Vec<String>, place: &str) -> Result<(Vec<Ready>, &'static str), InputError> {
        let in_backward = |gradient: &&Gradient| {
            let begun = self.steps.partition_point(|(span, _)| span.0 <= gradient.at);
            let step = begun.checked_sub(1).map(|step| self.steps[step].0);
            step.is_some_and(|span| gradient.at < span.1 && self.begins_before(span, gradient.at))
        };
        let layer = self
            .reductions
            .iter()
            .find(|layer| layer.iter().any(|gradient| gradient.elements.is_some() && in_backward(&gradient)));
        let (chosen, name) = match layer {
            Some(layer) => (layer, "bucket"),
            None => (&self.tensors, "gradient"),
        };
        let (of_size, of_any) = self.known_types();
        let mut guessed = false;
        let ready = |gradient: &Gradient| {
            let elements = gradient.elements?;
            let known = gradient.element_bytes.or_else(|| of_size.get(&elements.to_bits()).copied());
            let element_bytes = known.or(of_any).unwrap_or_else(|| {
                guessed = true;
                4
            });
            Some(Ready { at: gradient.at, bytes: part_bytes(elements, element_bytes)? })
        };
        let ready: Vec<Ready> = chosen.iter().filter_map(ready).collect();
        if ready.is_empty() {
            let what = "the trace of PyTorch says nothing of the gradients' sizes: looked for all-reduces with \
                        `In msg nelems` or `Input Dims`, and for `AccumulateGrad` with `Input Dims`";
            return Err(InputError::new(place, what).hint("trace with `record_shapes=True`"));
        }
        if guessed {
            notes.push(
                "the trace does not say the type of the gradients; 4 bytes per element were taken".into(),
            );
        }
        Ok((ready, name))
    }

    /// Bytes per element of gradients by the bits of their number of elements, from whatever layer tells their type
    /// first; and those of the first tensor of known type.
    fn known_types(&self) -> (BTreeMap<u64, u64>, Option<u64>) {
        let mut of_size = BTreeMap::new();
        for gradient in self.reductions.iter().flatten().chain(&self.tensors) {
            if let (Some(elements), Some(bytes)) = (gradient.elements, gradient.element_bytes) {
                of_size.entry(elements.to_bits()).or_insert(bytes);
            }
        }
        (of_size, self.tensors.iter().find_map(|gradient| gradient.element_bytes))
    }

    /// Whether the backward pass of `step` begins by `at`.
    fn begins_before(&self, step: Span, at: f64) -> bool {
        let first = self.backward.partition_point(|span| span.0 < step.0);
        self.backward.get(first).is_some_and(|span| span.0 <= at)
    }

    /// The first update of `step` that begins at `from` or later.
    fn update_after(&self, from: f64, step: Span) -> Option<f64> {
        let first = self.optimizer.partition_point(|span| span.0 < from);
        self.optimizer.get(first).map(|span| span.0).filter(|at| *at < step.1)
    }

    /// Begin and end of the backward pass that begins within `step`.
    fn backward_of(&self, step: Span) -> Option<Span> {
        let first = self.backward.partition_point(|span| span.0 < step.0);
        let inside = self.backward[first..].iter().take_while(|span| span.0 < step.1);
        inside.fold(None, |all, span| Some(all.map_or(*span, |(begin, end): Span| (begin, end.max(span.1)))))
    }

    /// The gradients that become ready in the backward pass of `step`: before the optimizer begins.
    fn ready_in<'a>(&self, ready: &'a [Ready], step: Span, backward: Span) -> &'a [Ready] {
        let until = self.update_after(backward.0, step);
        let until = until.unwrap_or(backward.1).max(backward.0);
        let first = ready.partition_point(|gradient| gradient.at < backward.0);
        let last = ready.partition_point(|gradient| gradient.at <= until);
        &ready[first..last.max(first)]
    }

    fn host_steps(&self, ready: &[Ready], name: &str) -> Vec<TracedStep> {
        let threads: BTreeSet<&String> =
            self.backward_threads.iter().chain(self.steps.iter().map(|(_, thread)| thread)).collect();
        let computing = |thread: &String| threads.contains(thread);
        let calls = self.communication.iter().filter(|(_, thread)| computing(thread)).map(|(span, _)| *span);
        let communication = Cover::of(calls.collect());
        let excluded = Cover::of(self.optimizer.clone()).with(&communication);
        let busy = Cover::of(self.operators.clone()).with(&communication);
        let step = |(span, _): &(Span, String)| {
            let Some(backward) = self.backward_of(*span) else { return TracedStep::default() };
            let mine = self.ready_in(ready, *span, backward);
            let mut last = backward.0;
            let mut ready_s = Vec::with_capacity(mine.len());
            for gradient in mine {
                ready_s.push(excluded.outside(last, gradient.at));
                last = last.max(gradient.at);
            }
            let update_begin = self.update_after(backward.1, *span).unwrap_or(span.1);
            // With communication the host waits here for the gradients of others; only what it does is its own.
            let reducing = communication.within(backward.0, update_begin) > 0.0;
            let after_s = match reducing {
                true => {
                    busy.within(backward.1, update_begin) - communication.within(backward.1, update_begin)
                }
                false => excluded.outside(backward.1, update_begin),
            };
            TracedStep {
                between_s: excluded.outside(update_begin, span.1),
                forward_s: excluded.outside(span.0, backward.0),
                rest_s: excluded.outside(last, backward.1),
                update_s: after_s.max(0.0)
                    + (excluded.within(span.0, span.1) - communication.within(span.0, span.1)).max(0.0),
                parts: named(mine, name),
                ready_s,
            }
        };
        self.steps.iter().map(step).collect()
    }

    fn device_steps(&self, ready: &[Ready], name: &str, notes: &mut Vec<String>) -> Vec<TracedStep> {
        let kernels: Vec<Kernel> = self.kernels.iter().filter(|k| !k.communicates).copied().collect();
        let launched_in = |(begin, end): Span| {
            let first = kernels.partition_point(|kernel| kernel.launched < begin);
            let last = kernels.partition_point(|kernel| kernel.launched < end);
            &kernels[first..last.max(first)]
        };
        let mut steps = Vec::with_capacity(self.steps.len());
        for (number, (span, _)) in self.steps.iter().enumerate() {
            let next = self.steps.get(number + 1).and_then(|(span, _)| begin_of(launched_in(*span)));
            let step = self.backward_of(*span).and_then(|backward| {
                let mine = self.ready_in(ready, *span, backward);
                let first = self.optimizer.partition_point(|update| update.0 < span.0);
                let updates = self.optimizer[first..].iter().take_while(|update| update.0 < span.1);
                let update = updates.copied().reduce(|all, one| (all.0, all.1.max(one.1)));
                device_step(&launched_in, *span, backward, update, mine, next)
            });
            steps.push(TracedStep {
                parts: step.as_ref().map_or(Vec::new(), |_| {
                    let backward = self.backward_of(*span).unwrap_or(*span);
                    named(self.ready_in(ready, *span, backward), name)
                }),
                ..step.unwrap_or_default()
            });
        }
        if steps.len() > 1 {
            steps.pop();
            notes.push("the last step was left out: where it ends on the device is not known".into());
        }
        steps
    }
}

/// One step by the device's clock; `next` is the begin of the next step's first kernel.
fn device_step<'a>(
    launched_in: &impl Fn(Span) -> &'a [Kernel],
    span: Span,
    backward: Span,
    update: Option<Span>,
    ready: &[Ready],
    next: Option<f64>,
) -> Option<TracedStep> {
    let all = launched_in(span);
    let begin = begin_of(all)?;
    let backward_begin = begin_of(launched_in((backward.0, span.1)))?;
    let backward_end = end_of(launched_in((backward.0, backward.1))).unwrap_or(backward_begin);
    let mut last = backward_begin;
    let mut ready_s = Vec::with_capacity(ready.len());
    let mut launched = launched_in((backward.0, span.1)).iter().peekable();
    for gradient in ready {
        let mut at = last;
        while let Some(kernel) = launched.next_if(|kernel| kernel.launched < gradient.at) {
            at = at.max(kernel.span.1);
        }
        ready_s.push(at - last);
        last = at;
    }
    let updating = update.map_or(&[][..], launched_in);
    let update_s = match (begin_of(updating), end_of(updating)) {
        (Some(begin), Some(end)) => end - begin,
        _ => 0.0,
    };
    // Between backward pass and update the device copies gradients back, and waits for those of others.
    let copies = launched_in((backward.1, update.map_or(span.1, |update| update.0)));
    let copies_s =
        Cover::of(copies.iter().map(|kernel| kernel.span).collect()).within(f64::NEG_INFINITY, f64::INFINITY);
    let end = end_of(updating).or(end_of(all)).unwrap_or(begin);
    Some(TracedStep {
        between_s: next.map_or(0.0, |next| (next - end).max(0.0)),
        forward_s: (backward_begin - begin).max(0.0),
        ready_s,
        rest_s: (backward_end - last).max(0.0),
        update_s: update_s + copies_s,
        parts: Vec::new(),
    })
}

fn begin_of(kernels: &[Kernel]) -> Option<f64> {
    kernels.iter().map(|kernel| kernel.span.0).reduce(f64::min)
}

fn end_of(kernels: &[Kernel]) -> Option<f64> {
    kernels.iter().map(|kernel| kernel.span.1).reduce(f64::max)
}

fn named(ready: &[Ready], name: &str) -> Vec<(String, u64)> {
    ready.iter().enumerate().map(|(number, gradient)| (format!("{name} {number}"), gradient.bytes)).collect()
}

/// How much a layer's record of a communication tells, 0 the most; `None` for other records.
fn communication_layer(name: &str) -> Option<usize> {
    if name == "record_param_comms" {
        return Some(0);
    }
    if name.starts_with("c10d::") {
        return Some(1);
    }
    let backends = ["nccl:", "gloo:", "mpi:", "ucc:", "xccl:", "hccl:"];
    backends.iter().any(|backend| name.starts_with(backend)).then_some(2)
}

fn is_all_reduce(name: &str) -> bool {
    name.contains("allreduce") || name.contains("all_reduce")
}

fn is_sharded(name: &str) -> bool {
    ["reduce_scatter", "allgather", "all_gather"].iter().any(|kind| name.contains(kind))
}

/// Size and type as far as the event tells them.
fn gradient(event: &Event<'_>, at: f64) -> Gradient {
    let args = &event.args;
    let element_bytes = type_bytes(args.dtype.as_str())
        .or_else(|| args.types.0.first().and_then(|operand| type_bytes(operand.as_str())));
    let elements = args.elements.0.or_else(|| args.dims.item(0).elements());
    Gradient { at, elements, element_bytes }
}
