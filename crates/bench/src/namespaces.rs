//! Hosts of our own on this machine: network namespaces behind one switch, each with a shaped link.
//!
//! Simultaneous transfers share a link as its queue says: all wait in one (a token bucket), or those of each other host
//! in a queue of their own, served in turns (a hierarchy of token buckets).

use std::process::{Child, Command, Stdio};

use crate::failure::Failure;
use crate::programs::bellwether;

/// Bytes that a link may send at once after a rest.
const BURST: &str = "64kb";

/// Bytes that may wait for a link. TCP fills what there is, so this bounds the delay and the losses.
const QUEUE: &str = "1mb";

/// Bytes that may wait for a link in the queue of one other host.
const OWN_QUEUE: &str = "512kb";

/// Bytes that a queue may send in its turn: two packets.
const TURN: &str = "18000";

/// Bytes of a packet, as in a cluster's network: a switch in software cannot pass eight links of small ones.
const PACKET_BYTES: &str = "9000";

/// How those who use a link at the same time share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queues {
    /// First come first served, packet by packet.
    One,
    /// In equal turns for each other host, as a network card with fair queues does it.
    Each,
}

/// A process that ends with this value.
pub(super) struct Guard(pub(super) Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // One that has ended needs no killing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Namespaces `0..hosts` with the addresses `10.77.0.1…`; removed when dropped.
#[derive(Debug)]
pub(super) struct Namespaces {
    prefix: String,
    hosts: u32,
}

/// Why there can be none here, if so.
pub(super) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    let works = |program: &str| Command::new(program).arg("-V").output().is_ok_and(|o| o.status.success());
    ["ip", "tc"]
        .into_iter()
        .find(|program| !works(program))
        .map(|program| format!("`{program}` is not installed; it belongs to the package iproute2"))
}

impl Namespaces {
    /// Makes them, each with a link of `rate` (as `tc` writes it) in both directions.
    pub(super) fn create(hosts: u32, rate: &str, queues: Queues) -> Result<Namespaces, Failure> {
        let namespaces = Namespaces { prefix: format!("bellwether-{}-", std::process::id()), hosts };
        let switch = namespaces.name("switch");
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge up"))?;
        for host in 0..hosts {
            let (name, port) = (namespaces.host(host), format!("port{host}"));
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {switch} link add {port} type veth peer name uplink netns {name}"))?;
            ip(&format!("-n {switch} link set {port} master bridge mtu {PACKET_BYTES} up"))?;
            ip(&format!("-n {name} addr add {}/24 dev uplink", address(host)))?;
            ip(&format!("-n {name} link set uplink mtu {PACKET_BYTES} up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            // What leaves a host is told apart by where it goes, what comes to it by where it is from.
            for (place, device, other) in [(&switch, port.as_str(), "src"), (&name, "uplink", "dst")] {
                match queues {
                    Queues::One => shape(place, device, rate)?,
                    Queues::Each => shape_fairly(place, device, other, rate, hosts)?,
                }
            }
        }
        Ok(namespaces)
    }

    fn name(&self, what: &str) -> String {
        format!("{}{what}", self.prefix)
    }

    fn host(&self, host: u32) -> String {
        self.name(&host.to_string())
    }

    /// From now on all that `from` sends to `to` vanishes.
    pub(super) fn swallow(&self, from: u32, to: u32) -> Result<(), Failure> {
        ip(&format!("-n {} route add blackhole {}/32", self.host(from), address(to)))
    }

    /// `program` with its arguments and without input or output, in the namespace of `host`.
    pub(super) fn inside(&self, host: u32, program: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host(host)]).arg(program.get_program()).args(program.get_args());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        for (name, value) in program.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command
    }

    /// Starts a worker or a server (`verb`) on `host` that joins the run at `endpoint`.
    pub(super) fn join(
        &self,
        host: u32,
        verb: &str,
        (endpoint, token_file): (&str, &str),
    ) -> Result<Guard, Failure> {
        let mut command = bellwether()?;
        command.args([verb, "--join", endpoint, "--listen", &format!("{}:0", address(host))]);
        command.args(["--token-file", token_file]);
        let child = self.inside(host, &command).stderr(Stdio::null()).spawn();
        Ok(Guard(child.map_err(|e| Failure::at(format!("bellwether {verb}"), e))?))
    }
}

/// The address of a host.
pub(super) fn address(host: u32) -> String {
    format!("10.77.0.{}", host + 1)
}

/// One queue for all.
fn shape(place: &str, device: &str, rate: &str) -> Result<(), Failure> {
    tc(&format!("-n {place} qdisc add dev {device} root tbf rate {rate} burst {BURST} limit {QUEUE}"))
}

/// A queue for each of `hosts`, and one for what is of no host: neighbours that look for each other.
fn shape_fairly(place: &str, device: &str, other: &str, rate: &str, hosts: u32) -> Result<(), Failure> {
    // Packets larger than a turn would make the turns unequal.
    ip(&format!("-n {place} link set {device} gso_max_size {TURN}"))?;
    let unused = hosts + 1;
    tc(&format!("-n {place} qdisc add dev {device} root handle 1: htb default {unused:x}"))?;
    let class = format!("-n {place} class add dev {device}");
    let whole = format!("ceil {rate} burst {TURN} cburst {TURN} quantum {TURN}");
    tc(&format!("{class} parent 1: classid 1:ffff htb rate {rate} {whole}"))?;
    for queue in 1..=unused {
        // Next to nothing is a queue's own; all else is lent in turns.
        tc(&format!("{class} parent 1:ffff classid 1:{queue:x} htb rate 8kbit {whole}"))?;
        tc(&format!("-n {place} qdisc add dev {device} parent 1:{queue:x} bfifo limit {OWN_QUEUE}"))?;
    }
    for host in 0..hosts {
        let (address, queue) = (address(host), host + 1);
        tc(&format!(
            "-n {place} filter add dev {device} parent 1: protocol ip prio 1 u32 match ip {other} {address}/32 \
             flowid 1:{queue:x}"
        ))?;
    }
    Ok(())
}

fn ip(words: &str) -> Result<(), Failure> {
    call("ip", &words.split_whitespace().collect::<Vec<_>>())
}

fn tc(words: &str) -> Result<(), Failure> {
    call("tc", &words.split_whitespace().collect::<Vec<_>>())
}

fn call(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let place = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().map_err(|e| Failure::at(place(), e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::at(place(), String::from_utf8_lossy(&output.stderr).trim()))
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // What was never made cannot be removed, and that is fine.
        for host in 0..self.hosts {
            let _ = call("ip", &["netns", "del", &self.host(host)]);
        }
        let _ = call("ip", &["netns", "del", &self.name("switch")]);
    }
}
