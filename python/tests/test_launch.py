# Environments: torch
"""A function of a notebook is trained by value: its code stands in no file."""

import os
import signal
import subprocess
import sys
import unittest

from runs import TORCH, Place, events, wait_for_step

NOTEBOOK = """
import torch, bellwether, bellwether.torch as bw
from torch import nn
from torch.utils.data import TensorDataset

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Dropout(0.1), nn.Linear(width, 1))
    def forward(self, x):
        return self.layers(x)

def trained(model, steps, bad=-1):
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = bw.Run(model, optimizer, data=TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, virtual_nodes=4)
    if bad == 0:
        raise KeyError("before the loop")
    for x, y in run.steps(steps):
        if run.step == bad:
            raise ValueError("this body fails")
        run.backward(nn.functional.mse_loss(model(x), y))
    print("the lead says", run.step)
    if bad == steps:
        raise LookupError("after the loop")
    return model

torch.manual_seed(1)
model = Model(4)
"""
"""Is read from stdin, as an interpreter without files reads it."""


class Launch(unittest.TestCase):
    """Each test is a notebook."""

    def setUp(self) -> None:
        self.place = Place(TORCH)
        self.addCleanup(self.place.end)

    def start(self, code: str) -> subprocess.Popen[str]:
        """A Python that reads its program from stdin."""
        process = subprocess.Popen(
            [sys.executable, "-"],
            cwd=self.place.path,
            env=self.place.environment(self.place.path / "state"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(f"import sys; sys.executable = {self.place.python!r};" + NOTEBOOK + code)
        process.stdin.close()
        process.stdin = None
        return process

    def said(self, code: str) -> str:
        """What a notebook prints, to its end."""
        process = self.start(code)
        out, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, out)
        return out

    def test_one_and_two_workers_train_the_same_model_and_it_comes_back(self) -> None:
        out = self.said(
            "before = [p.clone() for p in model.parameters()]\n"
            "one, two = (bellwether.launch(trained, model, 12, workers=n) for n in (1, 2))\n"
            "assert type(one) is Model and one is not model\n"
            "assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))\n"
            "assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))\n"
            "assert not torch.equal(before[0], next(one.parameters()))\n"
            "print('all is well')\n"
        )
        self.assertIn("all is well", out)
        self.assertEqual(out.count("the lead says 12"), 2)
        digests = [e["params_digest"] for e in events(self.place.path) if e["event"] == "ended"]
        self.assertEqual(len(digests), 2)
        self.assertEqual(digests[0], digests[1])

    def test_an_error_is_raised_with_the_traceback_of_the_function(self) -> None:
        tell = (
            "import traceback\n"
            "for bad in (0, 3, 6):\n"
            "    try:\n"
            "        bellwether.launch(trained, model, 6, bad, workers=1)\n"
            "    except Exception as error:\n"
            "        print('raised', ''.join(traceback.format_exception(error)), 'end')\n"
        )
        out = self.said(tell)
        raised = [part.split(" end")[0] for part in out.split("raised ")[1:]]
        self.assertEqual(len(raised), 3, out)
        errors = ("KeyError: 'before the loop'", "ValueError: this body fails", "LookupError: after the loop")
        for text, error, line in zip(raised, errors, (18, 21, 25), strict=True):
            self.assertIn(error, text)
            self.assertIn(f'File "<stdin>", line {line}, in trained', text)

    def test_an_interrupt_stops_the_run(self) -> None:
        process = self.start(
            # A shell that started the tests in the background lets them ignore an interrupt.
            "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "try:\n    bellwether.launch(trained, model, 1_000_000, workers=1)\n"
            "except KeyboardInterrupt:\n    print('interrupted')\n"
        )
        self.assertTrue(wait_for_step(self.place.path, 5, process))
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, out)
        self.assertIn("interrupted", out)
        ended = [e["outcome"] for e in events(self.place.path) if e["event"] == "ended"]
        self.assertEqual(ended, ["stopped"], out)


if __name__ == "__main__":
    unittest.main()
