"""An ordinary PyTorch job: DistributedDataParallel over gloo, on random data, until it is killed.

The usual variables say which process it is (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). After each step it prints
`step NUMBER SECONDS`. With `--trace FILE` it records some steps with `torch.profiler` and ends.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

CLASSES, WORDS, LENGTH = 10, 4000, 24


class Cnn(nn.Module):
    """Four convolutions and two layers for pictures of 32 × 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 32), (32, 64), (64, 128), (128, 256)):
            layers += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.BatchNorm2d(after),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        self.body = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes, [batch, classes]."""
        return self.body(x)


class Lstm(nn.Module):
    """Two layers of LSTM that say each next word; 30 MB of parameters, more than one bucket of 25 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 384)
        self.lstm = nn.LSTM(384, 512, num_layers=2, batch_first=True)
        self.head = nn.Linear(512, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the words, [batch, words, length]."""
        return self.head(self.lstm(self.embedding(x))[0]).transpose(1, 2)


class Transformer(nn.Module):
    """Four blocks of attention that say each next word."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 192)
        self.place = nn.Parameter(torch.zeros(LENGTH, 192))
        block = nn.TransformerEncoderLayer(192, 4, 768, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 4, enable_nested_tensor=False)
        self.head = nn.Linear(192, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the words, [batch, words, length]."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.blocks(self.embedding(x) + self.place, mask=mask)).transpose(1, 2)


MODELS = {"cnn": Cnn, "lstm": Lstm, "transformer": Transformer}


def data(name: str, batch: int) -> tuple[Tensor, Tensor]:
    """Sixteen batches of inputs and targets."""
    if name == "cnn":
        return torch.randn(16, batch, 3, 32, 32), torch.randint(0, CLASSES, (16, batch))
    words = torch.randint(0, WORDS, (16, batch, LENGTH))
    return words, words


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--trace")
    parser.add_argument("--trace-steps", type=int, nargs=2, default=(16, 12), metavar=("FROM", "COUNT"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(MODELS[options.model]())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    inputs, targets = data(options.model, options.batch)

    def train(number: int) -> None:
        optimizer.zero_grad()
        loss_of(model(inputs[number % 16]), targets[number % 16]).backward()
        optimizer.step()
        print("step", number, time.time(), flush=True)

    if options.trace is None:
        number = 0
        while True:
            train(number)
            number += 1
    begin, count = options.trace_steps
    plan = schedule(wait=begin - 2, warmup=2, active=count)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as recorder:
        for number in range(begin + count):
            train(number)
            recorder.step()
    recorder.export_chrome_trace(options.trace)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
