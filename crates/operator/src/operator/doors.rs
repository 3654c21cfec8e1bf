//! Where others come in: the pods of jobs, and those who watch the operator.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use bellwether_runtime::run_dir::RunDir;
use bellwether_sched::registry::Registry;
use bellwether_serve::api::Serving;
use bellwether_serve::daemon::view::{self, View};
use bellwether_serve::snapshot::Phase;
use tokio::net::TcpListener;

use crate::controller::{Context, PodsWish};
use crate::exchange::{self, Exchange, JobSide, Member, Wish};

/// What the exchange has to know of jobs.
pub(super) struct OfContext(pub(super) Arc<Context>);

impl Exchange for OfContext {
    fn lookup(&self, uid: &str) -> Option<JobSide> {
        let context = &self.0;
        let (run, coordinator) = context.leads(uid)?;
        let folder = context.desk.folder(&run)?;
        let token = exchange::token_of(&context.master, uid);
        Some(JobSide { token, run: RunDir::at(folder), coordinator })
    }
}

/// What the pods of a job are told, in the words of the exchange.
pub(super) fn told(wish: &PodsWish) -> Wish {
    let member = |(rank, address): (&u32, &std::net::IpAddr)| Member { rank: *rank, address: *address };
    Wish {
        version: 0,
        stop: wish.stop,
        coordinator: wish.coordinator,
        generation: wish.generation,
        members: wish.members.iter().map(member).collect(),
        size: wish.size,
        report_ended: wish.has_ended,
    }
}

/// Listens at an address.
pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{address} cannot be used"))
}

/// Shows the dashboard at this address, and what the engine knows to programs of the same pod.
pub(super) async fn show(
    runs: &Path,
    listen: SocketAddr,
    context: &Context,
    log: &Arc<dyn Fn(&str) + Send + Sync>,
) -> Option<Serving> {
    let (runs, engine, describe) = (runs.to_owned(), context.engine.clone(), context.describe.clone());
    // It opens files, and a runtime that must not end among the tasks of another.
    let shown = tokio::task::spawn_blocking(move || {
        let (state_dir, registry) = (runs.as_path(), Registry::built_in());
        let changed_by =
            "jobs are objects here: `kubectl edit elasticjob`, or `bellwether … --kubernetes`".into();
        view::show(View { state_dir, listen, engine, registry, changed_by }, describe)
    });
    let shown = shown.await.map_err(|error| error.to_string());
    let shown = shown.and_then(|shown| shown.map_err(|error| error.to_string()));
    // Jobs train without it, too.
    shown.inspect_err(|error| log(&format!("the dashboard cannot be shown: {error}"))).ok()
}

/// What leads, once it does.
pub(super) type Lead = Arc<OnceLock<(Arc<Context>, exchange::Desk)>>;

/// Answers those who watch the operator, also while it waits for the Lease, until it ends.
pub(super) async fn watchers(listener: TcpListener, lead: Lead) -> Result<()> {
    let of_metrics = Arc::clone(&lead);
    let routes = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(async move || ready(&lead)))
        .route("/metrics", get(async move || metrics(&of_metrics)));
    axum::serve(listener, routes).await.context("the port for metrics broke")
}

fn ready(lead: &Lead) -> (StatusCode, &'static str) {
    match lead.get() {
        // It would take over at once.
        None => (StatusCode::OK, "waits for the Lease"),
        Some((context, _)) if context.is_ready() => (StatusCode::OK, "leads"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "does not know all nodes and pods yet"),
    }
}

/// In Prometheus' format.
fn metrics(lead: &Lead) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let leads = [(String::new(), f64::from(u8::from(lead.get().is_some())))];
    family("bellwether_operator_leads", "gauge", "Whether this one of several operators works.", &leads);
    let Some((context, desk)) = lead.get() else { return text };
    let (counts, snapshot) = (desk.counts(), context.engine.now());
    let cluster = &snapshot.cluster;
    let of_phase = |phase: Phase| {
        let jobs = cluster.jobs.get(&phase).copied().unwrap_or(0);
        (format!("{{state=\"{}\"}}", phase.name()), jobs as f64)
    };
    let jobs: Vec<(String, f64)> = Phase::ALL.into_iter().map(of_phase).collect();
    family("bellwether_operator_jobs", "gauge", "Jobs by state.", &jobs);
    let slots = [
        ("{use=\"all\"}".into(), f64::from(cluster.slots)),
        ("{use=\"free\"}".into(), f64::from(cluster.free)),
    ];
    family("bellwether_operator_slots", "gauge", "Slots of all nodes, and those that are free.", &slots);
    let counted = context.counted();
    let plain = |value: u64| [(String::new(), value as f64)];
    family("bellwether_operator_reconciles_total", "counter", "Looks at jobs.", &plain(counted.reconciles));
    family(
        "bellwether_operator_faults_total",
        "counter",
        "Looks at jobs that failed.",
        &plain(counted.faults),
    );
    let seconds = [(String::new(), counted.reconcile_us as f64 * 1e-6)];
    family("bellwether_operator_reconcile_seconds_total", "counter", "Time of all looks at jobs.", &seconds);
    let calls: Vec<(String, f64)> = counted
        .calls()
        .into_iter()
        .map(|(verb, calls)| (format!("{{verb=\"{verb}\"}}"), calls as f64))
        .collect();
    family("bellwether_operator_api_calls_total", "counter", "Writes to Kubernetes' API.", &calls);
    family(
        "bellwether_operator_resizes_total",
        "counter",
        "Allocations that were written.",
        &plain(counted.allocations),
    );
    let asked = [
        ("copied", counts.copied),
        ("polls", counts.polls),
        ("reports", counts.reports),
        ("restored", counts.restored),
        ("unsigned", counts.unsigned),
        ("malformed", counts.malformed),
        ("replaced", counts.replaced),
    ];
    let asked: Vec<(String, f64)> =
        asked.into_iter().map(|(what, count)| (format!("{{what=\"{what}\"}}"), count as f64)).collect();
    family("bellwether_operator_pod_requests_total", "counter", "Requests of pods.", &asked);
    text
}
