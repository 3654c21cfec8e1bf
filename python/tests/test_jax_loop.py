# Environments: jax
"""A JAX worker's loop: what the body may do, what it is told where it does something else, and what is answered."""

import unittest
from typing import Any, cast

import numpy as np
import optax
from forks import Ended, Forks

import bellwether.jax as bw
from bellwether._arrays import rare_sizes
from bellwether._jax_model import key_of

SCRIPT = """
import jax, optax, numpy as np
import bellwether.jax as bw

random = np.random.default_rng(1)
train = random.normal(size=(64, 6)).astype(np.float32), random.integers(3, size=64)
held_out = train[0][:9], train[1][:9]
params = {{"w": np.full((6, 3), 0.1, np.float32), "b": np.zeros(3, np.float32)}}

def loss_fn(p, batch, key):
    x = batch[0] * jax.random.bernoulli(key, 0.5, batch[0].shape)
    return optax.softmax_cross_entropy_with_integer_labels(x @ p["w"] + p["b"], batch[1]).mean()

def averaged(p, state, batch, key):
    return loss_fn(p, batch, key), {{"mean": 0.9 * state["mean"] + 0.1 * batch[0].mean(0)}}

run = bw.Run(params, optax.{optimizer}, data=train, batch_size=8, virtual_nodes=2{options})
for batch, key in run.steps(3):
    {body}
print("not reached")
"""

FORKS = Forks("import jax, optax, bellwether.jax")
BODY = "run.gradient(loss_fn, batch, key)"


def work(body: str = BODY, *, optimizer: str = "adamw(1e-2)", options: str = "") -> Ended:
    """Runs a worker's script with this body."""
    return FORKS.work(SCRIPT.format(body=body, optimizer=optimizer, options=options))


def tearDownModule() -> None:
    """Nothing forks any more."""
    FORKS.end()


class Loop(unittest.TestCase):
    """What a worker answers."""

    def test_gradients_and_updates_are_answered_until_the_run_is_over(self) -> None:
        ended = work()
        self.assertEqual(ended.code, 0, ended.log)
        self.assertEqual(ended.kinds, ["framework", *["loss", "loss", "updated"] * 3, "over"])
        self.assertEqual({answer[2] for answer in ended.said if answer[0] == "loss"}, {4.0})
        self.assertRegex(ended.said[0][1], r"^jax \S+; jaxlib \S+; cpu .*; 1 thread; .*; data [0-9a-f]{16}$")

    def test_the_same_script_answers_the_same(self) -> None:
        self.assertEqual(work().said, work().said)

    def test_state_is_left_by_each_micro_batch(self) -> None:
        ended = work(BODY.replace("loss_fn", "averaged"), options=', state={"mean": np.zeros(6, np.float32)}')
        states = [answer[4] for answer in ended.said if answer[0] == "loss"]
        self.assertEqual([len(state) for state in states], [6] * 6, ended.log)
        # Each begins with the run's state: what one leaves is not seen by the next.
        self.assertTrue(all(abs(value) < 0.5 for state in states for value in state))

    def test_held_out_samples_are_evaluated_by_the_same_body(self) -> None:
        ended = work(options=", held_out=held_out")
        evaluations = [answer for answer in ended.said if answer[0] == "evaluation"]
        self.assertEqual(len(evaluations), 3, ended.log)

    def test_weights_are_handed_on(self) -> None:
        self.assertEqual(work("run.gradient(loss_fn, batch, key, weight=2.5)").said[1][2], 2.5)


class Refusals(unittest.TestCase):
    """What a worker is told."""

    def assert_refused(self, what: str, ended: Ended) -> None:
        """The run is told, by the user's line."""
        self.assertEqual((ended.code, ended.last[0], ended.last[2]), (2, "failed", True), ended.log)
        self.assertRegex(ended.last[1], what)

    def test_a_body_without_a_gradient(self) -> None:
        self.assert_refused(r"^train.py:18: the loop's body ended .* without run\.gradient", work("pass"))

    def test_two_gradients_in_a_body(self) -> None:
        self.assert_refused(r"^train.py:19: run\.gradient is called twice", work(f"{BODY}; {BODY}"))

    def test_a_loss_that_is_no_number(self) -> None:
        body = "run.gradient(lambda p, b, k: p['b'], batch, key)"
        self.assert_refused(r"the loss has the shape \(3,\); return its mean", work(body))

    def test_no_new_state(self) -> None:
        ended = work(
            "run.gradient(lambda p, s, b, k: p['b'].sum(), batch, key)", options=", state=np.zeros(2, 'f')"
        )
        self.assert_refused("the loss function returns no pair", ended)

    def test_an_error_of_the_users(self) -> None:
        ended = work("run.gradient(lambda p, b, k: p['c'].sum(), batch, key)")
        self.assertEqual(ended.code, 1, ended.log)
        self.assertRegex(ended.last[1], r"^train.py:19: KeyError: 'c'")

    def test_several_threads(self) -> None:
        text = SCRIPT.format(body=BODY, optimizer="lion(1e-3)", options="")
        ended = FORKS.work("import os\nos.environ['NPROC'] = '4'\n" + text)
        self.assertEqual(ended.code, 2, ended.log)
        self.assertIn("NPROC is 4, and JAX gives other results", ended.log)

    def test_sizes_that_do_not_fit(self) -> None:
        sizes = {"virtual_nodes=2": "virtual_nodes=3", "data=train": "data=(train[0], train[1][:9])"}
        said = ("not cut into 3 equal virtual nodes", r"the arrays of data have the lengths [64, 9]")
        for (before, after), what in zip(sizes.items(), said, strict=True):
            text = SCRIPT.format(body=BODY, optimizer="lion(1e-3)", options="").replace(before, after)
            ended = FORKS.work(text)
            self.assertEqual(ended.code, 2, ended.log)
            self.assertIn(what, ended.log)


class Ahead(unittest.TestCase):
    """What is compiled for the last step of an epoch, which takes what is left."""

    def test_sizes_of_that_step(self) -> None:
        self.assertEqual(rare_sizes(1438, 64, 8), [3, 4])
        self.assertEqual(rare_sizes(64, 24, 4), [4])
        self.assertEqual(rare_sizes(26, 24, 4), [1])
        self.assertEqual(rare_sizes(48, 24, 4), [])

    def test_they_are_compiled_with_the_first_micro_batch(self) -> None:
        data = np.ones((64, 3), np.float32)
        run = bw.Run({"w": np.ones(3, np.float32)}, optax.sgd(0.1), data=data, batch_size=24, virtual_nodes=4)
        vectors = run._vectors
        vectors.attach()
        vectors.begin(True)
        batches = bw._Batches(run, cast(Any, None))

        def loss_fn(params: Any, batch: Any, _key: Any) -> Any:
            return (batch @ params["w"]).mean()

        batch = batches._batch = run._data.batch(list(range(6)), 0)
        batches._compile_ahead(loss_fn, batch)
        compiled = vectors._functions(loss_fn)[0]
        self.assertEqual(compiled._cache_size(), 1)
        vectors.gradient(loss_fn, run._data.batch([1, 2, 3, 4], 0), key_of(1), 4.0)
        self.assertEqual(compiled._cache_size(), 1)
        batches._compile_ahead(loss_fn, batch)
        vectors.gradient(loss_fn, batch, key_of(1), 6.0)
        self.assertEqual(compiled._cache_size(), 2)


if __name__ == "__main__":
    unittest.main()
