"""Update rules of the user's own: pieces of a vector are updated to the same bits as the whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bellwether._errors import BellwetherError
from bellwether._loop import PIECE

Vector = NDArray[np.float32]

Apply = Callable[[int, int, Vector, list[Vector], Vector], None]
"""``(step, start, parameters, slots, gradient)``: updates the piece that begins at `start`, in place."""

TESTED = 4_099
"""Elements of the vectors that a rule is tested on."""

_LINE_BYTES = 64

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


class CompiledRule(ABC):
    """A rule that is compiled once, for vectors of one length; its state is vectors, the slots, and numbers.

    The numbers are those of any vector after as many steps: nothing of them is kept between two pieces. A framework's
    module says how the rule begins and what one step does.
    """

    slots: list[str]
    """The names of the vectors of the state."""
    _is_vector: list[bool]
    """Which parts of the state are vectors, in the framework's order."""

    def __init__(self, parameters: int) -> None:
        """`parameters`: the number of values of the model. What is abstract below is known after `_prepared`."""
        # One length, of the test's vectors too, is one program to compile.
        self._size = min(PIECE, max(parameters, TESTED))

    def _prepared(self, numbers: list[Any]) -> None:
        """Notes that slots are known, and the numbers before the first step."""
        self._history = {0: numbers}
        vectors = [_aligned(PIECE) for _ in range(2 + len(self.slots))]
        self.piece = (vectors[0], vectors[1], vectors[2:])
        # A program reads them where they lie. What follows the last values of a run, whatever it is, changes none.
        self._parameters, self._gradient, *self._kept = [vector[: self._size] for vector in vectors]
        self._places = {_place(vector) for vector in vectors}

    @abstractmethod
    def _begin(self, parameters: Vector) -> list[Any]:
        """The whole state before the first step."""

    @abstractmethod
    def _stepped(self, parameters: Vector, state: list[Any], gradient: Vector) -> tuple[Any, list[Any]]:
        """One step of vectors of the one length: the parameters and the state after it."""

    @abstractmethod
    def _refuse(self, what: str) -> BellwetherError:
        """An error that names the optimizer and what works."""

    def warm(self) -> None:
        """Compiles what updates, before a run waits for this worker; the piece holds nothing yet."""
        self.updated(1)

    def update(self, step: int, _start: int, _length: int) -> None:
        """Updates the piece that stands in `piece`."""
        self.updated(step)

    def updated(self, step: int) -> list[Any]:
        """Updates the piece that stands in `piece`; returns the numbers of the rule's state after it."""
        if step == 0:
            state = self._begin(self._parameters)
        else:
            state = self._merged(list(self._kept), self.numbers_after(step))
        after, left = self._stepped(self._parameters, state, self._gradient)
        vectors, numbers = self._split(left)
        found = [self._apart(values) for values in (after, *vectors)]
        for vector, values in zip((self._parameters, *self._kept), found, strict=True):
            vector[:] = values
        return numbers

    def apply(
        self, step: int, _start: int, parameters: Vector, slots: list[Vector], gradient: Vector
    ) -> list[Any]:
        """Updates a piece of the flat vectors in place, as a run does; returns the numbers after it."""
        length = len(parameters)
        kept = list(zip((self._parameters, *self._kept), (parameters, *slots), strict=True))
        for vector, values in (*kept, (self._gradient, gradient)):
            vector[:length], vector[length:] = values, 0.0
        numbers = self.updated(step)
        for vector, values in kept:
            values[:] = vector[:length]
        return numbers

    def _apart(self, values: Any) -> Vector:
        """What a program gave, as a vector that does not lie in the piece, which is about to be written."""
        vector: Vector = np.asarray(values)
        return vector.copy() if _place(vector) in self._places else vector

    def _merged(self, vectors: list[Any], numbers: list[Any]) -> list[Any]:
        """The state from its parts, in its order."""
        these, those = iter(vectors), iter(numbers)
        return [next(these) if is_vector else next(those) for is_vector in self._is_vector]

    def _split(self, state: list[Any]) -> tuple[list[Any], list[Any]]:
        """The vectors and the numbers of the state."""
        pairs = list(zip(state, self._is_vector, strict=True))
        return [v for v, is_vector in pairs if is_vector], [v for v, is_vector in pairs if not is_vector]

    def numbers_after(self, step: int) -> list[Any]:
        """The numbers of the rule's state after `step` steps: those of any vector."""
        if step not in self._history:
            known = max(past for past in self._history if past < step)
            numbers = self._history[known]
            for _ in range(known, step):
                numbers = self._advanced(numbers)
            self._history[step] = numbers
            # Steps are done again, but not many: the beginning and the last few are enough.
            for past in sorted(self._history)[1:-4]:
                del self._history[past]
        return self._history[step]

    def _advanced(self, numbers: list[Any]) -> list[Any]:
        """The numbers after one step more, by the program that updates."""
        ones = np.ones(self._size, np.float32)
        _, left = self._stepped(ones, self._merged([ones] * len(self.slots), numbers), ones)
        return self._split(left)[1]

    def _test(self, agrees_with_tensors: Callable[[], bool]) -> None:
        """Refuses a rule whose pieces are other bits than the whole, or whose numbers depend on gradients.

        `agrees_with_tensors`: whether it does to the model's tensors what it does to their flat vector.
        """

        def apply(step: int, start: int, p: Vector, slots: list[Vector], gradient: Vector) -> None:
            left = self.apply(step, start, p, slots, gradient)
            expected = self.numbers_after(step + 1)
            if any(self._bytes(a) != self._bytes(b) for a, b in zip(left, expected, strict=True)):
                raise RuntimeError("it keeps a number that depends on the gradients")

        try:
            elementwise = is_elementwise(apply, len(self.slots))
            agrees = elementwise and agrees_with_tensors()
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot be applied in pieces ({short(error)})") from None
        if not elementwise:
            raise self._refuse("looks at whole tensors: its update differs in pieces")
        if not agrees:
            raise self._refuse(
                "treats some tensors in another way than others (a mask, or a rule by name or shape), and pieces have "
                "no tensors"
            )

    @staticmethod
    def _bytes(number: Any) -> bytes:
        """The bytes of a number of the state."""
        return np.asarray(number).tobytes()


def _aligned(length: int) -> Vector:
    """Zeros in memory that begins at a cache line: frameworks copy what does not."""
    room = np.zeros(length * 4 + _LINE_BYTES, np.uint8)
    start = -_place(room) % _LINE_BYTES
    return room[start : start + length * 4].view(np.float32)


def _place(vector: NDArray[Any]) -> int:
    """The address of a vector's first value."""
    place: int = vector.__array_interface__["data"][0]
    return place


def short(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
