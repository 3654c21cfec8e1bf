"""Trains a job with workers of two builds of the command: how fast together and alone, and how well.

    python mixed.py speed OURS OTHER [STEPS] [JOB KEY=VALUE…]     the first build alone, the second alone, and both
    python mixed.py accuracy OURS OTHER [SEEDS] [JOB KEY=VALUE…]  mode `exact` by the first, and mode `mixed` by both
    sudo python mixed.py link OURS RATES [STEPS] [JOB KEY=VALUE…] three workers, each behind a link of its own

RATES are three of `tc`, such as 1gbit,1gbit,20mbit; the coordinator is beside the first worker. The job may do with
two workers. OURS and OTHER are programs `bellwether` of unlike builds; JOB is a job file, examples/digits.toml without one. Workers
join by hand, one of each build, on this machine. The coordinator is the first build's. `speed` prints what the journal
of the mixed run expected of its last shares beside what followed: the median of the later steps. `accuracy` prints the
held-out accuracy after training by seed, with the mean and its 95 % interval for each mode. One JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"

T_975 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26}
"""The factor of a 95 % interval of a mean over so many seeds."""

LONGEST_S = 600.0
"""Programs that run for longer hang."""


def wait_for(folder: Path) -> Path:
    """The folder of the run, once workers can join it."""
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        for endpoint in folder.glob("*/endpoint.json"):
            if (endpoint.parent / "token").exists():
                return endpoint.parent
        time.sleep(0.02)
    raise RuntimeError(f"no run in {folder}")


def train(builds: list[str], job: str, sets: list[str], options: list[str]) -> dict[str, Any]:
    """A training by one worker of each of these builds: its summary, and the lines of its journal and metrics."""
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "BELLWETHER_STATE_DIR": state}
        run = [
            builds[0],
            "run",
            job,
            "--no-spawn",
            "--workers",
            str(len(builds)),
            "--format",
            "json",
            *options,
        ]
        run += [word for text in sets for word in ("--set", text)]
        coordinator = subprocess.Popen(
            run, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        workers = []
        try:
            folder = wait_for(Path(state))
            endpoint = json.loads((folder / "endpoint.json").read_text())
            join = ["worker", "--join", endpoint["control"], "--token-file", str(folder / "token")]
            workers = [subprocess.Popen([build, *join], env=environment) for build in builds]
            output, _ = coordinator.communicate(timeout=LONGEST_S)
            for worker in workers:
                worker.wait(timeout=30.0)
            lines = {
                name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
                for name in ("journal", "metrics")
            }
        finally:
            for process in (coordinator, *workers):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        return {"summary": json.loads(output), **lines}


def examples_per_s(run: dict[str, Any], since: int) -> float:
    """The throughput of the median step from this one on."""
    batch = next(line["batch"] for line in run["journal"] if line["event"] == "task_known")
    times = [line["duration_s"] for line in run["metrics"] if line["step"] >= since]
    return float(batch / statistics.median(times))


def speed(ours: str, other: str, steps: str, job: str, sets: list[str]) -> dict[str, Any]:
    """Each build alone, and both."""
    options = ["--steps", steps]
    result: dict[str, Any] = {}
    for name, build in (("ours_alone", ours), ("other_alone", other)):
        result[name] = examples_per_s(train([build], job, sets, options), int(steps) // 5)
    mixed = train([ours, other], job, [*sets, "mode=mixed"], options)
    told = [line for line in mixed["journal"] if line["event"] == "decided" and line["by"] == "shares"]
    changes = [line for line in told if "virtual nodes" in line["reason"]]
    result["decisions"] = [line["reason"] for line in told]
    memberships = [line for line in mixed["journal"] if line["event"] == "membership"]
    result["bounds"] = [(line["step"], line["bounds"]) for line in memberships]
    result["classes"] = sorted(
        {line["class"] for line in mixed["journal"] if line["event"] == "kernel_class"}
    )
    if changes:
        expected = re.search(r"(\d+) samples/s are expected", changes[-1]["reason"])
        result["expected"] = float(expected.group(1)) if expected else None
    result["mixed"] = examples_per_s(mixed, max(memberships[-1]["step"], int(steps) // 5))
    return result


def behind_links(ours: str, rates: str, steps: str, job: str, sets: list[str]) -> dict[str, Any]:
    """What becomes of a worker behind a slow link: the decisions, and the throughput before and after."""
    from link import address, hosts

    port = 7711
    with tempfile.TemporaryDirectory() as state, hosts(3, rates.split(",")[0]) as names:
        for name, rate in zip(names, rates.split(","), strict=True):
            shaped = f"-n {name} qdisc replace dev uplink root tbf rate {rate} burst 64kb limit 1mb"
            subprocess.run(["tc", *shaped.split()], check=True)
        inside = [["ip", "netns", "exec", name, ours] for name in names]
        environment = {**os.environ, "BELLWETHER_STATE_DIR": state}
        run = [*inside[0], "run", job, "--no-spawn", "--workers", "2..3", "--listen", f"{address(0)}:{port}"]
        run += ["--shares", "measured", "--steps", steps, "--format", "json"]
        run += [word for text in sets for word in ("--set", text)]
        coordinator = subprocess.Popen(
            run, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        workers = []
        try:
            folder = wait_for(Path(state))
            join = ["worker", "--join", f"{address(0)}:{port}", "--token-file", str(folder / "token")]
            for host, program in enumerate(inside):
                listen = ["--listen", f"{address(host)}:{port + 1}"]
                workers.append(subprocess.Popen([*program, *join, *listen], env=environment))
            coordinator.communicate(timeout=LONGEST_S)
            journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
            metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        finally:
            for process in (coordinator, *workers):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
    by_workers: dict[str, list[float]] = {}
    for line in metrics:
        by_workers.setdefault(str(line["workers"]), []).append(line["duration_s"])
    told = [line for line in journal if line["event"] == "decided" and line["by"] == "shares"]
    measured = {line["worker"]: line for line in journal if line["event"] == "link_measured"}
    return {
        "decisions": [(line["step"], line["reason"]) for line in told],
        "links_bytes_per_s": {worker: line["bandwidth_bytes_per_s"] for worker, line in measured.items()},
        "median_step_s": {count: statistics.median(times) for count, times in by_workers.items()},
    }


def interval(values: list[float]) -> dict[str, float]:
    """A mean with the half-width of its 95 % interval."""
    error = statistics.stdev(values) / len(values) ** 0.5
    return {"mean": statistics.mean(values), "half_width": T_975[len(values)] * error}


def accuracy(ours: str, other: str, seeds: str, job: str, sets: list[str]) -> dict[str, Any]:
    """How well both modes train, seed by seed."""
    accuracies: dict[str, list[float]] = {"exact": [], "mixed": []}
    digests: dict[str, list[str]] = {"exact": [], "mixed": []}
    for seed in range(1, int(seeds) + 1):
        for mode, builds in (("exact", [ours, ours]), ("mixed", [ours, other])):
            summary = train(builds, job, [*sets, f"mode={mode}", f"seed={seed}"], [])["summary"]
            accuracies[mode].append(summary["accuracy"])
            digests[mode].append(summary["params_digest"])
    return {
        "accuracies": accuracies,
        "intervals": {mode: interval(values) for mode, values in accuracies.items()},
        "digests": digests,
    }


def main() -> None:
    """Does what the arguments say."""
    what, ours, other, *rest = sys.argv[1:]
    count = rest.pop(0) if rest else {"speed": "200", "accuracy": "5", "link": "100"}[what]
    job = rest.pop(0) if rest else str(EXAMPLES / "digits.toml")
    result = {"speed": speed, "accuracy": accuracy, "link": behind_links}[what](ours, other, count, job, rest)
    result["load"] = os.getloadavg()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
