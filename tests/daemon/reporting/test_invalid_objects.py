"""Objects that cannot be used are told of once, in the log and at the object."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.dsl import pod
from vcd.daemon.reporting.invalid_objects import InvalidObjects
from vcd.model import events as ev
from vcd.model.manifests import defaulted
from vcd.model.objects import Condition
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.state.cluster_state import ClusterState


class Fixture:
    """Follows a state; remembers the Events and conditions that it was asked to write."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.recorded: list[tuple[str, str, str]] = []
        self.conditions: list[tuple[str, str, str]] = []
        self.aside = InvalidObjects(self.state, self, self)
        self.logged: list[Any] = []

    def record(self, kind: str, key: str, uid: str, type: str, reason: str, message: str) -> None:
        assert (type, reason) == ("Warning", "SetAside")
        self.recorded.append((kind, key, message))

    def submit_pod_condition(self, key: str, uid: str, condition: Condition) -> None:
        self.conditions.append((key, uid, condition.message))

    def happen(self, *events: ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) -> None:
        with capture_logs() as logs:
            for event in events:
                self.state.apply(self.state.sequence + 1, event)
                self.aside.observe(event)
        self.logged += [each["key"] for each in logs if each["event"] == "object set aside"]


@pytest.fixture
def f() -> Fixture:
    return Fixture()


def put(name: str, amount: str, on: str = "", **given: Any) -> ev.ObjectPut:
    made = pod(name, on=on, requests={"memory": amount})
    made["metadata"].update(given)
    kind, obj, _ = from_manifest(defaulted(made))
    return ev.ObjectPut(kind, obj.key, "", encode_payload(obj))


def test_one_that_changes_otherwise_is_told_of_once(f: Fixture) -> None:
    same = ev.ObjectPut("Pod", "default/bad", "7", None)
    f.happen(put("bad", "16Pi"), same, put("bad", "16Pi", labels={"a": "b"}), same)
    assert f.logged == ["default/bad"]
    assert [key for _, key, _ in f.recorded] == ["default/bad"]
    ((key, uid, message),) = f.conditions
    assert (key, uid) == ("default/bad", "uid-default-bad")
    assert "memory" in message


def test_a_pod_on_a_node_gets_an_event_and_is_not_said_to_wait(f: Fixture) -> None:
    f.happen(put("bad", "16Pi", on="n"))
    assert [key for _, key, _ in f.recorded] == ["default/bad"]
    assert f.conditions == []


def test_one_that_cannot_be_decoded_is_told_of_once(f: Fixture) -> None:
    f.happen(*(ev.ObjectBad("Pod", "default/odd", str(version), "no text") for version in range(3)))
    assert f.logged == ["default/odd"]
    assert f.recorded == [("Pod", "default/odd", "no text")]
    assert f.conditions == []


@pytest.mark.parametrize(
    "between",
    [
        ev.ObjectGone("Pod", "default/bad"),
        put("bad", "1Gi"),
        ev.ObjectBad("Pod", "default/bad", "", "something else"),
    ],
    ids=["gone", "mended", "otherwise bad"],
)
def test_one_that_is_bad_again_is_told_of_again(f: Fixture, between: Any) -> None:
    f.happen(put("bad", "16Pi"), between, put("bad", "16Pi"))
    told = [message for _, _, message in f.recorded if "memory" in message]
    assert len(told) == 2


def test_another_of_its_name_is_told_of(f: Fixture) -> None:
    f.happen(put("bad", "16Pi"), put("bad", "16Pi", uid="other"))
    assert [uid for _, uid, _ in f.conditions] == ["uid-default-bad", "other"]


def test_owners_are_told_again_by_who_begins_to_lead_and_the_log_is_not(f: Fixture) -> None:
    f.happen(put("bad", "16Pi"), put("was", "16Pi"), put("was", "1Gi"))
    f.recorded.clear()
    f.conditions.clear()
    f.aside.report_all()
    assert [key for _, key, _ in f.recorded] == ["default/bad"]
    assert [key for key, _, _ in f.conditions] == ["default/bad"]
    assert f.logged == ["default/bad", "default/was"]
