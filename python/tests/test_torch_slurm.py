# Environments: torch
"""A PyTorch script whose workers are jobs of Slurm's: the same bits, though Slurm takes one away."""

import os
import subprocess
import threading
import time
import unittest
from pathlib import Path

from runs import TORCH, Place, Runs, events, members

SCRIPT = Path(__file__).parent / "scripts/torch_slow.py"

STEPS = 120
"""Enough for another process to import PyTorch meanwhile, and join."""

CONFIGURATION = os.environ.get("BELLWETHER_TEST_SLURM_CONF", "")
"""Of the cluster that `cargo xtask test` and `cargo xtask slurm test` start."""


@unittest.skipUnless(CONFIGURATION, "no cluster: `cargo xtask slurm test` starts one")
class Slurm(Runs):
    """A script on a cluster."""

    place: Place

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place(TORCH, {"SLURM_CONF": CONFIGURATION})

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def test_a_worker_that_slurm_takes_away_leaves_at_a_step_and_is_replaced(self) -> None:
        script = ("0", "5", str(STEPS), "0")
        alone = self.place.train(SCRIPT, "--workers", "1", "--", *script)
        self.assertEqual(alone.code, 0, alone.log)
        on_slurm = ("--on=slurm", "--sbatch=--partition=low", "--sbatch=--exclusive", "--workers", "1..2")
        canceller = threading.Thread(target=self.cancel_one_of_two, args=(self.place.path / "2",))
        canceller.start()
        trained = self.place.train(SCRIPT, *on_slurm, "--", *script)
        canceller.join()
        self.assertEqual(trained.code, 0, trained.log)
        self.assertEqual(trained.digest, alone.digest, trained.log)
        self.assertEqual(trained.of("crashed"), [], trained.log)
        sizes = [len(event["workers"]) for event in trained.of("membership")]
        self.assertIn(1, sizes[sizes.index(2) :], trained.log)
        squeue = ["squeue", "-h", "-t", "PENDING,RUNNING"]
        queue = subprocess.run(squeue, env=self.place.environment(Path()), stdout=subprocess.PIPE, check=True)
        self.assertEqual(queue.stdout, b"", "all jobs have left")

    def cancel_one_of_two(self, folder: Path) -> None:
        """Cancels the job of the newest worker once two have trained for a while."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            told = events(folder) if folder.exists() else []
            two = [event for event in told if event["event"] == "membership" and len(event["workers"]) == 2]
            if two and any(e["event"] == "committed" and e["last"] > two[0]["step"] + 5 for e in told):
                words = f"worker {max(members(told))} is Slurm's job "
                said = [e["message"] for e in told if e["event"] == "cluster"]
                jobs = [
                    message.removeprefix(words).split()[0] for message in said if message.startswith(words)
                ]
                if jobs:
                    subprocess.run(["scancel", jobs[0]], env=self.place.environment(folder), check=True)
                    return
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
