"""Sentences for users are made in vcd.text. Other modules of answers make only messages of errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vcd

ROOT = Path(vcd.__file__).parent
PACKAGES = ("diagnosis", "timetravel", "view", "daemon/reporting")
SENTENCE = re.compile(r"[a-z]{2,} [a-z]+ [a-z]{2,}")
"""Three words in a row."""
LEFT: dict[str, int] = {
    "timetravel/anonymise/anonymised_log.py": 1,  # the reply to a query that was not recorded
    "timetravel/joblist.py": 2,
    "timetravel/replay.py": 3,
    "timetravel/whatif/fail_conditions.py": 5,
    "view/page_openapi.py": 1,  # the description of the interface
    "view/page_server.py": 3,
    "view/visibility.py": 3,
}
"""Sentences that other modules make: parts of errors' messages, which are made where the error is raised."""


def sentences(source: str) -> Iterator[str]:
    """Yield the texts of three words in a row that functions yield or return, except codes of templates."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Yield | ast.Return) and node.value is not None:
            codes = set(_codes(node.value))
            for part in ast.walk(node.value):
                text = part.value if isinstance(part, ast.Constant) else None
                if isinstance(text, str) and SENTENCE.search(text) and text not in codes:
                    yield text


def _codes(value: ast.AST) -> Iterator[str]:
    """Yield the texts that name templates: the arguments of ``sentence``, and indices."""
    for part in ast.walk(value):
        named: list[ast.AST] = []
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "sentence":
            named = [*part.args]
        elif isinstance(part, ast.Subscript):
            named = [part.slice]
        for one in named:
            yield from (
                each.value for each in ast.walk(one) if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_module_makes_a_sentence_for_users(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        texts, module = list(sentences(path.read_text())), path.relative_to(ROOT).as_posix()
        assert len(texts) == LEFT.get(module, 0), f"{module} makes sentences: {texts}"


def test_a_sentence_in_a_function_is_found_and_an_error_and_a_docstring_are_not() -> None:
    source = """
def lines(self):
    \"\"\"Yield what was found.\"\"\"
    if not self.jobs:
        raise NotFound("no job is in it")
    yield f"{self.count} jobs are waiting for {self.queue}"
    return "a label"
"""
    assert list(sentences(source)) == [" jobs are waiting for "]
