# Environments: torch
"""One loop over steps and the call of a function train the same; a body that fails ends its run."""

import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path

from runs import Place, events, wait_for_step

SCRIPT = Path(__file__).parent / "scripts/torch_forms.py"


class Forms(unittest.TestCase):
    """Each test runs the script through the command, or by itself."""

    def setUp(self) -> None:
        self.place = Place()
        self.addCleanup(self.place.end)

    def test_steps_and_train_are_the_same(self) -> None:
        steps = self.place.train(SCRIPT, "--workers", "1", "--", "steps")
        trained = self.place.train(SCRIPT, "train", alone=True)
        self.assertEqual((steps.code, trained.code), (0, 0), steps.log + trained.log)
        self.assertNotEqual(steps.digest, "")
        self.assertEqual(steps.digest, trained.digest)
        sums = [[line for line in one.out.splitlines() if line.startswith("sum")] for one in (steps, trained)]
        self.assertEqual(sums[0], sums[1])
        self.assertEqual(len(sums[0]), 1, "what follows the loop runs once")

    def test_a_body_that_fails_ends_the_run_with_its_line(self) -> None:
        ended = self.place.train(SCRIPT, "--workers", "1", "--", "raise")
        self.assertEqual(ended.code, 1, ended.log)
        self.assertRegex(
            ended.log, r"error: .*torch_forms.py:32: ValueError: this body fails \(worker \d+, step 3, "
        )
        self.assertLessEqual(len(ended.of("worker_started")), 2, "each boot costs an import of the framework")

    def test_ctrl_c_in_a_script_stops_its_run(self) -> None:
        folder = self.place.path
        command = [sys.executable, str(SCRIPT), "long"]
        environment = self.place.environment(folder / "state")
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.assertTrue(wait_for_step(folder, 5, process))
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, out)
        self.assertEqual([e["outcome"] for e in events(folder) if e["event"] == "ended"], ["stopped"], out)
        self.assertNotIn("\nsum", out)


if __name__ == "__main__":
    unittest.main()
