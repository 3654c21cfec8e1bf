# Environments: jax
"""The JAX example: few lines changed, and the same bits on any workers, through crashes and resizes."""

import os
import subprocess
import sys
import textwrap
import unittest
from typing import ClassVar

import digits
from digits import accuracy
from runs import JAX, ROOT

EXAMPLE = "jax_digits.py"

# What a plain script does with a checkpoint, and what a plain loop goes on with.
RESUME = """
import jax, numpy as np, optax
import bellwether.jax as bw
optimizer = optax.lion(optax.cosine_decay_schedule(1e-3, 10 * 23))
params = {{"w1": np.zeros((64, 64), "f"), "b1": np.zeros(64, "f"), "w2": np.zeros((64, 10), "f"), "b2": np.zeros(10, "f")}}
digits = np.loadtxt({data!r}, delimiter=",", dtype=np.float32)
params = bw.load(params, {checkpoint!r})
state = bw.load_optimizer(optimizer, params, {checkpoint!r})
held_out = digits[1438:, :64] / 16, digits[1438:, 64].astype(np.int32)
scores = jax.nn.relu(held_out[0] @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]
print(f"accuracy {{(scores.argmax(1) == held_out[1]).mean():.4f}}")
like = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), optimizer.init(params))
assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) == like
print("count", int(state[0].count), "momentum", float(abs(state[0].mu["w1"]).max()) > 0)
optimizer.update(params, state, params)
"""


class Lines(digits.Lines):
    """What a user has to write."""

    example, changed_most = EXAMPLE, 3


class Digits(digits.Digits):
    """The example, trained through the command."""

    example, imports = EXAMPLE, JAX
    told, lines, accuracy_least = r"^accuracy \S+$", 1, 0.75
    # It compiles for itself, so that what others have compiled is another program.
    first_with: ClassVar = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    resize, kill_at = "60:1,140:4", 155

    def test_a_plain_script_goes_on_from_the_checkpoint(self) -> None:
        path = max(self.plain.folder.glob("state/*/checkpoints/step-*.safetensors"))
        data = str(ROOT / "data/digits/digits.csv.gz")
        text = textwrap.dedent(RESUME.format(data=data, checkpoint=str(path)))
        # What the script alone sees is one processor, as the command sets it for the lead.
        environment = {**os.environ, "NPROC": "1"}
        said = subprocess.run(
            [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
        )
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(accuracy(said.stdout), accuracy(self.plain.out))
        self.assertIn("count 230 momentum True", said.stdout)

    def test_the_exported_weights_have_the_names_of_the_leaves(self) -> None:
        # What the example trains.
        names = {"w1": (64, 64), "b1": (64,), "w2": (64, 10), "b2": (10,)}
        self.assertEqual({name: tensor.shape for name, tensor in self.exported().items()}, names)


if __name__ == "__main__":
    unittest.main()
