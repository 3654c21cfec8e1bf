"""PyTorch's optimizers and schedulers as update rules of a run.

SGD, Adam and AdamW with one parameter group become the runtime's own rules. Every other optimizer is applied in
pieces, by itself: its update must be element by element, which is tested before the run begins.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.optim import Optimizer

from bellwether import _errors
from bellwether._declare import canonical
from bellwether._loop import PIECE
from bellwether._rules import Vector, is_elementwise

TABLE_MAX = 16_384
"""Most entries of a schedule's table; longer ones go with an own rule."""

_DUMMY = 8
"""Elements of the vector whose rule is advanced for the scalars of its state."""

Settings = dict[str, Any]
"""Hyper-parameters of a group, without its parameters."""


def settings_of(group: dict[str, Any]) -> Settings:
    """The hyper-parameters of a group, with plain numbers in place of tensors."""
    plain = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    return {key: value.item() if torch.is_tensor(value) else value for key, value in plain.items()}


def _clone(optimizer: Optimizer, settings: Settings, parameter: torch.nn.Parameter) -> Optimizer:
    """An optimizer of the same kind for one parameter, without state. Its constructor does not run again."""
    clone = copy.copy(optimizer)
    # A scheduler, or a run, put a method of the original in the place of the class's.
    for name in ("step", "zero_grad"):
        clone.__dict__.pop(name, None)
    # Fused kernels treat the last few elements of a vector in another way: pieces would have other bits.
    unfused = {"fused": False} if settings.get("fused") else {}
    clone.param_groups = [{**settings, **unfused, "params": [parameter]}]
    clone.state = defaultdict(dict)
    return clone


@dataclass(frozen=True)
class Table:
    """The settings of every group by step: what a scheduler would set."""

    rates: list[list[float]]
    """Learning rates by group, then by step; the last one of each holds on."""

    def rate(self, group: int, step: int) -> float:
        """The learning rate of a group in a step."""
        rates = self.rates[group]
        return rates[min(step, len(rates) - 1)]

    def digest(self) -> str:
        """32 hexadecimal digits."""
        return hashlib.blake2b(canonical(self.rates).encode(), digest_size=16).hexdigest()


def tabulate(optimizer: Optimizer, scheduler: Any, steps: int, period: int = 1) -> Table:
    """The learning rates of `steps` steps, from a copy of the scheduler that is stepped every `period` steps.

    Raises BellwetherError for a scheduler that looks at more than the step, or moves more than the rate.
    """
    groups = optimizer.param_groups
    if scheduler is None:
        return Table([[float(group["lr"])] for group in groups])
    name = type(scheduler).__name__
    parts = [scheduler, *getattr(scheduler, "_schedulers", [])]
    if any(isinstance(part, torch.optim.lr_scheduler.ReduceLROnPlateau) for part in parts):
        raise _errors.refuse(
            f"{name} looks at a metric, and the learning rate must depend on the step only",
            "write a schedule by step, such as CosineAnnealingLR or LambdaLR",
        )
    dummy = copy.copy(optimizer)
    dummy.__dict__.pop("step", None)
    dummy.param_groups = [dict(group) for group in groups]
    twin = copy.deepcopy(scheduler, {id(optimizer): dummy})
    # A scheduler counts the steps of its optimizer only to warn of a wrong order.
    dummy.__dict__["step"] = lambda *_, **__: None
    before = [_others(group) for group in dummy.param_groups]
    rates: list[list[float]] = [[] for _ in groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(steps):
            if step and step % period == 0:
                twin.step()
            for row, group in zip(rates, dummy.param_groups, strict=True):
                row.append(float(group["lr"]))
    if [_others(group) for group in dummy.param_groups] != before:
        raise _errors.refuse(
            f"{name} moves more than the learning rate",
            "switch that off, for example by cycle_momentum=False",
        )
    return Table([_trimmed(row) for row in rates])


def _others(group: dict[str, Any]) -> Settings:
    return {key: value for key, value in settings_of(group).items() if key != "lr"}


def _trimmed(row: list[float]) -> list[float]:
    """The row without repetitions of its last entry."""
    end = len(row)
    while end > 1 and row[end - 1] == row[end - 2]:
        end -= 1
    return row[:end]


def translated(
    optimizer: Optimizer, table: Table, clip_norm: float | None
) -> tuple[Settings, Settings | None] | None:
    """The runtime's rule and schedule for an optimizer; None where the runtime has none like it."""
    kinds = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
    kind = kinds.get(type(optimizer))
    factors = table.rates[0]
    if kind is None or len(optimizer.param_groups) != 1 or optimizer.state or len(factors) > TABLE_MAX:
        return None
    group = settings_of(optimizer.param_groups[0])
    unlike = ("maximize", "amsgrad", "dampening", "differentiable", "capturable")
    rate = max(factors)
    if any(group.get(key) for key in unlike) or not rate > 0:
        return None
    rule: Settings = {"kind": kind, "learning_rate": rate, "weight_decay": float(group["weight_decay"])}
    if kind == "sgd":
        rule |= {"momentum": float(group["momentum"]), "nesterov": bool(group["nesterov"])}
    else:
        rule |= {"betas": [float(beta) for beta in group["betas"]], "epsilon": float(group["eps"])}
    if clip_norm is not None:
        rule["clip_norm"] = clip_norm
    schedule = {"kind": "table", "factors": [factor / rate for factor in factors]}
    return rule, schedule if len(factors) > 1 or factors[0] != rate else None


def _plain(value: Any) -> Any:
    """A value as JSON has it; of what JSON has not, the type."""
    if torch.is_tensor(value):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value if isinstance(value, (bool, int, float, str)) or value is None else type(value).__qualname__


def _is_vector(value: Any) -> bool:
    return torch.is_tensor(value) and value.dim() > 0


def _copied(state: Settings) -> Settings:
    return {key: value.clone() if torch.is_tensor(value) else value for key, value in state.items()}


def _scalars(state: Settings) -> Settings:
    """The part of a parameter's state that is no vector."""
    return _copied({key: value for key, value in state.items() if not _is_vector(value)})


def _short(state: Settings) -> Settings:
    """The state of a parameter, as one of `_DUMMY` elements has it."""
    ones = torch.ones(_DUMMY)
    return {key: ones.clone() if _is_vector(value) else value for key, value in _copied(state).items()}


class _Group:
    """A parameter group of an optimizer, applied to any piece of its parameters."""

    def __init__(self, optimizer: Optimizer, number: int, table: Table) -> None:
        self.kind = type(optimizer).__name__
        self.settings = settings_of(optimizer.param_groups[number])
        self._original = optimizer
        self._table, self._number = table, number
        states = [optimizer.state.get(parameter) for parameter in optimizer.param_groups[number]["params"]]
        known = [state for state in states if state]
        self._is_begun = bool(known)
        first = known[0] if known else {}
        if any(_plain(_scalars(state)) != _plain(_scalars(first)) for state in known):
            raise _errors.refuse(
                f"the parameters of one group of {self.kind} are at different steps", "begin afresh"
            )
        self.slots = self._find_slots(first)
        self._parameter = torch.nn.Parameter(torch.zeros(1))
        self._optimizer = _clone(optimizer, self.settings, self._parameter)
        # What the state that is no vector is after a number of steps: it depends on nothing else.
        self._history: dict[int, Settings] = {0: _scalars(first)}
        self._test()

    def apply(self, step: int, parameters: Vector, slots: list[Vector], gradient: Vector) -> Settings:
        """Updates a piece in place; `slots` are this group's. Returns the state that is no vector."""
        optimizer, parameter = self._optimizer, self._parameter
        values = torch.from_numpy(parameters)
        state = self.scalars_after(step)
        # Before its first step a rule makes its own slots, unless its constructor did.
        if step > 0 or self._is_begun:
            state |= {name: torch.from_numpy(slot) for name, slot in zip(self.slots, slots, strict=True)}
        parameter.data = values
        parameter.grad = torch.from_numpy(gradient)
        optimizer.param_groups[0]["lr"] = self._table.rate(self._number, step)
        optimizer.state.clear()
        if state:
            optimizer.state[parameter] = state
        optimizer.step()
        left = optimizer.state[parameter]
        for name, slot in zip(self.slots, slots, strict=True):
            _bring(left[name], slot)
        _bring(parameter, parameters)
        return _scalars(left)

    def scalars_after(self, step: int) -> Settings:
        """The state that is no vector after `step` steps."""
        if step not in self._history:
            known = max(past for past in self._history if past < step)
            self._history[step] = self._advanced(known, step)
            # Steps are done again, but not many: the beginning and the last few are enough.
            for past in sorted(self._history)[1:-4]:
                del self._history[past]
        return _copied(self._history[step])

    def _advanced(self, known: int, step: int) -> Settings:
        dummy, parameter = self._dummy()
        state = _copied(self._history[known])
        if known > 0 or self._is_begun:
            dummy.state[parameter] = state | {name: torch.ones(_DUMMY) for name in self.slots}
        for past in range(known, step):
            dummy.param_groups[0]["lr"] = self._table.rate(self._number, past)
            dummy.step()
        return _scalars(dummy.state[parameter])

    def _dummy(self) -> tuple[Optimizer, torch.nn.Parameter]:
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, _DUMMY))
        parameter.grad = torch.linspace(0.5, -0.25, _DUMMY)
        return _clone(self._original, self.settings, parameter), parameter

    def _find_slots(self, first: Settings) -> list[str]:
        """The names of the vectors that the rule keeps, in the order of their making."""
        dummy, parameter = self._dummy()
        if first:
            dummy.state[parameter] = _short(first)
        try:
            dummy.step()
            dummy.step()
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot update a part of the parameters by itself ({error})") from None
        vectors = {key: value for key, value in dummy.state[parameter].items() if _is_vector(value)}
        for key, value in vectors.items():
            if value.shape != (_DUMMY,) or value.dtype != torch.float32:
                kind = f"{str(value.dtype).removeprefix('torch.')} of the shape {tuple(value.shape)}"
                raise self._refuse(
                    f"keeps `{key}` as {kind}, and slots are float32 and shaped as the parameters"
                )
        return list(vectors)

    def _test(self) -> None:
        """Refuses a rule whose pieces are other bits than the whole, or whose numbers depend on gradients."""
        before = self._own_settings()

        def apply(step: int, _start: int, parameters: Vector, slots: list[Vector], gradient: Vector) -> None:
            left = self.apply(step, parameters, slots, gradient)
            if _plain(left) != _plain(self.scalars_after(step + 1)):
                raise RuntimeError("it keeps a number that depends on the gradients")
            if self._own_settings() != before:
                raise RuntimeError("it changes its settings while it trains")

        try:
            elementwise = is_elementwise(apply, len(self.slots))
        except Exception as error:  # noqa: BLE001 (an optimizer is user code)
            raise self._refuse(f"cannot be applied in pieces ({error})") from None
        if not elementwise:
            raise self._refuse("looks at whole tensors: its update differs in pieces")

    def _own_settings(self) -> Any:
        """The settings that its clone has now, without the learning rate, which is set for every step."""
        return _plain(settings_of(self._optimizer.param_groups[0]) | {"lr": None})

    def _refuse(self, what: str) -> _errors.BellwetherError:
        return _errors.refuse(
            f"{self.kind} {what}", "element-wise ones work (AdamW, RAdam, NAdam, RMSprop …)"
        )


def _bring(tensor: torch.Tensor, array: Vector) -> None:
    """Copies a tensor to an array, unless it lies there already."""
    values = tensor.detach().numpy()
    if values.__array_interface__["data"] != array.__array_interface__["data"]:
        array[:] = values


@dataclass(frozen=True)
class _Stretch:
    """Neighbouring parameters of one group, by their place in the flat vector."""

    start: int
    end: int
    group: int


AVERAGE = "ema"
"""The slot of the moving average of the parameters."""


class OwnRule:
    """An optimizer of the user's, applied to pieces of the flat vectors."""

    def __init__(
        self,
        optimizer: Optimizer,
        parameters: list[tuple[str, torch.nn.Parameter]],
        table: Table,
        ema: float | None = None,
    ) -> None:
        """`parameters`: those of the layout, in its order. `ema`: the decay of a moving average of the parameters.

        Raises BellwetherError if the optimizer cannot be applied in pieces.
        """
        self._ema = ema
        self._optimizer = optimizer
        self._table = table
        self._parameters = parameters
        self._groups = [_Group(optimizer, number, table) for number in range(len(optimizer.param_groups))]
        self._stretches = _stretches(optimizer, parameters)
        self.slots = list(dict.fromkeys(slot for group in self._groups for slot in group.slots))
        if ema is not None and AVERAGE in self.slots:
            raise _errors.refuse(
                f"{type(optimizer).__name__} keeps a slot `{AVERAGE}` itself", "leave ema= out"
            )
        self.slots += [AVERAGE] if ema is not None else []
        slots = [np.zeros(PIECE, np.float32) for _ in self.slots]
        self.piece = (np.zeros(PIECE, np.float32), np.zeros(PIECE, np.float32), slots)

    def declaration(self, clip_norm: float | None) -> Settings:
        """The table ``[optimizer]`` of the job."""
        places = [[stretch.start, stretch.end, stretch.group] for stretch in self._stretches]
        text = canonical(
            {
                "groups": [_plain(group.settings | {"lr": None}) for group in self._groups],
                "places": places if len(self._groups) > 1 else [],
                "rates": self._table.digest(),
            }
            | ({"ema": self._ema} if self._ema is not None else {})
        )
        rule: Settings = {
            "kind": "own",
            "name": type(self._optimizer).__name__,
            "settings": text,
            "slots": self.slots,
        }
        return rule if clip_norm is None else rule | {"clip_norm": clip_norm}

    def update(self, step: int, start: int, length: int) -> None:
        """Updates the piece that stands in `piece`."""
        parameters, gradient, slots = self.piece
        self.apply(step, start, parameters[:length], [slot[:length] for slot in slots], gradient[:length])

    def apply(self, step: int, start: int, parameters: Vector, slots: list[Vector], gradient: Vector) -> None:
        """Updates a piece of the flat vectors, which begins at `start`, in place."""
        if step == 0 and self._optimizer.state:
            self._first_slots(start, slots)
        average = slots[-1] if self._ema is not None else None
        if average is not None and step == 0:
            average[:] = parameters
        end = start + len(parameters)
        for stretch in self._stretches:
            first, last = max(start, stretch.start), min(end, stretch.end)
            if first < last:
                part = slice(first - start, last - start)
                group = self._groups[stretch.group]
                kept = [slots[self.slots.index(name)][part] for name in group.slots]
                group.apply(step, parameters[part], kept, gradient[part])
        if average is not None:
            average += np.float32(1.0 - (self._ema or 0.0)) * (parameters - average)

    def groups_of_parameters(self) -> list[_Group]:
        """The group of each parameter, in the order of the layout."""
        places = {id(p): n for n, group in enumerate(self._optimizer.param_groups) for p in group["params"]}
        return [self._groups[places[id(parameter)]] for _, parameter in self._parameters]

    def _first_slots(self, first: int, slots: list[Vector]) -> None:
        """Fills the slots with the state that the user's optimizer has before the first step."""
        last = first + len(slots[0]) if slots else first
        start = 0
        for _, parameter in self._parameters:
            end = start + parameter.numel()
            low, high = max(first, start), min(last, end)
            state = self._optimizer.state.get(parameter) or {}
            for name, slot in zip(self.slots, slots, strict=True):
                if low < high and name in state:
                    values = state[name].detach().reshape(-1).numpy()
                    slot[low - first : high - first] = values[low - start : high - start]
            start = end


def _stretches(optimizer: Optimizer, parameters: list[tuple[str, torch.nn.Parameter]]) -> list[_Stretch]:
    """Where the parameters of each group lie."""
    groups = {
        id(parameter): number
        for number, group in enumerate(optimizer.param_groups)
        for parameter in group["params"]
    }
    stretches: list[_Stretch] = []
    end = 0
    for name, parameter in parameters:
        number = groups.get(id(parameter))
        if number is None:
            raise _errors.refuse(
                f"{name} is trained and in no group of {type(optimizer).__name__}",
                "give the optimizer all parameters, or say requires_grad_(False) of those that stay as they are",
            )
        start, end = end, end + parameter.numel()
        if stretches and stretches[-1].group == number:
            start = stretches.pop().start
        stretches.append(_Stretch(start, end, number))
    return stretches


def restore(
    optimizer: Optimizer,
    parameters: list[tuple[str, torch.nn.Parameter]],
    step: int,
    slots: dict[str, torch.Tensor],
) -> None:
    """Gives an optimizer the state of a checkpoint: `slots` by ``SLOT/NAME``, after `step` steps."""
    theirs = {"momentum": "momentum_buffer", "moment1": "exp_avg", "moment2": "exp_avg_sq"}
    rule = OwnRule(optimizer, parameters, Table([[float(group["lr"])] for group in optimizer.param_groups]))
    found: dict[str, Settings] = {}
    for key, values in slots.items():
        slot, name = key.split("/", 1)
        if slot == AVERAGE:
            continue
        found.setdefault(name, {})[theirs.get(slot, slot)] = values
    for stretch_group, (name, parameter) in zip(rule.groups_of_parameters(), parameters, strict=True):
        optimizer.state[parameter] = stretch_group.scalars_after(step) | found.get(name, {})
