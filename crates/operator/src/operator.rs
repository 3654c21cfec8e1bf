//! The operator put together: the engine, what watches the cluster, and what its pods and its administrators ask.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bellwether_core::knowledge::Knowledge;
use bellwether_core::queue::QueuesFile;
use bellwether_runtime::run_dir::StateDir;
use bellwether_sched::registry::Registry;
use bellwether_serve::engine::{self, Channels, Engine};
use bellwether_serve::loading::{self, LoadLimits};
use bellwether_serve::machine::Machine;
use bellwether_serve::runner::Report;
use futures::{Stream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::controller::{Config, Controller};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use serde_json::json;
use tokio::sync::{broadcast, mpsc};

use crate::controller::{self, Context, Counters};
use crate::crd::{ElasticJob, Queue};
use crate::desk::{Desk, Pods};
use crate::exchange;
use crate::foresight::Foresight;
use crate::lease;
use crate::nodes::SlotRule;
use crate::observe;
use crate::queues::Keeper;

mod doors;
mod sweep;
mod watch;

/// Name of the Lease, and of the secret with the key from which the tokens of jobs follow.
pub const LEASE: &str = "bellwether-operator";
const KEY: &str = "bellwether-operator-key";

/// The folder with the copies of runs' folders, and the file of the ledger.
const RUNS: &str = "runs";
const LEDGER: &str = "ledger.jsonl";

/// How often a run is tried again whose coordinator ended without a word.
const RETRIES: u32 = 2;

/// Reconciliations of different jobs that go on at once.
const CONCURRENCY: u16 = 32;
/// News of the same job within this time are one.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// How an operator works.
pub struct Options {
    /// Kubernetes' API.
    pub client: Client,
    /// Its own namespace.
    pub namespace: String,
    /// Who it is, among several.
    pub identity: String,
    /// Its ledger and the copies of runs' folders; what is lost there is found again from Kubernetes' API.
    pub folder: PathBuf,
    /// The image with Bellwether's programs.
    pub image: String,
    /// Where pods reach it.
    pub url: String,
    /// The policy that decides; `None` for that of before, or `fair`.
    pub policy: Option<String>,
    /// What policies are told of a job's remaining work; `None` as before, or expected.
    pub remaining: Option<Knowledge>,
    /// What counts as a slot.
    pub slots: SlotRule,
    /// The command `bellwether`, which loads data.
    pub program: PathBuf,
    /// Where it listens for pods.
    pub listen: SocketAddr,
    /// Where it listens for those who want to know how it is.
    pub listen_metrics: SocketAddr,
    /// Where it shows the dashboard, to those who forward this port of loopback.
    pub listen_dashboard: SocketAddr,
    /// Takes a sentence for those who read the log.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Works until it loses its Lease, or something breaks.
///
/// # Errors
///
/// Returns why it ended: a Lease that is lost, an engine that broke, an API that refuses what it needs.
pub async fn run(options: Options) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(options.client.clone(), &options.namespace);
    let lead = doors::Lead::default();
    let door = doors::listen(options.listen_metrics).await?;
    let mut watchers = std::pin::pin!(doors::watchers(door, Arc::clone(&lead)));
    let held = tokio::select! {
        broken = &mut watchers => return broken,
        held = lease::acquire(leases, LEASE, &options.identity) => held?,
    };
    let transitions = held.transitions();
    (options.log)(&format!("leads as number {transitions}"));
    let master = master_key(&options.client, &options.namespace).await?;
    let work = work(options, transitions, master, Arc::clone(&lead));
    tokio::select! {
        broken = &mut watchers => broken,
        lost = held.keep() => lost.map(|never| match never {}),
        ended = work => ended,
    }
}

async fn work(options: Options, lease_transitions: u64, master: [u8; 32], lead: doors::Lead) -> Result<()> {
    let Options { client, folder, log, .. } = options;
    let (wake, woken) = broadcast::channel(1 << 16);
    let seen = Seen::of(&client, &log).await?;
    let is_new = !folder.join(LEDGER).exists();
    let decides = (options.policy, options.remaining, seen.queues().filter(|_| is_new));
    let (engine, ends, desk) = open_engine(&folder, decides, wake.clone(), Arc::clone(&log))?;
    let mut engine = Parked(Some(engine));
    let pods_door = doors::listen(options.listen).await?;
    let known: Arc<OnceLock<Weak<Context>>> = Arc::default();
    let exchange = exchange_desk(Arc::clone(&known));
    let of_pods = exchange.clone();
    let reporter = Reporter { controller: "bellwether-operator".into(), instance: Some(options.identity) };
    let (deposed, mut depositions) = mpsc::unbounded_channel();
    let context = Arc::new(Context {
        client: client.clone(),
        engine: ends.engine.clone(),
        desk,
        tell_pods: Box::new(move |uid, wish| {
            of_pods.set_wish(uid, doors::told(&wish));
        }),
        pods: seen.pods.store.clone(),
        nodes: seen.nodes.store.clone(),
        queues: seen.queues.store.clone(),
        slots: options.slots.clone(),
        image: options.image,
        url: options.url,
        master,
        describe: loading::in_process(options.program, LoadLimits::default()),
        lease_transitions,
        since_s: observe::seconds(&k8s_openapi::jiff::Timestamp::now()),
        events: Recorder::new(client.clone(), reporter),
        deposed,
        jobs: Mutex::new(BTreeMap::new()),
        counters: Counters::default(),
    });
    // The pods' news come from now on.
    let _ = known.set(Arc::downgrade(&context));
    if is_new {
        take_over(engine.engine()?, &context, &seen, &log).await?;
    }
    let engine = start(engine.take()?)?;
    let _shown = doors::show(&folder.join(RUNS), options.listen_dashboard, &context, &log).await;
    let store = seen.queues.store.clone();
    let mut keeper = Keeper::new(client.clone(), ends.engine.clone(), store, Arc::clone(&log));
    // Jobs are offered to the engine with their queues.
    keeper.divide().await;
    // Nothing was there before: this is called once.
    let _ = lead.set((Arc::clone(&context), exchange.clone()));
    let (jobs, controller) = control(&context, woken, seen.pods.news.resubscribe());
    let routes = exchange::routes(Arc::new(doors::OfContext(Arc::clone(&context))), exchange);
    let Seen { nodes, pods, queues } = seen;
    let node_reports = watch::report_nodes(
        (nodes.store, nodes.news),
        (pods.store, pods.news),
        options.slots,
        ends.reports.clone(),
    );
    let result = tokio::select! {
        broken = exchange::serve(pods_door, routes) => broken.map(|never| match never {}).map_err(Into::into),
        () = controller => Err(anyhow!("the controller ended")),
        () = keeper.run(queues.news) => Err(anyhow!("the watch of the queues ended")),
        () = node_reports => Err(anyhow!("the watch of the nodes ended")),
        () = sweep::run(Arc::clone(&context), jobs, wake) => Err(anyhow!("the sweep ended")),
        why = depositions.recv() => Err(anyhow!(why.unwrap_or_default())),
        ended = engine => ended,
    };
    ends.stop.send_replace(true);
    result
}

/// An engine that does not run yet. It has a runtime of its own, which must not end among the tasks of another.
struct Parked(Option<Engine<Pods>>);

impl Parked {
    fn engine(&mut self) -> Result<&mut Engine<Pods>> {
        self.0.as_mut().context("the engine runs already")
    }

    fn take(&mut self) -> Result<Engine<Pods>> {
        self.0.take().context("the engine runs already")
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(engine) = self.0.take() {
            let thread = std::thread::spawn(move || drop(engine));
            // It only waits.
            let _ = thread.join();
        }
    }
}

/// What is seen of the cluster.
struct Seen {
    nodes: Watched<Node>,
    pods: Watched<Pod>,
    queues: Watched<Queue>,
}

impl Seen {
    /// Once all of it was seen.
    async fn of(client: &Client, log: &Arc<dyn Fn(&str) + Send + Sync>) -> Result<Seen> {
        let (nodes, pods) = (watch::nodes(client, log), watch::pods(client, log));
        let queues = watch::queues(client, log);
        nodes.store.wait_until_ready().await.map_err(|_| anyhow!("nodes cannot be listed"))?;
        pods.store.wait_until_ready().await.map_err(|_| anyhow!("pods cannot be listed"))?;
        queues.store.wait_until_ready().await.map_err(|_| anyhow!("queues cannot be listed"))?;
        Ok(Seen { nodes, pods, queues })
    }

    /// What divides the slots; `None` where nothing does, or where it cannot be as it is described.
    fn queues(&self) -> Option<QueuesFile> {
        let queues = crate::queues::all(&self.queues.store);
        crate::crd::file(&queues).ok().filter(|_| !queues.is_empty())
    }
}

/// An operator without a ledger: what trains goes on where it is.
async fn take_over(
    engine: &mut Engine<Pods>,
    context: &Context,
    seen: &Seen,
    log: &Arc<dyn Fn(&str) + Send + Sync>,
) -> Result<()> {
    let running = controller::running(context).await?;
    let (nodes, pods) = (seen.nodes.store.state(), seen.pods.store.state());
    let nodes = crate::nodes::seen(&nodes, pods.iter().map(Arc::as_ref), &context.slots);
    for refusal in engine.take_over(&nodes, running)? {
        log(&format!("a job that trains cannot be taken over: {}", refusal.error));
    }
    Ok(())
}

/// What looks after the jobs, and the jobs that it sees.
fn control(
    context: &Arc<Context>,
    woken: broadcast::Receiver<String>,
    pods: broadcast::Receiver<Arc<Pod>>,
) -> (Store<ElasticJob>, impl Future<Output = ()>) {
    let jobs: Api<ElasticJob> = Api::all(context.client.clone());
    let controller = Controller::new(jobs, watcher::Config::default())
        .with_config(Config::default().debounce(DEBOUNCE).concurrency(CONCURRENCY));
    let store = controller.store();
    let controller = controller
        .reconcile_on(triggers(context, woken, pods))
        .run(controller::reconcile, controller::after_fault, Arc::clone(context))
        .for_each(|_| async {});
    (store, controller)
}

/// Lets the engine decide on a thread of its own; answers with how it ended, once it has.
fn start(engine: Engine<Pods>) -> Result<impl Future<Output = Result<()>>> {
    let (ended, mut end) = mpsc::unbounded_channel();
    std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || drop(ended.send(engine.run())))
        .context("no thread can be started")?;
    Ok(async move {
        match end.recv().await {
            Some(Err(error)) => Err(error.into()),
            _ => Err(anyhow!("the engine ended")),
        }
    })
}

/// Hears what the pods of jobs say.
fn exchange_desk(context: Arc<OnceLock<Weak<Context>>>) -> exchange::Desk {
    exchange::Desk::new(move |uid, news| {
        let Some(context) = context.get().and_then(Weak::upgrade) else { return };
        if let Some((run, _)) = context.leads(uid) {
            match news {
                exchange::News::Grew(_) => context.desk.hear(&run),
                exchange::News::Reported(report) => context.desk.reported(&run, &report),
            }
        }
    })
}

type Opened = (Engine<Pods>, Channels, Desk);

/// The engine over pods, with its ledger in this folder.
fn open_engine(
    folder: &Path,
    (policy, remaining, queues): (Option<String>, Option<Knowledge>, Option<QueuesFile>),
    wake: broadcast::Sender<String>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
) -> Result<Opened> {
    let runs = folder.join(RUNS);
    std::fs::create_dir_all(&runs).with_context(|| format!("{} cannot be made", runs.display()))?;
    let registry = Registry::built_in();
    let of_runs = runs.clone();
    let options = engine::Options {
        folder: runs,
        ledger: folder.join(LEDGER),
        machine: Some(Machine::of_pods()),
        policy,
        queues,
        registry: registry.clone(),
        time_scale: None,
        retries: RETRIES,
        remaining,
        compact_at: bellwether_serve::daemon::COMPACT_AT_BYTES,
        prepare: Box::new(move |submitted, _| {
            let state = StateDir::find(Some(of_runs.clone())).map_err(|error| error.to_string())?;
            let made = state.create_named(&submitted.name, &submitted.job);
            made.map(|run| run.path).map_err(|error| error.to_string())
        }),
        outlook: Some(Box::new(Foresight { registry })),
        tell: Box::new(move |what| log(what)),
    };
    let mut desk = None;
    let (engine, ends) = Engine::open(options, |reports: mpsc::UnboundedSender<Report>| {
        // An engine that is gone hears nothing more.
        let tell = Arc::new(move |report| drop(reports.send(report)));
        // Before the controller listens, it looks at all jobs anyway.
        let wake = Arc::new(move |run: &str| drop(wake.send(run.to_owned())));
        let made = Desk::new(tell, wake);
        desk = Some(made.clone());
        Pods(made)
    })?;
    let desk = desk.context("an engine has a runner")?;
    Ok((engine, ends, desk))
}

/// What makes a job be looked at beside changes of its own object: what the engine wants, and what its pods do.
fn triggers(
    context: &Arc<Context>,
    wishes: broadcast::Receiver<String>,
    pods: broadcast::Receiver<Arc<Pod>>,
) -> impl Stream<Item = ObjectRef<ElasticJob>> + Send + 'static {
    let of_wishes = Arc::clone(context);
    let wishes = received(wishes).filter_map(move |run| {
        let job = of_wishes.uid_of(&run).and_then(|uid| of_wishes.place_of(&uid));
        futures::future::ready(job)
    });
    let of_pods = Arc::clone(context);
    let pods = received(pods).filter_map(move |pod| {
        let uid = crate::labels::label(&pod, crate::labels::JOB_UID);
        futures::future::ready(uid.and_then(|uid| of_pods.place_of(uid)))
    });
    futures::stream::select(wishes, pods)
        .map(|(namespace, name)| ObjectRef::new(&name).within(&namespace))
        .boxed()
}

/// What is sent, as a stream; what was missed is found by the look that comes anyway.
fn received<T: Clone + Send + 'static>(receiver: broadcast::Receiver<T>) -> impl Stream<Item = T> + Send {
    futures::stream::unfold(receiver, async |mut receiver| {
        loop {
            match receiver.recv().await {
                Ok(value) => return Some((value, receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    })
}

/// The key from which the tokens of jobs follow; made once for all operators of this namespace.
async fn master_key(client: &Client, namespace: &str) -> Result<[u8; 32]> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    for _ in 0..3 {
        if let Some(secret) = secrets.get_opt(KEY).await.context("the operator's key cannot be read")? {
            let key = secret.data.as_ref().and_then(|data| data.get("key"));
            let key = key.and_then(|key| <[u8; 32]>::try_from(key.0.as_slice()).ok());
            return key.with_context(|| format!("the secret {KEY} holds no key of 32 bytes; remove it"));
        }
        let mut key = [0; 32];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut key)
            .map_err(|_| anyhow!("the system gives no random bytes"))?;
        let secret = json!({"metadata": {"name": KEY}, "immutable": true});
        let mut secret: Secret = serde_json::from_value(secret)?;
        secret.data = Some(BTreeMap::from([("key".into(), k8s_openapi::ByteString(key.to_vec()))]));
        match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => return Ok(key),
            // Another operator was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("the operator's key cannot be written"),
        }
    }
    bail!("the secret {KEY} can be neither read nor made")
}

/// A store of objects that is kept up to date, and what is new in it.
pub struct Watched<K: kube::runtime::reflector::Lookup + Clone + 'static>
where
    K::DynamicType: std::hash::Hash + Eq + Clone,
{
    store: Store<K>,
    news: broadcast::Receiver<Arc<K>>,
}
