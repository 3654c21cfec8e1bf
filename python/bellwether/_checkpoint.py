"""Checkpoints of a run as NumPy arrays, and flat vectors as named tensors."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bellwether import _errors
from bellwether._declare import Layout, Tensors, elements

Vector = NDArray[np.float32]


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Vector], int]:
    """The tensors of a checkpoint, and the steps that it has behind it."""
    from safetensors import safe_open

    with safe_open(os.fspath(path), framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
        step = int((file.metadata() or {}).get("step", 0))
    return tensors, step


def check(tensors: dict[str, Vector], layout: Layout, path: str | os.PathLike[str]) -> None:
    """Refuses a checkpoint whose parameters and state are not those of the layout; names the first that is not."""
    kinds = (("parameters", layout.parameters), ("state", layout.state))
    ours = {f"{kind}/{name}": shape for kind, rows in kinds for name, shape in rows}
    theirs = {key for key in tensors if not key.startswith("optimizer/")}
    for key in sorted(theirs ^ ours.keys()):
        where = "the model" if key in theirs else "the checkpoint"
        raise _errors.refuse(
            f"{os.fspath(path)}: {key} is not in {where}", "build the model that was trained"
        )
    for key, shape in ours.items():
        if tuple(tensors[key].shape) != tuple(shape):
            shapes = f"{tuple(tensors[key].shape)} there and {tuple(shape)} in the model"
            raise _errors.refuse(f"{os.fspath(path)}: {key} is {shapes}", "build the model that was trained")


def cut(vector: Any, tensors: Tensors) -> list[Any]:
    """The parts of a flat vector, shaped as these tensors; views where the vector allows it."""
    parts, start = [], 0
    for _, shape in tensors:
        end = start + elements(shape)
        parts.append(vector[start:end].reshape(shape))
        start = end
    return parts
