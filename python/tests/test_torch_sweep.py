# Environments: torch
"""A sweep of a PyTorch script in a daemon, and the road of its winner: trained again, evaluated, and applied."""

import json
import subprocess
import unittest
from pathlib import Path
from typing import Any

import numpy as np
from road import held_out
from runs import TORCH, Place, Verbs, kill_newest, members

SCRIPT = Path(__file__).parent / "scripts/torch_swept.py"

SWEEP = """
job = "{script}"
[set]
workers = "1..2"
"--pause" = 2
[space]
"--rate" = {{ low = 1e-4, high = 0.2, scale = "log" }}
"--width" = {{ choices = [8, 32] }}
[sampler]
kind = "sobol"
[scheduler]
kind = "asha"
minimum = 9
maximum = 27
unit = "epochs"
[budget]
trials = {trials}
"""


class Sweep(Verbs):
    """In a folder of its own, which ends with it."""

    def setUp(self) -> None:
        self.place = Place(TORCH)
        self.addCleanup(self.place.end)
        self.folder, self.state = self.place.path, self.place.path / "state"
        self.state.mkdir()

    def sweep(self, trials: int) -> subprocess.Popen[str]:
        """Starts the sweep, or goes on with it."""
        (self.folder / "sweep.toml").write_text(SWEEP.format(script=SCRIPT, trials=trials))
        words = ("sweep", "sweep.toml", "--daemon", str(self.state), "--python", self.place.python)
        return self.start(*words, "--format", "json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def sizes(self, trial: int) -> list[int]:
        """Workers of each membership of a trial."""
        return [len(event["workers"]) for event in self.told("membership", f"trial-*-{trial}")]

    def test_a_sweep_in_a_daemon_whose_winner_is_applied(self) -> None:
        """The first trial grows, and shrinks when others begin; one is killed, and the sweep before that."""
        self.serve(2)
        first = self.sweep(trials=1)
        self.wait_for("a trial with both slots", lambda: self.sizes(0)[-1:] == [2])
        first.kill()
        first.communicate()
        second = self.sweep(trials=3)
        self.wait_for("the first trial to shrink", lambda: self.sizes(0)[-2:] == [2, 1])
        self.wait_for("another trial", lambda: members(self.journal("trial-*-1")))
        kill_newest(self.journal("trial-*-1"))
        out, err = second.communicate(timeout=120)
        self.assertEqual(second.returncode, 0, err)
        self.assertTrue(self.told("crashed", "trial-*-1"), err)
        found = json.loads(out)
        best = found["trials"][found["winner"]]
        self.assertEqual(len(found["trials"]), 3)
        self.assertNotIn("failed", [trial["state"] for trial in found["trials"]], out)
        self.apply(best)

    def test_a_script_says_when_its_run_ends(self) -> None:
        """By its held-out results, which do not get better here."""
        arguments = ("--python", self.place.python, str(SCRIPT), "--workers", "1", "--", "--patience=2")
        self.call("run", *arguments, "--rate=1e-12")
        self.assertEqual(len(self.told("evaluated")), 3)
        self.assertIn("2 evaluations", self.told("verdict")[-1]["ends"])

    def apply(self, best: dict[str, Any]) -> None:
        """Trains the winner again by itself, evaluates it, and applies it to the held-out digits."""
        self.call("run", "sweep.sweep/winner.toml", "--workers", "1", "--set", "name=winner")
        self.assertEqual(self.told("ended", "winner-1")[-1]["params_digest"], best["digest"])
        evaluated = json.loads(self.call("evaluate", "winner", "--format", "json"))
        self.assertEqual(evaluated["accuracy"], best["figure"])
        inputs, labels = held_out()
        np.savetxt(self.folder / "rows.csv", inputs, delimiter=",")
        self.call("infer", "winner", "--data", "rows.csv", "-o", "classes.csv")
        table = np.loadtxt(self.folder / "classes.csv", delimiter=",", skiprows=1)
        self.assertEqual(float((table[:, 1] == labels).mean()), evaluated["accuracy"])


if __name__ == "__main__":
    unittest.main()
