# Environments: jax, tensorflow
"""The Keras example: few lines changed, and the same bits on any workers, through crashes and resizes."""

import os
import re
import unittest
from pathlib import Path

import keras
import numpy as np
from lines import code, written
from runs import EXAMPLES, ROOT, Place, Trained

import bellwether.keras as bw

HERE = Path(__file__).parent
SCRIPT = EXAMPLES / "keras_digits.py"
CHANGED_MOST = 3


class Lines(unittest.TestCase):
    """What a user has to write."""

    def test_few_lines_change(self) -> None:
        lines = written(code(HERE / "before/keras_digits.py"), code(SCRIPT))
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
        self.assertEqual(told(trained), told(self.plain))

    def test_one_worker_learns(self) -> None:
        self.assertEqual(self.plain.code, 0, self.plain.log)
        self.assertEqual(len(told(self.plain)), 6, self.plain.out)
        self.assertGreater(accuracy(self.plain), 0.8)

    def test_two_workers(self) -> None:
        self.assert_same(self.place.train(SCRIPT, "--workers", "2"))

    def test_three_then_one_then_four(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "3", "--resize", "30:1,70:4")
        self.assert_same(trained)
        self.assertEqual([(event["from"], event["to"]) for event in trained.of("resized")], [(3, 1), (1, 4)])

    def test_a_killed_worker(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "2", kill_at=20)
        self.assert_same(trained)
        self.assertEqual(len(trained.of("crashed")), 1)

    def test_by_itself(self) -> None:
        self.assert_same(self.place.train(SCRIPT, alone=True))

    def test_the_saved_model_is_a_plain_one(self) -> None:
        model = keras.saving.load_model(self.plain.folder / "model.keras")
        self.assert_measures(model)
        self.assertEqual(int(keras.ops.convert_to_numpy(model.optimizer.iterations)), 115)
        model.fit(*self.samples(slice(64)), batch_size=64, verbose=0)

    def test_a_checkpoint_is_loaded_into_a_plain_model(self) -> None:
        model = keras.saving.load_model(self.plain.folder / "model.keras")
        trained = [keras.ops.convert_to_numpy(v) for v in [*model.weights, *model.optimizer.variables]]
        slots = [v for v in model.optimizer.variables if v.name != "learning_rate"]
        for variable in [*model.weights, *slots]:
            variable.assign(np.zeros(variable.shape, variable.dtype))
        path = max(self.plain.folder.glob("state/*/checkpoints/step-*.safetensors"))
        self.assertEqual(bw.load(model, path), 115)
        now = [keras.ops.convert_to_numpy(v) for v in [*model.weights, *model.optimizer.variables]]
        self.assertEqual(
            [v.tobytes() for v in now[: len(model.weights)]],
            [v.tobytes() for v in trained[: len(model.weights)]],
        )
        np.testing.assert_array_equal(flat(now), flat(trained))
        self.assert_measures(model)

    def assert_measures(self, model: keras.Model) -> None:
        """The model has the accuracy that the script printed, to all its digits."""
        _, measured = model.evaluate(*self.samples(slice(1438, None)), verbose=0)
        self.assertEqual(f"{measured:.4f}", f"{accuracy(self.plain):.4f}")

    def samples(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels."""
        digits = np.loadtxt(ROOT / "data/digits/digits.csv.gz", delimiter=",", dtype=np.float32)[part]
        return (digits[:, :64] / 16).reshape(-1, 8, 8, 1), digits[:, 64].astype(np.int32)


def flat(arrays: list[np.ndarray]) -> np.ndarray:
    """Arrays as one vector."""
    return np.concatenate([array.reshape(-1).astype(np.float64) for array in arrays])


def told(trained: Trained) -> list[str]:
    """What the script printed, by epoch and at its end, without times."""
    return re.findall(r"loss: .*$|^accuracy \S+$", trained.out, re.MULTILINE)


def accuracy(trained: Trained) -> float:
    """On the held-out samples, at the end."""
    found = re.findall(r"^accuracy (\S+)$", trained.out, re.MULTILINE)
    return float(found[0]) if found else -1.0


if __name__ == "__main__":
    unittest.main()
