"""Trains a small network with TensorFlow's MultiWorkerMirroredStrategy, from its own checkpoint on."""

import os
import sys

import numpy as np
import tensorflow as tf

BATCH = 256
SHAPES = [(3, 3, 1, 32), (3, 3, 32, 32), (512, 10)]

# It has to come before anything else of TensorFlow's, and finds the other processes in TF_CONFIG.
strategy = tf.distribute.MultiWorkerMirroredStrategy()


def variables(kept):
    random = np.random.default_rng(1)
    with strategy.scope():
        beginning = [random.normal(0, np.prod(shape[:-1]) ** -0.5, shape) for shape in SHAPES]
        arrays = [kept.get(f"w{index}", array) for index, array in enumerate(beginning)]
        return [tf.Variable(array, dtype=tf.float32) for array in arrays]


def part_of_batch(step, rank, size):
    images = np.random.default_rng(step).normal(size=(BATCH, 16, 16, 1)).astype(np.float32)[rank::size]
    return tf.constant(images), tf.constant(images.reshape(len(images), -1)[:, :10].argmax(1))


def outputs(weights, images):
    values = images
    for weight in weights[:-1]:
        values = tf.nn.relu(tf.nn.conv2d(values, weight, strides=1, padding="SAME"))
    values = tf.nn.avg_pool2d(values, ksize=4, strides=4, padding="SAME")
    return tf.reshape(values, (-1, 512)) @ weights[-1]


def main():
    steps, path = int(sys.argv[1]), sys.argv[2]
    kept = dict(np.load(path)) if os.path.exists(path) else {}
    weights = variables(kept)
    done = int(kept["step"]) if kept else 0

    def train(images, classes):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, outputs(weights, images))
            loss = tf.reduce_sum(losses) / BATCH
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, weights))
        for weight, gradient in zip(weights, gradients):
            weight.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def step_of_all(images, classes):
        losses = strategy.run(train, args=(images, classes))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    for step in range(done + 1, steps + 1):
        loss = step_of_all(*part_of_batch(step, rank, size))
        if rank == 0:
            print(f"step {step} loss {loss.numpy():.4f}", flush=True)
            if step % 20 == 0 or step == steps:
                arrays = {f"w{index}": weight.numpy() for index, weight in enumerate(weights)}
                with open(path + ".new", "wb") as file:
                    np.savez(file, step=step, **arrays)
                os.replace(path + ".new", path)


main()
