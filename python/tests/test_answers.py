# Environments: torch
"""`simulate`, `predict`, `plan` and `capacity` answer what the command prints."""

import dataclasses
import datetime
import json
import math
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runs import COMMAND, ROOT

import bellwether

PROFILE = ROOT / "examples/plan/resnet32-k80.json"
CATALOG = ROOT / "examples/plan/published-2019.toml"
CLUSTER = ROOT / "examples/simulate/cluster.toml"
WORKLOAD = ROOT / "examples/simulate/workload.toml"
MEASURED = {"decision_mean_s", "decision_max_s", "wall_s"}
"""Times of this machine."""
NAMES = {
    "low": "low_examples_per_s",
    "high": "high_examples_per_s",
    "staleness": "staleness_updates",
    "stretches": "phases",
}


def printed(*arguments: object) -> Any:
    """What the command prints as JSON."""
    command = [COMMAND, *map(str, arguments), "--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def refusal(*arguments: object) -> str:
    """What the command says of bad input."""
    ended = subprocess.run([COMMAND, *map(str, arguments)], check=False, capture_output=True, text=True)
    assert ended.returncode == 2, ended
    return ended.stderr


class Answers(unittest.TestCase):
    """Each test asks the command and the package the same."""

    def assert_same(self, answer: Any, row: dict[str, Any]) -> None:
        """The fields of an answer are what the command printed; a field that it left out is none."""
        given = dataclasses.asdict(answer)
        for key, value in row.items():
            name = NAMES.get(key, key)
            if key == "validity":
                name, value = "extrapolated", value.get("extrapolated") if isinstance(value, dict) else None
            if name == "phases":
                for phase, theirs in zip(answer.phases, value, strict=True):
                    self.assert_same(phase, theirs)
            elif name == "machines" and isinstance(value, list):
                for group, theirs in zip(answer.machines, value, strict=True):
                    self.assert_same(group, theirs)
            elif name not in MEASURED:
                self.assertEqual(given[name], value, name)
            given.pop(name)
        left = {name: value for name, value in given.items() if value is not None}
        self.assertEqual({k: v for k, v in left.items() if not (isinstance(v, float) and math.isnan(v))}, {})

    def test_fit_model(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table, file = Path(folder) / "job.csv", Path(folder) / "fitted.json"
            table.write_text("workers,batch,step_s\n1,64,0.64\n2,64,0.34\n4,64,0.19\n8,64,0.115\n")
            models = bellwether.fit_model(table, file, bytes="1MiB")
            theirs = Path(folder) / "theirs.json"
            printed("fit", table, "-o", theirs, "--bytes", "1MiB")
            self.assertEqual(json.loads(models.json), json.loads(theirs.read_text()))
            [kind] = models.kinds
            self.assertEqual((kind.name, kind.measurements), ("job", 4))
            for ours in (
                bellwether.predict(file, workers=range(1, 5)),
                bellwether.predict(file, kind="job", workers="1..4"),
            ):
                for answer, row in zip(ours, printed("predict", theirs, "--workers", "1..4"), strict=True):
                    self.assert_same(answer, row)
            with self.assertRaisesRegex(bellwether.InputError, "no kind `other`"):
                bellwether.predict(file, kind="other")
            table.write_text("workers,step_s\n1,x\n")
            with self.assertRaisesRegex(bellwether.InputError, "line 2"):
                bellwether.fit_model([table])

    def test_devices_with_profiles_of_their_own(self) -> None:
        devices = [f"one={PROFILE}:2", f"other={PROFILE}:1", "third=2.5:1"]
        options = [word for device in devices for word in ("--device", device)]
        theirs = printed("predict", PROFILE, *options, "--bandwidth", "1Gbps")
        ours = bellwether.predict(PROFILE, device=devices, bandwidth="1Gbps")
        for answer, row in zip(ours, theirs, strict=True):
            self.assert_same(answer, row)
        with self.assertRaisesRegex(bellwether.InputError, "none.json"):
            bellwether.predict(PROFILE, device="other=none.json")

    def test_networks_by_regression(self) -> None:
        network = "operations=1.7G,tensors=104,bytes=7.4MB,device=k80"
        options = ("--network", network, "--bandwidth", "1Gbps", "--workers", "1..3")
        ours = bellwether.predict(network=network, bandwidth="1Gbps", workers="1..3")
        for answer, row in zip(ours, printed("predict", *options), strict=True):
            self.assert_same(answer, row)

    def test_simulate(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            workload = Path(folder) / "workload.toml"
            text = WORKLOAD.read_text()
            self.assertIn("jobs = 4800", text)
            workload.write_text(text.replace("jobs = 4800", "jobs = 200"))
            options = ("--cluster", CLUSTER, "--trace", workload, "--policy", "fifo,las", "--seeds", 2)
            theirs = printed("simulate", *options)
            ours = bellwether.simulate(CLUSTER, workload, ["fifo", "las"], seeds=2)
        self.assertEqual([one.policy for one in ours], ["fifo", "las"])
        for answer, row in zip(ours, theirs, strict=True):
            self.assert_same(answer, row)

    def test_simulate_with_queues(self) -> None:
        examples = ROOT / "examples/simulate"
        queues, teams = examples / "queues.toml", examples / "teams.toml"
        theirs = printed(
            "simulate", "--cluster", "16x4", "--trace", teams, "--policy", "srtf", "--queues", queues
        )
        ours = bellwether.simulate("16x4", teams, "srtf", queues=queues)
        for answer, row in zip(ours, theirs, strict=True):
            self.assert_same(answer, row)
            names = {queue["queue"] for queue in answer.queues or []}
            self.assertEqual(names, {"product", "sweeps", "research/vision", "research/speech"})

    def test_predict(self) -> None:
        theirs = printed(
            "predict", PROFILE, "--workers", "1..5", "--bandwidth", "10Gbps", "--latency", "50us"
        )
        ours = bellwether.predict(PROFILE, workers=range(1, 6), bandwidth="10Gbps", latency=50e-6)
        for answer, row in zip(ours, theirs, strict=True):
            self.assert_same(answer, row)
        fine = ["--protocol", "asp", "--servers", 2, "--model", "fine", "--seed", 3, "--bandwidth", "1GB/s"]
        stale = printed("predict", PROFILE, "--workers", 4, *fine)
        [one] = bellwether.predict(
            PROFILE, workers=4, protocol="asp", servers=2, model="fine", seed=3, bandwidth=1e9
        )
        self.assert_same(one, stale[0])
        self.assertIsNotNone(one.staleness_updates)

    def test_a_whole_run(self) -> None:
        options = ["--steps", 1000, "--switch-at", 0.25, "--switch-time", "3s", "--bandwidth", "10Gbps"]
        theirs = printed("predict", PROFILE, "--workers", 3, *options)
        [ours] = bellwether.predict_run(
            PROFILE,
            1000,
            workers=3,
            switch_at=0.25,
            switch_time=datetime.timedelta(seconds=3),
            bandwidth="10Gbps",
        )
        self.assertEqual(len(ours.phases), 2)
        self.assert_same(ours, theirs[0])

    def test_plan(self) -> None:
        options = ["--steps", 20000, "--deadline", "2h", "--budget", "5", "--transient", "--seed", 7]
        theirs = printed("plan", PROFILE, "--catalog", CATALOG, *options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours = bellwether.plan(
                PROFILE, CATALOG, steps=20000, deadline=7200, budget=5, transient=True, seed=7
            )
        self.assertEqual(json.loads(ours.json), theirs)
        for answer, row in zip(ours.candidates, theirs["candidates"], strict=True):
            self.assert_same(answer, row)
        self.assertEqual(ours.choice, ours.candidates[theirs["choice"]])
        moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)
        later = bellwether.plan(PROFILE, CATALOG, steps=20000, deadline=moment)
        self.assertIsNotNone(later.choice)

    def test_a_plan_that_nothing_fits_has_no_choice(self) -> None:
        plan = bellwether.plan(PROFILE, CATALOG, steps=64000, deadline="1min")
        self.assertIsNone(plan.choice)
        self.assertTrue(plan.relaxations)

    def test_capacity(self) -> None:
        folder = ROOT / "examples/capacity"
        objective = "p95 completion < 4h"
        options = ["--objective", objective, "--policy", "fifo,srtf", "--runs", 1, "--restart", "1min"]
        theirs = printed("capacity", folder / "workload.toml", "--catalog", folder / "prices.toml", *options)
        ours = bellwether.capacity(
            folder / "workload.toml",
            folder / "prices.toml",
            objective,
            policy=["fifo", "srtf"],
            runs=1,
            restart=60,
        )
        for answer, row in zip(ours.candidates, theirs["candidates"], strict=True):
            self.assert_same(answer, row)
        self.assertEqual(ours.choice, ours.candidates[theirs["choice"]])
        self.assertEqual((ours.reason, ours.counts), (theirs["reason"], theirs["counts"]))
        nothing = bellwether.capacity(
            folder / "workload.toml", folder / "prices.toml", "max completion < 1min", runs=1, max_machines=2
        )
        self.assertIsNone(nothing.choice)
        self.assertTrue(nothing.relaxations)

    def test_bad_input_raises_what_the_command_says(self) -> None:
        missing = ROOT / "no-such-profile.json"
        questions: list[tuple[Callable[[], object], tuple[object, ...]]] = [
            (lambda: bellwether.predict(missing), ("predict", missing)),
            (lambda: bellwether.predict(PROFILE), ("predict", PROFILE)),
            (
                lambda: bellwether.predict(PROFILE, bandwidth="fast"),
                ("predict", PROFILE, "--bandwidth", "fast"),
            ),
            (lambda: bellwether.plan(PROFILE, CATALOG), ("plan", PROFILE, "--catalog", CATALOG)),
            (
                lambda: bellwether.simulate("16x4", WORKLOAD, "ffo"),
                ("simulate", "--cluster", "16x4", "--trace", WORKLOAD, "--policy", "ffo"),
            ),
            (
                lambda: bellwether.simulate("16x4", WORKLOAD, "fifo", seeds=0),
                ("simulate", "--cluster", "16x4", "--trace", WORKLOAD, "--policy", "fifo", "--seeds", 0),
            ),
        ]
        for ask, arguments in questions:
            with self.subTest(arguments=arguments), self.assertRaises(bellwether.InputError) as raised:
                ask()
            # The parser of arguments says where in words of its own.
            said, theirs = str(raised.exception), refusal(*arguments)
            self.assertIn(said.split("\n")[0].split(": ", 1)[1], theirs)
            self.assertIsInstance(raised.exception, ValueError)

    def test_the_package_imports_nothing_that_costs_time(self) -> None:
        code = (
            "import sys, bellwether; print([n for n in sys.modules if n in ('numpy', 'bellwether._native')])"
        )
        ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        self.assertEqual(ended.stdout.strip(), "[]")


if __name__ == "__main__":
    unittest.main()
