"""Writes tensorflow-cpu.json: one process, a multilayer perceptron, on the CPU.

TensorFlow 2.13 measures (`make_tensorflow.py measure`), and the package xprof turns its file into the JSON of the trace
viewer (`make_tensorflow.py convert`, in another environment: the two need different versions of protobuf).
"""
import glob
import json
import os
import shutil
import sys
import tempfile

BETWEEN, FILE = "tensorflow.xplane.pb", "tensorflow-cpu.json"
BATCH, WIDTH, LAYERS, CLASSES = 256, 384, 5, 10
STEPS_WARMED_UP, STEPS_TRACED = 5, 4


def measure():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(0)
    layers = [tf.keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(CLASSES)])
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x = tf.random.normal((BATCH, WIDTH))
    y = tf.random.uniform((BATCH,), maxval=CLASSES, dtype=tf.int64)

    @tf.function
    def train_step():
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    for _ in range(STEPS_WARMED_UP):
        train_step()
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, tf.profiler.experimental.ProfilerOptions(host_tracer_level=3))
        for step in range(STEPS_TRACED):
            with tf.profiler.experimental.Trace("train", step_num=step, _r=1):
                train_step().numpy()
        tf.profiler.experimental.stop()
        shutil.copy(glob.glob(folder + "/plugins/profile/*/*.xplane.pb")[0], BETWEEN)


def convert():
    from xprof.convert import raw_to_tool_data

    data, _ = raw_to_tool_data.xspace_to_tool_data([BETWEEN], "trace_viewer", {})
    trace = json.loads(data)
    # The executor's own marks are two thirds of the file; the reader uses none of them.
    executor = ("Executor", "Threadpool", "TensorHandle", "EagerCopy", "TFE_")
    events = [e for e in trace.pop("traceEvents") if not e.get("name", "").startswith(executor)]
    with open(FILE, "w") as file:
        lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
        file.write(f'{json.dumps(trace)[:-1]}, "traceEvents": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    {"measure": measure, "convert": convert}[sys.argv[1]]()
