"""Runs one test file: `python run.py FILE COUNTS [NAME]`.

Writes how many tests passed, failed and were skipped to the file COUNTS, as JSON. NAME chooses the tests whose names
contain it. A file that has not ended after five minutes (an hour where BELLWETHER_TEST_ALL asks for all tests) is
ended, with the line at which each thread stood.
"""

import faulthandler
import json
import os
import sys
import unittest
from pathlib import Path

LONGEST_S = 3600 if "BELLWETHER_TEST_ALL" in os.environ else 300


def suite(file: Path, name: str | None) -> unittest.TestSuite:
    """The tests of a file, or those of them whose names contain `name`."""
    loader = unittest.TestLoader()
    if name:
        loader.testNamePatterns = [f"*{name}*"]
    return loader.loadTestsFromName(file.stem)


def counts(result: unittest.TestResult) -> dict[str, int]:
    """How the tests ended; an error in the set-up of a class has no test of its own, and counts as one that failed."""
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    skipped = len(result.skipped)
    return {"passed": max(result.testsRun - failed - skipped, 0), "failed": failed, "skipped": skipped}


def main() -> None:
    """Runs the file; exits with 1 where a test failed."""
    file, report = Path(sys.argv[1]), Path(sys.argv[2])
    name = sys.argv[3] if len(sys.argv) > 3 else None
    faulthandler.dump_traceback_later(LONGEST_S, exit=True)
    result = unittest.TextTestRunner(verbosity=2).run(suite(file, name))
    report.write_text(json.dumps(counts(result)))
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
