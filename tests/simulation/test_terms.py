"""The invariants of terms: an epoch may repeat only where no replica could know it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.invariants.terms import Terms
from tests.simulation.road import Asked

LEASE = "/apis/coordination.k8s.io/v1/namespaces/volcano-system/leases/volcano"


class Fixture:
    """A Lease that replicas of a simulation write and read, and that a restore takes back."""

    def __init__(self) -> None:
        self._changed: Any = None
        self.sim = SimpleNamespace(
            script=SimpleNamespace(acts=[SimpleNamespace(what="restore")]),
            loop=SimpleNamespace(time=lambda: 0.0),
            store=SimpleNamespace(subscribe=lambda _, changed: setattr(self, "_changed", changed)),
        )
        self.witness = SimpleNamespace(services=[], requests=[], calls=[], asking=None)
        self.terms = Terms(self.sim, self.witness)  # type: ignore[arg-type]

    def machine(self, name: str) -> Any:
        options = SimpleNamespace(identity=name, renew_deadline=2.0, request_timeout=1.0, leader_elect=True)
        return SimpleNamespace(name=name, replica=name[0], service=SimpleNamespace(options=options))

    def write(self, holder: str, epoch: int, *, restored: bool = False) -> None:
        self._hear("sent", holder, Asked(holder, 0.0, "PUT", LEASE))
        self.witness.asking = None if restored else SimpleNamespace(machine=self.machine(holder))
        self._changed("MODIFIED", "", {"spec": {"holderIdentity": holder, "leaseTransitions": epoch}})

    def read(self, name: str, status: int) -> None:
        asked = Asked(name, 0.0, "GET", LEASE)
        self._hear("sent", name, asked)
        asked.status = status
        self._hear("over", name, asked)

    def _hear(self, what: str, name: str, asked: Asked) -> None:
        for each in self.witness.requests:
            each(what, self.machine(name), asked)


@pytest.mark.parametrize(("status", "unread"), [(200, False), (0, True)], ids=["answered", "no answer"])
def test_a_replica_may_repeat_an_epoch_that_it_could_not_read_before_a_restore(status: int, unread: bool) -> None:
    f = Fixture()
    f.write("b-1", 0)
    f.write("a-1", 1)
    f.read("b-1", status)
    f.write("b-1", 0, restored=True)
    f.write("b-1", 1)
    assert f.terms.repeats_unread_epoch is unread
