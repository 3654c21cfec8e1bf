"""A small network on the digits; what it says of all of them is kept for comparison."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bellwether.jax as bw

DIGITS = Path(__file__).parents[3] / "data/digits/digits.csv.gz"
digits = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
inputs, labels = digits[:, :64] / 16, digits[:, 64].astype(np.int32)
k1, k2 = jax.random.split(jax.random.key(0))
params = {"w1": jax.random.normal(k1, (64, 32)) * 0.15, "w2": jax.random.normal(k2, (32, 10)) * 0.15}


def apply(p: dict[str, Any], x: Any) -> Any:
    return jax.nn.relu(x @ p["w1"]) @ p["w2"]


def loss_fn(p: dict[str, Any], batch: Any, key: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(apply(p, batch[0]), batch[1]).mean()


params = bw.train(
    *(loss_fn, params, optax.adam(3e-3), (inputs, labels)),
    epochs=2,
    batch_size=64,
    virtual_nodes=4,
    predict=apply,
)
np.save("expected.npy", np.asarray(jax.nn.softmax(apply(params, jnp.asarray(inputs)))))
