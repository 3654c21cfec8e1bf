//! Nodes that are not there: pods that are placed on them become processes of this machine.
//!
//! Each pod has an address of loopback of its own, files of its own in a temporary folder, and dies as a container
//! does: SIGTERM, then SIGKILL after its grace. What is missing is what a container adds: an image, a file system.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::played::{self, Make};

/// Time between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Images of this registry do not have the command.
pub(crate) const BARE_REGISTRY: &str = "bare.example/";

/// What a container waits for, in a kubelet's word.
#[derive(Debug)]
struct Missing(&'static str);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "what the container needs is not there ({})", self.0)
    }
}

impl std::error::Error for Missing {}

/// The last address that a pod got.
static LAST_ADDRESS: AtomicU32 = AtomicU32::new(0);

/// Nodes that are played until this is dropped; then their processes are killed.
pub(crate) struct Kubelet {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

struct Shared {
    client: Client,
    folder: PathBuf,
    /// Programs by the paths that they have in images.
    programs: BTreeMap<String, PathBuf>,
    nodes: Mutex<BTreeMap<String, Arc<AtomicBool>>>,
    pods: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    process: Option<u32>,
    node: String,
    name: String,
    /// Takes the seconds of grace; `None` once it was told.
    leave: Option<oneshot::Sender<u64>>,
}

impl Kubelet {
    /// `programs`: by the paths that they have in images, where they are.
    pub(crate) fn start(client: Client, folder: &Path, programs: &[(&str, PathBuf)]) -> Kubelet {
        let programs = programs.iter().map(|(path, program)| ((*path).to_owned(), program.clone())).collect();
        let shared = Arc::new(Shared {
            client,
            folder: folder.to_owned(),
            programs,
            nodes: Mutex::default(),
            pods: Mutex::default(),
        });
        let of_pods = tokio::spawn(Arc::clone(&shared).watch());
        Kubelet { shared, tasks: Mutex::new(vec![of_pods]) }
    }

    /// Adds a node with this many processors.
    pub(crate) async fn add_node(&self, name: &str, processors: u32) {
        self.add(name, &Make::plain(processors)).await;
    }

    /// Adds a node that is made of this.
    pub(crate) async fn add(&self, name: &str, make: &Make) {
        let alive = Arc::new(AtomicBool::new(true));
        // Its pods may be placed at once.
        self.shared.nodes.lock().unwrap().insert(name.to_owned(), Arc::clone(&alive));
        played::register(&self.shared.client, name, make).await;
        let beating = tokio::spawn(heartbeats(self.shared.client.clone(), name.to_owned(), alive));
        self.tasks.lock().unwrap().push(beating);
    }

    /// A node falls silent: its processes are stopped where they are, and it says nothing more.
    pub(crate) fn lose(&self, node: &str) {
        if let Some(alive) = self.shared.nodes.lock().unwrap().get(node) {
            alive.store(false, Ordering::Relaxed);
        }
        let pods = self.shared.pods.lock().unwrap();
        for running in pods.values().filter(|running| running.node == node) {
            signal(running.process, "KILL");
        }
    }

    /// A silent node answers again.
    pub(crate) fn find(&self, node: &str) {
        self.shared.nodes.lock().unwrap()[node].store(true, Ordering::Relaxed);
    }

    /// Kills the process of a pod.
    pub(crate) fn kill(&self, pod: &str) -> bool {
        let pods = self.shared.pods.lock().unwrap();
        let running = pods.values().find(|running| running.name == pod && running.process.is_some());
        running.is_some_and(|running| signal(running.process, "KILL"))
    }

    /// Where the files of a pod are: its volumes, and what it printed.
    pub(crate) fn folder(&self, pod: &Pod) -> PathBuf {
        self.shared.folder.join(pod.uid().unwrap_or_default())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.tasks.lock().unwrap().iter().for_each(tokio::task::JoinHandle::abort);
        for running in self.shared.pods.lock().unwrap().values() {
            signal(running.process, "KILL");
        }
    }
}

/// The whole group of a pod's program. What is killed dies as in a container, with its children in groups of their own.
fn signal(process: Option<u32>, name: &str) -> bool {
    let Some(process) = process else { return false };
    let children = if name == "KILL" { descendants(process) } else { Vec::new() };
    let send = |to: String| {
        let mut kill = std::process::Command::new("kill");
        kill.args([format!("-{name}"), "--".into(), to]).stderr(Stdio::null());
        kill.status().is_ok_and(|status| status.success())
    };
    let is_sent = send(format!("-{process}"));
    for child in children {
        send(child.to_string());
    }
    is_sent
}

/// Processes that this one has started, and those that they have.
fn descendants(process: u32) -> Vec<u32> {
    let parent = |pid: u32| super::stat(pid)?.get(1)?.parse::<u32>().ok();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = all.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![process];
    let mut looked = 0;
    while looked < found.len() {
        let of = found[looked];
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        looked += 1;
    }
    found.split_off(1)
}

async fn heartbeats(client: Client, node: String, alive: Arc<AtomicBool>) {
    loop {
        if alive.load(Ordering::Relaxed) {
            played::renew(&client, &node).await;
        }
        sleep(HEARTBEAT).await;
    }
}

impl Shared {
    async fn watch(self: Arc<Shared>) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let placed = watcher::Config::default().fields("spec.nodeName!=");
        let mut news = watcher(pods, placed).default_backoff().applied_objects().boxed();
        while let Some(news) = news.next().await {
            let Ok(pod) = news else { continue };
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            let is_alive =
                self.nodes.lock().unwrap().get(&node).is_some_and(|alive| alive.load(Ordering::Relaxed));
            if is_alive {
                Arc::clone(&self).look(pod, node);
            }
        }
    }

    fn look(self: Arc<Shared>, pod: Pod, node: String) {
        let uid = pod.uid().unwrap_or_default();
        let mut pods = self.pods.lock().unwrap();
        if let Some(running) = pods.get_mut(&uid) {
            if pod.metadata.deletion_timestamp.is_some()
                && let Some(leave) = running.leave.take()
            {
                let grace_s = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
                let _ = leave.send(u64::try_from(grace_s).unwrap_or(0));
            }
            return;
        }
        let (leave, left) = oneshot::channel();
        let is_over =
            matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"));
        let leave = pod.metadata.deletion_timestamp.is_none().then_some(leave);
        let name = pod.name_any();
        let is_leaving = leave.is_none();
        pods.insert(uid, Running { process: None, node, name, leave });
        drop(pods);
        let shared = Arc::clone(&self);
        tokio::spawn(async move {
            if is_leaving || is_over {
                played::remove(&shared.client, &pod).await;
            } else {
                shared.play(pod, left).await;
            }
        });
    }

    async fn play(self: Arc<Shared>, pod: Pod, mut left: oneshot::Receiver<u64>) {
        let number = LAST_ADDRESS.fetch_add(1, Ordering::Relaxed) + 1;
        let [.., high, low] = number.to_be_bytes();
        // Processes of another test may not be gone.
        let address = Ipv4Addr::new(127, 64 + (std::process::id() % 128) as u8, high, low);
        let folder = self.folder.join(pod.uid().unwrap_or_default());
        let status = match self.spawned(&pod, address, &folder, &mut left).await {
            None => json!({"waiting": {"reason": "ContainerCreating"}}),
            Some(Err(error)) => {
                json!({"waiting": {"reason": "CreateContainerError", "message": error.to_string()}})
            }
            Some(Ok(process)) => self.until_end(&pod, process, address, &mut left).await,
        };
        let phase = match status["terminated"]["exitCode"].as_i64() {
            None => "Pending",
            Some(0) => "Succeeded",
            Some(_) => "Failed",
        };
        self.say(&pod, phase, Some(address), &status).await;
        let is_told = left.try_recv().is_ok() || self.is_leaving(&pod);
        if !is_told {
            // Until it is removed.
            let _ = left.await;
        }
        played::remove(&self.client, &pod).await;
    }

    /// Starts a pod's program; as a kubelet does, again and again while a Secret is missing. `None` if it
    /// has to leave before.
    async fn spawned(
        &self,
        pod: &Pod,
        address: Ipv4Addr,
        folder: &Path,
        left: &mut oneshot::Receiver<u64>,
    ) -> Option<anyhow::Result<Child>> {
        loop {
            let error = match self.spawn(pod, address, folder).await {
                Err(error) if error.is::<Missing>() => error,
                other => return Some(other),
            };
            let reason = error.downcast_ref::<Missing>().map(|missing| missing.0).unwrap_or_default();
            let waiting = json!({"waiting": {"reason": reason, "message": error.to_string()}});
            self.say(pod, "Pending", None, &waiting).await;
            tokio::select! {
                _ = &mut *left => return None,
                () = sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Says that a pod runs, and waits until its program has ended; what is left of the container.
    async fn until_end(
        &self,
        pod: &Pod,
        mut process: Child,
        address: Ipv4Addr,
        left: &mut oneshot::Receiver<u64>,
    ) -> Value {
        let id = Some(process.id());
        let mut ended = tokio::task::spawn_blocking(move || process.wait());
        if let Some(running) = self.pods.lock().unwrap().get_mut(&pod.uid().unwrap_or_default()) {
            running.process = id;
        }
        self.say(pod, "Running", Some(address), &json!({"running": {"startedAt": played::now()}})).await;
        let status = tokio::select! {
            status = &mut ended => status,
            grace_s = left => {
                signal(id, "TERM");
                tokio::select! {
                    status = &mut ended => status,
                    () = sleep(Duration::from_secs(grace_s.unwrap_or(0))) => {
                        signal(id, "KILL");
                        (&mut ended).await
                    }
                }
            }
        };
        signal(id, "KILL");
        let folder = self.folder.join(pod.uid().unwrap_or_default());
        let code = status.ok().and_then(Result::ok).and_then(|status| status.code()).unwrap_or(137);
        let mut message = std::fs::read_to_string(folder.join("termination-log")).unwrap_or_default();
        let policy = pod.spec.as_ref().and_then(|spec| spec.containers[0].termination_message_policy.clone());
        if message.is_empty() && code != 0 && policy.is_some_and(|policy| policy == "FallbackToLogsOnError") {
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            message = lines[lines.len().saturating_sub(80)..].join("\n");
        }
        let reason = if code == 0 { "Completed" } else { "Error" };
        json!({"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": played::now()}})
    }

    fn is_leaving(&self, pod: &Pod) -> bool {
        let pods = self.pods.lock().unwrap();
        pods.get(&pod.uid().unwrap_or_default()).is_none_or(|running| running.leave.is_none())
    }

    async fn say(&self, pod: &Pod, phase: &str, address: Option<Ipv4Addr>, state: &Value) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let alive = self.nodes.lock().unwrap().get(&node).cloned();
        let status = played::status(pod, phase, address, state);
        for _ in 0..50 {
            // A node that is silent says nothing.
            if alive.as_ref().is_some_and(|alive| !alive.load(Ordering::Relaxed)) {
                sleep(Duration::from_millis(200)).await;
                continue;
            }
            if played::write(&self.client, pod, &status).await {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Starts what a pod's first container runs, once those that prepare the pod have ended.
    async fn spawn(&self, pod: &Pod, address: Ipv4Addr, folder: &Path) -> anyhow::Result<Child> {
        std::fs::create_dir_all(folder)?;
        let spec = serde_json::to_value(pod.spec.as_ref())?;
        for container in spec["initContainers"].as_array().into_iter().flatten() {
            let mut child = self.start(pod, container, address, folder).await?;
            let status = tokio::task::spawn_blocking(move || child.wait()).await??;
            anyhow::ensure!(status.success(), "{} ended with {status}", container["name"]);
        }
        self.start(pod, &spec["containers"][0], address, folder).await
    }

    async fn start(
        &self,
        pod: &Pod,
        container: &Value,
        address: Ipv4Addr,
        folder: &Path,
    ) -> anyhow::Result<Child> {
        let mut paths = self.volumes(pod, container, folder).await?;
        paths.extend(
            self.programs.iter().map(|(path, program)| (path.clone(), program.display().to_string())),
        );
        // The longest first: one may begin with another.
        paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        let here = |text: &str| {
            let found = paths.iter().find(|(path, _)| text.starts_with(path.as_str()));
            found.map_or_else(|| text.to_owned(), |(path, place)| text.replacen(path.as_str(), place, 1))
        };
        let words =
            [&container["command"], &container["args"]].into_iter().filter_map(Value::as_array).flatten();
        let words: Vec<String> = words.filter_map(Value::as_str).map(here).collect();
        let (program, arguments) = words.split_first().ok_or_else(|| anyhow::anyhow!("no command"))?;
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log"))?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log).process_group(0);
        // As an image has the command in its path.
        let is_bare = container["image"].as_str().is_some_and(|image| image.starts_with(BARE_REGISTRY));
        let beside = self.programs.iter().find(|(path, _)| path.ends_with("/bellwether") && !is_bare);
        let beside = beside.and_then(|(_, program)| program.parent().map(Path::to_owned)).into_iter();
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(beside.chain(std::env::split_paths(&usual)))?;
        command.env_clear().env("PATH", path).envs(self.secrets(pod, container).await?);
        for variable in container["env"].as_array().into_iter().flatten() {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => pod.name_any(),
                Some("status.podIP") => address.to_string(),
                _ => here(variable["value"].as_str().unwrap_or_default()),
            };
            command.env(variable["name"].as_str().unwrap_or_default(), value);
        }
        command.env("BELLWETHER_TERMINATION_LOG", folder.join("termination-log"));
        for (path, program) in &self.programs {
            if path.ends_with("/bellwether") {
                command.env("BELLWETHER_COMMAND", program);
            }
        }
        Ok(command.spawn()?)
    }

    /// Variables that a container has from Secrets.
    async fn secrets(&self, pod: &Pod, container: &Value) -> anyhow::Result<Vec<(String, String)>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let mut variables = Vec::new();
        for source in container["envFrom"].as_array().into_iter().flatten() {
            let Some(name) = source["secretRef"]["name"].as_str() else { continue };
            let Some(secret) = api.get_opt(name).await? else {
                anyhow::bail!(Missing("CreateContainerConfigError"));
            };
            for (name, value) in secret.data.unwrap_or_default() {
                variables.push((name, String::from_utf8(value.0)?));
            }
        }
        Ok(variables)
    }

    /// Where in the file system of this machine what is mounted in the container is.
    async fn volumes(
        &self,
        pod: &Pod,
        container: &Value,
        folder: &Path,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let spec = serde_json::to_value(pod.spec.as_ref())?;
        let namespace = pod.namespace().unwrap_or_default();
        let mut places = BTreeMap::new();
        for volume in spec["volumes"].as_array().into_iter().flatten() {
            let name = volume["name"].as_str().unwrap_or_default();
            let mut place = folder.join("volumes").join(name);
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                place = self.folder.join("claims").join(&namespace).join(claim);
            }
            if let Some(path) = volume["hostPath"]["path"].as_str() {
                place = path.into();
            }
            std::fs::create_dir_all(&place)?;
            if let Some(secret) = volume["secret"]["secretName"].as_str() {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
                for (file, content) in secrets.get(secret).await?.data.unwrap_or_default() {
                    std::fs::write(place.join(file), content.0)?;
                }
            }
            places.insert(name.to_owned(), place);
        }
        let mounts = container["volumeMounts"].as_array().into_iter().flatten();
        let place = |mount: &Value| {
            let place = places.get(mount["name"].as_str()?)?.join(mount["subPath"].as_str().unwrap_or(""));
            std::fs::create_dir_all(&place).ok()?;
            Some((mount["mountPath"].as_str()?.to_owned(), place.display().to_string()))
        };
        Ok(mounts.filter_map(place).collect())
    }
}
