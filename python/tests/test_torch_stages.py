# Environments: torch
"""A worker before it trains: what the run is told of it, and what becomes of it."""

import contextlib
import json
import os
import signal
import subprocess
import time
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs import COMMAND, TORCH, Place, Trained, events

SCRIPT = Path(__file__).parent / "scripts/torch_stages.py"
WHOLE_S = 60.0
"""How long something may take on a machine that does much else."""


class Stages(unittest.TestCase):
    """Each test runs the script through the command."""

    def setUp(self) -> None:
        self.place = Place(TORCH)
        self.addCleanup(self.place.end)

    def train(self, form: str, *options: str) -> Trained:
        """Trains the script in this form."""
        traces = self.place.path / f"traces-{form}"
        traces.mkdir()
        return self.place.train(SCRIPT, *options, "--", form, str(traces))

    def line(self, text: str) -> int:
        """The number of the script's line with these words."""
        return next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)

    def test_a_script_that_does_not_come_to_its_training_ends_the_run_with_its_line(self) -> None:
        """It fails, ends, or declares another job than the lead: no other worker is started for nothing."""
        what = {
            "raise": rf"torch_stages.py:{self.line('raise ValueError')}: ValueError: no data on this machine \(worker 1, importing\)",
            "end": r"the script ends in a worker before it trains anything; .* \(worker 1, importing\)",
            "other": rf"torch_stages.py:{self.line('for x, y in run')}: batch.virtual_nodes is 8 in the script here, "
            r"and the run has 4 \(worker 1, building\)",
        }
        for form, told in what.items():
            with self.subTest(form):
                trained = self.train(form, "--workers", "1")
                self.assertEqual(trained.code, 1, trained.log)
                self.assertRegex(trained.log, f"error: .*{told}")
                self.assertEqual(len(trained.of("worker_started")), 1, trained.log)

    def test_a_script_that_stands_still_is_named_with_its_line_and_replaced(self) -> None:
        trained = self.train("never", "--workers", "2", "--set", 'model.stage_allowance="3s"')
        self.assertEqual(trained.code, 0, trained.log)
        place = rf"torch_stages.py:({self.line('while True')}|{self.line('while True') + 1})"
        self.assertRegex(trained.log, rf"worker \d+ .* it was still importing after 3 s, at {place}")
        self.assertGreaterEqual(len(trained.of("worker_started")), 3, trained.log)

    def test_the_stages_are_told_and_processes_of_the_script_end(self) -> None:
        """A pool that is forked before the training is ended by its signals, as in any process."""
        trained = self.train("pool", "--workers", "1")
        self.assertEqual(trained.code, 0, trained.log)
        (warm,) = trained.of("worker_warm")
        for stage in ("start_s", "importing_s", "building_s", "compiling_s"):
            self.assertGreater(warm[stage], 0.0, warm)
        told = (
            r"worker 1 can train after [\d.]+ s: [\d.]+ s starting, [\d.]+ s importing, [\d.]+ s building, "
        )
        self.assertRegex(trained.log, told)
        command = [COMMAND, "show", "torch_stages-1"]
        shown = subprocess.run(
            command,
            env=self.place.environment(trained.folder / "state"),
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertRegex(shown.stdout, r"slowest start +[\d.]+ s: ")

    def test_the_end_of_a_worker_is_seen_at_once_though_its_loaders_live(self) -> None:
        """It joined by hand: nobody but its connections tells of its end."""
        traces = self.place.path / "traces"
        traces.mkdir()
        folder = self.place.path
        words = [str(SCRIPT), "--workers", "2", "--no-spawn", "--", "loaders", str(traces)]
        with self.running([COMMAND, "run", "--python", self.place.python, *words], signal.SIGINT) as run:
            self.wait_for(lambda: list((folder / "state").glob("*/endpoint.json")))
            (place,) = (folder / "state").glob("*/endpoint.json")
            address = json.loads(place.read_text())["control"]
            joining = [COMMAND, "worker", "--join", address, "--token-file", str(place.parent / "token")]
            joining += ["--", self.place.python, str(SCRIPT), "loaders", str(traces)]
            with self.running(joining), self.running(joining):
                self.wait_for(lambda: any(e["event"] == "committed" for e in events(folder)))
                worker = max(e["process"] for e in events(folder) if e["event"] == "worker_attached")
                children = self.children(worker)
                self.assertGreaterEqual(len(children), 2)
                for child in children:
                    # It is to hold what it has for longer than anybody waits.
                    os.kill(child, signal.SIGSTOP)
                begin = time.time()
                os.kill(worker, signal.SIGKILL)
                self.wait_for(lambda: any(e["event"] == "crashed" for e in events(folder)))
                (crash,) = (e for e in events(folder) if e["event"] == "crashed")
                alive = [child for child in children if Path(f"/proc/{child}").exists()]
                for child in children:
                    os.kill(child, signal.SIGKILL)
                # While there is a worker that can hand its state over.
                run.send_signal(signal.SIGINT)
                run.wait(timeout=WHOLE_S)
        self.assertEqual(alive, children, "its loaders outlived it")
        self.assertLess(crash["time_s"] - begin, 0.9, crash)

    def test_newcomers_of_a_scheduled_resize_boot_ahead_of_it(self) -> None:
        """The members do not wait for a start that is shorter than the way to the boundary."""
        trained = self.train("slow", "--workers", "1", "--resize", "30:3")
        self.assertEqual(trained.code, 0, trained.log)
        (resized,) = trained.of("resized")
        self.assertEqual((resized["step"], resized["from"], resized["to"]), (30, 1, 3))
        step_s = 4 * 0.03
        if trained.of("worker_warm")[-1]["time_s"] < resized["time_s"] - 2 * step_s:
            self.assertLess(resized["stall_s"], 2 * step_s, resized)

    @contextlib.contextmanager
    def running(
        self, command: list[str], end: signal.Signals = signal.SIGKILL
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A process that is there for the time being; its output is in `log`."""
        folder = self.place.path
        with (folder / "log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=self.place.environment(folder / "state"), stdout=log, stderr=log
            )
            try:
                yield process
            finally:
                process.send_signal(end)
                process.wait(timeout=WHOLE_S)

    def wait_for(self, check: Any) -> None:
        """Waits until something holds."""
        until = time.monotonic() + WHOLE_S
        while not check():
            self.assertLess(time.monotonic(), until, (self.place.path / "log").read_text()[-3000:])
            time.sleep(0.01)

    @staticmethod
    def children(process: int) -> list[int]:
        """The processes that a process has started."""
        text = Path(f"/proc/{process}/task/{process}/children").read_text()
        return [int(number) for number in text.split()]


if __name__ == "__main__":
    unittest.main()
