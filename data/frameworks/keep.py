"""Trims the traces of an experiment to what `bellwether profile --import` reads, and packs them.

PyTorch: operators inside others of the same thread go, but those that tell sizes; so do arguments that are not read.
TensorFlow: the profiler's file becomes the JSON of its trace viewer (this needs the package xprof); marks of the
executor itself go. Four steps of each trace stay.
"""

import argparse
import glob
import gzip
import json
from pathlib import Path
from typing import Any

KEPT_ARGUMENTS = {"Input Dims", "Input type", "In msg nelems", "Collective name", "dtype"}
TELLING = (
    "allreduce",
    "all_reduce",
    "AccumulateGrad",
    "evaluate_function",
    "aten::linear",
    "aten::conv",
    "embedding",
)
STEPS = 4
Event = dict[str, Any]


def trimmed(events: list[Event]) -> list[Event]:
    """Events of PyTorch's last steps without what is inside others."""
    events = [e for e in events if e.get("ph") == "X" and "ts" in e]
    marks = sorted(e["ts"] for e in events if e["name"].startswith("ProfilerStep#"))
    begin = marks[max(0, len(marks) - STEPS - 1)]
    kept: list[Event] = []
    until: dict[Any, float] = {}
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        if event["ts"] < begin or event.get("cat") not in ("cpu_op", "user_annotation"):
            continue
        telling = event["cat"] == "user_annotation" or any(word in event["name"] for word in TELLING)
        inside = event["ts"] + event["dur"] <= until.get(event["tid"], 0.0)
        if not telling and inside:
            continue
        if event["cat"] == "cpu_op" and not inside:
            until[event["tid"]] = event["ts"] + event["dur"]
        arguments = {k: v for k, v in event.get("args", {}).items() if k in KEPT_ARGUMENTS and telling}
        kept.append(
            {**{k: event[k] for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}, "args": arguments}
        )
    return kept


def viewed(folder: Path) -> dict[str, Any]:
    """The trace of TensorFlow's profiler as its viewer has it."""
    from xprof.convert import raw_to_tool_data

    file = glob.glob(str(folder / "plugins/profile/*/*.xplane.pb"))[-1]
    data, _ = raw_to_tool_data.xspace_to_tool_data([file], "trace_viewer", {})
    trace: dict[str, Any] = json.loads(data)
    events = trace["traceEvents"]
    marks = sorted(e["ts"] for e in events if e.get("args", {}).get("step_name") and "ts" in e)
    begin = sorted(set(marks))[-STEPS - 1 if len(set(marks)) > STEPS else 0]
    executor = ("Executor", "Threadpool", "TensorHandle", "EagerCopy", "TFE_")
    wanted = [e for e in events if e and not e.get("name", "").startswith(executor)]
    trace["traceEvents"] = [e for e in wanted if e.get("ph") == "M" or e.get("ts", 0) >= begin]
    return trace


def main() -> None:
    """Packs all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True, parents=True)
    for path in sorted(options.experiment.glob("trace-*")):
        if path.suffix == ".json":
            trace = json.loads(path.read_text())
            trace = {"schemaVersion": trace["schemaVersion"], "traceEvents": trimmed(trace["traceEvents"])}
        else:
            trace = viewed(path)
        name = path.stem.removeprefix("trace-") + ".json.gz"
        packed = gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), 9, mtime=0)
        options.output.joinpath(name).write_bytes(packed)
        print(name, len(packed))


if __name__ == "__main__":
    main()
