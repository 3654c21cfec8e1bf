"""The same training by PyTorch's own DistributedDataParallel over gloo, on one machine.

``torchrun --nproc-per-node N ddp.py CASE STEPS TIMES``: the process of rank 0 writes TIMES, as `plain.py` does.
"""

import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from models import case
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

name, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo")
trained = case(name)
model = DistributedDataParallel(trained.model)
sampler: DistributedSampler[Any] = DistributedSampler(trained.data, shuffle=True)
loader = DataLoader(trained.data, trained.batch_size // dist.get_world_size(), sampler=sampler)
began: list[tuple[float, float]] = []
epoch = 0
while len(began) < steps:
    sampler.set_epoch(epoch)
    epoch += 1
    for batch in loader:
        if len(began) < steps:
            began.append((time.time(), time.process_time()))
            trained.optimizer.zero_grad()
            trained.loss(model, batch).backward()
            trained.optimizer.step()
if dist.get_rank() == 0:
    with open(times, "w") as file:
        file.writelines(f"{wall} {processor}\n" for wall, processor in began)
dist.destroy_process_group()
