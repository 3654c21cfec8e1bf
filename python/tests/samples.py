"""Samples that every framework's tests share."""

import numpy
from numpy.typing import NDArray

SAMPLES, FEATURES, CLASSES = 64, 16, 4


def table() -> tuple[NDArray[numpy.float32], NDArray[numpy.int64]]:
    """Samples of SAMPLES × FEATURES, each with the class that a fixed linear map gives it."""
    draws = numpy.random.default_rng(7)
    samples = draws.normal(size=(SAMPLES, FEATURES)).astype(numpy.float32)
    return samples, (samples @ draws.normal(size=(FEATURES, CLASSES))).argmax(axis=1)
