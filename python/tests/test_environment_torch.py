# Environments: torch
"""PyTorch learns on this machine's processor, beside the empty libraries that stand in for CUDA."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from samples import CLASSES, FEATURES, table


class Environment(unittest.TestCase):
    """What the other tests with PyTorch build on."""

    def test_a_model_learns(self) -> None:
        samples, labels = map(torch.from_numpy, table())
        model = torch.nn.Linear(FEATURES, CLASSES)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(samples), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], 0.7 * losses[0])

    def test_a_framework_that_is_missing_is_named_with_what_to_install(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "train.py"
            script.write_text("import os\nimport bellwether.jax as bw\n")
            ended = subprocess.run([sys.executable, str(script)], check=False, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 2)
        self.assertRegex(
            ended.stderr, r"^error: train.py:2: jax is not installed beside .*'bellwether\[jax\]'\n$"
        )

    def test_there_is_no_gpu(self) -> None:
        self.assertFalse(torch.cuda.is_available())


if __name__ == "__main__":
    unittest.main()
