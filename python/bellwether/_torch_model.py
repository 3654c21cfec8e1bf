"""A PyTorch model as flat vectors: what is refused, what is state, and what goes there and back."""

from __future__ import annotations

import fnmatch
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bellwether import _errors
from bellwether._declare import Layout
from bellwether._lead import Plain
from bellwether._loop import Sum
from bellwether._torch_parts import Parts

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule")


def check(model: nn.Module) -> None:
    """Refuses models that exchange gradients themselves, or whose gradients do not fit; names what to write."""
    if type(model).__name__ in _WRAPPERS:
        raise _errors.refuse(
            f"the model is wrapped into {type(model).__name__}", "delete it: Bellwether exchanges gradients"
        )
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm):
            raise _errors.refuse(
                f"{name} is SyncBatchNorm, which looks at all workers' samples",
                "write BatchNorm2d: it uses the samples of one virtual node, whatever the number of workers",
            )
        if getattr(module, "sparse", False) and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            raise _errors.refuse(f"{name} has sparse gradients", "write sparse=False")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise _errors.refuse(
                f"{name} is {str(parameter.dtype).removeprefix('torch.')}, and parameters are trained as float32",
                "write model.float(), and torch.autocast around the forward pass for bfloat16",
            )


def _instead(name: str, what: str, write: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise _errors.refuse(f"{name} {what}", write)

    return refused


def guard() -> None:
    """Lets functions that make no sense in a micro-batch say so."""
    module = torch.nn.utils.clip_grad
    # Those that were imported by name before call the last one by its name.
    for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "_clip_grads_with_norm_"):
        clip = _instead(
            name.replace("_clip_grads_with", "clip_grad"),
            "clips the gradient of one virtual node",
            "delete it, and write clip_norm=… in bellwether.torch.Run: that clips the mean over the whole batch",
        )
        for place in (module, torch.nn.utils):
            if hasattr(place, name):
                setattr(place, name, clip)
    if torch.distributed.is_available():
        torch.distributed.init_process_group = _instead(
            "init_process_group", "builds a process group", "delete it: Bellwether exchanges gradients"
        )
    torch.set_flush_denormal = _instead(
        "set_flush_denormal", "changes how numbers are added in the midst of a run", "call it before the loop"
    )
    torch.amp.GradScaler.scale = _instead(  # type: ignore[method-assign]
        "GradScaler", "scales the loss for float16", "delete it, and use torch.autocast with bfloat16"
    )


def be_deterministic(threads: int) -> None:
    """Lets PyTorch compute the same bits for the same micro-batch, whatever came before."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    # Only those who read memory before they wrote it would notice, and it costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


def kernel_class(device: torch.device, threads: int) -> str:
    """Versions, device, threads and flags that decide bits."""
    parts = [f"torch {torch.__version__}"]
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        tf32 = f"{torch.backends.cuda.matmul.allow_tf32:d}{torch.backends.cudnn.allow_tf32:d}"
        parts += [
            torch.cuda.get_device_name(device),
            f"capability {major}.{minor}",
            f"cuda {torch.version.cuda}",
        ]
        parts += [f"cudnn {torch.backends.cudnn.version()}", f"tf32 {tf32}"]
    else:
        parts += [f"{device.type} {torch.backends.cpu.get_cpu_capability()}"]
    parts += [
        f"{threads} thread{'s' if threads > 1 else ''}",
        f"matmul {torch.get_float32_matmul_precision()}",
    ]
    flags = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")
    parts += [f"{flag}={os.environ[flag]}" for flag in flags if flag in os.environ]
    return "; ".join(parts)


class _Fixed:
    """A buffer of the model that no step may change."""

    def __init__(self, name: str, owner: nn.Module, key: str) -> None:
        self.name = name
        self._owner, self._key = owner, key
        self._copy = self._now().detach().cpu().clone()
        self._mark = self._marked()

    def has_changed(self) -> bool:
        """Looks at the values only where something was written."""
        mark, before = self._marked(), self._mark
        self._mark = mark
        now = self._now()
        return mark != before and not (
            now.shape == self._copy.shape and torch.equal(now.detach().cpu(), self._copy)
        )

    def _now(self) -> Tensor:
        return self._owner.get_buffer(self._key)

    def _marked(self) -> tuple[int, int]:
        """Changes when something is written to the buffer, or another one takes its place."""
        return self._now().data_ptr(), self._now()._version


@dataclass(frozen=True)
class _Kept:
    """A gradient or a sum of some, and the state that belongs to it."""

    gradient: Tensor
    state: Tensor
    gradients: list[Tensor]
    """The gradient, tensor by tensor."""
    states: list[Tensor]


class Vectors:
    """The tensors of a model, and the flat vectors that the runtime knows."""

    def __init__(self, model: nn.Module, state: list[str]) -> None:
        """`state`: patterns of names of float32 buffers that steps change, beside those of batch normalisation."""
        self.model = model
        self.parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not self.parameters:
            raise _errors.refuse(
                "the model has no parameter that is trained", "set requires_grad_(True) on some"
            )
        self.state: list[tuple[str, Tensor]] = []
        self.counters: list[Tensor] = []
        self._others: list[tuple[str, nn.Module, str]] = []
        persistent = set(model.state_dict(keep_vars=True))
        for name, owner, key, buffer in _buffers(model):
            statistics = isinstance(owner, nn.modules.batchnorm._NormBase) and key in (
                "running_mean",
                "running_var",
            )
            if statistics or any(fnmatch.fnmatchcase(name, pattern) for pattern in state):
                self.state.append((name, buffer))
            elif key == "num_batches_tracked":
                self.counters.append(buffer)
            elif name in persistent:
                self._others.append((name, owner, key))
        for name, buffer in self.state:
            if buffer.dtype != torch.float32:
                raise _errors.refuse(f"{name} is {buffer.dtype}, and state is float32", "write model.float()")
        shapes = [
            [(name, tuple(t.shape)) for name, t in tensors] for tensors in (self.parameters, self.state)
        ]
        self.layout = Layout(shapes[0], shapes[1])

    def initial(self) -> Iterator[NDArray[np.float32]]:
        """The weights as they are: all parameters, then all state."""
        for _, tensor in [*self.parameters, *self.state]:
            yield tensor.detach().cpu().contiguous().numpy()

    def plain(self) -> Plain:
        """What the model's state dictionary has beside the layout; tensors as they are now."""
        ours = {id(tensor): name for name, tensor in [*self.parameters, *self.state]}
        counters = {id(tensor) for tensor in self.counters}
        tied: dict[str, str] = {}
        counts: list[str] = []
        fixed: dict[str, Tensor] = {}
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if id(tensor) in ours:
                if name != ours[id(tensor)]:
                    tied[name] = ours[id(tensor)]
            elif id(tensor) in counters:
                counts.append(name)
            elif isinstance(tensor, Tensor):
                # A file has no shared tensors.
                fixed[name] = tensor.detach().cpu().contiguous().clone()

        def save(path: Path, metadata: dict[str, str]) -> None:
            from safetensors.torch import save_file

            save_file(fixed, path, metadata=metadata)

        return Plain(save, tied, counts, "pt")

    def fixed_digest(self) -> str:
        """16 hexadecimal digits of all that is neither trained nor state; workers must agree on it."""
        hasher = hashlib.blake2b(digest_size=8)
        trained = {id(p) for _, p in self.parameters}
        frozen = [(name, p) for name, p in self.model.named_parameters() if id(p) not in trained]
        for name, tensor in [*frozen, *((name, getattr(owner, key)) for name, owner, key in self._others)]:
            hasher.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            hasher.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return hasher.hexdigest()

    def attach(self, device: torch.device) -> tuple[NDArray[np.float32], ...]:
        """Puts the model on a device, and its parameters into one vector.

        Returns the vectors that the runtime reads and writes: parameters, state, gradient, and the state that a
        micro-batch leaves.
        """
        self.model.to(device)
        self.state = [(name, self.model.get_buffer(name)) for name, _ in self.state]
        self._fixed = [_Fixed(name, owner, key) for name, owner, key in self._others]
        counts = (self.layout.parameter_count, self.layout.state_count) * 2
        self._host = [torch.zeros(count) for count in counts]
        self._device = (
            self._host if device.type == "cpu" else [torch.zeros(count, device=device) for count in counts]
        )
        parameters, state, gradient, left = self._device
        self._states = _views(state, [buffer for _, buffer in self.state])
        # The first sum stands where a single gradient does: what the runtime takes.
        self._sums = [self._kept(gradient, left)]
        self._depth = 0
        self._parts: Parts | None = None
        for (_, parameter), view in zip(
            self.parameters, _views(parameters, [p for _, p in self.parameters]), strict=True
        ):
            view.copy_(parameter.detach())
            parameter.data = view
        return tuple(vector.numpy() for vector in self._host)

    def begin(
        self, fresh: bool, step: int, place: Sum | None = None, give: Callable[[int], None] | None = None
    ) -> None:
        """Before a micro-batch: the run's weights and state into the model.

        `give` is told of each tensor of a sum that may go in parts, as soon as it is in the run's vector.
        """
        if fresh and self._device is not self._host:
            for vector, there in zip(self._device[:2], self._host[:2], strict=True):
                vector.copy_(there)
        with torch.no_grad():
            for (_, buffer), value in zip(self.state, self._states, strict=True):
                buffer.copy_(value)
            for counter in self.counters:
                counter.fill_(step)
        for _, parameter in self.parameters:
            parameter.grad = None
        take = None
        # What is on a device is copied at once: a copy for each tensor would keep the device waiting.
        if place is not None and place.in_parts and give is not None and self._device is self._host:
            take = partial(self._give, place, give)
            if self._parts is None:
                self._parts = Parts(self.parameters)
        if self._parts is not None:
            self._parts.begin(take)

    def _give(self, place: Sum, give: Callable[[int], None], number: int, gradient: Tensor) -> None:
        self._add_tensor(number, gradient, place)
        give(number)

    @property
    def keeps_sums(self) -> bool:
        """Whether sums of gradients here have the runtime's bits: not where subnormal numbers count as 0."""
        return bool(torch.full((1,), 1e-40).add_(0.0).item() != 0.0)

    def finish(self, samples: int, place: Sum | None) -> None:
        """After a micro-batch of so many samples: its gradient, and the state that it left.

        They go into the run's vectors, or to their place in a sum that stays on the device.
        """
        given = self._parts.end() if self._parts is not None else set()
        with torch.no_grad():
            if place is None:
                self._gather(self._sums[0], 1.0, False)
            elif given:
                self._add_rest(samples, place, given)
            else:
                self._add_up(samples, place)
        if self._device is not self._host and (place is None or place.is_last):
            for vector, there in zip(self._device[2:], self._host[2:], strict=True):
                there.copy_(vector)
        for fixed in self._fixed:
            if fixed.has_changed():
                raise _errors.refuse(
                    f"the buffer {fixed.name} changed in the loop's body, and is not known as state",
                    f"write state=['{fixed.name}'] in bellwether.torch.Run if it is a float32 statistic, which is "
                    "averaged over the virtual nodes; others must stay as they are",
                )

    def _add_up(self, samples: int, place: Sum) -> None:
        """Takes the micro-batch into the sums, along the tree: the runtime adds what is on the left to what is not."""
        if place.is_first:
            self._depth = 0
        merges = place.merges
        if merges > 0:
            # A gradient that is added at once needs no place of its own.
            self._gather(self._sums[self._depth - 1], float(samples), True)
            merges -= 1
        else:
            if self._depth == len(self._sums):
                self._sums.append(self._kept(*(torch.empty_like(vector) for vector in self._device[2:])))
            self._gather(self._sums[self._depth], float(samples), False)
            self._depth += 1
        for _ in range(merges):
            self._depth -= 1
            left, right = self._sums[self._depth - 1], self._sums[self._depth]
            left.gradient.add_(right.gradient)
            left.state.add_(right.state)

    def _add_tensor(self, number: int, gradient: Tensor | None, place: Sum) -> None:
        """As `_add_up`, of the gradient of one parameter, in the last micro-batch of a sum."""
        depth = 0 if place.is_first else self._depth
        sums = [kept.gradients[number] for kept in self._sums[: max(depth, 1)]]
        if place.merges == 0:
            sums[0].zero_() if gradient is None else sums[0].copy_(gradient)
            return
        # Also the addition of 0 decides a bit: -0 becomes 0.
        sums[-1].add_(0.0 if gradient is None else gradient)
        for _ in range(place.merges - 1):
            right = sums.pop()
            sums[-1].add_(right)

    def _add_rest(self, samples: int, place: Sum, given: set[int]) -> None:
        """As `_add_up`, where these gradients were added as soon as they were complete."""
        for number, (name, parameter) in enumerate(self.parameters):
            if number not in given:
                _refuse_sparse(name, parameter)
                self._add_tensor(number, parameter.grad, place)
            parameter.grad = None
        depth = 0 if place.is_first else self._depth
        sums = [kept.states for kept in self._sums[: max(depth, 1)]]
        self._take_state(sums[-1], float(samples), place.merges > 0)
        for _ in range(place.merges - 1):
            right = sums.pop()
            for left, value in zip(sums[-1], right, strict=True):
                left.add_(value)
        self._depth = 1

    def _gather(self, kept: _Kept, factor: float, adds: bool) -> None:
        """Copies the gradients and the state, times `factor`, into vectors, or adds them to what is there."""
        places, gradients = [], []
        for (name, parameter), place in zip(self.parameters, kept.gradients, strict=True):
            if parameter.grad is None:
                # Also this addition decides a bit: -0 becomes 0.
                place.add_(0.0) if adds else place.zero_()
                continue
            _refuse_sparse(name, parameter)
            places.append(place)
            gradients.append(parameter.grad)
            parameter.grad = None
        (torch._foreach_add_ if adds else torch._foreach_copy_)(places, gradients)
        self._take_state(kept.states, factor, adds)

    def _take_state(self, places: list[Tensor], factor: float, adds: bool) -> None:
        """The state that the micro-batch left, times `factor`."""
        for (_, buffer), place in zip(self.state, places, strict=True):
            if adds:
                place.add_(buffer * factor)
            else:
                place.copy_(buffer).mul_(factor)

    def _kept(self, gradient: Tensor, state: Tensor) -> _Kept:
        gradients = _views(gradient, [p for _, p in self.parameters])
        return _Kept(gradient, state, gradients, _views(state, [buffer for _, buffer in self.state]))

    def load(self, tensors: dict[str, Tensor], step: int) -> None:
        """A checkpoint's weights into the model."""
        with torch.no_grad():
            for kind, ours in (("parameters", self.parameters), ("state", self.state)):
                for name, tensor in ours:
                    tensor.copy_(tensors[f"{kind}/{name}"])
            for counter in self.counters:
                counter.fill_(step)


def _refuse_sparse(name: str, parameter: nn.Parameter) -> None:
    if parameter.grad is not None and parameter.grad.is_sparse:
        raise _errors.refuse(
            f"the gradient of {name} is sparse", "use dense layers, for example sparse=False"
        )


def _buffers(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Name, owner, key and tensor of every buffer, each once."""
    seen: set[int] = set()
    for path, owner in model.named_modules():
        for key, buffer in owner.named_buffers(recurse=False):
            if id(buffer) not in seen:
                seen.add(id(buffer))
                yield f"{path}.{key}" if path else key, owner, key, buffer


def _views(vector: Tensor, like: list[Tensor] | list[nn.Parameter]) -> list[Tensor]:
    """The parts of a flat vector, shaped as these tensors."""
    parts = vector.split([tensor.numel() for tensor in like]) if like else ()
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
