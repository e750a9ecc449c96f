"""What the daemon knows and writes of queues in the place of Volcano's queue controller."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from tests.daemon.cycle.test_session_loop import puts
from tests.dsl import group, queue
from tests.kube.scripted import FakeClock, running
from vcd.daemon.controllers.queue_states import QueueStates
from vcd.kube.api_errors import ApiError, LeadershipLost
from vcd.kube.client import KubeClient
from vcd.model import events as ev
from vcd.model.controllers import CLOSED_BY_PARENT
from vcd.model.manifests import defaulted
from vcd.state.cluster_state import ClusterState


class Kept:
    """Queue states that are kept at a server which takes all, or refuses all; one look after the other.

    ``stored`` are queues that are other there than the watch has shown. ``after_read`` is called when one was read.
    """

    def __init__(self) -> None:
        self.state, self.clock = ClusterState(), FakeClock()
        self.written: list[dict[str, Any]] = []
        self.marked: list[str] = []
        self.stored: dict[str, dict[str, Any]] = {}
        self.version = 1
        self.after_read: Callable[[], None] = lambda: None
        self.refuses = False
        self.fenced = ""
        """The queue that was to be written when the Lease was lost; it is held again right then."""
        client = cast(KubeClient, self)
        self.queues = QueueStates(client, self.state, lambda: True, lambda name: "", clock=self.clock)

    async def request(self, method: str, path: str, body: bytes = b"", **_: Any) -> bytes:
        """As KubeClient."""
        name = path.removesuffix("/status").rpartition("/")[2]
        if name == self.fenced:
            raise LeadershipLost
        if method == "GET":
            found = self._stored(name)
            self.after_read()
            return found
        if self.refuses:
            raise ApiError(403, "Forbidden", "denied")
        asked = json.loads(body)
        if asked.get("metadata", {}).get("resourceVersion", str(self.version)) != str(self.version):
            raise ApiError(409, "Conflict", "the object has been modified")
        self.version += 1
        if "status" in asked:
            self.written.append(asked["status"])
        else:
            self.marked.append(asked["metadata"]["annotations"][CLOSED_BY_PARENT])
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}}).encode()

    def _stored(self, name: str) -> bytes:
        manifest = self.stored.get(name) or queue(name, state=self.state.queues[name].queue.status.state)
        found = defaulted(manifest)
        return json.dumps(found | {"metadata": found["metadata"] | {"resourceVersion": str(self.version)}}).encode()

    def user_writes(self, *queues: dict[str, Any]) -> None:
        """Somebody writes to queues, which the watch does not show yet."""
        self.version += 1
        self.stored.update({each["metadata"]["name"]: each for each in queues})

    async def happen(self, *events: ev.Event) -> None:
        """Something happens, and is looked at."""
        for event in events:
            self.state.apply(self.state.sequence + 1, event)
            self.queues.observe(event)
        await self.clock.advance_when_asleep(1.0)
        await self.clock.advance_when_asleep(0.0)


@pytest.fixture
async def kept() -> AsyncIterator[Kept]:
    made = Kept()
    async with running(made.queues.run()):
        yield made


async def test_of_a_queue_that_nothing_names_any_more_no_counts_are_kept(kept: Kept) -> None:
    await kept.happen(*puts(group("a", queue="never-was"), group("b", queue="never-was")))
    assert kept.queues._counts == {"never-was": {"Inqueue": 2}}
    await kept.happen(ev.ObjectGone("PodGroup", "default/a"), *puts(group("b", queue="other")))
    assert kept.queues._counts == {"other": {"Inqueue": 1}}
    await kept.happen(*puts(queue("other")))
    assert kept.written[-1]["inqueue"] == 1
    await kept.happen(ev.ObjectGone("PodGroup", "default/b"))
    assert kept.queues._counts == {}
    assert kept.written[-1]["inqueue"] == 0


async def test_of_a_queue_that_went_while_it_could_not_be_written_nothing_is_kept(kept: Kept) -> None:
    kept.refuses = True
    await kept.happen(*puts(queue("q")))
    assert kept.queues._retries.keys() == {"q"}
    await kept.happen(ev.ObjectGone("Queue", "q"))
    assert kept.queues._retries == {}


def states(kept: Kept) -> list[str]:
    """The states that were written."""
    return [status["state"] for status in kept.written if "state" in status]


async def test_a_queue_that_was_opened_just_now_is_not_closed(kept: Kept) -> None:
    kept.user_writes(queue("q", state="Open"))
    await kept.happen(*puts(queue("q", state="Closing")))
    assert kept.written == []
    assert kept.queues._retries == {}  # what the watch has yet to show is no failure
    await kept.happen(*puts(queue("q", state="Open")))
    assert len(kept.written) == 1
    assert states(kept) == []


async def test_a_queue_that_is_opened_while_it_is_written_is_not_closed(kept: Kept) -> None:
    kept.after_read = lambda: kept.user_writes(queue("q", state="Open"))
    await kept.happen(*puts(queue("q", state="Closing")))
    assert kept.written == []
    assert kept.queues._retries.keys() == {"q"}
    await kept.happen(*puts(queue("q", state="Open")))
    assert len(kept.written) == 1
    assert states(kept) == []


async def test_a_queue_that_was_closed_just_now_is_not_marked_as_closed_by_its_parent(kept: Kept) -> None:
    """Else it would be opened with its parent, though somebody closed it for itself."""
    kept.user_writes(queue("child", parent="top", state="Closed"))
    await kept.happen(*puts(queue("top", state="Closed"), queue("child", parent="top")))
    assert (kept.marked, states(kept)) == ([], [])
    kept.stored.clear()
    await kept.happen(*puts(queue("child", parent="top", state="Closed")))
    assert (kept.marked, states(kept)) == ([], [])


async def test_a_queue_is_closed_with_its_parent_once_it_is_marked(kept: Kept) -> None:
    kept.user_writes(queue("child", parent="top"))
    await kept.happen(*puts(queue("top", state="Closed"), queue("child", parent="top")))
    assert (kept.marked, states(kept)) == (["true"], ["Closed"])


async def test_counts_are_written_whoever_else_writes_to_the_queue(kept: Kept) -> None:
    await kept.happen(*puts(queue("q")))
    kept.user_writes(queue("q", state="Open", weight=2))
    await kept.happen(*puts(group("g", queue="q")))
    assert kept.written[-1]["inqueue"] == 1


async def test_after_a_lost_term_no_queue_is_written_from_what_was_forgotten(kept: Kept) -> None:
    kept.fenced = "a"
    running = group("g", queue="q", phase="Running")
    await kept.happen(*puts(queue("a"), queue("q", state="Closing"), running))
    assert kept.written == []
    kept.fenced = ""
    await kept.happen()
    assert [status["running"] for status in kept.written] == [0, 1]
    assert states(kept) == []
