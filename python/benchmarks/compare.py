"""Times a training on the runtime beside PyTorch's own loop, or beside DistributedDataParallel, pair by pair.

    python compare.py overhead CASE STEPS PAIRS [DEVICE]  one worker, beside a loop that accumulates gradients
    python compare.py ddp CASE STEPS PAIRS WORKERS        as many processes of both, on this machine

One thread in every process. A pair is run one after the other; the first fifth of the steps does not count. Prints one
JSON object: of each pair the median time of a step and the processor time that it took, and the load.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMAND = os.environ.get("BELLWETHER_COMMAND", "bellwether")


def timed(command: list[str], folder: Path, workers: int = 1) -> dict[str, float]:
    """Runs a program that writes the file `times`, and returns its step's time and processor time, in ms."""
    times = folder / "times"
    times.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BELLWETHER_STATE_DIR": str(folder / "state")}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    lines = sorted(tuple(map(float, line.split())) for line in times.read_text().splitlines())
    # Every worker writes: of each step the first line counts.
    began = lines[::workers]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(began)]
    steps = steps[len(steps) // 5 :]
    wall, processor = zip(*steps, strict=True)
    timed = {"step_ms": statistics.median(wall) * 1e3, "mean_step_ms": statistics.mean(wall) * 1e3}
    if workers == 1:
        timed["processor_ms"] = statistics.median(processor) * 1e3
    return timed


def elastic(name: str, steps: str, workers: int, folder: Path, device: str = "cpu") -> list[str]:
    """The command line of the training on the runtime."""
    script = [str(HERE / "elastic.py"), "--python", sys.executable, "--workers", str(workers)]
    return [COMMAND, "run", *script, "--", name, steps, str(folder / "times"), device]


def reference(kind: str, name: str, steps: str, workers: int, folder: Path, device: str = "cpu") -> list[str]:
    """The command line of what it is compared with."""
    arguments = [name, steps, str(folder / "times")]
    if kind == "overhead":
        return [sys.executable, str(HERE / "plain.py"), *arguments, device]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(workers)]
    return [
        *launcher,
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        str(HERE / "ddp.py"),
        *arguments,
    ]


def main() -> None:
    """Reads the command line, and prints what was measured."""
    kind, name, steps, pairs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    workers = int(sys.argv[5]) if kind == "ddp" else 1
    device = sys.argv[5] if kind == "overhead" and len(sys.argv) > 5 else "cpu"
    measured: list[dict[str, Any]] = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory(prefix="bellwether-compare-") as place:
            folder = Path(place)
            theirs = timed(reference(kind, name, steps, workers, folder, device), folder)
            ours = timed(elastic(name, steps, workers, folder, device), folder, workers)
        measured.append({"theirs": theirs, "ours": ours, "load": os.getloadavg()[0]})
    ratios = {
        key: statistics.median(pair["ours"][key] / pair["theirs"][key] for pair in measured)
        for key in measured[0]["ours"]
    }
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    about = {"kind": kind, "case": name, "steps": int(steps), "workers": workers, "machine": machine}
    print(json.dumps({**about, "median_ratio_ours_to_theirs": ratios, "pairs": measured}, indent=1))


if __name__ == "__main__":
    main()
