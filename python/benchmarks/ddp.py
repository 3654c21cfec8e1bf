"""The same training by PyTorch's own DistributedDataParallel over gloo, on one machine.

``torchrun --nproc-per-node N ddp.py CASE STEPS TIMES [EVERY [term]]``: each process writes when its steps began to a
file TIMES.PROCESS. With EVERY the process of rank 0 saves a snapshot every so many steps, from which all go on after a
restart, as PyTorch's documentation on torchrun tells. With `term` it also saves one after the step in which it gets
SIGTERM, and then exits with code 75; the others ignore the signal, and fail as they miss it.
"""

import datetime
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from models import Clock, case
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

name, steps, times = sys.argv[1], int(sys.argv[2]), sys.argv[3]
every = int(sys.argv[4]) if len(sys.argv) > 4 else 0
snapshot = f"{times}-snapshot"
torch.set_num_threads(1)
# Without a limit of its own a restart waits half an hour where processes do not find each other, as happens.
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=1))
trained = case(name)
begin = 0
if every and os.path.exists(snapshot):
    saved = torch.load(snapshot)
    trained.model.load_state_dict(saved["model"])
    trained.optimizer.load_state_dict(saved["optimizer"])
    begin = saved["step"]
model = DistributedDataParallel(trained.model)
sampler: DistributedSampler[Any] = DistributedSampler(trained.data, shuffle=True)
loader = DataLoader(trained.data, trained.batch_size // dist.get_world_size(), sampler=sampler)
clock = Clock(times)
asked_to_end: list[int] = []
if "term" in sys.argv[5:] and dist.get_rank() == 0:
    signal.signal(signal.SIGTERM, lambda number, _: asked_to_end.append(number))
elif "term" in sys.argv[5:]:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for epoch in range(begin // len(loader), -(-steps // len(loader))):
    sampler.set_epoch(epoch)
    for step, batch in enumerate(loader, epoch * len(loader)):
        if not begin <= step < steps:
            continue
        clock.begins(step)
        trained.optimizer.zero_grad()
        trained.loss(model, batch).backward()
        trained.optimizer.step()
        if every and ((step + 1) % every == 0 or asked_to_end) and dist.get_rank() == 0:
            state = {"model": trained.model.state_dict(), "optimizer": trained.optimizer.state_dict()}
            torch.save({**state, "step": step + 1}, f"{snapshot}-new")
            os.replace(f"{snapshot}-new", snapshot)
        if asked_to_end:
            os._exit(75)
dist.destroy_process_group()
