"""An ordinary TensorFlow job with parameter servers: ParameterServerStrategy over gRPC, until it is killed.

TF_CONFIG says which process it is; without it, it trains alone. It prints `step NUMBER SECONDS` as steps are
applied. With `--trace FOLDER` (alone) it records some steps with TensorFlow's profiler and ends.
"""

import argparse
import json
import os
import time
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf

CLASSES, WORDS, LENGTH = 10, 2000, 24


def cnn() -> Any:
    """Four convolutions and two layers for pictures of 32 × 32 pixels."""
    layers: list[Any] = [tf.keras.Input((32, 32, 3))]
    for width in (32, 64, 128, 256):
        layers += [
            tf.keras.layers.Conv2D(width, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPool2D(),
        ]
    layers += [
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(512, activation="relu"),
        tf.keras.layers.Dense(CLASSES),
    ]
    return tf.keras.Sequential(layers)


def lstm() -> Any:
    """Two layers of LSTM that say the next word, all steps in one graph."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((LENGTH,), dtype=tf.int32),
            Lookup(256),
            tf.keras.layers.RNN(tf.keras.layers.LSTMCell(256), return_sequences=True, unroll=True),
            tf.keras.layers.RNN(tf.keras.layers.LSTMCell(256), unroll=True),
            tf.keras.layers.Dense(WORDS),
        ]
    )


class Lookup(tf.keras.layers.Layer):
    """Word vectors by a product, so that the gradient is dense: TensorFlow sends sparse ones otherwise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def build(self, shape: Any) -> None:
        """Makes the table."""
        self.table = self.add_weight("table", (WORDS, self.width))

    def call(self, words: Any) -> Any:
        """Vectors of the words, [batch, length, width]."""
        return tf.tensordot(tf.one_hot(words, WORDS), self.table, 1)


def transformer() -> Any:
    """Three blocks of attention that say the next word."""
    inputs = tf.keras.Input((LENGTH,), dtype=tf.int32)
    x = Lookup(192)(inputs)
    for _ in range(3):
        y = tf.keras.layers.LayerNormalization()(x)
        x = x + tf.keras.layers.MultiHeadAttention(4, 48)(y, y, use_causal_mask=True)
        y = tf.keras.layers.Dense(768, activation="relu")(tf.keras.layers.LayerNormalization()(x))
        x = x + tf.keras.layers.Dense(192)(y)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(WORDS)(x[:, -1]))


MODELS = {"cnn": cnn, "lstm": lstm, "transformer": transformer}


def step_of(name: str, batch: int, strategy: Any) -> tuple[Any, Any]:
    """The training step as a graph, and the optimizer's count of steps."""
    with strategy.scope():
        model = MODELS[name]()
        optimizer = tf.keras.optimizers.legacy.SGD(0.01, momentum=0.9)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    trained = model.trainable_variables

    def replica() -> None:
        y = tf.random.uniform((batch,), maxval=CLASSES, dtype=tf.int64)
        if name == "cnn":
            x = tf.random.uniform((batch, 32, 32, 3))
        else:
            x = tf.random.uniform((batch, LENGTH), maxval=WORDS, dtype=tf.int32)
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) / batch
        optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained))

    @tf.function
    def train() -> None:
        strategy.run(replica)

    return train, optimizer.iterations


def alone(train: Any, steps: int, trace: str | None, count: int) -> None:
    """Trains in one process, and records the last `count` of `steps`."""
    begin = steps - count
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=3)
    for number in range(steps if trace else 10**9):
        if trace and number == begin:
            tf.profiler.experimental.start(trace, options)
        if trace and number >= begin:
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                train()
        else:
            train()
        print("step", number, time.time(), flush=True)
    if trace:
        print("recorded", flush=True)
        tf.profiler.experimental.stop()


def coordinate(name: str, batch: int, cluster: Any, asked: int) -> None:
    """Lets the workers train, without waiting for each other."""
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    train, _ = step_of(name, batch, strategy)
    results: list[Any] = []
    done = 0
    while True:
        while len(results) < asked:
            results.append(coordinator.schedule(train))
        results[0].fetch()
        fresh = [result for result in results if result._status.name != "READY"]
        done += len(results) - len(fresh)
        results = fresh
        print("step", done, time.time(), flush=True)


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--trace")
    parser.add_argument("--trace-steps", type=int, nargs=2, default=(16, 12), metavar=("FROM", "COUNT"))
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    if "TF_CONFIG" not in os.environ:
        train, _ = step_of(options.model, options.batch, tf.distribute.get_strategy())
        begin, count = options.trace_steps
        alone(train, begin + count, options.trace, count)
        return
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        # One thread would wait for a tensor of the other process, and the tensor for the thread.
        tf.config.threading.set_inter_op_parallelism_threads(4)
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4, intra_op_parallelism_threads=1)
        server = tf.distribute.Server(
            cluster.cluster_spec(),
            job_name=cluster.task_type,
            task_index=cluster.task_id,
            protocol="grpc",
            config=config,
        )
        server.join()
    workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
    coordinate(options.model, options.batch, cluster, 3 * workers)


if __name__ == "__main__":
    main()
