//! What a simulation is about: machines, jobs, and how fast they are in truth and in belief.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use bellwether_core::InputError;
use bellwether_core::cluster::Allocation;
use bellwether_core::prediction::{Configuration, DeviceGroup, Link, PredictError, StepModel};
use bellwether_core::queue::QueueTree;
use bellwether_model::shared_links::Exchange;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::trace::{self, Entry, Format, ReadOptions, Trace};
use bellwether_sim::workload::{self, Workload};

use super::Request;
use crate::models::{self, NamedModel};

/// All inputs, read and checked.
pub struct Inputs {
    /// The machines.
    pub cluster: Cluster,
    /// The queues that divide them.
    pub queues: Option<QueueTree>,
    /// The trace, unless a generator draws one.
    pub trace: Option<Trace>,
    workload: Option<Workload>,
    /// The trace's name, for messages.
    pub place: String,
    truth: NamedModel,
    truth_name: String,
    belief: Option<NamedModel>,
}

/// Those of a request on the cluster that it names.
pub(super) fn read(request: &Request) -> Result<Inputs, InputError> {
    read_on(request, cluster(&request.cluster)?)
}

/// Those of a request on another cluster.
pub(super) fn read_on(request: &Request, mut cluster: Cluster) -> Result<Inputs, InputError> {
    let path = &request.trace;
    if let Some(restart) = request.restart {
        cluster.view.restart_s = restart.get();
    }
    cluster.view.packs |= request.packing;
    cluster.shared_links |= request.shared_links;
    let truth = models::read(&request.truth, "--truth", &cluster)?;
    let belief = request.belief.as_ref();
    let belief = belief.map(|text| models::read(text, "--belief", &cluster)).transpose()?;
    let place = path.display().to_string();
    let truth_name = request.truth.clone();
    let queues = request.queues.as_ref().map(|path| read_queues(path, &cluster)).transpose()?;
    let mut inputs =
        Inputs { cluster, queues, trace: None, workload: None, place, truth, truth_name, belief };
    if path.extension().is_some_and(|extension| extension == "toml") {
        let of_traces =
            [("--elastic", request.elastic.is_some()), ("--trace-format", request.trace_format.is_some())];
        if let Some((flag, _)) = of_traces.iter().find(|(_, given)| *given) {
            return Err(InputError::new(*flag, "is for traces, and this is a generator").hint(
                "its classes say `min_gpu` and `max_gpu`; `bellwether trace generate` makes a trace of it",
            ));
        }
        inputs.workload = Some(read_workload(path)?);
        return Ok(inputs);
    }
    let options = ReadOptions {
        device_types: &inputs.cluster.view.device_types,
        elastic: request.elastic.map(|range| (range.min, range.max)),
        place: inputs.place.clone(),
    };
    let mut trace = read_trace(path, request.trace_format, &options)?;
    inputs.give_work(&mut trace.entries)?;
    inputs.check_memory(&trace.entries)?;
    inputs.check_links(&trace.entries)?;
    inputs.check_queues(&trace.entries)?;
    inputs.trace = Some(trace);
    Ok(inputs)
}

/// A cluster file if there is one of that name, else a few words.
fn cluster(text: &str) -> Result<Cluster, InputError> {
    let path = Path::new(text);
    if path.extension().is_some_and(|extension| extension == "toml") || path.is_file() {
        let content = fs::read_to_string(path)
            .map_err(|e| InputError::new(text, format!("the cluster file cannot be read: {e}")))?;
        return Cluster::from_files(&content, text, &|name| read_beside(path, "the cluster file", name));
    }
    Cluster::from_words(text)
}

/// Reads what `file` names, which lies beside it. `what` is this file in messages.
pub(crate) fn read_beside(file: &Path, what: &str, name: &str) -> Result<String, InputError> {
    fs::read_to_string(file.parent().unwrap_or(Path::new("")).join(name)).map_err(|e| {
        let error = format!("`{name}`, which it names, cannot be read: {e}");
        InputError::new(file.display().to_string(), error).hint(format!("a file is looked for beside {what}"))
    })
}

/// Reads a file of queues, which must fit the cluster.
fn read_queues(path: &Path, cluster: &Cluster) -> Result<QueueTree, InputError> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|e| InputError::new(&place, format!("the file of queues cannot be read: {e}")))?;
    let tree = QueueTree::parse(&text, &place)?;
    tree.check_cluster(&cluster.view, &place)?;
    Ok(tree)
}

/// Reads a trace.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if it is not a trace of the format.
pub fn read_trace(path: &Path, format: Option<Format>, options: &ReadOptions) -> Result<Trace, InputError> {
    let bytes = fs::read(path)
        .map_err(|e| InputError::new(&options.place, format!("the trace cannot be read: {e}")))?;
    trace::read(&bytes, format, options)
}

/// Reads a generator file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, or if it is not a generator.
pub fn read_workload(path: &Path) -> Result<Workload, InputError> {
    let place = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|e| InputError::new(&place, format!("the generator file cannot be read: {e}")))?;
    Workload::parse(&text, &place)
}

impl Inputs {
    /// How fast jobs are in truth.
    pub(crate) fn truth(&self) -> &(dyn StepModel + Sync) {
        self.truth.model.as_ref()
    }

    /// What policies believe of speeds: the truth, if nothing else was said.
    pub(crate) fn belief(&self) -> &(dyn StepModel + Sync) {
        self.belief.as_ref().unwrap_or(&self.truth).model.as_ref()
    }

    /// Jobs of an application take the work that its tables say.
    fn give_work(&self, entries: &mut [Entry]) -> Result<(), InputError> {
        for entry in entries.iter_mut().filter(|entry| !entry.work.is_finite()) {
            let description = &entry.job.description;
            let tables = self.truth.applications.as_ref();
            let work = tables.and_then(|tables| tables.work(&description.model, description.batch));
            entry.work = work.ok_or_else(|| {
                let what =
                    format!("job `{}` of `{}` has no work of its own", description.name, description.model);
                InputError::new(format!("{}, row {}", self.place, entry.row), what)
                    .hint("name tables that hold it, for example --truth measured:data/pollux-tables")
            })?;
        }
        Ok(())
    }

    /// Refuses a job of which no device of the cluster could hold a worker: it would wait for ever.
    fn check_memory(&self, entries: &[Entry]) -> Result<(), InputError> {
        let (view, memory) = (&self.cluster.view, &self.cluster.device_memory);
        if memory.is_empty() {
            return Ok(());
        }
        let link = view.link.unwrap_or(Link::UNLIMITED);
        for entry in entries {
            let job = &entry.job;
            let mut refused = None;
            let mut fits = |(number, device): (u16, &String)| {
                let Some(room) = memory.get(device).filter(|_| job.accepts(number)) else {
                    return job.accepts(number);
                };
                let devices =
                    vec![DeviceGroup { node: 0, device: device.clone(), count: job.min_devices.max(1) }];
                let configuration = Configuration::synchronous(devices, job.description.batch, link);
                match self.truth().fits(&job.description, &configuration, *room as f64) {
                    Err(PredictError::DoesNotFit(why)) => {
                        refused = Some(format!("`{device}`: {why}"));
                        false
                    }
                    _ => true,
                }
            };
            if !(0..).zip(&view.device_types).any(&mut fits)
                && let Some(why) = refused
            {
                let what = format!("job `{}` fits on no device of the cluster; {why}", job.description.name);
                return Err(InputError::new(format!("{}, row {}", self.place, entry.row), what).hint(
                    "raise batch.virtual_nodes and profile the job again, or give the cluster more memory",
                ));
            }
        }
        Ok(())
    }

    /// Refuses shared links where the truth does not know what they change for any of the jobs.
    fn check_links(&self, entries: &[Entry]) -> Result<(), InputError> {
        let view = &self.cluster.view;
        if !self.cluster.shared_links {
            return Ok(());
        }
        let mut is_known = false;
        for job in entries.iter().map(|entry| &entry.job) {
            let width = job.asked().max(2).min(job.max_devices);
            // Half of its devices on one node, so that it has others on another.
            let half = width.div_ceil(2);
            for kind in (0..view.device_types.len() as u16).filter(|kind| width > 1 && job.accepts(*kind)) {
                let rooms = view.nodes_of(kind).map(|(node, devices)| (node, devices.min(half)));
                let Some(allocation) = Allocation::filling(rooms, width) else { continue };
                let configuration = view.configuration(job, &allocation, None);
                match Exchange::of(self.truth(), &job.description, &configuration) {
                    Ok(exchange) if exchange.waits_for_links() => return Ok(()),
                    Ok(_) => is_known = true,
                    // Whether it runs anywhere is found out when it arrives.
                    Err(_) => {}
                }
            }
        }
        if !is_known {
            return Ok(());
        }
        let what = "jobs share links, and by this model no job is slower with less of a link";
        Err(InputError::new(format!("--truth {}", self.truth_name), what).hint(
            "choose profiles:FOLDER, measured:FOLDER or goodput:FOLDER, which know what part of a step is exchange; \
             or leave out --shared-links, and `shared_links` in the cluster file",
        ))
    }

    /// Refuses a job of a queue that is not there. Without queues, what jobs say of them does not matter.
    fn check_queues(&self, entries: &[Entry]) -> Result<(), InputError> {
        let Some(tree) = &self.queues else { return Ok(()) };
        for entry in entries {
            tree.of_job(entry.job.queue.as_deref()).map_err(|error| {
                let job = &entry.job.description.name;
                InputError { place: format!("{}, row {}: job `{job}`", self.place, entry.row), ..error }
            })?;
        }
        Ok(())
    }

    /// The jobs of a seed.
    pub(crate) fn entries(&self, seed: u64) -> Result<Cow<'_, [Entry]>, InputError> {
        let Some(workload) = &self.workload else {
            return Ok(Cow::Borrowed(self.trace.as_ref().map_or(&[], |trace| &trace.entries)));
        };
        let mut drawn = workload::generate(workload, seed, &self.cluster.view.device_types)?;
        self.give_work(&mut drawn.entries)?;
        self.check_memory(&drawn.entries)?;
        self.check_links(&drawn.entries)?;
        self.check_queues(&drawn.entries)?;
        Ok(Cow::Owned(drawn.entries))
    }
}
