"""What a preemption costs a user of Slurm: the runtime beside what people do without it, in turns.

    python preemption.py CASE ROUNDS [WORKERS [WAY ...]]

Trains CASE (of models.py) by jobs of the cluster that SLURM_CONF names, and takes one node away from each training. The
cluster is one of tests: all nodes are this machine, the partition `low` lets jobs go after a grace time, jobs of the
partition `high` take its nodes, and there is room for one job more than WORKERS (2) and the preempting one.
`cargo xtask slurm up` starts such a one.

The ways are all of WAYS, or those named. In every round each has its turn, in changing order; those that wait for long
only in every second one. One thread in every process. Prints one JSON object: for each way how many steps were computed
again, how long no new step began beyond a usual step, how many processes trained afterwards; and the load. An interrupt
or SIGTERM prints what was measured before it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compare import COMMAND, HERE, LONGEST_S, SNAPSHOT_EVERY, Begun, begun, elastic, start

LOW, HIGH = "low", "high"
"""The partition of the trainings, and that of the jobs which take their nodes."""

STEPS = "100000"
"""More than any training comes to: each is ended when it has gone on for a while."""

SETTLED = 8
"""Steps that all workers have trained before a node is taken away."""

AFTER = 6
"""New steps that are waited for afterwards."""

LONELY_S = 60.0
"""How long a training that comes back to all its workers may take for it."""

GRACE_S = 20.0
"""The grace time of `low`, where a signal of this program's takes the place of Slurm's."""

POLL_S = 0.05


@dataclass
class Trial:
    """A training that loses a node."""

    folder: Path
    case: str
    workers: int
    chance: random.Random
    name: str = field(default_factory=lambda: f"preemption-{os.getpid()}")
    process: subprocess.Popen[bytes] | None = None

    def jobs(self, *states: str) -> list[tuple[str, str]]:
        """The numbers and nodes of its jobs in these states."""
        chosen = ["--states", ",".join(states or ("all",)), "--name", self.name]
        lines = said("squeue", "--noheader", "--format=%i %N", *chosen).splitlines()
        return [(line.split()[0], line.split()[-1]) for line in lines]


def said(*command: str) -> str:
    """What one of Slurm's programs prints; CalledProcessError where it fails."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


# How trainings begin.


def on_the_runtime(trial: Trial) -> None:
    """One job for each worker; the coordinator is a process of this machine."""
    wishes = (f"--partition={LOW}", "--exclusive", f"--job-name={trial.name}")
    options = ["--on", "slurm", *(f"--sbatch={wish}" for wish in wishes)]
    nodes = [str(trial.workers)]
    command = elastic(trial.case, STEPS, f"1..{trial.workers}", trial.folder, "cpu", nodes, options)
    trial.process = start(command, trial.folder)


def by_batch(trial: Trial, script: str) -> None:
    """One job with a node for each worker, which runs a script of the shell."""
    file = trial.folder / "job.sh"
    directives = [
        f"--job-name={trial.name}",
        f"--partition={LOW}",
        f"--nodes={trial.workers}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--requeue",
        "--open-mode=append",
        f"--output={trial.folder / 'log-of-jobs'}",
    ]
    head = ["#!/bin/sh", *(f"#SBATCH {directive}" for directive in directives), "date +%s.%N >> began"]
    file.write_text("\n".join([*head, script, ""]))
    trial.process = start(["sbatch", str(file)], trial.folder)
    trial.process.wait(timeout=60)


def training(trial: Trial, *more: str) -> str:
    """The command line of PyTorch's own training, with a snapshot every so many steps."""
    words = [HERE / "ddp.py", trial.case, STEPS, trial.folder / "times", SNAPSHOT_EVERY, *more]
    return " ".join(str(word) for word in words)


def one_job(trial: Trial, again: str, *more: str) -> None:
    """A process of DistributedDataParallel for each node; where they end too early, the job has itself run `again`."""
    by_batch(
        trial,
        f"export MASTER_ADDR=127.0.0.1 MASTER_PORT={free_port()} WORLD_SIZE={trial.workers}\n"
        f"srun --kill-on-bad-exit=1 sh -c 'RANK=$SLURM_PROCID exec {sys.executable} {training(trial, *more)}' || {again}",
    )


def requeued(trial: Trial) -> None:
    """A job that nothing but its snapshots prepares for its end, and that Slurm puts into the queue again."""
    one_job(trial, "scontrol requeue $SLURM_JOB_ID")


def resubmitted(trial: Trial) -> None:
    """A job that saves upon SIGTERM, and submits its successor itself."""
    one_job(trial, f"sbatch {trial.folder / 'job.sh'}", "term")


def by_torchrun(trial: Trial, *configured: str) -> None:
    """PyTorch's elastic launcher as one agent per node of an allocation. The first agent has the rendezvous."""
    agent = [sys.executable, "-m torch.distributed.run --nproc-per-node=1 --max-restarts=100"]
    agent += [f"--nnodes=1:{trial.workers} --rdzv-backend=c10d --rdzv-id={trial.name} --local-addr=127.0.0.1"]
    settings = ",".join(["is_host=$host", *configured])
    agent += [f"--rdzv-endpoint=127.0.0.1:{free_port()} --rdzv-conf={settings}"]
    by_batch(
        trial,
        "srun --kill-on-bad-exit=0 --wait=0 sh -c 'echo $$ > agent-$SLURM_PROCID; "
        "host=$([ $SLURM_PROCID = 0 ] && echo true || echo false); "
        f"exec {' '.join(agent)} {training(trial)}'",
    )


def by_torchrun_in_haste(trial: Trial) -> None:
    """The same with shorter waits: 3 s instead of 15 for an agent that is silent, 2 instead of 30 for others."""
    by_torchrun(trial, "keep_alive_interval=1", "last_call_timeout=2")


def free_port() -> int:
    """A port of this machine that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


# How they lose a node.


def preempt(trial: Trial) -> None:
    """A job of more importance asks for a node of the training's."""
    node = trial.chance.choice([node for _, nodes in trial.jobs("RUNNING") for node in hosts(nodes)])
    wishes = ["--exclusive", "--nodes=1", f"--nodelist={node}", f"--job-name={trial.name}"]
    said("sbatch", f"--partition={HIGH}", *wishes, "--output=/dev/null", "--wrap=sleep 600")


def hosts(nodes: str) -> list[str]:
    """The names in one of Slurm's lists of nodes."""
    return said("scontrol", "show", "hostnames", nodes).split()


def kill_job(trial: Trial) -> None:
    """All processes of a worker's job are killed. `scancel --signal=KILL` would not do: it begins with SIGTERM."""
    victim = trial.chance.choice(sorted(training_now(begun(trial.folder))))
    os.killpg(os.getpgid(victim), signal.SIGKILL)


def strike_agent(trial: Trial, number: signal.Signals) -> None:
    """All processes of the last agent's node get a signal."""
    agent = int((trial.folder / f"agent-{trial.workers - 1}").read_text())
    workers = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    for process in (agent, *map(int, workers)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def end_agent(trial: Trial) -> None:
    """As Slurm ends jobs: SIGTERM, a grace time, SIGKILL for what is still there."""
    strike_agent(trial, signal.SIGTERM)
    agent = int((trial.folder / f"agent-{trial.workers - 1}").read_text())
    until = time.monotonic() + GRACE_S
    while is_alive(agent) and time.monotonic() < until:
        time.sleep(POLL_S)
    if is_alive(agent):
        strike_agent(trial, signal.SIGKILL)


def kill_agent(trial: Trial) -> None:
    """An agent and its worker are killed without a notice."""
    strike_agent(trial, signal.SIGKILL)


@dataclass(frozen=True)
class Way:
    """How a training begins, how it loses a node, and what it may be expected to do then."""

    begin: Callable[[Trial], None]
    strike: Callable[[Trial], None]
    comes_back: bool
    """Whether all workers train again afterwards."""

    every: int = 1
    """The rounds in which it has a turn: all, or every second one."""


WAYS = {
    "runtime-preempted": Way(on_the_runtime, preempt, comes_back=True),
    "runtime-killed": Way(on_the_runtime, kill_job, comes_back=True),
    "requeued": Way(requeued, preempt, comes_back=True, every=2),
    "resubmitted": Way(resubmitted, preempt, comes_back=True),
    "torchrun-preempted": Way(by_torchrun, end_agent, comes_back=False, every=2),
    "torchrun-killed": Way(by_torchrun, kill_agent, comes_back=False),
    "torchrun-killed-haste": Way(by_torchrun_in_haste, kill_agent, comes_back=False),
}


# What is seen of them.


def is_alive(process: int) -> bool:
    """Whether a process has not ended."""
    return os.path.exists(f"/proc/{process}")


def new_steps(steps: list[Begun]) -> list[tuple[int, float]]:
    """The steps that none had begun before, each with the time at which the first process began it."""
    found: list[tuple[int, float]] = []
    for step, wall, *_ in sorted(steps, key=lambda one: one[1]):
        if not found or step > found[-1][0]:
            found.append((step, wall))
    return found


def training_now(steps: list[Begun]) -> set[int]:
    """The processes that began one of the last two steps."""
    furthest = max((step for step, *_ in steps), default=0)
    return {process for step, _, _, process in steps if step >= furthest - 1}


def polled(trial: Trial, seconds: float) -> Iterator[list[Begun]]:
    """The steps that have begun, again and again; RuntimeError after so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield begun(trial.folder)
        if trial.process is not None and trial.process.poll() not in (None, 0):
            break
        time.sleep(POLL_S)
    raise RuntimeError(f"it does not go on: {told(trial)}")


def told(trial: Trial) -> str:
    """The end of what its programs have said."""
    logs = [trial.folder / "log", trial.folder / "log-of-jobs"]
    return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs if log.exists())


def settle(trial: Trial) -> None:
    """Waits until all workers have trained for a while, and for a moment of chance beyond."""
    since, wanted = None, SNAPSHOT_EVERY + SETTLED + trial.chance.randrange(SNAPSHOT_EVERY)
    for steps in polled(trial, LONGEST_S):
        furthest = max((step for step, *_ in steps), default=0)
        if len(training_now(steps)) < trial.workers:
            since = None
        elif since is None:
            since = furthest
        if since is not None and furthest >= max(wanted, since + SETTLED):
            break
    time.sleep(trial.chance.random() * 0.3)


def go_on(trial: Trial, way: Way, before: list[Begun], struck: float) -> None:
    """Waits until a training has lost processes and gone on, and all workers train again if they are to."""
    old, lost_at, alone_until = training_now(before), 0.0, 0.0
    for steps in polled(trial, LONGEST_S):
        if not lost_at and not all(is_alive(process) for process in old):
            lost_at = time.time()
        fresh = [wall for _, wall in new_steps(steps) if lost_at and wall > lost_at]
        if len(fresh) < AFTER:
            continue
        alone_until = alone_until or time.time() + LONELY_S
        if not way.comes_back or time.time() > alone_until or full_since(steps, trial.workers, struck, old):
            return


def full_since(steps: list[Begun], workers: int, struck: float, old: set[int]) -> float | None:
    """When as many processes as before trained together again, at least one of them a new one."""
    begun_by: dict[int, dict[int, float]] = {}
    still = training_now(steps)
    for step, wall, _, process in steps:
        # One that has ended since may have begun a step that is computed again.
        if wall > struck and process in still:
            begun_by.setdefault(step, {})[process] = wall
    for _, by in sorted(begun_by.items()):
        if len(by) >= workers and not by.keys() <= old:
            return max(by.values())
    return None


def measured(trial: Trial, before: list[Begun], struck: float) -> dict[str, Any]:
    """What the loss of a node has cost."""
    steps = sorted(begun(trial.folder), key=lambda one: one[1])
    fresh = new_steps(steps)
    gaps = [(after[1] - first[1], after) for first, after in itertools.pairwise(fresh)]
    usual = statistics.median([gap for gap, (_, wall) in gaps if wall <= struck][-SETTLED:])
    longest, (onward, _) = max((gap for gap in gaps if gap[1][1] > struck), key=lambda one: one[0])
    again, furthest = set(), 0
    for step, at, *_ in steps:
        furthest = max(furthest, step)
        if at > struck and step < furthest:
            again.add(step)
    found: dict[str, Any] = {"stood_s": longest - usual, "steps_again": len(again), "usual_step_s": usual}
    found["processes_first"] = len({process for step, _, _, process in steps if step == onward + 1})
    found["processes_last"] = len(training_now(steps))
    full = full_since(steps, trial.workers, struck, training_now(before))
    found["all_again_s"] = None if full is None else full - struck
    starts = trial.folder / "began"
    if starts.exists() and len(lines := starts.read_text().split()) > 1:
        found["queue_s"] = float(lines[1]) - struck
    return found


def tried(way: Way, trial: Trial) -> dict[str, Any]:
    """One training that loses a node; one that does not go on is told as `failed`."""
    try:
        way.begin(trial)
        settle(trial)
        before, struck = begun(trial.folder), time.time()
        way.strike(trial)
        go_on(trial, way, before, struck)
        return measured(trial, before, struck)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return {"failed": f"{error}\n{told(trial)}"[-4000:]}
    finally:
        finish(trial)


def finish(trial: Trial) -> None:
    """Ends whatever a trial has started, and waits until its nodes are free."""
    if trial.process is not None and trial.process.poll() is None:
        trial.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            trial.process.wait(timeout=60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(trial.process.pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        jobs = {job for job, _ in trial.jobs("PENDING", "RUNNING", "COMPLETING", "SUSPENDED")}
        if not jobs:
            return
        for job in jobs:
            # One that has ended meanwhile is none to cancel.
            subprocess.run(["scancel", job], capture_output=True, timeout=60, check=False)
        time.sleep(0.5)
    raise RuntimeError(f"Slurm does not end the jobs {trial.jobs()}")


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and extreme values of one way."""
    whole = [trial for trial in trials if "failed" not in trial]
    found: dict[str, Any] = {"trials": len(trials), "failed": len(trials) - len(whole)}
    for key in dict.fromkeys(key for trial in whole for key in trial):
        values = [trial[key] for trial in whole if trial.get(key) is not None]
        if values:
            extremes = {"least": min(values), "median": statistics.median(values), "most": max(values)}
            found[key] = {which: round(value, 3) for which, value in extremes.items()}
    return found


def processor() -> str:
    """What this machine computes with."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = {line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")}
    return f"{', '.join(sorted(names))}, {os.cpu_count()} cores"


def report(trials: dict[str, list[dict[str, Any]]], case: str, rounds: int, workers: int) -> dict[str, Any]:
    """What is printed."""
    loads = [trial["load"] for found in trials.values() for trial in found]
    about: dict[str, Any] = {"case": case, "rounds": rounds, "workers": workers, "processor": processor()}
    about |= {"snapshot_every": SNAPSHOT_EVERY, "slurm": said("sbatch", "--version").strip()}
    about["load"] = [round(min(loads), 1), round(max(loads), 1)] if loads else []
    about["ways"] = {name: {"summary": summary(found), "trials": found} for name, found in trials.items()}
    return about


def take_turns(trials: dict[str, list[dict[str, Any]]], case: str, rounds: int, workers: int) -> None:
    """Lets each way have its turn in each round, and adds what was measured."""
    for number in range(rounds):
        chance = random.Random(number)
        for name in chance.sample(list(trials), len(trials)):
            if number % WAYS[name].every != 0:
                continue
            with tempfile.TemporaryDirectory(prefix="bellwether-preemption-") as place:
                found = tried(WAYS[name], Trial(Path(place), case, workers, chance))
            trials[name].append({**found, "round": number, "load": os.getloadavg()[0]})
            print(f"round {number}, {name}: {trials[name][-1]}", file=sys.stderr)


def main() -> None:
    """Reads the command line, and prints what was measured."""
    case, rounds = sys.argv[1], int(sys.argv[2])
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    names = sys.argv[4:] or list(WAYS)
    for program in (COMMAND, "sbatch"):
        if shutil.which(program) is None:
            sys.exit(f"error: the command {program} is not found")
    trials: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    # An interrupt ends the trial in which it comes, and what was measured before is printed. Shells let programs in the
    # background ignore it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        take_turns(trials, case, rounds, workers)
    print(json.dumps(report(trials, case, rounds, workers), indent=1))


if __name__ == "__main__":
    main()
