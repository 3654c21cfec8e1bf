# Environments: torch
"""Sweeps from Python: the command's, and one that Optuna drives."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import unittest
from pathlib import Path
from typing import Any

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


class Sweeps(unittest.TestCase):
    """Each in a folder of its own, with the same job."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        Path("job.toml").write_text(_JOB)
        Path("sweep.toml").write_text(_SWEEP)

    def test_a_sweep_finds_the_better_rate(self) -> None:
        found = bellwether.sweep("sweep.toml")
        self.assertEqual([trial.state for trial in found.trials], ["finished", "finished"])
        assert found.best is not None and found.winner is not None
        self.assertEqual(found.best.sample, {"optimizer.learning_rate": 0.3})
        self.assertIn("0.3", found.winner.read_text())
        self.assertIsNone(found.halted)
        self.assertGreater(found.worker_s, 0)
        # It is over: the same again trains nothing.
        self.assertEqual(bellwether.sweep("sweep.toml").trials, found.trials)

    def test_a_sweep_that_cannot_be_run_is_refused(self) -> None:
        Path("sweep.toml").write_text(_SWEEP.replace("grid", "gird"))
        with self.assertRaises(bellwether.InputError):
            bellwether.sweep("sweep.toml")

    @unittest.skipUnless(importlib.util.find_spec("optuna"), "Optuna is not installed")
    def test_optuna_drives_and_prunes_trials(self) -> None:
        optuna: Any = importlib.import_module("optuna")
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
        self.assertLessEqual(states, {optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.COMPLETE})
        self.assertTrue(all(9 in trial.intermediate_values for trial in study.trials))


if __name__ == "__main__":
    unittest.main()
