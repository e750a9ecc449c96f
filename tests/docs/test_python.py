"""docs/python.md: its snippets run on a log, and its table of columns is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import dsl
from tests.timetravel.histories import scheduler
from vcd import api
from vcd.timetravel.log_tables import TABLES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


async def test_the_snippets_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scheduler(tmp_path / "events.sqlite") as made:
        await made.show(dsl.queue("default"), dsl.node("n1"), dsl.gang("train", 2, cpu=9))
        await made.cycle()
    monkeypatch.chdir(tmp_path)
    exec("".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), {})
    assert capsys.readouterr().out.splitlines() == [
        "train never: the largest node has 8 cpu",
        "train waits 0 s: can never run here: a pod requests 9 cpu, and node n1, the largest, has 8",
        "[{'queue': 'default', 'pods_sum': 2}]",
    ]


async def test_each_table_is_listed_with_its_columns(tmp_path: Path) -> None:
    listed = dict(re.findall(r"^\| `([a-z-]+)` \| .* \| ([^|]*) \|$", PAGE, re.MULTILINE))
    async with scheduler(tmp_path / "log"):
        pass
    with api.open(tmp_path / "log") as log:
        columns = {name: TABLES[name](log.history).columns for name in TABLES}
    told = {name: tuple(re.findall(r"`([a-z_]+)`", text)) for name, text in listed.items()}
    assert told == {**columns, "waits": ()}
