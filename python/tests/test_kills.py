# Environments: torch, jax, tensorflow
# Alone
"""Twenty workers are killed at random instants: the bits stay the same, and the run hardly stands still."""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import unittest
from pathlib import Path
from typing import Any

from runs import COMMAND, EXAMPLES, ROOT, Place, members, takes_long

KILLS = 20
GROWTHS = 5
"""How often a worker is asked for."""

AUTOCAST = """        with torch.autocast("cpu", torch.bfloat16):
            scores = model(x)
        loss = F.cross_entropy(scores.float(), y)"""

TORCH = ("torch_digits.py", {"epochs(5)": "epochs(400)", "T_max=5": "T_max=400"})
KERAS = ("keras_digits.py", {"epochs=5": "epochs=400"})
STACKS: dict[str, dict[str, tuple[str, dict[str, str]]]] = {
    "torch": {
        "torch": TORCH,
        "torch in bfloat16": (
            TORCH[0],
            TORCH[1] | {"        loss = F.cross_entropy(model(x), y)": AUTOCAST},
        ),
    },
    "jax": {"jax": ("jax_digits.py", {"epochs=10": "epochs=4000"}), "keras by jax": KERAS},
    "tensorflow": {"keras by tensorflow": KERAS},
}


@takes_long
class Kills(unittest.TestCase):
    """One run for each stack of the environment; what was measured is printed."""

    def test_digests_and_times(self) -> None:
        for name, (example, changes) in STACKS[os.environ.get("KERAS_BACKEND", "torch")].items():
            with self.subTest(name):
                storm = Storm(example, changes)
                self.addCleanup(storm.place.end)
                storm.blow()
                found = storm.measured()
                print(json.dumps({"stack": name, **found}), file=sys.stderr, flush=True)
                plain = storm.undisturbed(found["steps"])
                self.assertEqual(found["digest"], plain, storm.log.read_text())
                self.assertEqual(found["kills"], KILLS)


class Storm:
    """A run whose workers are killed one after another."""

    def __init__(self, example: str, changes: dict[str, str]) -> None:
        self.place = Place()
        text = (EXAMPLES / example).read_text()
        for before, after in {
            'Path(__file__).parents[2] / "data': f'Path("{ROOT}") / "data',
            **changes,
        }.items():
            assert before in text, before
            text = text.replace(before, after)
        self.script = self.place.path / "train.py"
        self.script.write_text(text)
        self.log = self.place.path / "log"
        self.killed: list[tuple[float, int]] = []
        self.instants = random.Random(19)
        self.loads: list[float] = []
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._read = 0

    def blow(self) -> None:
        """Trains with two or three workers, kills one after another, and stops the run."""
        command = [COMMAND, "run", "--python", sys.executable, str(self.script), "--workers", "3"]
        with self.log.open("w") as log:
            run = subprocess.Popen(
                command, cwd=self.place.path, env=self._environment(), stdout=log, stderr=log
            )
            try:
                self._wait(run, lambda: len(self._members()) == 3 and self._told("committed"))
                self._grow(run)
                while len(self.killed) < KILLS:
                    self._wait(run, lambda: len(self._members()) >= 2)
                    time.sleep(self.instants.uniform(0.1, 1.0))
                    self._kill(run)
                self._wait(run, lambda: self._recovered(self.killed[-1][1]) is not None)
            finally:
                run.send_signal(signal.SIGINT)
                run.wait(timeout=120)

    def _grow(self, run: subprocess.Popen[Any]) -> None:
        """Takes a worker away, and asks for another, a few times."""
        for _ in range(GROWTHS):
            for count in (2, 3):
                self._call("scale", "train-1", "--workers", str(count))
                self._wait(run, lambda count=count: len(self._members()) == count)

    def _kill(self, run: subprocess.Popen[Any]) -> None:
        worker = self.instants.choice(self._members())
        processes = {event["worker"]: event["process"] for event in self._told("worker_attached")}
        self.loads.append(os.getloadavg()[0])
        self.killed.append((time.time(), worker))
        os.kill(processes[worker], signal.SIGKILL)
        self._wait(run, lambda: self._recovered(worker) is not None)

    def _recovered(self, worker: int) -> float | None:
        """When the first step was committed after this worker's end was known."""
        crashed = [event["time_s"] for event in self._told("crashed") if event["worker"] == worker]
        if not crashed:
            return None
        return next((e["time_s"] for e in self._told("committed") if e["time_s"] > crashed[0]), None)

    def measured(self) -> dict[str, Any]:
        """Times from a SIGKILL to the next step, and from the wish for a worker to its membership."""
        stood = [float(self._recovered(worker) or 0.0) - moment for moment, worker in self.killed]
        asked = [event["time_s"] for event in self._told("scale_requested") if event["workers"] == 3]
        grown = [event for event in self._told("resized") if (event["from"], event["to"]) == (2, 3)]
        waited = [event["time_s"] - moment for moment, event in zip(asked, grown, strict=False)]
        ended = self._told("ended")[-1]
        return {
            "kills": len(self._told("crashed")),
            "steps": ended["step"],
            "digest": ended["params_digest"],
            "kill_to_step_median_s": round(statistics.median(stood), 3),
            "kill_to_step_max_s": round(max(stood), 3),
            "asked_to_member_median_s": round(statistics.median(waited), 3),
            "asked_to_member_max_s": round(max(waited), 3),
            "stall_max_s": round(max(event["stall_s"] for event in grown), 3),
            "load": [round(min(self.loads), 1), round(max(self.loads), 1)],
        }

    def undisturbed(self, steps: int) -> str:
        """The digest of as many steps with one worker."""
        return self.place.train(self.script, "--workers", "1", "--steps", str(steps)).digest

    def _environment(self) -> dict[str, str]:
        return self.place.environment(self.place.path / "state")

    def _call(self, *arguments: str) -> None:
        subprocess.run([COMMAND, *arguments], check=True, env=self._environment(), stdout=subprocess.DEVNULL)

    def _told(self, kind: str) -> list[dict[str, Any]]:
        """The events of a kind so far; what was read before is not read again, so that looking costs little."""
        journal = Path(self.place.path, "state/train-1/journal.jsonl")
        if journal.exists():
            with journal.open() as file:
                file.seek(self._read)
                while (line := file.readline()).endswith("\n"):
                    event = json.loads(line)
                    self._events.setdefault(event["event"], []).append(event)
                    self._read += len(line)
        return self._events.get(kind, [])

    def _members(self) -> list[int]:
        return members([*self._told("membership"), *self._told("crashed")])

    def _wait(self, run: subprocess.Popen[Any], check: Any) -> None:
        until = time.monotonic() + 120
        while not check():
            if run.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"it did not come: {self.log.read_text()[-3000:]}")
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
