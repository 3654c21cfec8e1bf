"""Gradients that leave tensor by tensor, while the backward pass computes the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from bellwether import _errors

Take = Callable[[int, Tensor], None]
"""``(number, gradient)``: takes the gradient of the parameter with this number, which is complete."""


@dataclass
class _Seen:
    """A gradient as the backward pass left it."""

    gradient: Tensor
    version: int

    def is_as_it_was(self, parameter: nn.Parameter) -> bool:
        """Whether it is still that parameter's, and has not been written to since."""
        return parameter.grad is self.gradient and self.gradient._version == self.version


class Parts:
    """Watches the gradients of a model's parameters as they get complete.

    In the first micro-batch that could go in parts it only looks on. Where a gradient is written to after the backward
    pass has left it, by the loop's body or by a second pass, gradients are taken at the end of the body, as elsewhere.
    """

    def __init__(self, parameters: list[tuple[str, nn.Parameter]]) -> None:
        self._parameters = parameters
        self._is_trusted: bool | None = None
        self._watches = False
        self._take: Take | None = None
        self._seen: dict[int, _Seen] = {}
        self._written: set[int] = set()
        for number, (_, parameter) in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._arrived, number))

    def begin(self, take: Take | None) -> None:
        """A micro-batch begins; `take` is told of its gradients, unless they can only be taken at its end."""
        self._seen.clear()
        self._written.clear()
        self._watches = take is not None and self._is_trusted is not False
        self._take = take if self._is_trusted else None

    def end(self) -> set[int]:
        """The body of the micro-batch is over: the numbers of the gradients that were taken."""
        if not self._watches:
            return set()
        self._watches = False
        written = self._written | {
            number
            for number, seen in self._seen.items()
            if not seen.is_as_it_was(self._parameters[number][1])
        }
        if self._take is None:
            self._is_trusted = not written
            return set()
        if written:
            raise _errors.refuse(
                f"the gradient of {self._parameters[min(written)][0]} changed after the backward pass had left it, "
                "and part of the run has it as it was",
                "write overlap=False in bellwether.torch.Run: gradients are then taken at the end of the loop's body",
            )
        return set(self._seen)

    def _arrived(self, number: int, parameter: Tensor) -> None:
        if not self._watches:
            return
        gradient = parameter.grad
        if gradient is None or gradient.is_sparse:
            return
        if number in self._seen:
            self._written.add(number)
            return
        self._seen[number] = _Seen(gradient, gradient._version)
        if self._take is not None:
            with torch.no_grad():
                self._take(number, gradient)
