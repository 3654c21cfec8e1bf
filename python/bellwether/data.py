"""Data by index: seeds for samples, digests of data sets, and token files."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bellwether import _errors

_MASK = (1 << 64) - 1
_LOOKS = 16
"""Samples that the digest of a data set looks at."""


class MapStyle(Protocol):
    """What can be trained on: data with a length and an index."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def mix(a: int, b: int) -> int:
    """A well-mixed function of two words of 64 bits (the finalizer of SplitMix64)."""
    z = (a ^ (b * 0xD6E8FEB86659FD93 + 0x9E3779B97F4A7C15)) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def seed_python(seed: int) -> None:
    """Seeds the generators of Python and of NumPy."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def require_map_style(data: Any, name: str) -> None:
    """Refuses what cannot be read by index.

    Raises BellwetherError, which names what to do.
    """
    missing = [method for method in ("__len__", "__getitem__") if not hasattr(type(data), method)]
    if missing:
        raise _errors.refuse(
            f"{name} ({type(data).__name__}) has no {' and no '.join(missing)}",
            "samples are read by index, in an order that the run's seed decides: write the stream into files with an "
            "index first (MosaicML's MDS, a NumPy memmap, or bellwether.data.tokens)",
        )


class TokenWindows(Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]):
    """Windows of a file of tokens: sample i is ``(tokens, the same moved by one)``, both of `context` values."""

    def __init__(self, tokens: NDArray[Any], context: int) -> None:
        """`tokens` is one-dimensional; windows do not overlap, and what is left at the end is left out."""
        self._tokens = tokens
        self._context = context

    def __len__(self) -> int:
        return max(0, (len(self._tokens) - 1) // self._context)

    def __getitem__(self, index: Any) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        start = (index % len(self)) * self._context
        window = self._tokens[start : start + self._context + 1].astype(np.int64)
        return window[:-1], window[1:]


def tokens(path: str | os.PathLike[str], context: int, dtype: Any = np.uint16) -> TokenWindows:
    """A file of token numbers as windows of `context` tokens with their successors.

    The file is mapped into memory, so any number of workers on a machine shares one copy. `dtype` is that of the
    file: raw numbers, or a ``.npy`` file, which names its own.

    Raises BellwetherError if the file is shorter than a window.
    """
    file = os.fspath(path)
    mapped = np.load(file, mmap_mode="r") if file.endswith(".npy") else np.memmap(file, dtype, mode="r")
    windows = TokenWindows(mapped.reshape(-1), context)
    if context < 1 or len(windows) == 0:
        raise _errors.refuse(f"{file} holds {mapped.size} tokens, and a window needs {context + 1}")
    return windows


def digest(data: MapStyle, seed: Callable[[int], None] = seed_python) -> str:
    """16 hexadecimal digits of a data set: its length and 16 samples, spread over it.

    `seed` seeds all generators that a sample may draw from.
    """
    length = len(data)
    hasher = hashlib.blake2b(str(length).encode(), digest_size=8)
    for look in range(min(_LOOKS, length)):
        seed(look)
        _update(hasher, data[look * length // min(_LOOKS, length)])
    return hasher.hexdigest()


def _update(hasher: Any, value: Any) -> None:
    """Adds a sample to a digest: arrays and tensors by their bytes, containers by their parts, numbers and text."""
    if isinstance(value, dict):
        for key in value:
            hasher.update(f"{key}:".encode())
            _update(hasher, value[key])
    elif isinstance(value, (tuple, list)):
        for part in value:
            _update(hasher, part)
    elif isinstance(value, (bytes, str, int, float, bool)) or value is None:
        hasher.update(repr(value).encode())
    elif hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        hasher.update(f"{array.dtype}{array.shape}".encode())
        hasher.update(array.tobytes())
    else:
        # What it holds is not known; that it is of another kind is.
        hasher.update(type(value).__qualname__.encode())
