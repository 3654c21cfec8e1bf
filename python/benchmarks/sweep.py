"""Finds values by a sweep, by random search and by Optuna, seed by seed on three problems; and kills a sweep often.

    python sweep.py compare RESULTS.jsonl SEEDS   runs what RESULTS does not hold yet, and prints the table; up to 20
    python sweep.py choice RESULTS.jsonl SEEDS    predicts each trial scheduler before it is used, and prints the errors
    python sweep.py kills FOLDER TIMES            kills a sweep with SIGKILL, and compares its trials with jobs alone

All methods train 27 trials at most, two at a time: `asha` with `tpe` from rungs of 9, 27 and 81 epochs; `random`
without rungs; Optuna (from PyPI) with its own TPE and successive halving of the same rungs over `bellwether.Objective`.
Prints JSON or a table; best accuracies on held-out samples, seconds of all workers, and paired 95 % intervals.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMMAND = os.environ.get("BELLWETHER_COMMAND", "bellwether")

JOB = """
name = "job"
seed = 7
epochs = 81
workers = 1
[model]
kind = "mlp"
hidden = [64]
[data]
{data}
[batch]
size = 64
virtual_nodes = 4
[optimizer]
kind = "sgd"
learning_rate = 0.1
[schedule]
kind = "cosine"
"""

PROBLEMS = {
    "digits": ('kind = "digits"', 23),
    "teacher": ('kind = "teacher"\nsamples = 12000\nfeatures = 16\nclasses = 5', 150),
    "noisy": ('kind = "teacher"\nsamples = 8000\nfeatures = 25\nclasses = 4\nnoise = 0.2', 100),
}
"""The data of each problem, and the steps of an epoch."""

HIDDEN = [[16], [64], [128], [64, 64]]

SWEEP = """
job = "job.toml"
workers = 2
[space]
"optimizer.learning_rate" = {{ low = 1e-3, high = 2.0, scale = "log" }}
"optimizer.momentum" = {{ low = 0.0, high = 0.98 }}
"model.hidden" = {{ choices = {hidden} }}
[sampler]
kind = "{sampler}"
seed = {seed}
[scheduler]
{scheduler}
[budget]
trials = {trials}
"""

TRIALS = 27
LEAST = 9
"""Epochs of the first rung."""

SCHEDULERS = {
    "none": 'kind = "none"',
    "asha": f'kind = "asha"\nminimum = {LEAST}',
    "hyperband": f'kind = "hyperband"\nminimum = {LEAST}',
    "median": f'kind = "median"\nminimum = {LEAST}',
}

STUDENT = [
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093),
]
"""The 97.5 % quantile of Student's distribution, for 1 degree of freedom and more."""

KILLED_JOB = JOB.replace("epochs = 81", "epochs = 27").replace("workers = 1", 'workers = "1..2"')
KILLED_DATA = 'kind = "teacher"\nsamples = 2000\nfeatures = 20\nclasses = 4'

Found = tuple[float, float]
"""The best accuracy, and seconds of all workers."""


def call(folder: Path, *words: str) -> Any:
    """What a verb says, as JSON."""
    command = [COMMAND, *words, "--format", "json"]
    out = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(out.stdout)


def sweep_file(path: Path, seed: int, sampler: str, scheduler: str, trials: int = TRIALS) -> None:
    """Writes the file of a sweep."""
    path.write_text(
        SWEEP.format(hidden=HIDDEN, sampler=sampler, seed=seed, scheduler=scheduler, trials=trials)
    )


def ours(folder: Path, seed: int, sampler: str, scheduler: str) -> Found:
    """A sweep by the command."""
    sweep_file(folder / "sweep.toml", seed, sampler, scheduler)
    told = call(folder, "sweep", "sweep.toml")
    return told["trials"][told["winner"]]["figure"], told["worker_s"]


def by_optuna(folder: Path, seed: int, steps: int) -> Found:
    """The same space by Optuna, with two threads."""
    import optuna

    from bellwether import Objective

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spent: list[float] = []

    def suggest(trial: Any) -> dict[str, Any]:
        hidden = trial.suggest_categorical("hidden", [json.dumps(one) for one in HIDDEN])
        return {
            "optimizer.learning_rate": trial.suggest_float("rate", 1e-3, 2.0, log=True),
            "optimizer.momentum": trial.suggest_float("momentum", 0.0, 0.98),
            "model.hidden": json.loads(hidden),
        }

    objective = Objective(folder / "job.toml", suggest, workers=1, every_steps=LEAST * steps)

    def timed(trial: Any) -> float:
        began = time.monotonic()
        try:
            return objective(trial)
        finally:
            spent.append(time.monotonic() - began)

    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=LEAST * steps, reduction_factor=3)
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    # Values with which the loss is no number fail a trial only, as in the sweep.
    study.optimize(timed, n_trials=TRIALS, n_jobs=2, catch=(Exception,))
    return float(study.best_value), sum(spent)


METHODS = {
    "sweep": lambda folder, seed, _: ours(folder, seed, "tpe", SCHEDULERS["asha"]),
    "random": lambda folder, seed, _: ours(folder, seed, "random", SCHEDULERS["none"]),
    "optuna": by_optuna,
}


def compare(results: Path, seeds: int) -> None:
    """Runs what the results do not hold yet; methods take turns."""
    known = {tuple(json.loads(line)[:3]) for line in read(results)}
    for seed in range(seeds):
        for problem, (data, steps) in PROBLEMS.items():
            for method, find in METHODS.items():
                if (problem, seed, method) in known:
                    continue
                with tempfile.TemporaryDirectory(prefix="bellwether-sweep-") as name:
                    folder = Path(name)
                    (folder / "job.toml").write_text(JOB.format(data=data))
                    best, worker_s = find(folder, seed, steps)
                with results.open("a") as file:
                    line = [problem, seed, method, best, worker_s, os.getloadavg()[0]]
                    file.write(json.dumps(line) + "\n")
    table(results)


def choice(results: Path, seeds: int) -> None:
    """Each trial scheduler: predicted by ``--dry-run``, simulated on the curves of another sweep, and live."""
    known = {tuple(json.loads(line)[:3]) for line in read(results)}
    for problem, (data, steps) in PROBLEMS.items():
        if all((problem, seed, name) in known for seed in range(seeds) for name in SCHEDULERS):
            continue
        with tempfile.TemporaryDirectory(prefix="bellwether-sweep-") as name:
            folder = Path(name)
            evaluated = f"[evaluation]\nevery_steps = {LEAST * steps}\n"
            (folder / "job.toml").write_text(JOB.format(data=data) + evaluated)
            sweep_file(folder / "curves.toml", 1000, "random", SCHEDULERS["none"])
            call(folder, "sweep", "curves.toml")
            sweep_file(folder / "asked.toml", 0, "random", SCHEDULERS["asha"])
            asked = ("--sweep", "asked.toml", "--curves", "curves.sweep/sweep.jsonl", "--workers", "2")
            simulated = {row["scheduler"]: row for row in call(folder, "simulate", *asked)}
            for seed in range(seeds):
                for scheduler, table in SCHEDULERS.items():
                    sweep_file(folder / f"{scheduler}-{seed}.toml", seed, "random", table)
                    predicted = call(folder, "sweep", f"{scheduler}-{seed}.toml", "--dry-run")
                    live = call(folder, "sweep", f"{scheduler}-{seed}.toml")
                    best = live["trials"][live["winner"]]["figure"]
                    rows = [simulated[scheduler], predicted, {**live, "best": best}]
                    told = [[row["seconds"], row["worker_s"], row.get("best")] for row in rows]
                    with results.open("a") as file:
                        file.write(json.dumps([problem, seed, scheduler, *told, os.getloadavg()[0]]) + "\n")
    choices(results)


def choices(results: Path) -> None:
    """What was foreseen of each trial scheduler, and how it was."""
    rows = [json.loads(line) for line in read(results)]
    print(
        "means over the seeds; errors of worker time: predicted before the sweep, simulated on known curves"
    )
    print(
        f"{'problem':8} {'scheduler':9} {'live_s':>7} {'worker_s':>8} {'best':>7} {'predicted':>9} {'simulated':>9} best"
    )
    for problem in PROBLEMS:
        for scheduler in SCHEDULERS:
            of = [row[3:6] for row in rows if (row[0], row[2]) == (problem, scheduler)]
            if not of:
                continue
            simulated, predicted, live = (
                [statistics.mean(each[place][part] or 0.0 for each in of) for part in range(3)]
                for place in range(3)
            )
            errors = [100 * (told[1] / live[1] - 1) for told in (predicted, simulated)]
            print(
                f"{problem:8} {scheduler:9} {live[0]:7.1f} {live[1]:8.1f} {live[2]:7.4f} "
                f"{errors[0]:+8.0f}% {errors[1]:+8.0f}% {simulated[2]:.4f}"
            )


def read(results: Path) -> list[str]:
    """The lines of a file that may not be there yet."""
    return results.read_text().splitlines() if results.exists() else []


def table(results: Path) -> None:
    """Means by problem and method, and how the sweep differs from the others, seed by seed."""
    rows = [json.loads(line) for line in read(results)]
    found = {(problem, seed, method): (best, spent) for problem, seed, method, best, spent, _ in rows}
    print(f"{'problem':8} {'method':7} {'seeds':>5} {'best':>7} {'worker_s':>9}   sweep beside it (95 %)")
    for problem in PROBLEMS:
        for method in METHODS:
            seeds = sorted(
                seed
                for (of, seed, by) in found
                if (of, by) == (problem, method) and (of, seed, "sweep") in found
            )
            if not seeds:
                continue
            best = [found[problem, seed, method][0] for seed in seeds]
            spent = [found[problem, seed, method][1] for seed in seeds]
            told = ""
            if method != "sweep" and len(seeds) > 1:
                own = [found[problem, seed, "sweep"] for seed in seeds]
                gain = interval([mine[0] - other for mine, other in zip(own, best, strict=True)])
                cost = interval([math.log(mine[1] / other) for mine, other in zip(own, spent, strict=True)])
                factors = " … ".join(f"{math.exp(value):.2f}" for value in cost)
                points = " … ".join(f"{100 * value:+.2f}" for value in gain)
                told = f"best {points} points, worker_s × {factors}"
            print(
                f"{problem:8} {method:7} {len(seeds):5} {statistics.mean(best):7.4f} "
                f"{statistics.mean(spent):9.1f}   {told}"
            )


def interval(values: list[float]) -> tuple[float, float, float]:
    """The low end, the mean and the high end of a 95 % interval of the mean."""
    mean, count = statistics.mean(values), len(values)
    half = STUDENT[count - 2] * statistics.stdev(values) / math.sqrt(count)
    return mean - half, mean, mean + half


def kills(folder: Path, times: int) -> None:
    """Kills a sweep again and again, lets it end, and trains what was finished again alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "job.toml").write_text(KILLED_JOB.format(data=KILLED_DATA))
    sweep_file(folder / "sweep.toml", 0, "tpe", 'kind = "asha"\nminimum = 1', 12 * times)
    words = [COMMAND, "sweep", "sweep.toml"]
    chance, killed = random.Random(3), 0
    while killed < times:
        process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(chance.uniform(0.1, 1.2))
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
    told = call(folder, "sweep", "sweep.toml")
    finished = [trial for trial in told["trials"] if trial["state"] == "finished"]
    other = [trial["trial"] for trial in finished if alone(folder, trial["sample"]) != trial["digest"]]
    print(
        json.dumps(
            {
                "kills": killed,
                "trials": len(told["trials"]),
                "finished": len(finished),
                "other digests": other,
                "lines twice": twice(folder / "sweep.sweep/sweep.jsonl"),
                "processes left": left(folder),
            }
        )
    )


def alone(folder: Path, sample: dict[str, Any]) -> str:
    """The digest of the same trial as a job of its own."""
    words = ["run", "job.toml", "--workers", "1", "--state-dir", "alone"]
    for key, value in sample.items():
        words += ["--set", f"{key}={json.dumps(value)}"]
    return str(call(folder, *words)["params_digest"])


def twice(ledger: Path) -> int:
    """Lines of a ledger that say again what was said."""
    keys = [
        tuple(line.get(key) for key in ("entry", "decision", "trial", "to", "at"))
        for line in map(json.loads, ledger.read_text().splitlines())
        if line["entry"] in ("started", "ended", "reported") or line.get("decision") in ("begin", "continue")
    ]
    return len(keys) - len(set(keys))


def left(folder: Path) -> int:
    """Processes that still have to do with the folder a second later."""
    time.sleep(1.0)
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(path.read_bytes())
        except OSError:
            continue
    return sum(f"{folder.resolve()}/".encode() in command for command in commands)


def main() -> None:
    """See the head of this file."""
    match sys.argv[1:]:
        case ["compare", results, seeds]:
            compare(Path(results), int(seeds))
        case ["choice", results, seeds]:
            choice(Path(results), int(seeds))
        case ["kills", folder, times]:
            kills(Path(folder), int(times))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
