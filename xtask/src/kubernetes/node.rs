//! A node that runs pods: containerd and the kubelet on this machine, as root.
//!
//! Both live in a mount namespace of their own, in which `/run`, `/var/lib` and `/var/log` write to the folder of the
//! cluster: so what they keep at fixed places, and all that they mount, goes with them. What else they change of the
//! machine is put back by `machine`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::build::Programs;
use super::certificates::{certificate, key};
use super::client::Client;
use super::control_plane::{file, free_ports, kubeconfig};
use super::image::Image;
use super::machine::{ADDRESS, BRIDGE, CGROUP, NODE};
use super::processes;
use crate::debian::{install, runs};
use crate::tree;

/// Debian's packages.
const PACKAGES: [&str; 6] =
    ["containerd", "runc", "containernetworking-plugins", "iproute2", "gcc", "libc6-dev"];

/// Where Debian has the plugins that give pods a network.
const PLUGINS: &str = "/usr/lib/cni";

/// Images that the node has; there is no registry.
pub(crate) const POD_IMAGE: &str = "local.test/pod:1";
const WORKER_IMAGE: &str = "local.test/bellwether:1";

/// The variable in which tests find the name of an image with our command; only a cluster with a node has it.
pub(crate) const VARIABLE: &str = "BELLWETHER_TEST_KUBERNETES_IMAGE";

/// The pods' network. Packets do not leave the machine: addresses are not translated.
const NETWORK: &str = "10.88.0.0/24";

/// The last kubelet that must be told of containerd.
const LAST_WITH_DOCKER: u32 = 23;

/// How long containerd, and then the node, may take to be ready. On a machine that has other work it took 16 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes the mount namespace, then turns into what follows the folder.
const ENTER: &str = r#"set -e
folder=$1
shift
mkdir -p "$folder/run"
for part in lib log; do
    own=$folder/var/$part
    mkdir -p "$own" "$own.work"
    mount -t overlay -o "lowerdir=/var/$part,upperdir=$own,workdir=$own.work" overlay "/var/$part"
done
mount --bind "$folder/run" /run
exec "$@""#;

/// What a node is made of, if need be after installing it.
pub(crate) fn need() -> Result<()> {
    let is_there = || {
        let programs =
            [("containerd", "--version"), ("runc", "--version"), ("ip", "-Version"), ("gcc", "--version")];
        programs.iter().all(|(program, argument)| runs(program, &[argument]))
            && Path::new(PLUGINS).join("bridge").exists()
    };
    if !(is_there() || install("a node of Kubernetes", &PACKAGES) && is_there()) {
        bail!(
            "what a node needs is not there (Debian: `apt-get install --no-install-recommends {}`)",
            PACKAGES.join(" ")
        );
    }
    Ok(())
}

/// Starts a node for the control plane of this folder, and waits until pods can run.
pub(crate) fn start(folder: &Path, programs: &Programs, client: &Client) -> Result<()> {
    let since = Instant::now();
    start_containerd(folder)?;
    import_images(folder)?;
    start_kubelet(folder, programs)?;
    let path = format!("/api/v1/nodes/{NODE}");
    let is_ready = || {
        let node = client.get(&path).ok()?.granted().ok()?;
        let conditions = node["status"]["conditions"].as_array()?;
        Some(conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
    };
    if !processes::wait_until(PATIENCE, || is_ready() == Some(true)) {
        bail!(
            "the node is not ready; the last words of its kubelet:\n{}",
            processes::last_words(folder, "kubelet")
        );
    }
    println!("a node is ready after {:.1} s", since.elapsed().as_secs_f64());
    Ok(())
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("containerd.sock")
}

fn start_containerd(folder: &Path) -> Result<()> {
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "bellwether",
        "plugins": [{
            "type": "bridge",
            "bridge": BRIDGE,
            "isDefaultGateway": true,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": { "type": "host-local", "ranges": [[{ "subnet": NETWORK }]], "dataDir": folder.join("addresses") },
        }],
    });
    fs::create_dir_all(folder.join("network"))?;
    fs::write(folder.join("network/bellwether.conflist"), network.to_string())?;
    let configuration = folder.join("containerd.toml");
    fs::write(&configuration, containerd_configuration(folder))?;
    let mut arguments =
        ["--mount", "--propagation", "private", "sh", "-c", ENTER, "sh"].map(str::to_owned).to_vec();
    arguments.push(folder.display().to_string());
    arguments.extend(["containerd", "--config"].map(str::to_owned));
    arguments.push(configuration.display().to_string());
    processes::start(folder, "containerd", Path::new("unshare"), &arguments)?;
    let answers = || ctr(folder).arg("version").output().is_ok_and(|output| output.status.success());
    if !processes::wait_until(PATIENCE, || answers() || !processes::is_alive(folder, "containerd"))
        || !answers()
    {
        bail!("containerd does not answer; its last words:\n{}", processes::last_words(folder, "containerd"));
    }
    Ok(())
}

/// Nothing negative may be asked of the kernel's killer, and no profile be loaded: containers in which tests run
/// forbid both. The plugin `opt` makes a folder outside.
fn containerd_configuration(folder: &Path) -> String {
    let (root, socket) = (folder.join("containerd"), socket(folder));
    let (root, socket, network) = (root.display(), socket.display(), folder.join("network"));
    format!(
        r#"version = 2
root = "{root}/root"
state = "{root}/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{POD_IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
tolerate_missing_hugetlb_controller = true
disable_hugetlb_controller = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"#,
        network.display()
    )
}

/// A command in the node's namespace.
fn inside(folder: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command
        .args(["--mount", "--target"])
        .arg(processes::pid(folder, "containerd").unwrap_or_default().to_string());
    command.stdin(Stdio::null());
    command
}

fn ctr(folder: &Path) -> Command {
    let mut command = inside(folder);
    command.args(["ctr", "--namespace", "k8s.io", "--address"]).arg(socket(folder));
    command
}

/// The small program that every pod needs, and our command where it has been built.
fn import_images(folder: &Path) -> Result<()> {
    let (source, program) = (folder.join("pod.c"), folder.join("pod"));
    fs::write(&source, include_str!("pod.c"))?;
    let mut compile = Command::new("gcc");
    said(compile.args(["-static", "-O2", "-Wall", "-o"]).arg(&program).arg(&source))?;
    import(folder, &Image::of_program(POD_IMAGE, &program)?)?;
    match worker_image()? {
        Some((programs, image)) => {
            let programs: Vec<(&str, &Path)> =
                programs.iter().map(|(path, program)| (*path, program.as_path())).collect();
            import(folder, &Image::of_programs(image, &programs)?)
        }
        None => Ok(()),
    }
}

/// Programs with their paths in an image.
type Contents = Vec<(&'static str, PathBuf)>;

/// Our programs, where they have been built, and the image in which a node has them.
pub(crate) fn worker_image() -> Result<Option<(Contents, &'static str)>> {
    let folder = tree::target()?.join("release");
    let programs = ["bellwether", "bellwether-operator"].map(|name| folder.join(name));
    let are_there = programs.iter().all(|program| program.exists());
    let [command, operator] = programs;
    let programs = vec![("usr/bin/bellwether", command), ("usr/bin/bellwether-operator", operator)];
    Ok(are_there.then_some((programs, WORKER_IMAGE)))
}

fn import(folder: &Path, image: &Image) -> Result<()> {
    let archive = folder.join("image.tar");
    image.write(&archive)?;
    said(ctr(folder).args(["images", "import"]).arg(&archive))?;
    fs::remove_file(archive)?;
    Ok(())
}

fn start_kubelet(folder: &Path, programs: &Programs) -> Result<()> {
    let port = free_ports(1)?[0];
    let root = folder.join("kubelet");
    // What resolves names may be a link into `/run`, which the node does not see.
    let names = folder.join("resolv.conf");
    fs::write(&names, fs::read("/etc/resolv.conf").unwrap_or_default())?;
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "port": port,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {
            "x509": { "clientCAFile": certificate(folder, "ca") },
            "webhook": { "enabled": false },
            "anonymous": { "enabled": false },
        },
        "authorization": { "mode": "AlwaysAllow" },
        "tlsCertFile": certificate(folder, "kubelet"),
        "tlsPrivateKeyFile": key(folder, "kubelet"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{CGROUP}"),
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "oomScoreAdj": 0,
        "resolvConf": names,
        "volumePluginDir": root.join("plugins"),
        "imageGCHighThresholdPercent": 99,
        "evictionHard": { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        // It says every two seconds that it lives: the controller manager is as impatient.
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "2s",
    });
    let path = folder.join("kubelet.json");
    fs::write(&path, configuration.to_string())?;
    let pid = processes::pid(folder, "containerd").context("containerd is not recorded")?;
    let mut arguments = vec![format!("--target={pid}"), "--mount".to_owned()];
    arguments.push(programs.path("kubelet").display().to_string());
    arguments.extend([file("config", &path), file("kubeconfig", &kubeconfig(folder, "kubelet"))]);
    arguments.extend([file("root-dir", &root), file("cert-dir", &root.join("pki"))]);
    arguments.push(format!("--container-runtime-endpoint=unix://{}", socket(folder).display()));
    arguments.extend([format!("--hostname-override={NODE}"), format!("--node-ip={ADDRESS}")]);
    arguments.extend((programs.minor <= LAST_WITH_DOCKER).then(|| "--container-runtime=remote".to_owned()));
    processes::start(folder, "kubelet", Path::new("nsenter"), &arguments)
}

/// Runs a program; where it fails, what it said.
fn said(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
