//! What a simulation is about: machines, jobs, and how fast they are in truth and in belief.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use bellwether::models::{self, NamedModel};
use bellwether_core::InputError;
use bellwether_core::prediction::StepModel;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::trace::{Entry, ReadOptions, Trace};
use bellwether_sim::workload::{self, Workload};

use super::SimulateArguments;
use crate::failure::Failure;
use crate::traces;

/// All inputs, read and checked.
pub(super) struct Inputs {
    pub(super) cluster: Cluster,
    /// The trace, unless a generator draws one.
    pub(super) trace: Option<Trace>,
    workload: Option<Workload>,
    /// The trace's name, for messages.
    pub(super) place: String,
    pub(super) truth: NamedModel,
    belief: Option<NamedModel>,
}

pub(super) fn read(arguments: &SimulateArguments) -> Result<Inputs, Failure> {
    let (Some(cluster_text), Some(path)) = (&arguments.cluster, &arguments.trace) else {
        return Err(InputError::new("simulate", "no machines or no jobs are named")
            .hint("write --cluster CLUSTER --trace FILE, or --replay LEDGER")
            .into());
    };
    let mut cluster = cluster(cluster_text)?;
    if let Some(restart) = arguments.restart {
        cluster.view.restart_s = restart.get();
    }
    cluster.view.packs |= arguments.packing;
    let truth = models::read(&arguments.truth, "--truth", &cluster.device_speeds)?;
    let belief = arguments.belief.as_ref();
    let belief = belief.map(|text| models::read(text, "--belief", &cluster.device_speeds)).transpose()?;
    let place = path.display().to_string();
    let mut inputs = Inputs { cluster, trace: None, workload: None, place, truth, belief };
    if path.extension().is_some_and(|extension| extension == "toml") {
        let of_traces = [
            ("--elastic", arguments.elastic.is_some()),
            ("--trace-format", arguments.trace_format.is_some()),
        ];
        if let Some((flag, _)) = of_traces.iter().find(|(_, given)| *given) {
            return Err(InputError::new(*flag, "is for traces, and this is a generator")
                .hint("its classes say `min_gpu` and `max_gpu`; `bellwether trace generate` makes a trace of it")
                .into());
        }
        inputs.workload = Some(traces::read_workload(path)?);
        return Ok(inputs);
    }
    let options = ReadOptions {
        device_types: &inputs.cluster.view.device_types,
        elastic: arguments.elastic.map(|range| (range.min, range.max)),
        place: inputs.place.clone(),
    };
    let mut trace = traces::read(path, arguments.trace_format, &options)?;
    inputs.give_work(&mut trace.entries)?;
    inputs.trace = Some(trace);
    Ok(inputs)
}

/// A cluster file if there is one of that name, else a few words.
pub(super) fn cluster(text: &str) -> Result<Cluster, Failure> {
    let path = Path::new(text);
    if path.extension().is_some_and(|extension| extension == "toml") || path.is_file() {
        let content = fs::read_to_string(path)
            .map_err(|e| InputError::new(text, format!("the cluster file cannot be read: {e}")))?;
        return Ok(Cluster::from_file(&content, text)?);
    }
    Ok(Cluster::from_words(text)?)
}

impl Inputs {
    /// What policies believe of speeds: the truth, if nothing else was said.
    pub(super) fn belief(&self) -> &(dyn StepModel + Sync) {
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

    /// The jobs of a seed.
    pub(super) fn entries(&self, seed: u64) -> Result<Cow<'_, [Entry]>, InputError> {
        let Some(workload) = &self.workload else {
            return Ok(Cow::Borrowed(self.trace.as_ref().map_or(&[], |trace| &trace.entries)));
        };
        let mut drawn = workload::generate(workload, seed, &self.cluster.view.device_types)?;
        self.give_work(&mut drawn.entries)?;
        Ok(Cow::Owned(drawn.entries))
    }
}
