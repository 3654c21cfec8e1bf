"""Times a training on the runtime beside PyTorch's own loop, or beside DistributedDataParallel, pair by pair.

    python compare.py overhead CASE STEPS PAIRS [DEVICE]     one worker, beside a loop that accumulates gradients
    python compare.py ddp CASE STEPS PAIRS WORKERS [NODES]   as many processes of both, on this machine
    python compare.py kill CASE STEPS PAIRS WORKERS [NODES]  the same, and one process is killed in the midst of a run

NODES are the virtual nodes of ours: with as many as workers each process computes its part of a batch at once, as
DistributedDataParallel does; with more the run may grow.
One thread in every process. A pair is run one after the other, and the order changes from pair to pair; the first fifth
of the steps does not count. Prints one JSON object: of each pair the median time of a step and the processor time that
it took, or how long the training stood still, and the load.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMAND = os.environ.get("BELLWETHER_COMMAND", "bellwether")

SNAPSHOT_EVERY = 10
"""Steps between two snapshots of the training that torchrun restarts. The runtime needs none."""

LONGEST_S = 300.0
"""A program that runs for longer hangs."""

Begun = tuple[int, float, float, int]
"""A step that began: its number, the clock, seconds of processor time, and the process."""


def begun(folder: Path) -> list[Begun]:
    """What the processes of a training have written, by step and clock."""
    steps: list[Begun] = []
    for file in folder.glob("times.*"):
        # The last line may be half written.
        whole = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        lines = [line.split() for line in whole]
        own = [(int(step), float(wall), float(spent), int(file.suffix[1:])) for step, wall, spent in lines]
        # A new worker of the runtime computes some steps for nothing before those of the run.
        trained = [
            i + 1 for i, (one, next_one) in enumerate(itertools.pairwise(own)) if next_one[0] != one[0] + 1
        ]
        steps += own[trained[-1] if trained else 0 :]
    return sorted(steps)


def start(command: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """Starts a training whose times go to a folder that has none of another yet."""
    for old in folder.glob("times*"):
        old.unlink()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BELLWETHER_STATE_DIR": str(folder / "state")}
    # Both stay on this machine.
    environment["GLOO_SOCKET_IFNAME"] = "lo"
    # What it prints goes to a file: nobody reads a pipe meanwhile.
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )


def end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Waits for the end of a training; RuntimeError with what it said if that is not a good one."""
    try:
        code = process.wait(timeout=LONGEST_S)
    finally:
        # Whatever it started ends with it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if code != 0:
        raise RuntimeError(f"exit code {code}: {(folder / 'log').read_text()[-9000:]}")


def timed(command: list[str], folder: Path, workers: int = 1) -> dict[str, float]:
    """Runs a training, and returns its step's time and, of one worker, its processor time, in ms."""
    end(start(command, folder), folder)
    # Of each step the first process that began it counts.
    firsts = [next(group) for _, group in itertools.groupby(begun(folder), key=lambda one: one[0])]
    steps = [(after[1] - before[1], after[2] - before[2]) for before, after in itertools.pairwise(firsts)]
    wall, processor = zip(*steps[len(steps) // 5 :], strict=True)
    found = {"step_ms": statistics.median(wall) * 1e3, "mean_step_ms": statistics.mean(wall) * 1e3}
    if workers == 1:
        found["processor_ms"] = statistics.median(processor) * 1e3
    return found


def struck(command: list[str], folder: Path, steps: int, chance: random.Random) -> dict[str, Any]:
    """Runs a training, kills one of its processes; returns how long no new step began, and how long all steps took.

    One that does not come to its end after that is told as `failed`.
    """
    process = start(command, folder)
    try:
        return _struck(process, folder, steps, chance)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"failed": str(error)[-2000:]}


def _struck(
    process: subprocess.Popen[bytes], folder: Path, steps: int, chance: random.Random
) -> dict[str, Any]:
    moment = steps // 2 + chance.randrange(steps // 5)
    until = time.monotonic() + LONGEST_S
    while not (before := begun(folder)) or before[-1][0] < moment:
        if process.poll() is not None or time.monotonic() > until:
            end(process, folder)
            raise RuntimeError("it ended before a process was killed")
        time.sleep(0.005)
    time.sleep(chance.random() * 0.3)
    before = begun(folder)
    furthest = before[-1][0]
    victim = chance.choice(sorted({one[3] for one in before}))
    killed_at = time.time()
    os.kill(victim, signal.SIGKILL)
    end(process, folder)
    after = [one for one in begun(folder) if one[1] > killed_at]
    return {
        "stood_s": min(wall for step, wall, *_ in after if step > furthest) - killed_at,
        "whole_s": max(wall for _, wall, *_ in after) - min(wall for _, wall, *_ in before),
    }


def elastic(
    name: str,
    steps: str,
    workers: int | str,
    folder: Path,
    device: str = "cpu",
    nodes: Sequence[str] = (),
    options: Sequence[str] = (),
) -> list[str]:
    """The command line of the training on the runtime; with `nodes`, of this number of virtual nodes."""
    script = [str(HERE / "elastic.py"), "--python", sys.executable, "--workers", str(workers)]
    arguments = [name, steps, str(folder / "times"), device, "f32", *nodes]
    return [COMMAND, "run", *script, *options, "--", *arguments]


def reference(kind: str, name: str, steps: str, workers: int, folder: Path, device: str = "cpu") -> list[str]:
    """The command line of what it is compared with."""
    arguments = [name, steps, str(folder / "times")]
    if kind == "overhead":
        return [sys.executable, str(HERE / "plain.py"), *arguments, device]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    processes = ["--nproc-per-node", str(workers)]
    restarts = ["--max-restarts", "3"] if kind == "kill" else []
    every = [str(SNAPSHOT_EVERY)] if kind == "kill" else []
    return [*launcher, *processes, *restarts, str(HERE / "ddp.py"), *arguments, *every]


def main() -> None:
    """Reads the command line, and prints what was measured."""
    kind, name, steps, pairs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    options = sys.argv[5:]
    workers, nodes = (1, []) if kind == "overhead" else (int(options[0]), options[1:2])
    if shutil.which(COMMAND) is None:
        sys.exit(f"error: the command {COMMAND} is not found: BELLWETHER_COMMAND names it")
    device = options[0] if kind == "overhead" and options else "cpu"
    measured: list[dict[str, Any]] = []
    for number in range(pairs):
        with tempfile.TemporaryDirectory(prefix="bellwether-compare-") as place:
            folder = Path(place)
            commands = {
                "theirs": reference(kind, name, steps, workers, folder, device),
                "ours": elastic(name, steps, workers, folder, device, nodes),
            }
            order = sorted(commands, reverse=number % 2 == 0)
            pair: dict[str, Any] = {}
            for who in order:
                if kind == "kill":
                    pair[who] = struck(commands[who], folder, int(steps), random.Random(number))
                else:
                    pair[who] = timed(commands[who], folder, workers)
        measured.append({**pair, "load": os.getloadavg()[0]})
    whole = [pair for pair in measured if not any("failed" in pair[who] for who in ("ours", "theirs"))]
    ratios = {
        key: statistics.median(pair["ours"][key] / pair["theirs"][key] for pair in whole)
        for key in (whole[0]["ours"] if whole else ())
    }
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    about: dict[str, Any] = {"kind": kind, "case": name, "steps": int(steps), "workers": workers}
    about |= {"options": options, "machine": machine}
    print(json.dumps({**about, "median_ratio_ours_to_theirs": ratios, "pairs": measured}, indent=1))


if __name__ == "__main__":
    main()
