"""Your JAX model in five minutes: a small network on the digits that come with Bellwether.

Compare it with a plain loop: one call takes the loop's place.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bellwether.jax as bw

DIGITS = Path(__file__).parents[2] / "data/digits/digits.csv.gz"
digits = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
train_set = digits[:1438, :64] / 16, digits[:1438, 64].astype(np.int32)
held_out = digits[1438:, :64] / 16, digits[1438:, 64].astype(np.int32)
k1, k2 = jax.random.split(jax.random.key(0))
params = {
    "w1": jax.random.normal(k1, (64, 64)) * 0.15,
    "b1": jnp.zeros(64),
    "w2": jax.random.normal(k2, (64, 10)) * 0.15,
    "b2": jnp.zeros(10),
}


def apply(p: dict[str, Any], x: Any) -> Any:
    return jax.nn.relu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]


def loss_fn(p: dict[str, Any], batch: Any, key: Any) -> Any:
    x = batch[0] * jax.random.bernoulli(key, 0.9, batch[0].shape)
    return optax.softmax_cross_entropy_with_integer_labels(apply(p, x), batch[1]).mean()


optimizer = optax.lion(optax.cosine_decay_schedule(1e-3, 10 * 23))
params = bw.train(loss_fn, params, optimizer, train_set, epochs=10, batch_size=64, virtual_nodes=8)
accuracy = (apply(params, held_out[0]).argmax(1) == held_out[1]).mean()
print(f"accuracy {accuracy:.4f}")
