# Environments: jax
"""The JAX example: few lines changed, and the same bits on any workers, through crashes and resizes."""

import os
import re
import subprocess
import sys
import textwrap
import unittest
from pathlib import Path

from lines import code, written
from runs import EXAMPLES, ROOT, Place, Trained

HERE = Path(__file__).parent
SCRIPT = EXAMPLES / "jax_digits.py"
CHANGED_MOST = 3

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


class Lines(unittest.TestCase):
    """What a user has to write."""

    def test_few_lines_change(self) -> None:
        lines = written(code(HERE / "before/jax_digits.py"), code(SCRIPT))
        self.assertLessEqual(len(lines), CHANGED_MOST, lines)


@unittest.skipUnless("BELLWETHER_COMMAND" in os.environ, "BELLWETHER_COMMAND does not name the command")
class Digits(unittest.TestCase):
    """The example, trained through the command."""

    place: Place
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place()
        cls.plain = cls.place.train(SCRIPT, "--workers", "1")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def assert_same(self, trained: Trained) -> None:
        """The run ended with the digest and the output of the one with one worker."""
        self.assertEqual(trained.code, 0, trained.log)
        self.assertEqual(trained.digest, self.plain.digest, trained.log)
        self.assertEqual(accuracy(trained.out), accuracy(self.plain.out))

    def test_one_worker_learns(self) -> None:
        self.assertEqual(self.plain.code, 0, self.plain.log)
        self.assertGreater(accuracy(self.plain.out), 0.75)

    def test_two_workers(self) -> None:
        self.assert_same(self.place.train(SCRIPT, "--workers", "2"))

    def test_three_then_one_then_four(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "3", "--resize", "60:1,140:4")
        self.assert_same(trained)
        self.assertEqual([(event["from"], event["to"]) for event in trained.of("resized")], [(3, 1), (1, 4)])

    def test_a_killed_worker(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "2", kill_at=40)
        self.assert_same(trained)
        self.assertEqual(len(trained.of("crashed")), 1)

    def test_by_itself(self) -> None:
        self.assert_same(self.place.train(SCRIPT, alone=True))

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


def accuracy(out: str) -> float:
    """What a script printed."""
    found = re.findall(r"^accuracy (\S+)$", out, re.MULTILINE)
    return float(found[0]) if found else -1.0


if __name__ == "__main__":
    unittest.main()
