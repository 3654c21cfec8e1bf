# Environments: torch
"""Trained models are used: a script's model is evaluated and applied to rows, and built-in ones are loaded by PyTorch."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from runs import ROOT, Verbs, takes_long
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

SCRIPT = Path(__file__).parent / "scripts/torch_applied.py"
DIGITS = np.loadtxt(ROOT / "data/digits/digits.csv.gz", delimiter=",", dtype=np.float32)

JOB = """
name = "net"
steps = 60
[model]
{model}
[data]
kind = "digits"
[batch]
size = 64
virtual_nodes = 4
[optimizer]
kind = "sgd"
learning_rate = 0.1
"""


class Mlp(nn.Module):
    """As `kind = "mlp"`, `hidden = [24, 16]`."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(64, 24), nn.Linear(24, 16)])
        self.output = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.output(x)  # type: ignore[no-any-return]


class Block(nn.Module):
    """A basic block of a residual network."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv = nn.ModuleList(
            [
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            ]
        )
        self.norm = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.shortcut = nn.ModuleDict()
        if stride == 2:
            self.shortcut["conv"] = nn.Conv2d(inputs, outputs, 1, 2, bias=False)
            self.shortcut["norm"] = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm[0](self.conv[0](x)))
        y = self.norm[1](self.conv[1](y))
        if self.shortcut:
            x = self.shortcut["norm"](self.shortcut["conv"](x))
        return F.relu(x + y)


class Resnet(nn.Module):
    """As `kind = "resnet"`, `blocks = 1`, `width = 4`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.ModuleDict({"conv": nn.Conv2d(1, 4, 3, 1, 1, bias=False), "norm": nn.BatchNorm2d(4)})
        self.stage = nn.ModuleList([nn.ModuleList([Block(max(4, w // 2), w)]) for w in (4, 8, 16)])
        self.output = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem["norm"](self.stem["conv"](x.reshape(-1, 1, 8, 8))))
        for stage in self.stage:
            x = stage[0](x)  # type: ignore[index]
        return self.output(x.mean((2, 3)))  # type: ignore[no-any-return]


class Applied(Verbs):
    """Each test has a folder with runs of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.state = Path(folder.name), Path(folder.name) / "state"

    def rows(self, times: int) -> None:
        """Writes rows as the script's samples are, so many times."""
        lines = [",".join(map(str, row)) for row in (DIGITS[:, :64] / 16).tolist()]
        (self.folder / "rows.csv").write_text("\n".join(lines * times) + "\n")

    def workers(self) -> list[int]:
        """Processes that apply the model."""
        token = str(self.folder / "three.csv.infer/token")
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            try:
                words = entry.read_bytes().decode(errors="replace")
            except OSError:
                continue
            if token in words and '"infer":true' in words:
                found.append(int(entry.parent.name))
        return found

    @takes_long
    def test_a_script_is_trained_evaluated_and_applied(self) -> None:
        """The same numbers as in the run, and the same bytes for any workers, also when one is killed."""
        self.call("run", "--python", sys.executable, str(SCRIPT), "--workers", "2")
        found = json.loads(self.call("evaluate", "torch_applied", "--workers", "2", "--format", "json"))
        last = self.told("evaluated")[-1]
        self.assertEqual((found["loss"], found["accuracy"]), (last["loss"], last["accuracy"]))
        self.rows(40)
        arguments = ("infer", "torch_applied", "--data", "rows.csv", "--scores")
        self.call(*arguments, "-o", "one.csv")
        words = (*arguments, "-o", "three.csv", "--workers", "3")
        three = self.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 120
        progress = self.folder / "three.csv.infer/progress.jsonl"
        while time.monotonic() < until and three.poll() is None:
            if progress.exists() and len(progress.read_text().splitlines()) > 6 and self.workers():
                os.kill(self.workers()[0], signal.SIGKILL)
                break
            time.sleep(0.005)
        _, err = three.communicate(timeout=300)
        self.assertEqual(three.returncode, 0, err)
        one = (self.folder / "one.csv").read_bytes()
        self.assertTrue((self.folder / "three.csv").read_bytes() == one, err)
        self.assertIn("a worker is gone", err)
        plain = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10)),
        )
        plain.load_state_dict(torch.load(self.folder / "model.pt"))
        plain.eval()
        with torch.no_grad():
            shares = plain(torch.from_numpy(DIGITS[:, :64] / 16).reshape(-1, 1, 8, 8)).softmax(1).numpy()
        table = np.loadtxt(self.folder / "one.csv", delimiter=",", skiprows=1)
        self.assertEqual(len(table), 40 * len(DIGITS))
        np.testing.assert_allclose(table[: len(DIGITS), 2:], shares, atol=1e-5)
        np.testing.assert_array_equal(table[: len(DIGITS), 1], shares.argmax(1))
        (self.folder / "rows.csv").write_text("1,2,3\n")
        self.assertIn("a row has 3 numbers", self.call(*arguments, "-o", "few.csv", code=2))

    def test_built_in_models_are_loaded_strictly(self) -> None:
        """Layouts are PyTorch's, and its scores are those of `infer`."""
        np.savetxt(self.folder / "rows.csv", DIGITS[:300, :64], delimiter=",", fmt="%d")
        inputs = torch.from_numpy(DIGITS[:300, :64] / 16)
        for text, model in (
            ('kind = "mlp"\nhidden = [24, 16]', Mlp()),
            ('kind = "resnet"\nblocks = 1\nwidth = 4', Resnet()),
        ):
            (self.folder / "net.toml").write_text(JOB.format(model=text))
            self.call("run", "net.toml")
            self.call("export", "net", "-o", "net.safetensors")
            model.load_state_dict(load_file(self.folder / "net.safetensors"))
            with safe_open(self.folder / "net.safetensors", "pt") as file:
                kind = json.loads(file.metadata()["model"])["kind"]
            self.assertIn(f'"{kind}"', text)
            model.eval()
            with torch.no_grad():
                shares = model(inputs).softmax(1).numpy()
            self.call("infer", "net", "--data", "rows.csv", "--scores", "-o", "net.csv")
            table = np.loadtxt(self.folder / "net.csv", delimiter=",", skiprows=1)
            np.testing.assert_allclose(table[:, 2:], shares, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
