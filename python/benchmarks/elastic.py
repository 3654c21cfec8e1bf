"""The same training on the runtime: ``bellwether run elastic.py -- CASE STEPS TIMES [DEVICE [bf16]]``.

At its end each worker appends a line to TIMES for each step that it began: the clock, and its seconds of processor
time.
"""

import atexit
import sys
import time

import torch
from models import case

import bellwether.torch as bw

name, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
precision = sys.argv[5] if len(sys.argv) > 5 else "f32"
trained = case(name)
run = bw.Run(
    trained.model,
    trained.optimizer,
    data=trained.data,
    batch_size=trained.batch_size,
    virtual_nodes=trained.virtual_nodes,
    device=device,
)
began: list[str] = []


def write() -> None:
    """Appends all lines at once: several workers share the file."""
    with open(times, "a") as file:
        file.write("".join(began))


if not bw.is_lead():
    atexit.register(write)
step = -1
for batch in run.steps(steps):
    if run.step != step:
        step = run.step
        began.append(f"{time.time()} {time.process_time()}\n")
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        loss = trained.loss(trained.model, batch)
    run.backward(loss)
