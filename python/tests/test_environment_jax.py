# Environments: jax
"""JAX with optax learns on this machine's processor."""

import unittest

import jax
import optax
from samples import CLASSES, FEATURES, table


class Environment(unittest.TestCase):
    """What the other tests with JAX build on."""

    def test_a_model_learns(self) -> None:
        samples, labels = table()
        optimizer = optax.lion(0.05)

        def loss_of(weights: jax.Array) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(samples @ weights, labels).mean()

        def step(weights: jax.Array, slots: optax.OptState) -> tuple[optax.Params, optax.OptState, jax.Array]:
            loss, gradient = jax.value_and_grad(loss_of)(weights)
            updates, slots = optimizer.update(gradient, slots, weights)
            return optax.apply_updates(weights, updates), slots, loss

        compiled = jax.jit(step)
        weights = jax.numpy.zeros((FEATURES, CLASSES))
        slots, losses = optimizer.init(weights), []
        for _ in range(40):
            weights, slots, loss = compiled(weights, slots)
            losses.append(float(loss))
        self.assertLess(losses[-1], 0.7 * losses[0])


if __name__ == "__main__":
    unittest.main()
