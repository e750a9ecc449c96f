"""What one object may write to the log in a minute."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.kube.scripted import Answer, FakeClock, Log, until
from tests.kube.test_watcher import line, listing, pod, watching
from vcd.kube import log_budget
from vcd.kube.log_budget import MAX_BYTES, WINDOW, LogBudget
from vcd.model import projection_codec
from vcd.model.events import ObjectGone, ObjectPut
from vcd.model.kinds import KINDS

LARGE = 1 << 18
"""Bytes of annotations that an object may have in Kubernetes."""


def patched(version: int, text: str = "", **spec: Any) -> dict[str, Any]:
    made = pod("a", version)
    made["metadata"]["annotations"] = {"a": text or str(version).ljust(LARGE, "x")}
    return {**made, "spec": spec}


def offered(budget: LogBudget, manifest: dict[str, Any]) -> int:
    """The bytes that go to the log at once."""
    obj, version = projection_codec.decode_json(KINDS["Pod"], msgspec.Raw(msgspec.json.encode(manifest)))
    event = ObjectPut("Pod", obj.key, version, projection_codec.encode_payload(obj))
    return 0 if budget.should_hold(event, obj) else len(event.payload or b"")


def test_patches_of_an_annotation_write_no_more_than_the_budget_in_a_window() -> None:
    clock = FakeClock()
    budget = LogBudget(clock)
    assert sum(offered(budget, patched(version)) for version in range(640)) <= MAX_BYTES
    assert budget.release() == []
    clock.now += WINDOW
    assert [event.resource_version for event in budget.release()] == ["639"]
    assert budget.release() == []
    assert offered(budget, patched(640)) > LARGE


@pytest.mark.parametrize(
    "changed",
    [
        patched(9, nodeName="n"),
        patched(9) | {"status": {"phase": "Running"}},
        patched(9, containers=[{"name": "c", "resources": {"requests": {"cpu": "2"}}}]),
        patched(9) | {"metadata": {**patched(9)["metadata"], "uid": "another"}},
    ],
    ids=["bound", "phase", "resized", "made again"],
)
def test_what_others_depend_on_is_never_held(changed: dict[str, Any]) -> None:
    budget = LogBudget(FakeClock())
    for version in range(8):
        offered(budget, patched(version))
    assert offered(budget, changed) > LARGE
    assert budget.release(at_once=True) == []


def test_objects_have_budgets_of_their_own() -> None:
    budget = LogBudget(FakeClock())
    for version in range(8):
        offered(budget, patched(version))
    other = patched(9)
    other["metadata"]["name"] = "b"
    assert offered(budget, other) > LARGE


async def test_the_newest_version_comes_when_the_window_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_budget, "MAX_BYTES", 500)
    clock, log = FakeClock(), Log()
    lines = [line("MODIFIED", patched(version, f"{version}".ljust(300, "x"))) for version in range(6, 20)]
    more = [line("ADDED", pod("b", 20))]
    async with watching([listing(5, pod("a", 5))], [Answer(lines=lines, stay=True)], log, clock=clock) as f:
        await until(lambda: f.watcher.status.resource_version == "19")
        assert [event.resource_version for event in log.of(ObjectPut)] == ["5", "6"]
        clock.now += WINDOW
        await f.watcher._apply_lines([msgspec.json.encode(each) for each in more])
    assert [event.resource_version for event in log.of(ObjectPut)[2:]] == ["19", "20"]


async def test_what_is_held_of_an_object_that_is_gone_or_as_it_was_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_budget, "MAX_BYTES", 500)
    clock, log = FakeClock(), Log()
    first = patched(6, "first".ljust(300, "x"))
    held = patched(7, "second".ljust(300, "x"))
    again = patched(8, "first".ljust(300, "x"))
    gone = [line("MODIFIED", patched(9, "third".ljust(300, "x"))), line("DELETED", patched(10, "third"))]
    lines = [line("MODIFIED", each) for each in (first, held, again)]
    async with watching([listing(5, pod("a", 5))], [Answer(lines=[*lines, *gone], stay=True)], log, clock=clock) as f:
        await until(lambda: log.of(ObjectGone))
        clock.now += WINDOW
        assert f.watcher._budget.release() == []
    assert [(event.resource_version, event.payload is None) for event in log.of(ObjectPut)] == [
        ("5", False), ("6", False), ("8", True),
    ]  # fmt: skip
