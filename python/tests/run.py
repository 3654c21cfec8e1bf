"""Runs one test file: `python run.py FILE COUNTS [NAME]`.

Writes how many tests passed, failed and were skipped, and the processor time that they took, to the file COUNTS, as
JSON. NAME chooses the tests whose names contain it. A file that has not ended after ten minutes (an hour where
BELLWETHER_TEST_ALL asks for all tests) is ended, with the line at which each thread stood.
"""

import faulthandler
import json
import os
import resource
import sys
import time
import unittest
from pathlib import Path

LONGEST_S = 3600 if "BELLWETHER_TEST_ALL" in os.environ else 600


def suite(file: Path, name: str | None) -> unittest.TestSuite:
    """The tests of a file, or those of them whose names contain `name`."""
    loader = unittest.TestLoader()
    if name:
        loader.testNamePatterns = [f"*{name}*"]
    return loader.loadTestsFromName(file.stem)


def counts(result: unittest.TestResult) -> dict[str, float]:
    """How the tests ended; an error in the set-up of a class has no test of its own, and counts as one that failed."""
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    passed = max(result.testsRun - failed - skipped, 0)
    return {"passed": passed, "failed": failed, "skipped": skipped, "processor_s": processor_s()}


def processor_s() -> float:
    """Processor time of this process and of all that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Timed(unittest.TextTestResult):
    """Says of each test how long it took."""

    def startTest(self, test: unittest.TestCase) -> None:
        """Notes when it began."""
        super().startTest(test)
        self._began, self._used = time.monotonic(), processor_s()

    def stopTest(self, test: unittest.TestCase) -> None:
        """Shows it where it is worth to be known."""
        super().stopTest(test)
        took, used = time.monotonic() - self._began, processor_s() - self._used
        if took >= 1.0:
            self.stream.write(f"    {took:.1f} s, {used:.1f} s of processor time\n")


def keep_what_jax_compiles() -> None:
    """Beside what Python compiles; each of JAX's processes would compile all anew, for several seconds."""
    folder = os.environ.get("PYTHONPYCACHEPREFIX")
    if folder:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(folder, "jax"))
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def main() -> None:
    """Runs the file; exits with 1 where a test failed."""
    keep_what_jax_compiles()
    file, report = Path(sys.argv[1]), Path(sys.argv[2])
    name = sys.argv[3] if len(sys.argv) > 3 else None
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Timed)  # type: ignore[arg-type]
    result = runner.run(suite(file, name))
    report.write_text(json.dumps(counts(result)))
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
