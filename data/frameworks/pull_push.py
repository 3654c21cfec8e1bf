"""What a pull and a push cost through TensorFlow's parameter servers, bare: sizes that no job of the experiment has.

TF_CONFIG as for `train_tensorflow.py`. The chief prints `pull_push PARTS BYTES BEGIN END STEPS` per size, the others
`used SECONDS PROCESSOR_SECONDS` ten times a second.
"""

import argparse
import os
import threading
import time
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf


def report() -> None:
    """Prints what this process has used, for ever."""
    while True:
        print("used", time.time(), time.process_time(), flush=True)
        time.sleep(0.1)


def exchange_of(parts: int, elements: int, strategy: Any) -> Any:
    """A step that pulls `parts` variables of `elements` floats and pushes as much."""
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(elements)) for _ in range(parts)]

    def replica() -> None:
        for variable in variables:
            pulled = tf.identity(variable)
            variable.assign_sub(tf.fill([elements], pulled[-1] * 0.5))

    @tf.function
    def exchange() -> None:
        strategy.run(replica)

    return exchange


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", required=True, metavar="PARTSxELEMENTS")
    parser.add_argument("--repeat", type=int, default=6)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4, intra_op_parallelism_threads=1)
        server = tf.distribute.Server(
            cluster.cluster_spec(),
            job_name=cluster.task_type,
            task_index=cluster.task_id,
            protocol="grpc",
            config=config,
        )
        threading.Thread(target=report, daemon=True).start()
        server.join()
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    exchanges = []
    for size in options.sizes:
        parts, elements = (int(word) for word in size.split("x"))
        exchange = exchange_of(parts, elements, strategy)
        coordinator.schedule(exchange)
        coordinator.join()
        exchanges.append((parts, elements, exchange))
    print("step 0", time.time(), flush=True)
    time.sleep(1.5)
    for parts, elements, exchange in exchanges:
        coordinator.schedule(exchange)
        coordinator.join()
        begin = time.time()
        for _ in range(options.repeat):
            coordinator.schedule(exchange)
        coordinator.join()
        print("pull_push", parts, 4 * elements * parts, begin, time.time(), options.repeat, flush=True)
        time.sleep(0.4)
    print("done", flush=True)


if __name__ == "__main__":
    main()
