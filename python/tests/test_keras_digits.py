# Environments: jax, tensorflow
# Long
"""The Keras example: few lines changed, and the same bits on any workers, through crashes and resizes."""

import os
import unittest

import digits
import keras
import numpy as np
from digits import accuracy
from runs import KERAS, ROOT

import bellwether.keras as bw

EXAMPLE = "keras_digits.py"


class Lines(digits.Lines):
    """What a user has to write."""

    example, changed_most = EXAMPLE, 3


class Digits(digits.Digits):
    """The example, trained through the command."""

    example, imports, alone = EXAMPLE, KERAS, False
    told, lines, accuracy_least = r"loss: .*$|^accuracy \S+$", 6, 0.8
    resize, kill_at = "30:1,70:4", 85

    @unittest.skipIf(
        os.environ.get("KERAS_BACKEND") == "tensorflow" and "BELLWETHER_TEST_ALL" not in os.environ,
        "by TensorFlow only by `cargo xtask python --all`: test_keras_road resizes and strikes the same model",
    )
    def test_three_then_one_then_four(self) -> None:
        super().test_three_then_one_then_four()

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

    def test_the_exported_weights_have_the_paths_of_the_variables(self) -> None:
        model = keras.saving.load_model(self.plain.folder / "model.keras")
        left = {v.path.removeprefix(f"{model.name}/").replace("/", "."): v for v in model.weights}
        for name, tensor in self.exported().items():
            np.testing.assert_array_equal(tensor, keras.ops.convert_to_numpy(left.pop(name)), name)
        self.assertEqual([name for name in left if "seed_generator" not in name], [])

    def assert_measures(self, model: keras.Model) -> None:
        """The model has the accuracy that the script printed, to all its digits."""
        _, measured = model.evaluate(*self.samples(slice(1438, None)), verbose=0)
        self.assertEqual(f"{measured:.4f}", f"{accuracy(self.plain.out):.4f}")

    def samples(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels."""
        table = np.loadtxt(ROOT / "data/digits/digits.csv.gz", delimiter=",", dtype=np.float32)[part]
        return (table[:, :64] / 16).reshape(-1, 8, 8, 1), table[:, 64].astype(np.int32)


def flat(arrays: list[np.ndarray]) -> np.ndarray:
    """Arrays as one vector."""
    return np.concatenate([array.reshape(-1).astype(np.float64) for array in arrays])


if __name__ == "__main__":
    unittest.main()
