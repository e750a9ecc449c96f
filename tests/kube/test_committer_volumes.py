"""Volumes before their pod: what is written where, how long it is waited for, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.scripted import Answer, FakeClock, HastyClock, ScriptedServer, Seen, failure, running, until
from tests.kube.test_committer import BIND, BOUND, UID, Fixture, committing, pod
from vcd.model.events import Operation, OperationDone, VolumeChoice

STATIC = VolumeChoice("default/data", "v", "uid-data")
MADE = VolumeChoice("default/data", "", "uid-data")
NODE = "g-n1"
MINE = {"namespace": "default", "name": "data", "uid": "uid-data"}
THEIRS = {"namespace": "default", "name": "theirs", "uid": "uid-theirs"}


def bind(*volumes: VolumeChoice, key: str = BIND.key) -> Operation:
    return Operation("bind", key, UID, NODE, volumes=volumes)


class Storage:
    """Claim and volume as an API server shows them, and a controller that binds them when a test says so."""

    def __init__(self, server: ScriptedServer, *, binds: bool = True) -> None:
        self.server = server
        self.binds = binds
        self.version = 10
        self.claim: dict[str, Any] = {"metadata": {"uid": "uid-data", "annotations": {}}, "spec": {"volumeName": ""}}
        self.volume: dict[str, Any] = {"metadata": {}, "spec": {}}
        server.on("GET", "/persistentvolumeclaims/data", lambda seen: self.shown("PersistentVolumeClaim", self.claim))
        server.on("GET", "/persistentvolumes/v", lambda seen: self.shown("PersistentVolume", self.volume))
        server.on("PATCH", "/persistentvolumeclaims/data", lambda seen: self.patch(self.claim, seen))
        server.on("PATCH", "/persistentvolumes/v", lambda seen: self.patch(self.volume, seen))
        server.on("GET", "/pods/", pod())
        server.on("POST", "binding", BOUND)

    def shown(self, kind: str, obj: dict[str, Any]) -> Answer:
        name, namespace = ("v", "") if kind == "PersistentVolume" else ("data", "default")
        meta = {"name": name, "namespace": namespace, "resourceVersion": str(self.version), **obj["metadata"]}
        return Answer(200, {"kind": kind, **obj, "metadata": meta})

    def patch(self, obj: dict[str, Any], seen: Seen) -> Answer:
        """A merge patch with the resource version as a precondition."""
        meta = dict(seen.body["metadata"])
        if meta.pop("resourceVersion") != str(self.version):
            return failure(409, "Conflict", "the object has been modified")
        self.version += 1
        obj["metadata"].setdefault("annotations", {}).update(meta.get("annotations", {}))
        obj["spec"].update(seen.body.get("spec", {}))
        if self.binds:
            self.bind()
        return Answer(200, {})

    def bind(self, volume: str = "v") -> None:
        self.claim["spec"]["volumeName"] = volume
        self.claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"

    def written(self) -> list[Seen]:
        return self.server.calls("PATCH")


# --- what is written --------------------------------------------------------------------------------------------------


async def test_a_volume_that_was_chosen_is_told_its_claim() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        assert await f.commit(bind(STATIC)) == [("done", "")]
        (call,) = storage.written()
    assert (call.path, call.headers["Content-Type"]) == ("/api/v1/persistentvolumes/v", "application/merge-patch+json")
    assert call.body == {
        "metadata": {"resourceVersion": "10", "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
        "spec": {"claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **MINE}},
    }


async def test_a_claim_to_be_provisioned_is_told_its_node() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        assert await f.commit(bind(MADE)) == [("done", "")]
        (call,) = storage.written()
    assert call.path == "/api/v1/namespaces/default/persistentvolumeclaims/data"
    assert call.body == {
        "metadata": {"resourceVersion": "10", "annotations": {"volume.kubernetes.io/selected-node": NODE}}
    }


async def test_a_volume_that_its_user_meant_for_the_claim_gets_its_uid_alone() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        storage.volume["spec"]["claimRef"] = {"namespace": "default", "name": "data"}
        assert await f.commit(bind(STATIC)) == [("done", "")]
        (call,) = storage.written()
    assert call.body["metadata"] == {"resourceVersion": "10"}
    assert call.body["spec"]["claimRef"]["uid"] == "uid-data"


@pytest.mark.parametrize("choice", [STATIC, MADE], ids=["volume", "provisioned"])
async def test_what_is_written_already_is_not_written_again(choice: VolumeChoice) -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        storage.volume["spec"]["claimRef"] = MINE
        storage.claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = NODE
        storage.bind()
        assert await f.commit(bind(choice)) == [("done", "")]
        assert storage.written() == []


async def test_the_pod_is_bound_after_its_volumes() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        await f.commit(bind(STATIC))
        methods = [seen.method for seen in storage.server.seen]
    assert methods.index("PATCH") < methods.index("POST")


@pytest.mark.parametrize("lost", [Answer(drop=True), failure(500, "InternalError"), failure(429, "TooManyRequests")])
async def test_a_write_in_doubt_is_looked_at_and_made_again(lost: Answer) -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        answers = [lost]

        def late(seen: Seen) -> Answer:
            return answers.pop() if answers else storage.patch(storage.volume, seen)

        f.server.on("PATCH", "/persistentvolumes/v", late)
        assert await f.commit(bind(STATIC)) == [("done", "")]
        assert len(storage.written()) == 2


# --- who came first ---------------------------------------------------------------------------------------------------


def taken(storage: Storage) -> None:
    storage.volume["spec"]["claimRef"] = THEIRS


def bound_elsewhere(storage: Storage) -> None:
    storage.bind("w")


def on_another_node(storage: Storage) -> None:
    storage.claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "n9"


def another_claim(storage: Storage) -> None:
    storage.claim["metadata"]["uid"] = "another"


def claim_leaves(storage: Storage) -> None:
    storage.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def volume_leaves(storage: Storage) -> None:
    storage.volume["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def no_claim(storage: Storage) -> None:
    storage.server.on("GET", "/persistentvolumeclaims/data", failure(404, "NotFound"))


def no_volume(storage: Storage) -> None:
    storage.server.on("GET", "/persistentvolumes/v", failure(404, "NotFound"))


@pytest.mark.parametrize(
    ("choice", "happened", "detail"),
    [
        (STATIC, taken, "volume v was bound to claim default/theirs"),
        (STATIC, bound_elsewhere, "claim default/data was bound to volume w"),
        (STATIC, volume_leaves, "volume v is being deleted"),
        (STATIC, no_volume, "PersistentVolume v no longer exists"),
        (MADE, on_another_node, "claim default/data was bound to node n9"),
        (MADE, bound_elsewhere, "claim default/data was bound to volume w"),
        (MADE, another_claim, "claim default/data is another one now"),
        (MADE, claim_leaves, "claim default/data is being deleted"),
        (MADE, no_claim, "PersistentVolumeClaim default/data no longer exists"),
    ],
)
async def test_what_someone_else_decided_is_a_conflict(choice: VolumeChoice, happened: Any, detail: str) -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        happened(storage)
        assert await f.commit(bind(choice)) == [("conflict", detail)]
        assert (storage.written(), f.binds()) == ([], 0)


async def test_a_volume_that_changed_under_the_write_is_looked_at_again() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)

        def late(seen: Seen) -> Answer:
            taken(storage)
            return failure(409, "Conflict", "the object has been modified")

        f.server.on("PATCH", "/persistentvolumes/v", late)
        assert await f.commit(bind(STATIC)) == [("conflict", "volume v was bound to claim default/theirs")]


async def test_a_volume_that_changes_again_and_again_is_a_conflict() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        f.server.on("PATCH", "/persistentvolumes/v", failure(409, "Conflict", "modified"))
        assert await f.commit(bind(STATIC)) == [("conflict", "409 Conflict: modified")]
        assert len(storage.written()) == 5


async def test_a_write_that_is_forbidden_fails_at_once() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        f.server.on("PATCH", "/persistentvolumes/v", failure(403, "Forbidden", "no"))
        assert await f.commit(bind(STATIC)) == [("failed", "403 Forbidden: no")]
        assert (len(storage.written()), f.binds()) == (1, 0)


# --- waiting ----------------------------------------------------------------------------------------------------------


async def wait_for_look(f: Fixture, clock: FakeClock) -> None:
    """Let one more look at the claims happen, which ends in waiting again."""
    await until(lambda: clock.sleeping)
    before = len(f.server.calls("GET", "/pods/"))
    clock.advance(2.0)
    await until(lambda: clock.sleeping and len(f.server.calls("GET", "/pods/")) > before)


@pytest.mark.parametrize("choice", [STATIC, MADE], ids=["volume", "provisioned"])
async def test_the_pod_waits_until_its_claim_is_bound(choice: VolumeChoice) -> None:
    clock = FakeClock()
    async with committing(clock) as f:
        storage = Storage(f.server, binds=False)
        async with running(f.commit(bind(choice))) as commit:
            for _ in range(3):
                await wait_for_look(f, clock)
            assert f.binds() == 0
            storage.bind()
            await clock.advance_when_asleep(2.0)
            assert await commit == [("done", "")]


async def test_a_pod_that_waits_holds_up_no_other() -> None:
    clock = FakeClock()
    async with committing(clock, concurrency=1) as f:
        storage = Storage(f.server, binds=False)
        plain = Operation("bind", "default/plain", "uid-plain", NODE)
        async with running(f.commit(bind(MADE), bind(MADE, key="default/second"), plain)) as commit:
            await until(lambda: f.log.of(OperationDone))
            (done,) = f.log.of(OperationDone)
            assert (done.operation, done.result) == (2, "done")
            await until(lambda: clock.sleeping == 2)
            storage.bind()
            clock.advance(2.0)
            await commit


async def test_volumes_that_are_not_bound_in_time_fail_the_bind() -> None:
    clock = HastyClock()
    async with committing(clock, bind_timeout=30.0) as f:
        Storage(f.server, binds=False)
        detail = "binding volumes took longer than 30 s: claim default/data waits for its volume to be made"
        assert await f.commit(bind(MADE)) == [("failed", detail)]
        assert f.binds() == 0


async def test_the_node_stays_with_the_claim_when_time_is_up() -> None:
    """As in kube-scheduler, where only the provisioner takes it back: it may be making the volume still."""
    async with committing(HastyClock(), bind_timeout=30.0) as f:
        storage = Storage(f.server, binds=False)
        await f.commit(bind(MADE))
        assert len(storage.written()) == 1


async def test_a_server_that_cannot_tell_is_waited_for_no_longer_than_for_volumes() -> None:
    clock = HastyClock()
    async with committing(clock, bind_timeout=30.0) as f:
        Storage(f.server)
        f.server.on("GET", "/persistentvolumeclaims/data", failure(503, "ServiceUnavailable", "down"))
        ((result, detail),) = await f.commit(bind(MADE))
    assert (result, detail) == ("failed", "binding volumes took longer than 30 s: 503 ServiceUnavailable: down")


@pytest.mark.parametrize(
    ("choice", "happens", "detail"),
    [
        (MADE, lambda s: s.claim["metadata"]["annotations"].clear(), "provisioning failed for claim default/data"),
        (STATIC, lambda s: s.volume["spec"].pop("claimRef"), "claimRef of volume v was reset"),
    ],
    ids=["provisioner gave up", "volume set free"],
)
async def test_a_choice_that_a_controller_took_back_fails_the_bind(
    choice: VolumeChoice, happens: Any, detail: str
) -> None:
    clock = FakeClock()
    async with committing(clock) as f:
        storage = Storage(f.server, binds=False)
        async with running(f.commit(bind(choice))) as commit:
            await wait_for_look(f, clock)
            happens(storage)
            clock.advance(2.0)
            assert await commit == [("failed", detail)]
            assert f.log.of(OperationDone)[-1].refused_at == clock.wall(), "the pod backs off as after any refusal"


@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        (failure(404, "NotFound"), ("gone", "the pod was deleted")),
        (pod(deleted=True), ("gone", "the pod is being deleted")),
        (pod("n9"), ("conflict", "already assigned to node n9")),
    ],
    ids=["gone", "leaving", "elsewhere"],
)
async def test_a_pod_that_needs_its_volumes_no_more_ends_the_wait(shown: Answer, outcome: tuple[str, str]) -> None:
    async with committing(HastyClock()) as f:
        Storage(f.server, binds=False)
        f.server.on("GET", "/pods/", shown)
        assert await f.commit(bind(MADE)) == [outcome]
        assert f.binds() == 0


# --- the fence --------------------------------------------------------------------------------------------------------


async def test_without_the_lease_nothing_is_written() -> None:
    async with committing(HastyClock()) as f:
        storage = Storage(f.server)
        f.epoch = 4
        assert await f.commit(bind(STATIC)) == [("failed", "lost leadership")]
        assert storage.server.seen == []


async def test_the_wait_ends_with_the_lease() -> None:
    clock = FakeClock()
    async with committing(clock) as f:
        storage = Storage(f.server, binds=False)
        async with running(f.commit(bind(MADE))) as commit:
            await wait_for_look(f, clock)
            f.epoch = 4
            storage.bind()
            await clock.advance_when_asleep(2.0)
            assert await commit == [("failed", "lost leadership")]
        assert f.binds() == 0
