"""One of the processes of a training is killed: how long nothing new is trained, by torchrun and by the runtime.

    python kill.py CASE STEPS PAIRS WORKERS

In each run SIGKILL strikes one process, never that of rank 0, halfway. torchrun starts all of them again, and they go on
from a snapshot that is at most ten steps old; the runtime goes on with those that are left, and starts one in its place.
Prints one JSON object: seconds from the signal to the begin of the first step that had not begun before it, steps that
were done twice, and the load.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from compare import HERE, elastic

STATE = "state"


def children(process: int) -> list[int]:
    """All processes below this one, oldest first."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    own = [int(number) for number in text.split()]
    return own + [below for child in own for below in children(child)]


def victim_of_torchrun(launcher: int) -> int:
    """The process with the highest rank."""
    return max(children(launcher))


def victim_of_ours(folder: Path) -> int:
    """The newest worker's process, by the run's journal."""
    journal = next((folder / STATE).glob("*/journal.jsonl")).read_text()
    events = [json.loads(line) for line in journal.splitlines()]
    attached = [event for event in events if event["event"] == "worker_attached"]
    return int(max(attached, key=lambda event: event["worker"])["process"])


def began(times: Path) -> list[tuple[float, int]]:
    """When steps began, and which: a run that was killed may leave half a line."""
    lines = times.read_text().splitlines(keepends=True) if times.exists() else []
    words = [line.split() for line in lines if line.endswith("\n")]
    return sorted((float(line[0]), int(line[-1])) for line in words)


def struck(command: list[str], folder: Path, steps: int, victim: Any) -> dict[str, float]:
    """Runs a training, kills a process of it halfway, and says what that cost."""
    times = folder / "times"
    times.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "BELLWETHER_STATE_DIR": str(folder / STATE)}
    run = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not any(step >= steps // 2 for _, step in began(times)):
        time.sleep(0.005)
        if run.poll() is not None:
            raise SystemExit(f"{command} ended before it was struck, with {run.returncode}")
    target = victim(run.pid)
    killed = time.time()
    os.kill(target, signal.SIGKILL)
    if run.wait() != 0:
        raise SystemExit(f"{command} did not outlive the kill: {run.returncode}")
    lines = began(times)
    furthest = max(step for when, step in lines if when <= killed)
    first = min(when for when, step in lines if when > killed and step > furthest)
    done_before = {step for when, step in lines if when <= killed}
    again = {step for when, step in lines if when > killed} & done_before
    return {"nothing_new_s": first - killed, "steps_again": float(len(again))}


def main() -> None:
    """Reads the command line, and prints what was measured."""
    name, steps, pairs, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    measured: list[dict[str, Any]] = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory(prefix="bellwether-kill-") as place:
            folder = Path(place)
            launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(workers)]
            launcher += ["--max-restarts", "3", "--monitor-interval", "0.1"]
            launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
            script = [str(HERE / "ddp.py"), name, steps, str(folder / "times"), str(folder / "snapshot")]
            theirs = struck([*launcher, *script], folder, int(steps), victim_of_torchrun)
            ours = struck(
                elastic(name, steps, workers, folder),
                folder,
                int(steps),
                lambda _, f=folder: victim_of_ours(f),
            )
        measured.append({"torchrun": theirs, "bellwether": ours, "load": os.getloadavg()[0]})
    medians = {
        who: statistics.median(pair[who]["nothing_new_s"] for pair in measured)
        for who in ("torchrun", "bellwether")
    }
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    about = {"case": name, "steps": int(steps), "workers": workers, "machine": machine}
    print(json.dumps({**about, "median_nothing_new_s": medians, "pairs": measured}, indent=1))


if __name__ == "__main__":
    main()
