# Environments: jax, tensorflow
# Long
"""A Keras script on the whole road: profile, predict, plan, submit, crash, resize."""

import os
import unittest
from pathlib import Path

import keras
import numpy as np
import road
from runs import KERAS

import bellwether.keras as bw


@unittest.skipIf(
    os.environ.get("KERAS_BACKEND") == "jax" and "BELLWETHER_TEST_ALL" not in os.environ,
    "by JAX only by `cargo xtask python --all`: its own road is tested, and this model's in test_keras_digits",
)
class Road(road.Road):
    """The example, by the back-end of the environment."""

    example, imports, framework = "keras_digits.py", KERAS, os.environ.get("KERAS_BACKEND", "tensorflow")

    def accuracy_of(self, checkpoint: Path) -> float:
        model = keras.saving.load_model(self.plain.folder / "model.keras")
        for variable in model.weights:
            variable.assign(np.zeros(variable.shape, variable.dtype))
        bw.load(model, checkpoint)
        images, labels = road.held_out()
        return float(model.evaluate(images.reshape(-1, 8, 8, 1), labels, verbose=0)[1])


if __name__ == "__main__":
    unittest.main()
