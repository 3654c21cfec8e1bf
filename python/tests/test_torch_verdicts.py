# Environments: torch
"""Scripts that end their runs early: the workers wait at each epoch's boundary for what the lead decides."""

import json
import unittest
from pathlib import Path

from runs import TORCH, Place, Runs, Trained

SCRIPT = Path(__file__).parent / "scripts/torch_verdicts.py"
REASON = "nothing is gained"


class Verdicts(Runs):
    """Each test runs the script through the command, or by itself."""

    place: Place
    stopped: Trained

    @classmethod
    def setUpClass(cls) -> None:
        cls.place = Place(TORCH)
        cls.stopped = cls.place.train(SCRIPT, "--workers", "1", "--", "stop")

    @classmethod
    def tearDownClass(cls) -> None:
        cls.place.end()

    def assert_ended_early(self, trained: Trained, reason: str) -> None:
        """The run is finished after the third epoch, with the bits of the one with one worker."""
        self.assertEqual(trained.code, 0, trained.log)
        verdicts = [(event["step"], event.get("ends")) for event in trained.of("verdict")]
        self.assertEqual(verdicts[:2], [(4, None), (8, None)], trained.log)
        self.assertEqual(len(verdicts), 3, "none is given twice")
        self.assertEqual(verdicts[2][0], 12)
        self.assertRegex(verdicts[2][1] or "", reason)
        ended = trained.of("ended")[-1]
        self.assertEqual((ended["outcome"], ended["step"]), ("finished", 12), trained.log)
        self.assertEqual(trained.digest, self.stopped.digest)
        self.assertEqual(self.said(trained, "sum"), self.said(self.stopped, "sum"))

    def said(self, trained: Trained, word: str) -> list[str]:
        """The lines that begin with this word."""
        return [line for line in trained.out.splitlines() if line.startswith(word)]

    def test_a_script_ends_its_run_after_an_epoch(self) -> None:
        self.assert_ended_early(self.stopped, f"^{REASON}$")
        self.assertEqual(len(self.said(self.stopped, "sum")), 1, "what follows the loop runs once")
        self.assertEqual(self.said(self.stopped, "epoch"), [f"epoch {epoch}" for epoch in range(3)])
        for word in ("evaluated", "checkpointed"):
            # Where booting took a minute there are checkpoints by time, too.
            told = self.said(self.stopped, word)
            self.assertEqual(len(told), len(set(told)), "each once")
            self.assertLessEqual({f"{word} {step} True" for step in (4, 8, 12)}, set(told))
        path = next(self.stopped.folder.glob("state/*/summary.json"))
        summary = json.loads(path.read_text().splitlines()[-1])
        self.assertEqual(summary["ended_early"], {"step": 12, "reason": REASON})
        self.assertIn(f"ended early: after step 12: {REASON}", self.stopped.log)

    def test_a_break_and_a_function_that_returns_false_do_the_same(self) -> None:
        broken = self.place.train(SCRIPT, "break", alone=True)
        self.assert_ended_early(
            broken, r"^torch_verdicts\.py:\d+: the script leaves the loop after 3 of 1000 epochs$"
        )
        trained = self.place.train(SCRIPT, "--workers", "2", "--", "train")
        self.assert_ended_early(trained, "^on_epoch returned False after epoch 2$")

    def test_resizes_and_a_crash_while_all_wait_change_no_bit(self) -> None:
        trained = self.place.train(SCRIPT, "--workers", "3", "--resize", "4:1,6:4", "--", "slow", kill_at=7)
        self.assert_ended_early(trained, REASON)
        self.assert_shrank_and_grew(trained)
        self.assert_only_the_killed_crashed(trained)
        self.assertEqual([event["step"] for event in trained.of("crashed")], [8], "all waited")

    def test_a_lead_that_fails_stops_the_run_and_another_goes_on(self) -> None:
        failed = self.place.train(SCRIPT, "--workers", "2", "--", "fails")
        self.assertEqual(failed.code, 1, failed.log)
        self.assertIn("ValueError: the lead fails", failed.log)
        self.assertIn("the lead is gone, and the workers wait for its verdict after step 12", failed.log)
        self.assertEqual([event["outcome"] for event in failed.of("ended")], ["stopped"], failed.log)
        resumed = self.place.resume(failed)
        self.assert_ended_early(resumed, REASON)
        self.assertEqual(self.said(resumed, "epoch"), [f"epoch {epoch}" for epoch in range(3)])

    def test_a_run_that_does_not_hold_cannot_be_ended(self) -> None:
        free = self.place.train(SCRIPT, "free", alone=True)
        self.assertEqual(free.code, 2, free.log)
        self.assertRegex(
            free.log,
            r"error: torch_verdicts\.py:\d+: .*do not wait for the lead; it is stopped; write hold=True",
        )


if __name__ == "__main__":
    unittest.main()
