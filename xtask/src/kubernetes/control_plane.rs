//! The processes of a cluster without nodes: etcd, API server, controller manager and scheduler, all on this machine.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::build::Programs;
use super::certificates::{certificate, key};
use super::client::Client;
use super::processes;

/// How long the API server may take to be ready, and then the first service account to be there. On a machine that has
/// other work they took 25 s and 7 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// The last minor version whose controller manager and scheduler listen without TLS unless told not to.
const LAST_WITH_PLAIN_PORT: u32 = 23;

/// Its processes, by name, in the order in which they begin.
const PROCESSES: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// When the controller manager takes a node for lost. Where it loses all nodes at once, it takes that for a fault of
/// its own and removes no pods, so a test that loses a node needs two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// After 8 seconds without a heartbeat, so that a test sees it within 10, and the deletion of the node's pods
    /// within 12: nodes must send one every 2 seconds.
    Quick,
    /// After 40 seconds, as by default: a thousand nodes that send heartbeats every 10 seconds leave the API server
    /// time for the test, and one that is late for want of processors is not taken for lost.
    Patient,
}

impl Pace {
    fn arguments(self) -> [&'static str; 2] {
        match self {
            Pace::Quick => ["--node-monitor-period=1s", "--node-monitor-grace-period=8s"],
            Pace::Patient => ["--node-monitor-period=5s", "--node-monitor-grace-period=40s"],
        }
    }
}

/// Starts everything in `folder`, which holds certificates, and waits until pods may be created. Its client may do
/// everything.
pub(crate) fn start(folder: &Path, programs: &Programs, pace: Pace, address: &str) -> Result<Client> {
    let server = match start_server(folder, programs, address) {
        Ok(server) => server,
        // A port may have gone to another program since it was free.
        Err(error) => {
            println!("the API server did not start, once more: {error:#}");
            processes::end(folder, &PROCESSES);
            start_server(folder, programs, address)?
        }
    };
    for name in ["admin", "controller-manager", "scheduler", "kubelet"] {
        write_kubeconfig(folder, name, &server)?;
    }
    let fast = ["--kube-api-qps=500", "--kube-api-burst=1000", "--leader-elect=false", "--secure-port=0"];
    let mut common: Vec<String> = fast.map(str::to_owned).to_vec();
    common.extend((programs.minor <= LAST_WITH_PLAIN_PORT).then(|| "--port=0".to_owned()));
    let mut manager = common.clone();
    manager.push(file("kubeconfig", &kubeconfig(folder, "controller-manager")));
    manager.push(file("service-account-private-key-file", &key(folder, "service-accounts")));
    manager.push(file("root-ca-file", &certificate(folder, "ca")));
    manager.push("--use-service-account-credentials=true".to_owned());
    // Otherwise it makes a folder outside.
    manager.push(file("flex-volume-plugin-dir", &folder.join("plugins")));
    manager.extend(pace.arguments().map(str::to_owned));
    // By default one lost node in ten seconds loses its pods, and none does where most of a small cluster is lost.
    manager.extend(
        [
            "--node-eviction-rate=100",
            "--secondary-node-eviction-rate=100",
            "--large-cluster-size-threshold=0",
        ]
        .map(str::to_owned),
    );
    processes::start(folder, "kube-controller-manager", &programs.path("kube-controller-manager"), &manager)?;
    common.push(file("kubeconfig", &kubeconfig(folder, "scheduler")));
    processes::start(folder, "kube-scheduler", &programs.path("kube-scheduler"), &common)?;
    let client = Client::new(folder, &server);
    // Without it, pods are refused.
    wait_for(folder, &client, "/api/v1/namespaces/default/serviceaccounts/default", &PROCESSES)?;
    Ok(client)
}

/// etcd and the API server; returns its URL.
fn start_server(folder: &Path, programs: &Programs, address: &str) -> Result<String> {
    let ports = free_ports(3)?;
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (clients, peers) = (url(ports[0]), url(ports[1]));
    let data = folder.join("etcd");
    let _ = fs::remove_dir_all(&data);
    let mut etcd = vec![file("data-dir", &data), "--name=etcd".to_owned(), "--unsafe-no-fsync".to_owned()];
    etcd.extend(["listen", "advertise"].map(|verb| format!("--{verb}-client-urls={clients}")));
    etcd.extend([format!("--listen-peer-urls={peers}"), format!("--initial-advertise-peer-urls={peers}")]);
    etcd.push(format!("--initial-cluster=etcd={peers}"));
    processes::start(folder, "etcd", &programs.path("etcd"), &etcd)?;
    let mut server = vec![format!("--etcd-servers={clients}"), format!("--secure-port={}", ports[2])];
    server.extend(["bind", "advertise"].map(|verb| format!("--{verb}-address={address}")));
    server.extend(SERVER.map(str::to_owned));
    server.extend([
        file("tls-cert-file", &certificate(folder, "apiserver")),
        file("tls-private-key-file", &key(folder, "apiserver")),
        file("client-ca-file", &certificate(folder, "ca")),
        file("service-account-key-file", &certificate(folder, "service-accounts")),
        file("service-account-signing-key-file", &key(folder, "service-accounts")),
        file("kubelet-client-certificate", &certificate(folder, "apiserver-to-kubelet")),
        file("kubelet-client-key", &key(folder, "apiserver-to-kubelet")),
        file("kubelet-certificate-authority", &certificate(folder, "ca")),
    ]);
    processes::start(folder, "kube-apiserver", &programs.path("kube-apiserver"), &server)?;
    let server = format!("https://{address}:{}", ports[2]);
    wait_for(folder, &Client::new(folder, &server), "/readyz", &PROCESSES[..2])?;
    Ok(server)
}

/// Its flags that no folder and no port is part of.
const SERVER: [&str; 12] = [
    "--endpoint-reconciler-type=none",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-cluster-ip-range=10.96.0.0/16",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    // By default, `kubectl logs` dials the name of the node.
    "--kubelet-preferred-address-types=InternalIP",
    "--allow-privileged=true",
    "--max-requests-inflight=1600",
    "--max-mutating-requests-inflight=800",
    // Pods of a lost node go after these seconds, in place of 300.
    "--default-not-ready-toleration-seconds=2",
    "--default-unreachable-toleration-seconds=2",
    "--profiling=false",
];

/// Waits until a path is there, as long as these processes run.
fn wait_for(folder: &Path, client: &Client, path: &str, needed: &[&str]) -> Result<()> {
    let since = Instant::now();
    loop {
        if client.get(path).is_ok_and(|answer| answer.status == 200) {
            return Ok(());
        }
        if let Some(dead) = needed.iter().find(|name| !processes::is_alive(folder, name)) {
            bail!("{dead} has ended; its last words:\n{}", processes::last_words(folder, dead));
        }
        if since.elapsed() > PATIENCE {
            bail!(
                "{path} was not there after {} s; the logs in {} tell why",
                PATIENCE.as_secs(),
                folder.display()
            );
        }
        std::thread::sleep(processes::PERIOD);
    }
}

/// The file with which a client finds the server.
pub(crate) fn kubeconfig(folder: &Path, name: &str) -> std::path::PathBuf {
    // The administrator's is the one for people.
    folder.join(if name == "admin" { "kubeconfig".to_owned() } else { format!("{name}.kubeconfig") })
}

fn write_kubeconfig(folder: &Path, name: &str, server: &str) -> Result<()> {
    let (authority, own, key) = (certificate(folder, "ca"), certificate(folder, name), key(folder, name));
    let text = format!(
        "apiVersion: v1
kind: Config
current-context: bellwether
clusters:
- name: bellwether
  cluster:
    server: {server}
    certificate-authority: {}
contexts:
- name: bellwether
  context:
    cluster: bellwether
    user: {name}
users:
- name: {name}
  user:
    client-certificate: {}
    client-key: {}
",
        authority.display(),
        own.display(),
        key.display()
    );
    let path = kubeconfig(folder, name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A flag that names a file.
pub(crate) fn file(flag: &str, path: &Path) -> String {
    format!("--{flag}={}", path.display())
}

/// Ports that no program has now.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
