"""PodGroup, whose status is a part of the object, and Queue, whose status is not; and vcd's status writer on both."""

from __future__ import annotations

from tests.contract.server import Obj, Server
from tests.kube.scripted import running
from vcd.kube.client import MERGE_PATCH, STRATEGIC_PATCH
from vcd.kube.status_writer import StatusWriter
from vcd.model.events import GroupStatus, QueueUsage

# A scheduler that runs in the cluster writes statuses, too: what was written is looked for in the answer to the write.
CARD = "contract.vcd.example/card"
USED = {"cpu": "2", CARD: "1"}


async def group(server: Server, **spec: object) -> Obj:
    return await server.create("PodGroup", {"metadata": {"name": "g"}, "spec": {"minMember": 2, **spec}})


async def queue(server: Server) -> str:
    """A queue of the test's own; its name."""
    name = server.unique("queue")
    await server.create("Queue", {"metadata": {"name": name}, "spec": {"weight": 1}})
    return name


# --- PodGroup -------------------------------------------------------------------------------------------------------


async def test_a_group_has_no_status_subresource(server: Server) -> None:
    await group(server)
    patch = {"status": {"phase": "Inqueue"}}
    assert (await server.refused("PATCH", server.path("PodGroup", "g", "status"), patch, MERGE_PATCH)).status == 404


async def test_a_groups_status_is_written_with_the_object(server: Server) -> None:
    await group(server)
    patch = {"status": {"running": 7}}
    answer = await server.call("PATCH", server.path("PodGroup", "g"), patch, MERGE_PATCH)
    assert answer["status"]["running"] == 7


async def test_a_groups_patch_against_an_old_version_conflicts(server: Server) -> None:
    old = await group(server)
    await server.call("PATCH", server.path("PodGroup", "g"), {"status": {"running": 7}}, MERGE_PATCH)
    patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "status": {"running": 8}}
    assert (await server.refused("PATCH", server.path("PodGroup", "g"), patch, MERGE_PATCH)).status == 409


async def test_a_groups_update_of_the_newest_copy_is_taken(server: Server) -> None:
    await group(server)
    await server.change("PodGroup", "g", lambda obj: obj["spec"].update(minMember=3))
    assert (await server.get("PodGroup", "g"))["spec"]["minMember"] == 3


async def test_a_strategic_patch_of_a_custom_resource_is_415(server: Server) -> None:
    await group(server)
    assert (await server.refused("PATCH", server.path("PodGroup", "g"), {}, STRATEGIC_PATCH)).status == 415


async def test_what_the_definition_does_not_know_is_dropped(server: Server) -> None:
    assert "nonsense" not in (await group(server, nonsense=1))["spec"]


async def test_a_field_of_a_wrong_type_is_422(server: Server) -> None:
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"},
            "spec": {"minMember": "two"}}  # fmt: skip
    assert (await server.refused("POST", server.path("PodGroup"), body)).status == 422


async def test_the_writer_merges_a_groups_status(server: Server) -> None:
    await group(server)
    writer = StatusWriter(server.client, lambda: True)
    async with running(writer.run()):
        for type in ("Unschedulable", "Scheduled"):
            writer.submit_groups([GroupStatus(server.key("g"), "Inqueue", (type, "True", "Contract", "why"))])
            await writer.wait_until_idle()
    found = {each["type"] for each in (await server.get("PodGroup", "g"))["status"]["conditions"]}
    assert found >= {"Unschedulable", "Scheduled"}


# --- Queue ----------------------------------------------------------------------------------------------------------


async def test_a_queues_status_is_not_written_with_the_object(server: Server) -> None:
    name = await queue(server)
    answer = await server.call("PATCH", server.path("Queue", name), {"status": {"allocated": USED}}, MERGE_PATCH)
    assert CARD not in ((answer.get("status") or {}).get("allocated") or {})


async def test_a_queue_is_not_written_with_its_status(server: Server) -> None:
    name = await queue(server)
    patch = {"spec": {"weight": 9}, "status": {"allocated": USED}}
    answer = await server.call("PATCH", server.path("Queue", name, "status"), patch, MERGE_PATCH)
    assert (answer["spec"]["weight"], answer["status"]["allocated"][CARD]) == (1, "1")


async def test_a_null_takes_a_queues_resource_away(server: Server) -> None:
    name = await queue(server)
    path = server.path("Queue", name, "status")
    await server.call("PATCH", path, {"status": {"allocated": USED}}, MERGE_PATCH)
    patch = {"status": {"allocated": {CARD: None, "cpu": "1500m"}}}
    answer = await server.call("PATCH", path, patch, MERGE_PATCH)
    assert answer["status"]["allocated"] == {"cpu": "1500m"}


async def test_the_writer_writes_what_a_queue_has_allocated(server: Server) -> None:
    name = await queue(server)
    writer = StatusWriter(server.client, lambda: True)
    async with running(writer.run()):
        for allocated in (USED, {"cpu": "1500m"}):
            writer.submit_queues([QueueUsage(name, allocated)])
            await writer.wait_until_idle()
    assert (await server.get("Queue", name))["status"]["allocated"] == {"cpu": "1500m"}
