"""Optax's optimizers as update rules of a run: applied in pieces, if their update is element by element.

What an optimizer does is hidden in closures, so it is looked at from outside: its updates are tried on pieces of
vectors, and the text of the program that JAX traces from it stands for its settings.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bellwether import _errors
from bellwether._checkpoint import Vector
from bellwether._declare import elements
from bellwether._jax_model import Tree, joined
from bellwether._loop import PIECE
from bellwether._rules import TESTED, is_elementwise

_DUMMY = 8
"""Elements of the vector on which a rule is looked at."""

_NEAR = 1e-3
"""How far, relative to the largest update, a rule on tensors may be from the same on flat pieces: rounding is less."""


class OwnRule:
    """An optimizer of Optax, applied to pieces of the flat vectors."""

    def __init__(self, optimizer: Any, parameters: Tree, is_tested: bool) -> None:
        """`is_tested`: whether another process, the lead, has tested the rule.

        Raises BellwetherError if the optimizer cannot be applied in pieces.
        """
        if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
            raise _errors.refuse(
                f"the optimizer is {type(optimizer).__name__}", "give one of Optax, such as optax.adamw(1e-3)"
            )
        self._optimizer = optimizer
        self.parts = _parts(optimizer.update)
        self.name = re.sub(r"[^A-Za-z0-9_-]", "-", "-".join(self.parts))[:100]
        # One length, of the test's vectors too, is one program to compile.
        count = sum(elements(shape) for _, shape in parameters.tensors)
        self._size = min(PIECE, max(count, TESTED))
        self._prepare()
        slots = [np.zeros(PIECE, np.float32) for _ in self.slots]
        self.piece = (np.zeros(PIECE, np.float32), np.zeros(PIECE, np.float32), slots)
        self._history: dict[int, list[Any]] = {0: self._first_scalars}
        if not is_tested:
            self._test(parameters)

    def _prepare(self) -> None:
        """Finds what the rule keeps, and compiles it."""
        dummy = np.linspace(-1, 1, _DUMMY, dtype=np.float32)
        try:
            state = self._optimizer.init(dummy)
            leaves, self._structure = jax.tree_util.tree_flatten_with_path(state)
            traced = jax.make_jaxpr(self._step)(dummy, [leaf for _, leaf in leaves], dummy)
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(
                f"cannot update a part of the parameters by itself ({_short(error)})"
            ) from None
        self._text = _text_of(traced)
        self._is_vector = [np.ndim(leaf) > 0 for _, leaf in leaves]
        names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
        vectors = [(name, leaf) for (name, (_, leaf)) in zip(names, leaves, strict=True) if np.ndim(leaf) > 0]
        for name, leaf in vectors:
            if leaf.shape != (_DUMMY,) or leaf.dtype != np.float32:
                kind = f"{leaf.dtype} of the shape {tuple(leaf.shape)}"
                raise self._refuse(
                    f"keeps `{name}` as {kind}, and slots are float32 and shaped as the parameters"
                )
        self.slots = _slot_names([name for name, _ in vectors])
        self._first_scalars = [leaf for _, leaf in leaves if np.ndim(leaf) == 0]
        self._compiled = jax.jit(self._step)

    def _step(self, parameters: Any, leaves: list[Any], gradient: Any) -> tuple[Any, list[Any]]:
        """One update of a flat vector: the parameters and the leaves of the state after it."""
        state = jax.tree_util.tree_unflatten(self._structure, leaves)
        updates, state = self._optimizer.update(gradient, state, parameters)
        return parameters + updates, jax.tree_util.tree_leaves(state)

    def declaration(self, clip_norm: float | None) -> dict[str, Any]:
        """The table ``[optimizer]`` of the job."""
        digest = hashlib.blake2b(self._text.encode(), digest_size=16).hexdigest()
        settings = f"{' '.join(self.parts)}; program {digest}"
        rule: dict[str, Any] = {"kind": "own", "name": self.name, "settings": settings, "slots": self.slots}
        return rule if clip_norm is None else rule | {"clip_norm": clip_norm}

    def update(self, step: int, start: int, length: int) -> None:
        """Updates the piece that stands in `piece`."""
        parameters, gradient, slots = self.piece
        self.apply(step, start, parameters[:length], [slot[:length] for slot in slots], gradient[:length])

    def apply(
        self, step: int, _start: int, parameters: Vector, slots: list[Vector], gradient: Vector
    ) -> list[Any]:
        """Updates a piece of the flat vectors in place; returns the numbers of the rule's state after it."""
        length = len(parameters)
        padded = [self._padded(vector) for vector in (parameters, gradient, *slots)]
        if step == 0:
            leaves = jax.tree_util.tree_leaves(self._optimizer.init(jnp.asarray(padded[0])))
        else:
            leaves = self._merged(padded[2:], self.scalars_after(step))
        after, left = self._compiled(padded[0], leaves, padded[1])
        parameters[:] = np.asarray(after)[:length]
        vectors = [leaf for leaf, is_vector in zip(left, self._is_vector, strict=True) if is_vector]
        for slot, values in zip(slots, vectors, strict=True):
            slot[:] = np.asarray(values)[:length]
        return [leaf for leaf, is_vector in zip(left, self._is_vector, strict=True) if not is_vector]

    def _padded(self, vector: Vector) -> Vector:
        """A copy of a piece in a vector of one length, so that one program serves all pieces."""
        whole = np.zeros(max(self._size, len(vector)), np.float32)
        whole[: len(vector)] = vector
        return whole

    def _merged(self, vectors: list[Any], scalars: list[Any]) -> list[Any]:
        """The leaves of the state, in their order."""
        taken, numbers = iter(vectors), iter(scalars)
        return [next(taken) if is_vector else next(numbers) for is_vector in self._is_vector]

    def scalars_after(self, step: int) -> list[Any]:
        """The numbers of the rule's state after `step` steps: those of a short vector's."""
        if step not in self._history:
            known = max(past for past in self._history if past < step)
            scalars = self._history[known]
            ones = [np.ones(self._size, np.float32)] * (len(self.slots) + 2)
            for _ in range(known, step):
                _, left = self._compiled(ones[0], self._merged(ones[2:], scalars), ones[1])
                scalars = [
                    leaf for leaf, is_vector in zip(left, self._is_vector, strict=True) if not is_vector
                ]
            self._history[step] = scalars
            # Steps are done again, but not many: the beginning and the last few are enough.
            for past in sorted(self._history)[1:-4]:
                del self._history[past]
        return self._history[step]

    def state(self, parameters: Tree, tensors: dict[str, Vector], step: int) -> Any:
        """Optax's state on the user's pytree from a checkpoint's tensors ``optimizer/SLOT/NAME``."""
        trees = [
            parameters.build(
                [jnp.asarray(tensors[f"optimizer/{slot}/{name}"]) for name, _ in parameters.tensors]
            )
            for slot in self.slots
        ]
        return jax.tree_util.tree_unflatten(self._structure, self._merged(trees, self.scalars_after(step)))

    def _test(self, parameters: Tree) -> None:
        """Refuses a rule whose pieces are other bits than the whole, or whose numbers depend on gradients."""

        def apply(step: int, start: int, p: Vector, slots: list[Vector], gradient: Vector) -> None:
            left = self.apply(step, start, p, slots, gradient)
            if any(_bytes(a) != _bytes(b) for a, b in zip(left, self.scalars_after(step + 1), strict=True)):
                raise RuntimeError("it keeps a number that depends on the gradients")

        try:
            elementwise = is_elementwise(apply, len(self.slots))
            agrees = elementwise and self._agrees_with_tensors(parameters)
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot be applied in pieces ({_short(error)})") from None
        if not elementwise:
            raise self._refuse("looks at whole tensors: its update differs in pieces")
        if not agrees:
            raise self._refuse(
                "treats some tensors in another way than others (a mask, or a rule by name or shape), and pieces have "
                "no tensors"
            )

    def _agrees_with_tensors(self, tree: Tree) -> bool:
        """Whether the rule does to the user's tensors what it does to their flat vector."""
        random = np.random.Generator(np.random.Philox(23))
        count = sum(elements(shape) for _, shape in tree.tensors)
        flat, gradient = (random.standard_normal(count, dtype=np.float32) for _ in range(2))

        def two_steps(parameters: Any, gradient: Any) -> Any:
            state, before = self._optimizer.init(parameters), parameters
            for _ in range(2):
                updates, state = self._optimizer.update(gradient, state, parameters)
                parameters = jax.tree.map(jnp.add, parameters, updates)
            return joined(jax.tree.map(jnp.subtract, parameters, before))

        compiled = jax.jit(two_steps)
        theirs = np.asarray(compiled(tree.place(flat), tree.place(gradient)))
        ours = np.asarray(compiled(flat, gradient))
        return bool(np.max(np.abs(theirs - ours)) <= _NEAR * np.max(np.abs(ours)))

    def _refuse(self, what: str) -> _errors.BellwetherError:
        parts = ", ".join(self.parts)
        name = f"optax.{parts}" if len(self.parts) == 1 else f"optax.chain({parts})"
        return _errors.refuse(
            f"{name} {what}",
            "element-wise ones work (optax.adamw, lion, radam, adabelief …), and clip_norm=… clips the whole gradient",
        )


def _parts(update: Callable[..., Any]) -> list[str]:
    """The names of the transformations that a function of updates is made of, such as ``scale_by_adam``."""
    kind = getattr(update, "__qualname__", type(update).__name__).split(".<locals>")[0]
    if kind not in ("chain", "with_extra_args_support"):
        return [kind]
    held = [cell.cell_contents for cell in update.__closure__ or ()]
    # A transformation is a named tuple, and a chain holds a plain one of functions.
    functions = [f for value in held for f in ([value.update] if hasattr(value, "update") else value)]
    return [name for function in functions for name in _parts(function)]


def _slot_names(names: list[str]) -> list[str]:
    """The last part of each name where that tells them apart, such as ``mu``; the whole of it elsewhere."""
    short = [name.rsplit(".", 1)[-1] for name in names]
    chosen = [
        last if short.count(last) == 1 and not last.isdigit() else name
        for last, name in zip(short, names, strict=True)
    ]
    return [re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip(".") or "slot" for name in chosen]


def _text_of(traced: Any) -> str:
    """A traced program with all its numbers, without addresses of this process."""
    text = re.sub(r" at 0x[0-9a-f]+", "", str(traced))
    constants = [f"{np.asarray(value).dtype} {np.asarray(value).tolist()}" for value in traced.consts]
    return "\n".join([text, *constants])


def _bytes(leaf: Any) -> bytes:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()


def _short(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
