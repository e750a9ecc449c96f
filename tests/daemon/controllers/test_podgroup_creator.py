"""The group that the daemon makes of a pod as it is in the state, and what of one that is there becomes another."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from tests import dsl
from tests.daemon.cycle.test_session_loop import puts
from tests.kube.scripted import FakeClock, running, until
from vcd.daemon.concurrency import followup
from vcd.daemon.controllers import podgroup_creator
from vcd.daemon.controllers.pod_owners import OwnerManifest, changes, group_for, group_key
from vcd.daemon.controllers.podgroup_creator import PodGroups
from vcd.kube.api_errors import ApiError
from vcd.kube.client import KubeClient
from vcd.model import events as ev
from vcd.model.objects import Pod
from vcd.model.projection_codec import from_manifest
from vcd.state.cluster_state import ClusterState

QUEUE, MINIMUM = "scheduling.volcano.sh/queue-name", "scheduling.volcano.sh/group-min-member"
OWNERS = [
    {"apiVersion": "example.com/v1", "kind": "Batch", "name": "b", "uid": "u-b"},
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r", "controller": True,
     "blockOwnerDeletion": True},
]  # fmt: skip


def pod(owners: list[dict[str, Any]], **annotations: str) -> Pod:
    """A pod whose init container and sidecar ask for something, too."""
    meta = {"name": "p", "namespace": "ns", "uid": "u-p", "annotations": annotations, "ownerReferences": owners}
    cpu = {"resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}}
    spec = {
        "containers": [{"name": "c", **cpu}],
        "initContainers": [{"name": "s", "restartPolicy": "Always", **cpu}],
        "priorityClassName": "high",
    }
    _, made, _ = from_manifest({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    assert isinstance(made, Pod)
    return made


def spec_of(pod: Pod, queue: str = "", **marks: str) -> dict[str, Any]:
    found: dict[str, Any] = group_for(pod, OwnerManifest(marks), queue)["spec"]
    return found


def test_a_group_is_named_after_the_controller_or_the_pod() -> None:
    assert (group_key(pod(OWNERS)), group_key(pod([]))) == ("ns/podgroup-u-r", "ns/podgroup-u-p")
    assert group_key(pod(OWNERS[:1])) == "ns/podgroup-u-p"


def test_nobodys_deletion_waits_for_a_group() -> None:
    for owners in (OWNERS, []):
        made = group_for(pod(owners), OwnerManifest(), "")["metadata"]["ownerReferences"]
        assert [owner.get("blockOwnerDeletion") for owner in made] == [None] * len(made)
        assert [owner["uid"] for owner in made if owner.get("controller")] == ["u-r" if owners else "u-p"]


def test_its_minimum_is_the_workloads_and_a_bare_pods_own_says_nothing() -> None:
    assert spec_of(pod(OWNERS), **{MINIMUM: "3"})["minMember"] == 3
    assert spec_of(pod([], **{MINIMUM: "3"}))["minMember"] == 1


def test_what_it_needs_is_what_as_many_pods_use_of_a_quota() -> None:
    assert spec_of(pod(OWNERS), **{MINIMUM: "2"})["minResources"] == {
        "count/pods": "2", "cpu": "2", "limits.memory": "4Gi", "pods": "2", "requests.cpu": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "namespaces", "expected"), [("a", "b", "a"), ("a", "", "a"), ("", "b", "b"), ("", "", None)]
)
def test_its_queue_is_the_pods_or_else_its_namespaces(own: str, namespaces: str, expected: str | None) -> None:
    named = {QUEUE: own} if own else {}
    assert spec_of(pod(OWNERS, **named), namespaces).get("queue") == expected


def test_nothing_changes_at_a_group_that_is_as_it_would_be_made() -> None:
    made = group_for(pod(OWNERS), OwnerManifest({"volcano.sh/a": "1"}, {"volcano.sh/b": "2"}), "q")
    assert changes(made, made) == {}
    shown = {**made, "metadata": {**made["metadata"], "annotations": {"volcano.sh/a": "1", "mine": "2"}}}
    assert changes(shown, made) == {}


def test_what_is_another_is_patched_and_what_is_no_longer_needed_goes() -> None:
    made = group_for(pod(OWNERS), OwnerManifest({"volcano.sh/a": "1"}), "")
    needed = {**made["spec"]["minResources"], "cpu": "9", "nvidia.com/gpu": "1"}
    shown = {"metadata": {"annotations": {"volcano.sh/a": "0"}}, "spec": {**made["spec"], "minResources": needed}}
    assert changes(shown, made) == {
        "metadata": {"annotations": {"volcano.sh/a": "1"}},
        "spec": {"minResources": {**made["spec"]["minResources"], "nvidia.com/gpu": None}},
    }


# --- who lacks one ----------------------------------------------------------------------------------------------------


DENIED = ApiError(403, "Forbidden", "denied by a webhook")


class Denied:
    """A maker of groups at a server that denies all of them; ``takes`` is how long it thinks about it, and ``error``
    what it says. Sets that own groups are scaled to nothing; who asks for one waits until ``answers`` is set."""

    def __init__(self, *there: Any, takes: float = 0.0, error: ApiError = DENIED) -> None:
        self.state, self.clock = ClusterState(), FakeClock()
        self.takes, self.error = takes, error
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[str] = []
        self.reads = self.deletes = 0
        self.told: list[str] = []
        client = cast(KubeClient, self)
        refused = lambda pod, why: self.told.append(pod.key)  # noqa: E731
        self.maker = PodGroups(client, self.state, lambda: True, refused, clock=self.clock)
        for event in puts(*there):
            self.state.apply(self.state.sequence + 1, event)

    async def request(self, method: str, path: str, body: bytes = b"", **_: Any) -> bytes:
        """As KubeClient."""
        if method == "GET":
            self.reads += 1
            await self.answers.wait()
            return b'{"metadata": {"uid": "u-r"}, "spec": {"replicas": 0}}'
        if method == "DELETE":
            self.deletes += 1
        else:
            self.asked.append(msgspec.json.decode(body)["metadata"]["name"])
        if self.takes:
            await self.clock.sleep(self.takes)
        raise self.error

    def happen(self, *events: ev.Event) -> None:
        for event in events:
            self.state.apply(self.state.sequence + 1, event)
            self.maker.observe(event)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods that were looked at closely, in order."""
    seen: list[str] = []

    def closely(pod: Pod) -> str:
        seen.append(pod.key)
        return group_key(pod)

    monkeypatch.setattr(podgroup_creator, "group_key", closely)
    return seen


async def test_a_pod_whose_group_cannot_be_made_is_looked_at_once_until_it_changes(looked_at: list[str]) -> None:
    denied = Denied(dsl.pod("a"), dsl.pod("b"))
    async with running(denied.maker.run()):
        for _ in range(20):
            await denied.clock.advance_when_asleep(1.0, sleepers=2)
        await until(lambda: len(denied.asked) >= 6)
        assert sorted(looked_at) == ["default/a", "default/b"]
        assert sorted(denied.told) == ["default/a", "default/b"]
        again = dsl.pod("a")
        again["metadata"]["uid"] = "another"
        denied.happen(ev.ObjectGone("Pod", "default/a"), *puts(again))
        await until(lambda: "podgroup-another" in denied.asked)
        assert looked_at[2:] == ["default/a"]


async def test_of_a_pod_that_is_gone_nothing_is_kept() -> None:
    denied = Denied()
    async with running(denied.maker.run()):
        denied.happen(*puts(dsl.pod("a")))
        await until(lambda: denied.told)
        denied.happen(ev.ObjectGone("Pod", "default/a"))
        for _ in range(130):  # a group that failed is due again, and then nobody asks for it
            await denied.clock.advance_when_asleep(1.0, sleepers=2)
    kept = {name: value for name, value in vars(denied.maker).items() if isinstance(value, dict)}
    assert not any(kept.values())


async def test_others_have_their_turn_while_pods_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followup, "SLICE", -1.0)  # each is longer than a slice of time
    turn, seen = [0], list[int]()

    async def others() -> None:
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    def closely(pod: Pod) -> str:
        seen.append(turn[0])
        return group_key(pod)

    monkeypatch.setattr(podgroup_creator, "group_key", closely)
    denied = Denied(*[dsl.pod(f"p-{number}") for number in range(20)])
    async with running(others()), running(denied.maker.run()):
        await until(lambda: len(seen) == 20)
    assert len(set(seen)) == 20


async def test_an_attempt_that_failed_slowly_is_followed_by_the_pause_that_the_server_asked_for() -> None:
    shed = ApiError(429, "TooManyRequests", "shed", 30.0)
    denied = Denied(dsl.pod("a"), takes=1.5, error=shed)
    async with running(denied.maker.run()):
        for _ in range(2):  # the look between them finds the pod without its group still
            await denied.clock.advance_when_asleep(1.0, sleepers=3)
        for _ in range(25):
            await denied.clock.advance_when_asleep(1.0, sleepers=2)
        assert len(denied.asked) == 1
        for _ in range(10):
            await denied.clock.advance_when_asleep(1.0, sleepers=2)
        await until(lambda: len(denied.asked) == 2)


def unneeded() -> dict[str, Any]:
    """A group of a set that has no pods."""
    made = dsl.group("podgroup-u-r")
    made["metadata"]["ownerReferences"] = OWNERS[1:]
    return made


async def test_pods_are_looked_at_while_the_sweep_waits_for_an_owner() -> None:
    denied = Denied(unneeded(), dsl.pod("a"))
    denied.answers.clear()
    async with running(denied.maker.run()):
        for _ in range(20):  # the second sweep asks
            await denied.clock.advance_when_asleep(1.0, sleepers=2)
        await until(lambda: denied.reads)
        before = len(denied.asked)
        for _ in range(70):
            await denied.clock.advance_when_asleep(1.0)
        await until(lambda: len(denied.asked) > before)
        assert denied.deletes == 0


async def test_a_group_whose_deletion_is_denied_is_tried_again_ever_later() -> None:
    denied = Denied(unneeded())
    async with running(denied.maker.run()):
        for _ in range(600):
            await denied.clock.advance_when_asleep(1.0, sleepers=2)
        assert 10 <= denied.deletes <= 22  # of 59 sweeps
        assert denied.maker._sweep_retries.keys() == {"default/podgroup-u-r"}
        denied.happen(ev.ObjectGone("PodGroup", "default/podgroup-u-r"))
        for _ in range(11):
            await denied.clock.advance_when_asleep(1.0, sleepers=2)
        assert denied.maker._sweep_retries == {}
