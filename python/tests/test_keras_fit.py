# Environments: jax, tensorflow
"""What a Keras worker answers, and what `fit` refuses."""

import unittest

from forks import Ended, Forks

SCRIPT = """
import keras, numpy as np
import bellwether.keras as bw
from keras import layers as L

random = np.random.default_rng(1)
x, y = random.normal(size=(64, 6)).astype(np.float32), random.integers(3, size=64)
keras.utils.set_random_seed(3)
model = keras.Sequential([L.Dense(4), L.BatchNormalization(), L.Dropout(0.5), L.Dense(3, kernel_regularizer="l2")])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True{loss})
{compile}
bw.fit(model, x, y, batch_size=8, virtual_nodes=2, epochs=2{options})
print("not reached")
"""

COMPILE = "model.compile(optimizer=keras.optimizers.{optimizer}, loss=loss, metrics=['accuracy'])"

# The role is set before the import, as the command does.
FORKS = Forks("import os; os.environ['BELLWETHER_ROLE'] = 'worker'; import keras, bellwether.keras")


def work(optimizer: str = "SGD(0.1)", *, options: str = "", loss: str = "", compiled: bool = True) -> Ended:
    """Runs a worker's script."""
    compiling = COMPILE.format(optimizer=optimizer) if compiled else ""
    return FORKS.work(SCRIPT.format(compile=compiling, options=options, loss=loss))


def tearDownModule() -> None:
    """Nothing forks any more."""
    FORKS.end()


class Fit(unittest.TestCase):
    """What a worker answers."""

    def test_gradients_and_updates_are_answered_until_the_run_is_over(self) -> None:
        ended = work("AdamW(1e-2)")
        self.assertEqual(ended.code, 0, ended.log)
        self.assertEqual(ended.kinds, ["framework", *["loss", "loss", "updated"] * 3, "over"])
        self.assertEqual({answer[2] for answer in ended.said if answer[0] == "loss"}, {4.0})
        self.assertRegex(
            ended.said[0][1], r"^keras \S+ float32; (tensorflow|jax) .*1 thread.*; data [0-9a-f]{16}; fixed"
        )
        states = [answer[4] for answer in ended.said if answer[0] == "loss"]
        self.assertEqual([len(state) for state in states], [8] * 6)
        # Each begins with the run's state: what one leaves is not seen by the next.
        self.assertTrue(all(abs(value) < 0.5 for state in states for value in state))

    def test_the_same_script_answers_the_same(self) -> None:
        self.assertEqual(work().said, work().said)

    def test_sample_weights_count(self) -> None:
        halved = work(options=", sample_weight=np.full(64, 0.5, np.float32)")
        self.assertEqual(halved.code, 0, halved.log)
        self.assertNotEqual(halved.said[1][1], work().said[1][1])


class Refusals(unittest.TestCase):
    """What does not fit is said before anything is computed."""

    def assert_refused(self, what: str, ended: Ended) -> None:
        """The script ends with the line and what to write."""
        self.assertEqual(ended.code, 2, ended.log)
        self.assertRegex(ended.log, rf"error: train.py:\d+: .*{what}")

    def test_models_and_losses(self) -> None:
        self.assert_refused(r"is not compiled; write model\.compile", work(compiled=False))
        self.assert_refused('has reduction="sum"', work(loss=', reduction="sum"'))

    def test_callbacks_that_steer(self) -> None:
        rates = work(options=", callbacks=[keras.callbacks.ReduceLROnPlateau()]")
        self.assert_refused("compile with a schedule", rates)

    def test_sizes(self) -> None:
        self.assert_refused("the lengths", work(options=", sample_weight=np.ones(3)"))

    def test_a_train_step_of_ones_own(self) -> None:
        text = SCRIPT.format(compile=COMPILE.format(optimizer="SGD()"), options="", loss="")
        own = "class Own(keras.Sequential):\n    def train_step(self, *_):\n        pass\n\nmodel = Own(["
        self.assert_refused(
            "Own has a train_step of its own", FORKS.work(text.replace("model = keras.Sequential([", own))
        )

    def test_tensors_before_the_import(self) -> None:
        text = SCRIPT.format(compile=COMPILE.format(optimizer="SGD()"), options="", loss="")
        early = (
            "import keras\nif keras.backend.backend() == 'tensorflow':\n"
            "    import tensorflow as tf\n    tf.config.threading.set_intra_op_parallelism_threads(3)\n"
            "else:\n    import os\n    os.environ['NPROC'] = '3'\n"
        )
        ended = FORKS.work(early + text)
        self.assertEqual(ended.code, 2, ended.log)
        self.assertRegex(ended.log, "TensorFlow made its threads before|NPROC is 3")


if __name__ == "__main__":
    unittest.main()
