# Environments: torch
"""The wheel: what is in it, and what it gives a new environment.

It is made of what cargo has built, or is the one that the variable BELLWETHER_WHEEL names; that one is installed with
everything it requires, the way a user does it.
"""

import base64
import email
import hashlib
import importlib.util
import math
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import unittest
import zipfile
from email.message import Message
from pathlib import Path

PYTHON = Path(__file__).parents[1]
sys.path.insert(0, str(PYTHON))

import wheel_backend

LARGEST_MB = 23
SLOWEST_COMMAND_S = 0.030
SLOWEST_IMPORT_S = 0.010
TRIES = 50
"""Most of them: beside other tests few starts are as quick as they can be."""

# Prints how long the import takes, and which packages of others it brought.
IMPORT = """
import sys, time
start = time.perf_counter()
import bellwether
print(time.perf_counter() - start)
print(*sorted({"numpy", "torch", "jax", "keras", "tensorflow"} & set(sys.modules)))
import bellwether._native
"""

# Trains a linear model on two workers.
SCRIPT = """
import torch
import bellwether.torch as bw
torch.manual_seed(0)
samples = torch.randn(64, 4)
data = torch.utils.data.TensorDataset(samples, samples.sum(1, keepdim=True))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = bw.Run(model, optimizer, data=data, batch_size=16, virtual_nodes=4)
for batches in run.epochs(2):
    for x, y in batches:
        optimizer.zero_grad()
        run.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
print("trained", float(model.weight.detach().sum()))
"""


def output(*command: str | Path, variables: dict[str, str] | None = None) -> str:
    """What a program prints; raises an error with what it said where it fails."""
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
    if ended.returncode:
        raise AssertionError(f"{command[0]} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


class Wheel(unittest.TestCase):
    """The wheel is written and installed once."""

    wheel: Path
    environment: Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.environment = folder / "environment"
        named = os.environ.get("BELLWETHER_WHEEL")
        if named:
            cls.wheel, needed = Path(named), ["--quiet"]
        else:
            built = Path(os.environ["BELLWETHER_COMMAND"]).parent
            cls.wheel, needed = folder / wheel_backend.pack(built, folder), ["--no-deps", "--no-index"]
        output(sys.executable, "-m", "venv", "--without-pip", cls.environment)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
        output(*pip, "--python", str(cls.environment / "bin/python"), "install", *needed, cls.wheel)

    def files(self) -> dict[str, bytes]:
        """Every file of the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    def metadata(self) -> Message:
        """What the wheel says of itself."""
        return email.message_from_bytes(
            next(data for name, data in self.files().items() if name.endswith("METADATA"))
        )

    def test_it_is_small(self) -> None:
        self.assertLess(self.wheel.stat().st_size / 1e6, LARGEST_MB)

    def test_it_holds_the_whole_package(self) -> None:
        files = self.files()
        package = PYTHON / "bellwether"
        for source in package.rglob("*.py*"):
            if source.suffix in {".py", ".pyi"}:
                self.assertEqual(files[f"bellwether/{source.relative_to(package)}"], source.read_bytes())
        self.assertIn("bellwether/py.typed", files)
        self.assertIn("bellwether/_native.abi3.so", files)

    def test_its_record_is_right(self) -> None:
        files = self.files()
        name = next(name for name in files if name.endswith(".dist-info/RECORD"))
        rows = [line.split(",") for line in files[name].decode().splitlines()]
        self.assertEqual([row[0] for row in rows], list(files))
        self.assertEqual(rows.pop(), [name, "", ""])
        for path, digest, size in rows:
            expected = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).decode().rstrip("=")
            self.assertEqual((path, digest, int(size)), (path, f"sha256={expected}", len(files[path])))

    def test_it_says_what_it_requires(self) -> None:
        metadata = self.metadata()
        self.assertEqual(metadata["Requires-Python"], ">=3.11")
        self.assertEqual(metadata.get_all("Provides-Extra"), ["torch", "jax", "keras"])
        required = [line for line in metadata.get_all("Requires-Dist", []) if "extra" not in line]
        self.assertEqual(required, ["cloudpickle", "numpy>=1.26", "safetensors"])

    def test_the_command_starts_at_once(self) -> None:
        command = self.environment / "bin/bellwether"
        took = math.inf
        for _ in range(TRIES):
            start = time.perf_counter()
            version = output(command, "--version")
            took = min(took, time.perf_counter() - start)
            if took < SLOWEST_COMMAND_S:
                break
        self.assertEqual(version.split()[:2], ["bellwether", self.metadata()["Version"]])
        self.assertLess(took, SLOWEST_COMMAND_S)

    def test_the_import_takes_no_time_and_brings_no_framework(self) -> None:
        took = math.inf
        for _ in range(TRIES):
            # Outside this environment's variables, and the first one compiles.
            time_s, brought, _ = output(self.environment / "bin/python", "-I", "-c", IMPORT).split("\n")
            self.assertEqual(brought, "")
            took = min(took, float(time_s))
            if took < SLOWEST_IMPORT_S:
                break
        self.assertLess(took, SLOWEST_IMPORT_S)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "trains with PyTorch")
    def test_a_script_trains_without_anything_else(self) -> None:
        # What this environment has, the new one has too: PyTorch need not be installed a second time.
        packages = sysconfig.get_path("purelib", vars={"base": str(self.environment)})
        Path(packages, "more.pth").write_text(sysconfig.get_path("purelib"))
        script = self.environment / "train.py"
        script.write_text(SCRIPT)
        variables = {"PATH": os.defpath, "HOME": str(self.environment)}
        said = output(self.environment / "bin/python", script, variables=variables)
        self.assertRegex(said, r"(?m)^trained [123]\.")


if __name__ == "__main__":
    unittest.main()
