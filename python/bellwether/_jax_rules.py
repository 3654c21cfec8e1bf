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
from bellwether._rules import CompiledRule, short

_DUMMY = 8
"""Elements of the vector on which a rule is looked at."""

_NEAR = 1e-3
"""How far, relative to the largest update, a rule on tensors may be from the same on flat pieces: rounding is less."""


class OwnRule(CompiledRule):
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
        super().__init__(sum(elements(shape) for _, shape in parameters.tensors))
        self._prepare()
        if not is_tested:
            self._test(lambda: self._agrees_with_tensors(parameters))

    def _prepare(self) -> None:
        """Finds what the rule keeps, and compiles it."""
        dummy = np.linspace(-1, 1, _DUMMY, dtype=np.float32)
        try:
            state = self._optimizer.init(dummy)
            leaves, self._structure = jax.tree_util.tree_flatten_with_path(state)
            traced = jax.make_jaxpr(self._update)(dummy, [leaf for _, leaf in leaves], dummy)
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot update a part of the parameters by itself ({short(error)})") from None
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
        self._compiled = jax.jit(self._update)
        numbers = [leaf for _, leaf in leaves if np.ndim(leaf) == 0]
        self._is_counted = all(jnp.issubdtype(number.dtype, jnp.integer) for number in numbers)
        self._count = jax.jit(self._counted)
        self._prepared(numbers)

    def _update(self, parameters: Any, leaves: list[Any], gradient: Any) -> tuple[Any, list[Any]]:
        """One update of a flat vector: the parameters and the leaves of the state after it."""
        state = jax.tree_util.tree_unflatten(self._structure, leaves)
        updates, state = self._optimizer.update(gradient, state, parameters)
        return parameters + updates, jax.tree_util.tree_leaves(state)

    def _counted(self, numbers: list[Any]) -> list[Any]:
        """The numbers after one step more, of a short vector."""
        ones = jnp.ones(_DUMMY, jnp.float32)
        _, left = self._update(ones, self._merged([ones] * len(self.slots), numbers), ones)
        return self._split(left)[1]

    def _advanced(self, numbers: list[Any]) -> list[Any]:
        # Whole numbers are the same by any program; fractions might be rounded in another way.
        counted: list[Any] = self._count(numbers) if self._is_counted else super()._advanced(numbers)
        return counted

    def declaration(self, clip_norm: float | None) -> dict[str, Any]:
        """The table ``[optimizer]`` of the job."""
        digest = hashlib.blake2b(self._text.encode(), digest_size=16).hexdigest()
        settings = f"{' '.join(self.parts)}; program {digest}"
        rule: dict[str, Any] = {"kind": "own", "name": self.name, "settings": settings, "slots": self.slots}
        return rule if clip_norm is None else rule | {"clip_norm": clip_norm}

    def _begin(self, parameters: Vector) -> list[Any]:
        leaves: list[Any] = jax.tree_util.tree_leaves(self._optimizer.init(jnp.asarray(parameters)))
        return leaves

    def _stepped(self, parameters: Vector, state: list[Any], gradient: Vector) -> tuple[Any, list[Any]]:
        after, left = self._compiled(parameters, state, gradient)
        return after, left

    def state(self, parameters: Tree, tensors: dict[str, Vector], step: int) -> Any:
        """Optax's state on the user's pytree from a checkpoint's tensors ``optimizer/SLOT/NAME``."""
        trees = [
            parameters.build(
                [jnp.asarray(tensors[f"optimizer/{slot}/{name}"]) for name, _ in parameters.tensors]
            )
            for slot in self.slots
        ]
        return jax.tree_util.tree_unflatten(self._structure, self._merged(trees, self.numbers_after(step)))

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

    @staticmethod
    def _bytes(number: Any) -> bytes:
        is_key = jnp.issubdtype(number.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(number) if is_key else number).tobytes()

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
