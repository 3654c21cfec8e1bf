"""The same training on the runtime: ``bellwether run elastic.py -- CASE STEPS TIMES [DEVICE [PRECISION [NODES]]]``.

PRECISION is f32 or bf16; NODES are the virtual nodes, if not the case's own. Each worker writes when its steps began to
a file TIMES.PROCESS.
"""

import sys

import torch
from models import Clock, case

import bellwether.torch as bw

name, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
precision = sys.argv[5] if len(sys.argv) > 5 else "f32"
trained = case(name)
virtual_nodes = int(sys.argv[6]) if len(sys.argv) > 6 else trained.virtual_nodes
run = bw.Run(
    trained.model,
    trained.optimizer,
    data=trained.data,
    batch_size=trained.batch_size,
    virtual_nodes=virtual_nodes,
    device=device,
)
clock = None if bw.is_lead() else Clock(times)
step = -1
for batch in run.steps(steps):
    if clock is not None and run.step != step:
        step = run.step
        clock.begins(step)
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        loss = trained.loss(trained.model, batch)
    run.backward(loss)
