"""Update rules of the user's own: whether pieces of a vector are updated to the same bits as the whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

Apply = Callable[[int, int, Vector, list[Vector], Vector], None]
"""``(step, start, parameters, slots, gradient)``: updates the piece that begins at `start`, in place."""

TESTED = 4_099
"""Elements of the vectors that a rule is tested on."""

_CUTS = (0, 1, 700, 2_048, TESTED)
_SCALES = (0.1, 100.0, 1e6)
"""Of the gradients of each step: also a rule that looks only at long gradients is found."""


def is_elementwise(apply: Apply, slots: int) -> bool:
    """Whether three updates of a vector give the same bits in pieces as in one.

    A rule that looks at the whole vector (a norm, a mean) does not: its pieces are other bits.
    """
    whole = _run(apply, slots, (0, TESTED))
    pieces = _run(apply, slots, _CUTS)
    return all(a.tobytes() == b.tobytes() for a, b in zip(whole, pieces, strict=True))


def _run(apply: Apply, slots: int, cuts: tuple[int, ...]) -> list[Vector]:
    """Parameters and slots after the updates, cut so."""
    random = np.random.Generator(np.random.Philox(19))
    parameters = random.standard_normal(TESTED, dtype=np.float32)
    kept = [np.zeros(TESTED, np.float32) for _ in range(slots)]
    for step, scale in enumerate(_SCALES):
        gradient = random.standard_normal(TESTED, dtype=np.float32) * np.float32(scale)
        for start, end in pairwise(cuts):
            # Copies, so that a piece lies in memory as a worker's does.
            piece = [vector[start:end].copy() for vector in (parameters, *kept)]
            apply(step, start, piece[0], piece[1:], gradient[start:end].copy())
            for vector, values in zip((parameters, *kept), piece, strict=True):
                vector[start:end] = values
    return [parameters, *kept]
