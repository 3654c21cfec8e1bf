"""Profiles, calibrates and measures; `python measure.py --help`. Needs root, `ip` and `tc`."""

import argparse
import csv
import json
import os
import sys
import time
from pathlib import Path

from cluster import Cluster, Host

HERE = Path(__file__).parent
SHARE = 0.2
PORT = "29700"


def wait_for(path: Path, word: str, count: int, seconds: float, host: Host) -> list[list[str]]:
    """Lines of `path` that begin with `word`, as soon as there are `count`."""
    deadline = time.time() + seconds
    while True:
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        # The last line may be half written.
        found = [line for line in lines if line and line[0] == word][
            : None if len(lines) == 0 else len(lines)
        ]
        if len(found) >= count:
            return found
        ended = host.processes[0].poll()
        if ended is not None:
            raise RuntimeError(f"{path}: ended with {ended}: {Path(str(path) + '.err').read_text()[-800:]}")
        if time.time() > deadline:
            raise RuntimeError(f"{path}: {len(found)} of {count} lines `{word}` after {seconds} s")
        time.sleep(0.1)


def load() -> float:
    """Processes that ran or waited to, in the last minute."""
    return os.getloadavg()[0]


def start_torch(cluster: Cluster, script: str, arguments: list[str], work: Path, python: str) -> Path:
    """Starts a process per host; returns what rank 0 prints."""
    for host in cluster.hosts:
        environment = {
            "RANK": str(host.number),
            "WORLD_SIZE": str(len(cluster.hosts)),
            "MASTER_ADDR": cluster.hosts[0].address,
            "MASTER_PORT": PORT,
            "GLOO_SOCKET_IFNAME": "uplink",
            "OMP_NUM_THREADS": "1",
        }
        (work / f"out{host.number}").unlink(missing_ok=True)
        host.start([python, str(HERE / script), *arguments], environment, work / f"out{host.number}")
    return work / "out0"


def start_tensorflow(cluster: Cluster, script: str, arguments: list[str], work: Path, python: str) -> Path:
    """Starts a chief, a parameter server and a worker per host after these; returns what the chief prints."""
    roles = [("chief", 0), ("ps", 0)] + [("worker", number) for number in range(len(cluster.hosts) - 2)]
    places: dict[str, list[str]] = {}
    for host, (kind, _) in zip(cluster.hosts, roles):
        places.setdefault(kind, []).append(f"{host.address}:{PORT}")
    # The chief last: it asks the others.
    for host, (kind, index) in reversed(list(zip(cluster.hosts, roles))):
        task = {"cluster": places, "task": {"type": kind, "index": index}}
        environment = {"TF_CONFIG": json.dumps(task)}
        (work / f"out{host.number}").unlink(missing_ok=True)
        host.start([python, str(HERE / script), *arguments], environment, work / f"out{host.number}")
    return work / "out0"


def used_between(path: Path, begin: float, end: float) -> float:
    """Processor seconds that a process says it used, straight lines between what it says."""
    rows = [line.split() for line in path.read_text().splitlines() if line.startswith("used ")]
    points = [(float(row[1]), float(row[2])) for row in rows if len(row) == 3]

    def at(when: float) -> float:
        for (t0, u0), (t1, u1) in zip(points, points[1:]):
            if t0 <= when <= t1:
                return u0 + (u1 - u0) * (when - t0) / (t1 - t0)
        raise RuntimeError(f"{path}: nothing is said of {when}")

    return at(end) - at(begin)


def step_times(lines: list[list[str]]) -> list[tuple[int, float]]:
    """Number and time of each step."""
    return [(int(line[1]), float(line[2])) for line in lines if len(line) == 3]


def rate(
    cluster: Cluster, out: Path, seconds: float, least: int, settle: int
) -> tuple[float, int, float, int]:
    """Steps per second after `settle` steps under the quota: for `seconds`, and `least` steps. And steps, load, first step."""
    first = cluster.hosts[0]
    warm = step_times(wait_for(out, "step", 3, 120, first))
    for host in cluster.hosts:
        host.hold()
    begin_at = warm[-1][0] + settle
    wait_for(out, "step", begin_at + 1, 300, first)
    begin = time.time()
    while True:
        steps = step_times(wait_for(out, "step", 1, 10, first))
        counted = [(number, at) for number, at in steps if number >= begin_at]
        enough = len(counted) > least and counted[-1][1] - counted[0][1] >= seconds
        if enough or time.time() - begin > 150:
            break
        time.sleep(0.2)
    (n0, t0), (n1, t1) = counted[0], counted[-1]
    return (n1 - n0) / (t1 - t0), n1 - n0, load(), n0


def main() -> None:
    """Does what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["trace", "all-reduce", "pull-push", "alone", "measure"])
    parser.add_argument("--framework", choices=["torch", "tensorflow"], default="torch")
    parser.add_argument("--model")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--elements", nargs="+", default=["20000", "150000", "1000000", "4000000"])
    parser.add_argument(
        "--sizes", nargs="+", default=["1x1000", "12x1000", "1x250000", "1x1500000", "6x500000"]
    )
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    options.work.mkdir(exist_ok=True, parents=True)
    is_torch = options.framework == "torch"
    script = "train_torch.py" if is_torch else "train_tensorflow.py"
    job = ["--model", str(options.model), "--batch", str(options.batch)]
    alone = options.what in ("trace", "alone")
    # A chief and a parameter server are hosts too.
    others = 0 if is_torch or alone else 2
    start = start_torch if is_torch or alone else start_tensorflow
    workers = 1 if alone else options.workers
    with Cluster(workers + others, options.rate, SHARE) as cluster:
        if options.what == "trace":
            trace = ["--trace", str(options.output.resolve()), "--trace-steps", "10", "8"]
            out = start(cluster, script, [*job, *trace], options.work, options.python)
            first = cluster.hosts[0]
            wait_for(out, "step", 4, 60, first)
            first.hold()
            wait_for(out, "step", 18, 300, first)
            first.release()
            first.processes[0].wait()
        elif options.what == "alone":
            out = start(cluster, script, job, options.work, options.python)
            first = cluster.hosts[0]
            first_step = rate(cluster, out, options.seconds, 10, 2)[3]
            steps = [
                at for number, at in step_times(wait_for(out, "step", 1, 1, first)) if number >= first_step
            ]
            kept = {
                "framework": options.framework,
                "model": options.model,
                "batch": options.batch,
                "steps_s": [round(b - a, 6) for a, b in zip(steps, steps[1:])],
                "load": load(),
            }
            with open(options.output, "a") as file:
                file.write(json.dumps(kept) + "\n")
        elif options.what == "all-reduce":
            arguments = ["--elements", *options.elements]
            out = start_torch(cluster, "all_reduce.py", arguments, options.work, options.python)
            wait_for(out, "step", 1, 60, cluster.hosts[0])
            for host in cluster.hosts:
                host.hold()
            wait_for(out, "done", 1, 300, cluster.hosts[0])
            rows = wait_for(out, "all_reduce", 1, 1, cluster.hosts[0])
            with open(options.output, "a") as file:
                csv.writer(file).writerows([[options.rate, *row[1:], load()] for row in rows])
        elif options.what == "pull-push":
            out = start(cluster, "pull_push.py", ["--sizes", *options.sizes], options.work, options.python)
            wait_for(out, "step", 1, 90, cluster.hosts[0])
            for host in cluster.hosts:
                host.hold()
            wait_for(out, "done", 1, 300, cluster.hosts[0])
            time.sleep(0.3)
            rows = []
            for _, parts, size, begin, end, steps in wait_for(out, "pull_push", 1, 1, cluster.hosts[0]):
                span = float(begin), float(end)
                server, worker = (used_between(options.work / f"out{n}", *span) / int(steps) for n in (1, 2))
                each = (span[1] - span[0]) / int(steps)
                rows.append(
                    [options.rate, parts, size, f"{each:.6f}", f"{server:.6f}", f"{worker:.6f}", load()]
                )
            with open(options.output, "a") as file:
                csv.writer(file).writerows(rows)
        else:
            out = start(cluster, script, job, options.work, options.python)
            # Through servers each worker's step counts by itself.
            each = workers if is_torch else 1
            counted = 1 if is_torch else workers
            steps_per_s, steps, busy, _ = rate(cluster, out, options.seconds, 6, 2 * counted)
            samples = steps_per_s * options.batch * each
            row = [
                "ddp" if is_torch else "servers",
                options.model,
                options.batch,
                options.rate,
                workers,
                f"{samples:.4f}",
                steps,
                f"{busy:.2f}",
            ]
            with open(options.output, "a") as file:
                csv.writer(file).writerow(row)
            print(*row)


if __name__ == "__main__":
    main()
