"""PyTorch models on Bellwether: the loop stays yours.

    run = bw.Run(model, optimizer, scheduler, data=train_set, batch_size=64, virtual_nodes=8)
    for epoch, batches in enumerate(run.epochs(5)):
        for x, y in batches:
            run.backward(F.cross_entropy(model(x), y))
        ...  # once per epoch, with the trained weights

In a worker the inner loop gives micro-batches until the run ends, and the process ends with it. In the lead it gives
none: what follows it runs once per epoch, when that epoch's weights are in `model`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bellwether import _errors

try:
    import torch
except ModuleNotFoundError as error:
    raise _errors.missing(error, "'bellwether[torch]'") from None

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from bellwether import _trace
from bellwether import data as _data
from bellwether._declare import Declaration
from bellwether._errors import BellwetherError
from bellwether._lead import Checkpoint, Lead, Listeners
from bellwether._loop import Evaluate, Gradient, Session, builds, join
from bellwether._native import SampleOrder
from bellwether._role import Role, is_lead, role
from bellwether._torch_data import Feed, Loading, first_part, seed_all
from bellwether._torch_model import Vectors, be_deterministic, check, guard, kernel_class
from bellwether._torch_rules import AVERAGE, OwnRule, Table, restore, tabulate, translated
from bellwether._torch_trace import Recorder

__all__ = ["BellwetherError", "Run", "is_lead", "load", "train"]

Metrics = Callable[[nn.Module, Any], tuple[int, int]]
"""``(model, batch) -> (right predictions, predictions)``."""

Predict = Callable[[nn.Module, Tensor], Tensor]
"""``(model, rows) -> scores``, where `rows` are float32 of shape (rows, numbers); a row of scores for each."""


class Run:
    """Training of one model, by any number of workers."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        scheduler: Any = None,
        *,
        data: Any,
        batch_size: int,
        virtual_nodes: int,
        collate: Callable[[list[Any]], Any] | None = None,
        clip_norm: float | None = None,
        ema: float | None = None,
        num_workers: int = 0,
        held_out: Any = None,
        metrics: Metrics | None = None,
        device: str = "auto",
        threads: int = 1,
        seed: int = 0,
        name: str | None = None,
        workers: int | str | None = None,
        schedule_by: str = "step",
        state: Iterable[str] = (),
        loader_options: dict[str, Any] | None = None,
        order_block: int | None = None,
        predict: Predict | None = None,
        stop: dict[str, Any] | None = None,
        overlap: bool = True,
        exchange: str | None = None,
        optimizer_copies: int | None = None,
    ) -> None:
        """What is trained, and how a step is cut.

        `data`, `held_out`: anything with a length and an index; `collate` joins its samples (PyTorch's own without).
        `batch_size`: samples of an optimizer step, over all workers, in `virtual_nodes` equal parts.
        `clip_norm`: largest norm of the gradient of the whole batch.
        `ema`: decay of a moving average of the weights, such as 0.999; see `averaged`.
        `metrics`: counts right predictions on a held-out batch.
        `device`: of the workers; "auto" is a GPU where there is one. `threads`: of a worker, part of the kernel class.
        `workers`: their number, or a range "1..4".
        `schedule_by`: whether `scheduler` is stepped every "step" or every "epoch".
        `state`: names of float32 buffers that a step changes, beside those of batch normalisation.
        `loader_options`: of the `DataLoader` where `num_workers` > 0.
        `order_block`: samples that lie next to each other, such as those of a shard, and are visited together: blocks are
        permuted, and the samples inside of each; decides bits.
        `predict`: what `bellwether infer` computes of rows; without it ``model(rows)``, where each row has the shape of a
        sample's first part.
        `stop`: what ends the run before its last step, as the table `[stop]` of a job file: ``{"accuracy": 0.97}``, for
        example, or ``{"patience": 5}`` of evaluations that bring nothing.
        `overlap`: whether gradients leave while the backward pass computes others; not where the loop's body changes them
        after `run.backward`. Decides no bits.
        `exchange`: numbers in which gradients are summed over virtual nodes and travel, "f32" or "bf16", which takes half
        the bytes; decides bits.

        `optimizer_copies`: workers that hold each part of the optimizer's state, which they share then; decides no bits.
        None: each worker holds the whole.

        Raises BellwetherError, which names the line and what to write, for what cannot be trained so.
        """
        builds()
        check(model)
        for samples, what in ((data, "data"), (held_out, "held_out")):
            if samples is not None:
                _data.require_map_style(samples, what)
        if schedule_by not in ("step", "epoch"):
            raise _errors.refuse(f'schedule_by is "{schedule_by}"', 'write "step" or "epoch"')
        if len(data) < batch_size:
            raise _errors.refuse(
                f"the data are {len(data)} samples, fewer than a batch of {batch_size}", "lower batch_size"
            )
        if batch_size % virtual_nodes:
            raise _errors.refuse(
                f"a batch of {batch_size} is not cut into {virtual_nodes} equal virtual nodes",
                "let virtual_nodes divide batch_size",
            )
        if ema is not None and not 0.0 < ema < 1.0:
            raise _errors.refuse(f"ema is {ema}", "write a decay between 0 and 1, such as 0.999")
        self._ema = ema
        self._averages: dict[str, Tensor] = {}
        self._model, self._optimizer, self._scheduler = model, optimizer, scheduler
        self._vectors = Vectors(model, list(state))
        self._loading = Loading(data, collate)
        self._held_out = Loading(held_out, collate) if held_out is not None else None
        self._sizes = (batch_size, virtual_nodes)
        self._clip_norm, self._metrics = clip_norm, metrics
        self._processes, self._loader_options = num_workers, loader_options or {}
        self._device = _device(device, self._vectors.parameters[0][1])
        self._threads, self._seed = threads, seed
        self._name, self._workers, self._by = name, workers, schedule_by
        self._order_block = order_block
        self._predict = predict
        self._stop = stop
        self._overlap = overlap
        self._exchange = exchange
        self._optimizer_copies = optimizer_copies
        self._batches: _Batches | None = None
        self._rule: OwnRule | None = None
        self._lead: Lead | None = None
        self._listeners = Listeners()
        self.epoch = 0
        """In the lead: the epoch that was trained last, counted from 0."""
        self.step = 0
        """In a worker: the step of the present micro-batch. In the lead: the steps trained so far."""

    def epochs(self, count: int, *, hold: bool = False) -> Iterable[Iterable[Any]]:
        """The micro-batches of so many epochs.

        In a worker it yields once, all micro-batches of the run. In the lead it yields once per epoch, when that
        epoch is trained and its weights are in the model, and no micro-batches. Leaves by SystemExit in a worker
        when the run is over, and in the lead if it was stopped (0) or failed (1).

        `hold`: after each epoch the workers wait until the lead comes to the next one. A `break`, or `stop`, ends the
        run with that epoch's weights.
        """
        self._only_once()
        declaration = self._declare(epochs=count, hold=hold)
        return self._work(declaration) if role() is Role.WORKER else self._follow(declaration, count)

    def steps(self, count: int) -> Iterable[Any]:
        """The micro-batches of so many optimizer steps, as one loop.

        In the lead it yields nothing, and ends when the run has, with the trained weights in the model.
        """
        self._only_once()
        declaration = self._declare(steps=count)
        if role() is Role.WORKER:
            return self._join(declaration)
        for _ in self._follow(declaration, 1):
            pass
        return ()

    def stop(self, reason: str = "the script ends it") -> None:
        """In the lead, in a loop over ``run.epochs(…, hold=True)``: the run ends with this epoch and its weights.

        The loop ends when it comes to the next epoch; what follows it runs as usual. `reason` is for people.
        """
        if self._lead is not None:
            self._lead.end(reason)

    def on_evaluation(self, call: Callable[[int, float, float | None], object]) -> None:
        """In the lead, calls ``call(step, loss, accuracy)`` for each evaluation of the held-out data.

        It is called while the lead waits for the run, between two epochs; `accuracy` is None without `metrics`.
        """
        self._listeners.evaluated.append(call)

    def on_checkpoint(self, call: Callable[[int, Path], object]) -> None:
        """In the lead, calls ``call(step, path)`` for each checkpoint, while the lead waits for the run."""
        self._listeners.checkpointed.append(call)

    def backward(self, loss: Tensor, weight: float | None = None) -> None:
        """Takes the loss of a micro-batch: the mean over its samples, or over `weight` of anything (valid tokens).

        The gradient of the whole batch is the mean over all of them, whatever part a virtual node has.
        """
        if self._batches is None:
            raise _errors.refuse(
                "run.backward(loss) outside of the loop", "call it in the loop over run.epochs or run.steps"
            )
        self._batches.take_loss(loss, weight)

    def _only_once(self) -> None:
        if self._batches is not None:
            raise _errors.refuse(
                "a Run is trained once, and this one was", "make another Run for another training"
            )

    def _declare(
        self, epochs: int | None = None, steps: int | None = None, hold: bool = False
    ) -> Declaration:
        batch_size, virtual_nodes = self._sizes
        samples = len(self._loading.data)
        per_epoch = -(-samples // batch_size)
        total = steps if steps is not None else (epochs or 0) * per_epoch
        period = per_epoch if self._by == "epoch" else 1
        self._table = tabulate(self._optimizer, self._scheduler, total, period)
        rule, schedule = self._choose_rule(self._table)
        return Declaration(
            layout=self._vectors.layout,
            batch_size=batch_size,
            virtual_nodes=virtual_nodes,
            training_samples=samples,
            held_out_samples=len(self._held_out.data) if self._held_out is not None else 0,
            optimizer=rule,
            schedule=schedule,
            epochs=epochs,
            steps=steps,
            seed=self._seed,
            name=self._name,
            workers=self._workers,
            device=self._device.type,
            threads=self._threads,
            evaluate_every=per_epoch if self._held_out is not None else None,
            checkpoint_every=per_epoch if epochs is not None else None,
            order_block=self._order_block,
            stop=self._stop,
            exchange=self._exchange,
            optimizer_copies=self._optimizer_copies,
            verdict_every=per_epoch if hold else 0,
        )

    def _choose_rule(self, table: Table) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The runtime's rule and schedule where it has the optimizer's, and the optimizer itself elsewhere."""
        # The runtime's own rules keep no average.
        ours = translated(self._optimizer, table, self._clip_norm) if self._ema is None else None
        if ours is not None:
            return ours
        self._rule = OwnRule(self._optimizer, self._vectors.parameters, table, self._ema)
        return self._rule.declaration(self._clip_norm), None

    def _work(self, declaration: Declaration) -> Iterator[Iterable[Any]]:
        """In a worker: once, all micro-batches."""
        yield self._join(declaration)
        raise _errors.refuse(
            "the loop is left before the run is over",
            "use run.steps(n) for a shorter run, or `bellwether stop`",
        )

    def _join(self, declaration: Declaration) -> _Batches:
        be_deterministic(self._threads)
        guard()
        restrain(self._optimizer, self._scheduler)
        batch_size, virtual_nodes = self._sizes
        order = SampleOrder(len(self._loading.data), batch_size, virtual_nodes, self._seed, self._order_block)
        feed = Feed(self._loading, order, self._processes, self._loader_options)
        rule = self._rule
        session = join(
            declaration,
            self._kernel_class(),
            self._vectors.attach(self._device),  # type: ignore[arg-type]
            rule.piece if rule is not None else None,
            rule,
            feed.assign,
            self._vectors.keeps_sums,
            self._scores,
        )
        self._batches = _Batches(self, session, feed, self._device)
        return self._batches

    def _scores(self, values: NDArray[np.float32], fresh: bool) -> NDArray[np.float32]:
        """In a worker: the model's scores of rows, in inference mode."""
        self._vectors.begin(fresh, 0)
        modes = [(module, module.training) for module in self._model.modules()]
        seed_all(0)
        self._model.eval()
        rows = torch.from_numpy(values.copy())
        with torch.no_grad():
            if self._predict is not None:
                scores = self._predict(self._model, rows.to(self._device))
            else:
                like = first_part(self._loading.data)
                if rows.shape[1] != like.numel():
                    raise _errors.refuse(
                        f"a row has {rows.shape[1]} numbers, and a sample of the model has {like.numel()}",
                        "leave the column of the labels out, or write predict=… in bellwether.torch.Run",
                    )
                rows = rows.reshape(len(rows), *like.shape).to(self._device, like.dtype)
                scores = self._model(rows)
        for module, mode in modes:
            module.training = mode
        return scores.detach().to(torch.float32).cpu().reshape(len(scores), -1).numpy()

    def _kernel_class(self) -> str:
        data, fixed = _data.digest(self._loading.data, seed_all), self._vectors.fixed_digest()
        return f"{kernel_class(self._device, self._threads)}; data {data}; fixed {fixed}"

    def _follow(self, declaration: Declaration, parts: int) -> Iterator[Iterable[Any]]:
        """In the lead: once per epoch, when it is trained."""
        lead = Lead(declaration, self._vectors.initial(), self._vectors.plain(), self._listeners)
        self._lead = lead
        torch.set_num_threads(self._threads)
        released = restrain(self._optimizer, self._scheduler, self._is_by_epoch)
        try:
            for part, checkpoint in lead.parts(parts, declaration.steps_per_epoch):
                self._open(checkpoint)
                self.epoch = part
                yield ()
        finally:
            released()

    def _is_by_epoch(self) -> None:
        """The scheduler is stepped in the lead, where no micro-batch is computed: once per epoch."""
        if self._by == "step":
            raise _errors.refuse(
                "scheduler.step() is called once per epoch, and the run stepped the schedule in every step",
                'write schedule_by="epoch" in bellwether.torch.Run',
            )

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """In the lead, with `ema=`: the model has the averaged weights inside of ``with run.averaged():``."""
        if self._ema is None:
            raise _errors.refuse(
                "run.averaged() without an average", "write ema=0.999 in bellwether.torch.Run"
            )
        own = {name: parameter.detach().clone() for name, parameter in self._vectors.parameters}
        self._put(self._averages)
        try:
            yield
        finally:
            self._put(own)

    def _put(self, values: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self._vectors.parameters:
                if name in values:
                    parameter.copy_(values[name])

    def _open(self, checkpoint: Checkpoint) -> None:
        tensors, _ = _read(checkpoint.path)
        self._vectors.load(tensors, checkpoint.step)
        prefix = f"optimizer/{AVERAGE}/"
        self._averages = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
        self.step = checkpoint.step
        for number, group in enumerate(self._optimizer.param_groups):
            group["lr"] = self._table.rate(number, checkpoint.step)


class _Batches:
    """The micro-batches of a worker, until the run ends."""

    def __init__(self, run: Run, session: Session, feed: Feed, device: torch.device) -> None:
        self._run, self._session, self._feed, self._device = run, session, feed, device
        self._request: Gradient | Evaluate | None = None
        self._loss: tuple[float, float] | None = None
        self._batch: Any = None
        self._waited = 0.0
        self._modes = [(module, module.training) for module in run._model.modules()]
        self._trace = _trace.of_environment(Recorder)

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        """Answers for the micro-batch before, and waits for the next one. Leaves by SystemExit after the last."""
        if self._request is not None:
            self._answer(self._request)
        try:
            self._request = self._session.next()
        except SystemExit:
            self._feed.close()
            raise
        self._loss = None
        if (
            self._trace is not None
            and isinstance(self._request, Gradient)
            and not self._trace.at(self._request.step)
        ):
            self._trace = None
        self._batch = self._begin(self._request)
        return self._batch

    def take_loss(self, loss: Tensor, weight: float | None) -> None:
        """Computes the gradient of a loss, or notes it where the held-out set is evaluated."""
        if self._request is None:
            raise _errors.refuse("run.backward(loss) outside of the loop", "call it once in the loop's body")
        if self._loss is not None:
            raise _errors.refuse(
                "run.backward is called twice in a micro-batch", "add the losses, and call it once"
            )
        if loss.dim() != 0:
            raise _errors.refuse(f"the loss has the shape {tuple(loss.shape)}", "write loss.mean()")
        factor = float(len(self._request.samples) if weight is None else weight)
        if isinstance(self._request, Gradient):
            # The gradient of the sum, without a product in the graph.
            loss.backward(torch.full_like(loss, factor))
        self._loss = (loss.item() * factor, factor)

    def _begin(self, request: Gradient | Evaluate) -> Any:
        vectors = self._run._vectors
        if isinstance(request, Gradient):
            give = self._session.part if self._run._overlap else None
            vectors.begin(request.fresh, request.step, request.sum, give)
        else:
            vectors.begin(request.fresh, 0)
        if isinstance(request, Gradient):
            self._run.step = request.step
            batch, self._waited = self._feed.batch(request.samples, request.seed)
            seed_all(request.seed)
        else:
            held_out = self._run._held_out
            assert held_out is not None, "only a job with held-out samples is evaluated"
            batch = held_out(request.samples, 0)
            seed_all(0)
            self._run._model.eval()
            torch.set_grad_enabled(False)
        return batch if self._device.type == "cpu" else _moved(batch, self._device)

    def _answer(self, request: Gradient | Evaluate) -> None:
        if self._loss is None:
            raise _errors.refuse(
                "the loop's body ended a micro-batch without run.backward(loss)", "call it once in it"
            )
        total, weight = self._loss
        if isinstance(request, Gradient):
            self._run._vectors.finish(len(request.samples), request.sum)
            self._session.loss(total, weight, self._waited)
            return
        metrics = self._run._metrics
        right, predictions = metrics(self._run._model, self._batch) if metrics is not None else (0, 0)
        torch.set_grad_enabled(True)
        for module, mode in self._modes:
            module.training = mode
        self._session.evaluation(total, int(right), int(predictions))


def restrain(
    optimizer: Optimizer, scheduler: Any, stepped: Callable[[], None] | None = None
) -> Callable[[], None]:
    """Lets the steps of an optimizer and a scheduler do nothing: the runtime does them.

    `stepped` is called when the scheduler is stepped. Returns what lets them do their work again.
    """
    undo: list[Callable[[], None]] = []

    def replace(thing: Any, name: str, by: Callable[..., None]) -> None:
        before = thing.__dict__.get(name)
        thing.__dict__[name] = by
        undo.append(lambda: thing.__dict__.update({name: before}) if before else thing.__dict__.pop(name))

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def step(*_: Any, **__: Any) -> None:
        if stepped is not None:
            stepped()

    for name in ("step", "zero_grad"):
        replace(optimizer, name, nothing)
    if scheduler is not None:
        replace(scheduler, "step", step)

    def release() -> None:
        for action in undo:
            action()

    return release


def _device(name: str, parameter: Tensor) -> torch.device:
    """The device of a worker: of several GPUs it sees one."""
    if name != "auto":
        return torch.device(torch.device(name).type)
    if parameter.device.type != "cpu":
        return torch.device(parameter.device.type)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _moved(batch: Any, device: torch.device) -> Any:
    """A batch with all its tensors on a device."""
    if torch.is_tensor(batch):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return type(batch)({key: _moved(part, device) for key, part in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_moved(part, device) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(_moved(part, device) for part in batch)
    return batch


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], int]:
    """The tensors of a checkpoint, and the steps that it has behind it."""
    from safetensors import safe_open

    with safe_open(os.fspath(path), framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
        step = int((file.metadata() or {}).get("step", 0))
    return tensors, step


def load(model: nn.Module, checkpoint: str | os.PathLike[str], optimizer: Optimizer | None = None) -> int:
    """Puts a checkpoint of a run into a plain model, and its optimizer's state into `optimizer`.

    `checkpoint` is a file of a run's folder `checkpoints`. Returns the steps that it has behind it. Raises
    BellwetherError if its tensors are not those of the model, and names the first that is not.
    """
    tensors, step = _read(Path(checkpoint))
    names = {key.removeprefix("state/") for key in tensors if key.startswith("state/")}
    vectors = Vectors(model, sorted(names))
    ours = {
        f"{kind}/{name}": t
        for kind, part in (("parameters", vectors.parameters), ("state", vectors.state))
        for name, t in part
    }
    theirs = {key for key in tensors if not key.startswith("optimizer/")}
    for key in sorted(theirs ^ ours.keys()):
        where = "the model" if key in theirs else "the checkpoint"
        raise _errors.refuse(
            f"{os.fspath(checkpoint)}: {key} is not in {where}", "build the model that was trained"
        )
    for key, tensor in ours.items():
        if tuple(tensors[key].shape) != tuple(tensor.shape):
            shapes = f"{tuple(tensors[key].shape)} there and {tuple(tensor.shape)} in the model"
            raise _errors.refuse(
                f"{os.fspath(checkpoint)}: {key} is {shapes}", "build the model that was trained"
            )
    vectors.load(tensors, step)
    if optimizer is not None:
        slots = {
            key.removeprefix("optimizer/"): t for key, t in tensors.items() if key.startswith("optimizer/")
        }
        restore(optimizer, vectors.parameters, step, slots)
    return step


def train(
    model: nn.Module,
    loss_fn: Callable[[nn.Module, Any], Tensor],
    optimizer: Optimizer,
    scheduler: Any = None,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    on_epoch: Callable[[int, nn.Module], object] | None = None,
    **options: Any,
) -> nn.Module:
    """Trains a model in one call: ``train(model, lambda m, b: m(**b).loss, optimizer, data=…, epochs=3, …)``.

    `options` are those of `Run`; exactly one of `epochs` and `steps` is given. With `on_epoch` the workers wait after
    each epoch until ``on_epoch(epoch, model)`` has returned in the lead; False ends the run there. Returns the model
    with its trained weights; in a worker it does not return.
    """
    if (epochs is None) == (steps is None):
        raise _errors.refuse("exactly one of epochs and steps is needed", "write epochs=3, for example")
    if on_epoch is not None and epochs is None:
        raise _errors.refuse("on_epoch is called for epochs", "write epochs=3, for example, instead of steps")
    run = Run(model, optimizer, scheduler, **options)
    if steps is not None:
        for batch in run.steps(steps):
            run.backward(loss_fn(model, batch))
        return model
    for batches in run.epochs(epochs or 0, hold=on_epoch is not None):
        for batch in batches:
            run.backward(loss_fn(model, batch))
        if on_epoch is not None and on_epoch(run.epoch, model) is False:
            run.stop(f"on_epoch returned False after epoch {run.epoch}")
    return model
