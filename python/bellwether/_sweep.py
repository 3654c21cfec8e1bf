"""Sweeps: `sweep` runs ``bellwether sweep``, and `Objective` lets Optuna choose the values."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bellwether._errors import BellwetherError, InputError
from bellwether._lead import find_command

_LOOK_S = 0.1
"""How often a trial's journal is looked at."""


@dataclass(frozen=True)
class Trial:
    """A trial of a sweep."""

    trial: int
    sample: dict[str, Any]
    """Its values by key."""
    state: str
    """finished, stopped, failed, paused or training."""
    why: str
    figure: float | None
    """Its last figure of the metric."""
    reports: list[tuple[int, float]]
    """Its figures by length."""
    digest: str | None
    worker_s: float


@dataclass(frozen=True)
class Sweep:
    """What a sweep found, and what it cost."""

    best: Trial | None
    trials: list[Trial]
    winner: Path | None
    """The job file of the best trial."""
    seconds: float
    worker_s: float
    halted: str | None
    """Why the trials wait, if the sweep is not over."""


def sweep(
    file: str | os.PathLike[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    daemon: str | os.PathLike[str] | None = None,
) -> Sweep:
    """Runs the sweep in `file`, or goes on with it, as ``bellwether sweep`` does; what happens is shown on stderr.

    `folder`: of the sweep, by default the file's name with ``.sweep`` in the working directory. `workers`: slots for
    all trials. `daemon`: the state directory of a daemon whose jobs the trials shall be. Raises InputError for a sweep file
    that cannot be run, and BellwetherError if no trial could be trained.
    """
    file = Path(file)
    place = Path(folder) if folder is not None else Path(file.stem + ".sweep")
    words = [find_command(), "sweep", str(file), "--format", "json", "--folder", str(place)]
    if workers is not None:
        words += ["--workers", str(workers)]
    if daemon is not None:
        words += ["--daemon", os.fspath(daemon)]
    ended = subprocess.run(words, stdout=subprocess.PIPE, stderr=None, text=True, check=False)
    if ended.returncode == 2:
        raise InputError(f"{file}: the sweep cannot be run; what is wrong was printed")
    if not ended.stdout.strip():
        raise BellwetherError(f"{file}: the sweep ended with exit code {ended.returncode}")
    told = json.loads(ended.stdout)
    trials = [_trial(one) for one in told["trials"]]
    best = None if told["winner"] is None else trials[told["winner"]]
    winner = place / "winner.toml"
    return Sweep(
        best=best,
        trials=trials,
        winner=winner if best is not None else None,
        seconds=told["seconds"],
        worker_s=told["worker_s"],
        halted=told["halted"],
    )


def _trial(told: Mapping[str, Any]) -> Trial:
    return Trial(
        trial=told["trial"],
        sample=dict(told["sample"]),
        state=told["state"],
        why=told["why"],
        figure=told["figure"],
        reports=[(at, figure) for at, figure in told["reports"]],
        digest=told["digest"],
        worker_s=told["worker_s"],
    )


class Objective:
    """A function that ``optuna.Study.optimize`` calls: it trains a job with the values that Optuna suggests.

    `job`: the job file or script. `suggest`: gets the Optuna trial and returns values by key of the job file. Each
    evaluation is reported to Optuna by its step; a trial that Optuna prunes is stopped, with a checkpoint. `metric`:
    ``"accuracy"`` or ``"loss"``. `every_steps`: steps between evaluations; the job file's if it is None.

        study = optuna.create_study(direction="maximize")
        objective = bellwether.Objective("job.toml", lambda trial: {
            "optimizer.learning_rate": trial.suggest_float("rate", 1e-4, 1.0, log=True)})
        study.optimize(objective, n_trials=20)
    """

    def __init__(
        self,
        job: str | os.PathLike[str],
        suggest: Callable[[Any], Mapping[str, Any]],
        *,
        metric: str = "accuracy",
        workers: int | str | None = None,
        every_steps: int | None = None,
    ) -> None:
        if metric not in ("accuracy", "loss"):
            raise InputError(f'metric: "{metric}" is neither "accuracy" nor "loss"')
        self._job = Path(job)
        self._suggest = suggest
        self._metric = metric
        self._workers = workers
        self._every_steps = every_steps

    def __call__(self, trial: Any) -> float:
        values = dict(self._suggest(trial))
        if self._every_steps is not None:
            values["evaluation.every_steps"] = self._every_steps
        with tempfile.TemporaryDirectory(prefix="bellwether-trial-") as folder:
            words = [find_command(), "run", str(self._job), "--state-dir", folder, "--format", "json"]
            if self._workers is not None:
                words += ["--workers", str(self._workers)]
            for key, value in values.items():
                words += ["--set", f"{key}={json.dumps(value)}"]
            with open(Path(folder) / "said", "w+", encoding="utf-8") as said:
                process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said)
                try:
                    last = self._follow(trial, process, Path(folder))
                finally:
                    if process.poll() is None:
                        # The run stops with a checkpoint, and takes its workers along.
                        process.terminate()
                        process.wait()
                if process.returncode != 0 or last is None:
                    said.seek(0)
                    told = said.read().strip()
                    raise BellwetherError(told or f"trial {trial.number} never reported its {self._metric}")
                return last

    def _follow(self, trial: Any, process: subprocess.Popen[bytes], folder: Path) -> float | None:
        """Reports evaluations until the run has ended; the last figure."""
        last: float | None = None
        taken = 0
        ended = False
        while not ended:
            try:
                process.wait(_LOOK_S)
                ended = True
            except subprocess.TimeoutExpired:
                pass
            journals = list(folder.glob("*/journal.jsonl"))
            lines = journals[0].read_bytes().split(b"\n")[:-1] if journals else []
            for line in lines[taken:]:
                told = json.loads(line)
                figure = told.get(self._metric)
                if told.get("event") != "evaluated" or figure is None:
                    continue
                last = float(figure)
                trial.report(last, told["step"])
                if not ended and trial.should_prune():
                    import optuna  # type: ignore[import-not-found, unused-ignore]

                    raise optuna.TrialPruned
            taken = len(lines)
        return last
