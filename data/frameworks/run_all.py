"""Repeats the whole experiment, interleaved, in three rounds; each step's command is `measure.py`.

In each round every job is timed alone and measured with another number of workers behind both links, so that what
changes on the machine in the meantime changes all of them. Loops that run only when nothing else does keep the
processors busy: a hyperthread is slower beside a busy one, and one process alone would otherwise look too fast.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RATES = ("100mbit", "1gbit")
JOBS = [
    *(
        ("torch", model, batch)
        for model, batches in (("cnn", (8, 32)), ("lstm", (4, 16)), ("transformer", (8, 24)))
        for batch in batches
    ),
    *(
        ("tensorflow", model, batch)
        for model, batches in (("cnn", (16, 64)), ("lstm", (8, 32)), ("transformer", (8, 32)))
        for batch in batches
    ),
]


def main() -> None:
    """Runs all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", required=True, help="a Python with torch")
    parser.add_argument("--tensorflow", required=True, help="a Python with TensorFlow 2.13")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rounds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--frameworks", nargs="+", default=["torch", "tensorflow"])
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True, parents=True)
    pythons = {"torch": options.torch, "tensorflow": options.tensorflow}
    begin = time.time()

    def measure(what: str, framework: str, output: str, *words: str) -> None:
        command = [
            sys.executable,
            "-B",
            str(HERE / "measure.py"),
            what,
            "--framework",
            framework,
            "--python",
            pythons[framework],
            "--work",
            str(options.output / "work"),
            "--output",
            str(options.output / output),
            *words,
        ]
        print(f"{time.time() - begin:7.1f}", what, framework, *words, flush=True)
        for attempt in range(2):
            if subprocess.run(command).returncode == 0:
                return
            print("failed, attempt", attempt, flush=True)

    spin = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"
    spinners = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(os.cpu_count() or 1)]
    try:
        for number in options.rounds:
            for rate in RATES:
                if "torch" in options.frameworks:
                    for workers in (2, 3, 4):
                        measure(
                            "all-reduce", "torch", "all_reduce.csv", "--rate", rate, "--workers", str(workers)
                        )
                if "tensorflow" in options.frameworks:
                    measure("pull-push", "tensorflow", "pull_push.csv", "--rate", rate, "--workers", "1")
            for place, (framework, model, batch) in enumerate(JOBS):
                if framework not in options.frameworks:
                    continue
                job = ["--model", model, "--batch", str(batch)]
                if number == 0:
                    suffix = ".json" if framework == "torch" else ""
                    measure("trace", framework, f"trace-{framework}-{model}-{batch}{suffix}", *job)
                measure("alone", framework, "alone.jsonl", *job, "--seconds", "5")
                workers = 2 + (place + number) % 3
                for rate in RATES:
                    measure(
                        "measure", framework, "measured.csv", *job, "--rate", rate, "--workers", str(workers)
                    )
    finally:
        for spinner in spinners:
            spinner.kill()


if __name__ == "__main__":
    main()
