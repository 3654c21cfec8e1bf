# Environments: jax, tensorflow
"""Keras's callbacks that stop the training do so at the epoch's boundary, on any number of workers."""

import unittest
from pathlib import Path

from runs import KERAS, Place, Runs, Trained

SCRIPT = Path(__file__).parent / "scripts/keras_verdicts.py"


class Verdicts(Runs):
    """Each test runs the script through the command, or by itself."""

    place: Place
    plain: Trained

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place(KERAS)
        cls.plain = cls.place.train(SCRIPT, "early", alone=True)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def said(self, trained: Trained, word: str) -> list[list[str]]:
        """The words of the lines that begin with this one."""
        return [line.split(maxsplit=3) for line in trained.out.splitlines() if line.startswith(word)]

    def assert_ended_early(self, trained: Trained) -> None:
        """The run is finished after the second epoch."""
        self.assertEqual(trained.code, 0, trained.log)
        ended = trained.of("ended")[-1]
        self.assertEqual((ended["outcome"], ended["step"]), ("finished", 16), trained.log)
        why = "a callback set model.stop_training after epoch 2"
        self.assertEqual([(e["step"], e.get("ends")) for e in trained.of("verdict")], [(8, None), (16, why)])
        self.assertEqual(trained.digest, self.plain.digest, trained.log)

    def test_early_stopping_restores_the_best_weights(self) -> None:
        self.assert_ended_early(self.plain)
        epochs, (last,) = self.said(self.plain, "epoch"), self.said(self.plain, "sum")
        self.assertEqual(len(epochs), 2, self.plain.out)
        self.assertEqual(last[1:], [epochs[0][2], "2"], "the first epoch was the best")
        self.assertNotEqual(epochs[0][2], epochs[1][2])
        logs = (self.plain.folder / "log.csv").read_text().splitlines()
        self.assertEqual((len(logs), (self.plain.folder / "best.keras").exists()), (3, True))

    def test_resizes_a_crash_and_a_callback_of_ones_own_change_no_bit(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "3", "--resize", "3:1,6:4", "--", "own", kill_at=7)
        self.assert_ended_early(trained)
        self.assert_shrank_and_grew(trained)
        self.assertEqual(self.said(trained, "epoch"), self.said(self.plain, "epoch"))


if __name__ == "__main__":
    unittest.main()
