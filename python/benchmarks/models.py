"""The networks that are timed, each with its data, its loss and its optimizer.

All data are random: they cost time as real ones do, and nothing is learnt from them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset


@dataclass(frozen=True)
class Case:
    """What is trained, and how a step is cut."""

    model: nn.Module
    loss: Callable[[nn.Module, Any], Tensor]
    data: TensorDataset
    optimizer: torch.optim.Optimizer
    batch_size: int
    virtual_nodes: int


class Clock:
    """Writes when each step began, as it begins: a process that is killed has written its steps."""

    def __init__(self, times: str) -> None:
        """Lines go to the file `times`, with this process's number at its end."""
        self._file = open(f"{times}.{os.getpid()}", "w", buffering=1)  # noqa: SIM115 (as long as the process)

    def begins(self, step: int) -> None:
        """A line with the step, the clock, and the seconds of processor time that this process has taken."""
        self._file.write(f"{step} {time.time()} {time.process_time()}\n")


class Residual(nn.Module):
    """Two convolutions beside the identity, or beside a stride of it with more channels."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.stride, self.grown = stride, after - before

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (batch, before, side, side) -> (batch, after, side / stride, side / stride)."""
        y = functional.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        short = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.grown))
        return functional.relu(y + short)


def resnet20() -> nn.Module:
    """ResNet-20 for 32 x 32 images: 270 thousand parameters."""
    blocks: list[nn.Module] = []
    channels = 16
    for after, stride in ((16, 1), (32, 2), (64, 2)):
        for index in range(3):
            blocks.append(Residual(channels, after, stride if index == 0 else 1))
            channels = after
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Bottleneck(nn.Module):
    """Three convolutions, the middle one narrow, beside the identity or a projection."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        sizes = ((before, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
        layers: list[nn.Module] = []
        for into, out, side, by in sizes:
            layers += [nn.Conv2d(into, out, side, by, side // 2, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])
        self.short = nn.Sequential()
        if stride != 1 or before != 4 * width:
            projection = nn.Conv2d(before, 4 * width, 1, stride, bias=False)
            self.short = nn.Sequential(projection, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: (batch, before, side, side) -> (batch, 4 * width, side / stride, side / stride)."""
        return functional.relu(self.layers(x) + self.short(x))


def resnet50() -> nn.Module:
    """ResNet-50 for 224 x 224 images: 25.6 million parameters."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks: list[nn.Module] = []
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            blocks.append(Bottleneck(channels, width, stride if index == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Transformer(nn.Module):
    """A decoder that predicts the next of 256 tokens."""

    def __init__(self, layers: int, width: int, context: int, vocabulary: int = 256) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(context, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 32, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)
        self.register_buffer(
            "mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Shapes: (batch, context) -> (batch, context, vocabulary)."""
        seen = self.layers(self.tokens(tokens) + self.places, mask=self.mask, is_causal=True)
        scores: Tensor = self.head(seen)
        return scores


def _images(count: int, side: int = 32, classes: int = 10) -> TensorDataset:
    return TensorDataset(torch.randn(count, 3, side, side), torch.randint(classes, (count,)))


def _classified(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def _next_token(model: nn.Module, batch: Any) -> Tensor:
    tokens = batch[0]
    return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def case(name: str) -> Case:
    """One of the timed trainings: `mlp`, `resnet20`, `resnet50`, `transformer` or `transformer-25m`."""
    torch.manual_seed(0)
    if name == "mlp":
        model: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        data = TensorDataset(torch.randn(2048, 64), torch.randint(10, (2048,)))
        return Case(model, _classified, data, torch.optim.SGD(model.parameters(), 0.01, 0.9), 64, 4)
    if name == "resnet20":
        model = resnet20()
        return Case(model, _classified, _images(1024), torch.optim.SGD(model.parameters(), 0.01, 0.9), 128, 4)
    if name == "resnet50":
        model, data = resnet50(), _images(512, 224, 1000)
        return Case(model, _classified, data, torch.optim.SGD(model.parameters(), 0.01, 0.9), 128, 4)
    layers, width, count, batch = {"transformer": (4, 128, 512, 64), "transformer-25m": (8, 512, 64, 8)}[name]
    model = Transformer(layers, width, 64)
    data = TensorDataset(torch.randint(256, (count, 65)))
    nodes = 4 if name == "transformer" else 2
    return Case(model, _next_token, data, torch.optim.AdamW(model.parameters(), 1e-4), batch, nodes)
