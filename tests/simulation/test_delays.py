"""The invariant "done soon" grants additional time after a restore of the server's storage."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.invariants.delays import SOON, Delays
from vcd.daemon.watching.outcome_resolver import PATIENCE

LOOKED_UP = 1.25 * PATIENCE
UNDONE_AT = 12.0


class Fixture:
    """A simulation whose faults end after 20 s, and a pod that its tests change."""

    def __init__(self) -> None:
        self.time = 0.0
        self.violations: list[str] = []
        self._listeners: list[Any] = []
        script = SimpleNamespace(storm=20.0, acts=(), flags={})
        sim = SimpleNamespace(
            script=script,
            loop=SimpleNamespace(time=lambda: self.time),
            store=SimpleNamespace(subscribe=lambda resources, each: self._listeners.append((resources, each))),
            replicas=[],
            violated=lambda invariant, what: self.violations.append(invariant),
        )
        self.witness = SimpleNamespace(services=[], calls=[], asking=None)
        Delays(sim, self.witness, SimpleNamespace(looks=[]))  # type: ignore[arg-type]

    def pod(self, time: float, event: str, node: str = "", uid: str = "u") -> None:
        self.time = time
        pod = {"metadata": {"namespace": "default", "name": "p", "uid": uid}, "spec": {"nodeName": node}}
        for resources, each in self._listeners:
            if "pods" in resources:
                each(event, "pods", pod)

    def bind(self, time: float) -> None:
        self.time = time
        for each in self.witness.calls:
            each(SimpleNamespace(operation=("bind", "default/p", "u")))


@pytest.mark.parametrize(
    ("event", "uid", "after", "found"),
    [
        ("MODIFIED", "u", LOOKED_UP, []),
        ("MODIFIED", "u", LOOKED_UP + SOON["bind"] + 1, ["done soon"]),
        ("MODIFIED", "another", LOOKED_UP, ["done soon"]),
        ("DELETED", "u", LOOKED_UP, ["done soon"]),
    ],
    ids=["undone", "undone long ago", "another pod", "deleted"],
)
def test_a_bind_that_a_restore_undid_is_made_again_once_it_is_looked_up(
    event: str, uid: str, after: float, found: list[str]
) -> None:
    f = Fixture()
    f.pod(10.0, "ADDED")
    f.pod(11.0, "MODIFIED", node="n")
    f.pod(UNDONE_AT, event, uid=uid)
    f.bind(UNDONE_AT + after)
    assert f.violations == found
