# Environments: jax
"""Optax's optimizers as update rules: the same bits in pieces, or refused by name."""

import functools
import unittest
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bellwether import BellwetherError
from bellwether._jax_model import Tree, joined
from bellwether._jax_rules import OwnRule
from bellwether._rules import CompiledRule, Vector

ACCEPTED: dict[str, Any] = {
    "adamw": optax.adamw(1e-3, weight_decay=0.1),
    "sgd with momentum": optax.sgd(0.1, 0.9, nesterov=True),
    "lion": optax.lion(optax.cosine_decay_schedule(1e-3, 20)),
    "adagrad": optax.adagrad(0.1),
    "rmsprop": optax.rmsprop(1e-3, centered=True),
    "radam": optax.radam(1e-2),
    "adabelief": optax.adabelief(1e-3),
    "a chain": optax.chain(optax.clip(1.0), optax.adam(1e-3), optax.ema(0.9)),
}

REFUSED: dict[str, Any] = {
    "clip_by_global_norm, scale_by_adam, .* looks at whole tensors": optax.chain(
        optax.clip_by_global_norm(100.0), optax.adamw(1e-3)
    ),
    "scale_by_trust_ratio.* looks at whole tensors": optax.lamb(1e-3),
    "scale_by_factored_rms.* (keeps|cannot|looks)": optax.adafactor(1e-3),
    "add_noise.* (keeps|cannot|looks)": optax.chain(optax.add_noise(0.1, 0.5, 3), optax.sgd(0.1)),
    "treats some tensors in another way": optax.adamw(
        1e-3, weight_decay=0.1, mask=lambda p: jax.tree.map(lambda leaf: leaf.ndim > 1, p)
    ),
    "reduce_on_plateau.* cannot": optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau()),
}

SHAPES = {"b": (5,), "w": (7, 5), "x": (3, 2, 2)}
LENGTH = 52
STEPS = 4


def params() -> Any:
    """A small tree with the same values each time."""
    random = np.random.default_rng(5)
    return {name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in SHAPES.items()}


def gradients() -> list[Any]:
    """The flat gradients of all steps."""
    random = np.random.default_rng(6)
    return [random.normal(size=LENGTH).astype(np.float32) for _ in range(STEPS)]


def rule(optimizer: Any) -> OwnRule:
    """The rule of an optimizer, tested."""
    return OwnRule(optimizer, Tree(params(), "parameters"), is_tested=False)


def declared(optimizer: Any, clip_norm: float | None = None) -> dict[str, Any]:
    """What the job says of an optimizer."""
    return OwnRule(optimizer, Tree(params(), "parameters"), is_tested=True).declaration(clip_norm)


@functools.cache
def accepted(name: str) -> OwnRule:
    """The rule of an optimizer above; what it compiled serves all tests."""
    return rule(ACCEPTED[name])


def in_pieces(own: OwnRule, cuts: tuple[int, ...], steps: range) -> tuple[Any, list[Any]]:
    """Parameters and slots after all steps, updated in these pieces."""
    parameters = np.array(joined(params()))
    slots = [np.zeros(LENGTH, np.float32) for _ in own.slots]
    for step in steps:
        for start, end in pairwise((0, *cuts, LENGTH)):
            part = slice(start, end)
            own.apply(step, start, parameters[part], [slot[part] for slot in slots], gradients()[step][part])
    return parameters, slots


class Rules(unittest.TestCase):
    """What is applied in pieces, and what is not."""

    def test_element_wise_rules_have_the_same_bits_in_pieces(self) -> None:
        for name in ACCEPTED:
            with self.subTest(name):
                whole = in_pieces(accepted(name), (), range(STEPS))
                pieces = in_pieces(accepted(name), (1, 17, 40), range(STEPS))
                self.assertEqual(whole[0].tobytes(), pieces[0].tobytes())
                self.assertEqual([s.tobytes() for s in whole[1]], [s.tobytes() for s in pieces[1]])

    def test_they_do_what_optax_does(self) -> None:
        for name, optimizer in ACCEPTED.items():
            with self.subTest(name):
                plain = params()
                state = optimizer.init(plain)
                for gradient in gradients():
                    tree = Tree(plain, "parameters").place(gradient)
                    updates, state = optimizer.update(tree, state, plain)
                    plain = optax.apply_updates(plain, updates)
                ours, _ = in_pieces(accepted(name), (17,), range(STEPS))
                np.testing.assert_allclose(ours, joined(plain), rtol=2e-5, atol=1e-6)

    def test_other_rules_are_refused_by_name(self) -> None:
        for what, optimizer in REFUSED.items():
            with self.subTest(what):
                self.assertRaisesRegex(BellwetherError, what, rule, optimizer)

    def test_what_is_no_optimizer_is_refused(self) -> None:
        self.assertRaisesRegex(BellwetherError, "the optimizer is float", rule, 1e-3)

    def test_numbers_are_those_of_the_updates(self) -> None:
        fractions = optax.inject_hyperparams(optax.adamw)(optax.linear_schedule(1e-2, 1e-3, 10))
        for optimizer in (ACCEPTED["a chain"], fractions):
            own = rule(optimizer)
            for step in range(STEPS):
                left = own.updated(step)
                said = [np.asarray(number).tobytes() for number in own.numbers_after(step + 1)]
                self.assertEqual(said, [np.asarray(number).tobytes() for number in left])

    def test_a_step_does_not_depend_on_those_before_in_this_process(self) -> None:
        own = rule(optax.adamw(optax.linear_schedule(1e-2, 1e-3, 10)))
        numbers = [np.asarray(leaf).tolist() for leaf in own.numbers_after(7)]
        self.assertEqual(numbers, [7, 7])
        fresh = rule(optax.adamw(optax.linear_schedule(1e-2, 1e-3, 10)))
        both = [in_pieces(each, (), range(STEPS))[0].tobytes() for each in (own, fresh)]
        self.assertEqual(both[0], both[1])


class Shifting(CompiledRule):
    """A rule whose program gives what it was given, where that lies: the slot becomes the parameters before."""

    slots, _is_vector = ["before"], [True]

    def __init__(self) -> None:
        super().__init__(LENGTH)
        self._prepared([])

    def _begin(self, parameters: Vector) -> list[Any]:
        return [np.zeros_like(parameters)]

    def _stepped(self, parameters: Vector, state: list[Any], gradient: Vector) -> tuple[Any, list[Any]]:
        return parameters + state[0] + gradient, [parameters]

    def _refuse(self, what: str) -> BellwetherError:
        return BellwetherError(what)


class InPlace(unittest.TestCase):
    """A piece is updated where it lies."""

    def test_what_a_program_gives_back_is_not_overwritten_before_it_is_read(self) -> None:
        own = Shifting()
        parameters, slots, gradient = np.arange(3, dtype=np.float32), [np.zeros(3, np.float32)], np.ones(3)
        for step in range(3):
            before, slot = parameters.copy(), slots[0].copy()
            own.apply(step, 0, parameters, slots, gradient.astype(np.float32))
            np.testing.assert_array_equal(parameters, before + (slot if step else 0) + 1)
            np.testing.assert_array_equal(slots[0], before)

    def test_frameworks_take_the_piece_without_a_copy(self) -> None:
        parameters, gradient, slots = Shifting().piece
        self.assertEqual([vector.ctypes.data % 64 for vector in (parameters, gradient, *slots)], [0, 0, 0])


class Declared(unittest.TestCase):
    """What the job says of a rule."""

    def test_the_same_settings_have_the_same_text(self) -> None:
        texts = [declared(optax.adamw(1e-3)) for _ in range(2)]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0]["slots"], ["mu", "nu"])
        self.assertRegex(texts[0]["name"], "^scale_by_adam-add_decayed_weights-scale")

    def test_other_settings_have_another_text(self) -> None:
        table = jnp.linspace(1e-2, 1e-3, 50)
        several = [
            optax.adamw(1e-3),
            optax.adamw(2e-3),
            optax.adamw(1e-3, b1=0.8),
            optax.adamw(optax.linear_schedule(1e-3, 0.0, 100)),
            optax.adamw(lambda step: table[step]),
            optax.adamw(lambda step: table.at[40].set(0.5)[step]),
        ]
        self.assertEqual(len({declared(optimizer)["settings"] for optimizer in several}), 6)

    def test_the_norm_is_the_runs(self) -> None:
        self.assertEqual(declared(optax.lion(1e-3), 1.0)["clip_norm"], 1.0)


class Names(unittest.TestCase):
    """Names and shapes of a pytree."""

    def test_they_are_dotted_paths(self) -> None:
        tree = {"a": [jnp.zeros((2, 3)), {"w": jnp.zeros(4)}], "b": (jnp.zeros(()),)}
        self.assertEqual(Tree(tree, "parameters").tensors, [("a.0", (2, 3)), ("a.1.w", (4,)), ("b.0", ())])
        self.assertEqual(Tree(jnp.zeros(2), "parameters").tensors, [("value", (2,))])

    def test_other_types_are_refused(self) -> None:
        tree = {"w": jnp.zeros(2, jnp.bfloat16)}
        self.assertRaisesRegex(BellwetherError, "w in parameters is bfloat16", Tree, tree, "parameters")

    def test_equal_names_are_refused(self) -> None:
        tree = {"a.b": jnp.zeros(1), "a": {"b": jnp.zeros(1)}}
        self.assertRaisesRegex(BellwetherError, r"have the name a\.b", Tree, tree, "parameters")


if __name__ == "__main__":
    unittest.main()
