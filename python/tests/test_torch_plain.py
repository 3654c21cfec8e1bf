# Environments: torch
"""`bellwether export -o model.safetensors` writes what plain PyTorch loads strictly."""

import subprocess
import unittest
from pathlib import Path

import torch
from runs import COMMAND, TORCH, Place
from safetensors import safe_open
from safetensors.torch import load_file

SCRIPT = Path(__file__).parent / "scripts/torch_plain.py"


class Plain(unittest.TestCase):
    """One run, and its file."""

    def test_a_strict_load_gives_what_the_lead_saved(self) -> None:
        place = Place(TORCH)
        self.addCleanup(place.end)
        trained = place.train(SCRIPT, "--workers", "2")
        self.assertEqual(trained.code, 0, trained.log)
        path = trained.folder / "model.safetensors"
        command = [COMMAND, "export", "torch_plain", "-o", str(path)]
        ended = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            env=place.environment(trained.folder / "state"),
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("after 6 steps", ended.stderr)
        plain, saved = load_file(path), torch.load(trained.folder / "model.pt")
        self.assertEqual(plain.keys(), saved.keys())
        for name, tensor in saved.items():
            self.assertEqual(plain[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(plain[name], tensor), name)
        strict = subprocess.run([place.python, str(SCRIPT), str(path)], check=False, capture_output=True)
        self.assertEqual((strict.returncode, strict.stdout), (0, b"loaded\n"), strict.stderr)
        with safe_open(path, framework="pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})


if __name__ == "__main__":
    unittest.main()
