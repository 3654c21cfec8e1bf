//! Looks after the jobs of a cluster: hands them to the engine, carries out what [`crate::reconcile`] finds, and writes
//! down what people see.
//!
//! Kubernetes' API keeps all that has to last. A decision is written into the job's status before anything is done for
//! its sake, together with the number of the Lease's transitions: an operator that finds a higher number than its own
//! there has been deposed, and ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bellwether_serve::engine::Running;
use bellwether_serve::request::EngineHandle;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::runtime::controller::Action as Next;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::reflector::Store;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::crd::{ElasticJob, FieldError, Queue};
use crate::desk::Desk;
use crate::job::{JobSpec, Kept};
use crate::nodes::{SlotRule, is_lost};
use crate::observe::{self, now_s};
use crate::pace::Counting;
use crate::reconcile::{self, Nodes, Observed, PodSeen, Role};

mod act;
mod intake;
mod known;
mod status;

use known::Described;
pub use known::{Counted, Counters, Known};

/// The longest time until a job is looked at again without news.
const LOOK: Duration = Duration::from_secs(60);

/// After a call that failed: the first pause, doubled with each failure that follows, and the most.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MOST: Duration = Duration::from_secs(60);

/// What went wrong with a job.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The API server did not do what it was asked.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Another operator works.
    #[error("another operator has written a decision since")]
    Deposed,
    /// The engine is gone.
    #[error("the engine is gone: {0}")]
    Engine(String),
}

/// What the pods of a job are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodsWish {
    /// Whether the coordinator should end with a checkpoint.
    pub stop: bool,
    /// Where the coordinator is.
    pub coordinator: Option<std::net::SocketAddr>,
    /// The pod that leads.
    pub leader: Option<String>,
    /// The allocation that is in force.
    pub generation: u64,
    /// The workers of this allocation, by rank.
    pub members: BTreeMap<u32, std::net::IpAddr>,
    /// How many workers this allocation has.
    pub size: u32,
    /// Whether it is known how the job ended.
    pub has_ended: bool,
}

/// Tells the pods of the job with this identifier.
pub type TellPods = Box<dyn Fn(&str, PodsWish) + Send + Sync>;

/// What all jobs share.
pub struct Context {
    /// Kubernetes' API.
    pub client: Client,
    /// The engine.
    pub engine: EngineHandle,
    /// Where its wishes lie.
    pub desk: Desk,
    /// What the pods of jobs are told.
    pub tell_pods: TellPods,
    /// All pods of the cluster.
    pub pods: Store<Pod>,
    /// All nodes.
    pub nodes: Store<Node>,
    /// All queues.
    pub queues: Store<Queue>,
    /// What counts as a slot.
    pub slots: SlotRule,
    /// The image with Bellwether's programs.
    pub image: String,
    /// Where pods reach this operator.
    pub url: String,
    /// The key from which the tokens of jobs follow.
    pub master: [u8; 32],
    /// Learns the size of a job's task.
    pub describe: bellwether_serve::loading::Describe,
    /// The number of the Lease's transitions.
    pub lease_transitions: u64,
    /// Since when this operator looks after jobs.
    pub since_s: f64,
    /// Writes events.
    pub events: Recorder,
    /// Is told when this operator has been deposed.
    pub deposed: mpsc::UnboundedSender<String>,
    /// What is known of jobs beside what their objects say, by their identifiers.
    pub jobs: Mutex<BTreeMap<String, Known>>,
    /// What was done since this operator began.
    pub counters: Counters,
}

impl Context {
    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.jobs.lock().expect("no holder of this lock panics")
    }

    /// Changes what is known of a job.
    fn edit<R>(&self, uid: &str, edit: impl FnOnce(&mut Known) -> R) -> R {
        edit(self.known().entry(uid.to_owned()).or_default())
    }

    /// The identifier of the job with this run.
    pub fn uid_of(&self, run: &str) -> Option<String> {
        let known = self.known();
        known.iter().find(|(_, known)| known.run.as_deref() == Some(run)).map(|(uid, _)| uid.clone())
    }

    /// The run of a job, and the pod that leads it; `None` of a job that is not known.
    pub fn leads(&self, uid: &str) -> Option<(String, Option<String>)> {
        let known = self.known();
        let known = known.get(uid)?;
        Some((known.run.clone()?, known.leader.clone()))
    }

    /// Whether nodes and pods are known.
    pub fn is_ready(&self) -> bool {
        let is_ready = |ready: Option<Result<(), _>>| matches!(ready, Some(Ok(())));
        is_ready(self.nodes.wait_until_ready().now_or_never())
            && is_ready(self.pods.wait_until_ready().now_or_never())
    }

    /// What was done so far.
    pub fn counted(&self) -> Counted {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Counted {
            reconciles: of(&counters.reconciles),
            faults: of(&counters.faults),
            reconcile_us: of(&counters.reconcile_us),
            allocations: of(&counters.allocations),
            creates: of(&counters.creates),
            deletes: of(&counters.deletes),
            patches: of(&counters.patches),
        }
    }

    /// The namespace and the name of a job.
    pub fn place_of(&self, uid: &str) -> Option<(String, String)> {
        self.known().get(uid).map(|known| known.place.clone())
    }

    /// Jobs that are known and not among these, with the names of their runs.
    pub fn removed(&self, there: &BTreeSet<String>) -> Vec<(String, Option<String>)> {
        let known = self.known();
        let gone = known.iter().filter(|(uid, _)| !there.contains(*uid));
        gone.map(|(uid, known)| (uid.clone(), known.run.clone())).collect()
    }

    /// Nothing more is to be known of a job.
    pub fn forget(&self, uid: &str) {
        self.known().remove(uid);
    }

    /// Whether no pod of the job is left.
    pub fn has_no_pods(&self, uid: &str) -> bool {
        self.pods_of(uid).is_empty()
    }

    /// The job as the API server has it at least: the copy of the cache may be older than what was written here.
    fn newest(&self, cached: Arc<ElasticJob>) -> Arc<ElasticJob> {
        let version =
            |job: &ElasticJob| job.resource_version().and_then(|version| version.parse::<u64>().ok());
        let uid = cached.uid().unwrap_or_default();
        self.edit(&uid, |known| match &known.written {
            Some(written) if version(written) > version(&cached) => Arc::clone(written),
            _ => {
                known.written = None;
                cached
            }
        })
    }

    /// What its author asks for: read once, as long as it stays as it is.
    fn spec(&self, job: &ElasticJob, uid: &str) -> Described {
        let has_fixed = job.status.as_ref().is_some_and(|status| !status.fixed.is_empty());
        let key = (job.metadata.generation, has_fixed);
        let known = self.edit(uid, |known| known.spec.clone());
        if let Some((_, described)) = known.filter(|(known, _)| *known == key) {
            return described;
        }
        let described = crate::spec::of(job);
        let described =
            described.map(|spec| spec.map(Arc::new)).map_err(|errors| FieldError::message(&errors));
        self.edit(uid, |known| {
            known.spec = Some((key, described.clone()));
            if let Ok(Some(good)) = &described {
                known.good = Some(Arc::clone(good));
            }
        });
        described
    }

    fn api(&self, namespace: &str) -> Api<ElasticJob> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Writes an event; where that fails, it is lost.
    async fn event(&self, job: &ElasticJob, type_: EventType, reason: &str, note: &str) {
        let note = Some(note.chars().take(1000).collect());
        let event = Event { type_, reason: reason.into(), note, action: reason.into(), secondary: None };
        let _ = self.events.publish(&event, &job.object_ref(&())).await;
    }

    /// The job's pods.
    fn pods_of(&self, uid: &str) -> Vec<Arc<Pod>> {
        let is_of_job = |pod: &Arc<Pod>| crate::labels::label(pod, crate::labels::JOB_UID) == Some(uid);
        self.pods.state().into_iter().filter(is_of_job).collect()
    }

    fn node_states(&self) -> Nodes {
        let mut nodes = Nodes::default();
        for node in self.nodes.state() {
            let name = node.name_any();
            if is_lost(&node) {
                nodes.lost.insert(name);
            } else if crate::nodes::down(&node, &self.slots).is_some() {
                nodes.draining.insert(name);
            }
        }
        nodes
    }
}

/// The jobs that train already, by what their objects say.
///
/// # Errors
///
/// Returns an error if they cannot be listed, or what they name cannot be read.
pub async fn running(context: &Context) -> Result<Vec<Running>, Fault> {
    let jobs: Api<ElasticJob> = Api::all(context.client.clone());
    let mut jobs = jobs.list(&ListParams::default()).await?.items;
    // As they came.
    jobs.sort_by_key(|job| job.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let mut running = Vec::new();
    for job in jobs {
        let uid = job.uid().unwrap_or_default();
        let kept = Kept::of(&serde_json::to_value(&job.status).unwrap_or(Value::Null));
        if kept.is_over || kept.allocation.workers == 0 || job.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if let Ok(Some(spec)) = context.spec(&job, &uid) {
            running.extend(intake::running(&job, &spec, &kept, context).await?);
        }
    }
    Ok(running)
}

/// Looks after one job.
///
/// # Errors
///
/// Returns an error if a call of the API failed; asking again later goes on from there.
pub async fn reconcile(job: Arc<ElasticJob>, context: Arc<Context>) -> Result<Next, Fault> {
    let job = context.newest(job);
    let uid = job.uid().unwrap_or_default();
    let place = (job.namespace().unwrap_or_default(), job.name_any());
    context.edit(&uid, |known| known.place = place);
    let begun = std::time::Instant::now();
    let next = look_after(&job, &uid, &context).await;
    count(&context.counters.reconciles, 1);
    count(&context.counters.faults, u64::from(next.is_err()));
    count(&context.counters.reconcile_us, u64::try_from(begun.elapsed().as_micros()).unwrap_or(0));
    if let Err(fault) = &next {
        if matches!(fault, Fault::Deposed) {
            let _ = context.deposed.send(fault.to_string());
        }
        if is_conflict(fault) {
            // What is written is newer than what was seen.
            let fresh = context.api(&job.namespace().unwrap_or_default()).get_opt(&job.name_any()).await?;
            context.edit(&uid, |known| known.written = fresh.map(Arc::new));
        }
    } else {
        context.edit(&uid, |known| known.failures = 0);
    }
    next
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

fn is_conflict(fault: &Fault) -> bool {
    matches!(fault, Fault::Api(kube::Error::Api(status)) if status.code == 409)
}

/// When to try again: later with every failure, and not all jobs at once.
pub fn after_fault(job: Arc<ElasticJob>, fault: &Fault, context: Arc<Context>) -> Next {
    let uid = job.uid().unwrap_or_default();
    let failures = context.edit(&uid, |known| {
        known.failures = known.failures.saturating_add(1);
        known.failures
    });
    if is_conflict(fault) && failures < 4 {
        return Next::requeue(RETRY_FIRST / 4);
    }
    let pause = RETRY_FIRST * 2_u32.saturating_pow(failures.min(10) - 1);
    // Spread by what differs from job to job.
    let spread =
        uid.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % 256;
    Next::requeue(pause.min(RETRY_MOST).mul_f64(1.0 + f64::from(spread) / 512.0))
}

async fn look_after(job: &Arc<ElasticJob>, uid: &str, context: &Context) -> Result<Next, Fault> {
    if job.metadata.deletion_timestamp.is_some() {
        return Ok(Next::await_change());
    }
    let kept = Kept::of(&serde_json::to_value(&job.status).unwrap_or(Value::Null));
    if kept.lease_transitions > context.lease_transitions {
        return Err(Fault::Deposed);
    }
    let spec = match context.spec(job, uid) {
        Ok(Some(spec)) => spec,
        // Another controller's.
        Ok(None) => return Ok(Next::await_change()),
        Err(_) => match context.edit(uid, |known| known.good.clone()) {
            // It goes on as it was accepted.
            Some(spec) => spec,
            None => {
                status::write(job, None, &kept, &[], context).await?;
                return Ok(Next::await_change());
            }
        },
    };
    if let Some(next) = remove_in_time(&kept, &spec, context).await? {
        return Ok(next);
    }
    let retry = if kept.is_over { None } else { intake::sync(job, &spec, uid, context).await? };
    let run = context.edit(uid, |known| known.run.clone());
    let pods: Vec<Arc<Pod>> = context.pods_of(uid);
    let seen: Vec<PodSeen> = pods.iter().filter_map(|pod| observe::seen(pod)).collect();
    let observed = Observed {
        desired: run.as_deref().and_then(|run| desired(run, context)),
        allocation: kept.allocation.clone(),
        terms: spec.terms.clone(),
        pods: seen.clone(),
        whole: run.as_deref().and_then(|run| context.desk.whole(run)),
        nodes: context.node_states(),
        restarts: kept.restarts,
        is_over: kept.is_over || is_over(run.as_deref(), context),
        watched_since_s: context.since_s,
        now_s: now_s(),
    };
    context.edit(uid, |known| known.sees(&seen));
    let todo = reconcile::reconcile(&observed);
    if let Some(run) = run.as_deref().filter(|_| spec.backend == reconcile::Backend::Group) {
        tell_of_set(run, &spec, &observed, context);
    }
    let stops = todo.actions.contains(&reconcile::Action::Stop);
    let wish = wish(&spec, &observed, stops);
    if wish.leader.is_some() {
        context.edit(uid, |known| known.leader.clone_from(&wish.leader));
    }
    (context.tell_pods)(uid, wish);
    let wrote = act::carry_out(job, &spec, &observed, &todo.actions, context).await?;
    if wrote {
        // What follows from it is found at once.
        return Ok(Next::requeue(Duration::ZERO));
    }
    let unseen = context.edit(uid, |known| known.unseen());
    let unwritten = status::write(job, Some(&spec), &kept, &seen, context).await?;
    let removed = kept.ended_s.zip(spec.ttl_s).map(|(ended_s, ttl_s)| ended_s + ttl_s as f64 - now_s());
    let again =
        todo.again_s.into_iter().chain(removed).map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
    let again = again.chain(retry).chain(unseen).chain(unwritten).min();
    Ok(Next::requeue(again.unwrap_or(LOOK).clamp(Duration::from_millis(50), LOOK)))
}

/// A job that ended long enough ago is removed; answers with when to look again, where that is all there is to do.
async fn remove_in_time(kept: &Kept, spec: &JobSpec, context: &Context) -> Result<Option<Next>, Fault> {
    let (Some(ttl_s), Some(ended_s)) = (spec.ttl_s, kept.ended_s) else { return Ok(None) };
    let left_s = ended_s + ttl_s as f64 - now_s();
    if left_s > 0.0 {
        return Ok(None);
    }
    let parameters = DeleteParams::background();
    match context.api(&spec.namespace).delete(&spec.name, &parameters).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    Ok(Some(Next::await_change()))
}

/// Tells the engine that the script's processes run, once all of them do.
fn tell_of_set(run: &str, spec: &JobSpec, observed: &Observed, context: &Context) {
    let reconcile::Allocation { generation, workers, .. } = observed.allocation;
    let runs = |pod: &&PodSeen| pod.role == Role::Worker && pod.generation == generation && pod.is_ready();
    if workers > 0 && observed.pods.iter().filter(runs).count() == workers as usize {
        let counting = Counting {
            batch: spec.job.batch.size,
            virtual_nodes: spec.job.batch.virtual_nodes,
            total_steps: spec.job.steps.unwrap_or(0),
            step_samples: spec.step_samples,
        };
        context.desk.trains(run, generation, workers, counting);
    }
}

/// What the engine wants, and why it decided so.
fn desired(run: &str, context: &Context) -> Option<reconcile::Desired> {
    let mut desired = context.desk.desired(run)?;
    let snapshot = context.engine.now();
    let of_run = |decision: &&bellwether_serve::snapshot::DecisionState| {
        decision.actions.iter().any(|action| action.job == run)
    };
    if let Some(decision) = snapshot.decisions.iter().rev().find(of_run) {
        desired.reason = format!("{}: {}", decision.policy, decision.reason);
    }
    Some(desired)
}

/// Whether the engine says that the job has ended.
fn is_over(run: Option<&str>, context: &Context) -> bool {
    let snapshot = context.engine.now();
    run.and_then(|run| snapshot.jobs.get(run)).is_some_and(|state| state.state.has_ended())
}

fn wish(spec: &JobSpec, observed: &Observed, stop: bool) -> PodsWish {
    let lead = observed.pods.iter().find(|pod| pod.role == Role::Coordinator && pod.is_live());
    let generation = observed.allocation.generation;
    let member = |pod: &&PodSeen| pod.role == Role::Worker && pod.generation == generation && pod.is_live();
    let members = observed.pods.iter().filter(member).filter_map(|pod| Some((pod.rank, pod.address?)));
    PodsWish {
        stop,
        coordinator: lead.and_then(|lead| Some(std::net::SocketAddr::new(lead.address?, spec.port))),
        leader: lead.map(|lead| lead.name.clone()),
        generation,
        members: members.collect(),
        size: observed.allocation.workers,
        has_ended: observed.is_over,
    }
}
