"""A script on the whole road: profile, predict, plan, submit, crash, resize, and back in the plain framework."""

import json
import os
import subprocess
import sys
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np
from digits import accuracy
from runs import COMMAND, EXAMPLES, ROOT, Place, Trained, environment_without, is_led, kill_newest, members

from bellwether._declare import VARIABLES

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
"""


class Road(unittest.TestCase):
    """An example that is long enough for something to happen; every verb takes it."""

    example: ClassVar[str]
    """The script's name."""
    changes: ClassVar[dict[str, str]] = {}
    """What is written otherwise."""
    imports: ClassVar[str]
    """What it imports, once for all processes but those of the job that is submitted."""
    framework: ClassVar[str]
    """What the profile says of where it was measured."""
    trace: ClassVar[str] = "plugins/profile/*/*.xplane.pb"
    """A file that the framework's own profiler leaves."""

    place: Place
    script: Path
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place(cls.imports)
        cls.script = cls.variant("train.py", cls.changes)
        cls.plain = cls.place.train(cls.script, "--workers", "1")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def setUp(self) -> None:
        self.state = self.place.path / self._testMethodName
        self.state.mkdir()
        self.assertEqual(self.plain.code, 0, self.plain.log)

    @classmethod
    def variant(cls, name: str, changes: dict[str, str]) -> Path:
        """The example with other words in some places."""
        text = (EXAMPLES / cls.example).read_text()
        for before, after in {
            'Path(__file__).parents[2] / "data': f'Path("{ROOT}") / "data',
            **changes,
        }.items():
            assert before in text, f"{cls.example} has no {before}"
            text = text.replace(before, after)
        path = cls.place.path / name
        path.write_text(text)
        return path

    def start(self, *arguments: str, bare: bool = False, **more: Any) -> subprocess.Popen[str]:
        """Starts a verb with this test's state directory; `bare`: where nothing says which framework is meant."""
        environment = environment_without(VARIABLES if bare else ()) | {
            "BELLWETHER_STATE_DIR": str(self.state)
        }
        command = [os.environ["BELLWETHER_COMMAND"], *arguments]
        return subprocess.Popen(command, cwd=self.state, env=environment, text=True, **more)

    def call(self, *arguments: str, code: int = 0) -> str:
        """Runs a verb to its end; what it printed."""
        process = self.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=180)
        self.assertEqual(process.returncode, code, err)
        return out if code == 0 else err

    def wait_for(self, what: str, check: Callable[[], Any]) -> Any:
        """Waits until `check` gives something."""
        until = time.monotonic() + 90
        while time.monotonic() < until:
            found = check()
            if found:
                return found
            time.sleep(0.01)
        self.fail(f"{what} did not come: {self.journal()[-3:]}")

    def journal(self) -> list[dict[str, Any]]:
        """All events of this test's runs."""
        paths = list(self.state.glob("*/journal.jsonl"))
        lines = [line for path in paths for line in path.read_text().splitlines(keepends=True)]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def told(self, kind: str) -> list[dict[str, Any]]:
        """The events of this kind."""
        return [event for event in self.journal() if event["event"] == kind]

    def committed(self, step: int) -> bool:
        """Whether the run is beyond this step."""
        return any(event["last"] >= step for event in self.told("committed"))

    def digest(self) -> str:
        """Of the run that ended last."""
        return str(self.told("ended")[-1]["params_digest"])

    def accuracy_of(self, checkpoint: Path) -> float:
        """Of a checkpoint on the held-out digits, by the plain framework."""
        raise NotImplementedError

    def test_from_a_profile_to_the_plain_framework(self) -> None:
        """Measured, predicted, planned, submitted, struck by a crash, resized, and opened in the framework."""
        options = ("--steps", "4", "--framework-trace", "traces", "-o", "profile.json")
        self.call("profile", "--python", self.place.python, str(self.script), *options)
        self.assertTrue(list((self.state / "traces").glob(self.trace)))
        profile = json.loads((self.state / "profile.json").read_text())
        self.assertEqual(profile["batch"], 64)
        self.assertIn(self.framework, profile["device"])
        self.assertTrue(json.loads(self.call("predict", "profile.json", "--format", "json")))
        catalog = str(ROOT / "examples/plan/published-2019.toml")
        self.call("plan", "profile.json", "--catalog", catalog, "--epochs", "5", "--samples", "1438")
        log = self.state / "serve.log"
        with log.open("w") as file:
            # The job says by which framework it is computed, and the daemon does not.
            daemon = self.start("serve", "--slots", "2", bare=True, stdout=file, stderr=file)
        try:
            self.wait_for("the daemon", lambda: "serving on" in log.read_text())
            words = ("--python", sys.executable, str(self.script), "--name", "road", "--workers", "2")
            self.call("submit", *words)
            self.strike()
            self.wait_for("the end", lambda: self.told("ended"))
            # Its process outlives the daemon, and writes into the folder for a moment after it said how the run ended.
            self.wait_for("the process to go", lambda: not is_led(self.state / "road"))
        finally:
            daemon.terminate()
            daemon.wait(timeout=30)
        self.assertEqual(self.digest(), self.plain.digest)
        found = self.accuracy_of(max(self.state.glob("*/checkpoints/*.safetensors")))
        self.assertEqual(f"{found:.4f}", f"{accuracy(self.plain.out):.4f}")

    def test_its_pods_get_the_script_and_nothing_of_this_machine(self) -> None:
        """What would be created on Kubernetes, of which no server is asked."""
        if not Path(COMMAND).with_name("bellwether-operator").exists():
            self.skipTest("the operator is not built: cargo build --release --package bellwether-operator")
        place = self.state / "kubeconfig"
        place.write_text(KUBECONFIG)
        words = ("--python", sys.executable, "--kubernetes", "--image", "trainer:1", "--dry-run")
        with patch.dict(os.environ, KUBECONFIG=str(place)):
            printed = self.call("submit", str(self.script), *words, "--set", "model.python=/usr/bin/python3")
        script, job = json.loads(printed)["items"]
        model = job["spec"]["job"]["model"]
        self.assertEqual(script["data"], {Path(model["script"]).name: self.script.read_text()})
        self.assertEqual(model["python"], "/usr/bin/python3")
        self.assertNotIn("PYTHONPATH", model.get("environment", {}))
        self.assertTrue(model["source"])
        for role in ("coordinator", "worker"):
            pod = job["spec"][role]["template"]["spec"]
            self.assertEqual(pod["containers"][0]["image"], "trainer:1")
            self.assertEqual(pod["volumes"][0]["configMap"]["name"], script["metadata"]["name"])
        wrong = ("--set", "model.script=train.py")
        right = ("--set", "model.script=/app/train.py")
        with patch.dict(os.environ, KUBECONFIG=str(place)):
            there = json.loads(self.call("submit", str(self.script), *words, *right))["spec"]["job"]["model"]
            self.assertEqual((there["script"], there["source"]), ("/app/train.py", model["source"]))
            self.assertIn("model.script", self.call("submit", str(self.script), *words, *wrong, code=2))

    def strike(self) -> None:
        """Takes a slot away in the midst of the submitted job, and kills the worker that is left."""
        self.wait_for(
            "step 20 with two workers", lambda: self.committed(20) and len(members(self.journal())) == 2
        )
        self.call("scale", "road", "--workers", "1")
        self.wait_for("the resize", lambda: len(members(self.journal())) == 1)
        kill_newest(self.journal())
        self.wait_for("the crash", lambda: self.told("crashed"))


def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Images, as 64 values 0…1 each, and labels."""
    table = np.loadtxt(ROOT / "data/digits/digits.csv.gz", delimiter=",", dtype=np.float32)[1438:]
    return table[:, :64] / 16, table[:, 64].astype(np.int64)
