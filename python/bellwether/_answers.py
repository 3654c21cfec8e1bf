"""Questions that are answered without a run: `simulate`, `predict`, `fit_model`, `plan` and `capacity`.

The command answers them with the same functions.

Options have the names of the command's, with ``_`` for ``-``; what is not said is as it is there, and `bellwether VERB
--help` explains each. Times are seconds, texts such as ``"2h"``, or `datetime` values. Lists of answers are lists of
dataclasses, which ``pandas.DataFrame(answers)`` takes as they are.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bellwether import _native
from bellwether._errors import InputError

Path = str | os.PathLike[str]
Time = float | str | datetime.timedelta
"""Seconds, a text such as ``"2h"``, or a difference of times."""
Workers = int | str | range
"""One number, ``"1..8"`` or ``range(1, 9)``."""

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Simulation:
    """The figures of one policy: means over the seeds. Those of jobs that ended are NaN where none did."""

    policy: str
    seeds: int
    jobs: float
    finished: float
    unfinished: float
    refused: float
    avg_jct_s: float
    """Mean time from a job's arrival to its end."""
    median_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    avg_slowdown: float
    """Mean of that time over the time alone on the devices that were asked for."""
    makespan_s: float
    avg_queueing_s: float
    utilisation: float
    """Part of the offered device-seconds that jobs held."""
    device_hours: float
    preemptions: float
    restarts: float
    restarts_per_job: float
    max_rho: float
    p95_rho: float
    unfair: float
    """Part of the jobs with a rho above 1."""
    deadlines: float
    deadlines_met: float
    decisions: float
    decision_mean_s: float
    decision_max_s: float
    wall_s: float
    queues: list[dict[str, Any]] | None = None
    """The figures of each queue, by their names in the command's JSON; None if no job names a queue."""


@dataclass(frozen=True)
class Prediction:
    """Throughput of one number of workers."""

    workers: int
    examples_per_s: float
    low_examples_per_s: float
    """Lower end of the 95 % interval."""
    high_examples_per_s: float
    step_s: float
    bottleneck: str
    """``compute``, ``data``, ``link`` or ``server``."""
    efficiency: float
    """Throughput over that of the same workers each alone."""
    knee: bool
    """Whether workers beyond this number add less than half of what the first one does."""
    extrapolated: str | None
    """Why it lies beyond what was measured, if it does."""
    model: str
    staleness_updates: float | None
    """Updates by others between reading parameters and applying a gradient, where there are any."""


@dataclass(frozen=True)
class FittedKind:
    """A model of one kind of job."""

    name: str
    batch: int
    """Samples of a step: of all workers together where they wait for each other, else of one worker's."""
    servers: int
    measurements: int
    held_out_error: float | None
    """Mean relative error of each measurement as the others predict it; None where they are too few."""
    model: dict[str, Any]
    """The law with its parameters, as the file has them."""


@dataclass(frozen=True)
class FittedModels:
    """What `fit_model` made."""

    kinds: list[FittedKind]
    json: str = dataclasses.field(repr=False)
    """The models as a file, for `predict` and ``bellwether simulate --truth fitted:FILE``."""


@dataclass(frozen=True)
class PredictedPhase:
    """A phase of a whole run."""

    protocol: str
    from_step: int
    steps: int
    time_s: float
    examples_per_s: float
    low_examples_per_s: float
    high_examples_per_s: float
    model: str
    staleness_updates: float | None


@dataclass(frozen=True)
class PredictedRun:
    """A whole run with one number of workers."""

    workers: int
    time_s: float
    examples_per_s: float
    speedup: float
    """The time of the same steps in synchronous training, over this time."""
    phases: list[PredictedPhase]
    extrapolated: str | None


@dataclass(frozen=True)
class Machines:
    """Equal machines."""

    machine: str
    count: int
    device: str
    devices: int
    region: str | None
    market: str
    """``on_demand`` or ``transient``."""
    dollars_per_hour: float
    """Of one."""
    virtual_nodes: list[int] | None
    """Of each worker, where types of devices are mixed."""


@dataclass(frozen=True)
class Candidate:
    """One configuration, and what is expected of it."""

    machines: list[Machines]
    workers: int
    examples_per_s: float
    checkpoint_period_s: float | None
    time_s: float
    p95_time_s: float
    cost_dollars: float
    p95_cost_dollars: float
    meets_deadline: float | None
    """With this probability."""
    losses: float
    """Servers that are lost in an expected run."""
    runs: int
    """Simulated runs behind these figures."""
    way: dict[str, Any] | None
    """How its workers are kept together, where that was to be chosen: ``policy`` and ``servers``."""
    staleness_updates: float | None
    work_factor: float | None
    extrapolated: str | None


@dataclass(frozen=True)
class Relaxation:
    """A wish that could be given up, and what it would give."""

    say: str
    """What to say instead, in the words of the command line."""
    machines: str
    time_s: float
    cost_dollars: float


@dataclass(frozen=True)
class Plan:
    """The machines that one job should have."""

    job: str
    samples: float
    choice: Candidate | None
    """None where nothing fits; `relaxations` says what would."""
    reason: str
    relaxations: list[Relaxation]
    candidates: list[Candidate]
    """Those that no other one beats, fastest first."""
    on_demand: list[Candidate]
    searched: int
    simulated: int
    json: str = dataclasses.field(repr=False)
    """The plan as a file, for ``bellwether run --plan FILE``."""


@dataclass(frozen=True)
class CapacityMachines:
    """Equal machines of a cluster."""

    machine: str
    count: int
    market: str
    """``on_demand`` or ``transient``."""


@dataclass(frozen=True)
class CapacityCandidate:
    """A cluster under a policy, simulated to its end."""

    cluster: str
    """Its machines in words."""
    machines: list[CapacityMachines]
    policy: str
    cost_dollars: float
    """Until the last job has ended; the mean over the runs."""
    price_dollars_per_hour: float
    figures: dict[str, float]
    """Those of the objectives, means over the runs."""
    holds: bool
    is_pareto_optimal: bool
    runs: int
    runs_held: int
    """Runs that hold all objectives by themselves."""
    makespan_s: float
    utilisation: float
    revoked: float


@dataclass(frozen=True)
class Capacity:
    """The cheapest cluster that holds a service level."""

    objectives: list[str]
    choice: CapacityCandidate | None
    """None where nothing holds; `relaxations` says what could."""
    reason: str
    relaxations: list[tuple[str, CapacityCandidate]]
    """Objectives of which each alone could be relaxed, and what would be chosen then."""
    front: list[tuple[str, CapacityCandidate | None]]
    """Other service levels, where they were asked for, and the cheapest candidate for each."""
    candidates: list[CapacityCandidate]
    """Those that were simulated to their end, the cheapest first."""
    counts: dict[str, int]
    cluster_file: str | None = dataclasses.field(repr=False)
    """The choice as a cluster file, for `simulate`."""


def simulate(
    cluster: Path,
    trace: Path,
    policies: str | Sequence[str],
    *,
    remaining: str | None = None,
    truth: str | None = None,
    belief: str | None = None,
    seeds: int | None = None,
    trace_format: str | None = None,
    restart: Time | None = None,
    start: Time | None = None,
    round: Time | None = None,
    packing: bool = False,
    shared_links: bool = False,
    elastic: Workers | None = None,
    early: str | None = None,
    queues: Path | None = None,
) -> list[Simulation]:
    """The jobs of a trace on a cluster under every policy, as ``bellwether simulate`` runs them.

    `cluster`: a TOML file, or words such as "16x4". `trace`: a trace, or a generator (TOML). `policies`: names with
    their options, or "all". `truth`: how fast jobs are, such as "amdahl:0.1" or "profiles:FOLDER", where the profile of
    each model lies in NAME.json and that of a type of device in NAME/DEVICE.json; `belief`: the same as policies know
    it. `queues`: a TOML file of queues that divide the cluster. Raises InputError for what cannot be used.
    """
    options = {
        "cluster": cluster,
        "trace": trace,
        "policy": policies,
        "remaining": remaining,
        "truth": truth,
        "belief": belief,
        "seeds": seeds,
        "trace_format": trace_format,
        "restart": _span(restart),
        "start": _span(start),
        "round": _span(round),
        "packing": packing,
        "shared_links": shared_links,
        "elastic": elastic,
        "early": early,
        "queues": queues,
    }
    with _Errors():
        rows: list[dict[str, Any]] = json.loads(_native.simulate(_text(options)))
    return [_row(Simulation, row) for row in rows]


def fit_model(
    sources: Path | Sequence[Path],
    output: Path | None = None,
    *,
    bytes: int | str | None = None,
    law: str | None = None,
    state_dir: Path | None = None,
) -> FittedModels:
    """Models of jobs from what was measured of them, as ``bellwether fit`` makes them.

    `sources`: tables (``.csv``), profiles (``.json``) and runs, by folder or by name. `output`: a file that `predict`,
    `simulate` (``truth="fitted:FILE"``) and ``bellwether submit --profile`` take. `bytes`: what workers exchange in
    every step, where the sources do not say it. `law`: "all-reduce", "scaling" or "goodput" in place of the best one.
    Raises InputError for what cannot be used.
    """
    named = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    options = {
        "sources": [os.fspath(source) for source in named],
        "bytes": bytes,
        "law": law,
        "state_dir": state_dir,
    }
    with _Errors():
        text = _native.fit_model(_text(options))
    if output is not None:
        whole = f"{os.fspath(output)}.{os.getpid()}.tmp"
        with open(whole, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(whole, output)
    return FittedModels([_row(FittedKind, kind) for kind in json.loads(text)["kinds"]], text)


def predict(
    profile: Path | None = None,
    *,
    network: str | None = None,
    known: Path | None = None,
    kind: str | None = None,
    workers: Workers | None = None,
    protocol: str | None = None,
    reduce: str | None = None,
    nodes_per_update: int | None = None,
    servers: int | None = None,
    bandwidth: float | str | None = None,
    latency: Time | None = None,
    device: str | Sequence[str] | None = None,
    batch: int | None = None,
    model: str | None = None,
    order: str | None = None,
    seed: int | None = None,
) -> list[Prediction]:
    """Throughput for each number of workers, from a profile or what `fit_model` wrote, as ``bellwether predict`` says it.

    `kind`: which of several kinds that fitted models are of. `network`: in place of a profile a network that was never
    run, such as "operations=1.7G,tensors=104,bytes=7.4MB,device=k80", by regression over those of `known` or over 20
    built-in ones. `bandwidth`: of each link, as "10Gbps" or in bytes per second. `device`: "NAME=SPEED", relative to
    the profiled device, or "NAME=PROFILE.json", the profile of the same job that was measured on it; with ":COUNT" the
    workers are exactly these; one or a list. Raises InputError for what cannot be used.
    """
    return [_prediction(row) for row in _predicted(locals())]


def predict_run(
    profile: Path,
    steps: int,
    *,
    workers: Workers | None = None,
    sync: str | None = None,
    switch_at: float | None = None,
    switch_time: Time | None = None,
    reduce: str | None = None,
    nodes_per_update: int | None = None,
    servers: int | None = None,
    bandwidth: float | str | None = None,
    latency: Time | None = None,
    device: str | Sequence[str] | None = None,
    batch: int | None = None,
    model: str | None = None,
    order: str | None = None,
    seed: int | None = None,
) -> list[PredictedRun]:
    """The time of a whole run of `steps` steps for each number of workers, as ``bellwether predict --steps`` says it.

    `sync`: protocols in turn, such as "switch:0.0625". `device`: as of `predict`. Raises InputError for what
    cannot be used.
    """
    return [_run(row) for row in _predicted(locals())]


def plan(
    profile: Path,
    catalog: Path,
    *,
    deadline: Time | datetime.datetime | None = None,
    budget: float | str | None = None,
    confidence: float | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    samples: int | None = None,
    target_loss: float | None = None,
    curve: Path | None = None,
    protocols: str | Sequence[str] | None = None,
    servers: Workers | None = None,
    nodes_per_update: int | None = None,
    noise_scale: float | None = None,
    transient: bool = False,
    max_workers: int | None = None,
    region: str | Sequence[str] | None = None,
    runs: int | None = None,
    seed: int | None = None,
) -> Plan:
    """The machines that a job should have, from its profile and a price catalogue, as ``bellwether plan`` chooses them.

    A machine of the catalogue names the speed of its devices, relative to the profiled one, or in place of it the
    profile of the job that was measured on it. `steps`, `epochs` with `samples`, or `target_loss` with `curve` (an
    earlier run) say how much there is to train.
    `deadline`: a time from now, or a moment with its zone. `budget`: dollars. Where nothing fits, the plan has no
    choice. What was assumed is a warning. Raises InputError for what cannot be used.
    """
    options = locals()
    options["deadline"] = _moment(deadline) if isinstance(deadline, datetime.datetime) else _span(deadline)
    with _Errors():
        text, notes = _native.plan(_text(options))
    for note in notes:
        warnings.warn(note, stacklevel=2)
    found: dict[str, Any] = json.loads(text)
    candidates = [_candidate(row) for row in found["candidates"]]
    return Plan(
        job=found["job"],
        samples=found["samples"],
        choice=candidates[found["choice"]] if found.get("choice") is not None else None,
        reason=found["reason"],
        relaxations=[_row(Relaxation, row) for row in found.get("relaxations", [])],
        candidates=candidates,
        on_demand=[_candidate(row) for row in found.get("on_demand", [])],
        searched=found["searched"],
        simulated=found["simulated"],
        json=text,
    )


def capacity(
    workload: Path,
    catalog: Path,
    objective: str | Sequence[str],
    *,
    policy: str | Sequence[str] | None = None,
    transient: bool = False,
    max_machines: int | None = None,
    kinds: int | None = None,
    region: str | Sequence[str] | None = None,
    remaining: str | None = None,
    truth: str | None = None,
    belief: str | None = None,
    trace_format: str | None = None,
    restart: Time | None = None,
    start: Time | None = None,
    checkpoint: Time | None = None,
    round: Time | None = None,
    shared_links: bool = False,
    elastic: Workers | None = None,
    early: str | None = None,
    runs: int | None = None,
    seed: int | None = None,
    front: bool = False,
    exhaustive: bool = False,
) -> Capacity:
    """The cheapest cluster and policy that hold a service level, as ``bellwether capacity`` finds them.

    `workload`: a trace, or a generator (TOML). `objective`: such as "p95 completion < 2h", one or a list. Where nothing
    holds, the answer has no choice. What was assumed is a warning. Raises InputError for what cannot be used.
    """
    options = locals()
    for name in ("restart", "start", "checkpoint", "round"):
        options[name] = _span(options[name])
    with _Errors():
        text, notes = _native.capacity(_text(options))
    for note in notes:
        warnings.warn(note, stacklevel=2)
    found: dict[str, Any] = json.loads(text)
    candidates = [_cluster(row) for row in found["candidates"]]

    def of(place: int | None) -> CapacityCandidate | None:
        return None if place is None else candidates[place]

    return Capacity(
        objectives=found["objectives"],
        choice=of(found.get("choice")),
        reason=found["reason"],
        relaxations=[(row["say"], candidates[row["candidate"]]) for row in found.get("relaxations", [])],
        front=[(row["objective"], of(row["candidate"])) for row in found.get("front", [])],
        candidates=candidates,
        counts=found["counts"],
        cluster_file=found.get("cluster_file"),
    )


class _Errors:
    """Lets what the native module refuses be an `InputError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ValueError):
            raise InputError(str(error)) from None


def _predicted(options: dict[str, Any]) -> list[dict[str, Any]]:
    for name in ("latency", "switch_time"):
        options[name] = _span(options.get(name))
    if isinstance(options["bandwidth"], (int, float)):
        options["bandwidth"] = f"{options['bandwidth']}B/s"
    with _Errors():
        rows: list[dict[str, Any]] = json.loads(_native.predict(_text(options)))
    return rows


def _text(options: dict[str, Any]) -> str:
    """The options as the native module reads them."""

    def word(value: Any) -> Any:
        if isinstance(value, range):
            return f"{value.start}..{value.stop - 1}"
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        return list(value) if isinstance(value, tuple) else value

    return json.dumps({name: word(value) for name, value in options.items()}, allow_nan=False)


def _span(time: Time | None) -> str | None:
    """A length of time as the command reads it."""
    if isinstance(time, datetime.timedelta):
        time = time.total_seconds()
    return f"{time}s" if isinstance(time, (int, float)) else time


def _moment(moment: datetime.datetime) -> str:
    if moment.tzinfo is None:
        raise InputError("--deadline: a moment without a zone\n  hint: write datetime.now(timezone.utc) + …")
    return moment.isoformat()


def _row(kind: type[_Row], values: dict[str, Any], **more: Any) -> _Row:
    """A dataclass by the names of its fields; a number that is null is not a number, everything else is None."""
    given = {**values, **more}

    def value(field: dataclasses.Field[Any]) -> Any:
        found = given.get(field.name)
        return math.nan if found is None and field.type == "float" else found

    return kind(**{field.name: value(field) for field in dataclasses.fields(kind)})  # type: ignore[arg-type]


def _interval(row: dict[str, Any]) -> dict[str, Any]:
    """The fields of a prediction that the command names without their units."""
    return {
        "low_examples_per_s": row["low"],
        "high_examples_per_s": row["high"],
        "staleness_updates": row.get("staleness"),
    }


def _beyond(row: dict[str, Any]) -> str | None:
    """Why a prediction lies beyond what was measured."""
    validity = row["validity"]
    return validity.get("extrapolated") if isinstance(validity, dict) else None


def _prediction(row: dict[str, Any]) -> Prediction:
    return _row(Prediction, row, extrapolated=_beyond(row), **_interval(row))


def _run(row: dict[str, Any]) -> PredictedRun:
    phases = [_row(PredictedPhase, phase, **_interval(phase)) for phase in row["stretches"]]
    return _row(PredictedRun, row, extrapolated=_beyond(row), phases=phases)


def _candidate(row: dict[str, Any]) -> Candidate:
    machines = [_row(Machines, group) for group in row["machines"]]
    return _row(Candidate, row, machines=machines, staleness_updates=row.get("staleness"))


def _cluster(row: dict[str, Any]) -> CapacityCandidate:
    return _row(CapacityCandidate, row, machines=[_row(CapacityMachines, group) for group in row["machines"]])
