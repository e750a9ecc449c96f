"""Statuses that somebody else takes away or overwrites are written again."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import GROUPS, QUEUES, Cluster, group, until, until_quiet


async def test_a_group_whose_manifest_is_replaced_is_admitted_again(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 16)
        daemon = await cluster.started("a")
        cluster.store.create(GROUPS, group("g", 2))

        def phase() -> str | None:
            found: str | None = cluster.store.get(GROUPS, "default", "g").get("status", {}).get("phase")
            return found

        await until(lambda: phase() == "Inqueue")
        await until_quiet(daemon)
        shown = cluster.store.get(GROUPS, "default", "g")
        cluster.store.update(GROUPS, {key: value for key, value in shown.items() if key != "status"})
        assert phase() != "Inqueue"
        await until(lambda: phase() == "Inqueue")


async def test_what_a_queue_says_is_written_again_where_somebody_overwrote_it(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1, 16)
        daemon = await cluster.started("a")
        await cluster.until_bound(cluster.submit("g", 2))

        def allocated() -> str | None:
            status = cluster.store.get(QUEUES, None, "default").get("status", {})
            found: str | None = (status.get("allocated") or {}).get("cpu")
            return found

        await until(lambda: allocated() == "2")
        await until_quiet(daemon)
        cluster.store.patch(QUEUES, None, "default", {"status": {"allocated": {"cpu": "7"}}}, "status")
        await until(lambda: allocated() == "2")
