# Environments: jax, tensorflow
"""`bellwether export -o model.safetensors` writes the names of a pytree, and of a Keras model."""

import os
import subprocess
import unittest
from pathlib import Path
from typing import Any

import numpy as np
from runs import COMMAND, EXAMPLES, Place, Trained
from safetensors.numpy import load_file

IS_JAX = os.environ["KERAS_BACKEND"] == "jax"


def exported(place: Place, script: Path) -> tuple[Trained, dict[str, Any]]:
    """Trains a script, and exports its weights."""
    trained = place.train(script, "--workers", "1")
    assert trained.code == 0, trained.log
    path = trained.folder / "model.safetensors"
    command = [COMMAND, "export", script.stem, "-o", str(path)]
    subprocess.run(command, check=True, env=place.environment(trained.folder / "state"))
    return trained, load_file(path)


class Plain(unittest.TestCase):
    """One run, and its file."""

    def setUp(self) -> None:
        self.place = Place()
        self.addCleanup(self.place.end)

    @unittest.skipUnless(IS_JAX, "this environment has another framework")
    def test_a_pytree_finds_its_leaves_by_their_names(self) -> None:
        import jax

        _, tensors = exported(self.place, EXAMPLES / "jax_digits.py")
        # What the example trains.
        names = {"w1": (64, 64), "b1": (64,), "w2": (64, 10), "b2": (10,)}
        self.assertEqual({name: tensor.shape for name, tensor in tensors.items()}, names)
        self.assertEqual(len(jax.tree.leaves(tensors)), 4)

    @unittest.skipIf(IS_JAX, "this environment has another framework")
    def test_a_keras_model_finds_its_variables_by_their_paths(self) -> None:
        import keras

        trained, tensors = exported(self.place, EXAMPLES / "keras_digits.py")
        model = keras.models.load_model(trained.folder / "model.keras")
        ours = {
            weight.path.removeprefix(f"{model.name}/").replace("/", "."): weight for weight in model.weights
        }
        self.assertEqual({name for name in tensors if name not in ours}, set())
        for name, tensor in tensors.items():
            np.testing.assert_array_equal(tensor, keras.ops.convert_to_numpy(ours[name]), name)
            ours.pop(name)
        left = [name for name in ours if "seed_generator" not in name]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
