//! Decoders of texts: job files, what the daemon reads, and the descriptions that other verbs read.

use bellwether_core::job::CheckedJob;
use bellwether_core::nas::NasFile;
use bellwether_core::plan::Plan;
use bellwether_core::profile::Profile;
use bellwether_core::{InputError, parse};
use bellwether_federation::description::{Description, NoFiles};
use bellwether_model::gpu;
use bellwether_model::import;
use bellwether_model::throughput_table::GavelTable;
use bellwether_runtime::coordinator::Endpoint;
use bellwether_sched::plan::Catalogue;
use bellwether_sched::registry::Registry;
use bellwether_serve::api::body::{Limits, Policy, Scale, Submit, is_understood};
use bellwether_serve::connection::Connection;
use bellwether_serve::ledger::{Line, read_from};
use bellwether_serve::machine::Machine;
use bellwether_serve::state::State;
use bellwether_sim::cluster::Cluster;
use bellwether_sim::trace::{self, ReadOptions};
use bellwether_sim::workload::Workload;
use serde_json::json;

use super::{Decoder, decoder, text};

pub(super) const JOURNAL: &str = concat!(
    r#"{"time_s":1.5,"event":"coordinator_started","process":7,"version":"0.1.0","resumed":false}"#,
    "\n",
    r#"{"time_s":2,"event":"membership","epoch":1,"step":0,"workers":[1,2],"bounds":[0,2,4],"shadows":[],"reason":"start"}"#,
    "\n",
    r#"{"time_s":3,"event":"committed","first":0,"last":41}"#,
    "\n",
    r#"{"time_s":4,"event":"rolled_back","to":20}"#,
    "\n",
);

pub(super) const METRICS: &str = concat!(
    r#"{"step":0,"loss":0.7,"duration_s":0.08,"compute_s":0.07,"nodes_s":[0.01,0.02],"workers":2}"#,
    "\n",
    r#"{"step":1,"loss":null,"duration_s":0.08,"compute_s":0.07,"nodes_s":[],"workers":2,"shadows":1}"#,
    "\n",
);

const PROFILE: &str = r#"{"version":1,"job":"j","source":"s","device":"d","batch":8,"virtual_nodes":2,"parameter_bytes":1000000,
    "parts":[{"name":"g","bytes":1000000}],"operations":[{"name":"0","kind":"compute"},{"name":"1","kind":"compute","after":[0]},
    {"name":"up","kind":{"upload":0},"after":[1]},{"name":"update","kind":{"update":0},"after":[2]}],
    "steps":[{"step_s":0.4,"operations_s":[0.1,0.1,0.0,0.0]}]}"#;

const GAVEL: &str = r#"{"k80":{"('ResNet-18 (batch size 16)', 1)":{"null":4.79,"('ResNet-18 (batch size 32)', 1)":[2.5,3.1]}}}"#;

const BLOCKS: &str = "data/thread-blocks/V100.csv";

fn example(name: &str) -> String {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn examples(names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| example(name).into_bytes()).collect()
}

/// A job as a coordinator sends it.
pub(super) fn job_json() -> String {
    let job = parse::job(&example("examples/teacher.toml"), "job.toml", &[]).expect("an example is a job");
    serde_json::to_string(&job).expect("a job can be written")
}

/// What is made of the job in a `job.json` or a welcome.
pub(super) fn is_job(bytes: &[u8]) -> bool {
    serde_json::from_slice::<CheckedJob>(bytes).is_ok()
}

pub(super) fn all() -> Vec<Decoder> {
    [of_runs(), of_the_daemon(), of_plans(), of_simulations()].into_iter().flatten().collect()
}

fn of_runs() -> Vec<Decoder> {
    let mut jobs = examples(&["examples/teacher.toml", "examples/goodput.toml", "examples/verified.toml"]);
    let supernet = example("examples/nas/supernet.toml");
    let lists = supernet
        .replace("stages = 1", "nodes = 3\narchitecture = [\"skip\", [\"none\", \"skip\"], \"conv3x3\"]");
    let architecture =
        supernet.replace("stages = 1", "nodes = 3\narchitecture = \"|skip~0|+|none~0|conv1x1~1|\"");
    jobs.extend([lists.into(), architecture.into()]);
    let endpoint = r#"{"control":"127.0.0.1:4000","data":"[::1]:4001","process":77}"#;
    vec![
        decoder("job files", 0.3, jobs, |bytes| {
            text(bytes, |text| parse::job(text, "job.toml", &[]).is_ok())
        }),
        decoder("searches of architectures", 1.0, examples(&["examples/nas/few-shot.toml"]), |bytes| {
            text(bytes, |text| NasFile::read(text, "search.toml").is_ok())
        }),
        decoder("job.json", 2.0, vec![job_json().into()], is_job),
        decoder("endpoint.json", 4.0, vec![endpoint.into()], |bytes| {
            serde_json::from_slice::<Endpoint>(bytes).is_ok()
        }),
    ]
}

fn of_the_daemon() -> Vec<Decoder> {
    let job: serde_json::Value = serde_json::from_str(&job_json()).expect("JSON");
    let submit = json!({ "job": job, "workers": "1..4", "priority": 2.5, "deadline": "2h", "key": "k" });
    let by_text = json!({ "job_toml": example("examples/teacher.toml"), "workers": { "min": 1, "max": 4 } });
    let small = [
        json!({ "workers": 3, "weight": 0.5 }),
        json!({ "workers": "1..4" }),
        json!({ "policy": "las2d:3600" }),
    ];
    let small = small.iter().map(|body| body.to_string().into_bytes()).collect();
    let connection =
        json!({ "url": "https://10.0.0.1:7077", "fingerprint": "sha256:00", "token": "5a".repeat(32) });
    vec![
        decoder(
            "bodies of submissions",
            1.0,
            [submit, by_text].map(|body| body.to_string().into()).into(),
            is_understood::<Submit>,
        ),
        decoder("bodies of other requests", 3.0, small, |bytes| {
            is_understood::<Limits>(bytes) | is_understood::<Scale>(bytes) | is_understood::<Policy>(bytes)
        }),
        decoder("names of policies", 2.0, vec![b"las2d:3600".into(), b"fifo".into()], |bytes| {
            text(bytes, |text| Registry::built_in().parse(text).is_ok())
        }),
        decoder("connection.json", 3.0, vec![connection.to_string().into()], |bytes| {
            serde_json::from_slice::<Connection>(bytes).is_ok()
        }),
        decoder("ledgers", 0.5, vec![ledger().into(), compacted()], is_ledger),
    ]
}

fn ledger() -> String {
    let machine = serde_json::to_value(Machine::slots(4)).expect("JSON");
    let job: serde_json::Value = serde_json::from_str(&job_json()).expect("JSON");
    let lines = [
        json!({ "time_s": 0.0, "entry": "opened", "version": "0.1.0", "unix_s": 1.7e9, "time_scale": 1.0, "machine": machine }),
        json!({ "time_s": 0.0, "entry": "policy_chosen", "policy": "fifo", "by": "the command line" }),
        json!({ "time_s": 1.0, "entry": "submitted", "id": 0, "name": "a", "job": job, "workers": "1..4", "weight": 1.0,
            "deadline_s": null, "task": { "training_samples": 100, "bytes": 4096 }, "kind": "k", "key": null }),
        json!({ "time_s": 2.0, "entry": "limited", "job": 0, "workers": "1..2", "weight": 2.0 }),
        json!({ "time_s": 3.0, "entry": "held", "job": 0, "slots": [{ "node": 0, "index": 0 }] }),
        json!({ "time_s": 4.0, "entry": "training", "job": 0, "workers": 1 }),
        json!({ "time_s": 5.0, "entry": "moment", "progress": [{ "job": 0, "done": 10.0, "rate": 2.0 }] }),
        json!({ "time_s": 6.0, "entry": "stopped", "job": 0, "step": 9 }),
    ];
    lines.map(|line| line.to_string() + "\n").concat()
}

fn compacted() -> Vec<u8> {
    let mut state = None;
    read_from(ledger().as_bytes(), |line| State::fold(&mut state, &line)).expect("a ledger");
    state.expect("it has lines").compacted().expect("numbers that JSON can say")
}

fn is_ledger(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut next = || lines.next().map(serde_json::from_slice::<Line>);
    let Some(Ok(first)) = next() else { return false };
    let Ok(mut state) = State::open(&first) else { return false };
    while let Some(line) = next() {
        if !line.is_ok_and(|line| state.apply(&line).is_ok()) {
            return false;
        }
    }
    true
}

/// Nothing that a catalogue names is there.
fn no_file<T>(path: &str) -> Result<T, InputError> {
    Err(InputError::new(path, "no file is read here"))
}

fn of_plans() -> Vec<Decoder> {
    let federations = examples(&[
        "examples/federation-two-sites.toml",
        "examples/federation-patience.toml",
        "examples/federation-prices.toml",
    ]);
    let catalogues = vec![
        b"[[machine]]\ndevice = \"k80\"\nprice = \"$0.72/h\"\ntransient_price = \"$0.26/h\"\nrevocations = \"k80:us-west1\"\n".into(),
    ];
    let plan = br#"{"version":0}"#.to_vec();
    vec![
        decoder("profiles", 0.6, vec![PROFILE.into()], |bytes| {
            text(bytes, |text| Profile::read(text, "p").is_ok())
        }),
        decoder("plans", 1.0, vec![plan.clone()], move |bytes| {
            bytes == plan || text(bytes, |text| Plan::read(text, "p").is_ok())
        }),
        decoder("price catalogues", 0.4, catalogues, move |bytes| {
            text(bytes, |text| Catalogue::read(text, "c", &no_file::<String>).is_ok())
        }),
        decoder("federations", 0.3, federations, |bytes| {
            text(bytes, |text| Description::read(text, "f", &NoFiles).is_ok())
        }),
        decoder("traces of other profilers", 0.1, vec![tensor_flow()], |bytes| {
            import::read(bytes, "t").is_ok() || bytes == tensor_flow()
        }),
    ]
}

/// The beginning of a trace, which is none, and looks like one.
fn tensor_flow() -> Vec<u8> {
    let text = example("data/traces/tensorflow-cpu.json");
    text.as_bytes()[..text.len().min(3000)].to_vec()
}

fn of_simulations() -> Vec<Decoder> {
    let traces = [
        "gavel.trace",
        "helios.csv",
        "openb_pod_list.csv",
        "pai_task_table.csv",
        "philly.json",
        "pollux.csv",
        "tiresias.csv",
    ];
    let traces = traces.map(|name| example(&format!("data/traces/clusters/{name}")).into_bytes()).to_vec();
    let device = example("data/gpus.toml");
    let device = device.split("[[gpu]]").nth(1).map(|table| format!("[[gpu]]{table}")).expect("a device");
    let blocks = example(BLOCKS);
    let blocks = blocks.lines().take(4).map(|line| format!("{line}\n")).collect::<String>();
    vec![
        decoder("traces of clusters", 0.8, traces, |bytes| {
            trace::read(bytes, None, &ReadOptions::default()).is_ok()
        }),
        decoder("workloads", 0.4, examples(&["examples/simulate/workload.toml"]), |bytes| {
            text(bytes, |text| Workload::parse(text, "w").is_ok())
        }),
        decoder("clusters", 0.4, examples(&["examples/simulate/cluster.toml"]), |bytes| {
            text(bytes, |text| Cluster::from_file(text, "c").is_ok())
        }),
        decoder("tables of throughputs", 1.0, vec![GAVEL.into()], |bytes| {
            GavelTable::parse(bytes, "g").is_ok()
        }),
        decoder("tables of devices", 0.4, vec![device.into()], |bytes| {
            text(bytes, |text| gpu::read_devices(text, "d").is_ok())
        }),
        decoder("traces of thread blocks", 0.4, vec![blocks.into()], |bytes| {
            text(bytes, |text| gpu::read_trace(text, "b").is_ok())
        }),
    ]
}
