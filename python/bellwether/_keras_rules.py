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
from bellwether._rules import CompiledRule, short

_NEAR = 1e-3
"""How far, relative to the largest update, a rule on tensors may be from the same on flat pieces: rounding is less."""

_INSTEAD = "element-wise ones work (SGD, Adam, AdamW, RMSprop, Nadam, Lion …)"

_OPTIONS = {
    "clipnorm": "write global_clipnorm=…, which clips the gradient of the whole batch",
    "use_ema": "leave it out: averages of weights come later",
    "loss_scale_factor": "leave it out: gradients are float32",
    "gradient_accumulation_steps": "leave it out: virtual_nodes=… cuts a batch into parts that fit",
}


class OwnRule(CompiledRule):
    """An optimizer of Keras, applied to pieces of the flat vectors."""

    def __init__(self, optimizer: Any, vectors: Vectors, is_tested: bool) -> None:
        """`is_tested`: whether another process, the lead, has tested the rule, or nothing is trained by it.

        Raises BellwetherError if the optimizer cannot be applied in pieces.
        """
        self.kind = type(optimizer).__name__
        self._optimizer = optimizer
        self._config = self._checked(optimizer, vectors, is_tested)
        self.clip_norm: float | None = self._config.pop("global_clipnorm", None)
        super().__init__(vectors.layout.parameter_count)
        try:
            self._prepare()
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot update a part of the parameters by itself ({short(error)})") from None
        if not is_tested:
            self._test(lambda: self._agrees_with_tensors(vectors.layout.parameters))

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
        vectors, others = self._split(self._rule.variables)
        for variable in others:
            if tuple(variable.shape):
                raise RuntimeError(f"it keeps {variable.name} of the shape {tuple(variable.shape)}")
        self.slots = [v.name.removeprefix(prefix) for v in vectors]
        self._first = [_numpy(v) for v in vectors]
        # How many steps there were is known without computing them.
        self._counter = next(i for i, v in enumerate(others) if v is self._rule.iterations)
        self._is_counted = all(v is self._rule.iterations or v.name == "learning_rate" for v in others)
        self._step = _by_jax(self._rule) if backend() == "jax" else _by_tensorflow(self._rule, self._flat)
        self._prepared([_numpy(v) for v in others])

    def declaration(self) -> dict[str, Any]:
        """The table ``[optimizer]`` of the job."""
        config = {key: value for key, value in self._config.items() if key != "name"}
        settings = canonical(_plain(config))
        rule: dict[str, Any] = {"kind": "own", "name": self.kind, "settings": settings, "slots": self.slots}
        return rule if self.clip_norm is None else rule | {"clip_norm": float(self.clip_norm)}

    def _begin(self, _parameters: Vector) -> list[Any]:
        return self._merged(self._first, self.numbers_after(0))

    def _stepped(self, parameters: Vector, state: list[Any], gradient: Vector) -> tuple[Any, list[Any]]:
        after, left = self._step(parameters, state, gradient)
        return after, left

    def numbers_after(self, step: int) -> list[Any]:
        """The numbers of the rule's state after `step` steps; where one of them only counts, without computing."""
        if not self._is_counted:
            return super().numbers_after(step)
        numbers = list(self._history[0])
        numbers[self._counter] = np.asarray(step, numbers[self._counter].dtype)
        return numbers

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
            for v, value in zip(self._split(self._rule.variables)[1], self.numbers_after(step), strict=True)
        }
        for variable in optimizer.variables:
            if variable.name in names:
                variable.assign(tensors[names[variable.name]])
            elif variable.name in numbers:
                variable.assign(numbers[variable.name])

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

    variables = [flat, *rule.variables]

    # Each variable alone would cost as much as the update of a piece. A program that also updates would be optimized
    # as a whole, and its bits would be others.
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def put(values: list[Any]) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def update(gradient: Any) -> None:
        rule.apply([gradient], [flat])

    def step(parameters: Vector, state: list[Any], gradient: Vector) -> Any:
        put([parameters, *state])
        update(tf.constant(gradient))
        after, *left = [variable.value.numpy() for variable in variables]
        return after, left

    return step


def _by_jax(rule: Any) -> Any:
    import jax

    compiled = jax.jit(rule.stateless_apply)

    def step(parameters: Vector, variables: list[Any], gradient: Vector) -> Any:
        (after,), left = compiled(variables, [gradient], [parameters])
        return after, left

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
