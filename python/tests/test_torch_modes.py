# Environments: torch
"""What a run may be asked besides a number of workers: a Python script takes it as a job file does."""

import json
import subprocess
import sys
import unittest
from pathlib import Path

from runs import COMMAND, Place, Runs, Trained, takes_long

SCRIPT = Path(__file__).parent / "scripts/torch_modes.py"
STEPS = 160


@takes_long
class Modes(Runs):
    """One script, whose micro-batches sleep."""

    place: Place
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place()
        cls.plain = cls.place.train(SCRIPT, "--workers", "1", "--", str(STEPS), "0")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def train(self, *options: str) -> Trained:
        """Trains with these options; the bits are those of the undisturbed run."""
        trained = self.place.train(SCRIPT, *options, "--", str(STEPS), "10")
        self.assertEqual((self.plain.code, trained.code), (0, 0), self.plain.log + trained.log)
        self.assertEqual(trained.digest, self.plain.digest, trained.log)
        return trained

    def sizes(self, trained: Trained) -> list[int]:
        """Workers of each membership."""
        return [len(event["workers"]) for event in trained.of("membership")]

    def test_a_run_finds_its_size(self) -> None:
        trained = self.train("--workers", "1..3", "--autoscale", "efficiency", "--start-workers", "1")
        self.assertEqual(self.sizes(trained)[0], 1)
        self.assertGreater(max(self.sizes(trained)), 1, trained.log)
        self.assertEqual({event["by"] for event in trained.of("decided")}, {"efficiency"})

    def test_a_range_of_workers_is_measured_and_chosen_from(self) -> None:
        trained = self.train("--workers", "1..3")
        [decided] = trained.of("decided")
        self.assertEqual(decided["by"], "plan")
        self.assertEqual(set(self.sizes(trained)), {decided["target"]})

    def test_servers_that_vanish_by_a_law_change_no_bits(self) -> None:
        law = "exponential:1h,seed=3,time-scale=1800"
        trained = self.train("--workers", "2", "--revocations", law, "--notice", "0s")
        gone, crashed = ({e["worker"] for e in trained.of(kind)} for kind in ("revoked", "crashed"))
        # Some of those that are taken away do not compute yet.
        self.assertNotEqual(crashed, set(), trained.log)
        self.assertLessEqual(crashed, gone)

    def test_what_others_compute_again_is_the_same(self) -> None:
        trained = self.train("--workers", "2", "--set", "verify_every=2")
        self.assertEqual(trained.of("mismatched"), [])

    def test_the_share_of_synchronous_steps_is_searched(self) -> None:
        options = ["--settings", "1", "--runs", "1", "--margin", "0.9", "--workers", "2", "--format", "json"]
        script = ["--python", sys.executable, str(SCRIPT)]
        command = [COMMAND, "tune", "sync", *script, *options, "--", "60", "0"]
        environment = self.place.environment(self.place.path / "tune")
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        found = json.loads(ended.stdout)
        self.assertEqual([row["fraction"] for row in found["settings"]], [1.0, 0.5])
        self.assertEqual(found["best"], 0.5)
        self.assertGreater(found["target"], 0.5)


if __name__ == "__main__":
    unittest.main()
