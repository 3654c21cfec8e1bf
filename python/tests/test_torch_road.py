# Environments: torch
# Long
"""A PyTorch script on the whole road: profile, predict, plan, submit, crash, resume."""

import subprocess
import unittest
from pathlib import Path
from typing import ClassVar

import road
import torch
from digits import accuracy
from runs import EXAMPLES, TORCH, takes_long
from torch import nn

import bellwether.torch as bw

ADAMW = {"torch.optim.RAdam": "torch.optim.AdamW", ", clip_norm=1.0": ""}
"""A rule of the runtime."""


class Road(road.Road):
    """Every verb takes the script."""

    example, imports, framework, trace = "torch_digits.py", TORCH, "torch", "trace.json"
    changes: ClassVar = {**ADAMW, "epochs(5)": "epochs(7)", "T_max=5": "T_max=7"}

    def accuracy_of(self, checkpoint: Path) -> float:
        torch.set_num_threads(1)
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
        )
        bw.load(model, checkpoint)
        images, labels = (torch.from_numpy(array) for array in road.held_out())
        model.eval()
        with torch.no_grad():
            return float((model(images.reshape(-1, 1, 8, 8)).argmax(1) == labels).float().mean().item())

    def test_a_coordinator_is_killed_and_the_run_goes_on(self) -> None:
        """The workers wait for another coordinator, and a new lead follows the run."""
        arguments = ("run", "--python", self.place.python, str(self.script), "--workers", "2")
        first = self.start(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for("step 20", lambda: self.committed(20))
        first.kill()
        first.wait()
        out = self.call("resume", "train-1")
        self.assertEqual(self.digest(), self.plain.digest)
        self.assertIn("epoch 6: accuracy", out)

    def test_a_lead_whose_run_was_resumed_leaves_it_to_the_next_one(self) -> None:
        """It takes no weights away that the next lead wants, whatever it did when its coordinator was killed."""
        waits = (
            "import time\nfrom pathlib import Path\n\ndef wait():\n"
            "    if Path('hold').exists():\n        Path('hold').rename('held')\n"
            "        while Path('held').exists():\n            time.sleep(0.05)\n\n"
        )
        changes = {
            "        model.eval()": "        wait()\n        model.eval()",
            "torch.manual_seed(0)": f"torch.manual_seed(0)\n{waits}",
        }
        script = self.variant("waiting.py", changes)
        (self.state / "hold").touch()
        arguments = ("run", "--python", self.place.python, str(script), "--workers", "2")
        first = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.wait_for("the end of an epoch", (self.state / "held").exists)
        first.kill()
        out = self.call("resume", "waiting-1")
        (self.state / "held").unlink()
        before, _ = first.communicate(timeout=60)
        self.assertIn("epoch 4: accuracy", out)
        self.assertEqual(before.count("accuracy"), 1, before)

    def test_servers_reduce_to_the_same_bits_and_nothing_is_corrupt(self) -> None:
        """Parameter servers, and other workers that compute a virtual node again."""
        both = ("--workers", "2", "--steps", "46")
        servers = self.place.train(self.script, *both, "--set", "sync.reduce=servers")
        exact = self.place.train(self.script, *both, "--set", "verify_every=3")
        self.assertEqual((exact.code, servers.code), (0, 0), servers.log + exact.log)
        self.assertEqual(exact.digest, servers.digest)

    @takes_long
    def test_other_modes_train_a_rule_of_the_runtime(self) -> None:
        """Asynchronous workers, gossip, local steps, and a batch that grows."""
        for mode in (
            "sync.policy=asp",
            "sync.policy=gossip",
            "sync.policy=local:4",
            "mode.goodput.max_batch=256",
        ):
            trained = self.place.train(self.script, "--workers", "2", "--set", mode)
            self.assertEqual(trained.code, 0, trained.log)
            self.assertGreater(accuracy(trained.out), 0.6, mode)

    def test_a_rule_of_ones_own_is_refused_where_it_has_no_meaning(self) -> None:
        """With the reason, before anything is started."""
        for mode, why in (
            ("sync.policy=asp", "part of a step"),
            ("mode.goodput.max_batch=256", "larger batch"),
        ):
            words = ("--python", self.place.python, str(EXAMPLES / self.example), "--set", mode)
            error = self.call("run", *words, code=2)
            self.assertIn("optimizer.kind", error)
            self.assertIn(why, error)

    def test_a_bug_in_the_loop_ends_the_run_with_its_line(self) -> None:
        """After at most two workers more than there were."""
        raising = "def check(step):\n    if step == 9:\n        raise ValueError('a bug of mine')"
        changes = {
            "        optimizer.zero_grad()": "        check(run.step)",
            "torch.manual_seed(0)": f"torch.manual_seed(0)\n\n\n{raising}\n\n",
        }
        script = self.variant("bug.py", changes)
        trained = self.place.train(script, "--workers", "2")
        self.assertEqual(trained.code, 1, trained.log)
        self.assertRegex(
            trained.log, r"bug\.py:\d+: ValueError: a bug of mine \(worker \d+, step 9, virtual node \d\)"
        )
        self.assertLessEqual(len([1 for event in trained.events if event["event"] == "worker_started"]), 4)


if __name__ == "__main__":
    unittest.main()
