# Environments: tensorflow
"""A Keras model is applied to rows, whose softmax is taken for what it is."""

import unittest

import applied
from runs import KERAS


class Applied(applied.Applied):
    """By the model itself."""

    script, imports = "keras_applied", KERAS


if __name__ == "__main__":
    unittest.main()
