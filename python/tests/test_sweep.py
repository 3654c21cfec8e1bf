# Environments: torch
"""Sweeps from Python: the command's, and one that Optuna drives."""

from __future__ import annotations

from pathlib import Path

import pytest

import bellwether

_JOB = """
name = "job"
seed = 7
epochs = 6
workers = 1
[model]
kind = "mlp"
hidden = [8]
[data]
kind = "teacher"
samples = 400
features = 8
classes = 3
[batch]
size = 40
virtual_nodes = 4
[optimizer]
kind = "sgd"
learning_rate = 0.1
"""

_SWEEP = """
job = "job.toml"
workers = 2
[space]
"optimizer.learning_rate" = { choices = [0.001, 0.3] }
[sampler]
kind = "grid"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(_JOB)
    (tmp_path / "sweep.toml").write_text(_SWEEP)
    return tmp_path


def test_a_sweep_finds_the_better_rate(folder: Path) -> None:
    found = bellwether.sweep("sweep.toml")
    assert [trial.state for trial in found.trials] == ["finished", "finished"]
    assert found.best is not None and found.best.sample == {"optimizer.learning_rate": 0.3}
    assert found.winner is not None and "0.3" in found.winner.read_text()
    assert found.halted is None and found.worker_s > 0
    # It is over: the same again trains nothing.
    assert bellwether.sweep("sweep.toml").trials == found.trials


def test_a_sweep_that_cannot_be_run_is_refused(folder: Path) -> None:
    (folder / "sweep.toml").write_text(_SWEEP.replace("grid", "gird"))
    with pytest.raises(bellwether.InputError):
        bellwether.sweep("sweep.toml")


def test_optuna_drives_and_prunes_trials(folder: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rates = iter([0.3, 0.001])

    def suggest(trial: object) -> dict[str, float]:
        return {"optimizer.learning_rate": next(rates)}

    pruner = optuna.pruners.ThresholdPruner(lower=0.99, n_warmup_steps=20)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    objective = bellwether.Objective("job.toml", suggest, every_steps=9)
    study.optimize(objective, n_trials=2)
    states = {trial.state for trial in study.trials}
    # Nothing comes to 99 % by then; a run that was faster than its pruning is complete.
    assert states <= {optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.COMPLETE}
    assert all(9 in trial.intermediate_values for trial in study.trials)
