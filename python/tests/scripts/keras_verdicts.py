"""Early stopping by callbacks: Keras's own after the second epoch, with the weights of the first; or one of the user's."""

import sys

import keras
import numpy as np
from keras import layers as L

import bellwether.keras as bw

random = np.random.default_rng(1)
x, y = random.normal(size=(64, 6)).astype(np.float32), random.integers(3, size=64)
keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input((6,)), L.Dense(8, activation="relu"), L.Dense(3)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss=loss, metrics=["accuracy"])


def weight() -> float:
    """A number that stands for the weights."""
    return float(sum(np.abs(keras.ops.convert_to_numpy(v)).sum() for v in model.trainable_variables))


class Told(keras.callbacks.Callback):  # type: ignore[misc]
    """Prints what each epoch has brought."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        print("epoch", epoch, weight(), sorted(logs or {}))


class Enough(keras.callbacks.Callback):  # type: ignore[misc]
    """Two epochs are enough."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.model.stop_training = epoch == 1


early = keras.callbacks.EarlyStopping(
    monitor="val_loss", patience=1, min_delta=1e9, restore_best_weights=True
)
files = [keras.callbacks.CSVLogger("log.csv"), keras.callbacks.ModelCheckpoint("best.keras")]
stops = early if sys.argv[1] == "early" else Enough()
callbacks = [Told(), *files, stops, keras.callbacks.TerminateOnNaN()]
history = bw.fit(
    model,
    x,
    y,
    batch_size=8,
    virtual_nodes=4,
    epochs=100,
    validation_data=(x, y),
    callbacks=callbacks,
    verbose=0,
)
print("sum", weight(), len(history.history["loss"]))
