# Environments: torch, jax
"""The Python in docs/python.md is read by Python, and calls what there is with arguments that it takes.

The whole scripts of the page are in examples/python, and trained by other tests.
"""

import ast
import importlib
import inspect
import re
import unittest
from typing import Any

from runs import ROOT

import bellwether

PAGE = (ROOT / "docs/python.md").read_text()


def blocks() -> list[tuple[str, str]]:
    """The framework of each block of Python, by the heading that it stands under, and its text."""
    found = []
    for section in PAGE.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        framework = next((name for name in ("keras", "jax") if name in heading.lower()), "torch")
        found += [(framework, block) for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return found


def named(function: ast.expr, places: dict[str, Any]) -> Any:
    """What a name such as ``bw.Run`` stands for; None if it is not ours. Raises AttributeError if it is not there."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        place = places.get(function.value.id)
        return None if place is None else getattr(place, function.attr)
    return None


class Pages(unittest.TestCase):
    """Every block, in the environment that has its framework."""

    def test_blocks_call_what_there_is(self) -> None:
        calls = 0
        for framework, text in blocks():
            try:
                module = importlib.import_module(f"bellwether.{framework}")
            except bellwether.BellwetherError:
                # Another environment has it.
                continue
            places = {"bw": module, "bellwether": bellwether, "run": getattr(module, "Run", None)}
            for node in ast.walk(ast.parse(text)):
                function = named(node.func, places) if isinstance(node, ast.Call) else None
                if function is None:
                    continue
                assert isinstance(node, ast.Call)
                with self.subTest(line=text.splitlines()[node.lineno - 1].strip()):
                    arguments = [a for a in node.args if not (isinstance(a, ast.Constant) and a.value is ...)]
                    keywords = [keyword.arg for keyword in node.keywords if keyword.arg]
                    bound = [None] if ast.unparse(node.func).startswith("run.") else []
                    inspect.signature(function).bind_partial(
                        *bound, *([None] * len(arguments)), **dict.fromkeys(keywords)
                    )
                    calls += 1
        self.assertGreater(calls, 1)


if __name__ == "__main__":
    unittest.main()
