# Environments: torch
"""One loop over steps and the call of a function train the same; a body that fails ends its run."""

import json
import os
import signal
import subprocess
import unittest
from pathlib import Path

from runs import COMMAND, TORCH, Place, events, wait_for_step

SCRIPT = Path(__file__).parent / "scripts/torch_forms.py"


class Forms(unittest.TestCase):
    """Each test runs the script through the command, or by itself."""

    def setUp(self) -> None:
        self.place = Place(TORCH)
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

    def test_every_epoch_shows_its_own_weights_however_short_it_is(self) -> None:
        trained = self.place.train(SCRIPT.with_name("torch_epochs.py"), "--workers", "1")
        self.assertEqual(trained.code, 0, trained.log)
        shown = [line.split()[1:] for line in trained.out.splitlines() if line.startswith("epoch")]
        self.assertEqual(shown, [[str(epoch), str(epoch + 1)] for epoch in range(40)], trained.log)

    def test_a_body_that_fails_ends_the_run_with_its_line(self) -> None:
        ended = self.place.train(SCRIPT, "--workers", "1", "--", "raise")
        self.assertEqual(ended.code, 1, ended.log)
        lines = SCRIPT.read_text().splitlines()
        line = next(number for number, text in enumerate(lines, 1) if "raise ValueError" in text)
        where = rf"error: .*torch_forms.py:{line}: ValueError: this body fails \(worker \d+, step 3, "
        self.assertRegex(ended.log, where)
        self.assertLessEqual(len(ended.of("worker_started")), 2, "each boot costs an import of the framework")

    def test_leaving_the_loop_over_epochs_stops_the_run(self) -> None:
        ended = self.place.train(SCRIPT, "break", alone=True)
        self.assertEqual(ended.code, 2, ended.log)
        self.assertEqual([line for line in ended.out.splitlines() if line.startswith("epoch")], ["epoch 0"])
        left = r"error: torch_forms.py:\d+: the script leaves the loop after 1 of 100000 epochs, before the run is over"
        instead = r"write hold=True to end it there, use run\.steps\(n\), or `bellwether stop`"
        self.assertRegex(ended.log, rf"{left}; {instead}; the run is stopped")
        self.assertEqual([event["outcome"] for event in ended.of("ended")], ["stopped"], ended.log)

    def test_a_worker_of_another_kernel_class_is_refused_by_what_differs(self) -> None:
        folder = self.place.path
        environment = self.place.environment(folder / "state")
        command = [COMMAND, "run", "--python", self.place.python, str(SCRIPT), "--workers", "1", "--", "long"]
        run = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self.assertTrue(wait_for_step(folder, 5, run))
            (place,) = (folder / "state").glob("*/endpoint.json")
            address = json.loads(place.read_text())["control"]
            joining = [COMMAND, "worker", "--join", address, "--token-file", str(place.parent / "token")]
            other = environment | {"ATEN_CPU_CAPABILITY": "default"}
            script = ["--", self.place.python, str(SCRIPT), "long"]
            worker = subprocess.run(
                [*joining, *script], env=other, check=False, capture_output=True, text=True, timeout=120
            )
        finally:
            run.send_signal(signal.SIGINT)
            run.wait(timeout=60)
        self.assertEqual(worker.returncode, 1, worker.stderr)
        # Random numbers, and so the data, are others too; versions and threads are the same, and not named.
        self.assertRegex(
            worker.stderr,
            r"its kernel class differs, .* the run has `cpu \S+; data \S+; probe \S+`, it has `cpu DEFAULT; "
            r"ATEN_CPU_CAPABILITY=default; data \S+; probe \S+`",
        )

    def test_ctrl_c_in_a_script_stops_its_run(self) -> None:
        folder = self.place.path
        command = [self.place.python, str(SCRIPT), "long"]
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
