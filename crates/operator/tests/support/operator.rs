//! The operator as a process of its own, which can be killed, and its custom resources.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use bellwether_operator::crd::{ElasticJob, Queue};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::wait_for;

/// An operator that is killed when this is dropped.
pub(crate) struct Operator {
    child: Option<Child>,
    kubeconfig: PathBuf,
    folder: PathBuf,
    /// Where pods reach it.
    address: String,
    listen: u16,
    metrics: u16,
    arguments: Vec<String>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The command `bellwether`, which lies beside the operator's program.
pub(crate) fn bellwether() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_bellwether-operator")).with_file_name("bellwether")
}

/// What a command says, while the thread of the test goes on playing the nodes.
pub(crate) async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

impl Operator {
    /// Starts one.
    pub(crate) fn start(kubeconfig: &Path, folder: &Path, arguments: &[&str]) -> Operator {
        Operator::start_on("127.0.0.1", kubeconfig, folder, arguments)
    }

    /// Starts one that pods reach at an address of this machine.
    pub(crate) fn start_on(address: &str, kubeconfig: &Path, folder: &Path, arguments: &[&str]) -> Operator {
        let mut operator = Operator {
            child: None,
            kubeconfig: kubeconfig.to_owned(),
            folder: folder.to_owned(),
            address: address.to_owned(),
            listen: free_port(),
            metrics: free_port(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        operator.start_again();
        operator
    }

    /// Starts it again where it was.
    pub(crate) fn start_again(&mut self) {
        std::fs::create_dir_all(&self.folder).unwrap();
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether-operator"));
        command.arg("run").arg("--state-dir").arg(self.folder.join("state"));
        command.args(["--namespace", "bellwether-system"]);
        command.arg(format!("--identity={}", self.folder.display()));
        command.arg("--command").arg(bellwether());
        command.arg(format!("--listen={}:{}", self.address, self.listen));
        command.arg("--listen-dashboard=127.0.0.1:0");
        command.arg(format!("--listen-metrics=127.0.0.1:{}", self.metrics));
        command.arg(format!("--url={}", self.url()));
        command.args(&self.arguments).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// Kills it, as a node that fails would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Holds it where it is, as a machine that stands still does, or lets it go on.
    pub(crate) fn hold(&self, on: bool) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        let signal = if on { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Whether it runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Its process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// What it has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Where its ledger and its copies are.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// What the copy of a run's journal says.
    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.state().join("runs").join(run).join("journal.jsonl"));
        let text = text.unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until this many workers train, by the copy of the run's journal.
    pub(crate) async fn until_members(&self, run: &str, workers: usize) {
        wait_for(&format!("{workers} workers"), 60, async || {
            let events = self.events(run);
            let last = events.iter().rfind(|event| event["event"] == "membership")?;
            (last["workers"].as_array()?.len() == workers).then_some(())
        })
        .await;
    }

    /// Proves from the copy that each sample was in exactly one committed step.
    pub(crate) fn audit(&self, run: &str) {
        let mut audit = Command::new(bellwether());
        audit.arg("audit").arg(run).arg("--state-dir").arg(self.state().join("runs"));
        let audit = audit.output().unwrap();
        let said =
            String::from_utf8_lossy(&audit.stdout).into_owned() + &String::from_utf8_lossy(&audit.stderr);
        assert!(audit.status.success(), "{said}");
    }

    /// Where pods reach it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}:{}", self.address, self.listen)
    }

    /// The port of its metrics.
    pub(crate) fn metrics_port(&self) -> u16 {
        self.metrics
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Installs the custom resources, or newer ones in their place.
pub(crate) async fn install(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut definition in bellwether_operator::crd::definitions(true) {
        let name = definition.name_any();
        if let Some(there) = api.get_opt(&name).await.unwrap() {
            definition.metadata.resource_version = there.metadata.resource_version;
            api.replace(&name, &PostParams::default(), &definition).await.unwrap();
        } else {
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        wait_for("the custom resource", 20, async || {
            let there = api.get(&name).await.unwrap();
            let conditions = there.status.and_then(|status| status.conditions).unwrap_or_default();
            conditions.iter().any(|seen| seen.type_ == "Established" && seen.status == "True").then_some(())
        })
        .await;
    }
}

/// The manifest by which people install the operator.
const MANIFEST: &str = include_str!("../../../../deploy/operator.yaml");

/// Its object of a kind.
pub(crate) fn manifest(kind: &str) -> DynamicObject {
    let objects = serde_saphyr::from_multiple::<DynamicObject>(MANIFEST).unwrap();
    let is_of_kind = |object: &DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == kind);
    objects.into_iter().find(is_of_kind).unwrap()
}

/// Gives the operator the rights that its manifest gives it, and no more. Answers with a kubeconfig for it.
pub(crate) async fn authorise(client: &Client, kubeconfig: &Path, folder: &Path) -> PathBuf {
    for object in serde_saphyr::from_multiple::<DynamicObject>(MANIFEST).unwrap() {
        let types = object.types.clone().unwrap();
        if matches!(types.kind.as_str(), "Deployment" | "Service") {
            continue;
        }
        let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &kind),
            None => Api::all_with(client.clone(), &kind),
        };
        let name = object.name_any();
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let patch = Patch::Merge(&object);
                api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            }
            other => drop(other.unwrap()),
        }
    }
    let mut config = Kubeconfig::read_from(kubeconfig).unwrap();
    for named in &mut config.auth_infos {
        let account = "system:serviceaccount:bellwether-system:bellwether-operator";
        named.auth_info.get_or_insert_default().impersonate = Some(account.into());
    }
    let file = folder.join("kubeconfig");
    std::fs::write(&file, serde_saphyr::to_string(&config).unwrap()).unwrap();
    file
}

/// Makes a namespace; one that is left over goes first.
pub(crate) async fn namespace(client: &Client, name: &str) {
    let api: Api<Namespace> = Api::all(client.clone());
    let _ = api.delete(name, &DeleteParams::default()).await;
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    wait_for("the namespace", 60, async || api.create(&PostParams::default(), &namespace).await.ok()).await;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), name);
    wait_for("its account", 60, async || accounts.get_opt("default").await.unwrap()).await;
}

/// Makes a queue; one that is left over goes first.
pub(crate) async fn queue(client: &Client, name: &str, spec: Value) {
    let api: Api<Queue> = Api::all(client.clone());
    let _ = api.delete(name, &DeleteParams::default()).await;
    let queue = json!({"apiVersion": "train.bellwether.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name},
        "spec": spec});
    let queue: Queue = serde_json::from_value(queue).unwrap();
    wait_for("the queue", 10, async || api.create(&PostParams::default(), &queue).await.ok()).await;
}

/// The jobs of a namespace.
pub(crate) struct Jobs {
    /// Their API.
    pub(crate) api: Api<ElasticJob>,
    /// Pods of the namespace.
    pub(crate) pods: Api<Pod>,
}

impl Jobs {
    /// Those of this namespace.
    pub(crate) fn of(client: &Client, namespace: &str) -> Jobs {
        let api = Api::namespaced(client.clone(), namespace);
        Jobs { api, pods: Api::namespaced(client.clone(), namespace) }
    }

    /// Creates one.
    pub(crate) async fn create(&self, name: &str, spec: Value) -> ElasticJob {
        let job = json!({"apiVersion": "train.bellwether.dev/v1alpha1", "kind": "ElasticJob",
            "metadata": {"name": name}, "spec": spec});
        let job: ElasticJob = serde_json::from_value(job).unwrap();
        self.api.create(&PostParams::default(), &job).await.unwrap()
    }

    /// Its status.
    pub(crate) async fn status(&self, name: &str) -> Value {
        let job = self.api.get(name).await.unwrap();
        serde_json::to_value(&job.status).unwrap()
    }

    /// Waits until its status is as it should be.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        patience_s: u64,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        wait_for(&format!("{name}: {what}"), patience_s, async || {
            let status = self.status(name).await;
            is_so(&status).then_some(status)
        })
        .await
    }

    /// Says how many workers it should have, as `kubectl scale` does.
    pub(crate) async fn scale(&self, name: &str, workers: u32) {
        let patch = Patch::Merge(json!({"spec": {"replicas": workers}}));
        self.api.patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The pods of a role.
    pub(crate) async fn pods(&self, job: &str, role: &str) -> Vec<Pod> {
        let of_job = format!("train.bellwether.dev/job={job},train.bellwether.dev/role={role}");
        self.pods.list(&ListParams::default().labels(&of_job)).await.unwrap().items
    }
}
