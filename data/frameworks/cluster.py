"""Hosts of our own on one machine: a network namespace with a shaped link, and a share of a core, for each.

The links are those of `crates/bench/src/namespaces.rs`: veth pairs to one bridge, a token bucket in each direction,
packets of 9,000 bytes. The share is a quota of the kernel's bandwidth control (cgroup v1, `cpu.cfs_quota_us`).
"""

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

BURST, QUEUE, PACKET_BYTES = "64kb", "1mb", "9000"
CONTROL = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


class Host:
    """One host: a namespace and a control group. `share` is the part of a core that its processes get together."""

    def __init__(self, prefix: str, number: int, share: float) -> None:
        self.number = number
        self.name = f"{prefix}{number}"
        self.address = f"10.78.0.{number + 1}"
        self.share = share
        self.group = CONTROL / prefix.rstrip("-") / self.name
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str], environment: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
        """Starts a process here; it has the whole machine until `hold`."""
        tasks = str(self.group / "cgroup.procs")

        def enter() -> None:
            with open(tasks, "w") as file:
                file.write(str(os.getpid()))

        with open(output, "wb") as out:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *command],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=open(str(output) + ".err", "wb"),
                preexec_fn=enter,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def hold(self) -> None:
        """From now on its processes get no more than the share."""
        self.group.joinpath("cpu.cfs_period_us").write_text(str(PERIOD_US))
        self.group.joinpath("cpu.cfs_quota_us").write_text(str(int(PERIOD_US * self.share)))

    def release(self) -> None:
        """From now on they get what they ask for."""
        self.group.joinpath("cpu.cfs_quota_us").write_text("-1")

    def stop(self) -> None:
        """Kills what runs here."""
        self.release()
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()


class Cluster:
    """`hosts` hosts behind one switch, each with a link of `rate` (as `tc` writes it); removed at the end."""

    def __init__(self, hosts: int, rate: str, share: float) -> None:
        self.prefix = f"bwf{os.getpid()}-"
        self.rate = rate
        self.hosts = [Host(self.prefix, number, share) for number in range(hosts)]

    def __enter__(self) -> "Cluster":
        switch = self.prefix + "switch"
        _call("ip", "netns", "add", switch)
        _call("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _call("ip", "-n", switch, "link", "set", "bridge", "up")
        parent = CONTROL / self.prefix.rstrip("-")
        parent.mkdir(exist_ok=True)
        # Against whatever else runs on the machine, not against each other.
        parent.joinpath("cpu.shares").write_text("65536")
        for host in self.hosts:
            host.group.mkdir(exist_ok=True)
            port = f"port{host.number}"
            _call("ip", "netns", "add", host.name)
            _call(*f"ip -n {switch} link add {port} type veth peer name uplink netns {host.name}".split())
            _call(*f"ip -n {switch} link set {port} master bridge mtu {PACKET_BYTES} up".split())
            _call(*f"ip -n {host.name} addr add {host.address}/24 dev uplink".split())
            _call(*f"ip -n {host.name} link set uplink mtu {PACKET_BYTES} up".split())
            _call(*f"ip -n {host.name} link set lo up".split())
            for place, device in ((switch, port), (host.name, "uplink")):
                shape = f"tc -n {place} qdisc add dev {device} root tbf rate {self.rate} burst {BURST} limit {QUEUE}"
                _call(*shape.split())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            host.stop()
        time.sleep(0.2)
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True)
            host.group.rmdir()
        subprocess.run(["ip", "netns", "del", self.prefix + "switch"], capture_output=True)
        (CONTROL / self.prefix.rstrip("-")).rmdir()
