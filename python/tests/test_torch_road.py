# Environments: torch
"""A PyTorch script on the whole road: profile, predict, plan, submit, crash, resume."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from runs import EXAMPLES, ROOT, Place, Trained
from torch import nn

import bellwether.torch as bw

SCRIPT = EXAMPLES / "torch_digits.py"


def plain_model() -> nn.Module:
    """The example's model, not trained."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
    )


def accuracy(model: nn.Module) -> float:
    """Of a trained model on the digits that are held out, by plain PyTorch."""
    digits = torch.from_numpy(np.loadtxt(ROOT / "data/digits/digits.csv.gz", delimiter=",", dtype=np.float32))
    images, labels = digits[1438:, :64].reshape(-1, 1, 8, 8) / 16, digits[1438:, 64].long()
    model.eval()
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean().item())


def printed(text: str) -> float:
    """The last accuracy that the script printed."""
    return float(re.findall(r"accuracy (\S+)$", text, re.MULTILINE)[-1])


class Road(unittest.TestCase):
    """Every verb takes the script."""

    place: Place
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        torch.set_num_threads(1)
        cls.place = Place()
        cls.plain = cls.place.train(SCRIPT, "--workers", "1")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def setUp(self) -> None:
        self.state = self.place.path / self._testMethodName
        self.state.mkdir()
        self.assertEqual(self.plain.code, 0, self.plain.log)

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        """Starts a verb with this test's state directory."""
        command = [os.environ["BELLWETHER_COMMAND"], *arguments]
        environment = {**os.environ, "BELLWETHER_STATE_DIR": str(self.state)}
        return subprocess.Popen(command, cwd=self.state, env=environment, text=True, **more)

    def call(self, *arguments: str, code: int = 0) -> str:
        """Runs a verb to its end; what it printed."""
        process = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=180)
        self.assertEqual(process.returncode, code, err)
        return out if code == 0 else err

    def wait_for(self, what: str, check: Callable[[], Any]) -> Any:
        """Waits until `check` gives something."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = check()
            if found:
                return found
            time.sleep(0.02)
        self.fail(f"{what} did not come")

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Events of this kind in this test's runs."""
        found = []
        for path in self.state.glob("*/journal.jsonl"):
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            found += [json.loads(line) for line in lines]
        return [event for event in found if event["event"] == kind]

    def committed(self, step: int) -> bool:
        """Whether the run is beyond this step."""
        return any(event["last"] >= step for event in self.told("committed"))

    def digest(self) -> str:
        """Of the run that ended last."""
        return str(self.told("ended")[-1]["params_digest"])

    def test_from_a_profile_to_the_plain_framework(self) -> None:
        """Measured, predicted, planned, submitted, struck by a crash, and opened in plain PyTorch."""
        python = ("--python", sys.executable)
        self.call("profile", *python, str(SCRIPT), "--steps", "10", "-o", "profile.json")
        profile = json.loads((self.state / "profile.json").read_text())
        self.assertEqual(profile["batch"], 64)
        self.assertIn("torch", profile["device"])
        rows = json.loads(self.call("predict", "profile.json", "--format", "json"))
        self.assertTrue(rows)
        catalog = str(ROOT / "examples/plan/published-2019.toml")
        self.call("plan", "profile.json", "--catalog", catalog, "--epochs", "5", "--samples", "1438")
        log = self.state / "serve.log"
        with log.open("w") as file:
            daemon = self.start("serve", stdout=file, stderr=file)
        try:
            self.wait_for("the daemon", lambda: "serving on" in log.read_text())
            script = self.longer(20)
            self.call("submit", *python, str(script), "--workers", "1..2")
            self.wait_for("step 20", lambda: self.committed(20))
            victim = self.told("worker_attached")[-1]["process"]
            os.kill(victim, signal.SIGKILL)
            self.wait_for("the end", lambda: self.told("ended"))
        finally:
            daemon.terminate()
            daemon.wait(timeout=30)
        self.assertTrue(self.told("crashed"))
        submitted = self.digest()
        run = self.place.train(script, "--workers", "1")
        self.assertEqual(run.digest, submitted)
        checkpoint = max(self.state.glob("*/checkpoints/*.safetensors"))
        model = plain_model()
        bw.load(model, checkpoint)
        self.assertAlmostEqual(accuracy(model), printed(run.out), delta=5e-5)

    def longer(self, epochs: int) -> Path:
        """The script with more epochs, so that there is time for something to happen."""
        text = (
            SCRIPT.read_text().replace("epochs(5)", f"epochs({epochs})").replace("T_max=5", f"T_max={epochs}")
        )
        text = text.replace('Path(__file__).parents[2] / "data', f'Path("{ROOT}") / "data')
        path = self.state / "train.py"
        path.write_text(text)
        return path

    def test_a_coordinator_is_killed_and_the_run_goes_on(self) -> None:
        """The workers wait for another coordinator, and a new lead follows the run."""
        script = self.longer(20)
        first = self.start(
            "run", "--python", sys.executable, str(script), "--workers", "2", stderr=subprocess.DEVNULL
        )
        self.wait_for("step 20", lambda: self.committed(20))
        first.kill()
        first.wait()
        out = self.call("resume", "train-1")
        self.assertEqual(self.digest(), self.place.train(script, "--workers", "1").digest)
        self.assertIn("epoch 19: accuracy", out)

    def test_other_modes_train_a_rule_of_the_runtime(self) -> None:
        """Parameter servers, asynchronous workers, gossip, a batch that grows, and checks for corruption."""
        text = (
            SCRIPT.read_text()
            .replace("torch.optim.RAdam", "torch.optim.AdamW")
            .replace(", clip_norm=1.0", "")
        )
        script = self.state / "train.py"
        script.write_text(text.replace('Path(__file__).parents[2] / "data', f'Path("{ROOT}") / "data'))
        exact = self.place.train(script, "--workers", "2", "--set", "verify_every=3")
        servers = self.place.train(script, "--workers", "2", "--set", "sync.reduce=servers")
        self.assertEqual((exact.code, servers.code), (0, 0), servers.log)
        self.assertEqual(exact.digest, servers.digest)
        for mode in ("sync.policy=asp", "sync.policy=gossip", "mode.goodput.max_batch=256"):
            trained = self.place.train(script, "--workers", "2", "--set", mode)
            self.assertEqual(trained.code, 0, trained.log)
            self.assertGreater(printed(trained.out), 0.6, mode)

    def test_a_rule_of_ones_own_is_refused_where_it_has_no_meaning(self) -> None:
        """With the reason, before anything is started."""
        for mode, why in (
            ("sync.policy=asp", "part of a step"),
            ("mode.goodput.max_batch=256", "larger batch"),
        ):
            error = self.call("run", "--python", sys.executable, str(SCRIPT), "--set", mode, code=2)
            self.assertIn("optimizer.kind", error)
            self.assertIn(why, error)

    def test_a_bug_in_the_loop_ends_the_run_with_its_line(self) -> None:
        """After at most two workers more than there were."""
        text = SCRIPT.read_text().replace("        optimizer.zero_grad()", "        check(run.step)")
        text = text.replace(
            "torch.manual_seed(0)",
            "torch.manual_seed(0)\n\n\ndef check(step):\n"
            "    if step == 9:\n        raise ValueError('a bug of mine')\n\n",
        )
        script = self.state / "bug.py"
        script.write_text(text.replace('Path(__file__).parents[2] / "data', f'Path("{ROOT}") / "data'))
        trained = self.place.train(script, "--workers", "2")
        self.assertEqual(trained.code, 1, trained.log)
        self.assertRegex(
            trained.log, r"bug\.py:\d+: ValueError: a bug of mine \(worker \d+, step 9, virtual node \d\)"
        )
        self.assertLessEqual(len([1 for event in trained.events if event["event"] == "worker_started"]), 4)


if __name__ == "__main__":
    unittest.main()
