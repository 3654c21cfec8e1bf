"""A script on the whole road: profile, predict, plan, submit, crash, resize, and back in the plain framework."""

import json
import os
import sys
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import numpy as np
from digits import accuracy
from runs import COMMAND, EXAMPLES, ROOT, Place, Trained, Verbs, is_led, kill_newest, members

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
"""


class Road(Verbs):
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
        self.folder = self.state = self.place.path / self._testMethodName
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
        # The job says by which framework it is computed, and the daemon does not.
        self.serve(2)
        words = ("--python", sys.executable, str(self.script), "--name", "road", "--workers", "2")
        self.call("submit", *words)
        self.strike()
        self.wait_for("the end", lambda: self.told("ended"))
        # Its process writes into the folder for a moment after it said how the run ended.
        self.wait_for("the process to go", lambda: not is_led(self.state / "road"))
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
