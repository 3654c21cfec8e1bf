//! What jobs of equal speed have in common.

use bellwether_core::InputError;
use bellwether_core::job::{Device, Exchange, Job, Model, Optimizer, Reduce, StragglerPolicy, Sync};
use bellwether_core::profile::task;

/// Bytes of a script that count: no program is longer.
const SOURCE_MAX: u64 = 16 << 20;

/// What a worker of the job computes in a step: a digest of its model, data, batch and kind of update rule, of the
/// script where that is the model, and of the numbers in which gradients travel where those are not `f32`; after an `@`
/// the device of a script and its threads, where they are not one thread of a processor. A profile of such a job says
/// how fast another one is, whatever its rates, its seed and who waits for whom.
pub fn computation(job: &Job) -> String {
    let mut model = serde_json::json!(job.model);
    let place = elsewhere(&job.model, &mut model);
    if let (Model::Python { script, source: known, .. }, Some(fields)) = (&job.model, model.as_object_mut())
        && let Some(source) = Some(known.clone()).filter(|known| !known.is_empty()).or_else(|| source(script))
    {
        // The same script elsewhere is as fast, and a changed one may not be; where its modules are does not matter.
        fields.insert("script".into(), source.into());
        fields.remove("source");
        fields.remove("python");
        let variables = fields.get_mut("environment").and_then(serde_json::Value::as_object_mut);
        if variables.is_some_and(|variables| variables.remove("PYTHONPATH").is_some() && variables.is_empty())
        {
            fields.remove("environment");
        }
    }
    let rule = match &job.optimizer {
        Optimizer::Sgd { momentum, .. } if *momentum == 0.0 => "sgd",
        Optimizer::Sgd { .. } => "momentum",
        Optimizer::Adam { .. } => "adam",
        Optimizer::Adamw { .. } => "adamw",
        Optimizer::Own { name, .. } => name,
    };
    let mut data = serde_json::json!(job.data);
    strip_folders(&mut data);
    let mut parts =
        serde_json::json!({ "model": model, "data": data, "batch": job.batch, "optimizer": rule });
    if job.exchange != Exchange::default() {
        parts["exchange"] = serde_json::json!(job.exchange);
    }
    digest(&parts) + &place
}

/// Where a script computes if that is not one thread of a processor, which `written` says no more then: the same script
/// is the same job on another device.
fn elsewhere(model: &Model, written: &mut serde_json::Value) -> String {
    let (Model::Python { device, threads, .. }, Some(fields)) = (model, written.as_object_mut()) else {
        return String::new();
    };
    if (*device, *threads) == (Device::Cpu, 1) {
        return String::new();
    }
    fields.remove("device");
    fields.insert("threads".into(), 1.into());
    match device {
        Device::Cpu => format!("@cpu-{threads}"),
        Device::Cuda => format!("@cuda-{threads}"),
    }
}

/// Leaves of each path in `value` its last part: where data lies makes no step slower.
fn strip_folders(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = text.rsplit('/').next().unwrap_or_default().to_string(),
        serde_json::Value::Array(values) => values.iter_mut().for_each(strip_folders),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(strip_folders),
        _ => {}
    }
}

/// The kind of a job: jobs of one kind take equally long for a step on the same workers, so what is learnt of one holds
/// for the others. It begins with what a worker [computes](computation); a job whose workers do not all wait for each
/// other, or that sums at servers, is of another kind.
pub fn of(job: &Job) -> String {
    let computation = computation(job);
    let Sync { policy, servers, reduce, nodes_per_update, order, replica, stragglers, .. } = &job.sync;
    let is_plain = job.sync.is_synchronous() && *reduce == Reduce::AllReduce;
    if is_plain && *stragglers == StragglerPolicy::Ignore {
        return computation;
    }
    let sync = serde_json::json!([policy, servers, reduce, nodes_per_update, order, replica, stragglers]);
    format!("{computation}-{}", digest(&sync))
}

/// A name for jobs of which a decision makes one of these kinds.
pub fn open(kinds: &[&str]) -> String {
    digest(&serde_json::json!({ "one of": kinds }))
}

/// Refuses `what`, a profile of a job `name` with this [`computation`], for another job.
///
/// # Errors
///
/// That it is of another job.
pub fn check(what: &str, computation: &str, name: &str, job: &Job) -> Result<(), InputError> {
    if computation == self::computation(job) { Ok(()) } else { Err(of_another_job(what, name)) }
}

/// The same of a plan, which is made for every device on which the job was profiled.
///
/// # Errors
///
/// That it is of another job.
pub fn check_plan(computation: &str, name: &str, job: &Job) -> Result<(), InputError> {
    let is_same = task(computation) == task(&self::computation(job));
    if is_same { Ok(()) } else { Err(of_another_job("plan", name)) }
}

/// That `what` is of the job `name`, and not of this one.
pub fn of_another_job(what: &str, name: &str) -> InputError {
    let why = format!(
        "it is of another job (`{name}`): the model, the data, the batch or the update rule is not this one's"
    );
    InputError::new(what, why).hint("measure this job with `bellwether profile JOB -o PROFILE.json`")
}

/// Digest of a script, if it can be read.
fn source(script: &std::path::Path) -> Option<String> {
    use std::io::Read;
    let mut text = Vec::new();
    std::fs::File::open(script).ok()?.take(SOURCE_MAX).read_to_end(&mut text).ok()?;
    Some(source_digest(&text))
}

/// Digest of a script's text, as a job that leaves the script behind carries it.
pub fn source_digest(text: &[u8]) -> String {
    let counted = text.len().min(SOURCE_MAX as usize);
    blake3::hash(&text[..counted]).to_hex()[..16].to_owned()
}

fn digest(parts: &serde_json::Value) -> String {
    blake3::hash(parts.to_string().as_bytes()).to_hex()[..16].to_owned()
}
