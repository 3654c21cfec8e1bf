"""Training data as arrays, or as anything with a length and an index, by the numbers of its samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bellwether import _errors
from bellwether import data as _data


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Applies `function` to the parts of tuples, lists and dictionaries; None stays."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: mapped(function, tree[key], *(other[key] for other in others)) for key in tree}
    if isinstance(tree, (tuple, list)):
        parts = [mapped(function, *row) for row in zip(tree, *others, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree, *others)


def rare_sizes(samples: int, batch_size: int, virtual_nodes: int) -> list[int]:
    """Numbers of samples that a micro-batch has only in the last step of an epoch, which takes what is left.

    What is compiled for each number is compiled for these ahead: in the midst of a step others would wait for it.
    """
    left = samples % batch_size
    sizes = {left // virtual_nodes, -(-left // virtual_nodes)} - {0, batch_size // virtual_nodes}
    return sorted(sizes)


class Samples:
    """Data by the numbers of their samples; a batch has the samples along its first axis."""

    def __init__(self, data: Any, name: str) -> None:
        """`data`: an array, or a tuple or dictionary of arrays that are equally long, or a map-style data set.

        Raises BellwetherError, with `name`, for what cannot be read by index.
        """
        self._arrays: Any = None
        if isinstance(data, (tuple, dict)) or hasattr(data, "__array__"):
            self._arrays = mapped(np.asarray, data)
            lengths: list[int] = []
            mapped(lambda array: lengths.append(len(array) if array.ndim else -1), self._arrays)
            if len(set(lengths)) != 1 or lengths[0] < 0:
                raise _errors.refuse(
                    f"the arrays of {name} have the lengths {lengths}",
                    "samples stand along the first axis of each",
                )
            self._length = lengths[0]
            return
        _data.require_map_style(data, name)
        self._data = data
        self._length = len(data)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if self._arrays is None:
            return self._data[index]
        return mapped(lambda array: array[index], self._arrays)

    def batch(self, samples: list[int], seed: int) -> Any:
        """The samples as one batch; each is loaded with a seed of its own, for augmentation by Python or NumPy."""
        if self._arrays is not None:
            index = np.asarray(samples, np.int64)
            return mapped(lambda array: np.asarray(array[index]), self._arrays)
        loaded = []
        for place, sample in enumerate(samples):
            _data.seed_python(_data.mix(seed, place))
            loaded.append(self._data[sample])
        return mapped(lambda *parts: np.stack([np.asarray(part) for part in parts]), *loaded)

    def digest(self) -> str:
        """16 hexadecimal digits; workers must agree on them."""
        return _data.digest(self)


def check_sizes(samples: int, batch_size: int, virtual_nodes: int) -> None:
    """Refuses batches that the data do not fill, or that are not cut into equal parts."""
    if samples < batch_size:
        raise _errors.refuse(
            f"the data are {samples} samples, fewer than a batch of {batch_size}", "lower batch_size"
        )
    if virtual_nodes < 1 or batch_size % virtual_nodes:
        raise _errors.refuse(
            f"a batch of {batch_size} is not cut into {virtual_nodes} equal virtual nodes",
            "let virtual_nodes divide batch_size",
        )
