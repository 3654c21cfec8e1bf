# Environments: torch
"""Scripts that leave processes behind, close descriptors, print without end, hang, vanish, or compute by the clock."""

import os
import re
import unittest
from pathlib import Path

from runs import TORCH, Place, Trained, takes_long

SCRIPT = Path(__file__).parent / "scripts/torch_hostile.py"


class Hostile(unittest.TestCase):
    """Each test runs the script through the command, and looks at what is left."""

    def setUp(self) -> None:
        self.place = Place(TORCH)
        self.addCleanup(self.place.end)

    def train(self, form: str, *options: str) -> Trained:
        """Trains by two workers; afterwards none of their processes is left."""
        traces = self.place.path / f"traces-{form}"
        traces.mkdir()
        trained = self.place.train(SCRIPT, "--workers", "2", *options, "--", form, str(traces))
        children = [int(path.name.removeprefix("child-")) for path in traces.glob("child-*")]
        workers = [event["process"] for event in trained.of("worker_attached")]
        left = [process for process in children + workers if is_alive(process)]
        self.assertEqual(left, [], f"{form}: these processes of {children} and {workers} are left")
        return trained

    def assert_says(self, trained: Trained, code: int, what: str) -> None:
        """The run ended with this exit code and these words."""
        self.assertEqual(trained.code, code, trained.log)
        self.assertRegex(trained.log, what)

    def test_crashes_and_much_output_change_no_bits(self) -> None:
        """A worker is struck by SIGSEGV; one prints 100 MB; both leave a process with all that they had open."""
        plain, crashed, printed = (self.train(form) for form in ("plain", "segv", "print"))
        self.assertEqual(
            (plain.code, crashed.code, printed.code), (0, 0, 0), crashed.log + printed.log[-9999:]
        )
        self.assertNotEqual(plain.digest, "")
        self.assertEqual([crashed.digest, printed.digest], [plain.digest] * 2)
        self.assertEqual(len(crashed.of("crashed")), 1, crashed.log)
        sizes = [path.stat().st_size for path in printed.folder.glob("state/*/worker-*.log")]
        self.assertLess(max(sizes), 17 << 20)
        self.assertIn("bytes of this log were left out here", printed.log)

    def test_a_gradient_by_the_clock_is_found_before_the_first_step(self) -> None:
        trained = self.train("seed")
        self.assert_says(trained, 1, "the same micro-batch gave two results, which differ in ")
        self.assertEqual(trained.of("committed"), [])

    @takes_long
    def test_a_gradient_that_follows_the_clock_later_is_found_by_another_worker(self) -> None:
        trained = self.train("seed-later", "--set", "verify_every=2")
        self.assertNotEqual(trained.of("mismatched"), [], trained.log)

    @takes_long
    def test_a_script_that_leaves_the_loop_or_vanishes_ends_its_run(self) -> None:
        self.assert_says(self.train("exit"), 1, "the script leaves the loop before the run is over")
        self.assert_says(self.train("vanish"), 1, "workers were lost in a row without a step between them")

    @takes_long
    def test_a_script_that_closes_what_is_not_its_own_ends_its_run(self) -> None:
        self.assertEqual(self.train("close").code, 1)
        self.assert_says(
            self.train("close-early"), 2, "the pipe on which the command waits for the job is closed"
        )

    @takes_long
    def test_a_micro_batch_that_does_not_end_is_left_to_another_worker(self) -> None:
        trained = self.train("hang")
        self.assertEqual(trained.code, 0, trained.log)
        self.assertEqual(len(trained.of("crashed")), 1, trained.log)
        self.assertNotEqual(trained.of("late"), [])


def is_alive(process: int) -> bool:
    """Whether a process with this number computes; one that has ended may wait to be noticed."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    return not re.search(r"^State:\s+Z", status, re.MULTILINE) and os.getpid() != process


if __name__ == "__main__":
    unittest.main()
