"""The same training on the runtime: ``bellwether run elastic.py -- CASE STEPS TIMES``."""

import sys
import time

from models import case

import bellwether.torch as bw

name, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
trained = case(name)
run = bw.Run(
    trained.model,
    trained.optimizer,
    data=trained.data,
    batch_size=trained.batch_size,
    virtual_nodes=trained.virtual_nodes,
)
step = -1
for batch in run.steps(steps):
    if run.step != step:
        step = run.step
        with open(times, "a") as file:
            file.write(f"{time.time()} {time.process_time()}\n")
    run.backward(trained.loss(trained.model, batch))
