# Environments: torch
"""What `_native.pyi` says of the native module is so."""

import subprocess
import sys
import unittest


class Stubs(unittest.TestCase):
    """The module is loaded, and compared with the types that its users see."""

    def test_they_agree_with_the_module(self) -> None:
        command = [sys.executable, "-m", "mypy.stubtest", "bellwether._native"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main()
