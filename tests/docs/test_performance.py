"""docs/performance.md: its tables are those that ``python -m bench --write`` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import page
from bench.__main__ import known
from bench.table import row

README = page.PAGE.parents[1] / "README.md"
ROWS = [row("full | nodes", 1234.5, "ms", 5000, 20), row("  of which the snapshot", 0.0042, "s")]
MEASURED = "Commit 0123abcd of 2026-01-01, Python 3.11.7, 2 processors (x86_64)."


def test_each_table_is_one_of_a_benchmark_and_names_the_commit_that_was_measured() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    names = page.tables_of(text)
    assert set(names) <= set(known())
    assert {"session", "steady", "contention", "restart"} <= set(names)
    parts = re.findall(r"<!-- begin: [a-z]+ -->\n(.*?)<!-- end", text, re.DOTALL)
    assert len(parts) == len(set(names)) == text.count("| what | vcd | unit | Volcano | goal |")
    assert all(re.match(r"\nCommit [0-9a-f]{7,40} of \d{4}-\d\d-\d\d\b.*\.\n\n\| what ", part) for part in parts)


def test_the_figures_of_the_readme_are_those_of_the_page() -> None:
    measured = set(re.findall(r"^\| .+ \| ([\d.,]+) \| [^|]+ \| ([\d.,]+) \|", page.PAGE.read_text(), re.MULTILINE))
    table = README.read_text(encoding="utf-8").partition("\n## Speed\n")[2].partition("\n## ")[0]
    stated = re.findall(r"^\| .+ \| ([\d.,]+) \S+ \| ([\d.,]+) \S+ \|$", table, re.MULTILINE)
    assert len(stated) == 5
    assert set(stated) - measured == set()


def test_a_benchmark_writes_its_own_table_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "performance.md"
    before = "text\n<!-- begin: steady -->\nold\n<!-- end: steady -->\n<!-- begin: soak -->\nkept\n<!-- end: soak -->\n"
    copy.write_text(before, encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", copy)
    monkeypatch.setattr(page, "measured_now", lambda: MEASURED)
    page.write_table("session", ROWS)
    assert copy.read_text(encoding="utf-8") == before
    page.write_table("steady", ROWS)
    table = (
        "| what | vcd | unit | Volcano | goal |\n| --- | ---: | --- | ---: | ---: |\n"
        "| full \\| nodes | 1,234 | ms | 5,000 | 20 |\n| &emsp;of which the snapshot | 0.0042 | s |  |  |\n"
    )
    assert copy.read_text(encoding="utf-8") == before.replace("\nold\n", f"\n\n{MEASURED}\n\n{table}\n")
