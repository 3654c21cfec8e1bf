//! Hosts of our own on this machine: network namespaces behind one switch, each with a shaped link.

use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Bytes that a link may send at once after a rest.
const BURST: &str = "64kb";

/// Bytes that may wait for a link. TCP fills what there is, so this bounds the delay and the losses.
const QUEUE: &str = "1mb";

/// Bytes of a packet, as in a cluster's network: a switch in software cannot pass eight links of small ones.
const PACKET_BYTES: &str = "9000";

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
    pub(super) fn create(hosts: u32, rate: &str) -> Result<Namespaces, Failure> {
        let namespaces = Namespaces { prefix: format!("bellwether-{}-", std::process::id()), hosts };
        let switch = namespaces.name("switch");
        call("ip", &["netns", "add", &switch])?;
        call("ip", &["-n", &switch, "link", "add", "bridge", "type", "bridge"])?;
        call("ip", &["-n", &switch, "link", "set", "bridge", "up"])?;
        for host in 0..hosts {
            let (name, port) = (namespaces.host(host), format!("port{host}"));
            call("ip", &["netns", "add", &name])?;
            call(
                "ip",
                &[
                    "-n", &switch, "link", "add", &port, "type", "veth", "peer", "name", "uplink", "netns",
                    &name,
                ],
            )?;
            call(
                "ip",
                &["-n", &switch, "link", "set", &port, "master", "bridge", "mtu", PACKET_BYTES, "up"],
            )?;
            call("ip", &["-n", &name, "addr", "add", &format!("{}/24", address(host)), "dev", "uplink"])?;
            call("ip", &["-n", &name, "link", "set", "uplink", "mtu", PACKET_BYTES, "up"])?;
            call("ip", &["-n", &name, "link", "set", "lo", "up"])?;
            for (place, device) in [(&switch, port.as_str()), (&name, "uplink")] {
                let shape = [
                    "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", BURST, "limit",
                    QUEUE,
                ];
                call("tc", &[&["-n", place], shape.as_slice()].concat())?;
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
}

/// The address of a host.
pub(super) fn address(host: u32) -> String {
    format!("10.77.0.{}", host + 1)
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
