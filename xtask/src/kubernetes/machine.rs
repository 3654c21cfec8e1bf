//! What a node changes of the machine, and how all of it is put back, even after the bench was killed.
//!
//! The values from before are in a file of the folder before anything is changed, and are read there when the cluster
//! is ended. Mounts need no such care: the node has a mount namespace of its own, which goes with its processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::processes;
use crate::debian::is_root;

/// The node's name, and its address on this machine: the kubelet wants one that is not of the loopback network.
pub(crate) const NODE: &str = "node1";
pub(crate) const ADDRESS: &str = "10.123.0.1";

/// The bridge of the pods' network.
pub(crate) const BRIDGE: &str = "bellwether0";

/// The group below which the kubelet makes its own.
pub(crate) const CGROUP: &str = "bellwether-kubernetes";

/// Settings of the kernel that the kubelet sets, and the bridge plugin (the last one).
const SETTINGS: [&str; 7] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
];

/// Where containerd, the kubelet and the plugins of networks keep things whatever they are told.
const PLACES: [&str; 9] = [
    "/run/containerd",
    "/var/lib/containerd",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
    "/opt/containerd",
    "/opt/cni",
    "/usr/libexec/kubernetes",
];

/// How long processes may take to go once they are killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The file that says how the machine was.
pub(crate) fn record(folder: &Path) -> PathBuf {
    folder.join("machine")
}

fn setting(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

/// Why no node can run here, if so.
pub(crate) fn objection() -> Option<&'static str> {
    if !is_root() {
        return Some("only root can run a node");
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let has_memory = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        fields.get(2) == Some(&"cgroup") && fields.get(3).is_some_and(|o| o.split(',').any(|o| o == "memory"))
    };
    if !mounts.lines().any(has_memory) {
        return Some("this machine has no cgroups of version 1, which is what the kubelet 1.20 knows well");
    }
    None
}

/// Writes down what there is, then adds the node's address and its group of processes.
pub(crate) fn change(folder: &Path) -> Result<()> {
    if cgroups().iter().any(|path| path.exists()) || has_address()? {
        bail!(
            "another node of a bench is on this machine: {ADDRESS} or the cgroup {CGROUP} is there; \
             `cargo xtask kubernetes down` ends it, with its TMPDIR"
        );
    }
    let mut lines = String::new();
    for name in SETTINGS {
        if let Ok(value) = fs::read_to_string(setting(name)) {
            lines += &format!("{name} {}\n", value.trim());
        }
    }
    let new = folder.join("machine.new");
    fs::write(&new, lines).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(new, record(folder))?;
    ip(&["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"])?;
    for path in cgroups() {
        // The second hierarchy of a machine with both versions is not for the kubelet.
        if !path.with_file_name("cgroup.controllers").exists() {
            fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
    }
    Ok(())
}

/// Ends what a node of this folder has left, if there was one, and puts everything back. Its own processes have ended.
pub(crate) fn restore(folder: &Path) -> Result<()> {
    let Ok(lines) = fs::read_to_string(record(folder)) else { return Ok(()) };
    let is_shim = |words: &[&str]| {
        let is_ours = words.iter().any(|word| Path::new(word).starts_with(folder));
        is_ours && words.first().is_some_and(|program| program.ends_with("containerd-shim-runc-v2"))
    };
    let is_empty = processes::wait_until(PATIENCE, || {
        processes::kill_where(is_shim);
        let groups = cgroups();
        let pids: Vec<String> = groups.iter().flat_map(|group| pids_below(group)).collect();
        if !pids.is_empty() {
            let _ = Command::new("kill").arg("-KILL").args(&pids).stderr(Stdio::null()).status();
        }
        groups.iter().all(|group| remove_below(group))
    });
    let _ = Command::new("ip").args(["link", "delete", BRIDGE]).stderr(Stdio::null()).status();
    if has_address()? {
        ip(&["address", "delete", &format!("{ADDRESS}/32"), "dev", "lo"])?;
    }
    for line in lines.lines() {
        let Some((name, value)) = line.split_once(' ').filter(|(name, _)| SETTINGS.contains(name)) else {
            continue;
        };
        let is_same = fs::read_to_string(setting(name)).is_ok_and(|now| now.trim() == value);
        if !is_same {
            fs::write(setting(name), value).with_context(|| format!("cannot set {name} back to {value}"))?;
        }
    }
    if !is_empty {
        bail!("processes of the node do not go; they are in the cgroup {CGROUP}");
    }
    fs::remove_file(record(folder))?;
    Ok(())
}

/// What a node may change and must put back, and what its programs keep at fixed places, a line each: two pictures are
/// equal if nothing is left.
pub(crate) fn picture(folder: &Path) -> Result<String> {
    let mut lines: Vec<String> = SETTINGS
        .iter()
        .map(|name| format!("{name} {}", fs::read_to_string(setting(name)).unwrap_or_default().trim()))
        .collect();
    lines.push(format!("the node's address: {}", has_address()?));
    let paths = PLACES.iter().map(PathBuf::from).chain(cgroups());
    lines.extend(paths.filter(|path| path.exists()).map(|path| path.display().to_string()));
    let is_ours = |line: &&str| line.contains(&*folder.to_string_lossy());
    lines.extend(fs::read_to_string("/proc/self/mounts")?.lines().filter(is_ours).map(str::to_owned));
    for place in ["/sys/class/net", "/run/netns"] {
        let entries = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        let names = ["bellwether", "veth", "cni-"];
        let is_of_node = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            names.iter().any(|start| name.starts_with(start))
        };
        lines.extend(entries.filter(is_of_node).map(|path| path.display().to_string()));
    }
    let of_folder =
        processes::count_where(|words| words.iter().any(|word| Path::new(word).starts_with(folder)));
    lines.push(format!("processes of the folder: {of_folder}"));
    Ok(lines.join("\n"))
}

/// Whether the kubelet has come so far that it has made its own groups, which it does after it has changed settings.
pub(crate) fn has_groups_of_kubelet() -> bool {
    cgroups().iter().any(|group| group.join("kubepods").exists())
}

/// The node's group in each hierarchy.
fn cgroups() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let of_cgroups = fields.filter(|fields| matches!(fields.get(2), Some(&("cgroup" | "cgroup2"))));
    of_cgroups.filter_map(|fields| Some(Path::new(fields.get(1)?).join(CGROUP))).collect()
}

fn groups_in(group: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

fn pids_below(group: &Path) -> Vec<String> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let own = text.lines().map(str::to_owned);
    own.chain(groups_in(group).flat_map(|group| pids_below(&group))).collect()
}

/// Removes a group with those below it, as soon as they hold no process; whether it is gone.
fn remove_below(group: &Path) -> bool {
    groups_in(group).for_each(|group| {
        remove_below(&group);
    });
    let _ = fs::remove_dir(group);
    !group.exists()
}

fn has_address() -> Result<bool> {
    let output = Command::new("ip").args(["-oneline", "address", "show", "dev", "lo"]).output();
    let output = output.context("cannot start ip (Debian: `apt-get install iproute2`)")?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(&format!(" {ADDRESS}/")))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output =
        Command::new("ip").args(arguments).stdin(Stdio::null()).output().context("cannot start ip")?;
    if !output.status.success() {
        bail!("`ip {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
