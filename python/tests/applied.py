"""A trained script whose model is applied to rows: its own scores, and the same bytes for any workers."""

from pathlib import Path
from typing import ClassVar

import numpy as np
from runs import ROOT, Place, Verbs


class Applied(Verbs):
    """A script that keeps in `expected.npy` what its model says of all digits."""

    script: ClassVar[str]
    """Its name."""
    imports: ClassVar[str]
    """What it imports, once for all processes."""

    def setUp(self) -> None:
        self.place = Place(self.imports)
        self.addCleanup(self.place.end)
        self.folder, self.state = self.place.path, self.place.path / "state"

    def test_the_trained_model_is_applied(self) -> None:
        script = Path(__file__).parent / f"scripts/{self.script}.py"
        self.call("run", "--python", self.place.python, str(script), "--workers", "1")
        digits = np.loadtxt(ROOT / "data/digits/digits.csv.gz", delimiter=",", dtype=np.float32)
        np.savetxt(self.folder / "rows.csv", digits[:, :64] / 16, delimiter=",")
        arguments = ("infer", self.script, "--data", "rows.csv", "--scores")
        self.call(*arguments, "-o", "one.csv")
        self.call(*arguments, "-o", "two.csv", "--workers", "2")
        one, two = ((self.folder / name).read_bytes() for name in ("one.csv", "two.csv"))
        self.assertTrue(one == two)
        table = np.loadtxt(self.folder / "one.csv", delimiter=",", skiprows=1)
        expected = np.load(self.folder / "expected.npy")
        np.testing.assert_allclose(table[:, 2:], expected, atol=1e-5)
        self.assertGreater(float((table[:, 1] == digits[:, 64]).mean()), 0.5)
