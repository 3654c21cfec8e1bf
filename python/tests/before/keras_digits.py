from pathlib import Path

import keras
import numpy as np
from keras import layers as L

DIGITS = Path(__file__).parents[3] / "data/digits/digits.csv.gz"
digits = np.loadtxt(DIGITS, delimiter=",", dtype=np.float32)
x, y = (digits[:, :64] / 16).reshape(-1, 8, 8, 1), digits[:, 64].astype(np.int32)
held_out = x[1438:], y[1438:]
keras.utils.set_random_seed(7)
model = keras.Sequential(
    [
        *(keras.Input((8, 8, 1)), L.Conv2D(16, 3, padding="same"), L.BatchNormalization(), L.ReLU()),
        *(L.MaxPooling2D(), L.Conv2D(32, 3), L.ReLU(), L.Flatten(), L.Dropout(0.2), L.Dense(10)),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.AdamW(3e-3), loss=loss, metrics=["accuracy"])
model.fit(x[:1438], y[:1438], batch_size=64, epochs=5, validation_data=held_out)
_, accuracy = model.evaluate(*held_out, verbose=0)
print(f"accuracy {accuracy:.4f}")
model.save("model.keras")
