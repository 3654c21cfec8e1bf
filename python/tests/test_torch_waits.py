# Environments: torch
"""Waits for data are counted, shown and measured; samples are visited block by block; a framework leaves its trace."""

import csv
import io
import json
import os
import subprocess
import unittest
from pathlib import Path
from typing import Any

from runs import TORCH, Place, Trained

SCRIPT = Path(__file__).parent / "scripts/torch_slow.py"

LOADED_S = 16 * 0.005
"""What the samples of a step take to be loaded one after the other."""


class Waits(unittest.TestCase):
    """Of a data set that sleeps."""

    place: Place

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place(TORCH)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def train(self, processes: int, computing_ms: int, steps: int, block: int, *options: str) -> Trained:
        """A run of the script."""
        words = [str(word) for word in (processes, computing_ms, steps, block)]
        trained = self.place.train(SCRIPT, *options, "--", *words)
        self.assertEqual(trained.code, 0, trained.log)
        return trained

    def call(self, folder: Path, *arguments: str, code: int = 0) -> str:
        """Runs a verb beside a run; what it printed."""
        command = [os.environ["BELLWETHER_COMMAND"], *arguments]
        environment = self.place.environment(folder / "state")
        ended = subprocess.run(
            command, cwd=folder, env=environment, text=True, capture_output=True, check=False, timeout=180
        )
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        return ended.stdout if code == 0 else ended.stderr

    @staticmethod
    def rows(trained: Trained) -> list[dict[str, Any]]:
        """The measurements of a run's steps but the first, before which nothing could be loaded."""
        path = next(trained.folder.glob("state/*/metrics.jsonl"))
        return [json.loads(line) for line in path.read_text().splitlines()][1:]

    def test_a_run_counts_what_it_waits_for_and_shows_it(self) -> None:
        """As a part of the step beside computing, in its end's table, in `show` and in the exported rows."""
        trained = self.train(0, 10, 6, 0, "--workers", "1")
        rows = self.rows(trained)
        for row in rows:
            self.assertGreaterEqual(row["data_wait_s"], LOADED_S)
            self.assertGreaterEqual(row["compute_s"], 0.04)
            parts = sum(row[part] for part in ("data_wait_s", "compute_s", "exchange_s", "update_s"))
            self.assertLessEqual(parts, row["duration_s"] * 1.001)
            self.assertLess(sum(row["nodes_s"]), row["duration_s"] - row["data_wait_s"])
        shown = self.call(trained.folder, "show", "torch_slow")
        self.assertRegex(shown, r"waits for data +\d+\.\d % of a step")
        exported = list(csv.DictReader(io.StringIO(self.call(trained.folder, "export", "torch_slow"))))
        told = [float(row["data_wait_s"]) for row in exported if row["data_wait_s"]]
        self.assertEqual(told[1:], [row["data_wait_s"] for row in rows])

    def test_processes_that_load_ahead_hide_it(self) -> None:
        """Two of them load a micro-batch in 10 ms, while another takes 30 ms to be computed."""
        rows = self.rows(self.train(2, 30, 8, 0, "--workers", "1"))
        waited_s = sum(row.get("data_wait_s", 0.0) for row in rows)
        self.assertLess(waited_s, 0.4 * LOADED_S * len(rows), rows)

    def test_a_profile_tells_waiting_from_computing_and_the_framework_leaves_its_trace(self) -> None:
        """Waiting limits the job, whatever its devices; the trace is a profile of its own, read by `--import`."""
        folder = self.place.path / "profile"
        folder.mkdir()
        options = (
            "--python",
            self.place.python,
            "--steps",
            "3",
            "--framework-trace",
            "traces",
            "-o",
            "p.json",
        )
        table = self.call(folder, "profile", *options, str(SCRIPT), "--", "0", "5", "9", "0")
        profile = json.loads((folder / "p.json").read_text())
        self.assertEqual(len(profile["steps"]), 3)
        for step in profile["steps"]:
            computed = sum(
                seconds
                for seconds, operation in zip(step["operations_s"], profile["operations"], strict=True)
                if operation["kind"] == "compute"
            )
            self.assertGreaterEqual(step["data_wait_s"], LOADED_S)
            self.assertLess(computed + step["data_wait_s"], step["step_s"])
        self.assertGreater(profile["peak_resident_bytes"], 50 << 20)
        self.assertRegex(table, r"waits for data +\d+")
        self.assertRegex(table, r"peak memory of a worker +\d+")

        for device in ((), ("--device", "fast=1000")):
            more = ("--workers", "1..2", "--format", "json", *device)
            one, two = json.loads(self.call(folder, "predict", "p.json", *more))
            self.assertEqual((one["bottleneck"], two["bottleneck"]), ("data", "data"))
            # A faster device waits as long, and each of two workers waits for its half.
            self.assertLess(one["examples_per_s"], 16 / LOADED_S)
            self.assertGreater(two["examples_per_s"], 1.1 * one["examples_per_s"])

        self.call(folder, "profile", "--import", "traces/trace.json", "-o", "imported.json")
        imported = json.loads((folder / "imported.json").read_text())
        # A step of the trace is a micro-batch; the parts are the gradients of two layers.
        self.assertEqual((imported["source"], imported["batch"]), ("pytorch", 4))
        self.assertEqual(sum(part["bytes"] for part in imported["parts"]), profile["parameter_bytes"])
        self.assertGreaterEqual(len(imported["steps"]), 9)

    def test_blocks_are_visited_one_after_the_other_by_any_workers(self) -> None:
        """The same bits for any number, and others than without blocks; every sample once."""
        one = self.train(0, 0, 14, 32, "--workers", "1")
        two = self.train(2, 0, 14, 32, "--workers", "2")
        plain = self.train(0, 0, 14, 0, "--workers", "1")
        self.assertEqual(one.digest, two.digest)
        self.assertNotEqual(one.digest, plain.digest)
        self.assertIn("exactly one step", self.call(two.folder, "audit", "torch_slow"))

    def test_an_order_that_the_script_does_not_have_is_refused(self) -> None:
        """Its loaders would read other samples ahead."""
        folder = self.place.path / "order"
        folder.mkdir()
        script = f'kind = "python"\nscript = "{SCRIPT}"\narguments = ["0", "0", "4", "0"]'
        text = f'[model]\n{script}\n[data]\nkind = "python"\norder = {{ block = 32 }}\n'
        (folder / "job.toml").write_text(text)
        error = self.call(folder, "run", "--python", self.place.python, "job.toml", code=2)
        self.assertIn("data.order: it is { block = 32 } here and none in torch_slow.py", error)


if __name__ == "__main__":
    unittest.main()
