"""What a script says of its job, as one line of JSON."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from bellwether import _errors

VARIABLES = (
    "PYTHONPATH",
    "KERAS_BACKEND",
    "JAX_PLATFORMS",
    "JAX_ENABLE_X64",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "TF_ENABLE_ONEDNN_OPTS",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
)
"""What decides which framework and which kernels a script takes, wherever it is started, and where its modules are."""

Tensors = list[tuple[str, tuple[int, ...]]]
"""Names and shapes, in the order of the flat vector."""


def elements(shape: tuple[int, ...]) -> int:
    """The number of values of a tensor."""
    product = 1
    for size in shape:
        product *= size
    return product


@dataclass(frozen=True)
class Layout:
    """The tensors of the flat vectors: parameters are updated, state (running statistics) is averaged."""

    parameters: Tensors
    state: Tensors

    @property
    def parameter_count(self) -> int:
        """Values of all parameters."""
        return sum(elements(shape) for _, shape in self.parameters)

    @property
    def state_count(self) -> int:
        """Values of all state."""
        return sum(elements(shape) for _, shape in self.state)

    def json(self) -> dict[str, Any]:
        """The layout as lists, for JSON."""
        tensors = {"parameters": self.parameters, "state": self.state}
        return {key: [[name, list(shape)] for name, shape in rows] for key, rows in tensors.items()}

    def digest(self) -> str:
        """32 hexadecimal digits; another order, name or shape gives others."""
        text = canonical(self.json())
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: the same text for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Declaration:
    """A job, as far as the script decides it."""

    layout: Layout
    batch_size: int
    virtual_nodes: int
    training_samples: int
    held_out_samples: int
    optimizer: dict[str, Any]
    epochs: int | None = None
    steps: int | None = None
    schedule: dict[str, Any] | None = None
    seed: int = 0
    name: str | None = None
    workers: str | int | None = None
    device: str = "cpu"
    threads: int = 1
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    order_block: int | None = None
    verdict_every: int = 0
    """Steps between boundaries at which the workers wait for the lead's verdict; 0 never waits."""
    stop: dict[str, Any] | None = None
    """The table `[stop]` of a job file."""
    exchange: str | None = None
    """Numbers in which gradients are summed, `exchange.precision` of a job file."""
    optimizer_copies: int | None = None
    """Workers that hold each part of the optimizer's state, `sharding.copies` of a job file; None: each holds all."""
    model: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses what no job can have."""
        if self.order_block is not None and self.order_block < 1:
            raise _errors.refuse(
                f"order_block is {self.order_block}", "write the number of samples of a shard, such as 4096"
            )
        if self.exchange not in (None, "f32", "bf16"):
            raise _errors.refuse(f"exchange is {self.exchange!r}", 'write "f32" or "bf16"')
        if self.optimizer_copies is not None and self.optimizer_copies < 1:
            raise _errors.refuse(
                f"optimizer_copies is {self.optimizer_copies}",
                "write how many workers hold each part, such as 2",
            )

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch; the last one takes what is left."""
        return max(1, -(-self.training_samples // self.batch_size))

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.steps if self.steps is not None else (self.epochs or 0) * self.steps_per_epoch

    def job(self) -> dict[str, Any]:
        """The partial job, with the keys of a job file."""
        model: dict[str, Any] = {
            "kind": "python",
            "script": _script(),
            "arguments": sys.argv[1:],
            "python": sys.executable,
            "device": self.device,
            "threads": self.threads,
            "layout": self.layout.digest(),
            "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        }
        samples = {
            "training_samples": self.training_samples,
            "held_out_samples": self.held_out_samples,
            # Said even if it is none: the loaders of this script read ahead in this order.
            "order": None if self.order_block is None else {"block": self.order_block},
        }
        job: dict[str, Any] = {
            "name": self.name or _stem(),
            "seed": self.seed,
            "batch": {"size": self.batch_size, "virtual_nodes": self.virtual_nodes},
            "model": model | self.model,
            "data": {"kind": "python"} | samples,
            "optimizer": self.optimizer,
        }
        length = {
            "epochs": self.epochs,
            "steps": self.steps,
            "schedule": self.schedule,
            "workers": self.workers,
            "stop": self.stop,
        }
        job |= {key: value for key, value in length.items() if value is not None}
        if isinstance(self.workers, int):
            job["workers"] = self.workers
        periods = {"evaluation": self.evaluate_every, "checkpoint": self.checkpoint_every}
        job |= {key: {"every_steps": steps} for key, steps in periods.items() if steps is not None}
        if self.exchange is not None:
            job["exchange"] = {"precision": self.exchange}
        if self.optimizer_copies is not None:
            job["sharding"] = {"copies": self.optimizer_copies}
        # Also where it is 0: a job file must not let the workers wait for a lead that says nothing.
        job["verdict"] = {"every_steps": self.verdict_every}
        return job

    def line(self, initial: str | None = None) -> str:
        """The declaration as one line of JSON; `initial` is the file of the initial weights."""
        declaration = {
            "version": 1,
            "python": sys.executable,
            "script": _script(),
            "arguments": sys.argv[1:],
            "job": self.job(),
            "layout": self.layout.json(),
            "modules": _imported(),
            "initial": initial,
        }
        return json.dumps(declaration, separators=(",", ":"), allow_nan=False)


def _imported() -> list[str]:
    """What this process has imported from installed packages, so that a fork server can do so once for all workers.

    The user's own modules are left out: they may have changed by the time when a worker starts.
    """
    installed = tuple(os.path.join(path, "") for path in sys.path if path.endswith("-packages"))
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
    names = []
    for name, module in sys.modules.items():
        file = getattr(module, "__file__", None)
        if name != "__main__" and isinstance(file, str) and file.startswith((*installed, own)):
            names.append(name)
    return sorted(names)


def _script() -> str:
    """The absolute path of the script that is run."""
    return os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else ""


def _stem() -> str:
    """The script's name without its ending, as the name of a job: letters, digits, ``-``, ``_`` and ``.``."""
    stem = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0]
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem)
    return kept.strip("-.") or "python"
