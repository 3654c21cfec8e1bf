"""Times a training on the runtime beside DistributedDataParallel, each process behind a slow link of its own.

    sudo python link.py CASE STEPS PAIRS WORKERS RATE [OPTION…]    RATE as `tc` writes it, such as 1gbit or 100mbit

Every process is alone in a network namespace, whose link to a switch is shaped in both directions; all share this
machine's cores. WORKERS may be HOSTSxEACH, such as 2x2: then as many processes are in each namespace. One thread in
every process, as many virtual nodes as workers. A pair is run one after the other, and the order changes from pair to
pair; the first fifth of the steps does not count. Options are for `bellwether run`, such as
`--set sync.policy=local:8`. Prints one JSON object: of each pair the median and the mean time of a step, and of ours
what its journal says: computing, the part of it beside which gradients were exchanged, the exchange that was left, and
the update; and what plain sockets take for the same bytes to and from the same peers, the limit of the exchange.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compare import COMMAND, HERE, begun

LONGEST_S = 1200.0
"""Programs that run for longer hang."""

PORT = 7700


def ip(arguments: str) -> None:
    """Runs `ip`; CalledProcessError if it fails."""
    subprocess.run(["ip", *arguments.split()], check=True)


def address(host: int) -> str:
    """That of a host in the shaped network."""
    return f"10.78.0.{host + 1}"


@contextlib.contextmanager
def hosts(count: int, rate: str) -> Iterator[list[str]]:
    """The names of namespaces behind one switch, each with a link of this rate; they are removed at the end."""
    prefix = f"bellwether-link-{os.getpid()}"
    names = [f"{prefix}-{host}" for host in range(count)]
    switch = f"{prefix}-switch"
    made = []
    try:
        for name in (switch, *names):
            ip(f"netns add {name}")
            made.append(name)
        ip(f"-n {switch} link add bridge type bridge")
        ip(f"-n {switch} link set bridge up")
        for host, name in enumerate(names):
            ip(f"-n {switch} link add port{host} type veth peer name uplink netns {name}")
            ip(f"-n {switch} link set port{host} master bridge up")
            ip(f"-n {name} addr add {address(host)}/24 dev uplink")
            ip(f"-n {name} link set uplink up")
            ip(f"-n {name} link set lo up")
            for place, device in ((switch, f"port{host}"), (name, "uplink")):
                shaped = f"-n {place} qdisc add dev {device} root tbf rate {rate} burst 64kb limit 1mb"
                subprocess.run(["tc", *shaped.split()], check=True)
        yield names
    finally:
        for name in made:
            ip(f"netns del {name}")


def start(host: str, command: list[str], log: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Starts a program in a namespace."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    with log.open("w") as file:
        return subprocess.Popen(
            ["ip", "netns", "exec", host, *command],
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def end(processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Waits for all; RuntimeError with what they said if one does not come to a good end."""
    until = time.monotonic() + LONGEST_S
    try:
        codes = [process.wait(timeout=until - time.monotonic()) for process in processes]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if any(codes):
        said = "\n".join(log.read_text()[-2000:] for log in sorted(folder.glob("*.log")))
        raise RuntimeError(f"exit codes {codes}: {said}")


def step_ms(folder: Path) -> dict[str, float]:
    """The median and the mean time of a step, from the times that the processes wrote."""
    firsts = [next(group)[1] for _, group in itertools.groupby(begun(folder), key=lambda one: one[0])]
    steps = [after - before for before, after in itertools.pairwise(firsts)]
    steps = [step * 1e3 for step in steps[len(steps) // 5 :]]
    return {"step_ms": statistics.median(steps), "mean_step_ms": statistics.mean(steps)}


def ours(
    places: list[int], names: list[str], folder: Path, case: str, steps: str, options: list[str]
) -> dict[str, float]:
    """A training on the runtime, with workers on these hosts."""
    workers = len(places)
    script = [str(HERE / "elastic.py"), case, steps, str(folder / "times"), "cpu", "f32", str(workers)]
    state, join = {"BELLWETHER_STATE_DIR": str(folder / "state")}, f"{address(0)}:{PORT}"
    run = [COMMAND, "run", script[0], "--python", sys.executable, "--no-spawn", "--listen", join]
    run += ["--workers", str(workers), *options, "--", *script[1:]]
    processes = [start(names[0], run, folder / "run.log", **state)]
    while not (tokens := list((folder / "state").glob("*/token"))) and processes[0].poll() is None:
        time.sleep(0.05)
    if not tokens:
        end(processes, folder)
    token = tokens[0]
    for number, host in enumerate(places):
        worker = [COMMAND, "worker", "--join", join, "--token-file", str(token)]
        worker += ["--listen", f"{address(host)}:0", "--", sys.executable, *script]
        processes.append(start(names[host], worker, folder / f"worker-{number}.log", **state))
    end(processes, folder)
    records = [json.loads(line) for line in (token.parent / "metrics.jsonl").read_text().splitlines()]
    records = records[len(records) // 5 :]
    keys = ("duration_s", "compute_s", "hidden_s", "exchange_s", "update_s")
    found = {key: statistics.median(record.get(key, 0.0) for record in records) for key in keys}
    found["sent_bytes"] = max(over_network(one.get("traffic", [])) for one in records)
    return {**step_ms(folder), **found}


def over_network(traffic: list[dict[str, Any]]) -> int:
    """Bytes that a worker sent to those on other hosts."""
    return sum(peer["sent_bytes"] for peer in traffic if peer.get("link", "").endswith("tcp"))


def sockets_ms(names: list[str], folder: Path, sent_bytes: float) -> float:
    """What plain sockets take, when every host sends so many bytes to the others, and receives as many."""
    addresses, workers = ",".join(address(host) for host in range(len(names))), len(names)
    each = str(int(sent_bytes) // (workers - 1))
    logs = [folder / f"sockets-{host}.log" for host in range(workers)]
    processes = []
    for host, name in enumerate(names):
        command = [sys.executable, str(HERE / "both_ways.py"), str(host), str(workers), addresses]
        processes.append(start(name, [*command, str(PORT + 2), each, "3"], logs[host]))
    end(processes, folder)
    return max(float(log.read_text()) for log in logs)


def theirs(
    places: list[int], names: list[str], folder: Path, case: str, steps: str, _: list[str]
) -> dict[str, float]:
    """The same by PyTorch's own processes."""
    processes = []
    for rank, host in enumerate(places):
        command = [sys.executable, str(HERE / "ddp.py"), case, steps, str(folder / "times")]
        place = {
            "RANK": str(rank),
            "LOCAL_RANK": str(places[:rank].count(host)),
            "WORLD_SIZE": str(len(places)),
        }
        place |= {"MASTER_ADDR": address(0), "MASTER_PORT": str(PORT + 1), "GLOO_SOCKET_IFNAME": "uplink"}
        processes.append(start(names[host], command, folder / f"process-{rank}.log", **place))
    end(processes, folder)
    return step_ms(folder)


def main() -> None:
    """Reads the command line, and prints what was measured."""
    (case, steps, pairs, workers, rate), options = sys.argv[1:6], sys.argv[6:]
    count, each = (int(number) for number in (workers if "x" in workers else f"{workers}x1").split("x"))
    if count < 2:
        sys.exit("WORKERS: a link has two ends, so give two hosts or more")
    places = [host for host in range(count) for _ in range(each)]
    measured: list[dict[str, Any]] = []
    before = os.getloadavg()[0]
    with hosts(count, rate) as names:
        for number in range(int(pairs)):
            pair: dict[str, Any] = {}
            kinds = {"theirs": theirs, "ours": ours}
            for who in sorted(kinds, reverse=number % 2 == 0):
                with tempfile.TemporaryDirectory(prefix="bellwether-link-") as place:
                    pair[who] = kinds[who](places, names, Path(place), case, steps, options)
            with tempfile.TemporaryDirectory(prefix="bellwether-link-") as place:
                sent_bytes = pair["ours"]["sent_bytes"] * each
                pair["sockets_ms"] = sockets_ms(names, Path(place), sent_bytes)
            measured.append({**pair, "load": os.getloadavg()[0]})
    # Of several steps only the last may have an exchange.
    of = "mean_step_ms" if options else "step_ms"
    ratio = statistics.median(pair["ours"][of] / pair["theirs"][of] for pair in measured)
    about: dict[str, Any] = {
        "case": case,
        "steps": int(steps),
        "workers": workers,
        "rate": rate,
        "options": options,
    }
    about |= {"machine": f"{platform.machine()}, {os.cpu_count()} cores", "load_before": before}
    print(json.dumps({**about, "median_ratio_ours_to_theirs": ratio, "pairs": measured}, indent=1))


if __name__ == "__main__":
    main()
