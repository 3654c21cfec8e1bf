from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

DIGITS = Path(__file__).parents[3] / "data/digits/digits.csv.gz"
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
state = optimizer.init(params)


def update(params: Any, state: Any, batch: Any, key: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_fn)(params, batch, key)
    updates, state = optimizer.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, loss


step = jax.jit(update)
key, rng = jax.random.key(1), np.random.default_rng(0)
for epoch in range(10):
    for batch in np.array_split(rng.permutation(1438), 23):
        key, sub = jax.random.split(key)
        params, state, loss = step(params, state, (train_set[0][batch], train_set[1][batch]), sub)
accuracy = (apply(params, held_out[0]).argmax(1) == held_out[1]).mean()
print(f"accuracy {accuracy:.4f}")
