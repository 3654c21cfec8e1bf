"""Predicts every measured point from the traces and what was measured apart, by the command, and prints the table.

The predictions see no row of `measured.csv`: a profile is a trace of one process, the plain step times of one process,
and bare exchanges of other sizes over the same link.
"""

import argparse
import csv
import json
import subprocess
from pathlib import Path
from typing import Any

# Part of a core that each process has (`measure.py`).
SHARE = 0.2
HERE = Path(__file__).parent


def rows_of(path: Path, columns: list[str]) -> list[dict[str, str]]:
    """Rows of a file without header."""
    with open(path) as file:
        return [dict(zip(columns, row)) for row in csv.reader(file)]


def apart(data: Path, framework: str, model: str, batch: int, rate: str) -> dict[str, Any]:
    """The file for `--apart`: a processor second takes 1/SHARE seconds."""
    runs = [json.loads(line) for line in (data / "alone.jsonl").read_text().splitlines()]
    mine = [
        run["steps_s"]
        for run in runs
        if (run["framework"], run["model"], run["batch"]) == (framework, model, batch)
    ]
    known: dict[str, Any] = {"version": 1, "samples": batch, "steps_s": mine}
    if framework == "torch":
        rows = rows_of(
            data / "all_reduce.csv", ["rate", "workers", "bytes", "seconds", "processor_s", "load"]
        )
        known["all_reduce"] = [
            {
                "workers": int(row["workers"]),
                "bytes": int(row["bytes"]),
                "seconds": float(row["seconds"]),
                "handling_s": float(row["processor_s"]) / SHARE,
            }
            for row in rows
            if row["rate"] == rate
        ]
    else:
        columns = ["rate", "parts", "bytes", "seconds", "server_s", "worker_s", "load"]
        known["pull_push"] = [
            {
                "parts": int(row["parts"]),
                "bytes": int(row["bytes"]),
                "seconds": float(row["seconds"]),
                "handling_s": max(float(row["server_s"]), float(row["worker_s"])) / SHARE,
            }
            for row in rows_of(data / "pull_push.csv", columns)
            if row["rate"] == rate
        ]
    return known


def main() -> None:
    """Predicts and compares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=HERE)
    parser.add_argument("--command", default="bellwether")
    parser.add_argument("--model", default="auto", choices=["auto", "fine"], help="for parameter servers")
    options = parser.parse_args()
    columns = ["kind", "model", "batch", "rate", "workers", "samples_per_s", "steps", "load"]
    errors: dict[str, list[float]] = {}
    held: dict[str, int] = {}
    kept = []
    print(
        f"{'job':<24}{'link':>8}{'workers':>8}{'predicted':>11}{'interval':>19}{'measured':>10}{'error %':>9}"
    )
    points = rows_of(options.data / "measured.csv", columns)
    points.sort(key=lambda p: (p["kind"], p["model"], int(p["batch"]), p["rate"], int(p["workers"])))
    for point in points:
        framework = "torch" if point["kind"] == "ddp" else "tensorflow"
        name = f"{framework}-{point['model']}-{point['batch']}"
        file = options.data / "apart" / f"{name}-{point['rate']}.json"
        file.parent.mkdir(exist_ok=True)
        known = apart(options.data, framework, point["model"], int(point["batch"]), point["rate"])
        file.write_text(json.dumps(known, separators=(",", ":")) + "\n")
        profile = options.data / "apart" / "profile.json"
        trace = options.data / "traces" / f"{name}.json.gz"
        importing = [
            options.command,
            "profile",
            "--import",
            str(trace),
            "--apart",
            str(file),
            "-o",
            str(profile),
        ]
        subprocess.run(importing, check=True, capture_output=True)
        workers = point["workers"]
        how = (
            [] if framework == "torch" else ["--protocol", "asp", "--servers", "1", "--model", options.model]
        )
        asking = [
            options.command,
            "predict",
            str(profile),
            "--workers",
            f"{workers}..{workers}",
            "--format",
            "json",
            *how,
        ]
        said = json.loads(subprocess.run(asking, check=True, capture_output=True).stdout)
        answer = said[0]
        profile.unlink()
        measured = float(point["samples_per_s"])
        error = 100 * (answer["examples_per_s"] / measured - 1)
        inside = answer["low"] <= measured <= answer["high"]
        errors.setdefault(point["kind"], []).append(abs(error))
        held[point["kind"]] = held.get(point["kind"], 0) + inside
        kept.append(
            [
                name,
                point["rate"],
                workers,
                f"{answer['examples_per_s']:.4f}",
                f"{answer['low']:.4f}",
                f"{answer['high']:.4f}",
                point["samples_per_s"],
            ]
        )
        interval = f"{answer['low']:.2f}–{answer['high']:.2f}"
        print(
            f"{name:<24}{point['rate']:>8}{workers:>8}{answer['examples_per_s']:>11.2f}{interval:>19}"
            f"{measured:>10.2f}{error:>+9.1f}{'' if inside else '  outside'}  {answer['bottleneck']}"
        )
    for kind, each in errors.items():
        mean, inside = sum(each) / len(each), 100 * held[kind] / len(each)
        print(
            f"{kind}: {len(each)} points, mean {mean:.1f} %, worst {max(each):.1f} %, {inside:.0f} % inside"
        )
    with open(options.data / "predicted.csv", "w") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["job", "link", "workers", "predicted", "low", "high", "measured"], *kept]
        )


if __name__ == "__main__":
    main()
