"""What-ifs about objects of kinds that a plugin from elsewhere brings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from vcd.model import events as ev
from vcd.model.kinds import Kind
from vcd.model.objects import Object, ObjectMeta, Projected
from vcd.model.projection_codec import encode_payload
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.plugin import Plugin
from vcd.state.records import Settings
from vcd.timetravel.whatif.cluster_edits import EditError, edited, read_edits
from vcd.timetravel.whatif.logged_workload import Workload


class RackSpec(Projected, frozen=True):
    """Whether it takes pods."""

    closed: bool = False


class Rack(Object, frozen=True):
    """An object of the plugin's own kind."""

    spec: RackSpec = RackSpec()


class RackPlugin(Plugin):
    """Brings it."""

    name = "racks"
    kinds = (Kind("Rack", "example.com", "v1", "racks", False, Rack),)


@dataclass
class Offered:
    """An entry point of the group vcd.plugins."""

    name: str = "racks"
    value: str = "racks:RackPlugin"
    dist: None = None

    def load(self) -> type[Plugin]:
        return RackPlugin


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    offered = {registry.PLUGIN_GROUP: [Offered()]}
    monkeypatch.setattr(registry, "_entry_points", lambda group: offered.get(group, []))
    registry.plugins.cache_clear()
    yield
    registry.plugins.cache_clear()


def payload(closed: bool) -> bytes:
    return encode_payload(Rack(ObjectMeta(name="a", uid="u"), RackSpec(closed)))


def work() -> Workload:
    return Workload(0, 1, None, Settings(), base=[ev.ObjectPut("Rack", "a", "1", payload(True))])


@pytest.mark.usefixtures("installed")
def test_a_field_of_such_an_object_can_be_another() -> None:
    (event,) = edited(work(), read_edits(["rack/a.spec.closed=false"])).base
    assert isinstance(event, ev.ObjectPut) and event.payload == payload(False)


@pytest.mark.usefixtures("installed")
def test_such_an_object_can_be_added() -> None:
    rack = {"kind": "Rack", "metadata": {"name": "b"}, "spec": {"closed": True}}
    *_, event = edited(work(), read_edits(added=[rack])).base
    assert isinstance(event, ev.ObjectPut) and (event.kind, event.key) == ("Rack", "b")


def test_without_the_plugin_its_kind_is_none_that_is_read() -> None:
    with pytest.raises(EditError, match="rack is not a kind that vcd reads"):
        read_edits(["rack/a.spec.closed=false"])
