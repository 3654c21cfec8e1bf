"""The same training by PyTorch's own DistributedDataParallel over gloo, on one machine.

``torchrun --nproc-per-node N ddp.py CASE STEPS TIMES [SNAPSHOT]``: the process of rank 0 writes TIMES, as `plain.py`
does. With SNAPSHOT it keeps its state there every ten steps, as PyTorch's tutorial on elastic training does, and goes
on from it; TIMES then has a line for each step as it begins.
"""

import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from models import case
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

EVERY = 10

name, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
snapshot = sys.argv[4] if len(sys.argv) > 4 else None
torch.set_num_threads(1)
dist.init_process_group("gloo")
trained = case(name)
model = DistributedDataParallel(trained.model)
sampler: DistributedSampler[Any] = DistributedSampler(trained.data, shuffle=True)
loader = DataLoader(trained.data, trained.batch_size // dist.get_world_size(), sampler=sampler)
began: list[tuple[float, float]] = []
step = epoch = 0
if snapshot and os.path.exists(snapshot):
    state = torch.load(snapshot, weights_only=True)
    trained.model.load_state_dict(state["model"])
    trained.optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
while step < steps:
    sampler.set_epoch(epoch)
    epoch += 1
    for batch in loader:
        if step == steps:
            break
        began.append((time.time(), time.process_time()))
        if snapshot and dist.get_rank() == 0:
            with open(times, "a") as file:
                file.write(f"{time.time()} {step}\n")
        trained.optimizer.zero_grad()
        trained.loss(model, batch).backward()
        trained.optimizer.step()
        step += 1
        if snapshot and dist.get_rank() == 0 and step % EVERY == 0:
            kept = {
                "model": trained.model.state_dict(),
                "optimizer": trained.optimizer.state_dict(),
                "step": step,
            }
            torch.save(kept, snapshot + ".part")
            os.replace(snapshot + ".part", snapshot)
if dist.get_rank() == 0 and not snapshot:
    with open(times, "w") as file:
        file.writelines(f"{wall} {processor}\n" for wall, processor in began)
dist.destroy_process_group()
