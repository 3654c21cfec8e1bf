# Environments: jax, tensorflow
"""Keras learns on this machine's processor, by the back end of its environment."""

import os
import unittest

import keras
from samples import CLASSES, table


class Environment(unittest.TestCase):
    """What the other tests with Keras build on."""

    def test_a_model_learns(self) -> None:
        samples, labels = table()
        model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(CLASSES)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01), loss)
        history = model.fit(samples, labels, epochs=20, batch_size=16, verbose=0).history["loss"]
        self.assertLess(history[-1], 0.7 * history[0])

    def test_the_back_end_is_that_of_the_environment(self) -> None:
        self.assertEqual(keras.backend.backend(), os.environ["KERAS_BACKEND"])


if __name__ == "__main__":
    unittest.main()
