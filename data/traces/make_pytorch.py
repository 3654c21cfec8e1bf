"""Writes pytorch-ddp-gloo.json: two processes, gloo, DDP, a multilayer perceptron, on the CPU."""
import json
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

FILE = "pytorch-ddp-gloo.json"
WORKERS = 2
STEPS_WAITED, STEPS_WARMED_UP, STEPS_TRACED = 1, 3, 4
BATCH, WIDTH, LAYERS, CLASSES = 256, 384, 5, 10


# What the reader does not use and what repeats most; the rest stands as it was written.
DROPPED_ARGUMENTS = {"Input Strides", "Concrete Inputs", "Ev Idx", "Record function id", "Sequence number", "Fwd thread id"}
DROPPED_EVENTS = {
    "aten::" + name
    for name in "as_strided t transpose view resolve_conj expand empty_like empty_strided to _to_copy detach fill_ mul mul_ "
    "copy_ clamp_min add_ addmm mm sum".split()
} | {"detach"}


def trim(path):
    with open(path) as file:
        trace = json.load(file)
    trace = {key: trace[key] for key in ("schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "traceEvents")}
    events = [e for e in trace.pop("traceEvents") if e.get("cat") != "fwdbwd" and e["name"] not in DROPPED_EVENTS]
    for event in events:
        event["args"] = {k: v for k, v in event.get("args", {}).items() if k not in DROPPED_ARGUMENTS}
    with open(path, "w") as file:
        head = json.dumps(trace)[:-1]
        lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
        file.write(f'{head}, "traceEvents": [\n{lines}\n]}}\n')


def worker(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=WORKERS)
    layers = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))
    model = DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    x, y = torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))
    plan = schedule(wait=STEPS_WAITED, warmup=STEPS_WARMED_UP, active=STEPS_TRACED)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as recorder:
        for _ in range(STEPS_WAITED + STEPS_WARMED_UP + STEPS_TRACED):
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            recorder.step()
    if rank == 0:
        recorder.export_chrome_trace(FILE)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, nprocs=WORKERS)
    trim(FILE)
