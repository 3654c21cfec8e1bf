"""Micro-batches from a map-style data set: the same for any number of loader processes."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from bellwether import _errors
from bellwether._native import SampleOrder
from bellwether.data import MapStyle, mix

Wanted = tuple[list[int], int]
"""The indices of a micro-batch's samples, and its seed."""


def seed_all(seed: int) -> None:
    """Seeds PyTorch's, Python's and NumPy's generators; a tenth of the time of ``torch.manual_seed``."""
    torch.default_generator.manual_seed(seed & (2**63 - 1))
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed & (2**63 - 1))
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


class Loading:
    """Loads the samples of a micro-batch, each with its own seed, and joins them to a batch."""

    def __init__(self, data: MapStyle, collate: Callable[[list[Any]], Any] | None) -> None:
        self.data = data
        self.collate = collate or default_collate
        # Tensors hold no code that could draw random numbers, and are taken by one index.
        self._is_plain = type(data) is TensorDataset and collate is None

    def __call__(self, samples: list[int], seed: int) -> Any:
        """The batch of these samples; each draws random numbers by a seed of its own, which follows from `seed`."""
        if self._is_plain and isinstance(self.data, TensorDataset):
            index = torch.tensor(samples)
            return [tensor[index] for tensor in self.data.tensors]
        loaded = []
        for place, sample in enumerate(samples):
            seed_all(mix(seed, place))
            loaded.append(self.data[sample])
        return self.collate(loaded)


def first_part(data: MapStyle) -> torch.Tensor:
    """What a model is given of the first sample: the sample, or its first part."""
    sample = data[0]
    part = sample[0] if isinstance(sample, (tuple, list)) else sample
    if not isinstance(part, (torch.Tensor, np.ndarray)):
        raise _errors.refuse(
            f"a sample of the model is a {type(part).__name__}, which rows of numbers cannot stand for",
            "write predict=… in bellwether.torch.Run, which is given the rows",
        )
    return torch.as_tensor(part)


class _Keyed(Dataset[Any]):
    """A data set whose index is a whole micro-batch."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading

    def __getitem__(self, wanted: Wanted) -> Any:
        samples, seed = wanted
        # Before the worker has its virtual nodes it asks for nothing.
        return self._loading(samples, seed) if samples else None


def _same(batch: Any) -> Any:
    return batch


class Plan:
    """The micro-batches of a worker, one after the other, without end."""

    def __init__(self, order: SampleOrder) -> None:
        self._order = order
        self._step = 0
        self._nodes = range(0)
        self._next = 0
        self.issued: deque[int] = deque()
        """Seeds of micro-batches that were asked for, in order; -1 for nothing."""

    def assign(self, step: int, nodes: range) -> None:
        """From here on; what was asked for already is stale."""
        self._step, self._nodes, self._next = step, nodes, 0

    def upcoming(self) -> int | None:
        """The seed of the micro-batch that is asked for next."""
        return self._order.seed(self._step, self._nodes[self._next]) if self._nodes else None

    def __iter__(self) -> Iterator[Wanted]:
        while True:
            yield self._take()

    def _take(self) -> Wanted:
        seed = self.upcoming()
        if seed is None:
            self.issued.append(-1)
            return [], 0
        samples = self._order.micro_batch(self._step, self._nodes[self._next])
        self._next += 1
        if self._next == len(self._nodes):
            self._next, self._step = 0, self._step + 1
        self.issued.append(seed)
        return samples, seed


class Feed:
    """Gives a worker its micro-batches; with `processes` they are loaded ahead of need."""

    def __init__(self, loading: Loading, order: SampleOrder, processes: int, options: dict[str, Any]) -> None:
        """`options` go to the `DataLoader`, whose processes are forked here."""
        self._loading = loading
        self._plan = Plan(order)
        self._ahead: Iterator[Any] | None = None
        self.loaded_here = 0
        """Micro-batches that no process had loaded ahead."""
        if processes > 0:
            loader: DataLoader[Any] = DataLoader(
                _Keyed(loading),
                sampler=self._plan,
                batch_size=None,
                num_workers=processes,
                collate_fn=_same,
                **{"multiprocessing_context": "fork", **options},
            )
            self._ahead = iter(loader)

    def assign(self, step: int, nodes: range) -> None:
        """From `step` on these virtual nodes are this worker's."""
        self._plan.assign(step, nodes)

    def close(self) -> None:
        """Ends the processes."""
        self._ahead = None

    def batch(self, samples: list[int], seed: int) -> tuple[Any, float]:
        """The batch of a micro-batch, and the seconds that it was waited for."""
        begin = time.perf_counter()
        batch = self._take_ahead(seed)
        if batch is None:
            self.loaded_here += 1
            batch = self._loading(samples, seed)
        return batch, time.perf_counter() - begin

    def _take_ahead(self, seed: int) -> Any:
        """The batch if it was asked for, or is about to be; drops those before it, which are stale."""
        if self._ahead is None:
            return None
        issued = self._plan.issued
        if seed not in issued and self._plan.upcoming() != seed:
            return None
        while True:
            batch = next(self._ahead)
            if issued.popleft() == seed:
                return batch
