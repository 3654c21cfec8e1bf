"""A small network on the digits that ends with a softmax; what it says of all of them is kept for comparison."""

from pathlib import Path

import keras
import numpy as np

import bellwether.keras as bw

DIGITS = Path(__file__).parents[3] / "data/digits/digits.csv.gz"
digits = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
images, labels = digits[:, :64].reshape(-1, 8, 8, 1) / 16, digits[:, 64].astype(np.int32)
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(4, 3),
        keras.layers.BatchNormalization(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10, "softmax"),
    ]
)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
bw.fit(model, images, labels, batch_size=64, virtual_nodes=4, epochs=2)
np.save("expected.npy", np.asarray(model(images, training=False)))
