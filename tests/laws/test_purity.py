"""What decides asks no clock, chance or world, and depends on no order that differs by run (docs/laws.md, law 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.laws.purity import check, check_files

ROOT = Path(__file__).resolve().parents[2]
DECIDING = ("vcd/model", "vcd/state", "vcd/scheduling")


def whats(source: str, *others: str) -> list[str]:
    return [finding.what for finding in check(source, *others)]


def test_what_decides_is_pure() -> None:
    files = [file for part in DECIDING for file in (ROOT / part).rglob("*.py")]
    assert len(files) > 50
    assert check_files(files, ROOT) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "from random import Random",
        "import uuid",
        "import secrets",
        "import threading",
        "import asyncio",
        "import socket",
        "import subprocess",
        "import concurrent.futures",
        "import os\nx = os.environ['HOME']",
        "from os import environ",
        "def f():\n    import time",
        "import numpy.random",
        "from numpy import random",
        "import numpy as np\nx = np.random.default_rng()",
        "from datetime import datetime\nx = datetime.now()",
        "import datetime\nx = datetime.datetime.now(datetime.UTC)",
        "import datetime\nx = datetime.date.today()",
        "with open('x') as file: pass",
        "x = path.read_text()",
        "print('x')",
        "x = eval('1')",
    ],
)
def test_clocks_chance_and_the_world_are_found(source: str) -> None:
    assert len(check(source)) == 1, check(source)


@pytest.mark.parametrize(
    "source",
    [
        "for x in {1, 2}: use(x)",
        "for x in set(names): use(x)",
        "for x in frozenset(names): use(x)",
        "def f(names):\n    wanted = set(names)\n    for x in wanted: use(x)",
        "def f(wanted: set[str]):\n    for x in wanted: use(x)",
        "def f(wanted: frozenset[str] | None):\n    for x in wanted or (): use(x)",
        "wanted: set[str] = make()\ndef f():\n    for x in wanted: use(x)",
        "def f(a, b):\n    for x in set(a) - set(b): use(x)",
        "def f(a, b):\n    for x in a.keys() & b.keys(): use(x)",
        "def f(a, b):\n    for x in set(a).union(b): use(x)",
        "def f(a):\n    b = set(a)\n    c = b\n    for x in c: use(x)",
        "class A:\n    def __init__(self):\n        self.x = set()\n    def f(self):\n        for x in self.x: use(x)",
        "class A:\n    x: set[str]\ndef f(a: A):\n    for x in a.x: use(x)",
        "def g() -> set[str]: ...\ndef f():\n    for x in g(): use(x)",
        "def f(by: dict[str, set[str]]):\n    for key, names in by.items():\n        for x in names: use(x)",
        "def f(by: dict[str, set[str]]):\n    for x in by['a']: use(x)",
        "x = [y for y in {1, 2}]",
        "x = {y: 1 for y in {1, 2}}",
        "x = f(y for y in {1, 2})",
        "x = list({1, 2})",
        "x = tuple({1, 2})",
        "x = next(iter({1, 2}))",
        "x = enumerate({1, 2})",
        "x = zip({1, 2}, names)",
        "x = dict.fromkeys({1, 2})",
        "x = ','.join({'a', 'b'})",
        "x = [*{1, 2}, 3]",
        "x = f(*{1, 2})",
        "a, b = {1, 2}",
        "def f():\n    yield from {1, 2}",
        "rows.extend({1, 2})",
        "x = np.array({1, 2})",
        "for x in {1, 2}:\n    if good(x): return_value = x",
        "def f(s: set[int]):\n    for x in s:\n        if x > 1: return True\n        if x < 0: return False",
    ],
)
def test_iteration_over_a_set_is_found(source: str) -> None:
    assert len(check(source)) == 1, check(source)


def test_a_set_of_another_module_is_found() -> None:
    other = "class State:\n    names: set[str]\ndef wanted() -> frozenset[str]: ..."
    source = "def f(state):\n    for x in state.names: use(x)\n    for x in other.wanted(): use(x)"
    assert len(check(source, other)) == 2
    assert check(source) == []


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("x = sorted(rows, key=id)", "id() in the key of an order"),
        ("x = sorted(rows, key=lambda row: id(row))", "id() in the key of an order"),
        ("rows.sort(key=lambda row: (row.rank, id(row)))", "id() in the key of an order"),
        ("heapq.heappush(heap, (rank, id(row), row))", "id() in the key of an order"),
        ("x = id(a) < id(b)", "id() in a comparison"),
        ("x = id(a) == id(b)", "id() in a comparison"),
        ("class A:\n    def __lt__(self, other):\n        return bool(id(self) - id(other))", "id() in __lt__"),
        ("x = min(rows, key=hash)", "hash() in the key of an order"),
        ("x = sorted(rows, key=lambda row: hash(row.name))", "hash() in the key of an order"),
        ("x = hash(a) > hash(b)", "hash() in a comparison"),
        ("def f(name):\n    return hash(name) % 7", "hash() differs between runs"),
        ("x = hash('a')", "hash() differs between runs"),
        ("x = table.popitem()", "popitem() takes any item"),
        ("x = {1, 2}.pop()", "{1, 2}.pop() takes any item of a set"),
        ("def f(names: set[str]):\n    return names.pop()", "names.pop() takes any item of a set"),
        ("x = sorted({1, 2}, key=len)", "sorted(key=...) leaves ties in the order of a set"),
        ("x = min({1, 2}, key=len)", "min(key=...) leaves ties in the order of a set"),
    ],
)
def test_orders_that_differ_between_runs_are_found(source: str, what: str) -> None:
    assert set(whats(source)) == {what}


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime\nx = datetime.fromisoformat(text)",
        "from zlib import crc32",
        "x = sorted({1, 2})",
        "x = sorted(y + 1 for y in {1, 2})",
        "x = sorted(names, key=len)",
        "x = len({1, 2}), min({1, 2}), max({1, 2}), sum({1, 2})",
        "x = any(good(y) for y in {1, 2}) and all(good(y) for y in {1, 2})",
        "x = y in {1, 2}",
        "x = {1, 2} <= {3}",
        "x = {y + 1 for y in {1, 2}}",
        "x = {*names, *{1, 2}}",
        "x = set({1, 2}).update(y for y in {1, 2})",
        "x = tuple(sorted(set(names)))",
        "x = sorted(list({1, 2}))",
        "def f(names):\n    for x in sorted(set(names)): use(x)",
        "def f(a):\n    a = list(a)\n    for x in a: use(x)\ndef g():\n    a = set()",
        "def f(a: list[str]):\n    for x in a: use(x)\ndef g(a: set[str]): ...",
        "a: set[str]\ndef f(a):\n    for x in a: use(x)",
        "def f(s: set[int], seen):\n    for x in s:\n        if x > 1: seen.add(x)",
        "def f(s: set[int], count):\n    for x in s: count[x] -= 1",
        "def f(s: set[int]):\n    for x in s:\n        if x > 1: return True",
        "for x in {1: 2}: use(x)",
        "for key, value in table.items(): use(key)",
        "def f(by: dict[str, set[str]]):\n    for key in by: use(key)",
        "memory[id(shape)] = shape",
        "x = id(shape) in memory",
        "class A:\n    def __hash__(self):\n        return hash(self.name)",
        "x = names.pop()",
        "x = recent.popitem(last=False)",
    ],
)
def test_what_depends_on_no_order_is_let_through(source: str) -> None:
    assert check(source) == []


def test_a_finding_tells_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    file = tmp_path / "part" / "module.py"
    file.write_text("x = 1\nimport random\n")
    assert check_files([file], tmp_path) == ["part/module.py:2: import of random"]
