# Environments: jax
# Long
"""A JAX script on the whole road: profile, predict, plan, submit, crash, resize."""

import unittest
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import road
from runs import JAX

import bellwether.jax as bw


class Road(road.Road):
    """The example."""

    example, imports, framework = "jax_digits.py", JAX, "jax"
    changes: ClassVar = {"epochs=10": "epochs=20"}

    def accuracy_of(self, checkpoint: Path) -> float:
        shapes = {"w1": (64, 64), "b1": (64,), "w2": (64, 10), "b2": (10,)}
        params = bw.load({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, checkpoint)
        images, labels = road.held_out()
        scores = jax.nn.relu(images @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]
        return float((scores.argmax(1) == labels).mean())


if __name__ == "__main__":
    unittest.main()
