"""Keras's optimizers as update rules of a run: applied in pieces, if their update is element by element.

None of them is one of the runtime's own: Keras adds epsilon before the correction of the bias, its decay is apart from
the gradient in every optimizer, and its momentum holds the learning rate.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from bellwether import _errors
from bellwether._checkpoint import Vector, cut
from bellwether._declare import Tensors, canonical, elements
from bellwether._keras_model import Vectors, backend
from bellwether._loop import PIECE
from bellwether._rules import TESTED, is_elementwise

_NEAR = 1e-3
"""How far, relative to the largest update, a rule on tensors may be from the same on flat pieces: rounding is less."""

_INSTEAD = "element-wise ones work (SGD, Adam, AdamW, RMSprop, Nadam, Lion …)"

_OPTIONS = {
    "clipnorm": "write global_clipnorm=…, which clips the gradient of the whole batch",
    "use_ema": "leave it out: averages of weights come later",
    "loss_scale_factor": "leave it out: gradients are float32",
    "gradient_accumulation_steps": "leave it out: virtual_nodes=… cuts a batch into parts that fit",
}


class OwnRule:
    """An optimizer of Keras, applied to pieces of the flat vectors."""

    def __init__(self, optimizer: Any, vectors: Vectors, is_tested: bool) -> None:
        """`is_tested`: whether another process, the lead, has tested the rule, or nothing is trained by it.

        Raises BellwetherError if the optimizer cannot be applied in pieces.
        """
        self.kind = type(optimizer).__name__
        self._optimizer = optimizer
        self._config = self._checked(optimizer, vectors, is_tested)
        self.clip_norm: float | None = self._config.pop("global_clipnorm", None)
        count = sum(elements(shape) for _, shape in vectors.layout.parameters)
        # One length, of the test's vectors too, is one program to compile.
        self._size = min(PIECE, max(count, TESTED))
        try:
            self._prepare()
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot update a part of the parameters by itself ({error})") from None
        self._history = {0: self._first_scalars}
        slots = [np.zeros(PIECE, np.float32) for _ in self.slots]
        self.piece = (np.zeros(PIECE, np.float32), np.zeros(PIECE, np.float32), slots)
        if not is_tested:
            self._test(vectors.layout.parameters)

    def _checked(self, optimizer: Any, vectors: Vectors, is_tested: bool) -> dict[str, Any]:
        """The settings of an optimizer; refuses those that are not for every element alike."""
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            raise _errors.refuse(
                "the loss is scaled for float16", 'use the policy "mixed_bfloat16", which needs no scale'
            )
        for option, instead in _OPTIONS.items():
            if getattr(optimizer, option, None):
                raise _errors.refuse(f"{self.kind} has {option}", instead)
        rate = getattr(optimizer, "_learning_rate", None)
        is_schedule = isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)
        if callable(rate) and not is_schedule and not hasattr(rate, "assign"):
            raise _errors.refuse(
                f"the learning rate of {self.kind} is a function",
                "write a keras.optimizers.schedules.LearningRateSchedule",
            )
        if not is_tested and int(keras.ops.convert_to_numpy(optimizer.iterations)):
            raise _errors.refuse(
                f"{self.kind} has trained before, and its state is not taken over",
                "compile the model with a new one",
            )
        if (
            optimizer.weight_decay
            and len({optimizer._use_weight_decay(v) for _, v in vectors.parameters}) > 1
        ):
            raise self._refuse("decays some variables and not others, and pieces have no variables")
        config: dict[str, Any] = optimizer.get_config()
        return config

    def _clone(self, variables: list[Any]) -> Any:
        """An optimizer with the same settings, for these variables."""
        clone = type(self._optimizer).from_config(dict(self._config))
        clone.build(variables)
        return clone

    def _prepare(self) -> None:
        """Finds what the rule keeps, and compiles it."""
        self._flat = keras.Variable(np.zeros(self._size, np.float32), name="flat")
        self._rule = self._clone([self._flat])
        prefix = f"{self._flat.path.replace('/', '_')}_"
        self._is_vector = [tuple(v.shape) == (self._size,) for v in self._rule.variables]
        vectors = [v for v, is_vector in zip(self._rule.variables, self._is_vector, strict=True) if is_vector]
        others = [
            v for v, is_vector in zip(self._rule.variables, self._is_vector, strict=True) if not is_vector
        ]
        for variable in others:
            if tuple(variable.shape):
                raise RuntimeError(f"it keeps {variable.name} of the shape {tuple(variable.shape)}")
        self.slots = [v.name.removeprefix(prefix) for v in vectors]
        self._first = [_numpy(v) for v in vectors]
        # How many steps there were is known without computing them.
        self._counter = next(i for i, v in enumerate(others) if v is self._rule.iterations)
        self._is_counted = all(v is self._rule.iterations or v.name == "learning_rate" for v in others)
        self._first_scalars = [_numpy(v) for v in others]
        self._step = _by_jax(self._rule) if backend() == "jax" else _by_tensorflow(self._rule, self._flat)

    def declaration(self) -> dict[str, Any]:
        """The table ``[optimizer]`` of the job."""
        config = {key: value for key, value in self._config.items() if key != "name"}
        settings = canonical(_plain(config))
        rule: dict[str, Any] = {"kind": "own", "name": self.kind, "settings": settings, "slots": self.slots}
        return rule if self.clip_norm is None else rule | {"clip_norm": float(self.clip_norm)}

    def update(self, step: int, start: int, length: int) -> None:
        """Updates the piece that stands in `piece`."""
        parameters, gradient, slots = self.piece
        self.apply(step, start, parameters[:length], [slot[:length] for slot in slots], gradient[:length])

    def apply(
        self, step: int, _start: int, parameters: Vector, slots: list[Vector], gradient: Vector
    ) -> list[Any]:
        """Updates a piece of the flat vectors in place; returns the numbers of the rule's state after it."""
        length = len(parameters)
        vectors = self._first if step == 0 else [self._padded(slot) for slot in slots]
        variables = self._merged(vectors, self.scalars_after(step))
        after, left = self._step(self._padded(parameters), variables, self._padded(gradient))
        parameters[:] = after[:length]
        kept, numbers = self._split(left)
        for slot, values in zip(slots, kept, strict=True):
            slot[:] = values[:length]
        return numbers

    def _padded(self, vector: Vector) -> Vector:
        """A copy of a piece in a vector of one length, so that one program serves all pieces."""
        whole = np.zeros(self._size, np.float32)
        whole[: len(vector)] = vector
        return whole

    def _merged(self, vectors: list[Any], scalars: list[Any]) -> list[Any]:
        taken, numbers = iter(vectors), iter(scalars)
        return [next(taken) if is_vector else next(numbers) for is_vector in self._is_vector]

    def _split(self, variables: list[Any]) -> tuple[list[Any], list[Any]]:
        pairs = list(zip(variables, self._is_vector, strict=True))
        return [v for v, is_vector in pairs if is_vector], [v for v, is_vector in pairs if not is_vector]

    def scalars_after(self, step: int) -> list[Any]:
        """The numbers of the rule's state after `step` steps."""
        if self._is_counted:
            scalars = list(self._first_scalars)
            scalars[self._counter] = np.asarray(step, scalars[self._counter].dtype)
            return scalars
        if step not in self._history:
            known = max(past for past in self._history if past < step)
            scalars, zeros = self._history[known], np.zeros(self._size, np.float32)
            for _ in range(known, step):
                _, left = self._step(zeros, self._merged(self._first, scalars), zeros)
                scalars = self._split(left)[1]
            self._history[step] = scalars
            # Steps are done again, but not many: the beginning and the last few are enough.
            for past in sorted(self._history)[1:-4]:
                del self._history[past]
        return self._history[step]

    def restore(self, vectors: Vectors, tensors: dict[str, Vector], step: int) -> None:
        """Gives the user's optimizer the state of a checkpoint, after `step` steps."""
        optimizer = self._optimizer
        if not optimizer.built:
            optimizer.build(vectors.model.trainable_variables)
        names = {
            f"{v.path.replace('/', '_')}_{slot}": f"optimizer/{slot}/{name}"
            for name, v in vectors.parameters
            for slot in self.slots
        }
        numbers = {
            v.name: value
            for v, value in zip(self._split(self._rule.variables)[1], self.scalars_after(step), strict=True)
        }
        for variable in optimizer.variables:
            if variable.name in names:
                variable.assign(tensors[names[variable.name]])
            elif variable.name in numbers:
                variable.assign(numbers[variable.name])

    def _test(self, tensors: Tensors) -> None:
        """Refuses a rule whose pieces are other bits than the whole, or whose numbers depend on gradients."""

        def apply(step: int, start: int, p: Vector, slots: list[Vector], gradient: Vector) -> None:
            left = self.apply(step, start, p, slots, gradient)
            if any(
                a.tobytes() != b.tobytes() for a, b in zip(left, self.scalars_after(step + 1), strict=True)
            ):
                raise RuntimeError("it keeps a number that depends on the gradients")

        try:
            elementwise = is_elementwise(apply, len(self.slots))
            agrees = elementwise and self._agrees_with_tensors(tensors)
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot be applied in pieces ({error})") from None
        if not elementwise:
            raise self._refuse("looks at whole tensors: its update differs in pieces")
        if not agrees:
            raise self._refuse("treats some tensors in another way than others, and pieces have no tensors")

    def _agrees_with_tensors(self, tensors: Tensors) -> bool:
        """Whether the rule does to tensors of the model's shapes what it does to their flat vector."""
        random = np.random.Generator(np.random.Philox(23))
        count = sum(elements(shape) for _, shape in tensors)
        before, gradient = (random.standard_normal(count, dtype=np.float32) for _ in range(2))
        variables = [keras.Variable(part) for part in cut(before, tensors)]
        clone = self._clone(variables)
        ours, slots = before.copy(), [np.zeros(count, np.float32) for _ in self.slots]
        for step in range(2):
            clone.apply([keras.ops.convert_to_tensor(part) for part in cut(gradient, tensors)], variables)
            for start in range(0, count, self._size):
                part = slice(start, start + self._size)
                self.apply(step, start, ours[part], [slot[part] for slot in slots], gradient[part])
        theirs = np.concatenate([_numpy(variable).reshape(-1) for variable in variables])
        return bool(np.max(np.abs(theirs - ours)) <= _NEAR * np.max(np.abs(ours - before)))

    def _refuse(self, what: str) -> _errors.BellwetherError:
        return _errors.refuse(f"keras.optimizers.{self.kind} {what}", _INSTEAD)


def _by_tensorflow(rule: Any, flat: Any) -> Any:
    import tensorflow as tf

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def update(gradient: Any) -> None:
        rule.apply([gradient], [flat])

    def step(parameters: Vector, variables: list[Any], gradient: Vector) -> Any:
        flat.assign(parameters)
        for variable, value in zip(rule.variables, variables, strict=True):
            variable.assign(value)
        update(tf.constant(gradient))
        return _numpy(flat), [_numpy(variable) for variable in rule.variables]

    return step


def _by_jax(rule: Any) -> Any:
    import jax

    compiled = jax.jit(rule.stateless_apply)

    def step(parameters: Vector, variables: list[Any], gradient: Vector) -> Any:
        (after,), left = compiled(variables, [gradient], [parameters])
        return np.asarray(after), [np.asarray(value) for value in left]

    return step


def _numpy(variable: Any) -> Any:
    """The value of a variable, in memory that it does not share."""
    return np.array(keras.ops.convert_to_numpy(variable))


def _plain(value: Any) -> Any:
    """A value as JSON has it; of what JSON has not, the type."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (bool, int, float, str)) or value is None else type(value).__qualname__
